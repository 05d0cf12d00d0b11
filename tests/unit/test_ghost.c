/* ghost against a naive second implementation: the recurrence in float64 from the convolution's and
 * Δ's taps, the pruned layers before it in force; the pool's top modes by counting. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/adapt.h>

#include "test_numbers.h"
#include "test_record.h"

enum { WINDOW = 100, CALIBRATION = 2, DOMAINS = 2, TOKENS = 300 };

typedef struct fixture {
    record_subject subject;
    const ssm_config *config;
    char directory[TEST_PATH_MAX];
    ssm_recording *recording;
} fixture;

static void set_up(fixture *f, record_subject subject, int64_t calibration)
{
    const ssm_record_options options = {.window = WINDOW,
                                        .calibration_windows = calibration,
                                        .evaluation_windows = 1,
                                        .no_gram = true};
    *f = (fixture){.subject = subject};
    f->config = ssm_model_config(subject.model);
    f->recording = record_and_open(&f->subject, &options, f->directory);
}

static void tear_down(fixture *f)
{
    ssm_recording_close(f->recording);
    test_remove_directory(f->directory);
    record_subject_free(&f->subject);
}

static record_subject heads(bool wide)
{
    const ssm_config config = wide ? toy_config_wide_heads(false) : toy_config_heads();
    return record_random(test_model_toy(&config, SSM_DTYPE_F32, 3, SSM_ISA_AUTO, NULL), DOMAINS,
                         TOKENS, 70);
}

/* ---- the second implementation --------------------------------------------------------------- */

typedef struct captured {
    int64_t layer;
    float *conv, *delta; /* [WINDOW][width] of the layer */
} captured;

static void capture(void *context, const ssm_tap *tap)
{
    const captured *c = context;
    if (tap->layer == c->layer) {
        float *out = tap->point == SSM_TAP_CONV1D ? c->conv : c->delta;
        ssm_tap_copy(tap, out + tap->position * tap->width);
    }
}

static double silu(double value)
{
    return value / (1.0 + exp(-value));
}

/* scores[group][n] += Σ over heads, channels, tokens of (C_n x)². */
static void add_naive(const fixture *f, const captured *c, const double *A, double *scores)
{
    const int64_t N = f->config->d_state;
    const int64_t P = f->config->head_dim;
    const int64_t S = f->config->d_ssm;
    const int64_t G = f->config->n_groups;
    for (int64_t channel = 0; channel < S; channel++) {
        const int64_t head = channel / P;
        const int64_t group = head / (f->config->n_heads / G);
        for (int64_t n = 0; n < N; n++) {
            double x = 0.0;
            for (int64_t t = 0; t < WINDOW; t++) {
                const float *row = c->conv + t * (S + 2 * G * N);
                const double delta = (double)c->delta[t * f->config->n_heads + head];
                const double B = silu((double)row[S + group * N + n]);
                const double C = silu((double)row[S + G * N + group * N + n]);
                x = exp(delta * A[head]) * x + delta * B * silu((double)row[channel]);
                scores[group * N + n] += C * C * x * x;
            }
        }
    }
}

static void naive_layer(const fixture *f, ssm_session *session, int64_t layer, double *scores)
{
    const int64_t width = f->config->d_ssm + 2 * f->config->n_groups * f->config->d_state;
    captured c = {.layer = layer,
                  .conv = test_floats(WINDOW * width),
                  .delta = test_floats(WINDOW * f->config->n_heads)};
    const ssm_observer observer = {.context = &c,
                                   .points = UINT64_C(1) << SSM_TAP_CONV1D | UINT64_C(1)
                                                                                 << SSM_TAP_DELTA,
                                   .read = capture};
    const ssm_tensor *tensor = NULL;
    double *A = test_doubles(f->config->n_heads);
    assert_int_equal(ssm_recording_A(f->recording, layer, &tensor, NULL), SSM_STATUS_OK);
    for (int64_t head = 0; head < f->config->n_heads; head++) {
        A[head] = ssm_tensor_get(tensor, head);
    }
    ssm_session_set_observer(session, &observer);
    for (int64_t w = 0; w < DOMAINS * CALIBRATION; w++) {
        const int32_t *ids = f->subject.corpus.domains[w / CALIBRATION].ids.data;
        ssm_session_reset(session);
        assert_int_equal(ssm_session_forward(session, ids + w % CALIBRATION * WINDOW, WINDOW,
                                             SSM_LOGITS_NONE, NULL, NULL, NULL),
                         SSM_STATUS_OK);
        add_naive(f, &c, A, scores);
    }
    ssm_session_set_observer(session, NULL);
    free(A);
    free(c.conv);
    free(c.delta);
}

