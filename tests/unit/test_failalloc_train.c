/* Tasks and mimetic initialisation when memory runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "failalloc.h"

#include <ssmscope/init.h>

#include "base/error.h"
#include "test_paths.h"
#include "train/mimetic.h"
#include "train/task.h"

static char directory[TEST_PATH_MAX];
static char text[TEST_PATH_MAX + 32], lines[TEST_PATH_MAX + 32], model[TEST_PATH_MAX + 32],
    output[TEST_PATH_MAX + 32];

static ssm_status expect(bool right)
{
    return right ? SSM_STATUS_OK : SSM_STATUS_CHECK;
}

static void check(failalloc_case one)
{
    assert_true(failalloc_check(&one));
}

/* ---- tasks ----------------------------------------------------------------------------------- */

typedef struct task_case {
    const char *name;
    ssm_train_setting settings[3];
    int64_t count;
} task_case;

static ssm_status use_task(const ssm_train_task *task, ssm_error *err)
{
    ssm_train_batch batch;
    SSM__TRY(ssm_train_batch_create(task, 2, ssm_train_task_info(task)->length, &batch, err));
    ssm_train_task_rows(task, 5, &batch);
    const bool filled = batch.used[0] > 0 && batch.used[1] > 0;
    ssm_train_batch_free(&batch);
    SSM__TRY(expect(filled));
    char *settings = ssm_train_task_settings(task);
    if (settings == NULL) {
        return ssm__fail_memory(err, "settings", 0);
    }
    free(settings);
    return SSM_STATUS_OK;
}

static ssm_status run_task(void *context, ssm_error *err)
{
    const task_case *this = context;
    ssm_train_task *task = NULL;
    SSM__TRY(ssm_train_task_create(this->name, this->settings, this->count, 1, &task, err));
    ssm_status status = use_task(task, err);
    ssm_train_task_free(task);
    return status;
}

static void tasks(void **state)
{
    (void)state;
    task_case cases[] = {
        {"copy", {{"max", "9"}, {"evaluate", "5,7"}, {"evaluate", "6"}}, 3},
        {"mqar", {{"pairs", "4"}}, 1},
        {"switched-linear", {{"length", "10"}}, 1},
        {"language", {{"text", text}, {"length", "4"}, {"evaluation", text}}, 3},
        {"classification", {{"text", lines}, {"length", "4"}, {"evaluation", lines}}, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check((failalloc_case){.name = cases[i].name, .run = run_task, .context = &cases[i]});
    }
}

static ssm_status run_json(void *context, ssm_error *err)
{
    ssm_train_task *task = NULL;
    SSM__TRY(ssm__train_task_from_json(context, 1, "recipe.json", &task, err));
    ssm_status status = use_task(task, err);
    ssm_train_task_free(task);
    return status;
}

static void recipes(void **state)
{
    (void)state;
    json_t *object = json_pack("{s:s, s:i, s:[i, i]}", "name", "copy", "max", 9, "evaluate", 5, 7);
    assert_non_null(object);
    check((failalloc_case){.name = "a task of a recipe", .run = run_json, .context = object});
    json_decref(object);
}

/* ---- mimetic initialisation ------------------------------------------------------------------ */

static void empty_output(void)
{
    bool armed = failalloc_disarm();
    if (access(output, F_OK) == 0) {
        test_remove_directory(output);
    }
    failalloc_restore(armed);
}

static ssm_status run_new(void *context, ssm_error *err)
{
    ssm_config config;
    empty_output();
    SSM__TRY(ssm_shape_config("tiny-mamba2", &config, err));
    config.n_layers = 1;
    return ssm_init_write_mimetic(&config, NULL, context, SSM_DTYPE_F32, 0, output, NULL, err);
}

static ssm_status run_rewrite(void *context, ssm_error *err)
{
    ssm_checkpoint *checkpoint = NULL;
    empty_output();
    SSM__TRY(ssm_checkpoint_open(model, NULL, &checkpoint, err));
    ssm_status status = ssm_mimetic_rewrite(checkpoint, context, 0, NULL, output, NULL, err);
    ssm_checkpoint_close(checkpoint);
    return status;
}

static void mimetic(void **state)
{
    (void)state;
    ssm_config config;
    ssm_mimetic all = ssm_mimetic_default();
    all.mode = SSM_MIMETIC_ORTHOGONAL;
    assert_int_equal(ssm_shape_config("tiny-mamba2", &config, NULL), SSM_STATUS_OK);
    config.n_layers = 1;
    assert_int_equal(ssm_init_write(&config, SSM_DTYPE_BF16, 0, model, NULL, NULL), SSM_STATUS_OK);
    check((failalloc_case){
        .name = "ssm_init_write_mimetic", .run = run_new, .context = &all, .dense = 50});
    check((failalloc_case){
        .name = "ssm_mimetic_rewrite", .run = run_rewrite, .context = &all, .dense = 50});
    empty_output();
}

static void write_file(const char *path, const char *words)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(words, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

int main(void)
{
    test_make_directory(directory);
    snprintf(text, sizeof text, "%s/text.txt", directory);
    snprintf(lines, sizeof lines, "%s/lines.tsv", directory);
    snprintf(model, sizeof model, "%s/model", directory);
    snprintf(output, sizeof output, "%s/output", directory);
    write_file(text, "a text of thirty bytes or more");
    write_file(lines, "sad\tone\nglad\ttwo\nmad\tthree\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks),
        cmocka_unit_test(recipes),
        cmocka_unit_test(mimetic),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_remove_directory(directory);
    return failed;
}
