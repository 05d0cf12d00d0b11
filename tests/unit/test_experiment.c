/* Experiments: their runs, what is chosen, and tables against numbers worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "test_paths.h"
#include "train/experiment.h"

static char directory[TEST_PATH_MAX], path[TEST_PATH_MAX + 32];

static int make_directory(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "%s/file.json", test_make_directory(directory));
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    test_remove_directory(directory);
    return 0;
}

static const char text[] =
    "{\"name\": \"hand\", \"recipe\": {\"task\": {\"name\": \"copy\", \"evaluate\": [5]}},"
    " \"arms\": {\"plain\": {}, \"other\": {\"init.mimetic\": \"all\"}},"
    " \"grid\": {\"model.d_model\": [16, 32], \"model.mixer\": [\"mamba1\", [\"mamba1\", "
    "\"mamba1\", \"mamba1\", \"mamba1\"]]},"
    " \"seeds\": [3, 1], \"measures\": [\"strings\", \"perplexity\"],"
    " \"tune\": {\"key\": \"optimiser.lr\", \"values\": [0.1, 0.01, 0.001], \"seeds\": [7, 8],"
    "  \"measure\": \"loss\", \"size\": \"5\"},"
    " \"summary\": {\"band\": \"range\", \"against\": \"plain\"}}";

static ssm_experiment *read_text(void)
{
    ssm_experiment *e = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    const ssm_status status = ssm_experiment_read(path, &e, &err);
    if (status != SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
    return e;
}

enum { ARMS = 2, CELLS = 4, TUNE_SEEDS = 2, VALUES = 3, SEEDS = 2 };
enum { TUNING = TUNE_SEEDS * ARMS * CELLS * VALUES, ALL = TUNING + SEEDS * ARMS * CELLS };

static void test_runs(void **state)
{
    (void)state;
    ssm_experiment *e = read_text();
    ssm__experiment_run *runs;
    int64_t count;
    assert_int_equal(ssm__runs_create(e, &runs, &count, NULL), SSM_STATUS_OK);
    assert_int_equal(count, ALL);
    assert_string_equal(runs[0].name,
                        "tune,plain,model.d_model=16,model.mixer=mamba1,optimiser.lr=0.1,seed=7");
    assert_string_equal(runs[TUNING].name, "plain,model.d_model=16,model.mixer=mamba1,seed=3");
    assert_string_equal(runs[TUNING + 7].name,
                        "other,model.d_model=32,model.mixer=--mamba1-,-mamba1-,-mamba1-,-mamba1--"
                        ",seed=3");
    ssm_recipe *recipe;
    assert_int_equal(ssm__run_recipe(e, &runs[TUNING + 7], 1, &recipe, NULL), SSM_STATUS_OK);
    assert_int_equal(recipe->seed, 3);
    assert_int_equal(recipe->model.d_model, 32);
    assert_int_equal(recipe->model.mixer.count, 4);
    assert_string_equal(recipe->init.mimetic, "all");
    assert_true(recipe->optimiser.lr == 0.01);
    ssm_recipe_free(recipe);
    ssm__runs_free(runs, count);
    ssm_experiment_free(e);
}

static void set_result(ssm__experiment_run *run, double loss, double strings)
{
    run->evaluation = json_pack("{s:{s:f, s:f}}", "5", "loss", loss, "strings", strings);
    run->done = true;
}

/* Of arm 0 in cell 0 the second value has the lowest mean loss, 0.3 against 0.4 and 0.35, though
 * the first has the lowest one, 0.1. */
static void set_tuning(ssm__experiment_run *runs)
{
    static const double losses[TUNE_SEEDS][VALUES] = {{0.1, 0.4, 0.3}, {0.7, 0.2, 0.4}};
    for (int64_t i = 0; i < TUNING; i++) {
        const int64_t s = i / (TUNING / TUNE_SEEDS);
        set_result(&runs[i], losses[s][runs[i].tuned] + (double)runs[i].arm, 0);
    }
}

