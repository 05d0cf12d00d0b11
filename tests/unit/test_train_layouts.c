/* What a recipe writes in a published layout is a model that the engine opens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/checkpoint.h>

#include "test_paths.h"
#include "train/recipe.h"

static const char *const mixers[] = {"\"mamba1\"", "\"mamba2\"", "[\"mamba1\", \"attention\"]",
                                     "[\"attention\", \"mamba2\"]"};
static const char *const extras[] = {"",
                                     ", \"attention_conv\": 3",
                                     ", \"rotary_dim\": 8",
                                     ", \"kv_heads\": 1",
                                     ", \"norm\": \"layer\"",
                                     ", \"d_mlp\": 40",
                                     ", \"tied\": false",
                                     ", \"shared_layers\": true",
                                     ", \"n_groups\": 2"};

/* Writes the model of a recipe; true: in a published layout, and it has been opened. */
static bool write_and_open(const char *mixer, const char *extra)
{
    char text[512], base[TEST_PATH_MAX], path[TEST_PATH_MAX + 16];
    ssm_recipe *recipe;
    ssm_recipe_start start;
    ssm_error err;
    ssm_error_clear(&err);
    snprintf(text, sizeof text,
             "{\"model\": {\"mixer\": %s, \"d_model\": 32, \"n_layers\": 2, \"d_state\": 8, "
             "\"head_dim\": 16%s}, \"task\": {\"name\": \"copy\", \"max\": 5}}",
             mixer, extra);
    test_make_directory(base);
    snprintf(path, sizeof path, "%s/model", base);
    if (ssm__recipe_from_memory("recipe", text, strlen(text), &recipe, &err) != SSM_STATUS_OK ||
        ssm_recipe_init(recipe, path, &start, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    ssm_checkpoint *checkpoint = NULL;
    if (start.published && ssm_checkpoint_open(path, NULL, &checkpoint, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    ssm_checkpoint_close(checkpoint);
    ssm_recipe_free(recipe);
    test_remove_directory(base);
    return start.published;
}

static void published_layouts_open(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof mixers / sizeof mixers[0]; m++) {
        for (size_t e = 0; e < sizeof extras / sizeof extras[0]; e++) {
            if (mixers[m][0] != '[' || strstr(extras[e], "shared") == NULL) {
                assert_true(write_and_open(mixers[m], extras[e]));
            }
        }
    }
}

static void others_are_ours(void **state)
{
    static const char *const rows[][2] = {{"\"attention\"", ""},
                                          {"\"gla\"", ""},
                                          {"\"linear_attention\"", ""},
                                          {"\"h3\"", ""},
                                          {"[\"mamba1\", \"mamba2\"]", ""},
                                          {"\"mamba2\"", ", \"time_invariant\": true"},
                                          {"\"mamba2\"", ", \"norm\": \"none\""}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_false(write_and_open(rows[i][0], rows[i][1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_layouts_open),
        cmocka_unit_test(others_are_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
