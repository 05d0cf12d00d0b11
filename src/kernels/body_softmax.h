/* kernels/body_softmax.h: the sum of exponentials of a row, for logsumexp and cross-entropy. */
#ifndef SSM_KERNELS_BODY_SOFTMAX_H
#define SSM_KERNELS_BODY_SOFTMAX_H

#include <stddef.h>
#include <stdint.h>

#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_math.h"

/* Greatest of a row, count ≥ 1. A NaN need not show: the sum of exponentials will. */
static float row_maximum(const float *x, int64_t count)
{
    v16 top = v16_set(-__builtin_inff());
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        top = v16_max(v16_load(x + i), top);
    }
    float lanes[16];
    v16_store(lanes, top);
    float maximum = lanes[0];
    for (int j = 1; j < 16; j++) {
        maximum = lanes[j] > maximum ? lanes[j] : maximum;
    }
    for (; i < count; i++) {
        maximum = x[i] > maximum ? x[i] : maximum;
    }
    return maximum;
}

/* Σ exp(x − maximum) in float64; the terms go to keep, which may be x, or NULL: nowhere. */
static double row_exponentials(const float *x, int64_t count, float maximum, float *keep)
{
    double sum[16] = {0};
    const v16 shift = v16_set(maximum);
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const v16 e = v16_exp(v16_sub(v16_load(x + i), shift));
        v16_add_to_f64(sum, e);
        if (keep) {
            v16_store(keep + i, e);
        }
    }
    if (i < count) { /* padding lanes are −inf: exp gives 0 */
        float rest[16];
        for (int64_t j = 0; j < 16; j++) {
            rest[j] = i + j < count ? x[i + j] : -__builtin_inff();
        }
        const v16 e = v16_exp(v16_sub(v16_load(rest), shift));
        v16_add_to_f64(sum, e);
        if (keep) {
            v16_store_n(keep + i, e, count - i);
        }
    }
    return f64_tree(sum);
}

#endif
