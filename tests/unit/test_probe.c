/* Probe and churn on windows whose answers are known, and a layer's energies worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "train/probe.h"

static void assert_near(double is, double wanted, double allowed)
{
    if (!(fabs(is - wanted) <= allowed)) {
        fail_msg("%.17g is not %.17g", is, wanted);
    }
}

enum { ROWS = 8, STATES = 4, WINDOWS = 2 * ROWS };

/* Two windows a row, one of each regime; one channel. */
static ssm__windows_of_layer windows_of(double *energies, int32_t *regime, int64_t *row)
{
    for (int64_t i = 0; i < WINDOWS; i++) {
        regime[i] = (int32_t)(i % 2);
        row[i] = i / 2;
    }
    return (ssm__windows_of_layer){.n = WINDOWS,
                                   .channels = 1,
                                   .states = STATES,
                                   .regimes = 2,
                                   .energies = energies,
                                   .regime = regime,
                                   .row = row};
}

/* Regime 0 uses the modes {0, 1}, regime 1 the modes {1, 2}: the distance is 1 − 1/3 across and 0
 * within. */
static void test_apart(void **state)
{
    (void)state;
    static const double of[2][STATES] = {{4, 3, 1, 0.5}, {1, 4, 3, 0.5}};
    double energies[WINDOWS * STATES];
    int32_t regime[WINDOWS];
    int64_t row[WINDOWS];
    const ssm__windows_of_layer windows = windows_of(energies, regime, row);
    for (int64_t i = 0; i < WINDOWS; i++) {
        for (int64_t n = 0; n < STATES; n++) {
            energies[i * STATES + n] = of[regime[i]][n] * (1 + 0.01 * (double)i);
        }
    }
    ssm__probe_result r;
    assert_int_equal(ssm__probe_windows(&windows, 2, &r, NULL), SSM_STATUS_OK);
    assert_near(r.accuracy, 1, 0);
    assert_near(r.churn_within, 0, 0);
    assert_near(r.churn_cross, 2.0 / 3, 1e-15);
    assert_near(r.margin, 2.0 / 3, 1e-15);
    assert_true(fabs(r.margin_shuffled) < 0.1); /* its mean is 0, its deviation about 0.02 */
    assert_true(r.accuracy_shuffled < 0.8);
}

/* Energies that do not depend on the regime. */
static void test_alike(void **state)
{
    (void)state;
    double energies[WINDOWS * STATES];
    int32_t regime[WINDOWS];
    int64_t row[WINDOWS];
    const ssm__windows_of_layer windows = windows_of(energies, regime, row);
    for (int64_t i = 0; i < WINDOWS; i++) { /* both windows of a row are alike */
        for (int64_t n = 0; n < STATES; n++) {
            energies[i * STATES + n] = 1 + (double)((row[i] + n) % STATES);
        }
    }
    ssm__probe_result r;
    assert_int_equal(ssm__probe_windows(&windows, 2, &r, NULL), SSM_STATUS_OK);
    assert_near(r.accuracy, 0.5, 0);
    assert_near(r.margin, 0, 1e-15);
    assert_near(r.churn_within, r.churn_cross, 1e-15);
    /* Sets {2,3} {1,2} {0,1} {0,3} of rows k mod 4: of 7 other rows one has the same set, four
     * share one mode (distance 2/3), two none (distance 1). */
    assert_near(r.churn_within, (4 * (2.0 / 3) + 2) / 7, 1e-15);
}

static void test_refusals(void **state)
{
    (void)state;
    double energies[WINDOWS * STATES] = {0};
    int32_t regime[WINDOWS];
    int64_t row[WINDOWS];
    ssm__windows_of_layer windows = windows_of(energies, regime, row);
    ssm__probe_result r;
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm__probe_windows(&windows, 5, &r, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "budget of 5 of 4"));
    for (int64_t i = 0; i < WINDOWS; i++) {
        row[i] = 2 * i / WINDOWS; /* of two rows shuffled labels may leave no pair to compare */
    }
    ssm_error_clear(&err);
    assert_int_equal(ssm__probe_windows(&windows, 2, &r, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "of 2 rows"));
    windows = windows_of(energies, regime, row);
    memset(regime, 0, sizeof regime);
    ssm_error_clear(&err);
    assert_int_equal(ssm__probe_windows(&windows, 2, &r, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "two regimes"));
}

/* One channel and state, D = 1: x_t = a x_{t−1} + Δ B u_t, m = C x, worked out beside. */
static void test_energies_by_hand(void **state)
{
    (void)state;
    const ssm__mixer_kind mixers[] = {SSM__MIXER_MAMBA1};
    const ssm__network_config config = {.shape = {.family = SSM_FAMILY_MAMBA,
                                                  .vocab_size = 2,
                                                  .d_model = 1,
                                                  .n_layers = 1,
                                                  .d_inner = 1,
                                                  .d_state = 1,
                                                  .d_conv = 2,
                                                  .dt_rank = 1,
                                                  .norm_eps = 1e-5,
                                                  .tied = true},
                                        .mixers = mixers,
                                        .loss = SSM_TRAIN_TOKENS};
    ssm__network *network;
    assert_int_equal(
        ssm__network_create(&config, ssm__kernels_for(SSM_ISA_PORTABLE), NULL, &network, NULL),
        SSM_STATUS_OK);
    static const struct {
        const char *name;
        float values[3];
    } set[] = {{"in_proj.weight", {2, 0}},
               {"conv1d.weight", {0.5f, 1}},
               {"conv1d.bias", {0.25f}},
               {"x_proj.weight", {1, 3, 0.5f}},
               {"dt_proj.weight", {0.5f}},
               {"dt_proj.bias", {-1}},
               {"A_log", {0}}};
    for (size_t i = 0; i < sizeof set / sizeof set[0]; i++) {
        char name[80] = "backbone.layers.0.mixer.";
        strcat(name, set[i].name);
        const ssm__parameter *p = ssm__network_find(network, name);
        assert_non_null(p);
        memcpy(ssm__network_values(network) + p->at, set[i].values,
               (size_t)p->count * sizeof(float));
    }
    const float in[] = {0.5f, -1, 0.25f, 1, 7}; /* the last one fills no window */
    double x = 0, before = 0, wanted[2] = {0}, is[2];
    for (int t = 0; t < 4; t++) {
        const double xs = 2 * (double)in[t], a = 0.5 * before + xs + 0.25;
        const double u = a / (1 + exp(-a)), delta = log(1 + exp(0.5 * u - 1));
        x = exp(-delta) * x + delta * 3 * u * u;
        wanted[t / 2] += 0.5 * u * x * (0.5 * u * x);
        before = xs;
    }
    assert_int_equal(ssm__mode_energies(network, 0, in, 5, 2, is, NULL), SSM_STATUS_OK);
    assert_near(is[0] / wanted[0], 1, 1e-14); /* a dozen roundings */
    assert_near(is[1] / wanted[1], 1, 1e-14);
    ssm__network_free(network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_alike),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_energies_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
