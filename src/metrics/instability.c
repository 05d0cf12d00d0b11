/* Instability of a mode's membership [ours; the paper plots instability against τ without a
 * formula]: with p = the share of the evaluation windows whose top-r set holds the mode, 4p(1−p): 0
 * when it is always or never kept, 1 when it is kept in half of the windows. Reported as the mean
 * over each tenth of the modes ordered by time constant (decile 0: fastest), per layer and over all
 * layers' modes together. Tenth k of n modes: ranks ⌊kn/10⌋ … ⌊(k+1)n/10⌋ − 1. */
#include "metrics/measures.h"

#include <math.h>

double ssm__instability(int64_t members, int64_t windows)
{
    if (windows < 2) {
        return (double)NAN;
    }
    double p = (double)members / (double)windows;
    return 4.0 * p * (1.0 - p);
}

void ssm__decile_means(const float *value, const int64_t *order, int64_t n, double out[SSM_DECILES])
{
    for (int64_t k = 0; k < SSM_DECILES; k++) {
        int64_t begin = k * n / SSM_DECILES;
        int64_t end = (k + 1) * n / SSM_DECILES;
        double sum = 0.0;
        for (int64_t i = begin; i < end; i++) {
            sum += (double)value[order[i]];
        }
        out[k] = end > begin ? sum / (double)(end - begin) : (double)NAN;
    }
}