static void test_tuned(void **state)
{
    (void)state;
    ssm_experiment *e = read_text();
    ssm__experiment_run *runs;
    int64_t count;
    assert_int_equal(ssm__runs_create(e, &runs, &count, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__tuned(e, runs, count, 0, 0), -1); /* nothing is done */
    set_tuning(runs);
    assert_int_equal(ssm__tuned(e, runs, count, 0, 0), 1);
    assert_int_equal(ssm__tuned(e, runs, count, 1, 3), 1);
    runs[1].failure = strdup("nan"); /* of the second value, arm 0, cell 0 */
    assert_int_equal(ssm__tuned(e, runs, count, 0, 0), 2);
    assert_int_equal(ssm__tuned(e, runs, count, 0, 1), 1);
    ssm__runs_free(runs, count);
    ssm_experiment_free(e);
}

static const json_t *find_band(const json_t *bands, const char *arm, const char *measure)
{
    size_t i;
    json_t *band;
    json_array_foreach(bands, i, band)
    {
        if (strcmp(json_string_value(json_object_get(band, "arm")), arm) == 0 &&
            strcmp(json_string_value(json_object_get(band, "measure")), measure) == 0) {
            return band;
        }
    }
    fail_msg("no band of %s, %s", arm, measure);
    return NULL;
}

static void check_band(const json_t *band, int64_t n, double mean, double low, double high)
{
    assert_int_equal(json_integer_value(json_object_get(band, "n")), n);
    /* nine digits are written */
    assert_true(fabs(json_number_value(json_object_get(band, "mean")) - mean) < 1e-8);
    assert_true(fabs(json_number_value(json_object_get(band, "low")) - low) < 1e-8);
    assert_true(fabs(json_number_value(json_object_get(band, "high")) - high) < 1e-8);
}

/* Cell 0 of seeds 3 and 1: plain has strings 0.25 and 0.5, other 0.75 and (failed) 0; differences
 * +0.5 and −0.5. Perplexities e^0 and e^1 of plain, e^−1 of other alone, whose difference to the
 * plain one of the same seed is e^−1 − 1. */
static void test_tables(void **state)
{
    (void)state;
    ssm_experiment *e = read_text();
    ssm__experiment_run *runs;
    int64_t count;
    char *json = NULL, *table = NULL;
    json_error_t error;
    assert_int_equal(ssm__runs_create(e, &runs, &count, NULL), SSM_STATUS_OK);
    set_tuning(runs);
    ssm__experiment_run *own = runs + TUNING;
    set_result(&own[0], 0, 0.25);
    set_result(&own[ARMS * CELLS], 1, 0.5);
    set_result(&own[CELLS], -1, 0.75);
    own[ARMS * CELLS + CELLS].failure = strdup("step 5, batch 4: the loss is not finite");
    own[ARMS * CELLS + CELLS].done = true;
    assert_int_equal(ssm__results_write(e, runs, count, directory, &json, &table, NULL),
                     SSM_STATUS_OK);
    json_t *root = json_loads(json, 0, &error);
    assert_int_equal(json_integer_value(json_object_get(root, "done")), TUNING + 4);
    assert_int_equal(json_integer_value(json_object_get(root, "failed")), 1);
    const json_t *bands = json_object_get(root, "summary");
    check_band(find_band(bands, "plain", "strings"), 2, 0.375, 0.25, 0.5);
    check_band(find_band(bands, "other", "strings"), 2, 0.375, 0, 0.75);
    check_band(find_band(bands, "plain", "perplexity"), 2, (1 + exp(1)) / 2, 1, exp(1));
    check_band(find_band(bands, "other", "perplexity"), 1, exp(-1), exp(-1), exp(-1));
    const json_t *differences = json_object_get(root, "differences");
    check_band(find_band(differences, "other", "strings"), 2, 0, -0.5, 0.5);
    check_band(find_band(differences, "other", "perplexity"), 1, exp(-1) - 1, exp(-1) - 1,
               exp(-1) - 1);
    assert_non_null(strstr(table, "| other | 16 | mamba1 | 0.01 | 2 | +0.000 [-0.500, +0.500] |"));
    assert_non_null(strstr(table, "| other | 16 | mamba1 | 0.01 | 1 | 0.368 [0.368, 0.368] |"));
    json_decref(root);
    free(json);
    free(table);
    ssm__runs_free(runs, count);
    ssm_experiment_free(e);
}

/* Those that come with the program can be read. */
static void test_shipped(void **state)
{
    (void)state;
    static const char *const names[] = {"copy",           "ablation",   "mqar",
                                        "hybrid",         "switched",   "large/copy",
                                        "large/ablation", "large/mqar", "large/hybrid"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char file[TEST_PATH_MAX];
        ssm_error err;
        ssm_experiment *e;
        ssm_error_clear(&err);
        snprintf(file, sizeof file, "%s/experiments/%s.json", SSM_SOURCE_DIR, names[i]);
        if (ssm_experiment_read(file, &e, &err) != SSM_STATUS_OK) {
            fail_msg("%s: %s", file, err.message);
        }
        char *again = ssm_experiment_text(e);
        assert_non_null(again);
        free(again);
        ssm_experiment_free(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_tuned),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_shipped),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
