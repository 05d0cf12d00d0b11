/* kernels/body_ssd.h: Mamba-2 over a chunk of at most 64 tokens of one head by matrix products
 * (Dao & Gu 2024, the dual form), channels in the lanes.
 *
 * With a_t = Δ_t·A2 and seg(t, s) = a_{s+1} + … + a_t, built by adding and never as a difference of
 * long sums nor as a quotient of decays (docs/mamba2.md):
 *   y_t = 2^seg(t, −1) · Σ_n C_{t,n} S_n + Σ_{s≤t} M_{t,s} u_s + D u_t,  times SiLU(z_t)
 *   M_{t,s} = (C_t·B_s) · 2^seg(t, s) · Δ_s
 *   S_n ← 2^seg(L−1, −1) · S_n + Σ_s B_{s,n} · (2^seg(L−1, s) · Δ_s · u_s)
 * Every sum is one chain of FMA in rising n or s, so the bits depend on the cut of the text only.
 * A tile of several rows (tokens or modes) and several groups of channels stays in registers: row
 * factors are broadcast, nothing is summed across lanes. */
#ifndef SSM_KERNELS_BODY_SSD_H
#define SSM_KERNELS_BODY_SSD_H

#include "kernels/kernels.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_math.h"
#include "kernels/body_ssd_tile.h"
#include "kernels/unroll.h"

enum { SSD_STEP = SSM__TILE_ROWS * SSM__LANES };

/* What all groups of a head share, and the scaled inputs of the groups under way. */
typedef struct ssd_chunk {
    float mix[SSM__TILE * SSM__TILE];                     /* M, lower triangle */
    float carry[SSM__TILE];                               /* 2^seg(t, −1) */
    float weight[SSM__TILE];                              /* 2^seg(L−1, s)·Δ_s */
    float scaled[SSD_MOST_COLS * SSM__TILE * SSM__LANES]; /* weight_s·u_s */
} ssd_chunk;

/* As ssd_products for the triangle on the diagonal: step k takes part in rows r ≥ k only. */
SSM__INLINE void ssd_triangle(v16 sum[SSD_MOST_ROWS][SSD_MOST_COLS], const float *mix,
                              const float *u, const int rows, const int cols)
{
    SSM__UNROLL
    for (int k = 0; k < rows; k++) {
        SSM__UNROLL
        for (int r = k; r < rows; r++) {
            const v16 left = v16_set(mix[r * SSM__TILE + k]);
            SSM__UNROLL
            for (int c = 0; c < cols; c++) {
                sum[r][c] = v16_fma(left, v16_load(u + c * SSD_STEP + k * 16), sum[r][c]);
            }
        }
    }
}

/* y of tokens t … t+rows−1, groups g … g+cols−1. */
SSM__INLINE void ssd_output(const ssm__ssd_args *a, const ssd_chunk *chunk, int64_t t, int64_t g,
                            const int rows, const int cols)
{
    const ssd_factors read = {a->C + t * a->bc_stride, a->bc_stride, 1};
    const ssd_factors mix = {chunk->mix + t * SSM__TILE, SSM__TILE, 1};
    const ptrdiff_t state_group = (ptrdiff_t)a->d_state * 16;
    const float *u = a->u + g * SSD_STEP;
    v16 sum[SSD_MOST_ROWS][SSD_MOST_COLS];
    ssd_zero(sum, rows, cols);
    ssd_products(sum, read, a->state + g * state_group, state_group, a->d_state, rows, cols);
    ssd_scale(sum, chunk->carry + t, rows, cols);
    ssd_products(sum, mix, u, SSD_STEP, t, rows, cols);
    ssd_triangle(sum, mix.data + t, u + t * 16, rows, cols);
    SSM__UNROLL
    for (int c = 0; c < cols; c++) {
        const v16 D = v16_load(a->D + (g + c) * 16);
        SSM__UNROLL
        for (int r = 0; r < rows; r++) {
            const ptrdiff_t at = (g + c) * SSD_STEP + (t + r) * 16;
            v16_store(a->y + at, v16_fma(D, v16_load(a->u + at), sum[r][c]));
        }
    }
}

