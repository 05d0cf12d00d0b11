/* kernels/body_scan.h: the selective scan of 16 channels, with or without the instrument.
 *
 * Channels are in the lanes. A few modes at a time keep state and decay rate in registers while the
 * tokens of a sub-tile go by, so the recurrences of different modes hide each other's latency. The
 * partial sums of y over even and odd modes wait in L1. Order of every operation on one (channel,
 * mode, token) and of the sum over modes is the same in all forms, whatever the cut in tokens. */
#ifndef SSM_KERNELS_BODY_SCAN_H
#define SSM_KERNELS_BODY_SCAN_H

#include "kernels/kernels.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_math.h"
#include "kernels/unroll.h"

enum { SCAN_SUBTILE = 16 }; /* tokens whose inputs, outputs and modes stay in L1 */

/* What all modes of a sub-tile share. */
typedef struct scan_subtile {
    float input[SCAN_SUBTILE * 16]; /* Δu */
    float gate[SCAN_SUBTILE * 16];  /* SiLU(z) */
    float even[SCAN_SUBTILE * 16], odd[SCAN_SUBTILE * 16];
} scan_subtile;

/* Modes first … first+count−1 over `tokens` tokens. count, masked and recorded are constants where
 * this is inlined. */
SSM__INLINE void scan_modes(const ssm__scan_args *a, scan_subtile *s, int64_t t0, int64_t tokens,
                            int64_t first, const int count, const bool masked, const bool recorded)
{
    const int64_t N = a->d_state;
    v16 state[4], rate[4], w[4], state_sum[4], read_sum[4], adjoint_sum[4];
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        const int64_t n = first + i;
        state[i] = v16_load(a->state + n * 16);
        rate[i] = v16_load(a->A2 + n * 16);
        if (recorded) {
            w[i] = v16_load(a->adjoint + n * 16);
            state_sum[i] = v16_load(a->moments + n * 16);
            read_sum[i] = v16_load(a->moments + (N + n) * 16);
            adjoint_sum[i] = v16_load(a->moments + (2 * N + n) * 16);
        }
    }
    for (int64_t t = 0; t < tokens; t++) {
        const v16 delta = v16_load(a->delta + (t0 + t) * 16);
        const v16 input = v16_load(s->input + t * 16);
        const v16 gate = v16_load(s->gate + t * 16);
        const float *B = a->B + (t0 + t) * a->bc_stride + first;
        const float *C = a->C + (t0 + t) * a->bc_stride + first;
        v16 even = v16_load(s->even + t * 16);
        v16 odd = v16_load(s->odd + t * 16);
        SSM__UNROLL
        for (int i = 0; i < count; i++) {
            const v16 decay = v16_exp2_decay(v16_mul(delta, rate[i]));
            state[i] = v16_fma(decay, state[i], v16_mul(input, v16_set(B[i])));
            const v16 read = v16_mul(gate, v16_set(C[i]));
            v16 mode = v16_mul(read, state[i]);
            if (masked) {
                mode = v16_mul(mode, v16_load(a->keep + (first + i) * 16));
            }
            if (i % 2 == 0) { /* first is even */
                even = v16_add(even, mode);
            } else {
                odd = v16_add(odd, mode);
            }
            if (recorded) {
                v16_store(a->modes + ((t0 + t) * (N + 1) + first + i) * 16, mode);
                const v16 read2 = v16_mul(read, read);
                w[i] = v16_fma(v16_mul(decay, decay), w[i], v16_set(1.0f));
                state_sum[i] = v16_fma(state[i], state[i], state_sum[i]);
                read_sum[i] = v16_add(read_sum[i], read2);
                adjoint_sum[i] = v16_fma(read2, w[i], adjoint_sum[i]);
            }
        }
        v16_store(s->even + t * 16, even);
        v16_store(s->odd + t * 16, odd);
    }
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        const int64_t n = first + i;
        v16_store(a->state + n * 16, state[i]);
        if (recorded) {
            v16_store(a->adjoint + n * 16, w[i]);
            v16_store(a->moments + n * 16, state_sum[i]);
            v16_store(a->moments + (N + n) * 16, read_sum[i]);
            v16_store(a->moments + (2 * N + n) * 16, adjoint_sum[i]);
        }
    }
}

SSM__INLINE void scan_all_modes(const ssm__scan_args *a, scan_subtile *s, int64_t t0,
                                int64_t tokens, const bool masked, const bool recorded)
{
    int64_t n = 0;
    for (; n + SCAN_MODES <= a->d_state; n += SCAN_MODES) {
        scan_modes(a, s, t0, tokens, n, SCAN_MODES, masked, recorded);
    }
    for (; n + 2 <= a->d_state; n += 2) {
        scan_modes(a, s, t0, tokens, n, 2, masked, recorded);
    }
    if (n < a->d_state) {
        scan_modes(a, s, t0, tokens, n, 1, masked, recorded);
    }
}

SSM__INLINE void scan_inputs(const ssm__scan_args *a, scan_subtile *s, int64_t t0, int64_t tokens)
{
    const v16 zero = v16_set(0.0f);
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t at = (t0 + t) * 16;
        v16_store(s->input + t * 16, v16_mul(v16_load(a->delta + at), v16_load(a->u + at)));
        v16_store(s->gate + t * 16, v16_silu(v16_load(a->z + at)));
        v16_store(s->even + t * 16, zero);
        v16_store(s->odd + t * 16, zero);
    }
}

/* y = (Σ_even m + Σ_odd m) + f, f = g·(D·u); the sums ΣΔ and Σy² of the instrument. */
SSM__INLINE void scan_output(const ssm__scan_args *a, const scan_subtile *s, int64_t t0,
                             int64_t tokens, const bool recorded)
{
    const int64_t N = a->d_state;
    const v16 D = v16_load(a->D);
    float *sums = recorded ? a->moments + 3 * N * 16 : NULL;
    for (int64_t t = 0; t < tokens; t++) {
        const v16 u = v16_load(a->u + (t0 + t) * 16);
        const v16 f = v16_mul(v16_load(s->gate + t * 16), v16_mul(D, u));
        const v16 modes = v16_add(v16_load(s->even + t * 16), v16_load(s->odd + t * 16));
        const v16 y = v16_add(modes, f);
        v16_store(a->y + (t0 + t) * 16, y);
        if (recorded) {
            v16_store(a->modes + ((t0 + t) * (N + 1) + N) * 16, f);
            v16_store(sums, v16_add(v16_load(sums), v16_load(a->delta + (t0 + t) * 16)));
            v16_store(sums + 16, v16_fma(y, y, v16_load(sums + 16)));
        }
    }
}

SSM__INLINE void scan_tokens(const ssm__scan_args *a, const bool masked, const bool recorded)
{
    scan_subtile s;
    for (int64_t t0 = 0; t0 < a->tokens; t0 += SCAN_SUBTILE) {
        const int64_t tokens = a->tokens - t0 < SCAN_SUBTILE ? a->tokens - t0 : SCAN_SUBTILE;
        scan_inputs(a, &s, t0, tokens);
        scan_all_modes(a, &s, t0, tokens, masked, recorded);
        scan_output(a, &s, t0, tokens, recorded);
    }
}

static void kernel_scan(const ssm__scan_args *a)
{
    if (a->modes) {
        if (a->keep) {
            scan_tokens(a, true, true);
        } else {
            scan_tokens(a, false, true);
        }
    } else if (a->keep) {
        scan_tokens(a, true, false);
    } else {
        scan_tokens(a, false, false);
    }
}

#endif
