/* ssm_metrics_compute on written recordings against a second, naive implementation that reads no
 * recording: it works on the mode outputs over time, by the definitions of docs/metrics.md. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ssmscope/metrics.h"
#include "test_numbers.h"
#include "test_paths.h"
#include "toy_recording.h"

/* Syncing would only cost time: nothing here is about a machine that stops. */
int fsync(int descriptor)
{
    (void)descriptor;
    return 0;
}

/* The recording stores float32: an energy or Gram entry is off by 6e-8 of its size (entries of an
 * error cancel by at most about ten here), and ρ is the square root of a ratio of two such sums. */
static const double tolerance = 1e-6;

/* ---- the naive implementation --------------------------------------------------------------- */

enum { WINDOWS = 16, CHANNELS = 8, MODES = 8, BLOCKS = 8, LAYERS = 4 };

typedef struct naive_layer {
    double energy[WINDOWS][CHANNELS][MODES];
    double block[WINDOWS][BLOCKS][CHANNELS][MODES];
    double mean[CHANNELS][MODES];
    double tau[CHANNELS][MODES];
    double *modes[WINDOWS]; /* [T][H][N+1] */
} naive_layer;

typedef struct naive_set {
    bool in[MODES];
} naive_set;

static naive_set top(const double *energy, int64_t n, int64_t r)
{
    naive_set set = {{false}};
    for (int64_t k = 0; k < r; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++) {
            if (!set.in[i] && (best < 0 || energy[i] > energy[best])) {
                best = i;
            }
        }
        set.in[best] = true;
    }
    return set;
}

static double distance(naive_set a, naive_set b)
{
    double both = 0;
    double either = 0;
    for (int i = 0; i < MODES; i++) {
        both += a.in[i] && b.in[i];
        either += a.in[i] || b.in[i];
    }
    return 1 - both / either;
}

static naive_layer *naive_read(const toy_recording *toy, int64_t layer)
{
    naive_layer *out = calloc(1, sizeof *out);
    int64_t width = toy->d_state + 1;
    int64_t windows = toy_recording_windows(toy);
    double delta[CHANNELS] = {0};
    for (int64_t w = 0; w < windows; w++) {
        out->modes[w] = test_doubles(toy->window * toy->channels * width);
        toy_modes(toy, w, layer, out->modes[w]);
        float own[CHANNELS];
        toy_delta(toy, w, layer, own);
        for (int64_t h = 0; h < toy->channels; h++) {
            delta[h] += (double)own[h] / (double)windows;
            for (int64_t i = 0; i < toy->d_state; i++) {
                for (int64_t t = 0; t < toy->window; t++) {
                    double m = out->modes[w][(t * toy->channels + h) * width + i];
                    out->energy[w][h][i] += m * m;
                    out->block[w][t / 64][h][i] += m * m;
                }
                out->mean[h][i] +=
                    toy_recording_role(toy, w) == SSM_ROLE_CALIBRATION ? out->energy[w][h][i] : 0.0;
            }
        }
    }
    float A[CHANNELS * MODES];
    toy_A(toy, layer, A);
    for (int64_t h = 0; h < toy->channels; h++) {
        for (int64_t i = 0; i < toy->d_state; i++) {
            out->tau[h][i] = -1 / ((double)A[h * toy->d_state + i] * delta[h]);
        }
    }
    return out;
}

static void naive_free(naive_layer *layer)
{
    for (int w = 0; w < WINDOWS; w++) {
        free(layer->modes[w]);
    }
    free(layer);
}

/* Σ_t (y − ŷ)² of one channel, and Σ_t y². */
static double pruned(const toy_recording *toy, const double *modes, int64_t h, naive_set set,
                     double *output)
{
    int64_t width = toy->d_state + 1;
    double error = 0;
    for (int64_t t = 0; t < toy->window; t++) {
        const double *m = modes + (t * toy->channels + h) * width;
        double y = m[toy->d_state];
        double kept = m[toy->d_state];
        for (int64_t i = 0; i < toy->d_state; i++) {
            y += m[i];
            kept += set.in[i] ? m[i] : 0;
        }
        error += (y - kept) * (y - kept);
        *output += y * y;
    }
    return error;
}

