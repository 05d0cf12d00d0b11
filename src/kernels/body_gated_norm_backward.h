/* kernels/body_gated_norm_backward.h: Mamba-2's gated norm in training, forwards and backwards, and
 * the small sums beside it.
 *
 * Group after group of 16 channels; the sums over a norm's channels are one chain a lane in rising
 * group, then the tree. With e = w·dy (times SiLU(z) where the norm comes first) and x̂ the normed
 * numbers, the norm passes r·(e − x̂·mean(e·x̂)). */
#ifndef SSM_KERNELS_BODY_GATED_NORM_BACKWARD_H
#define SSM_KERNELS_BODY_GATED_NORM_BACKWARD_H

#include "kernels/training.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_lanes.h"
#include "kernels/body_math.h"

/* What the norm is taken of. */
static inline v16 gated_input(const ssm__gated_norm_args *a, v16 v, v16 silu)
{
    return a->norm_first ? v : v16_mul(v, silu);
}

/* r of every token from the lanes of Σ x². */
static void gated_scales(const ssm__gated_norm_args *a, v16 *scale)
{
    for (int64_t t = 0; t < a->tokens; t++) {
        scale[t] = v16_set(norm_scale(v16_sum(scale[t]), a->width, a->eps));
    }
}

static void kernel_training_gated_norm(const ssm__gated_norm_args *a)
{
    v16 scale[SSM__TILE];
    for (int64_t t = 0; t < a->tokens; t++) {
        scale[t] = v16_set(0.0f);
    }
    for (int64_t g = 0; g < a->groups; g++) {
        for (int64_t t = 0; t < a->tokens; t++) {
            const v16 silu = v16_silu(v16_load(a->z + g * a->z_stride + t * 16));
            const v16 v = v16_load(a->v + g * a->v_stride + t * 16);
            const v16 x = gated_input(a, v, silu);
            /* the gate that comes behind the norm is ready */
            v16_store(a->y + g * a->y_stride + t * 16, a->norm_first ? v16_mul(v, silu) : x);
            scale[t] = v16_fma(x, x, scale[t]);
        }
    }
    if (!a->weight) {
        return;
    }
    gated_scales(a, scale);
    for (int64_t g = 0; g < a->groups; g++) {
        const v16 w = v16_load(a->weight + g * 16);
        for (int64_t t = 0; t < a->tokens; t++) {
            float *y = a->y + g * a->y_stride + t * 16;
            v16_store(y, v16_mul(v16_mul(v16_load(y), scale[t]), w));
        }
    }
}

/* Without a norm: y, dv, dz. */
static void gated_backward_plain(const ssm__gated_norm_args *a)
{
    for (int64_t g = 0; g < a->groups; g++) {
        for (int64_t t = 0; t < a->tokens; t++) {
            const v16 z = v16_load(a->z + g * a->z_stride + t * 16);
            const v16 v = v16_load(a->v + g * a->v_stride + t * 16);
            const v16 dy = v16_load(a->dy + g * a->dy_stride + t * 16);
            const v16 sigmoid = v16_sigmoid(z);
            const v16 silu = v16_mul(z, sigmoid);
            v16_store(a->y + g * a->y_stride + t * 16, v16_mul(v, silu));
            v16_store(a->dv + g * a->dv_stride + t * 16, v16_mul(dy, silu));
            v16_store(a->dz + g * a->dz_stride + t * 16,
                      v16_mul(v16_mul(dy, v), v16_silu_slope(z, sigmoid)));
        }
    }
}

/* The lanes of Σ x² and Σ e·x; σ(z) waits in dz. */
static void gated_backward_sums(const ssm__gated_norm_args *a, v16 *scale, v16 *inner)
{
    for (int64_t g = 0; g < a->groups; g++) {
        const v16 w = v16_load(a->weight + g * 16);
        for (int64_t t = 0; t < a->tokens; t++) {
            const v16 z = v16_load(a->z + g * a->z_stride + t * 16);
            const v16 dy = v16_load(a->dy + g * a->dy_stride + t * 16);
            const v16 sigmoid = v16_sigmoid(z);
            const v16 silu = v16_mul(z, sigmoid);
            const v16 x = gated_input(a, v16_load(a->v + g * a->v_stride + t * 16), silu);
            const v16 e = v16_mul(w, a->norm_first ? v16_mul(dy, silu) : dy);
            scale[t] = v16_fma(x, x, scale[t]);
            inner[t] = v16_fma(e, x, inner[t]);
            v16_store(a->dz + g * a->dz_stride + t * 16, sigmoid);
        }
    }
}

