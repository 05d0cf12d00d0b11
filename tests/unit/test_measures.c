/* Every metric on an example worked out by hand (the comment is the working), and its edges. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/quantile.h"
#include "metrics/measures.h"
#include "recording/energies.h"

/* 1e-15 × a few roundings of float64; the examples have at most ten operations. */
static void near(double got, double want)
{
    if (!(fabs(got - want) <= 4e-15 * fmax(1.0, fabs(want)))) {
        fail_msg("got %.17g, expected %.17g", got, want);
    }
}

static uint64_t set_of(const int *modes, int count)
{
    uint64_t set = 0;
    for (int i = 0; i < count; i++) {
        set |= UINT64_C(1) << modes[i];
    }
    return set;
}
#define SET(...)                                                                                   \
    set_of((const int[]){__VA_ARGS__}, (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))

static void ranking_puts_ties_in_rising_order(void **state)
{
    (void)state;
    const double energy[] = {1, 3, 3, 0, 5, 1};
    const int32_t want[] = {4, 1, 2, 0, 5, 3};
    int32_t order[6];
    ssm__rank_modes(energy, 6, order);
    assert_memory_equal(order, want, sizeof want);
}

/* Against a count of how many modes go before each, for sizes on both sides of the sort's gaps. */
static void ranking_agrees_with_counting(void **state)
{
    (void)state;
    ssm_rng rng = ssm_rng_create(1, "ranking");
    for (int64_t n = 1; n <= 300; n += n < 40 ? 1 : 37) {
        double energy[300];
        int32_t order[300];
        for (int64_t i = 0; i < n; i++) {
            energy[i] = (double)ssm_rng_below(&rng, 12); /* many ties */
        }
        ssm__rank_modes(energy, n, order);
        for (int64_t i = 0; i < n; i++) {
            int64_t before = 0;
            for (int64_t k = 0; k < n; k++) {
                before += energy[k] > energy[i] || (energy[k] == energy[i] && k < i) ? 1 : 0;
            }
            assert_int_equal(order[before], i);
        }
    }
}

static void jaccard_distance(void **state)
{
    (void)state;
    uint64_t a = SET(0, 1, 2);
    uint64_t b = SET(1, 2, 5);
    assert_int_equal(ssm__set_common(&a, &b, 1), 2);
    near(ssm__jaccard_distance(2, 3), 0.5); /* 1 − 2/4 */
    near(ssm__jaccard_distance(3, 3), 0.0);
    near(ssm__jaccard_distance(0, 3), 1.0);
    /* N = 70 needs two words */
    int32_t order[70];
    uint64_t set[2];
    for (int i = 0; i < 70; i++) {
        order[i] = 69 - i;
    }
    assert_int_equal(ssm__set_words(70), 2);
    ssm__set_top(order, 7, set, 2);
    assert_true(set[1] == 0x3f && set[0] == UINT64_C(1) << 63); /* modes 69 … 63 */
}

/* N = 3, two tokens: m = (1, 2, −1), (0, 1, 3), f = (10, 20).
 * G over (m, f): 00: 1  01: 2  02: −1  0f: 10 / 11: 5  12: 1  1f: 40 / 22: 10  2f: 50 / ff: 500. */
static const float example_gram[10] = {1, 2, -1, 10, 5, 1, 40, 10, 50, 500};

static void dropped_errors_by_hand(void **state)
{
    (void)state;
    const int32_t order[3] = {2, 1, 0}; /* energies 1, 5, 10 */
    double error[4];
    ssm__dropped_errors(example_gram, 3, order, error);
    near(error[3], 0);
    near(error[2], 1);  /* drop 0:     1² + 0² */
    near(error[1], 10); /* drop 0, 1:  3² + 1² */
    near(error[0], 20); /* drop all:   2² + 4² */
    const double energy[3] = {1, 5, 10};
    ssm__dropped_energies(energy, 3, order, error);
    near(error[2], 1);
    near(error[1], 6);
    near(error[0], 16);
    near(ssm__relative_error(10, 40), 0.5);
    near(ssm__relative_error(-1e-9, 40), 0);
    near(ssm__migration_gap(4, 16), 0.5);
    assert_true(isnan(ssm__relative_error(1, 0)));
    assert_true(isnan(ssm__migration_gap(0, 0)));
}

