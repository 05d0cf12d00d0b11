/* Metrics of a Mamba-2 recording whose numbers are small enough to check by hand, at both scopes,
 * and what is refused in its fields. One layer, two heads of two channels, three modes, windows of
 * 128 tokens, budget 1.
 *
 * Energies of the channels (head, channel: modes), calibration window, evaluation window:
 *   (0, 0): 6 2 1 → 1 5 1     (0, 1): 5 3 1 → 5 3 2
 *   (1, 0): 1 2 9 → 1 2 9     (1, 1): 4 1 0 → 1 2 0
 * Static channel sets {0} {0} {2} {0}; the window's own {1} {0} {2} {1}. By head the energies are
 * 11 5 2 and 5 3 9 → 6 8 3 and 2 4 9: static {0} {2}, own {1} {2}. */
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

#include "recording/writer.h"
#include "test_paths.h"

enum { H = 2, P = 2, N = 3, T = 128, B = 2, ENTRIES = 10, TENSORS = 16 };

static const float energies[2][H * P * N] = {{6, 2, 1, 5, 3, 1, 1, 2, 9, 4, 1, 0},
                                             {1, 5, 1, 5, 3, 2, 1, 2, 9, 1, 2, 0}};

/* The evaluation window's head Grams of (m_0, m_1, m_2, f): the diagonal is what the energies say;
 * head 0 has m_0·m_2 = 2 and m_1·m_2 = −1, head 1 m_0·m_1 = −2. */
static const double grams[H * ENTRIES] = {6, 0,  2, 0, 8, -1, 0, 3, 0, 1,
                                          2, -2, 0, 0, 4, 0,  0, 9, 0, 1};

typedef struct window_tensors {
    ssm_tensor tensors[TENSORS];
    int64_t count;
    float blocks[B * H * N], moments[H * N], output[H], delta[H], nll[T - 1];
    int32_t ids[T];
    double fixed[1], diag[1], null[1];
} window_tensors;

static void add(window_tensors *w, const char *name, ssm_dtype dtype, const void *data, int n_dims,
                int64_t a, int64_t b, int64_t c)
{
    ssm_tensor *tensor = &w->tensors[w->count++];
    *tensor = (ssm_tensor){
        .name = name, .dtype = dtype, .n_dims = n_dims, .dims = {a, b, c}, .data = data};
    tensor->bytes = (size_t)ssm_tensor_count(tensor) * ssm_dtype_size(dtype);
}

/* The tensors of one window; the errors of the channels' sets: static 24, own 6; the null 0.25. */
static void fill(window_tensors *w, ssm_role role)
{
    const float *energy = energies[role == SSM_ROLE_EVALUATION ? 1 : 0];
    *w = (window_tensors){.output = {30, 20}, .delta = {0.5f, 0.25f}};
    w->fixed[0] = 24.0;
    w->diag[0] = 6.0;
    w->null[0] = 0.25;
    for (int i = 0; i < H * P * N; i++) { /* a quarter in the first block */
        const int at = i / N / P * N + i % N;
        w->blocks[at] += 0.25f * energy[i];
        w->blocks[H * N + at] += 0.75f * energy[i];
    }
    add(w, "layers.0.energy_blocks", SSM_DTYPE_F32, w->blocks, 3, B, H, N);
    add(w, "layers.0.energy", SSM_DTYPE_F32, energy, 3, H, P, N);
    add(w, "layers.0.output_energy", SSM_DTYPE_F32, w->output, 1, H, 0, 0);
    add(w, "layers.0.state_moment", SSM_DTYPE_F32, w->moments, 2, H, N, 0);
    add(w, "layers.0.read_moment", SSM_DTYPE_F32, w->moments, 2, H, N, 0);
    add(w, "layers.0.delta_mean", SSM_DTYPE_F32, w->delta, 1, H, 0, 0);
    add(w, "layers.0.adjoint_moment", SSM_DTYPE_F32, w->moments, 2, H, N, 0);
    if (role == SSM_ROLE_EVALUATION) {
        add(w, "layers.0.channel_error_static", SSM_DTYPE_F64, w->fixed, 1, 1, 0, 0);
        add(w, "layers.0.channel_error_diag", SSM_DTYPE_F64, w->diag, 1, 1, 0, 0);
        add(w, "layers.0.channel_churn_null", SSM_DTYPE_F64, w->null, 1, 1, 0, 0);
    }
}