static void gated_backward_group(const ssm__gated_norm_args *a, int64_t g, const v16 *scale,
                                 const v16 *inner)
{
    const v16 w = v16_load(a->weight + g * 16);
    for (int64_t t = 0; t < a->tokens; t++) {
        float *const dz = a->dz + g * a->dz_stride + t * 16;
        const v16 z = v16_load(a->z + g * a->z_stride + t * 16), sigmoid = v16_load(dz);
        const v16 v = v16_load(a->v + g * a->v_stride + t * 16);
        const v16 dy = v16_load(a->dy + g * a->dy_stride + t * 16);
        const v16 silu = v16_mul(z, sigmoid), slope = v16_silu_slope(z, sigmoid);
        const v16 normed = v16_mul(gated_input(a, v, silu), scale[t]);
        const v16 given = a->norm_first ? v16_mul(dy, silu) : dy;
        const v16 weighted = v16_mul(w, normed);
        const v16 dx = v16_mul(scale[t], v16_fnma(normed, inner[t], v16_mul(w, given)));
        v16_store(a->y + g * a->y_stride + t * 16,
                  a->norm_first ? v16_mul(weighted, silu) : weighted);
        v16_store(a->dw + g * a->dw_stride + t * 16, v16_mul(given, normed));
        if (a->norm_first) {
            v16_store(a->dv + g * a->dv_stride + t * 16, dx);
            v16_store(dz, v16_mul(v16_mul(dy, weighted), slope));
        } else {
            v16_store(a->dv + g * a->dv_stride + t * 16, v16_mul(dx, silu));
            v16_store(dz, v16_mul(v16_mul(dx, v), slope));
        }
    }
}

static void kernel_gated_norm_backward(const ssm__gated_norm_args *a)
{
    v16 scale[SSM__TILE], inner[SSM__TILE];
    if (!a->weight) {
        gated_backward_plain(a);
        return;
    }
    for (int64_t t = 0; t < a->tokens; t++) {
        scale[t] = inner[t] = v16_set(0.0f);
    }
    gated_backward_sums(a, scale, inner);
    gated_scales(a, scale);
    for (int64_t t = 0; t < a->tokens; t++) { /* mean(e·x̂) */
        const v16 mean = v16_set(v16_sum(inner[t]) / (float)a->width);
        inner[t] = v16_mul(mean, scale[t]);
    }
    for (int64_t g = 0; g < a->groups; g++) {
        gated_backward_group(a, g, scale, inner);
    }
}

static void kernel_lane_products(const float *a, const float *b, int64_t tokens, float *sums)
{
    v16 sum = v16_load(sums);
    for (int64_t t = 0; t < tokens; t++) {
        sum = v16_fma(v16_load(a + t * 16), v16_load(b + t * 16), sum);
    }
    v16_store(sums, sum);
}

static void kernel_softplus_backward(const float *dt, const float *bias, const float *ddelta,
                                     float *ddt, int64_t tokens)
{
    for (int64_t t = 0; t < tokens; t++) {
        const v16 sigmoid = v16_sigmoid(v16_add(v16_load(dt + t * 16), v16_load(bias)));
        v16_store(ddt + t * 16, v16_mul(v16_load(ddelta + t * 16), sigmoid));
    }
}

static void kernel_to_lanes(const float *in, ptrdiff_t stride, int64_t rows, int64_t columns,
                            float *out)
{
    for (int64_t c = 0; c < columns; c += 16) {
        v16 v[16];
        for (int64_t r = 0; r < 16; r++) {
            v[r] = r < rows ? v16_take(in + r * stride + c, columns - c) : v16_set(0.0f);
        }
        v16_transpose(v);
        for (int64_t i = 0; i < 16 && c + i < columns; i++) {
            v16_store(out + (c + i) * 16, v[i]);
        }
    }
}

#endif
