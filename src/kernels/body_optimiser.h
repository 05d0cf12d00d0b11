/* kernels/body_optimiser.h: a step of AdamW, and the squared norm that clipping needs. */
#ifndef SSM_KERNELS_BODY_OPTIMISER_H
#define SSM_KERNELS_BODY_OPTIMISER_H

#include "kernels/training.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_lanes.h"
#include "kernels/body_math.h"

static void kernel_adamw(const ssm__adamw_args *a, float *w, const float *grad, float *m, float *v,
                         int64_t count)
{
    for (int64_t i = 0; i < count; i += 16) {
        const int64_t left = count - i;
        const v16 g = v16_mul(v16_take(grad + i, left), v16_set(a->grad_scale));
        const v16 first = v16_fma(v16_set(a->beta1), v16_take(m + i, left),
                                  v16_mul(v16_set(a->one_minus_beta1), g));
        const v16 second = v16_fma(v16_set(a->beta2), v16_take(v + i, left),
                                   v16_mul(v16_set(a->one_minus_beta2), v16_mul(g, g)));
        const v16 below = v16_fma(v16_sqrt(second), v16_set(a->root), v16_set(a->eps));
        const v16 kept = v16_mul(v16_take(w + i, left), v16_set(a->keep));
        v16_put(w + i, v16_fnma(v16_set(a->step), v16_div(first, below), kept), left);
        v16_put(m + i, first, left);
        v16_put(v + i, second, left);
    }
}

static double kernel_squared_norm(const float *x, int64_t count)
{
    double sum[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        for (int j = 0; j < 16; j++) {
            sum[j] += (double)x[i + j] * (double)x[i + j]; /* the product is exact */
        }
    }
    for (int j = 0; i + j < count; j++) {
        sum[j] += (double)x[i + j] * (double)x[i + j];
    }
    return f64_tree(sum);
}

#endif