static const char *const domains[] = {"a"};

/* budgets: the JSON of the field, or NULL for none. change is applied to the evaluation window. */
static ssm_status write_recording(const char *directory, const char *budgets,
                                  void (*change)(window_tensors *), ssm_error *err)
{
    const ssm_recording_window windows[2] = {
        {.domain = domains[0], .role = SSM_ROLE_CALIBRATION, .tokens = T},
        {.domain = domains[0], .role = SSM_ROLE_EVALUATION, .token_offset = T, .tokens = T}};
    ssm__recording_plan plan = {.info = {.model_digest = "m",
                                         .family = SSM_FAMILY_MAMBA2,
                                         .n_layers = 1,
                                         .d_model = 4,
                                         .d_inner = H * P,
                                         .d_state = N,
                                         .n_heads = H,
                                         .head_dim = P,
                                         .n_groups = 1,
                                         .window = T,
                                         .has_gram = true},
                                .windows = windows,
                                .n_windows = 2};
    ssm__recording_writer *writer = NULL;
    plan.extra = json_object();
    if (budgets) {
        json_object_set_new(plan.extra, "budgets", json_loads(budgets, 0, NULL));
    }
    ssm_status status = ssm__recording_create(directory, &plan, &writer, err);
    json_decref(plan.extra);
    const float A[H] = {-2.0f, -1.0f};
    const ssm_tensor rate = {.name = "layers.0.A",
                             .dtype = SSM_DTYPE_F32,
                             .n_dims = 1,
                             .dims = {H},
                             .data = A,
                             .bytes = sizeof A};
    if (status == SSM_STATUS_OK) {
        status = ssm__recording_put_model(writer, &rate, 1, err);
    }
    for (int64_t i = 0; i < 2 && status == SSM_STATUS_OK; i++) {
        static window_tensors w;
        const ssm_tensor gram = {.name = "layers.0.gram",
                                 .dtype = SSM_DTYPE_F64,
                                 .n_dims = 2,
                                 .dims = {H, ENTRIES},
                                 .data = grams,
                                 .bytes = sizeof grams};
        fill(&w, windows[i].role);
        if (i == 1 && change) {
            change(&w);
        }
        add(&w, "nll", SSM_DTYPE_F32, w.nll, 1, T - 1, 0, 0);
        add(&w, "ids", SSM_DTYPE_I32, w.ids, 1, T, 0, 0);
        status = ssm__recording_put_window(writer, i, w.tensors, w.count, &gram, 1, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm__recording_finish(writer, err);
    }
    ssm__recording_writer_free(writer);
    return status;
}

static char directory[TEST_PATH_MAX], path[TEST_PATH_MAX + 8];

static const char *fresh(void)
{
    snprintf(path, sizeof path, "%s/rec", test_make_directory(directory));
    return path;
}

static ssm_recording *open_recording(const char *budgets)
{
    ssm_recording *recording = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (write_recording(fresh(), budgets, NULL, &err) != SSM_STATUS_OK) {
        fail_msg("%s %s", err.tensor, err.message);
    }
    assert_int_equal(ssm_recording_open(path, &recording, NULL), SSM_STATUS_OK);
    return recording;
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fmax(1.0, fabs(want)))) {
        fail_msg("got %.17g, expected %.17g", got, want);
    }
}

/* ---- by hand --------------------------------------------------------------------------------- */

