/* kernels/body_scan_backward.h: backwards through gate, selective scan and softplus of 16 channels.
 *
 * Channels are in the lanes. The sequence is worked on in pieces of 16 tokens from the last to the
 * first. Of a piece the states and decays are computed again from the state before it, then the
 * adjoint h of the state goes through it backwards:
 *   h_t = C_t·ds_t + a_{t+1}·h_{t+1};  dC_t = Σ_lanes ds_t·x_t;  dB_t = Σ_lanes Δ_t u_t·h_t;
 *   q_t = Σ_n B_n h_n;  k_n = a_t h_t·x_{t−1};  du = D·ds + Δ·q;  dΔ = u·q + Σ_n A_n k_n.
 * States before the pieces come from the caller or from one pass over the sequence. A sum over
 * modes is a chain in rising n, a sum over tokens a chain in falling t. */
#ifndef SSM_KERNELS_BODY_SCAN_BACKWARD_H
#define SSM_KERNELS_BODY_SCAN_BACKWARD_H

#include <string.h>

#include "kernels/training.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_math.h"
#include "kernels/unroll.h"

enum { BACK_MODES = 8 }; /* the lane sums of their dB and dC are one transpose */

static const float scan_ln2 = 0.69314718f;

/* What all modes of a piece share, [token][16]. */
typedef struct scan_piece {
    float delta[SSM__SCAN_PIECE * 16];  /* Δ */
    float input[SSM__SCAN_PIECE * 16];  /* Δu */
    float read[SSM__SCAN_PIECE * 16];   /* s, then its gradient */
    float pulled[SSM__SCAN_PIECE * 16]; /* q */
    float rates[SSM__SCAN_PIECE * 16];  /* Σ_n A2_n k_n */
    float slope[SSM__SCAN_PIECE * 16];  /* softplus' */
} scan_piece;

/* The parts of the scratch. */
typedef struct scan_memory {
    const float *starts; /* [pieces][N][16] */
    float *states;       /* [16][N][16] after each token of the piece */
    float *decays;       /* [16][N][16] */
    float *carry;        /* [N][16] a·h of the token after */
    float *dA;           /* [N][16] Σ_t Δ_t k_t */
} scan_memory;

/* Δ as softplus_bias computes it, and softplus' = σ = (x < 0 ? t : 1)/(1 + t), t = e^−|x|. */
static inline v16 scan_delta(const ssm__scan_backward_args *a, int64_t t, v16 *slope)
{
    const v16 zero = v16_set(0.0f), one = v16_set(1.0f);
    const v16 x = v16_add(v16_load(a->dt + t * 16), v16_load(a->dt_bias));
    const v16 e = v16_exp(v16_sub(zero, v16_abs(x)));
    *slope = v16_div(v16_where_less(x, zero, e, one), v16_add(one, e));
    return v16_add(v16_max(zero, x), v16_log1p_unit(e));
}

/* Δ, its slope, Δu and s so far for the tokens of a piece. */
static void scan_piece_begin(const ssm__scan_backward_args *a, scan_piece *p, int64_t t0,
                             int64_t tokens)
{
    for (int64_t t = 0; t < tokens; t++) {
        v16 slope;
        const v16 u = v16_load(a->u + (t0 + t) * 16);
        const v16 delta = scan_delta(a, t0 + t, &slope);
        v16_store(p->delta + t * 16, delta);
        v16_store(p->slope + t * 16, slope);
        v16_store(p->input + t * 16, v16_mul(delta, u));
        v16_store(p->read + t * 16, v16_mul(v16_load(a->D), u));
    }
}

/* States, decays and s of `count` modes from `first` on, as scan computes them. */
SSM__INLINE void scan_piece_states(const ssm__scan_backward_args *a, scan_piece *p,
                                   const scan_memory *memory, const float *start, int64_t t0,
                                   int64_t tokens, int64_t first, const int count)
{
    const int64_t N = a->d_state;
    v16 state[BACK_MODES], rate[BACK_MODES];
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        state[i] = v16_load(start + (first + i) * 16);
        rate[i] = v16_load(a->A2 + (first + i) * 16);
    }
    for (int64_t t = 0; t < tokens; t++) {
        const v16 delta = v16_load(p->delta + t * 16), input = v16_load(p->input + t * 16);
        const float *B = a->B + (t0 + t) * a->bc_stride + first;
        const float *C = a->C + (t0 + t) * a->bc_stride + first;
        v16 read = v16_load(p->read + t * 16);
        SSM__UNROLL
        for (int i = 0; i < count; i++) {
            const v16 decay = v16_exp2_decay(v16_mul(delta, rate[i]));
            state[i] = v16_fma(decay, state[i], v16_mul(input, v16_set(B[i])));
            read = v16_fma(v16_set(C[i]), state[i], read);
            v16_store(memory->decays + (t * N + first + i) * 16, decay);
            v16_store(memory->states + (t * N + first + i) * 16, state[i]);
        }
        v16_store(p->read + t * 16, read);
    }
}

