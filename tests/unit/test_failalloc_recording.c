/* Recording, reading, metrics, selection and verification when memory runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failalloc.h"

#include <ssmscope/instrument.h>
#include <ssmscope/metrics.h>
#include <ssmscope/select.h>

#include "base/error.h"
#include "test_paths.h"
#include "test_session.h"
#include "toy_recording.h"

enum { TOKENS = 24, DENSE = 100 };

static char parent[TEST_PATH_MAX];
static char directory[TEST_PATH_MAX + 32];

/* Syncing to disk would only cost time here. */
int fsync(int descriptor)
{
    (void)descriptor;
    return 0;
}

static void check(failalloc_case this)
{
    assert_true(failalloc_check(&this));
}

static ssm_status expect(bool right)
{
    return right ? SSM_STATUS_OK : SSM_STATUS_CHECK;
}

static int set_up(void **state)
{
    (void)state;
    test_make_directory(parent);
    snprintf(directory, sizeof directory, "%s/recording", parent);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_directory(parent);
    return 0;
}

static toy_recording small_recording(void)
{
    toy_recording toy = toy_recording_shape();
    toy.n_layers = 2;
    toy.channels = 2;
    toy.d_state = 3;
    toy.window = 70; /* one block and a rest */
    toy.calibration = 1;
    toy.evaluation = 2;
    return toy;
}

/* ---- reading --------------------------------------------------------------------------------- */

static ssm_status use_recording(ssm_recording *recording, ssm_error *err)
{
    const ssm_tensor *tensor = NULL;
    SSM__TRY(ssm_recording_A(recording, 1, &tensor, err));
    SSM__TRY(ssm_recording_calibration_gram(recording, "prose", 0, &tensor, err));
    for (int64_t i = 0; i < ssm_recording_window_count(recording); i++) {
        SSM__TRY(ssm_recording_tensor(recording, i, 1, "energy_blocks", &tensor, err));
    }
    return expect(tensor != NULL && tensor->data != NULL);
}

static ssm_status run_reading(void *context, ssm_error *err)
{
    (void)context;
    ssm_recording *recording = NULL;
    SSM__TRY(ssm_recording_open(directory, &recording, err));
    ssm_status status = use_recording(recording, err);
    ssm_recording_close(recording);
    return status;
}

static ssm_status run_metrics(void *context, ssm_error *err)
{
    (void)context;
    ssm_recording *recording = NULL;
    SSM__TRY(ssm_recording_open(directory, &recording, err));
    ssm_metrics metrics;
    ssm_status status =
        ssm_metrics_compute(recording, SSM_SCOPE_DEFAULT, NULL, 0, NULL, &metrics, err);
    if (status == SSM_STATUS_OK) {
        status = expect(metrics.n_layers == 2 && metrics.layers[1].budgets[0].rho > 0);
        ssm_metrics_free(&metrics);
    }
    ssm_recording_close(recording);
    return status;
}

static ssm_status run_select(void *context, ssm_error *err)
{
    (void)context;
    ssm_recording *recording = NULL;
    SSM__TRY(ssm_recording_open(directory, &recording, err));
    ssm_select_options options = {.rule = "static", .budget = 1};
    ssm_mask mask;
    ssm_status status = ssm_select(recording, &options, &mask, err);
    if (status == SSM_STATUS_OK) {
        status = expect(mask.n_layers == 2 && mask.keep[0] + mask.keep[1] + mask.keep[2] == 1);
        ssm_mask_free(&mask);
    }
    ssm_recording_close(recording);
    return status;
}

/* The rule that takes most memory, and one threshold; then their curves. */
static ssm_status run_rules(void *context, ssm_error *err)
{
    const char *rule = context;
    ssm_recording *recording = NULL;
    SSM__TRY(ssm_recording_open(directory, &recording, err));
    const bool shared = strcmp(rule, "compensated-shared") == 0;
    ssm_select_options options = {.rule = rule, .budget = 1, .scope = shared ? "layer" : "channel"};
    ssm_mask mask = {0};
    ssm_error_curve curve = {0};
    ssm_status status = ssm_select(recording, &options, &mask, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_select_curve(recording, &options, SSM_ROLE_EVALUATION, &curve, err);
    }
    if (status == SSM_STATUS_OK) {
        status = expect(mask.keep != NULL && curve.error[0] > 0.0 && curve.mean[2] == 0.0);
    }
    ssm_error_curve_free(&curve);
    ssm_mask_free(&mask);
    ssm_recording_close(recording);
    return status;
}