/* Against the sum over t of the squared sum of the dropped modes: no Gram at all. */
static void dropped_errors_agree_with_the_time_series(void **state)
{
    (void)state;
    ssm_rng rng = ssm_rng_create(2, "gram");
    for (int trial = 0; trial < 50; trial++) {
        int64_t n = 1 + (int64_t)ssm_rng_below(&rng, 17);
        double m[9][18];
        float gram[18 * 19 / 2];
        double energy[17];
        int32_t order[17];
        double error[18];
        for (int t = 0; t < 9; t++) {
            for (int64_t i = 0; i <= n; i++) {
                m[t][i] = (double)ssm_rng_below(&rng, 41) - 20; /* integers: the Gram is exact */
            }
        }
        int64_t at = 0;
        for (int64_t i = 0; i <= n; i++) {
            for (int64_t j = i; j <= n; j++) {
                double sum = 0;
                for (int t = 0; t < 9; t++) {
                    sum += m[t][i] * m[t][j];
                }
                gram[at++] = (float)sum;
                if (i == j && i < n) {
                    energy[i] = sum;
                }
            }
        }
        ssm__rank_modes(energy, n, order);
        ssm__dropped_errors(gram, n, order, error);
        for (int64_t r = 0; r <= n; r++) {
            double want = 0;
            for (int t = 0; t < 9; t++) {
                double sum = 0;
                for (int64_t k = r; k < n; k++) {
                    sum += m[t][order[k]];
                }
                want += sum * sum;
            }
            assert_true(error[r] == want); /* integers below 2^53 */
        }
    }
}

static void diagonal_identity(void **state)
{
    (void)state;
    /* e = 9, 1, 4, 2; S = {0, 1} by calibration, S_w = {0, 2}: static drops 4 + 2, diag drops 1 +
     * 2; entering 4, leaving 1, and 6 − 3 = 4 − 1. */
    const double energy[] = {9, 1, 4, 2};
    uint64_t fixed = SET(0, 1);
    uint64_t own = SET(0, 2);
    near(ssm__entering_energy(energy, &own, &fixed, 1), 4);
    near(ssm__entering_energy(energy, &fixed, &own, 1), 1);
    near(ssm__identity_violation(6, 3, 4, 1), 0);
    near(ssm__identity_violation(6, 3, 4, 1.6), 0.1); /* |3 − 2.4| / 6 */
    near(ssm__identity_violation(6, 9, 0, 3), 0.5);   /* it is −3: negative */
    near(ssm__identity_violation(0, 0, 0, 0), 0);
}

static void churn_by_hand(void **state)
{
    (void)state;
    /* 3 windows of 2 channels, r = 2; windows 0 and 1 share a domain.
     * channel 0: {0,1} {0,1} {2,3};  channel 1: {0,1} {0,2} {0,2}.
     * (0,1): 0, 2/3.  (0,2): 1, 2/3.  (1,2): 1, 0. */
    const uint64_t sets[] = {SET(0, 1), SET(0, 1), SET(0, 1), SET(0, 2), SET(2, 3), SET(0, 2)};
    const int64_t domains[] = {7, 7, 3};
    int64_t a[3];
    int64_t b[3];
    double within;
    double cross;
    ssm__pairwise_churn(sets, domains, 3, 2, 1, 2, a, b, &within, &cross);
    near(within, 1.0 / 3.0); /* (0 + 2/3) / 2 */
    near(cross, (1 + 2.0 / 3 + 1) / 4.0);
    const int64_t one_domain[] = {7, 7, 7};
    ssm__pairwise_churn(sets, one_domain, 3, 2, 1, 2, a, b, &within, &cross);
    near(within, (2.0 / 3 + 1 + 2.0 / 3 + 1) / 6.0);
    assert_true(isnan(cross));
}