/* Through the gate: y and dz, and ds in place of s. */
static void scan_piece_gate(const ssm__scan_backward_args *a, scan_piece *p, int64_t t0,
                            int64_t tokens)
{
    v16 dD = v16_load(a->dD);
    for (int64_t t = tokens - 1; t >= 0; t--) {
        const int64_t at = (t0 + t) * 16;
        const v16 z = v16_load(a->z + at), dy = v16_load(a->dy + at);
        const v16 read = v16_load(p->read + t * 16);
        const v16 sigmoid = v16_sigmoid(z);
        const v16 gate = v16_mul(z, sigmoid);
        const v16 dread = v16_mul(dy, gate);
        if (a->y) {
            v16_store(a->y + at, v16_mul(gate, read));
        }
        v16_store(a->dz + at, v16_mul(v16_mul(dy, read), v16_silu_slope(z, sigmoid)));
        v16_store(p->read + t * 16, dread);
        v16_store(p->pulled + t * 16, v16_set(0.0f));
        v16_store(p->rates + t * 16, v16_set(0.0f));
        dD = v16_fma(dread, v16_load(a->u + at), dD);
    }
    v16_store(a->dD, dD);
}

/* The adjoint of `count` modes from `first` on, backwards through a piece. */
SSM__INLINE void scan_piece_adjoint(const ssm__scan_backward_args *a, scan_piece *p,
                                    const scan_memory *memory, const float *start, int64_t t0,
                                    int64_t tokens, int64_t first, const int count)
{
    const int64_t N = a->d_state;
    v16 carry[BACK_MODES], dA[BACK_MODES];
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        carry[i] = v16_load(memory->carry + (first + i) * 16);
        dA[i] = v16_load(memory->dA + (first + i) * 16);
    }
    for (int64_t t = tokens - 1; t >= 0; t--) {
        const v16 dread = v16_load(p->read + t * 16);
        const v16 delta = v16_load(p->delta + t * 16), input = v16_load(p->input + t * 16);
        const float *B = a->B + (t0 + t) * a->bc_stride + first;
        const float *C = a->C + (t0 + t) * a->bc_stride + first;
        const float *decays = memory->decays + (t * N + first) * 16;
        const float *states = memory->states + (t * N + first) * 16;
        const float *before = t == 0 ? start + first * 16 : states - N * 16;
        v16 pulled = v16_load(p->pulled + t * 16), rates = v16_load(p->rates + t * 16);
        v16 products[2 * BACK_MODES];
        SSM__UNROLL
        for (int i = 0; i < BACK_MODES; i++) {
            if (i >= count) {
                products[i] = products[BACK_MODES + i] = v16_set(0.0f);
                continue;
            }
            const v16 adjoint = v16_fma(v16_set(C[i]), dread, carry[i]);
            products[i] = v16_mul(input, adjoint);
            products[BACK_MODES + i] = v16_mul(dread, v16_load(states + i * 16));
            pulled = v16_fma(v16_set(B[i]), adjoint, pulled);
            carry[i] = v16_mul(v16_load(decays + i * 16), adjoint);
            const v16 k = v16_mul(carry[i], v16_load(before + i * 16));
            rates = v16_fma(v16_load(a->A2 + (first + i) * 16), k, rates);
            dA[i] = v16_fma(delta, k, dA[i]);
        }
        v16_store(p->pulled + t * 16, pulled);
        v16_store(p->rates + t * 16, rates);
        float sums[16];
        v16_store(sums, v16_sums(products));
        memcpy(a->dB + (t0 + t) * a->dbc_stride + first, sums, (size_t)count * sizeof(float));
        memcpy(a->dC + (t0 + t) * a->dbc_stride + first, sums + BACK_MODES,
               (size_t)count * sizeof(float));
    }
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        v16_store(memory->carry + (first + i) * 16, carry[i]);
        v16_store(memory->dA + (first + i) * 16, dA[i]);
    }
}

/* du and, through softplus, the gradients of dt and of its bias. */
static void scan_piece_end(const ssm__scan_backward_args *a, const scan_piece *p, int64_t t0,
                           int64_t tokens)
{
    v16 ddt_bias = v16_load(a->ddt_bias);
    for (int64_t t = tokens - 1; t >= 0; t--) {
        const int64_t at = (t0 + t) * 16;
        const v16 pulled = v16_load(p->pulled + t * 16);
        const v16 through = v16_mul(v16_load(a->D), v16_load(p->read + t * 16));
        const v16 rates = v16_mul(v16_load(p->rates + t * 16), v16_set(scan_ln2));
        const v16 ddelta = v16_fma(v16_load(a->u + at), pulled, rates);
        const v16 ddt = v16_mul(ddelta, v16_load(p->slope + t * 16));
        v16_store(a->du + at, v16_fma(v16_load(p->delta + t * 16), pulled, through));
        v16_store(a->ddt + at, ddt);
        ddt_bias = v16_add(ddt_bias, ddt);
    }
    v16_store(a->ddt_bias, ddt_bias);
}

