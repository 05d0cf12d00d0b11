/* base/quantile.c: the mean of numbers, sorting them, and their quantiles. */
#include "base/quantile.h"

#include <math.h>
#include <stdlib.h>

double ssm__mean(const double *values, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += values[i];
    }
    return sum / (double)n;
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

void ssm__sort(double *values, int64_t n)
{
    if (n > 0) {
        qsort(values, (size_t)n, sizeof *values, by_value);
    }
}

double ssm__quantile(const double *sorted, int64_t n, double q)
{
    if (n < 1) {
        return (double)NAN;
    }
    double position = (double)(n - 1) * q;
    int64_t below = (int64_t)position;
    double part = position - (double)below;
    if (part == 0.0 || below + 1 >= n || sorted[below] == sorted[below + 1]) {
        return sorted[below]; /* no ∞ − ∞ */
    }
    return sorted[below] + part * (sorted[below + 1] - sorted[below]);
}
