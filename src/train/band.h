/* train/band.h: the mean of a few runs, and a band around it. */
#ifndef SSM_TRAIN_BAND_H
#define SSM_TRAIN_BAND_H

#include <ssmscope/base.h>

typedef struct ssm__band {
    int64_t n;
    double mean, low, high; /* NaN for n = 0 */
} ssm__band;

/* Smallest and largest value. */
ssm__band ssm__band_range(const double *values, int64_t n);
/* Percentile interval of the mean under resampling with replacement (Efron, 1979): the (1 −
 * level)/2 and (1 + level)/2 quantiles of `resamples` means. The same numbers are drawn for the
 * same n, so that two tables agree. With one value all three are that value. Errors: MEMORY. */
ssm_status ssm__band_bootstrap(const double *values, int64_t n, double level, int64_t resamples,
                               ssm__band *out, ssm_error *err);

#endif