static void channels_by_hand(void **state)
{
    (void)state;
    ssm_recording *recording = open_recording("[1]");
    ssm_metrics m;
    assert_int_equal(ssm_metrics_compute(recording, SSM_SCOPE_CHANNEL, NULL, 0, NULL, &m, NULL),
                     SSM_STATUS_OK);
    const ssm_budget_metrics *b = &m.layers[0].budgets[0];
    assert_int_equal(b->budget, 1);
    near(b->rho, sqrt(6.0 / 24.0));
    near(b->error_static, sqrt(24.0 / 50.0)); /* Σ Y = 30 + 20 */
    near(b->error_diag, sqrt(6.0 / 50.0));
    /* dropped energies: static 6 + 5 + 3 + 2, own 2 + 5 + 3 + 1 */
    near(b->rho_diag, sqrt(11.0 / 16.0));
    near(b->set_churn, 2.0 / 4.0);              /* two of four channels changed their one mode */
    near(b->energy_weighted_churn, 7.0 / 32.0); /* entering 5 and 2 of Σ e = 7 + 10 + 12 + 3 */
    near(b->churn_null, 0.25);
    assert_true(isnan(b->churn_cross) && b->n_lags == 0);
    near(m.diagonal_identity_max_violation, 0.0); /* small integers are exact */
    /* PR of 1 5 1 | 5 3 2 | 1 2 9 | 1 2 0: 49/27, 100/38, 144/86, 9/5; the median of four */
    near(m.layers[0].participation_median, (9.0 / 5.0 + 49.0 / 27.0) / 2.0);
    /* τ of the heads: 1/(2 · 0.5), 1/(1 · 0.25) */
    near(m.layers[0].time_constant_median, (1.0 + 4.0) / 2.0);
    ssm_metrics_free(&m);

    /* at another budget the errors are not known, the rest is */
    const int64_t two = 2;
    assert_int_equal(ssm_metrics_compute(recording, SSM_SCOPE_CHANNEL, &two, 1, NULL, &m, NULL),
                     SSM_STATUS_OK);
    b = &m.layers[0].budgets[0];
    assert_true(isnan(b->rho) && isnan(b->error_static) && isnan(b->error_diag) &&
                isnan(b->churn_null));
    /* static {0,1} {0,1} {1,2} {0,1}, own {0,1} {0,1} {1,2} {0,1}: nothing moves */
    near(b->rho_diag, 1.0);
    near(b->set_churn, 0.0);
    ssm_metrics_free(&m);
    ssm_recording_close(recording);
    test_remove_directory(directory);
}

static void heads_by_hand(void **state)
{
    (void)state;
    ssm_recording *recording = open_recording("[1]");
    ssm_metrics m;
    assert_int_equal(ssm_metrics_compute(recording, SSM_SCOPE_HEAD, NULL, 0, NULL, &m, NULL),
                     SSM_STATUS_OK);
    const ssm_budget_metrics *b = &m.layers[0].budgets[0];
    /* static drops {1,2} of head 0: 8 + 3 − 2 = 9, and {0,1} of head 1: 2 + 4 − 4 = 2; own drops
     * {0,2}: 6 + 3 + 4 = 13 and the same 2: with correlations ρ can exceed 1 */
    near(b->rho, sqrt(15.0 / 11.0));
    near(b->error_static, sqrt(11.0 / 50.0));
    near(b->error_diag, sqrt(15.0 / 50.0));
    near(b->rho_diag, sqrt((9.0 + 6.0) / (11.0 + 6.0)));
    near(b->set_churn, 1.0 / 2.0);
    near(b->energy_weighted_churn, 8.0 / 32.0);
    /* both halves are the same up to a factor */
    near(b->churn_null, 0.0);
    near(m.gram_diagonal_max_deviation, 0.0);
    near(m.layers[0].time_constant_median, 2.5);
    ssm_metrics_free(&m);
    ssm_recording_close(recording);
    test_remove_directory(directory);
}

