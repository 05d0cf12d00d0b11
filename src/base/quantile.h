/* base/quantile.h: the mean of numbers, sorting them, and their quantiles. */
#ifndef SSM_BASE_QUANTILE_H
#define SSM_BASE_QUANTILE_H

#include <stdint.h>

/* Σ / n, summed in order; NaN for n = 0. */
double ssm__mean(const double *values, int64_t n);
/* Rising, in place; NaN is not among the values. */
void ssm__sort(double *values, int64_t n);
/* Linear interpolation between the order statistics around position (n − 1) q, numpy's default
 * (type 7 of Hyndman & Fan, 1996); NaN for n = 0. */
double ssm__quantile(const double *sorted, int64_t n, double q);

#endif
