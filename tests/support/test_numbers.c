/* test_numbers.c: comparing arrays against a tolerance that is relative to the expected maximum. */
#include "test_numbers.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

double test_relative(const double *got, const double *want, int64_t count)
{
    double difference = 0.0, scale = 0.0;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(got[i]) || isnan(want[i])) {
            return INFINITY;
        }
        difference = fmax(difference, fabs(got[i] - want[i]));
        scale = fmax(scale, fabs(want[i]));
    }
    return difference > 0.0 ? difference / scale : 0.0;
}

double test_relative_f32(const float *got, const double *want, int64_t count)
{
    double *wide = test_doubles(count);
    for (int64_t i = 0; i < count; i++) {
        wide[i] = (double)got[i];
    }
    const double relative = test_relative(wide, want, count);
    free(wide);
    return relative;
}

static void assert_at_most(const char *what, double measured, double tolerance)
{
    if (!(measured <= tolerance)) {
        fail_msg("%s: relative difference %.3g, at most %.3g was expected", what, measured,
                 tolerance);
    }
}

void test_assert_near(const char *what, const double *got, const double *want, int64_t count,
                      double tolerance)
{
    assert_at_most(what, test_relative(got, want, count), tolerance);
}

void test_assert_near_f32(const char *what, const float *got, const double *want, int64_t count,
                          double tolerance)
{
    assert_at_most(what, test_relative_f32(got, want, count), tolerance);
}

void test_assert_same_bits(const char *what, const float *got, const float *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (memcmp(&got[i], &want[i], sizeof *got) != 0) {
            fail_msg("%s: element %" PRId64 " is %.9g, %.9g was expected", what, i, (double)got[i],
                     (double)want[i]);
        }
    }
}

double *test_doubles(int64_t count)
{
    double *out = calloc(count > 0 ? (size_t)count : 1, sizeof *out);
    assert_non_null(out);
    return out;
}

float *test_floats(int64_t count)
{
    float *out = calloc(count > 0 ? (size_t)count : 1, sizeof *out);
    assert_non_null(out);
    return out;
}
