/* Perplexity, its bootstrap intervals and paired differences. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssmscope/evaluate.h"

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-13 * fabs(want))) { /* exp of a sum of a few float64 */
        fail_msg("got %.17g, expected %.17g", got, want);
    }
}

static ssm_bootstrap_options options(int64_t resamples, uint64_t seed)
{
    return (ssm_bootstrap_options){resamples, seed};
}

static void perplexity_is_exp_of_nll_per_token(void **state)
{
    (void)state;
    const ssm_window_score scores[] = {{0, 20, 10}, {0, 40, 10}, {1, 30, 30}};
    const ssm_bootstrap_options few = options(100, 1);
    ssm_perplexity out;
    assert_int_equal(ssm_perplexity_of(scores, 3, 2, -1, &few, &out, NULL), SSM_STATUS_OK);
    near(out.perplexity, exp(90.0 / 50.0));
    assert_true(out.nll_sum == 90 && out.tokens == 50);
    assert_int_equal(ssm_perplexity_of(scores, 3, 2, 0, &few, &out, NULL), SSM_STATUS_OK);
    near(out.perplexity, exp(3));
    assert_true(out.nll_sum == 60 && out.tokens == 20);
    /* Two windows: the block of min(4, 2) windows always holds both. */
    near(out.interval_block.lo, exp(3));
    near(out.interval_block.hi, exp(3));
    /* Resamples are {20,20}, {20,40}, {40,40} with 1/4, 1/2, 1/4. */
    near(out.interval_window.lo, exp(2));
    near(out.interval_window.hi, exp(4));
    /* One window: nothing can vary. */
    assert_int_equal(ssm_perplexity_of(scores, 3, 2, 1, &few, &out, NULL), SSM_STATUS_OK);
    near(out.interval_window.lo, exp(1));
    near(out.interval_window.hi, exp(1));
}

/* n = 5, blocks of 4: a resample is 4 windows in a row and a fifth; windows 0 … 4 have nll 2^k, so
 * the sum tells which. All sums that can occur are those of a start and a single window. */
static void circular_blocks_wrap_and_are_cut(void **state)
{
    (void)state;
    ssm_window_score scores[5];
    for (int i = 0; i < 5; i++) {
        scores[i] = (ssm_window_score){0, ldexp(1, i), 1};
    }
    double low = INFINITY;
    double high = -INFINITY;
    for (int start = 0; start < 5; start++) {
        for (int last = 0; last < 5; last++) {
            double sum = ldexp(1, last);
            for (int k = 0; k < 4; k++) {
                sum += ldexp(1, (start + k) % 5);
            }
            low = fmin(low, sum);
            high = fmax(high, sum);
        }
    }
    assert_true(low == 16 && high == 46); /* 15 + 1 and 2+4+8+16 + 16 */
    ssm_bootstrap_options many = options(10000, 9);
    ssm_perplexity out;
    assert_int_equal(ssm_perplexity_of(scores, 5, 1, -1, &many, &out, NULL), SSM_STATUS_OK);
    /* Each of the 25 outcomes has 4 %, more than the 2.5 % of a tail. */
    near(out.interval_block.lo, exp(16.0 / 5));
    near(out.interval_block.hi, exp(46.0 / 5));
    /* Windows may be drawn five times over: wider on both sides. */
    assert_true(out.interval_window.lo < exp(16.0 / 5) && out.interval_window.hi > exp(46.0 / 5));
}

static void the_same_seed_gives_the_same_interval(void **state)
{
    (void)state;
    ssm_window_score scores[40];
    ssm_rng rng = ssm_rng_create(4, "scores");
    for (int i = 0; i < 40; i++) {
        scores[i] = (ssm_window_score){i % 2, 30 + ssm_rng_normal(&rng), 10};
    }
    ssm_bootstrap_options first = options(2000, 7);
    ssm_bootstrap_options second = options(2000, 8);
    ssm_perplexity a;
    ssm_perplexity b;
    ssm_perplexity c;
    assert_int_equal(ssm_perplexity_of(scores, 40, 2, -1, &first, &a, NULL), 0);
    assert_int_equal(ssm_perplexity_of(scores, 40, 2, -1, &first, &b, NULL), 0);
    assert_int_equal(ssm_perplexity_of(scores, 40, 2, -1, &second, &c, NULL), 0);
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(a.interval_window.lo != c.interval_window.lo && a.perplexity == c.perplexity);
}

static void domains_are_resampled_apart(void **state)
{
    (void)state;
    /* Within each domain all windows are alike, so no resample can differ; pooled, they would. */
    ssm_window_score scores[20];
    for (int i = 0; i < 20; i++) {
        scores[i] = (ssm_window_score){i / 10, i < 10 ? 10.0 : 50.0, 10};
    }
    ssm_bootstrap_options many = options(500, 3);
    ssm_perplexity out;
    assert_int_equal(ssm_perplexity_of(scores, 20, 2, -1, &many, &out, NULL), 0);
    near(out.interval_window.lo, exp(3));
    near(out.interval_window.hi, exp(3));
    near(out.interval_block.hi, exp(3));
}