static void naive_gap(const toy_recording *toy, const naive_layer *layer, int64_t r,
                      ssm_budget_metrics *out)
{
    double sums[2] = {0};
    double energies[2] = {0};
    double output[2] = {0};
    double entering = 0;
    double all = 0;
    double churn = 0;
    double count = 0;
    for (int64_t w = 0; w < toy_recording_windows(toy); w++) {
        for (int64_t h = 0; h < toy->channels; h++) {
            if (toy_recording_role(toy, w) != SSM_ROLE_EVALUATION) {
                continue;
            }
            const double *e = layer->energy[w][h];
            naive_set sets[2] = {top(layer->mean[h], toy->d_state, r), top(e, toy->d_state, r)};
            for (int k = 0; k < 2; k++) {
                sums[k] += pruned(toy, layer->modes[w], h, sets[k], &output[k]);
                for (int64_t i = 0; i < toy->d_state; i++) {
                    energies[k] += sets[k].in[i] ? 0 : e[i];
                }
            }
            for (int64_t i = 0; i < toy->d_state; i++) {
                bool enters = sets[1].in[i] && !sets[0].in[i];
                entering += enters ? e[i] : 0;
                churn += enters ? 1.0 / (double)r : 0;
                all += e[i];
            }
            count++;
        }
    }
    out->error_static = sqrt(sums[0] / output[0]);
    out->error_diag = sqrt(sums[1] / output[0]);
    out->rho = out->error_diag / out->error_static;
    out->rho_diag = sqrt(energies[1] / energies[0]);
    out->energy_weighted_churn = entering / all;
    out->set_churn = churn / count;
}

static void naive_churn(const toy_recording *toy, const naive_layer *layer, int64_t r,
                        ssm_budget_metrics *out)
{
    double sum[3] = {0};
    double count[3] = {0};
    int64_t blocks = (toy->window + 63) / 64;
    for (int64_t v = 0; v < toy_recording_windows(toy); v++) {
        for (int64_t w = 0; w < toy_recording_windows(toy); w++) {
            if (toy_recording_role(toy, v) != SSM_ROLE_EVALUATION ||
                toy_recording_role(toy, w) != SSM_ROLE_EVALUATION) {
                continue;
            }
            int kind = v == w ? 2 : toy_recording_domain(toy, v) != toy_recording_domain(toy, w);
            for (int64_t h = 0; h < toy->channels; h++) {
                double halves[2][MODES] = {{0}};
                for (int64_t b = 0; b < blocks; b++) {
                    for (int64_t i = 0; i < toy->d_state; i++) {
                        halves[b >= blocks / 2][i] += layer->block[v][b][h][i];
                    }
                }
                const double *first = kind == 2 ? halves[0] : layer->energy[v][h];
                const double *second = kind == 2 ? halves[1] : layer->energy[w][h];
                sum[kind] += distance(top(first, toy->d_state, r), top(second, toy->d_state, r));
                count[kind]++;
            }
        }
    }
    out->churn_within = sum[0] / count[0];
    out->churn_cross = sum[1] / count[1];
    out->churn_null = sum[2] / count[2];
}

static void naive_lag(const toy_recording *toy, const naive_layer *layer, int64_t r, int64_t lag,
                      double *jaccard, double *cosine)
{
    double count = 0;
    *jaccard = *cosine = 0;
    for (int64_t w = 0; w < toy_recording_windows(toy); w++) {
        for (int64_t b = 0; b + lag < toy->window / 64; b++) {
            for (int64_t h = 0; h < toy->channels; h++) {
                if (toy_recording_role(toy, w) != SSM_ROLE_EVALUATION) {
                    continue;
                }
                const double *x = layer->block[w][b][h];
                const double *y = layer->block[w][b + lag][h];
                double xx = 0, yy = 0, xy = 0;
                for (int64_t i = 0; i < toy->d_state; i++) {
                    xx += x[i] * x[i];
                    yy += y[i] * y[i];
                    xy += x[i] * y[i];
                }
                *jaccard += distance(top(x, toy->d_state, r), top(y, toy->d_state, r));
                *cosine += xy / sqrt(xx * yy);
                count++;
            }
        }
    }
    *jaccard /= count;
    *cosine /= count;
}

/* Instability of one mode; rank: how many modes of `layers` layers are faster. */
static double naive_instability(const toy_recording *toy, const naive_layer *layer, int64_t r,
                                int64_t h, int64_t i)
{
    double in = 0;
    double windows = 0;
    for (int64_t w = 0; w < toy_recording_windows(toy); w++) {
        if (toy_recording_role(toy, w) == SSM_ROLE_EVALUATION) {
            in += top(layer->energy[w][h], toy->d_state, r).in[i];
            windows++;
        }
    }
    return 4 * in / windows * (1 - in / windows);
}

