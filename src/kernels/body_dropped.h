/* kernels/body_dropped.h: the squared sum of the modes that a set drops, without a Gram.
 *
 * Channels are in the lanes; four tokens and a few sets at a time are in registers while the modes
 * go by. */
#ifndef SSM_KERNELS_BODY_DROPPED_H
#define SSM_KERNELS_BODY_DROPPED_H

#include "kernels/kernels.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/unroll.h"

/* `tokens` ≤ 4 tokens and `sets` ≤ DROPPED_SETS sets, constants where this is inlined. */
SSM__INLINE void dropped_tile(const float *modes, int64_t n_modes, const float *factors,
                              ptrdiff_t set_stride, float *sums, const int tokens, const int sets)
{
    const int64_t row = (n_modes + 1) * 16;
    v16 sum[DROPPED_SETS][4];
    SSM__UNROLL
    for (int s = 0; s < sets; s++) {
        SSM__UNROLL
        for (int t = 0; t < tokens; t++) {
            sum[s][t] = v16_set(0.0f);
        }
    }
    for (int64_t n = 0; n < n_modes; n++) {
        v16 mode[4];
        SSM__UNROLL
        for (int t = 0; t < tokens; t++) {
            mode[t] = v16_load(modes + t * row + n * 16);
        }
        SSM__UNROLL
        for (int s = 0; s < sets; s++) {
            const v16 factor = v16_load(factors + s * set_stride + n * 16);
            SSM__UNROLL
            for (int t = 0; t < tokens; t++) {
                sum[s][t] = v16_fma(mode[t], factor, sum[s][t]);
            }
        }
    }
    SSM__UNROLL
    for (int s = 0; s < sets; s++) {
        v16 total = v16_load(sums + s * 16);
        SSM__UNROLL
        for (int t = 0; t < tokens; t++) {
            total = v16_fma(sum[s][t], sum[s][t], total);
        }
        v16_store(sums + s * 16, total);
    }
}

SSM__INLINE void dropped_sets(const float *modes, int64_t tokens, int64_t n_modes,
                              const float *factors, ptrdiff_t set_stride, float *sums,
                              const int sets)
{
    const int64_t row = (n_modes + 1) * 16;
    int64_t t = 0;
    for (; t + 4 <= tokens; t += 4) {
        dropped_tile(modes + t * row, n_modes, factors, set_stride, sums, 4, sets);
    }
    for (; t < tokens; t++) {
        dropped_tile(modes + t * row, n_modes, factors, set_stride, sums, 1, sets);
    }
}

static void kernel_dropped(const float *modes, int64_t tokens, int64_t n_modes, int64_t n_sets,
                           const float *factors, ptrdiff_t set_stride, float *sums)
{
    int64_t s = 0;
    for (; s + DROPPED_SETS <= n_sets; s += DROPPED_SETS) {
        dropped_sets(modes, tokens, n_modes, factors + s * set_stride, set_stride, sums + s * 16,
                     DROPPED_SETS);
    }
    for (; DROPPED_SETS > 1 && s < n_sets; s++) {
        dropped_sets(modes, tokens, n_modes, factors + s * set_stride, set_stride, sums + s * 16,
                     1);
    }
}

#endif
