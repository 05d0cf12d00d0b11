/* test_numbers.h: comparing arrays against a tolerance that is relative to the expected maximum. */
#ifndef TEST_NUMBERS_H
#define TEST_NUMBERS_H

#include <stdint.h>

/* max |got − want| / max |want|; NaN in either gives infinity. 0 for count 0. */
double test_relative(const double *got, const double *want, int64_t count);
double test_relative_f32(const float *got, const double *want, int64_t count);
/* Fails the test, with the measured value, unless test_relative ≤ tolerance. */
void test_assert_near(const char *what, const double *got, const double *want, int64_t count,
                      double tolerance);
void test_assert_near_f32(const char *what, const float *got, const double *want, int64_t count,
                          double tolerance);
/* Fails unless the two arrays hold the same bits; names the first element that differs. */
void test_assert_same_bits(const char *what, const float *got, const float *want, int64_t count);
/* count zeroed elements, for free(); fails the test when out of memory. */
double *test_doubles(int64_t count);
float *test_floats(int64_t count);

#endif
