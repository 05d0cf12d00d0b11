/* kernels/body_gate.h: what gated linear attention adds to the chunked form.
 *
 * Its state decays mode by mode, which would take the decay into the products of B and C. But in a
 * piece of few tokens that begins at f and ends at e, with a_t = log2 α_t and tail_t = a_{t+1} + …
 * + a_e ≤ 0, C_t·2^(a_{s+1} + … + a_t)·B_s = (C_t 2^−tail_t)·(B_s 2^tail_s) so that linear
 * attention over scaled B and C does it, from a state that has been scaled by 2^(a_f + … + a_e). A
 * piece ends where the factors would pass 2^60, after 16 tokens at the latest; the decay of its
 * first token is in none of them, so any gate has its piece. */
#ifndef SSM_KERNELS_BODY_GATE_H
#define SSM_KERNELS_BODY_GATE_H

#include "kernels/training.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_math.h"

static const float gate_lowest = -60.0f;

/* log2 α of token t, [N], and its sum with `sum`; the least of that. */
static float gate_log(const ssm__gate_args *a, int64_t t, float *out, float *sum)
{
    const v16 rate = v16_set(a->rate);
    v16 least = v16_set(0.0f);
    for (int64_t n = 0; n < a->d_state; n += 16) {
        const v16 p = v16_load(a->p + t * a->p_stride + n);
        const v16 log = v16_mul(v16_softplus(v16_sub(v16_set(0.0f), p)), rate);
        const v16 all = v16_add(v16_load(sum + n), log);
        v16_store(out + n, log);
        v16_store(sum + n, all);
        least = v16_min(least, all);
    }
    float lanes[16], lowest = 0.0f;
    v16_store(lanes, least);
    for (int i = 0; i < 16; i++) {
        lowest = lanes[i] < lowest ? lanes[i] : lowest;
    }
    return lowest;
}

/* Tokens of the piece from `first` on; factors gets their log2 α, and that of the token behind it.
 */
static int64_t gate_piece(const ssm__gate_args *a, int64_t first)
{
    const int64_t N = a->d_state;
    float *sum = a->totals + first * N; /* of the tokens behind the first */
    for (int64_t n = 0; n < N; n += 16) {
        v16_store(sum + n, v16_set(0.0f));
    }
    gate_log(a, first, a->factors + first * N, sum);
    for (int64_t n = 0; n < N; n += 16) {
        v16_store(sum + n, v16_set(0.0f));
    }
    int64_t count = 1;
    for (; count < SSM__GATE_PIECE && first + count < a->tokens; count++) {
        if (gate_log(a, first + count, a->factors + (first + count) * N, sum) < gate_lowest) {
            break;
        }
    }
    return count;
}

/* Factors, scaled B and C, and the total of sixteen modes. */
static void gate_scale_piece(const ssm__gate_args *a, int64_t first, int64_t count, int64_t n)
{
    const int64_t N = a->d_state;
    v16 tail = v16_set(0.0f);
    for (int64_t t = first + count - 1; t >= first; t--) {
        const int64_t at = t * N + n;
        const v16 log = v16_load(a->factors + at), factor = v16_exp2_decay(tail);
        v16_store(a->factors + at, factor);
        v16_store(a->scaled_B + at, v16_mul(v16_load(a->B + at), factor));
        v16_store(a->scaled_C + at, v16_div(v16_load(a->C + at), factor));
        tail = v16_add(tail, log);
    }
    v16_store(a->totals + first * N + n, v16_exp2_decay(tail));
}

static void kernel_gate(const ssm__gate_args *a)
{
    for (int64_t first = 0; first < a->tokens;) {
        const int64_t count = gate_piece(a, first);
        for (int64_t n = 0; n < a->d_state; n += 16) {
            gate_scale_piece(a, first, count, n);
        }
        a->counts[first] = (int32_t)count;
        first += count;
    }
}

/* One piece. The gradient of log α_τ is what passes over the border in front of τ: Σ S dS of the
 * scaled state, less what has been read of it before τ, plus what has been written. Without what
 * tokens read of themselves these are all of the size of what passes: where a gate forgets nearly
 * all, the difference would be lost beside it. */
static void kernel_gate_backward(const ssm__gate_backward_args *a)
{
    const int64_t N = a->d_state;
    for (int64_t n = 0; n < N; n += 16) {
        v16 passing = v16_load(a->passing + n);
        for (int64_t t = 0; t < a->tokens; t++) {
            const int64_t at = t * N + n;
            const v16 factor = v16_load(a->factors + at);
            const v16 dB = v16_load(a->dB + at), dC = v16_load(a->dC + at);
            const v16 B = v16_load(a->scaled_B + at), C = v16_load(a->scaled_C + at);
            const v16 own = v16_set(a->own[t]);
            const v16 p = v16_load(a->p + t * a->p_stride + n);
            const v16 slope = v16_mul(v16_sigmoid(v16_sub(v16_set(0.0f), p)), v16_set(a->share));
            v16_store(a->dp + t * a->p_stride + n, v16_mul(passing, slope));
            passing = v16_fnma(C, dC, passing);
            passing = v16_fma(B, dB, passing);
            v16_store(a->dB + at, v16_mul(v16_fma(own, C, dB), factor));
            v16_store(a->dC + at, v16_div(v16_fma(own, B, dC), factor));
        }
    }
}

static void kernel_scale_state(const float *state, const float *factors, int64_t d_state,
                               int64_t groups, float *out)
{
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t n = 0; n < d_state; n++) {
            const int64_t at = (g * d_state + n) * 16;
            v16_store(out + at, v16_mul(v16_load(state + at), v16_set(factors[n])));
        }
    }
}

static void kernel_state_products(const float *a, const float *b, int64_t d_state, int64_t groups,
                                  float *sums)
{
    for (int64_t n = 0; n < d_state; n += 16) {
        v16 sum[16];
        for (int64_t i = 0; i < 16; i++) {
            sum[i] = v16_set(0.0f);
            for (int64_t g = 0; g < groups; g++) {
                const int64_t at = (g * d_state + n + i) * 16;
                sum[i] = v16_fma(v16_load(a + at), v16_load(b + at), sum[i]);
            }
        }
        v16_store(sums + n, v16_add(v16_load(sums + n), v16_sums(sum)));
    }
}

#endif