static void naive_deciles(const toy_recording *toy, naive_layer *const *layers, int64_t n_layers,
                          int64_t r, double out[SSM_DECILES])
{
    double count[SSM_DECILES] = {0};
    int64_t modes = n_layers * toy->channels * toy->d_state;
    memset(out, 0, SSM_DECILES * sizeof *out);
    for (int64_t a = 0; a < modes; a++) {
        int64_t n = toy->d_state;
        int64_t h = a / n % toy->channels;
        const naive_layer *layer = layers[a / n / toy->channels];
        int64_t rank = 0;
        for (int64_t b = 0; b < modes; b++) {
            rank += layers[b / n / toy->channels]->tau[b / n % toy->channels][b % n] <
                    layer->tau[h][a % n];
        }
        int64_t decile = 0; /* decile k: ranks ⌊k·modes/10⌋ to ⌊(k+1)·modes/10⌋ − 1 */
        while ((decile + 1) * modes / SSM_DECILES <= rank) {
            decile++;
        }
        out[decile] += naive_instability(toy, layer, r, h, a % n);
        count[decile]++;
    }
    for (int k = 0; k < SSM_DECILES; k++) {
        out[k] /= count[k];
    }
}

/* ---- comparison ----------------------------------------------------------------------------- */

static void near(const char *what, int64_t layer, int64_t r, double got, double want)
{
    if (!(fabs(got - want) <= tolerance * fmax(fabs(want), 1e-3))) {
        fail_msg("%s of layer %lld at budget %lld: got %.12g, expected %.12g", what,
                 (long long)layer, (long long)r, got, want);
    }
}

static void compare_budget(const toy_recording *toy, const naive_layer *layer, int64_t number,
                           const ssm_budget_metrics *got)
{
    ssm_budget_metrics want = {0};
    int64_t r = got->budget;
    naive_gap(toy, layer, r, &want);
    naive_churn(toy, layer, r, &want);
    near("rho", number, r, got->rho, want.rho);
    near("rho_diag", number, r, got->rho_diag, want.rho_diag);
    near("error_static", number, r, got->error_static, want.error_static);
    near("error_diag", number, r, got->error_diag, want.error_diag);
    near("set_churn", number, r, got->set_churn, want.set_churn);
    near("energy_weighted_churn", number, r, got->energy_weighted_churn,
         want.energy_weighted_churn);
    near("churn_within", number, r, got->churn_within, want.churn_within);
    near("churn_cross", number, r, got->churn_cross, want.churn_cross);
    near("churn_null", number, r, got->churn_null, want.churn_null);
    assert_int_equal(got->n_lags, toy->window / 64 - 1);
    for (int64_t k = 0; k < got->n_lags; k++) {
        double jaccard;
        double cosine;
        naive_lag(toy, layer, r, k + 1, &jaccard, &cosine);
        assert_int_equal(got->decorrelation[k].lag, 64 * (k + 1));
        near("lag distance", number, r, got->decorrelation[k].jaccard, jaccard);
        near("lag cosine", number, r, got->decorrelation[k].cosine, cosine);
    }
}