static void differences_are_paired(void **state)
{
    (void)state;
    ssm_window_score base[30];
    ssm_window_score other[30];
    ssm_rng rng = ssm_rng_create(5, "scores");
    for (int i = 0; i < 30; i++) {
        base[i] = (ssm_window_score){0, 300 + 40 * ssm_rng_normal(&rng), 100};
        other[i] = base[i];
        other[i].nll += 100 * log(1.1); /* every window's perplexity × 1.1 */
    }
    ssm_bootstrap_options many = options(2000, 6);
    ssm_perplexity ppl;
    ssm_difference out;
    assert_int_equal(ssm_perplexity_of(base, 30, 1, -1, &many, &ppl, NULL), 0);
    assert_int_equal(ssm_difference_of(base, other, 30, 1, -1, &many, &out, NULL), 0);
    /* The same resamples: the difference of each is a tenth of its perplexity. */
    assert_true(fabs(out.perplexity - 0.1 * ppl.perplexity) < 1e-10);
    assert_true(fabs(out.interval_window.lo - 0.1 * ppl.interval_window.lo) < 1e-10);
    assert_true(fabs(out.interval_window.hi - 0.1 * ppl.interval_window.hi) < 1e-10);
    assert_true(fabs(out.interval_block.lo - 0.1 * ppl.interval_block.lo) < 1e-10);
    assert_int_equal(ssm_difference_of(base, base, 30, 1, -1, &many, &out, NULL), 0);
    assert_true(out.perplexity == 0 && out.interval_window.lo == 0 && out.interval_block.hi == 0);
}

/* How often a 95 % interval holds the true value, 400 samples of 60 windows.
 * Independent windows: percentile intervals of n = 60 cover about 94 %; 400 trials have a standard
 * deviation of 1.2 %, so 90 % and 98 % are more than three of them away.
 * Neighbours alike (AR(1), 0.6): the window bootstrap is too narrow (its width is off by about
 * √((1+0.6)/(1−0.6)) = 2, coverage near 67 %), blocks of 4 are in between. Seeds are fixed. */
static void coverage(double phi, double *window, double *block)
{
    int hits[2] = {0};
    for (int trial = 0; trial < 400; trial++) {
        char name[32];
        snprintf(name, sizeof name, "trial %d", trial);
        ssm_rng rng = ssm_rng_create(11, name);
        ssm_window_score scores[60];
        double x = ssm_rng_normal(&rng);
        for (int i = 0; i < 60; i++) {
            scores[i] = (ssm_window_score){0, 300 + 20 * x, 100};
            x = phi * x + sqrt(1 - phi * phi) * ssm_rng_normal(&rng);
        }
        ssm_bootstrap_options some = options(800, (uint64_t)trial);
        ssm_perplexity out;
        assert_int_equal(ssm_perplexity_of(scores, 60, 1, -1, &some, &out, NULL), 0);
        hits[0] += out.interval_window.lo <= exp(3) && exp(3) <= out.interval_window.hi;
        hits[1] += out.interval_block.lo <= exp(3) && exp(3) <= out.interval_block.hi;
    }
    *window = hits[0] / 400.0;
    *block = hits[1] / 400.0;
}

static void intervals_cover_as_they_should(void **state)
{
    (void)state;
    double window;
    double block;
    coverage(0.0, &window, &block);
    printf("coverage, independent windows: %.3f by windows, %.3f by blocks\n", window, block);
    assert_true(window > 0.90 && window < 0.98);
    assert_true(block > 0.86 && block < 0.98); /* 15 blocks: a little narrower */
    coverage(0.6, &window, &block);
    printf("coverage, alike neighbours: %.3f by windows, %.3f by blocks\n", window, block);
    assert_true(window < 0.76);
    assert_true(block > window + 0.08);
}

static void what_is_undefined_is_nan_or_refused(void **state)
{
    (void)state;
    const ssm_window_score scores[] = {{0, 20, 10}, {1, NAN, 10}, {1, 20, 10}, {2, 0, 0}};
    ssm_bootstrap_options some = options(200, 1);
    ssm_bootstrap_options none = options(0, 1);
    ssm_perplexity out;
    assert_int_equal(ssm_perplexity_of(scores, 4, 3, 1, &some, &out, NULL), 0);
    assert_true(isnan(out.perplexity) && isnan(out.interval_window.lo));
    assert_int_equal(ssm_perplexity_of(scores, 4, 3, 0, &none, &out, NULL), 0);
    near(out.perplexity, exp(2));
    assert_true(isnan(out.interval_window.lo) && isnan(out.interval_block.hi));
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_perplexity_of(scores, 4, 3, 2, &some, &out, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "no scored tokens"));
    assert_int_equal(ssm_perplexity_of(scores, 0, 3, -1, &some, &out, NULL), SSM_STATUS_USAGE);
    assert_int_equal(ssm_perplexity_of(scores, 4, 2, -1, &some, &out, NULL), SSM_STATUS_USAGE);
    assert_int_equal(ssm_perplexity_of(scores, 4, 3, 3, &some, &out, NULL), SSM_STATUS_USAGE);
    ssm_bootstrap_options negative = options(-1, 1);
    assert_int_equal(ssm_perplexity_of(scores, 4, 3, 0, &negative, &out, NULL), SSM_STATUS_USAGE);
    ssm_window_score other[] = {{0, 20, 10}, {1, 20, 10}, {1, 20, 11}, {2, 0, 0}};
    ssm_difference difference;
    ssm_error_clear(&err);
    assert_int_equal(ssm_difference_of(scores, other, 4, 3, -1, &some, &difference, &err),
                     SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "window 2"));
}