static void sets_by_hand(void **state)
{
    (void)state;
    static const uint8_t by_channel[] = {1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0};
    static const uint8_t by_head[] = {1, 0, 0, 0, 0, 1};
    ssm_recording *recording = open_recording("[1]");
    ssm_select_options options = {.rule = "static", .budget = 1};
    ssm_mask mask;
    assert_int_equal(ssm_select(recording, &options, &mask, NULL), SSM_STATUS_OK);
    assert_int_equal(mask.head_dim, P);
    assert_memory_equal(mask.keep, by_channel, sizeof by_channel);
    ssm_mask_free(&mask);
    options.scope = "head";
    assert_int_equal(ssm_select(recording, &options, &mask, NULL), SSM_STATUS_OK);
    assert_int_equal(mask.head_dim, 0);
    assert_memory_equal(mask.keep, by_head, sizeof by_head);
    ssm_mask_free(&mask);
    ssm_recording_close(recording);
    test_remove_directory(directory);
}

/* ---- malformed ------------------------------------------------------------------------------- */

static void budgets_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *budgets, *message;
    } cases[] = {{NULL, "expected a list"},
                 {"1", "expected a list"},
                 {"[1, 2, 1, 2]", "at most d_state"},
                 {"[0]", "entry 0: expected 1 … 2"},
                 {"[3]", "entry 0: expected 1 … 2"},
                 {"[1, 1]", "entry 1"},
                 {"[1.0]", "entry 0"},
                 {"[\"1\"]", "entry 0"},
                 {"[null]", "entry 0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ssm_error err;
        ssm_error_clear(&err);
        assert_int_equal(write_recording(fresh(), cases[i].budgets, NULL, &err), SSM_STATUS_USAGE);
        assert_string_equal(err.tensor, "budgets");
        if (!strstr(err.message, cases[i].message)) {
            fail_msg("'%s' does not say '%s'", err.message, cases[i].message);
        }
        test_remove_directory(directory);
    }
}

static void negative(window_tensors *w)
{
    w->diag[0] = -1.0;
}
static void infinite(window_tensors *w)
{
    w->fixed[0] = INFINITY;
}
static void not_a_number(window_tensors *w)
{
    w->null[0] = NAN;
}
static void a_field_less(window_tensors *w)
{
    w->count--;
}
static void two_budgets(window_tensors *w)
{
    w->tensors[7].dims[0] = 2;
}
static void float32(window_tensors *w)
{
    w->tensors[8].dtype = SSM_DTYPE_F32;
    w->tensors[8].bytes = 4;
}
static void by_head(window_tensors *w)
{
    w->tensors[1].dims[1] = 1;
}

static void fields_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        void (*change)(window_tensors *);
        ssm_status written;
        const char *message;
    } cases[] = {{negative, SSM_STATUS_OK, "is -1"},   {infinite, SSM_STATUS_OK, "is inf"},
                 {not_a_number, SSM_STATUS_OK, "nan"}, {a_field_less, SSM_STATUS_USAGE, "expected"},
                 {two_budgets, SSM_STATUS_USAGE, ""},  {float32, SSM_STATUS_USAGE, ""},
                 {by_head, SSM_STATUS_USAGE, ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ssm_error err;
        ssm_error_clear(&err);
        const ssm_status written = write_recording(fresh(), "[1]", cases[i].change, &err);
        assert_int_equal(written, cases[i].written);
        if (written == SSM_STATUS_OK) {
            ssm_recording *recording = NULL;
            ssm_metrics m;
            assert_int_equal(ssm_recording_open(path, &recording, NULL), SSM_STATUS_OK);
            assert_int_equal(
                ssm_metrics_compute(recording, SSM_SCOPE_CHANNEL, NULL, 0, NULL, &m, &err),
                SSM_STATUS_FILE);
            assert_true(strncmp(err.tensor, "layers.0.channel_", 17) == 0);
            ssm_recording_close(recording);
        }
        if (!strstr(err.message, cases[i].message)) {
            fail_msg("%zu: '%s' does not say '%s'", i, err.message, cases[i].message);
        }
        test_remove_directory(directory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channels_by_hand),
        cmocka_unit_test(heads_by_hand),
        cmocka_unit_test(sets_by_hand),
        cmocka_unit_test(budgets_that_are_refused),
        cmocka_unit_test(fields_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
