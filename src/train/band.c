#include "train/band.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/quantile.h"

ssm__band ssm__band_range(const double *values, int64_t n)
{
    ssm__band band = {
        .n = n, .mean = ssm__mean(values, n), .low = (double)NAN, .high = (double)NAN};
    for (int64_t i = 0; i < n; i++) {
        band.low = i == 0 ? values[i] : fmin(band.low, values[i]);
        band.high = i == 0 ? values[i] : fmax(band.high, values[i]);
    }
    return band;
}

ssm_status ssm__band_bootstrap(const double *values, int64_t n, double level, int64_t resamples,
                               ssm__band *out, ssm_error *err)
{
    *out = ssm__band_range(values, n);
    if (n < 2) {
        return SSM_STATUS_OK;
    }
    double *means = calloc((size_t)resamples, sizeof *means);
    if (means == NULL) {
        return ssm__fail_memory(err, "a bootstrap", (size_t)resamples * sizeof *means);
    }
    ssm_rng rng = ssm_rng_create(0, "experiment.bootstrap");
    for (int64_t r = 0; r < resamples; r++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += values[ssm_rng_below(&rng, (uint64_t)n)];
        }
        means[r] = sum / (double)n;
    }
    ssm__sort(means, resamples);
    out->low = ssm__quantile(means, resamples, (1 - level) / 2);
    out->high = ssm__quantile(means, resamples, (1 + level) / 2);
    free(means);
    return SSM_STATUS_OK;
}