/* Fills one layer's rows: kept when fewer than budget·G of the pool have more. */
static void naive_choice(const fixture *f, const double *scores, int64_t budget, uint8_t *keep)
{
    const int64_t N = f->config->d_state;
    const int64_t pool = f->config->n_groups * N;
    for (int64_t i = 0; i < f->config->n_heads * N; i++) {
        const int64_t group = i / N / (f->config->n_heads / f->config->n_groups);
        int64_t above = 0;
        for (int64_t k = 0; k < pool; k++) {
            above += scores[k] > scores[group * N + i % N];
        }
        keep[i] = above < budget * f->config->n_groups;
    }
}

static void layers_are_chosen_behind_pruned_ones(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        fixture f;
        set_up(&f, heads(wide == 1), CALIBRATION);
        const int64_t N = f.config->d_state;
        const int64_t rows = f.config->n_heads * N;
        const int64_t budget = 2;
        const ssm_session_options options = {.exact_chunks = true};
        ssm_session *session = NULL;
        ssm_mask mask;
        ssm_mask naive;
        double zeroed = 0.0;
        double *unpruned = test_doubles(f.config->n_groups * N);
        bool moved = false;
        assert_int_equal(ssm_session_create(f.subject.model, &options, &session, NULL), 0);
        assert_int_equal(ssm_mask_create(f.config->n_layers, f.config->n_heads, N, &naive, NULL),
                         0);
        assert_int_equal(
            ssm_ghost_select(f.subject.model, f.recording, budget, NULL, &mask, &zeroed, NULL),
            SSM_STATUS_OK);
        for (int64_t layer = 0; layer < f.config->n_layers; layer++) {
            double *scores = test_doubles(f.config->n_groups * N);
            assert_int_equal(ssm_session_set_mask(session, &naive, -1, NULL), SSM_STATUS_OK);
            naive_layer(&f, session, layer, scores);
            naive_choice(&f, scores, budget, naive.keep + layer * rows);
            ssm_session_reset(session); /* dropped modes have no states to go on from */
            assert_int_equal(ssm_session_set_mask(session, NULL, -1, NULL), SSM_STATUS_OK);
            memset(unpruned, 0, (size_t)(f.config->n_groups * N) * sizeof *unpruned);
            naive_layer(&f, session, layer, unpruned);
            moved = moved || unpruned[0] != scores[0];
            free(scores);
        }
        assert_true(moved); /* or the layers before would not matter */
        assert_memory_equal(mask.keep, naive.keep, (size_t)(f.config->n_layers * rows));
        assert_true(fabs(zeroed - (1.0 - (double)budget / (double)N)) < 1e-12);
        assert_string_equal(mask.rule, "ghost");
        assert_string_equal(mask.scope, "group");
        ssm_mask_free(&mask);
        ssm_mask_free(&naive);
        ssm_session_free(session);
        free(unpruned);
        tear_down(&f);
    }
}

