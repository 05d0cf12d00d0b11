/* Bands over seeds, against numbers worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/band.h"

/* Sums of so few numbers are exact to a few units in the last place. */
static const double tight = 1e-15;

static void assert_near(double is, double wanted, double allowed)
{
    if (!(fabs(is - wanted) <= allowed)) {
        fail_msg("%.17g is not %.17g", is, wanted);
    }
}

static void test_range(void **state)
{
    (void)state;
    const double values[] = {0.5, 0.25, 1.0, 0.75};
    const ssm__band band = ssm__band_range(values, 4);
    assert_int_equal(band.n, 4);
    assert_near(band.mean, 0.625, tight);
    assert_near(band.low, 0.25, 0);
    assert_near(band.high, 1.0, 0);
    const ssm__band none = ssm__band_range(values, 0);
    assert_int_equal(none.n, 0);
    assert_true(isnan(none.mean) && isnan(none.low) && isnan(none.high));
}

static void test_one_value(void **state)
{
    (void)state;
    const double values[] = {0.5};
    ssm__band band;
    assert_int_equal(ssm__band_bootstrap(values, 1, 0.95, 100, &band, NULL), SSM_STATUS_OK);
    assert_near(band.low, 0.5, 0);
    assert_near(band.high, 0.5, 0);
}

/* Two values 0 and 1: the mean of a resample is 0, ½, 1 with the chances ¼, ½, ¼, so the quantiles
 * below ¼ are 0, those between ¼ and ¾ are ½, those above are 1. 10000 resamples: a share differs
 * from its chance by 0.05 with a chance below 1e-20, and the numbers are always the same ones. */
static void test_two_values(void **state)
{
    (void)state;
    const double values[] = {0, 1};
    ssm__band band;
    assert_int_equal(ssm__band_bootstrap(values, 2, 0.95, 10000, &band, NULL), SSM_STATUS_OK);
    assert_near(band.mean, 0.5, tight);
    assert_near(band.low, 0, 0);
    assert_near(band.high, 1, 0);
    assert_int_equal(ssm__band_bootstrap(values, 2, 0.40, 10000, &band, NULL), SSM_STATUS_OK);
    assert_near(band.low, 0.5, tight); /* quantiles 0.3 and 0.7 */
    assert_near(band.high, 0.5, tight);
    assert_int_equal(ssm__band_bootstrap(values, 2, 0.60, 10000, &band, NULL), SSM_STATUS_OK);
    assert_near(band.low, 0, 0); /* 0.2 and 0.8 */
    assert_near(band.high, 1, 0);
}

/* Of three values −1, 0, 4 the resampled mean is −1 (chance 1/27) … 4 (1/27); the 2.5 % quantile is
 * inside the first, the 5 % one is behind it at (−1 −1 + 0)/3, which has 3 of 27. */
static void test_three_values(void **state)
{
    (void)state;
    const double values[] = {4, -1, 0};
    ssm__band band;
    assert_int_equal(ssm__band_bootstrap(values, 3, 0.95, 10000, &band, NULL), SSM_STATUS_OK);
    assert_near(band.mean, 1, tight);
    assert_near(band.low, -1, tight);
    assert_near(band.high, 4, tight);
    assert_int_equal(ssm__band_bootstrap(values, 3, 0.90, 10000, &band, NULL), SSM_STATUS_OK);
    assert_near(band.low, -2.0 / 3, tight);
    assert_near(band.high, 8.0 / 3, tight); /* (4 + 4 + 0)/3: 1/27 and 3/27 from above */
}

static void test_same_numbers(void **state)
{
    (void)state;
    const double values[] = {0.1, 0.7, 0.3, 0.9, 0.2}, others[] = {1.1, 1.7, 1.3, 1.9, 1.2};
    ssm__band one, two;
    assert_int_equal(ssm__band_bootstrap(values, 5, 0.95, 1000, &one, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__band_bootstrap(others, 5, 0.95, 1000, &two, NULL), SSM_STATUS_OK);
    assert_near(two.low - one.low, 1, 1e-14); /* sums of five numbers around 1 */
    assert_near(two.high - one.high, 1, 1e-14);
    assert_true(one.low < one.mean && one.mean < one.high);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_range),        cmocka_unit_test(test_one_value),
        cmocka_unit_test(test_two_values),   cmocka_unit_test(test_three_values),
        cmocka_unit_test(test_same_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