static void scan_piece_backward(const ssm__scan_backward_args *a, const scan_memory *memory,
                                const float *start, int64_t t0, int64_t tokens)
{
    const int64_t N = a->d_state;
    scan_piece p;
    scan_piece_begin(a, &p, t0, tokens);
    int64_t n = 0;
    for (; n + BACK_MODES <= N; n += BACK_MODES) {
        scan_piece_states(a, &p, memory, start, t0, tokens, n, BACK_MODES);
    }
    for (; n < N; n++) {
        scan_piece_states(a, &p, memory, start, t0, tokens, n, 1);
    }
    scan_piece_gate(a, &p, t0, tokens);
    for (n = 0; n + BACK_MODES <= N; n += BACK_MODES) {
        scan_piece_adjoint(a, &p, memory, start, t0, tokens, n, BACK_MODES);
    }
    for (; n < N; n++) {
        scan_piece_adjoint(a, &p, memory, start, t0, tokens, n, 1);
    }
    scan_piece_end(a, &p, t0, tokens);
}

/* `count` modes of one piece from `first` on, from the state before it to that after it. */
SSM__INLINE void scan_piece_skip(const ssm__scan_backward_args *a, const scan_piece *p, int64_t t0,
                                 const float *before, float *after, int64_t first, const int count)
{
    v16 state[SCAN_MODES], rate[SCAN_MODES];
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        state[i] = v16_load(before + (first + i) * 16);
        rate[i] = v16_load(a->A2 + (first + i) * 16);
    }
    for (int64_t t = 0; t < SSM__SCAN_PIECE; t++) {
        const v16 delta = v16_load(p->delta + t * 16), input = v16_load(p->input + t * 16);
        const float *B = a->B + (t0 + t) * a->bc_stride + first;
        SSM__UNROLL
        for (int i = 0; i < count; i++) {
            const v16 decay = v16_exp2_decay(v16_mul(delta, rate[i]));
            state[i] = v16_fma(decay, state[i], v16_mul(input, v16_set(B[i])));
        }
    }
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        v16_store(after + (first + i) * 16, state[i]);
    }
}

/* The states before all pieces; that before the first is zero. */
static void scan_starts(const ssm__scan_backward_args *a, float *starts)
{
    const int64_t N = a->d_state;
    scan_piece p;
    for (int64_t n = 0; n < N; n++) {
        v16_store(starts + n * 16, v16_set(0.0f));
    }
    for (int64_t t0 = 0; t0 + SSM__SCAN_PIECE < a->tokens; t0 += SSM__SCAN_PIECE) {
        for (int64_t t = 0; t < SSM__SCAN_PIECE; t++) {
            v16 slope;
            const v16 delta = scan_delta(a, t0 + t, &slope);
            v16_store(p.delta + t * 16, delta);
            v16_store(p.input + t * 16, v16_mul(delta, v16_load(a->u + (t0 + t) * 16)));
        }
        int64_t n = 0;
        for (; n + SCAN_MODES <= N; n += SCAN_MODES) {
            scan_piece_skip(a, &p, t0, starts, starts + N * 16, n, SCAN_MODES);
        }
        for (; n < N; n++) {
            scan_piece_skip(a, &p, t0, starts, starts + N * 16, n, 1);
        }
        starts += N * 16;
    }
}

static void kernel_scan_backward(const ssm__scan_backward_args *a)
{
    const int64_t N = a->d_state;
    const int64_t pieces = (a->tokens + SSM__SCAN_PIECE - 1) / SSM__SCAN_PIECE;
    float *const work = a->scratch + pieces * N * 16;
    const scan_memory memory = {.starts = a->starts ? a->starts : a->scratch,
                                .states = work,
                                .decays = work + SSM__SCAN_PIECE * N * 16,
                                .carry = work + 2 * SSM__SCAN_PIECE * N * 16,
                                .dA = work + (2 * SSM__SCAN_PIECE + 1) * N * 16};
    if (!a->starts && pieces > 0) {
        scan_starts(a, a->scratch);
    }
    for (int64_t n = 0; n < N; n++) {
        v16_store(memory.carry + n * 16, v16_set(0.0f));
        v16_store(memory.dA + n * 16, v16_set(0.0f));
    }
    for (int64_t piece = pieces - 1; piece >= 0; piece--) {
        const int64_t t0 = piece * SSM__SCAN_PIECE;
        const int64_t tokens = a->tokens - t0 < SSM__SCAN_PIECE ? a->tokens - t0 : SSM__SCAN_PIECE;
        scan_piece_backward(a, &memory, memory.starts + piece * N * 16, t0, tokens);
    }
    for (int64_t n = 0; n < N; n++) {
        const v16 A = v16_mul(v16_load(a->A2 + n * 16), v16_set(scan_ln2));
        const v16 old = v16_load(a->dA_log + n * 16);
        v16_store(a->dA_log + n * 16, v16_fma(v16_load(memory.dA + n * 16), A, old));
    }
}

#endif
