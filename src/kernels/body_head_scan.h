/* kernels/body_head_scan.h: Mamba-2's recurrence for 16 channels of a head.
 *
 * As body_scan.h, with channels in the lanes and a few modes in registers while the tokens of a
 * sub-tile go by; but step and decay are the head's, so that the exponentials are taken once a
 * token and B and C are broadcast. Every operation on one (channel, mode, token) and the sum over
 * modes keep the order of body_scan.h, whatever the cut in tokens. */
#ifndef SSM_KERNELS_BODY_HEAD_SCAN_H
#define SSM_KERNELS_BODY_HEAD_SCAN_H

#include "kernels/kernels.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_math.h"
#include "kernels/unroll.h"

enum { HEAD_SUBTILE = 16, HEAD_MOST_MODES = 8 };

/* What all modes of a sub-tile share. */
typedef struct head_subtile {
    float decay[HEAD_SUBTILE];      /* 2^(Δ·A2) */
    float input[HEAD_SUBTILE * 16]; /* Δu */
    float gate[HEAD_SUBTILE * 16];  /* g */
    float even[HEAD_SUBTILE * 16], odd[HEAD_SUBTILE * 16];
} head_subtile;

/* Modes first … first+count−1 over `tokens` tokens. count, masked, recorded (moments), stored
 * (modes) and tail (all of one parity) are constants where this is inlined. */
SSM__INLINE void head_modes(const ssm__head_scan_args *a, head_subtile *s, int64_t t0,
                            int64_t tokens, int64_t first, const int count, const bool masked,
                            const bool recorded, const bool stored, const bool tail)
{
    const int64_t N = a->d_state;
    float *sum0 = tail && a->tail_odd ? s->odd : s->even;
    v16 state[HEAD_MOST_MODES], energy[HEAD_MOST_MODES], state_sum[HEAD_MOST_MODES];
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        const int64_t n = first + i;
        state[i] = v16_load(a->state + n * 16);
        if (recorded) {
            energy[i] = v16_load(a->moments + n * 16);
            state_sum[i] = v16_load(a->moments + (N + n) * 16);
        }
    }
    for (int64_t t = 0; t < tokens; t++) {
        const v16 decay = v16_set(s->decay[t]);
        const v16 input = v16_load(s->input + t * 16);
        const v16 gate = v16_load(s->gate + t * 16);
        const float *B = a->B + (t0 + t) * a->bc_stride + first;
        const float *C = a->C + (t0 + t) * a->bc_stride + first;
        v16 even = v16_load(sum0 + t * 16);
        v16 odd = tail ? even : v16_load(s->odd + t * 16);
        SSM__UNROLL
        for (int i = 0; i < count; i++) {
            state[i] = v16_fma(decay, state[i], v16_mul(input, v16_set(B[i])));
            const v16 read = v16_mul(gate, v16_set(C[i]));
            v16 mode = v16_mul(read, state[i]);
            if (masked) {
                mode = v16_mul(mode, v16_load(a->keep + (first + i) * 16));
            }
            if (tail || i % 2 == 0) { /* first is even */
                even = v16_add(even, mode);
            } else {
                odd = v16_add(odd, mode);
            }
            if (stored) {
                v16_store(a->modes + ((t0 + t) * (N + 1) + first + i) * 16, mode);
            }
            if (recorded) {
                energy[i] = v16_fma(mode, mode, energy[i]);
                state_sum[i] = v16_fma(state[i], state[i], state_sum[i]);
            }
        }
        v16_store(sum0 + t * 16, even);
        if (!tail) {
            v16_store(s->odd + t * 16, odd);
        }
    }
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        const int64_t n = first + i;
        v16_store(a->state + n * 16, state[i]);
        if (recorded) {
            v16_store(a->moments + n * 16, energy[i]);
            v16_store(a->moments + (N + n) * 16, state_sum[i]);
        }
    }
}

SSM__INLINE void head_all_modes(const ssm__head_scan_args *a, head_subtile *s, int64_t t0,
                                int64_t tokens, const bool masked, const bool recorded,
                                const bool stored)
{
    const int count = recorded ? SCAN_MODES : HEAD_MODES; /* the moments take registers */
    const int64_t turns = recorded ? a->d_state : a->d_state - a->tail;
    int64_t n = 0;
    for (; n + count <= turns; n += count) {
        head_modes(a, s, t0, tokens, n, count, masked, recorded, stored, false);
    }
    for (; count > 2 && n + 2 <= turns; n += 2) {
        head_modes(a, s, t0, tokens, n, 2, masked, recorded, stored, false);
    }
    if (n < turns) {
        head_modes(a, s, t0, tokens, n++, 1, masked, recorded, stored, false);
    }
    for (; !recorded && n + 2 <= a->d_state; n += 2) {
        head_modes(a, s, t0, tokens, n, 2, masked, recorded, stored, true);
    }
    if (!recorded && n < a->d_state) {
        head_modes(a, s, t0, tokens, n, 1, masked, recorded, stored, true);
    }
}