/* By hand: 100 tokens a window, two windows; perplexities 20, 17 and 14: half of the gain. With the
 * same nats in every window each resample is the same. */
static void captured_fractions_by_hand(void **state)
{
    (void)state;
    enum { N = 2 };
    const double nats[] = {log(20.0), log(17.0), log(14.0)};
    const ssm_bootstrap_options bootstrap = {.resamples = 200, .seed = 4};
    ssm_window_score models[3][N];
    ssm_capture capture;
    for (int m = 0; m < 3; m++) {
        for (int i = 0; i < N; i++) {
            models[m][i] = (ssm_window_score){0, 100.0 * nats[m], 100};
        }
    }
    assert_int_equal(
        ssm_capture_of(models[0], models[1], models[2], N, 1, -1, &bootstrap, &capture, NULL),
        SSM_STATUS_OK);
    assert_true(fabs(capture.fraction - 0.5) < 1e-12); /* rounding of exp and log */
    assert_true(fabs(capture.interval_window.lo - 0.5) < 1e-12);
    assert_true(fabs(capture.interval_block.hi - 0.5) < 1e-12);
    /* The best must be better. */
    assert_int_equal(
        ssm_capture_of(models[1], models[0], models[1], N, 1, -1, &bootstrap, &capture, NULL),
        SSM_STATUS_OK);
    assert_true(isnan(capture.fraction) && isnan(capture.interval_window.lo));
    /* In one window only: some resamples have no gain. */
    models[2][0].nll = 100.0 * log(25.0);
    models[2][1].nll = 100.0 * log(10.0);
    assert_int_equal(
        ssm_capture_of(models[0], models[1], models[2], N, 1, -1, &bootstrap, &capture, NULL),
        SSM_STATUS_OK);
    assert_true(fabs(capture.fraction - 3.0 / (20.0 - sqrt(250.0))) < 1e-12);
    assert_true(isnan(capture.interval_window.lo));
    models[1][1].tokens = 99;
    assert_int_equal(
        ssm_capture_of(models[0], models[1], models[2], N, 1, -1, &bootstrap, &capture, NULL),
        SSM_STATUS_USAGE);
}

/* 60 windows, one of which costs the best as much as it gains in 20 others: of 2000 resamples a few
 * draw it often and have no gain. They stand at both ends: the interval is that of the others, with
 * its bounds moved outwards, never in. */
static void resamples_without_a_gain_widen_the_interval(void **state)
{
    (void)state;
    enum { N = 60 };
    ssm_window_score models[3][N];
    ssm_capture rare;
    const ssm_bootstrap_options bootstrap = {.resamples = 2000, .seed = 9};
    for (int i = 0; i < N; i++) {
        models[0][i] = (ssm_window_score){0, 300.0, 100};
        models[1][i] = (ssm_window_score){0, 299.0 + (double)(i % 3), 100};
        models[2][i] = (ssm_window_score){0, 295.0, 100};
    }
    models[2][0].nll =
        370.0; /* −5 a window of 59, +70 of this: drawn four times (1.9 %) it has no gain */
    assert_int_equal(
        ssm_capture_of(models[0], models[1], models[2], N, 1, -1, &bootstrap, &rare, NULL),
        SSM_STATUS_OK);
    assert_true(isfinite(rare.interval_window.lo) && isfinite(rare.interval_window.hi));
    assert_true(rare.interval_window.lo < rare.fraction && rare.fraction < rare.interval_window.hi);
    models[2][0].nll = 490.0; /* twice are enough, 26 % of the resamples */
    assert_int_equal(
        ssm_capture_of(models[0], models[1], models[2], N, 1, -1, &bootstrap, &rare, NULL),
        SSM_STATUS_OK);
    assert_true(isfinite(rare.fraction) && isnan(rare.interval_window.lo) &&
                isnan(rare.interval_window.hi));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(perplexity_is_exp_of_nll_per_token),
        cmocka_unit_test(circular_blocks_wrap_and_are_cut),
        cmocka_unit_test(the_same_seed_gives_the_same_interval),
        cmocka_unit_test(domains_are_resampled_apart),
        cmocka_unit_test(differences_are_paired),
        cmocka_unit_test(intervals_cover_as_they_should),
        cmocka_unit_test(what_is_undefined_is_nan_or_refused),
        cmocka_unit_test(captured_fractions_by_hand),
        cmocka_unit_test(resamples_without_a_gain_widen_the_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