static void reading(void **state)
{
    (void)state;
    toy_recording toy = small_recording();
    ssm_error err = {0};
    assert_int_equal(toy_recording_write(&toy, directory, false, &err), SSM_STATUS_OK);
    check((failalloc_case){.name = "ssm_recording", .run = run_reading, .dense = DENSE});
    check((failalloc_case){.name = "ssm_metrics_compute", .run = run_metrics, .dense = DENSE});
    check((failalloc_case){.name = "ssm_select", .run = run_select, .dense = DENSE});
    static char rules[][32] = {"last", "greedy-swap", "compensated:optimal", "compensated-shared"};
    for (int i = 0; i < 4; i++) {
        check((failalloc_case){
            .name = rules[i], .run = run_rules, .context = rules[i], .dense = DENSE});
    }
}

/* ---- recording and verifying ----------------------------------------------------------------- */

typedef struct recorded {
    ssm_model *model;
    ssm_corpus corpus;
    char digest[64]; /* of the last evaluation window, from the first run */
} recorded;

static ssm_status record(const recorded *this, bool resume, ssm_error *err)
{
    ssm_record_options options = {.window = 6,
                                  .calibration_windows = 1,
                                  .evaluation_windows = 2,
                                  .resume = resume,
                                  .command = "ssmscope record",
                                  .tokenizer_digest = "xxh3-128:0"};
    return ssm_record(this->model, &this->corpus, directory, &options, err);
}

/* After a failure the recording resumes to the same bytes. */
static ssm_status run_record(void *context, ssm_error *err)
{
    recorded *this = context;
    bool armed = failalloc_disarm();
    if (access(directory, F_OK) == 0) {
        test_remove_directory(directory);
    }
    failalloc_restore(armed);
    ssm_status status = record(this, false, err);
    failalloc_disarm();
    ssm_error other = {0};
    if (status != SSM_STATUS_OK && record(this, true, &other) != SSM_STATUS_OK) {
        fprintf(stderr, "resuming: %s\n", other.message);
        return SSM_STATUS_CHECK;
    }
    ssm_recording *recording = NULL;
    char last[TEST_PATH_MAX * 2];
    char digest[64];
    if (ssm_recording_open(directory, &recording, &other) != SSM_STATUS_OK) {
        fprintf(stderr, "opening: %s\n", other.message);
        return SSM_STATUS_CHECK;
    }
    int64_t count = ssm_recording_window_count(recording);
    snprintf(last, sizeof last, "%s/%s", directory,
             ssm_recording_get_window(recording, count - 1)->file);
    ssm_recording_close(recording);
    if (ssm_file_digest(last, digest, &other) != SSM_STATUS_OK) {
        return SSM_STATUS_CHECK;
    }
    if (this->digest[0] == '\0') {
        memcpy(this->digest, digest, sizeof digest);
    }
    return strcmp(digest, this->digest) == 0 ? status : SSM_STATUS_CHECK;
}

static ssm_status run_verify(void *context, ssm_error *err)
{
    const recorded *this = context;
    const int64_t budget = 2;
    ssm_verify_options options = {.window = 6, .windows = 2, .budgets = &budget, .n_budgets = 1};
    ssm_verify_result result;
    SSM__TRY(ssm_verify(this->model, &this->corpus, &options, &result, err));
    ssm_status status = expect(result.n_reconstruction == 4 && result.n_deployment == 4);
    ssm_verify_result_free(&result);
    return status;
}

static void recording(void **state)
{
    (void)state;
    ssm_config config = toy_config();
    config.n_layers = 2;
    config.d_inner = 4;
    int32_t ids[TOKENS];
    toy_ids(&config, 3, ids, TOKENS);
    ssm_domain domains[2] = {{.name = (char[]){"a"}, .ids = {ids, TOKENS, TOKENS}},
                             {.name = (char[]){"b"}, .ids = {ids, TOKENS - 5, TOKENS}}};
    ssm_text_file files[2] = {{.domain = domains[0].name, .path = (char[]){"a.txt"}},
                              {.domain = domains[1].name, .path = (char[]){"b.txt"}}};
    recorded this = {
        .model = test_model_toy(&config, SSM_DTYPE_F32, 1, SSM_ISA_AUTO, NULL),
        .corpus = {.files = files, .n_files = 2, .domains = domains, .n_domains = 2},
    };
    check((failalloc_case){
        .name = "ssm_record", .run = run_record, .context = &this, .dense = DENSE / 3});
    check((failalloc_case){.name = "ssm_verify", .run = run_verify, .context = &this});
    ssm_model_free(this.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reading, set_up, tear_down),
        cmocka_unit_test_setup_teardown(recording, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("failalloc_recording", tests, NULL, NULL);
}
