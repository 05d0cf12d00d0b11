/* The whole chain on models of other families: verify, record, metrics, select, a masked run.
 * Layers of attention stand aside in all of it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/metrics.h>
#include <ssmscope/select.h>

#include "test_numbers.h"
#include "test_record.h"

enum { WINDOW = 130, TOKENS = 4 * WINDOW, CALIBRATION = 2, EVALUATION = 2, DOMAINS = 2 };

#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        ssm_error err;                                                                             \
        ssm_error_clear(&err);                                                                     \
        if ((call) != SSM_STATUS_OK) {                                                             \
            fail_msg("%s: %s", #call, err.message);                                                \
        }                                                                                          \
    } while (0)

typedef struct chain_case {
    const char *model;
    double bound_reconstruction, bound_reference; /* 0: not verified here */
    int64_t budget;
    int64_t layers[4]; /* with states, ends at −1 */
} chain_case;

static const chain_case cases[] = {
    {"falcon", 2.6e-7, 2e-6, 8, {0, 1, -1}},
    {"hybrid/mamba-attention", 2.3e-7, 1e-6, 2, {0, 2, -1}},
    {"hybrid/mamba2-attention", 0, 0, 3, {0, 2, -1}},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static int64_t count_layers(const chain_case *c)
{
    int64_t count = 0;
    while (c->layers[count] >= 0) {
        count++;
    }
    return count;
}

/* ---- verify ---------------------------------------------------------------------------------- */

static void check_verify(const chain_case *c)
{
    record_subject subject = record_golden(c->model, SSM_ISA_AUTO, DOMAINS, TOKENS);
    const ssm_verify_options options = {.window = WINDOW, .windows = 4};
    ssm_verify_result r;
    CHECK_OK(ssm_verify(subject.model, &subject.corpus, &options, &r, &err));
    printf("%s: reconstruction %.2e, reference %.2e, deployment median %.2e, max %.2e\n", c->model,
           r.reconstruction_max, r.reconstruction_reference_max, r.deployment_median,
           r.deployment_max);
    assert_true(r.passed);
    assert_true(r.bound_reconstruction == c->bound_reconstruction);
    assert_true(r.bound_reference == c->bound_reference);
    const int64_t layers = count_layers(c);
    assert_int_equal(r.n_reconstruction, 4 * layers);
    for (int64_t i = 0; i < r.n_reconstruction; i++) {
        assert_int_equal(r.reconstruction[i].layer, c->layers[i % layers]);
        assert_true(r.reconstruction[i].rel_l2_reference > 0.0);
    }
    ssm_verify_result_free(&r);
    record_subject_free(&subject);
}

static void verify_holds(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        if (cases[i].bound_reference > 0) {
            check_verify(&cases[i]);
        }
    }
}

/* ---- record, metrics, select, run ------------------------------------------------------------ */

static void check_metrics(ssm_recording *recording, const chain_case *c)
{
    ssm_metrics metrics;
    CHECK_OK(
        ssm_metrics_compute(recording, SSM_SCOPE_CHANNEL, &c->budget, 1, NULL, &metrics, &err));
    assert_int_equal(metrics.n_layers, count_layers(c));
    assert_true(metrics.diagonal_identity_max_violation <= 1e-6);
    for (int64_t i = 0; i < metrics.n_layers; i++) {
        assert_int_equal(metrics.layers[i].layer, c->layers[i]);
        assert_true(metrics.layers[i].budgets[0].rho > 0.0);
    }
    ssm_metrics_free(&metrics);
}

static double *nll_of(const record_subject *subject, const ssm_mask *mask)
{
    ssm_session *session = test_session_create(subject->model, NULL, 0);
    float nll[WINDOW];
    CHECK_OK(ssm_session_set_mask(session, mask, -1, &err));
    CHECK_OK(ssm_session_nll(session, subject->corpus.domains[0].ids.data, WINDOW, nll, &err));
    double *out = test_doubles(WINDOW);
    for (int t = 0; t < WINDOW - 1; t++) {
        out[t] = (double)nll[t];
    }
    ssm_session_free(session);
    return out;
}

