/* Recipes: keys, ranges, defaults, setting, comparing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_paths.h"
#include "train/recipe.h"

static char directory[TEST_PATH_MAX], path[TEST_PATH_MAX + 16];

static int make_file(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "%s/recipe.json", test_make_directory(directory));
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    test_remove_directory(directory);
    return 0;
}

static ssm_status read_text(const char *text, ssm_recipe **out, ssm_error *err)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    ssm_error_clear(err);
    return ssm_recipe_read(path, out, err);
}

static void test_defaults(void **state)
{
    (void)state;
    ssm_recipe *recipe, *again;
    ssm_error err;
    assert_int_equal(read_text("{}", &recipe, &err), SSM_STATUS_OK);
    assert_int_equal(recipe->model.d_state, 16);
    assert_string_equal(recipe->model.mixer.values[0], "mamba1");
    char *text = ssm_recipe_text(recipe);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"lr\": 0.001"));
    assert_non_null(strstr(text, "\"tied\": true"));
    assert_int_equal(read_text(text, &again, &err), SSM_STATUS_OK); /* prints what it reads */
    char *same = ssm_recipe_text(again);
    assert_string_equal(text, same);
    free(text);
    free(same);
    ssm_recipe_free(again);
    ssm_recipe_free(recipe);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[1]", "is a JSON object"},
        {"{\"modle\": {}}", "did you mean \"model\"?"},
        {"{\"model\": {\"d_modell\": 3}}", "did you mean \"d_model\"?"},
        {"{\"model\": {\"d_model\": 0}}", "1 … 16777216"},
        {"{\"model\": {\"d_model\": \"wide\"}}", "d_model is \"wide\""},
        {"{\"model\": {\"d_model\": {}}}", "expected a number"},
        {"{\"model\": 7}", "model is not an object"},
        {"{\"optimiser\": {\"lr\": -1}}", "lr is \"-1\""},
        {"{\"optimiser\": {\"lr\": 1e400}}", "JSON"},
        {"{\"model\": {\"norm\": \"rns\"}}", "rms"},
        {"{\"seed\": -1}", "seed"},
        {"{\"seed\": 1.5}", "seed"},
        {"{\"task\": 3}", "task is not an object"},
        {"{\"schedule\": {\"steps\": 5, \"warmup\": 6}}", "warmup is 6 of 5"},
        {"{\"schedule\": {\"steps\": 5, \"steps\": 6}}", "duplicate"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ssm_recipe *recipe = NULL;
        ssm_error err;
        if (read_text(cases[i].text, &recipe, &err) != SSM_STATUS_FILE || recipe != NULL) {
            fail_msg("%s is accepted", cases[i].text);
        }
        if (strstr(err.message, cases[i].says) == NULL || strcmp(err.file, path) != 0) {
            fail_msg("%s: %s: %s", cases[i].text, err.file, err.message);
        }
    }
}

static void test_setting(void **state)
{
    (void)state;
    ssm_recipe *recipe, *copy;
    ssm_error err;
    assert_int_equal(read_text("{\"task\": {\"name\": \"copy\"}}", &recipe, &err), SSM_STATUS_OK);
    assert_int_equal(ssm_recipe_copy(recipe, &copy, &err), SSM_STATUS_OK);
    assert_int_equal(ssm_recipe_set(recipe, "lr", "0.25", &err), SSM_STATUS_OK);
    assert_int_equal(ssm_recipe_set(recipe, "seed", "7", &err), SSM_STATUS_OK);
    assert_int_equal(ssm_recipe_set(recipe, "model.mixer", "[\"mamba1\", \"attention\"]", &err),
                     SSM_STATUS_OK);
    assert_int_equal(ssm_recipe_set(recipe, "model.norm", "layer", &err), SSM_STATUS_OK);
    assert_int_equal(ssm_recipe_set(recipe, "task.max", "9", &err), SSM_STATUS_OK);
    assert_true(recipe->optimiser.lr == 0.25);
    assert_int_equal(recipe->seed, 7);
    assert_int_equal(recipe->model.mixer.count, 2);
    assert_int_equal(recipe->model.norm, SSM__NORM_LAYER);
    assert_int_equal(json_integer_value(json_object_get(recipe->task, "max")), 9);
    assert_true(copy->optimiser.lr == 0.001); /* its own */

    const char *const bad[][2] = {
        {"every", "3"}, {"lrr", "1"}, {"model.d_model", "0"}, {"x.y", "1"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ssm_recipe_set(recipe, bad[i][0], bad[i][1], &err), SSM_STATUS_USAGE);
    }
    assert_true(recipe->optimiser.lr == 0.25); /* as it was */

    json_t *was = ssm__recipe_json(copy, NULL), *is = ssm__recipe_json(recipe, NULL);
    char differences[400];
    assert_false(ssm__json_differs(was, was, differences, sizeof differences));
    assert_true(ssm__json_differs(was, is, differences, sizeof differences));
    assert_non_null(strstr(differences, "optimiser.lr is 0.25, was 0.001"));
    assert_non_null(strstr(differences, "seed is 7, was 0"));
    assert_non_null(strstr(differences, "task.max is 9, was not set"));
    assert_null(strstr(differences, "d_state"));
    json_decref(was);
    json_decref(is);
    ssm_recipe_free(recipe);
    ssm_recipe_free(copy);
}

static void test_keys(void **state)
{
    (void)state;
    char *keys = ssm_recipe_keys();
    assert_non_null(keys);
    assert_non_null(strstr(keys, "schedule.warmup: "));
    free(keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_setting),
        cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
