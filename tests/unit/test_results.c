/* Directories of results: one plan each, its differences told, what a stop left removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ssmscope/evaluate.h"
#include "test_paths.h"

static const char plan[] = "{\"seed\": 1, \"rules\": [\"static\"], \"window\": 96}";

typedef struct place {
    char directory[TEST_PATH_MAX], results[TEST_PATH_MAX + 16];
    char path[TEST_PATH_MAX + 64];
} place;

static int set_up(void **state)
{
    place *p = calloc(1, sizeof *p);
    assert_non_null(p);
    test_make_directory(p->directory);
    snprintf(p->results, sizeof p->results, "%s/a/b", p->directory); /* parents are made */
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    place *p = *state;
    test_remove_directory(p->directory);
    free(p);
    return 0;
}

static const char *in_results(place *p, const char *name)
{
    snprintf(p->path, sizeof p->path, "%s/%s", p->results, name);
    return p->path;
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void get(const char *path, char out[256])
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    out[fread(out, 1, 255, file)] = '\0';
    fclose(file);
}

static ssm_results *open_results(place *p)
{
    ssm_error err;
    ssm_error_clear(&err);
    ssm_results *results = NULL;
    if (ssm_results_open(p->results, plan, true, &results, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", err.file, err.message);
    }
    return results;
}

/* Opening must fail with `status` and a message with `part`. */
static void refuse(place *p, const char *of, bool resume, ssm_status status, const char *part)
{
    ssm_error err;
    ssm_error_clear(&err);
    ssm_results *results = (ssm_results *)p;
    const ssm_status got = ssm_results_open(p->results, of, resume, &results, &err);
    if (got != status || strstr(err.message, part) == NULL) {
        fail_msg("expected %d and '%s', got %d: %s", (int)status, part, (int)got, err.message);
    }
    assert_null(results);
}

static void a_directory_has_one_plan(void **state)
{
    place *p = *state;
    ssm_results *results = open_results(p);
    char text[256];
    assert_int_equal(ssm_results_write(results, "table", "one\n", 4, NULL), SSM_STATUS_OK);
    get(in_results(p, "table"), text);
    assert_string_equal(text, "one\n");
    refuse(p, plan, true, SSM_STATUS_FAILED, "another process is writing into this directory");
    ssm_results_close(results);
    refuse(p, plan, false, SSM_STATUS_USAGE, "holds results already");
    /* The same members in another order are the same plan. */
    ssm_error err;
    assert_int_equal(ssm_results_open(p->results,
                                      "{\"window\":96,\"rules\":[\"static\"],\"seed\":1}", true,
                                      &results, &err),
                     SSM_STATUS_OK);
    ssm_results_close(results);
    get(in_results(p, "table"), text);
    assert_string_equal(text, "one\n");
}

static void all_differences_are_told(void **state)
{
    place *p = *state;
    ssm_results_close(open_results(p));
    refuse(p, "{\"seed\": 2, \"rules\": [\"static\", \"last\"], \"offset\": 4}", true,
           SSM_STATUS_USAGE, "seed: there 1, here 2");
    refuse(p, "{\"seed\": 2, \"rules\": [\"static\", \"last\"], \"offset\": 4}", true,
           SSM_STATUS_USAGE, "rules: there [\"static\"], here [\"static\",\"last\"]");
    refuse(p, "{\"seed\": 2, \"rules\": [\"static\", \"last\"], \"offset\": 4}", true,
           SSM_STATUS_USAGE, "offset: there nothing, here 4");
    refuse(p, "{\"seed\": 2, \"rules\": [\"static\", \"last\"], \"offset\": 4}", true,
           SSM_STATUS_USAGE, "window: there 96, here nothing");
    char text[256];
    get(in_results(p, "plan.json"), text);
    assert_non_null(strstr(text, "\"seed\": 1")); /* nothing there was touched */
}

static void long_values_are_cut(void **state)
{
    place *p = *state;
    ssm_results_close(open_results(p));
    char other[2048];
    int at = snprintf(other, sizeof other, "{\"window\": 96, \"seed\": 1, \"rules\": [\"0\"");
    for (int i = 1; i < 200; i++) {
        at += snprintf(other + at, sizeof other - (size_t)at, ",\"%d\"", i);
    }
    snprintf(other + at, sizeof other - (size_t)at, "]}");
    refuse(p, other, true, SSM_STATUS_USAGE, "…");
    refuse(p, other, true, SSM_STATUS_USAGE, "the same work"); /* the sentence has its end */
}

static void other_files_are_not_touched(void **state)
{
    place *p = *state;
    ssm_results_close(open_results(p));
    assert_int_equal(unlink(in_results(p, "plan.json")), 0);
    put(in_results(p, "thesis"), "two");
    refuse(p, plan, false, SSM_STATUS_USAGE, "not empty and holds no results");
    refuse(p, plan, true, SSM_STATUS_USAGE, "not empty and holds no results");
    assert_int_equal(access(in_results(p, "plan.json"), F_OK), -1);
}

static void half_written_files_go(void **state)
{
    place *p = *state;
    ssm_results *results = open_results(p);
    assert_int_equal(ssm_results_folder(results, "masks", NULL), SSM_STATUS_OK);
    ssm_results_close(results);
    static const char *const left[] = {".table.0123456789abcdef.tmp",
                                       "masks/.a.safetensors.0123456789abcdef.tmp"};
    static const char *const kept[] = {".table.tmp", "a.0123456789abcdef.tmp", "masks/a"};
    for (size_t i = 0; i < 2; i++) {
        put(in_results(p, left[i]), "x");
    }
    for (size_t i = 0; i < 3; i++) {
        put(in_results(p, kept[i]), "x");
    }
    results = open_results(p);
    assert_int_equal(ssm_results_folder(results, "masks", NULL), SSM_STATUS_OK);
    ssm_results_close(results);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(access(in_results(p, left[i]), F_OK), -1);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(access(in_results(p, kept[i]), F_OK), 0);
    }
}

static void a_damaged_plan_is_named(void **state)
{
    place *p = *state;
    ssm_results_close(open_results(p));
    put(in_results(p, "plan.json"), "{\"seed\": 1, ");
    refuse(p, plan, true, SSM_STATUS_FILE, "");
    put(in_results(p, "plan.json"), "[1]");
    refuse(p, plan, true, SSM_STATUS_FILE, "an object is expected");
    put(in_results(p, "plan.json"), "");
    refuse(p, plan, true, SSM_STATUS_FILE, "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_directory_has_one_plan), TEST(all_differences_are_told),
        TEST(long_values_are_cut),      TEST(other_files_are_not_touched),
        TEST(half_written_files_go),    TEST(a_damaged_plan_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
