/* Recipes and runs of training when memory runs out: MEMORY, and what was there stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failalloc.h"

#include <ssmscope/train.h>

#include "base/error.h"
#include "base/file.h"
#include "test_paths.h"

static const char text[] =
    "{\"seed\": 2, \"model\": {\"d_model\": 8, \"n_layers\": 2, \"d_state\": 2, \"d_mlp\": 8},"
    " \"init\": {\"mimetic\": \"all\"},"
    " \"task\": {\"name\": \"copy\", \"min\": 2, \"max\": 3, \"letters\": 3, \"length\": 16,"
    " \"evaluate\": [2]},"
    " \"batch\": {\"rows\": 1, \"accumulate\": 2}, \"evaluate\": {\"rows\": 1},"
    " \"schedule\": {\"steps\": 2}}";

typedef struct fixture {
    char root[TEST_PATH_MAX];
    char recipe[TEST_PATH_MAX + 16], to[TEST_PATH_MAX + 16];
    bool resume;
} fixture;

static ssm_status train(const fixture *f, ssm_error *err)
{
    ssm_recipe *recipe;
    ssm_train_result result;
    const ssm_train_options options = {.resume = f->resume};
    SSM__TRY(ssm_recipe_read(f->recipe, &recipe, err));
    ssm_status status = ssm_recipe_set(recipe, "lr", "0.25", err);
    if (status == SSM_STATUS_OK) {
        status = ssm_train(recipe, f->to, &options, &result, err);
    }
    if (status == SSM_STATUS_OK) {
        free(result.evaluation);
    }
    ssm_recipe_free(recipe);
    return status;
}

static ssm_status run_train(void *context, ssm_error *err)
{
    const fixture *f = context;
    const bool armed = failalloc_disarm();
    if (!f->resume && access(f->to, F_OK) == 0) {
        test_remove_directory(f->to); /* of the run before */
    }
    failalloc_restore(armed);
    return train(f, err);
}

static void runs(void **state)
{
    fixture f = {.resume = false};
    (void)state;
    snprintf(f.recipe, sizeof f.recipe, "%s/recipe.json", test_make_directory(f.root));
    snprintf(f.to, sizeof f.to, "%s/to", f.root);
    assert_int_equal(ssm__write_file(f.recipe, text, strlen(text), NULL), SSM_STATUS_OK);
    failalloc_case this = {.name = "a run", .run = run_train, .context = &f, .dense = 60};
    assert_true(failalloc_check(&this));
    f.resume = true; /* of the run that is done by now */
    this.name = "a resumed run";
    assert_true(failalloc_check(&this));
    assert_int_equal(train(&f, NULL), SSM_STATUS_OK);
    test_remove_directory(f.root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
