/* Settings of tasks from words and from JSON, refusals, scores. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_task.h"
#include "train/task.h"

/* ---- settings -------------------------------------------------------------------------------- */

static void defaults_and_json(void **state)
{
    (void)state;
    ssm_train_task *task = test_task("copy", "max=12 evaluate=30,12 evaluate=30", 5);
    const ssm_train_info *info = ssm_train_task_info(task);
    assert_string_equal(info->name, "copy");
    assert_int_equal(info->vocab_size, 30);
    assert_int_equal(info->output_width, 30);
    assert_int_equal(info->length, 256);
    assert_int_equal(info->n_sizes, 2); /* rising, without repetitions */
    assert_int_equal(info->sizes[0], 12);
    assert_int_equal(info->sizes[1], 30);
    char *text = ssm_train_task_settings(task);
    assert_string_equal(
        text, "{\"letters\":26,\"min\":5,\"max\":12,\"length\":256,\"evaluate\":[12,30]}");

    /* What is printed makes the same task again. */
    json_t *object = json_loads(text, 0, NULL);
    assert_int_equal(json_object_set_new(object, "name", json_string("copy")), 0);
    ssm_train_task *again = NULL;
    assert_int_equal(ssm__train_task_from_json(object, 5, NULL, &again, NULL), SSM_STATUS_OK);
    assert_string_equal(ssm_train_task_digest(task), ssm_train_task_digest(again));
    free(text);
    json_decref(object);
    ssm_train_task_free(task);
    ssm_train_task_free(again);

    task = test_task("copy", "", 0);
    info = ssm_train_task_info(task);
    assert_int_equal(info->n_sizes, 4);
    assert_int_equal(info->sizes[0], 50);
    assert_int_equal(info->sizes[3], 300);
    ssm_train_task_free(task);

    ssm_train_key key;
    assert_true(ssm_train_task_key("copy", 0, &key));
    assert_string_equal(key.key, "letters");
    assert_string_equal(key.allowed, "a whole number in 1 … 26");
    assert_false(ssm_train_task_key("copy", 99, &key));
    assert_false(ssm_train_task_key("none", 0, &key));
}

typedef struct refused {
    const char *task, *settings, *part;
} refused;

static const refused refusals_list[] = {
    {"cpoy", "", "did you mean copy?"},
    {"abcdefghijkl", "", "expected one of copy, stack-copy"},
    {"copy", "lenght=5", "did you mean \"length\"?"},
    {"copy", "zzzzzzzzz=5", "expected letters, min, max, length, evaluate"},
    {"copy", "max=0", "max is \"0\"; expected a whole number in 1 … 100000"},
    {"copy", "max=1e3", "max is \"1e3\"; expected a whole number"},
    {"copy", "max=99999999999999999999", "expected a whole number"},
    {"copy", "max=5 max=6", "max is given twice"},
    {"copy", "min=9 max=8", "min is 9 and max 8"},
    {"copy", "max=50 length=100", "needs 102 positions"},
    {"copy", "letters=27", "in 1 … 26"},
    {"copy", "evaluate=50,x", "whole numbers in"},
    {"copy", "evaluate=", "whole numbers in"},
    {"prefix-ngram", "ngram=9", "needs at least 12 letters"},
    {"prefix-ngram", "evaluate=5", "cannot be evaluated at 5 letters; expected 6 …"},
    {"mqar", "pairs=40", "at least 4 · pairs = 160"},
    {"mqar", "length=65", "an even number"},
    {"mqar", "vocab=16 pairs=8", "at most 7 pairs"},
    {"mqar", "fill=noise", "one of random|zero"},
    {"mqar", "power=-1", "a number in"},
    {"mqar", "power=nan", "a number in"},
    {"selective-copying", "length=20", "at least 2 · tokens = 32"},
    {"switched-linear", "width=3", "an even number"},
    {"switched-linear", "dwell_min=500", "dwell_min is 500 and dwell_max 400"},
    {"switched-linear", "slow_1=3", "slow_1 is 3 and fast_1 2"},
    {"language", "", "text is missing"},
    {"classification", "", "text is missing"},
};

static void refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals_list / sizeof refusals_list[0]; i++) {
        const refused *case_ = &refusals_list[i];
        ssm_error err;
        assert_int_equal(test_task_status(case_->task, case_->settings, &err), SSM_STATUS_USAGE);
        if (strstr(err.message, case_->part) == NULL) {
            fail_msg("%s %s: \"%s\" lacks \"%s\"", case_->task, case_->settings, err.message,
                     case_->part);
        }
    }
}