/* A mask through its file; rows of a layer of attention stand whole. */
static void check_mask(ssm_recording *recording, const record_subject *subject, const chain_case *c,
                       const char *directory)
{
    const ssm_config *config = ssm_model_config(subject->model);
    char path[TEST_PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/mask", directory);
    ssm_mask made, mask;
    const ssm_select_options options = {.rule = "static", .budget = c->budget};
    CHECK_OK(ssm_select(recording, &options, &made, &err));
    CHECK_OK(ssm_mask_write(&made, path, "test", &err));
    CHECK_OK(ssm_mask_read(path, &mask, &err));
    assert_int_equal(mask.n_layers, config->n_layers);
    const int64_t width = mask.n_channels * mask.d_state;
    for (int64_t layer = 0, at = 0; layer < mask.n_layers; layer++) {
        const bool has_states = c->layers[at] == layer;
        at += has_states;
        int64_t kept = 0;
        for (int64_t i = 0; i < width; i++) {
            kept += mask.keep[layer * width + i];
        }
        assert_int_equal(kept, has_states ? c->budget * mask.n_channels : width);
    }
    double *plain = nll_of(subject, NULL), *pruned = nll_of(subject, &mask);
    assert_true(test_relative(pruned, plain, WINDOW - 1) > 1e-4);
    memset(mask.keep, 1, (size_t)(mask.n_layers * width));
    double *whole = nll_of(subject, &mask);
    if (config->n_heads == 0) {
        assert_memory_equal(whole, plain, WINDOW * sizeof *plain);
    } else { /* a masked layer of Mamba-2 runs the recurrence, a plain one goes chunk by chunk */
        test_assert_near("whole", whole, plain, WINDOW - 1, 2e-6);
    }
    free(whole);
    free(plain);
    free(pruned);
    ssm_mask_free(&made);
    ssm_mask_free(&mask);
}

static void chain(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        char directory[TEST_PATH_MAX], path[TEST_PATH_MAX + 8];
        record_subject subject = record_golden(cases[i].model, SSM_ISA_AUTO, DOMAINS, TOKENS);
        test_make_directory(directory);
        snprintf(path, sizeof path, "%s/rec", directory);
        const ssm_record_options options = {
            .window = WINDOW, .calibration_windows = CALIBRATION, .evaluation_windows = EVALUATION};
        record_into(&subject, path, &options);
        ssm_recording *recording = NULL;
        CHECK_OK(ssm_recording_open(path, &recording, &err));
        const ssm_recording_info *info = ssm_recording_get_info(recording);
        assert_int_equal(info->family, ssm_model_config(subject.model)->family);
        assert_int_equal(info->n_layers - info->n_attention, count_layers(&cases[i]));
        check_metrics(recording, &cases[i]);
        check_mask(recording, &subject, &cases[i], directory);
        ssm_recording_close(recording);
        record_subject_free(&subject);
        test_remove_directory(directory);
    }
}

/* The same bytes from any number of threads, processor and chunk. */
static void recordings_do_not_vary(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        record_subject subject = record_golden(cases[i].model, SSM_ISA_AUTO, 1, TOKENS);
        record_subject portable = record_golden(cases[i].model, SSM_ISA_PORTABLE, 1, TOKENS);
        ssm_record_options options = {
            .window = WINDOW, .calibration_windows = 1, .evaluation_windows = 1};
        const record_files want = record_and_list(&subject, &options);
        const record_files same = record_and_list(&portable, &options);
        record_assert_same("portable", &same, &want);
        options.chunk = 50;
        const record_files chunks = record_and_list(&subject, &options);
        record_assert_same("chunks of 50", &chunks, &want);
        options.pool = test_pool_create(3);
        const record_files threads = record_and_list(&subject, &options);
        record_assert_same("3 threads", &threads, &want);
        ssm_pool_free(options.pool);
        record_subject_free(&subject);
        record_subject_free(&portable);
    }
}

/* ---- what cannot be recorded ----------------------------------------------------------------- */

static void attention_is_refused(void **state)
{
    (void)state;
    ssm_error err;
    ssm_error_clear(&err);
    record_subject hybrid = record_golden("hybrid/mamba-attention", SSM_ISA_AUTO, 1, TOKENS);
    const int64_t layers[] = {0, 1};
    ssm_record_options options = {
        .window = WINDOW, .evaluation_windows = 1, .layers = layers, .n_layers = 2};
    assert_int_equal(ssm_record(hybrid.model, &hybrid.corpus, "/nowhere", &options, &err),
                     SSM_STATUS_USAGE);
    assert_string_equal(err.message, "layer 1 is attention: it has no states to record");
    record_subject_free(&hybrid);

    record_subject transformer = record_golden("hybrid/transformer", SSM_ISA_AUTO, 1, TOKENS);
    options.layers = NULL;
    ssm_error_clear(&err);
    const char *const reason = "all 2 layers are attention: there are no states to look at";
    assert_int_equal(ssm_record(transformer.model, &transformer.corpus, "/nowhere", &options, &err),
                     SSM_STATUS_USAGE);
    assert_string_equal(err.message, reason);
    const ssm_verify_options verify = {.window = WINDOW, .windows = 1};
    ssm_verify_result result;
    ssm_error_clear(&err);
    assert_int_equal(ssm_verify(transformer.model, &transformer.corpus, &verify, &result, &err),
                     SSM_STATUS_USAGE);
    assert_string_equal(err.message, reason);
    record_subject_free(&transformer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verify_holds),
        cmocka_unit_test(chain),
        cmocka_unit_test(recordings_do_not_vary),
        cmocka_unit_test(attention_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
