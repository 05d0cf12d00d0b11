/* ssm_metrics_compute: what is left out where a recording does not have what it needs, and requests
 * that are refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "ssmscope/metrics.h"
#include "test_paths.h"
#include "toy_recording.h"

/* Syncing would only cost time: nothing here is about a machine that stops. */
int fsync(int descriptor)
{
    (void)descriptor;
    return 0;
}

/* ---- what a recording does not support ------------------------------------------------------ */

static void one_domain_has_no_cross_churn(void **state)
{
    (void)state;
    toy_recording toy = toy_recording_shape();
    toy.n_domains = 1;
    toy.calibration = 0;
    toy.window = 60; /* one block: no halves, no lags */
    char root[TEST_PATH_MAX];
    ssm_recording *recording = toy_recording_open(&toy, root);
    ssm_metrics got;
    assert_int_equal(ssm_metrics_compute(recording, SSM_SCOPE_DEFAULT, NULL, 0, NULL, &got, NULL),
                     SSM_STATUS_OK);
    const ssm_budget_metrics *budget = &got.layers[0].budgets[1];
    assert_true(isnan(budget->churn_cross) && budget->churn_within > 0);
    assert_true(isnan(budget->churn_null) && budget->n_lags == 0);
    assert_int_equal(got.across[1].layers_cross_above_within, -1);
    /* No calibration windows: nothing that needs the static set. */
    assert_true(isnan(budget->rho) && isnan(budget->rho_diag) && isnan(budget->error_static));
    assert_true(isnan(budget->set_churn) && isnan(budget->energy_weighted_churn));
    assert_true(isnan(got.diagonal_identity_max_violation));
    assert_true(budget->error_diag > 0 && got.layers[0].participation_median >= 1);
    ssm_metrics_free(&got);
    toy_recording_close(recording, root);
}

static void one_evaluation_window_has_no_instability(void **state)
{
    (void)state;
    toy_recording toy = toy_recording_shape();
    toy.n_domains = 1;
    toy.evaluation = 1;
    char root[TEST_PATH_MAX];
    ssm_recording *recording = toy_recording_open(&toy, root);
    ssm_metrics got;
    assert_int_equal(ssm_metrics_compute(recording, SSM_SCOPE_DEFAULT, NULL, 0, NULL, &got, NULL),
                     SSM_STATUS_OK);
    assert_true(isnan(got.layers[0].budgets[0].instability_by_decile[5]));
    assert_true(isnan(got.layers[0].budgets[0].churn_within) && got.layers[0].budgets[0].rho > 0);
    ssm_metrics_free(&got);
    toy_recording_close(recording, root);
}

static void some_layers_give_those_layers(void **state)
{
    (void)state;
    const int64_t layers[] = {0, 2};
    toy_recording toy = toy_recording_shape();
    char whole_root[TEST_PATH_MAX];
    char some_root[TEST_PATH_MAX];
    ssm_recording *whole = toy_recording_open(&toy, whole_root);
    toy.layers = layers;
    toy.n_recorded = 2;
    ssm_recording *some = toy_recording_open(&toy, some_root);
    ssm_metrics a;
    ssm_metrics b;
    assert_int_equal(ssm_metrics_compute(whole, SSM_SCOPE_DEFAULT, NULL, 0, NULL, &a, NULL),
                     SSM_STATUS_OK);
    assert_int_equal(ssm_metrics_compute(some, SSM_SCOPE_DEFAULT, NULL, 0, NULL, &b, NULL),
                     SSM_STATUS_OK);
    assert_int_equal(b.n_layers, 2);
    assert_true(b.layers[1].layer == 2 && b.layers[1].budgets[1].rho == a.layers[2].budgets[1].rho);
    assert_true(b.layers[1].time_constant_median == a.layers[2].time_constant_median);
    const ssm_across_layers *across = &b.across[1];
    assert_true(across->migrating_depths[across->n_migrating - 1] ==
                (double)across->migrating_layers[across->n_migrating - 1] / 2.0);
    ssm_metrics_free(&a);
    ssm_metrics_free(&b);
    toy_recording_close(whole, whole_root);
    toy_recording_close(some, some_root);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void bad_requests_are_refused(void **state)
{
    (void)state;
    toy_recording toy = toy_recording_shape();
    char root[TEST_PATH_MAX];
    ssm_recording *recording = toy_recording_open(&toy, root);
    const struct {
        int64_t budgets[2], count;
        const char *message;
    } cases[] = {{{0, 0}, 1, "budget 0 is outside 1 … 5"},
                 {{2, 6}, 2, "budget 6 is outside 1 … 5"},
                 {{-1, 0}, 1, "budget -1 is outside"},
                 {{2, 2}, 2, "budget 2 is given twice"},
                 {{2, 2}, 0, "no budget"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ssm_metrics got;
        ssm_error err;
        ssm_error_clear(&err);
        assert_int_equal(ssm_metrics_compute(recording, SSM_SCOPE_DEFAULT, cases[i].budgets,
                                             cases[i].count, NULL, &got, &err),
                         SSM_STATUS_USAGE);
        assert_non_null(strstr(err.message, cases[i].message));
        assert_null(got.layers);
    }
    toy_recording_close(recording, root);
    toy.evaluation = 0;
    recording = toy_recording_open(&toy, root);
    ssm_metrics got;
    assert_int_equal(ssm_metrics_compute(recording, SSM_SCOPE_DEFAULT, NULL, 0, NULL, &got, NULL),
                     SSM_STATUS_USAGE);
    toy_recording_close(recording, root);
}

static bool stop_at_layer_one(void *context, const char *what, int64_t done, int64_t total,
                              const char *unit)
{
    (void)what;
    (void)unit;
    *(int64_t *)context = total;
    return done < 1;
}

static void an_interruption_stops(void **state)
{
    (void)state;
    toy_recording toy = toy_recording_shape();
    char root[TEST_PATH_MAX];
    ssm_recording *recording = toy_recording_open(&toy, root);
    int64_t total = 0;
    ssm_progress progress = {&total, stop_at_layer_one};
    ssm_metrics got;
    assert_int_equal(
        ssm_metrics_compute(recording, SSM_SCOPE_DEFAULT, NULL, 0, &progress, &got, NULL),
        SSM_STATUS_INTERRUPTED);
    assert_int_equal(total, 3);
    toy_recording_close(recording, root);
}

static void default_budgets(void **state)
{
    (void)state;
    const int64_t want[][4] = {
        {0, 0, 0, 0}, {2, 1, 0, 0}, {3, 1, 2, 0}, {4, 1, 2, 3}, {16, 4, 8, 12}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        int64_t got[3] = {0};
        int64_t n = want[i][0] == 0 ? 1 : want[i][0];
        int64_t count = ssm_default_budgets(n, got);
        assert_memory_equal(got, &want[i][1], sizeof got);
        assert_int_equal(count, (want[i][1] > 0) + (want[i][2] > 0) + (want[i][3] > 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_domain_has_no_cross_churn),
        cmocka_unit_test(one_evaluation_window_has_no_instability),
        cmocka_unit_test(some_layers_give_those_layers),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(an_interruption_stops),
        cmocka_unit_test(default_budgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