static void threads_and_all_modes(void **state)
{
    (void)state;
    fixture f;
    ssm_pool *pool = test_pool_create(3);
    ssm_mask alone;
    ssm_mask together;
    double zeroed = 1.0;
    set_up(&f, heads(true), CALIBRATION);
    const size_t modes = (size_t)(f.config->n_layers * f.config->n_heads * f.config->d_state);
    assert_int_equal(ssm_ghost_select(f.subject.model, f.recording, 9, NULL, &alone, &zeroed, NULL),
                     0);
    assert_int_equal(
        ssm_ghost_select(f.subject.model, f.recording, 9, pool, &together, &zeroed, NULL), 0);
    assert_memory_equal(alone.keep, together.keep, modes);
    assert_true(zeroed == 0.5);
    ssm_mask_free(&alone);
    ssm_mask_free(&together);
    assert_int_equal(
        ssm_ghost_select(f.subject.model, f.recording, 18, NULL, &alone, &zeroed, NULL), 0);
    assert_true(zeroed == 0.0 && memchr(alone.keep, 0, modes) == NULL);
    ssm_mask_free(&alone);
    ssm_pool_free(pool);
    tear_down(&f);
}

/* Of several groups the budget is one in the mean: the file says so, and its reader checks it. */
static void a_mask_file_carries_all(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        fixture f;
        ssm_mask mask;
        ssm_mask read;
        char path[2 * TEST_PATH_MAX];
        double zeroed = 0.0;
        ssm_error err;
        ssm_error_clear(&err);
        set_up(&f, heads(wide == 1), CALIBRATION);
        snprintf(path, sizeof path, "%s/mask", f.directory);
        assert_int_equal(
            ssm_ghost_select(f.subject.model, f.recording, 2, NULL, &mask, &zeroed, NULL),
            SSM_STATUS_OK);
        mask.seed = 5;
        assert_int_equal(ssm_mask_write(&mask, path, "a command", NULL), SSM_STATUS_OK);
        if (ssm_mask_read(path, &read, &err) != SSM_STATUS_OK) {
            fail_msg("%s", err.message);
        }
        assert_string_equal(read.rule, "ghost");
        assert_string_equal(read.scope, "group");
        assert_true(read.budget == 2 && read.seed == 5);
        assert_int_equal(read.mean_budget, f.config->n_groups > 1);
        assert_string_equal(read.model_digest, mask.model_digest);
        assert_string_equal(read.recording_digest, ssm_recording_get_info(f.recording)->digest);
        assert_memory_equal(read.keep, mask.keep,
                            (size_t)(f.config->n_layers * f.config->n_heads * f.config->d_state));
        ssm_mask_free(&mask);
        ssm_mask_free(&read);
        tear_down(&f);
    }
}

static void expect_refused(record_subject subject, int64_t calibration, int64_t budget,
                           const char *part)
{
    fixture f;
    ssm_mask mask;
    double zeroed = 0.0;
    ssm_error err;
    ssm_error_clear(&err);
    set_up(&f, subject, calibration);
    assert_int_equal(
        ssm_ghost_select(f.subject.model, f.recording, budget, NULL, &mask, &zeroed, &err),
        SSM_STATUS_USAGE);
    if (strstr(err.message, part) == NULL) {
        fail_msg("'%s' does not say '%s'", err.message, part);
    }
    assert_null(mask.keep);
    tear_down(&f);
}

static void requests_that_cannot_be_met_are_refused(void **state)
{
    (void)state;
    expect_refused(record_toy(SSM_ISA_AUTO, DOMAINS, TOKENS), 1, 2, "defined for Mamba-2, not for");
    expect_refused(record_golden("hybrid/mamba2-attention", SSM_ISA_AUTO, DOMAINS, TOKENS), 1, 2,
                   "not for hybrids");
    expect_refused(heads(false), 1, 0, "1 … 5; found 0");
    expect_refused(heads(false), 1, 6, "1 … 5; found 6");
    expect_refused(heads(false), 0, 2, "the recording has none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_chosen_behind_pruned_ones),
        cmocka_unit_test(threads_and_all_modes),
        cmocka_unit_test(a_mask_file_carries_all),
        cmocka_unit_test(requests_that_cannot_be_met_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