static void decorrelation_by_hand(void **state)
{
    (void)state;
    /* 3 blocks, 2 channels, N = 2, r = 1. Sets: channel 0: {0} {1} {1}; channel 1: {0} {0} {0}. */
    const uint64_t sets[] = {SET(0), SET(0), SET(1), SET(0), SET(1), SET(0)};
    int64_t counts[2 * 3] = {0};
    ssm__lag_common(sets, 3, 2, 1, 2, 2, counts);
    near(ssm__mean_distance(counts, 1), 0.25);    /* lag 1: 1, 0, 0, 0 */
    near(ssm__mean_distance(counts + 3, 1), 0.5); /* lag 2: 1, 0 */
    /* channel 0: (3,4) (4,3) (0,5); channel 1: (0,0) (1,0) (1,1): silent in block 0.
     * cosines: lag 1: 24/25 | 15/25, 1/√2;  lag 2: 20/25 |. */
    double energy[] = {3, 4, 0, 0, 4, 3, 1, 0, 0, 5, 1, 1};
    int64_t silent[3];
    double sums[2] = {0};
    int64_t pairs[2] = {0};
    ssm__normalise_blocks(energy, 3, 2, 2, silent);
    ssm__lag_cosines(energy, silent, 3, 2, 2, 2, sums, pairs);
    assert_true(pairs[0] == 3 && pairs[1] == 1 && silent[0] == 1 && silent[1] == 0);
    near(sums[0], 0.96 + 0.6 + sqrt(0.5));
    near(sums[1], 0.8);
}

static void participation_ratio(void **state)
{
    (void)state;
    near(ssm__participation_ratio((const double[]){3, 1, 0}, 3), 1.6); /* 16 / 10 */
    near(ssm__participation_ratio((const double[]){2, 2, 2, 2}, 4), 4);
    near(ssm__participation_ratio((const double[]){0, 1e-30}, 2), 1);
    assert_true(isnan(ssm__participation_ratio((const double[]){0, 0}, 2)));
}

static void time_constants_and_their_order(void **state)
{
    (void)state;
    near(ssm__time_constant(-4.0, 0.05), 5.0);
    assert_true(isinf(ssm__time_constant(-4.0, 0.0)));
    const double tau[] = {5, INFINITY, 1, 5, 0.5};
    const int64_t want[] = {4, 2, 0, 3, 1};
    int64_t order[5];
    assert_int_equal(ssm__order_by_time(tau, 5, order, NULL), SSM_STATUS_OK);
    assert_memory_equal(order, want, sizeof want);
}

static void instability_by_decile(void **state)
{
    (void)state;
    near(ssm__instability(1, 4), 0.75);
    near(ssm__instability(2, 4), 1.0);
    near(ssm__instability(0, 4), 0.0);
    near(ssm__instability(4, 4), 0.0);
    assert_true(isnan(ssm__instability(1, 1)));
    float value[23];
    int64_t order[23];
    double deciles[SSM_DECILES];
    for (int i = 0; i < 23; i++) {
        order[i] = 22 - i;
        value[22 - i] = (float)i; /* value by rank is 0 … 22 */
    }
    ssm__decile_means(value, order, 23, deciles);
    near(deciles[0], 0.5);  /* ranks 0, 1 */
    near(deciles[3], 7.0);  /* ranks 6 … 8: ⌊6.9⌋ = 6, ⌊9.2⌋ = 9 */
    near(deciles[9], 21.0); /* ranks 20 … 22 */
    ssm__decile_means(value, order, 3, deciles);
    assert_true(isnan(deciles[0]) && deciles[9] == 2.0);
}

static void quantiles_interpolate(void **state)
{
    (void)state;
    const double sorted[] = {1, 2, 4, 8};
    near(ssm__quantile(sorted, 4, 0.0), 1);
    near(ssm__quantile(sorted, 4, 0.5), 3);
    near(ssm__quantile(sorted, 4, 0.9), 6.8); /* position 2.7: 4 + 0.7 · 4 */
    near(ssm__quantile(sorted, 4, 1.0), 8);
    near(ssm__quantile(sorted, 1, 0.3), 1);
    assert_true(isnan(ssm__quantile(sorted, 0, 0.5)));
    const double infinite[] = {1, INFINITY, INFINITY};
    assert_true(isinf(ssm__quantile(infinite, 3, 0.9)));
}