static void every_metric_agrees_with_the_naive_one(void **state)
{
    (void)state;
    toy_recording toy = toy_recording_shape();
    toy.window = 330; /* five blocks and ten tokens */
    char root[TEST_PATH_MAX];
    ssm_recording *recording = toy_recording_open(&toy, root);
    ssm_metrics got;
    assert_int_equal(ssm_metrics_compute(recording, SSM_SCOPE_DEFAULT, NULL, 0, NULL, &got, NULL),
                     SSM_STATUS_OK);
    assert_int_equal(got.n_budgets, 3); /* N = 6: 1, 3, 4 */
    assert_true(got.across[0].budget == 1 && got.across[1].budget == 3 &&
                got.across[2].budget == 4);
    naive_layer *layers[LAYERS];
    for (int64_t i = 0; i < toy.n_layers; i++) {
        layers[i] = naive_read(&toy, i);
        assert_int_equal(got.layers[i].layer, i);
        for (int64_t b = 0; b < got.n_budgets; b++) {
            const ssm_budget_metrics *budget = &got.layers[i].budgets[b];
            double deciles[SSM_DECILES];
            compare_budget(&toy, layers[i], i, budget);
            naive_deciles(&toy, &layers[i], 1, budget->budget, deciles);
            for (int k = 0; k < SSM_DECILES; k++) {
                near("instability", i, budget->budget, budget->instability_by_decile[k],
                     deciles[k]);
            }
        }
    }
    for (int64_t b = 0; b < got.n_budgets; b++) {
        double deciles[SSM_DECILES];
        naive_deciles(&toy, layers, toy.n_layers, got.across[b].budget, deciles);
        int64_t above = 0;
        for (int64_t i = 0; i < toy.n_layers; i++) {
            const ssm_budget_metrics *budget = &got.layers[i].budgets[b];
            above += budget->churn_cross > budget->churn_within;
            assert_true(got.across[b].min_rho <= budget->rho);
        }
        assert_int_equal(got.across[b].layers_cross_above_within, above);
        for (int k = 0; k < SSM_DECILES; k++) {
            near("pooled instability", -1, b, got.across[b].instability_by_decile[k], deciles[k]);
        }
    }
    /* float64 sums of the same numbers on two ways: a few roundings. */
    assert_true(got.diagonal_identity_max_violation <= 1e-14);
    /* both float32 roundings of Σ m², 6e-8 each, and the energy is a sum of six */
    assert_true(got.gram_diagonal_max_deviation <= 4e-7);
    for (int64_t i = 0; i < toy.n_layers; i++) {
        naive_free(layers[i]);
    }
    ssm_metrics_free(&got);
    toy_recording_close(recording, root);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Middle of an odd number of values; (n − 1) q is whole for the quantiles asked for. */
static void participation_and_time_constants(void **state)
{
    (void)state;
    toy_recording toy = toy_recording_shape();
    toy.channels = 1;
    toy.d_state = 7;
    char root[TEST_PATH_MAX];
    ssm_recording *recording = toy_recording_open(&toy, root);
    ssm_metrics got;
    assert_int_equal(ssm_metrics_compute(recording, SSM_SCOPE_DEFAULT, NULL, 0, NULL, &got, NULL),
                     SSM_STATUS_OK);
    naive_layer *layer = naive_read(&toy, 2);
    double sum = 0;
    double square = 0;
    double tau[7];
    for (int i = 0; i < 7; i++) {
        double e = 0;
        for (int64_t w = 0; w < 10; w++) {
            e += toy_recording_role(&toy, w) == SSM_ROLE_EVALUATION ? layer->energy[w][0][i] : 0;
        }
        sum += e;
        square += e * e;
        tau[i] = layer->tau[0][i];
    }
    qsort(tau, 7, sizeof *tau, by_value);
    near("participation", 2, 0, got.layers[2].participation_median, sum * sum / square);
    near("participation p10", 2, 0, got.layers[2].participation_p10, sum * sum / square);
    near("participation p90", 2, 0, got.layers[2].participation_p90, sum * sum / square);
    near("time constant", 2, 0, got.layers[2].time_constant_median, tau[3]);
    near("first decile", 2, 0, got.layers[2].time_constant_deciles[0],
         tau[0] + 0.6 * (tau[1] - tau[0]));
    near("fifth decile", 2, 0, got.layers[2].time_constant_deciles[4], tau[3]);
    naive_free(layer);
    ssm_metrics_free(&got);
    toy_recording_close(recording, root);
}

/* ---- what a recording does not support ------------------------------------------------------ */

static void without_gram_only_the_full_errors_are_missing(void **state)
{
    (void)state;
    toy_recording toy = toy_recording_shape();
    toy.no_gram = true;
    char root[TEST_PATH_MAX];
    ssm_recording *recording = toy_recording_open(&toy, root);
    ssm_metrics got;
    assert_int_equal(ssm_metrics_compute(recording, SSM_SCOPE_DEFAULT, NULL, 0, NULL, &got, NULL),
                     SSM_STATUS_OK);
    naive_layer *layer = naive_read(&toy, 1);
    for (int64_t b = 0; b < got.n_budgets; b++) {
        const ssm_budget_metrics *budget = &got.layers[1].budgets[b];
        ssm_budget_metrics want = {0};
        naive_gap(&toy, layer, budget->budget, &want);
        assert_true(isnan(budget->rho) && isnan(budget->error_static) && isnan(budget->error_diag));
        near("rho_diag", 1, b, budget->rho_diag, want.rho_diag);
        near("set_churn", 1, b, budget->set_churn, want.set_churn);
        assert_true(isnan(got.across[b].min_rho) && got.across[b].min_rho_layer == -1);
        assert_true(isnan(got.across[b].pearson_rho_diag_rho));
        assert_true(got.across[b].static_tail == -1 && got.across[b].n_migrating == 0);
    }
    assert_true(isnan(got.gram_diagonal_max_deviation));
    naive_free(layer);
    ssm_metrics_free(&got);
    toy_recording_close(recording, root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_metric_agrees_with_the_naive_one),
        cmocka_unit_test(participation_and_time_constants),
        cmocka_unit_test(without_gram_only_the_full_errors_are_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
