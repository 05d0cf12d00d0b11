/* kernels/body_attention_backward.h: backwards through the softmax of one block of keys. */
#ifndef SSM_KERNELS_BODY_ATTENTION_BACKWARD_H
#define SSM_KERNELS_BODY_ATTENTION_BACKWARD_H

#include "kernels/training.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_lanes.h"
#include "kernels/body_math.h"

static void kernel_attend_backward(const ssm__attend_backward_args *a)
{
    for (int64_t t = 0; t < a->queries; t++) {
        const int64_t n = a->seen + t < a->keys ? a->seen + t : a->keys;
        const v16 top = v16_set(a->maximum[t]), share = v16_set(a->inverse[t]);
        const v16 mean = v16_set(a->mean[t]);
        float *scores = a->scores + t * SSM__TILE, *d = a->d + t * SSM__TILE;
        for (int64_t j = n; j < SSM__TILE; j++) {
            scores[j] = -__builtin_inff(); /* exp gives 0 */
            d[j] = 0.0f;
        }
        for (int64_t j = 0; j < SSM__TILE; j += 16) {
            const v16 p = v16_mul(v16_exp(v16_sub(v16_load(scores + j), top)), share);
            v16_store(scores + j, p);
            v16_store(d + j, v16_mul(p, v16_sub(v16_load(d + j), mean)));
        }
    }
}

static void kernel_row_products(const float *a, ptrdiff_t a_stride, const float *b,
                                ptrdiff_t b_stride, int64_t rows, int64_t width, float *out)
{
    for (int64_t row = 0; row < rows; row++) {
        v16 sum = v16_set(0.0f);
        for (int64_t k = 0; k < width; k += 16) {
            const v16 left = v16_take(a + row * a_stride + k, width - k);
            sum = v16_fma(left, v16_take(b + row * b_stride + k, width - k), sum);
        }
        out[row] = v16_sum(sum);
    }
}

#endif
