/* Correlations across layers [paper]: Pearson of ρ_diag and ρ, Spearman (on average ranks) of each
 * churn with 1 − ρ. */
#include "metrics/measures.h"

#include <math.h>

#include "base/quantile.h"

void ssm__average_ranks(const double *values, int64_t n, double *ranks)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t below = 0;
        int64_t equal = 0;
        for (int64_t k = 0; k < n; k++) {
            below += values[k] < values[i] ? 1 : 0;
            equal += values[k] == values[i] ? 1 : 0;
        }
        ranks[i] = (double)below + 0.5 * (double)(equal + 1);
    }
}

static bool is_constant(const double *values, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        if (values[i] != values[0]) {
            return false;
        }
    }
    return true;
}

double ssm__pearson(const double *x, const double *y, int64_t n)
{
    if (n < 2 || is_constant(x, n) || is_constant(y, n)) {
        return (double)NAN;
    }
    double mean_x = ssm__mean(x, n);
    double mean_y = ssm__mean(y, n);
    double xx = 0.0;
    double yy = 0.0;
    double xy = 0.0;
    for (int64_t i = 0; i < n; i++) {
        xx += (x[i] - mean_x) * (x[i] - mean_x);
        yy += (y[i] - mean_y) * (y[i] - mean_y);
        xy += (x[i] - mean_x) * (y[i] - mean_y);
    }
    return xy / (sqrt(xx) * sqrt(yy));
}

double ssm__spearman(const double *x, const double *y, int64_t n, double *ranks)
{
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i]) || isnan(y[i])) {
            return (double)NAN;
        }
    }
    ssm__average_ranks(x, n, ranks);
    ssm__average_ranks(y, n, ranks + n);
    return ssm__pearson(ranks, ranks + n, n);
}