static void expect_json_refusal(const char *text, const char *part)
{
    ssm_train_task *task = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    json_t *object = json_loads(text, 0, NULL);
    assert_non_null(object);
    assert_int_equal(ssm__train_task_from_json(object, 0, "recipe.json", &task, &err),
                     SSM_STATUS_USAGE);
    assert_null(task);
    if (strstr(err.message, part) == NULL || strcmp(err.file, "recipe.json") != 0) {
        fail_msg("%s: \"%s\" (%s) lacks \"%s\"", text, err.message, err.file, part);
    }
    json_decref(object);
}

static void refusals_in_json(void **state)
{
    (void)state;
    expect_json_refusal("{\"max\": 5}", "the task has no name");
    expect_json_refusal("{\"name\": \"kopy\"}", "did you mean copy?");
    expect_json_refusal("{\"name\": \"copy\", \"lenght\": 5}", "did you mean \"length\"?");
    expect_json_refusal("{\"name\": \"copy\", \"max\": 5.5}", "max is \"5.5\"");
    expect_json_refusal("{\"name\": \"copy\", \"max\": {}}", "\"max\" is neither a number");
    expect_json_refusal("{\"name\": \"copy\", \"max\": true}", "\"max\" is neither a number");
    expect_json_refusal("{\"name\": \"copy\", \"max\": [5, 6]}",
                        "max is a list; expected a whole number");
}

static void batches_and_sizes_are_checked(void **state)
{
    (void)state;
    ssm_train_task *task = test_task("copy", "", 0);
    ssm_train_batch batch;
    int64_t length = 0;
    assert_int_equal(ssm_train_batch_create(task, 0, 5, &batch, NULL), SSM_STATUS_USAGE);
    assert_int_equal(ssm_train_batch_create(task, 5, 0, &batch, NULL), SSM_STATUS_USAGE);
    assert_int_equal(ssm_train_batch_create(task, 5, INT64_MAX, &batch, NULL), SSM_STATUS_USAGE);
    assert_int_equal(ssm_train_task_length(task, 0, &length, NULL), SSM_STATUS_USAGE);
    assert_int_equal(ssm_train_task_length(task, 1 << 21, &length, NULL), SSM_STATUS_USAGE);
    assert_int_equal(ssm_train_task_length(task, 300, &length, NULL), SSM_STATUS_OK);
    assert_int_equal(length, 602);
    ssm_train_batch_free(NULL);
    ssm_train_task_free(task);
    ssm_train_task_free(NULL);
}

/* ---- scores ---------------------------------------------------------------------------------- */

static void accuracies(void **state)
{
    (void)state;
    ssm_train_task *task = test_task("copy", "letters=1", 0);
    ssm_train_batch batch = test_task_examples(task, 2, 0, 3); /* $aa|aa, labels ---aa. */
    const int32_t a = 0;
    const int32_t eos = 3;
    const int32_t other = 2;
    const int32_t predictions[3][6] = {
        {other, other, other, a, a, eos},      /* right */
        {other, other, other, a, a, other},    /* a wrong EOS does not count */
        {other, other, other, a, other, eos}}; /* one letter wrong */
    ssm_train_score score = {0};
    assert_true(isnan(ssm_train_string_accuracy(&score)));
    assert_true(isnan(ssm_train_character_accuracy(&score)));
    ssm_train_score_add(&score, task, &batch, &predictions[0][0]);
    assert_int_equal(score.strings, 3);
    assert_int_equal(score.strings_right, 2);
    assert_int_equal(score.characters, 6);
    assert_int_equal(score.characters_right, 5);
    assert_true(ssm_train_string_accuracy(&score) == 2.0 / 3);
    assert_true(ssm_train_character_accuracy(&score) == 5.0 / 6);
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);
}

static void squared_errors(void **state)
{
    (void)state;
    ssm_train_task *task = test_task("switched-linear", "width=2", 0);
    ssm_train_batch batch = test_task_examples(task, 3, 0, 2);
    float outputs[12];
    for (int i = 0; i < 12; i++) {
        outputs[i] = batch.targets[i];
    }
    ssm_train_score score = {0};
    ssm_train_score_add_vectors(&score, task, &batch, outputs);
    assert_true(ssm_train_mean_squared_error(&score) == 0);
    batch.targets[5] = 1.0F;
    outputs[5] = 1.5F;
    score = (ssm_train_score){0};
    ssm_train_score_add_vectors(&score, task, &batch, outputs);
    assert_int_equal(score.components, 12);
    assert_true(ssm_train_mean_squared_error(&score) == 0.25 / 12);
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_and_json), cmocka_unit_test(refusals),
        cmocka_unit_test(refusals_in_json),  cmocka_unit_test(batches_and_sizes_are_checked),
        cmocka_unit_test(accuracies),        cmocka_unit_test(squared_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