SSM__INLINE void head_inputs(const ssm__head_scan_args *a, head_subtile *s, int64_t t0,
                             int64_t tokens, const bool recorded)
{
    const v16 steps = v16_load_n(a->delta + t0, tokens);
    v16_store(s->decay, v16_exp2_decay(v16_mul(steps, v16_set(a->A2))));
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t at = (t0 + t) * 16;
        v16_store(s->input + t * 16, v16_mul(v16_set(a->delta[t0 + t]), v16_load(a->u + at)));
        v16_store(s->gate + t * 16, a->z ? v16_silu(v16_load(a->z + at)) : v16_set(1.0f));
        v16_store(s->even + t * 16, v16_set(0.0f));
        v16_store(s->odd + t * 16, v16_set(0.0f));
    }
    if (recorded) {
        v16 w = v16_load(a->adjoint);
        for (int64_t t = 0; t < tokens; t++) {
            const v16 decay = v16_set(s->decay[t]);
            float lanes[16];
            w = v16_fma(v16_mul(decay, decay), w, v16_set(1.0f));
            v16_store(lanes, w);
            a->weights[t0 + t] = lanes[0];
            const v16 gate = v16_load(s->gate + t * 16);
            float *gates = a->gates + (t0 + t) * 16;
            v16_store(gates, v16_fma(gate, gate, v16_load(gates)));
        }
        v16_store(a->adjoint, w);
    }
}

/* y = (Σ_even m + Σ_odd m) + f, f = g·(D·u); the sum Σy² of the instrument. */
SSM__INLINE void head_output(const ssm__head_scan_args *a, const head_subtile *s, int64_t t0,
                             int64_t tokens, const bool recorded, const bool stored)
{
    const int64_t N = a->d_state;
    const v16 D = v16_load(a->D);
    float *sums = recorded ? a->moments + 2 * N * 16 : NULL;
    for (int64_t t = 0; t < tokens; t++) {
        const v16 u = v16_load(a->u + (t0 + t) * 16);
        const v16 f = v16_mul(v16_load(s->gate + t * 16), v16_mul(D, u));
        const v16 modes = v16_add(v16_load(s->even + t * 16), v16_load(s->odd + t * 16));
        const v16 y = v16_add(modes, f);
        v16_store(a->y + (t0 + t) * 16, y);
        if (stored) {
            v16_store(a->modes + ((t0 + t) * (N + 1) + N) * 16, f);
        }
        if (recorded) {
            v16_store(sums, v16_fma(y, y, v16_load(sums)));
        }
    }
}

SSM__INLINE void head_tokens(const ssm__head_scan_args *a, const bool masked, const bool recorded,
                             const bool stored)
{
    head_subtile s;
    for (int64_t t0 = 0; t0 < a->tokens; t0 += HEAD_SUBTILE) {
        const int64_t tokens = a->tokens - t0 < HEAD_SUBTILE ? a->tokens - t0 : HEAD_SUBTILE;
        head_inputs(a, &s, t0, tokens, recorded);
        head_all_modes(a, &s, t0, tokens, masked, recorded, stored);
        head_output(a, &s, t0, tokens, recorded, stored);
    }
}

static void kernel_head_scan(const ssm__head_scan_args *a)
{
    if (a->modes) {
        if (a->keep) {
            head_tokens(a, true, true, true);
        } else {
            head_tokens(a, false, true, true);
        }
    } else if (a->moments) {
        if (a->keep) {
            head_tokens(a, true, true, false);
        } else {
            head_tokens(a, false, true, false);
        }
    } else if (a->keep) {
        head_tokens(a, true, false, false);
    } else {
        head_tokens(a, false, false, false);
    }
}

static void kernel_head_reads(const float *C, ptrdiff_t c_stride, const float *gates,
                              const float *weights, int64_t tokens, int64_t d_state, float *reads,
                              float *adjoint)
{
    float total[64], weighted[64];
    for (int64_t t = 0; t < tokens; t++) {
        total[t] = v16_sum(v16_load(gates + t * 16));
        weighted[t] = weights[t] * total[t];
    }
    for (int64_t n = 0; n < d_state; n += 16) {
        const int64_t count = d_state - n < 16 ? d_state - n : 16;
        v16 read = v16_load(reads + n);
        v16 sum = v16_load(adjoint + n);
        for (int64_t t = 0; t < tokens; t++) {
            const v16 c = v16_load_n(C + t * c_stride + n, count);
            const v16 square = v16_mul(c, c);
            read = v16_fma(v16_set(total[t]), square, read);
            sum = v16_fma(v16_set(weighted[t]), square, sum);
        }
        v16_store(reads + n, read);
        v16_store(adjoint + n, sum);
    }
}

#endif
