/* kernels/body_scan_kept.h: the selective scan of 16 channels over the modes that they keep.
 *
 * As body_scan.h, but state and decay rates have a row a slot and not a row a mode. Where the
 * channels keep different modes, every lane picks the B and C of its own: the row of the token is
 * in a register and one permutation reads it. What is computed for a mode, and the order in which
 * its parity's partial sum of y grows, are those of a full scan whose dropped modes have factor 0:
 * the same bits. */
#ifndef SSM_KERNELS_BODY_SCAN_KEPT_H
#define SSM_KERNELS_BODY_SCAN_KEPT_H

#include "kernels/body_scan.h"

enum { KEPT_MOST = 4 };

/* What the constants of an instance are. */
typedef struct kept_form {
    bool shared;   /* one set for all lanes: B and C are broadcast */
    bool narrow;   /* N ≤ 16: a row of B is one register */
    bool weighted; /* summands have factors */
    bool rest;     /* behind the pairs: parity is the lane's, or, where shared, one for all */
} kept_form;

/* Slots first … first+count−1 over `tokens` tokens. count and form are constants where this is
 * inlined. */
SSM__INLINE void kept_slots(const ssm__scan_args *a, const ssm__kept_modes *kept, scan_subtile *s,
                            int64_t t0, int64_t tokens, int64_t first, const int count,
                            const kept_form form)
{
    const int64_t N = a->d_state;
    const bool one_sum = form.shared && form.rest;
    v16 state[KEPT_MOST], rate[KEPT_MOST];
    i16 index[KEPT_MOST];
    m16 in_even[KEPT_MOST], in_odd[KEPT_MOST];
    int64_t mode_of[KEPT_MOST];
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        state[i] = v16_load(a->state + (first + i) * 16);
        rate[i] = v16_load(a->A2 + (first + i) * 16);
        if (form.shared) {
            mode_of[i] = kept->modes[(first + i) * 16];
        } else {
            index[i] = i16_load(kept->modes + (first + i) * 16);
            in_even[i] = m16_set(kept->even[first + i]);
            in_odd[i] = m16_set(kept->odd[first + i]);
        }
    }
    float *sum0 = one_sum && mode_of[0] % 2 != 0 ? s->odd : s->even;
    for (int64_t t = 0; t < tokens; t++) {
        const v16 delta = v16_load(a->delta + (t0 + t) * 16);
        const v16 input = v16_load(s->input + t * 16);
        const v16 gate = v16_load(s->gate + t * 16);
        const float *B = a->B + (t0 + t) * a->bc_stride;
        const float *C = a->C + (t0 + t) * a->bc_stride;
        v16 B_row, C_row;
        if (!form.shared && form.narrow) {
            B_row = v16_load_n(B, N);
            C_row = v16_load_n(C, N);
        }
        v16 even = v16_load(sum0 + t * 16);
        v16 odd = one_sum ? even : v16_load(s->odd + t * 16);
        SSM__UNROLL
        for (int i = 0; i < count; i++) {
            const v16 b = form.shared   ? v16_set(B[mode_of[i]])
                          : form.narrow ? v16_pick(B_row, index[i])
                                        : v16_pick_wide(B, N, index[i]);
            const v16 c = form.shared   ? v16_set(C[mode_of[i]])
                          : form.narrow ? v16_pick(C_row, index[i])
                                        : v16_pick_wide(C, N, index[i]);
            const v16 decay = v16_exp2_decay(v16_mul(delta, rate[i]));
            state[i] = v16_fma(decay, state[i], v16_mul(input, b));
            v16 mode = v16_mul(v16_mul(gate, c), state[i]);
            if (form.weighted) {
                mode = v16_mul(mode, v16_load(a->keep + (first + i) * 16));
            }
            if (form.rest && !form.shared) {
                even = v16_add_where(in_even[i], even, mode);
                odd = v16_add_where(in_odd[i], odd, mode);
            } else if (one_sum || i % 2 == 0) { /* first is even */
                even = v16_add(even, mode);
            } else {
                odd = v16_add(odd, mode);
            }
        }
        v16_store(sum0 + t * 16, even);
        if (!one_sum) {
            v16_store(s->odd + t * 16, odd);
        }
    }
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        v16_store(a->state + (first + i) * 16, state[i]);
    }
}

SSM__INLINE void kept_all_slots(const ssm__scan_args *a, const ssm__kept_modes *kept,
                                scan_subtile *s, int64_t t0, int64_t tokens, const kept_form form)
{
    const kept_form pairs = {form.shared, form.narrow, form.weighted, false};
    const kept_form rest = {form.shared, form.narrow, form.weighted, true};
    int64_t n = 0;
    for (; n + SCAN_MODES <= kept->pairs; n += SCAN_MODES) {
        kept_slots(a, kept, s, t0, tokens, n, SCAN_MODES, pairs);
    }
    for (; SCAN_MODES > 2 && n + 2 <= kept->pairs; n += 2) {
        kept_slots(a, kept, s, t0, tokens, n, 2, pairs);
    }
    for (; n + SCAN_MODES <= kept->slots; n += SCAN_MODES) {
        kept_slots(a, kept, s, t0, tokens, n, SCAN_MODES, rest);
    }
    for (; SCAN_MODES > 2 && n + 2 <= kept->slots; n += 2) {
        kept_slots(a, kept, s, t0, tokens, n, 2, rest);
    }
    if (n < kept->slots) {
        kept_slots(a, kept, s, t0, tokens, n, 1, rest);
    }
}

SSM__INLINE void kept_tokens(const ssm__scan_args *a, const ssm__kept_modes *kept,
                             const bool shared, const bool narrow, const bool weighted)
{
    scan_subtile s;
    for (int64_t t0 = 0; t0 < a->tokens; t0 += SCAN_SUBTILE) {
        const int64_t tokens = a->tokens - t0 < SCAN_SUBTILE ? a->tokens - t0 : SCAN_SUBTILE;
        scan_inputs(a, &s, t0, tokens);
        kept_all_slots(a, kept, &s, t0, tokens, (kept_form){shared, narrow, weighted, false});
        scan_output(a, &s, t0, tokens, false);
    }
}

static void kernel_scan_kept(const ssm__scan_args *a, const ssm__kept_modes *kept)
{
    const bool narrow = a->d_state <= 16;
    if (kept->shared) {
        if (a->keep) {
            kept_tokens(a, kept, true, true, true);
        } else {
            kept_tokens(a, kept, true, true, false);
        }
    } else if (narrow) {
        if (a->keep) {
            kept_tokens(a, kept, false, true, true);
        } else {
            kept_tokens(a, kept, false, true, false);
        }
    } else if (a->keep) {
        kept_tokens(a, kept, false, false, true);
    } else {
        kept_tokens(a, kept, false, false, false);
    }
}

#endif