/* The gate on y, and the weighted inputs of the state, of one group. */
static void ssd_inputs(const ssm__ssd_args *a, const ssd_chunk *chunk, int64_t g, float *scaled)
{
    for (int64_t t = 0; t < a->tokens; t++) {
        const ptrdiff_t at = g * SSD_STEP + t * 16;
        v16_store(scaled + t * 16, v16_mul(v16_set(chunk->weight[t]), v16_load(a->u + at)));
        if (a->z) {
            v16_store(a->y + at, v16_mul(v16_silu(v16_load(a->z + at)), v16_load(a->y + at)));
        }
    }
}

/* Everything for groups g … g+cols−1: outputs from the state before the chunk, then the state. */
SSM__INLINE void ssd_groups(const ssm__ssd_args *a, ssd_chunk *chunk, int64_t g, const int cols)
{
    int64_t t = 0;
    for (; t + SSD_ROWS <= a->tokens; t += SSD_ROWS) {
        ssd_output(a, chunk, t, g, SSD_ROWS, cols);
    }
    for (; SSD_ROWS > 2 && t + 2 <= a->tokens; t += 2) {
        ssd_output(a, chunk, t, g, 2, cols);
    }
    if (t < a->tokens) {
        ssd_output(a, chunk, t, g, 1, cols);
    }
    for (int c = 0; c < cols; c++) {
        ssd_inputs(a, chunk, g + c, chunk->scaled + c * SSM__TILE * 16);
    }
    float *state = a->state + g * a->d_state * 16;
    const ssd_carried carried = {.tokens = a->tokens,
                                 .d_state = a->d_state,
                                 .rows = a->B,
                                 .stride = a->bc_stride,
                                 .v = chunk->scaled,
                                 .carry = chunk->carry[a->tokens - 1],
                                 .from = state,
                                 .to = state};
    ssd_carry_states(&carried, cols);
}

/* Decays and M, row after row; seg holds seg(t, s) of the row under way. */
static void ssd_decays(const ssm__ssd_args *a, ssd_chunk *chunk)
{
    float seg[SSM__TILE] = {0};
    ssd_carry(a->delta, a->A2, a->tokens, chunk->carry);
    for (int64_t t = 0; t < a->tokens; t++) {
        const float step = a->delta[t] * a->A2;
        for (int64_t s = 0; s <= t; s += 16) {
            v16_store(seg + s, v16_add(v16_load(seg + s), v16_set(step)));
        }
        seg[t] = 0.0f;
        for (int64_t s = 0; s <= t; s += 16) { /* beyond t: not used */
            const v16 decay = v16_exp2_decay(v16_load(seg + s));
            const v16 steps = v16_load_n(a->delta + s, a->tokens - s);
            const v16 product = v16_load(a->products + t * SSM__TILE + s);
            v16_store(chunk->mix + t * SSM__TILE + s, v16_mul(v16_mul(product, decay), steps));
        }
    }
    for (int64_t s = 0; s < a->tokens; s += 16) {
        const v16 steps = v16_load_n(a->delta + s, a->tokens - s);
        v16_store(chunk->weight + s, v16_mul(v16_exp2_decay(v16_load(seg + s)), steps));
    }
}

static void kernel_ssd(const ssm__ssd_args *a)
{
    ssd_chunk chunk;
    ssd_decays(a, &chunk);
    int64_t g = 0;
    for (; g + SSD_COLS <= a->groups; g += SSD_COLS) {
        ssd_groups(a, &chunk, g, SSD_COLS);
    }
    for (; SSD_COLS > 1 && g < a->groups; g++) {
        ssd_groups(a, &chunk, g, 1);
    }
}

#endif
