/* kernels/training_ssd.h: the kernels that training Mamba-2's block adds to kernels/training.h, by
 * whose rules they go.
 *
 * A head is `groups` = ⌈P/16⌉ groups of 16 channels, [tokens][16] each, a number of floats apart; a
 * chunk is at most 64 of its tokens. docs/kernels/training.md has the formulas. */
#ifndef SSM_KERNELS_TRAINING_SSD_H
#define SSM_KERNELS_TRAINING_SSD_H

#include "kernels/kernels.h"

/* What the gradients of a chunk of a head need from the forward pass, v being the output before
 * the gate. */
typedef struct ssm__ssd_chunk {
    int64_t tokens;     /* L, 1 … 64 */
    int64_t d_state;    /* N, a multiple of 16 */
    int64_t groups;     /* ≥ 1 */
    const float *delta; /* [tokens] Δ ≥ 0 */
    float A2;           /* A·log2(e) ≤ 0; the decay of a token is 2^(Δ·A2) */
    const float *B, *C; /* [tokens] rows of N at stride bc_stride */
    ptrdiff_t bc_stride;
    const float *dv; /* [groups][tokens][16] at stride dv_stride: the gradient of v */
    ptrdiff_t dv_stride;
} ssm__ssd_chunk;

/* The rest of a chunk, backwards. Outputs are written unless said "added to"; none overlaps an
 * input. Mamba-2's without rates: linear attention, where Δ = 1 and A2 = 0. */
typedef struct ssm__ssd_backward_args {
    ssm__ssd_chunk chunk;
    const float *u; /* [groups][tokens][16] at stride u_stride */
    ptrdiff_t u_stride;
    const float *products; /* [tokens][64] C_t·B_s for s ≤ t; the rest is not looked at */
    const float *D;        /* [groups][16] */
    const float *state;    /* [groups][N][16] before the chunk */
    const float *dstate;   /* [groups][N][16] gradient of the state behind it */

    float *du; /* [groups][tokens][16] at stride du_stride */
    ptrdiff_t du_stride;
    float *ddelta;    /* [tokens] gradient of Δ, its part through the decay included */
    float *rates;     /* [tokens] gradient of Δ·A; NULL: the decay is no parameter */
    float *dproducts; /* [tokens][64] of C_t·B_s for s ≤ t, added to; 0 may be added behind */
    float *dB, *dC;   /* [tokens] rows of N at stride dbc_stride, added to: what does not go
                       * through products */
    ptrdiff_t dbc_stride;
    float *scratch; /* ssm__ssd_backward_scratch(N, groups) floats */
} ssm__ssd_backward_args;

/* Mamba-2's gated norm over some groups of 16 channels that make up one group of the norm, for at
 * most 64 tokens: h = v·SiLU(z), y = w·h·r, r = rsqrt(mean(h²) + eps); with norm_first
 * r = rsqrt(mean(v²) + eps), y = w·v·r·SiLU(z); without weight y = h. Strides are those of a group.
 * Forward: v, z → y. Backward: v, z, dy → dv, dz, y and dw, a token's part of the weight's gradient
 * (not written without weight). y, dv may be dy. */
typedef struct ssm__gated_norm_args {
    int64_t tokens, groups;
    int64_t width; /* channels; the other lanes are 0 */
    float eps;
    bool norm_first;
    const float *weight; /* [groups][16], 0 in the other lanes; NULL: no norm */
    const float *v, *z;  /* [groups][tokens][16] */
    ptrdiff_t v_stride, z_stride;
    float *y;
    ptrdiff_t y_stride;
    const float *dy;
    ptrdiff_t dy_stride;
    float *dv, *dz, *dw;
    ptrdiff_t dv_stride, dz_stride, dw_stride;
} ssm__gated_norm_args;

enum { SSM__GATE_PIECE = 16 }; /* most tokens of a piece of gated linear attention */

/* Gated linear attention as linear attention (body_gate.h): at most 64 tokens of a gate. Rows of N
 * modes, a multiple of 16, dense but for p. */
typedef struct ssm__gate_args {
    int64_t tokens, d_state;
    float rate;     /* −log2(e)/divisor: log2 α = rate·softplus(−p) */
    const float *p; /* [tokens] rows at p_stride */
    ptrdiff_t p_stride;
    const float *B, *C;
    float *scaled_B, *scaled_C;
    float *factors;  /* of B; C's are 1/factor */
    float *totals;   /* row f: the factor of the state before the piece that begins at token f */
    int32_t *counts; /* [tokens] entry f: tokens of that piece */
} ssm__gate_args;

/* A piece backwards: the gradients of scaled B and C become those of B and C. What a token reads of
 * what it has just written passes no gate: it comes apart, as `own`, and is in neither. */
typedef struct ssm__gate_backward_args {
    int64_t tokens, d_state;
    float share; /* 1/divisor */
    const float *p;
    ptrdiff_t p_stride;
    const float *scaled_B, *scaled_C, *factors;
    const float *passing; /* [N] Σ over the gate's channels of scaled state × its gradient */
    const float *own;     /* [tokens] gradient of C_t·B_t */
    float *dB, *dC;       /* [tokens][N] in place */
    float *dp;            /* rows at p_stride */
} ssm__gate_backward_args;

typedef struct ssm__ssd_kernels {
    /* The gradient of the state before a chunk from that of the state behind it, both
     * [groups][N][16], which may be one: before = decay of the chunk · after + Σ_t C_t (decay up to
     * t · dv_t). */
    void (*state_backward)(const ssm__ssd_chunk *chunk, const float *after, float *before);
    void (*backward)(const ssm__ssd_backward_args *args);
    void (*gated_norm)(const ssm__gated_norm_args *args);
    void (*gated_norm_backward)(const ssm__gated_norm_args *args);
    /* sums[16] += Σ_t a_t·b_t by FMA in rising t; a, b [tokens][16]. */
    void (*lane_products)(const float *a, const float *b, int64_t tokens, float *sums);
    /* ddt = ddelta·softplus'(dt + bias); all [tokens][16], bias [16]. ddt may be ddelta. */
    void (*softplus_backward)(const float *dt, const float *bias, const float *ddelta, float *ddt,
                              int64_t tokens);
    void (*gate)(const ssm__gate_args *args);
    void (*gate_backward)(const ssm__gate_backward_args *args);
    /* States [groups][N][16], N a multiple of 16. out = state·factors[n]; out may be state. */
    void (*scale_state)(const float *state, const float *factors, int64_t d_state, int64_t groups,
                        float *out);
    /* sums[n] += Σ over channels of a·b: a chain a lane in rising group, then the tree. */
    void (*state_products)(const float *a, const float *b, int64_t d_state, int64_t groups,
                           float *sums);
    /* [16 rows][columns] → [columns][16]: out[c·16 + r] = in[r·stride + c] for c < columns and
     * r < rows ≤ 16, 0 in the other lanes. */
    void (*to_lanes)(const float *in, ptrdiff_t stride, int64_t rows, int64_t columns, float *out);
} ssm__ssd_kernels;

/* Floats of scratch of backward. */
int64_t ssm__ssd_backward_scratch(int64_t d_state, int64_t groups);

#endif
