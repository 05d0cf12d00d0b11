/* kernels/body_attention.h: one block of keys of causal attention.
 *
 * The softmax runs block by block (Milakov & Gimelshein, 2018): the sums so far are scaled when a
 * larger score comes. Everything a query gets depends on the keys that it sees, in the order of
 * their blocks, and not on the queries beside it. */
#ifndef SSM_KERNELS_BODY_ATTENTION_H
#define SSM_KERNELS_BODY_ATTENTION_H

#include "kernels/kernels.h"
#include "kernels/unroll.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_math.h"

/* Vectors of a row of values whose sums stay in registers: as many as the Gram's block has. */
enum { ATTEND_COLS = 2 * GRAM_COLS };

static inline float attend_exp(float x)
{
    float lanes[16];
    v16_store(lanes, v16_exp(v16_set(x)));
    return lanes[0];
}

/* scores[0 … n) become exp(score − maximum), the rest of the row 0; *maximum grows to the largest
 * score; returns the factor for what was summed under the old maximum. */
static inline float attend_softmax(float *scores, int64_t n, float *maximum, double *total)
{
    float top = *maximum;
    for (int64_t j = 0; j < n; j++) {
        top = scores[j] > top ? scores[j] : top;
    }
    const float factor = attend_exp(*maximum - top);
    double sum[16] = {0};
    for (int64_t j = n; j < SSM__TILE; j++) {
        scores[j] = -__builtin_inff(); /* exp gives 0 */
    }
    for (int64_t j = 0; j < SSM__TILE; j += 16) {
        const v16 p = v16_exp(v16_sub(v16_load(scores + j), v16_set(top)));
        v16_store(scores + j, p);
        v16_add_to_f64(sum, p);
    }
    *total = *total * (double)factor + f64_tree(sum);
    *maximum = top;
    return factor;
}

/* out = out·factor + Σ_j p_j values[j] over `cols` vectors, the last with `lanes` lanes. */
SSM__INLINE void attend_columns(const float *p, const float *values, ptrdiff_t stride, int64_t n,
                                float factor, float *out, const int cols, int64_t lanes)
{
    v16 sum[8];
    SSM__UNROLL
    for (int c = 0; c < cols; c++) {
        sum[c] = v16_set(0.0f);
    }
    for (int64_t j = 0; j < n; j++) {
        const v16 weight = v16_set(p[j]);
        const float *row = values + j * stride;
        SSM__UNROLL
        for (int c = 0; c < cols; c++) {
            const v16 value = lanes < 16 ? v16_load_n(row + c * 16, lanes) : v16_load(row + c * 16);
            sum[c] = v16_fma(weight, value, sum[c]);
        }
    }
    SSM__UNROLL
    for (int c = 0; c < cols; c++) {
        const v16 before = v16_load_n(out + c * 16, lanes);
        v16_store_n(out + c * 16, v16_fma(before, v16_set(factor), sum[c]), lanes);
    }
}

static void kernel_attend(const ssm__attend_args *a)
{
    for (int64_t t = 0; t < a->queries; t++) {
        const int64_t n = a->seen + t < a->keys ? a->seen + t : a->keys;
        float *scores = a->scores + t * SSM__TILE;
        float *out = a->out + t * a->out_stride;
        const float factor = attend_softmax(scores, n, a->maximum + t, a->total + t);
        int64_t k = 0;
        for (; k + 16 * ATTEND_COLS <= a->width; k += 16 * ATTEND_COLS) {
            attend_columns(scores, a->values + k, a->width, n, factor, out + k, ATTEND_COLS, 16);
        }
        for (; k + 16 <= a->width; k += 16) {
            attend_columns(scores, a->values + k, a->width, n, factor, out + k, 1, 16);
        }
        if (k < a->width) {
            attend_columns(scores, a->values + k, a->width, n, factor, out + k, 1, a->width - k);
        }
    }
}

#endif
