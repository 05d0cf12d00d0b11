/* kernels/body_gated_norm.h: Mamba-2's gated RMS norm in a tile, group after group of channels. */
#ifndef SSM_KERNELS_BODY_GATED_NORM_H
#define SSM_KERNELS_BODY_GATED_NORM_H

#include "kernels/kernels.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_math.h"

static void kernel_gated_norm(float *y, const float *weight, const float *z, int64_t tokens,
                              int64_t groups, int64_t width, float eps)
{
    const ptrdiff_t step = SSM__TILE_ROWS * SSM__LANES;
    v16 scale[SSM__TILE];
    for (int64_t t = 0; t < tokens; t++) {
        scale[t] = v16_set(0.0f);
    }
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t t = 0; t < tokens; t++) {
            const v16 v = v16_load(y + g * step + t * 16);
            scale[t] = v16_fma(v, v, scale[t]);
        }
    }
    for (int64_t t = 0; t < tokens; t++) {
        scale[t] = v16_set(norm_scale(v16_sum(scale[t]), width, eps));
    }
    for (int64_t g = 0; g < groups; g++) {
        const v16 w = v16_load(weight + g * 16);
        for (int64_t t = 0; t < tokens; t++) {
            float *to = y + g * step + t * 16;
            const v16 v = v16_mul(v16_mul(v16_load(to), scale[t]), w);
            v16_store(to, z ? v16_mul(v, v16_silu(v16_load(z + g * step + t * 16))) : v);
        }
    }
}

#endif
