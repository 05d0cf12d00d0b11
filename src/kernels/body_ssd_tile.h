/* kernels/body_ssd_tile.h: what Mamba-2's chunked form is made of, forwards and backwards: a tile
 * of rows × vectors of columns in registers, row factors broadcast, no sum across lanes. */
#ifndef SSM_KERNELS_BODY_SSD_TILE_H
#define SSM_KERNELS_BODY_SSD_TILE_H

#include <stddef.h>

#include "kernels/kernels.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_math.h"
#include "kernels/unroll.h"

enum { SSD_MOST_ROWS = 8, SSD_MOST_COLS = 2 };

/* Row factors: that of row r in step k is at data[r·row + k·step]. */
typedef struct ssd_factors {
    const float *data;
    ptrdiff_t row, step;
} ssd_factors;

/* sum[r][c] += factor(r, k)·v[c·v_group + k·16] for k < count. rows, cols are constants. */
SSM__INLINE void ssd_products(v16 sum[SSD_MOST_ROWS][SSD_MOST_COLS], ssd_factors f, const float *v,
                              ptrdiff_t v_group, int64_t count, const int rows, const int cols)
{
    for (int64_t k = 0; k < count; k++) {
        v16 right[SSD_MOST_COLS];
        SSM__UNROLL
        for (int c = 0; c < cols; c++) {
            right[c] = v16_load(v + c * v_group + k * 16);
        }
        SSM__UNROLL
        for (int r = 0; r < rows; r++) {
            const v16 left = v16_set(f.data[r * f.row + k * f.step]);
            SSM__UNROLL
            for (int c = 0; c < cols; c++) {
                sum[r][c] = v16_fma(left, right[c], sum[r][c]);
            }
        }
    }
}

SSM__INLINE void ssd_zero(v16 sum[SSD_MOST_ROWS][SSD_MOST_COLS], const int rows, const int cols)
{
    SSM__UNROLL
    for (int r = 0; r < rows; r++) {
        SSM__UNROLL
        for (int c = 0; c < cols; c++) {
            sum[r][c] = v16_set(0.0f);
        }
    }
}

/* sum[r][c] times factors[r]. */
SSM__INLINE void ssd_scale(v16 sum[SSD_MOST_ROWS][SSD_MOST_COLS], const float *factors,
                           const int rows, const int cols)
{
    SSM__UNROLL
    for (int r = 0; r < rows; r++) {
        const v16 factor = v16_set(factors[r]);
        SSM__UNROLL
        for (int c = 0; c < cols; c++) {
            sum[r][c] = v16_mul(factor, sum[r][c]);
        }
    }
}

/* carry[t] = 2^(Δ_0 A2 + … + Δ_t A2), t < tokens ≤ 64. */
static inline void ssd_carry(const float *delta, float A2, int64_t tokens, float *carry)
{
    float sum = 0.0f;
    for (int64_t t = 0; t < tokens; t++) {
        sum += delta[t] * A2;
        carry[t] = sum;
    }
    for (int64_t t = 0; t < tokens; t += 16) {
        v16_store(carry + t, v16_exp2_decay(v16_load_n(carry + t, tokens - t)));
    }
}

/* States, or their gradients, of some groups over a chunk: to = carry·from + Σ_t row_t(n)·v_t. */
typedef struct ssd_carried {
    int64_t tokens, d_state;
    const float *rows; /* [tokens] rows of N at `stride` */
    ptrdiff_t stride;
    const float *v; /* [cols][64][16] */
    float carry;
    const float *from; /* [cols][N][16] */
    float *to;         /* may be from */
} ssd_carried;

SSM__INLINE void ssd_carry_modes(const ssd_carried *p, int64_t n, const int rows, const int cols)
{
    const ssd_factors f = {p->rows + n, 1, p->stride};
    const v16 carry = v16_set(p->carry);
    const float *from = p->from + n * 16;
    float *to = p->to + n * 16;
    v16 sum[SSD_MOST_ROWS][SSD_MOST_COLS];
    SSM__UNROLL
    for (int r = 0; r < rows; r++) {
        SSM__UNROLL
        for (int c = 0; c < cols; c++) {
            sum[r][c] = v16_mul(carry, v16_load(from + (c * p->d_state + r) * 16));
        }
    }
    ssd_products(sum, f, p->v, SSM__TILE * 16, p->tokens, rows, cols);
    SSM__UNROLL
    for (int r = 0; r < rows; r++) {
        SSM__UNROLL
        for (int c = 0; c < cols; c++) {
            v16_store(to + (c * p->d_state + r) * 16, sum[r][c]);
        }
    }
}

SSM__INLINE void ssd_carry_states(const ssd_carried *p, const int cols)
{
    int64_t n = 0;
    for (; n + SSD_ROWS <= p->d_state; n += SSD_ROWS) {
        ssd_carry_modes(p, n, SSD_ROWS, cols);
    }
    for (; n < p->d_state; n++) {
        ssd_carry_modes(p, n, 1, cols);
    }
}

#endif
