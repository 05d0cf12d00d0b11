/* Time constant [paper]: τ_{h,i} = 1 / (|A_{h,i}| Δ̄_h) tokens, Δ̄ = mean of Δ over the corpus.
 * [ours] The corpus is every recorded window, calibration and evaluation, weighted by its tokens.
 */
#include "metrics/measures.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"

double ssm__time_constant(double A, double delta_mean)
{
    return 1.0 / (fabs(A) * delta_mean);
}

typedef struct timed_mode {
    double tau;
    int64_t index;
} timed_mode;

static int by_time(const void *left, const void *right)
{
    const timed_mode *a = left;
    const timed_mode *b = right;
    if (a->tau != b->tau) {
        return a->tau < b->tau ? -1 : 1;
    }
    return (a->index > b->index) - (a->index < b->index);
}

ssm_status ssm__order_by_time(const double *tau, int64_t n, int64_t *order, ssm_error *err)
{
    timed_mode *modes = malloc((size_t)(n > 0 ? n : 1) * sizeof *modes);
    if (modes == NULL) {
        return ssm__fail_memory(err, "time constants", (size_t)n * sizeof *modes);
    }
    for (int64_t i = 0; i < n; i++) {
        modes[i] = (timed_mode){tau[i], i};
    }
    qsort(modes, (size_t)n, sizeof *modes, by_time);
    for (int64_t i = 0; i < n; i++) {
        order[i] = modes[i].index;
    }
    free(modes);
    return SSM_STATUS_OK;
}
