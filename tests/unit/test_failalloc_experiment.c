/* Experiments when memory runs out: MEMORY, and what was done stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failalloc.h"

#include <ssmscope/experiment.h>

#include "base/error.h"
#include "base/file.h"
#include "test_paths.h"

static const char text[] =
    "{\"name\": \"toy\", \"recipe\": {\"model\": {\"d_model\": 4, \"n_layers\": 1, \"d_state\": 2},"
    " \"task\": {\"name\": \"switched-linear\", \"width\": 2, \"length\": 64, \"dwell_min\": 12,"
    " \"dwell_max\": 16, \"evaluate\": [64]},"
    " \"batch\": {\"rows\": 1}, \"evaluate\": {\"rows\": 1}, \"schedule\": {\"steps\": 1}},"
    " \"arms\": {\"plain\": {}, \"other\": {\"model.d_conv\": 2}}, \"seeds\": [1],"
    " \"grid\": {\"model.mixer\": [\"mamba1\"]},"
    " \"tune\": {\"key\": \"lr\", \"values\": [0.01], \"seeds\": [2], \"measure\": \"loss\","
    " \"size\": \"64\"}, \"measures\": [\"loss\", \"probe\"],"
    " \"probe\": {\"rows\": 8, \"window\": 4, \"budget\": 1}, \"summary\": {\"against\": "
    "\"plain\"}}";

typedef struct fixture {
    char root[TEST_PATH_MAX];
    char file[TEST_PATH_MAX + 16], to[TEST_PATH_MAX + 16];
    bool keep; /* what the run before left */
} fixture;

static ssm_status run_file(const fixture *f, ssm_error *err)
{
    ssm_experiment *experiment;
    ssm_experiment_result result;
    const ssm_experiment_options options = {.isa = SSM_ISA_AUTO};
    SSM__TRY(ssm_experiment_read(f->file, &experiment, err));
    const ssm_status status = ssm_experiment_run(experiment, f->to, &options, &result, err);
    ssm_experiment_result_free(&result);
    ssm_experiment_free(experiment);
    return status;
}

static ssm_status run(void *context, ssm_error *err)
{
    const fixture *f = context;
    const bool armed = failalloc_disarm();
    if (!f->keep && access(f->to, F_OK) == 0) {
        test_remove_directory(f->to);
    }
    failalloc_restore(armed);
    return run_file(f, err);
}

static void experiments(void **state)
{
    fixture f = {.keep = true};
    (void)state;
    snprintf(f.file, sizeof f.file, "%s/file.json", test_make_directory(f.root));
    snprintf(f.to, sizeof f.to, "%s/to", f.root);
    assert_int_equal(ssm__write_file(f.file, text, strlen(text), NULL), SSM_STATUS_OK);
    /* Every failure is followed by a call that goes on from what the last one left. */
    failalloc_case this = {
        .name = "an experiment gone on with", .run = run, .context = &f, .dense = 12};
    assert_true(failalloc_check(&this));
    this.name = "one that is done";
    assert_true(failalloc_check(&this));
    f.keep = false;
    this.name = "an experiment";
    this.dense = 5;
    assert_true(failalloc_check(&this));
    test_remove_directory(f.root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experiments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