static void correlations(void **state)
{
    (void)state;
    const double x[] = {1, 2, 3, 4};
    const double y[] = {1, 3, 2, 4};
    const double tied[] = {5, 5, 9, 1};
    double ranks[8];
    near(ssm__pearson(x, y, 4), 0.8);         /* 4 / 5 */
    near(ssm__spearman(x, y, 4, ranks), 0.8); /* the values are their ranks */
    ssm__average_ranks(tied, 4, ranks);
    assert_true(ranks[0] == 2.5 && ranks[1] == 2.5 && ranks[2] == 4 && ranks[3] == 1);
    /* ranks 1 2 3 4 and 2.5 2.5 4 1: Σ = −1.5·0 − 0.5·0 + 0.5·1.5 − 1.5·1.5 = −1.5; / √(5 · 4.5) */
    near(ssm__spearman(x, tied, 4, ranks), -1.5 / sqrt(22.5));
    const double flat[] = {0.1, 0.1, 0.1, 0.1};
    assert_true(isnan(ssm__pearson(x, flat, 4)));
    assert_true(isnan(ssm__pearson(x, y, 1)));
    const double broken[] = {1, NAN, 3, 4};
    assert_true(isnan(ssm__pearson(x, broken, 4)) && isnan(ssm__spearman(x, broken, 4, ranks)));
}

static void geometry_by_hand(void **state)
{
    (void)state;
    /* min 0.5 at layer 3: threshold 0.75. Migrating 2, 3, 5; hull 2 … 5; tail 6, 7. */
    const double rho[] = {0.97, 0.9, 0.75, 0.5, 0.8, 0.6, 0.95, 1.01};
    const int64_t layers[] = {0, 1, 2, 3, 4, 5, 6, 7};
    int64_t migrating[8];
    double depths[8];
    double scratch[8];
    ssm_across_layers out = {.migrating_layers = migrating, .migrating_depths = depths};
    ssm__geometry(rho, layers, 8, 8, scratch, &out);
    near(out.min_rho, 0.5);
    assert_true(out.min_rho_layer == 3 && out.n_migrating == 3);
    assert_true(migrating[0] == 2 && migrating[1] == 3 && migrating[2] == 5);
    near(depths[2], 5.0 / 7.0);
    near(out.band_median, 0.6);
    near(out.hull_share, 0.75);
    assert_false(out.contiguous);
    assert_int_equal(out.static_tail, 2);
    const double none[] = {NAN, NAN};
    ssm__geometry(none, layers, 2, 2, scratch, &out);
    assert_true(isnan(out.min_rho) && out.min_rho_layer == -1 && out.n_migrating == 0);
    assert_true(isnan(out.band_median) && isnan(out.hull_share) && out.static_tail == -1);
    const double band[] = {NAN, 0.4, 0.5};
    const int64_t some[] = {0, 4, 9};
    ssm__geometry(band, some, 3, 10, scratch, &out);
    assert_true(out.contiguous && out.n_migrating == 2 && out.static_tail == 0);
    near(out.band_median, 0.45);
    near(depths[1], 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranking_puts_ties_in_rising_order),
        cmocka_unit_test(ranking_agrees_with_counting),
        cmocka_unit_test(jaccard_distance),
        cmocka_unit_test(dropped_errors_by_hand),
        cmocka_unit_test(dropped_errors_agree_with_the_time_series),
        cmocka_unit_test(diagonal_identity),
        cmocka_unit_test(churn_by_hand),
        cmocka_unit_test(decorrelation_by_hand),
        cmocka_unit_test(participation_ratio),
        cmocka_unit_test(time_constants_and_their_order),
        cmocka_unit_test(instability_by_decile),
        cmocka_unit_test(quantiles_interpolate),
        cmocka_unit_test(correlations),
        cmocka_unit_test(geometry_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
