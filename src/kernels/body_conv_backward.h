/* kernels/body_conv_backward.h: backwards through the causal convolution of 16 channels, through
 * SiLU, and through a gate.
 *
 * First the gradient of what SiLU is taken of goes to dx, with the sums of the parameters on the
 * way; then dx is convolved in place, in rising token: token t needs the later ones only. */
#ifndef SSM_KERNELS_BODY_CONV_BACKWARD_H
#define SSM_KERNELS_BODY_CONV_BACKWARD_H

#include "kernels/training.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_lanes.h"
#include "kernels/body_math.h"
#include "kernels/unroll.h"

/* Gradient of what SiLU is taken of at token t, whose `reach` inputs from x on meet the taps from
 * `weight` on. */
SSM__INLINE v16 conv_pre(const ssm__conv_backward_args *a, int64_t t, const float *x,
                         const float *weight, int64_t reach, const bool silu)
{
    const v16 d = v16_load(a->dout + t * 16);
    if (!silu) {
        return d;
    }
    v16 sum = v16_load(a->bias);
    for (int64_t j = 0; j < reach; j++) {
        sum = v16_fma(v16_load(weight + j * 16), v16_load(x + j * 16), sum);
    }
    return v16_mul(d, v16_silu_slope(sum, v16_sigmoid(sum)));
}

/* Tokens [begin, end), sums in memory. */
SSM__INLINE void conv_some(const ssm__conv_backward_args *a, int64_t begin, int64_t end,
                           const bool silu)
{
    const int64_t K = a->d_conv;
    for (int64_t t = begin; t < end; t++) {
        const int64_t reach = t + 1 < K ? t + 1 : K; /* taps that meet the sequence */
        const float *x = a->x + (t + 1 - reach) * 16;
        float *dweight = a->dweight + (K - reach) * 16;
        const v16 d = conv_pre(a, t, x, a->weight + (K - reach) * 16, reach, silu);
        v16_store(a->dx + t * 16, d);
        v16_store(a->dbias, v16_add(v16_load(a->dbias), d));
        for (int64_t j = 0; j < reach; j++) {
            const v16 old = v16_load(dweight + j * 16);
            v16_store(dweight + j * 16, v16_fma(d, v16_load(x + j * 16), old));
        }
    }
}

enum { CONV_TAPS = 4 }; /* of all published models */

/* Tokens from the fourth on where there are four taps, sums in registers. */
SSM__INLINE void conv_four_taps(const ssm__conv_backward_args *a, const bool silu)
{
    v16 dbias = v16_load(a->dbias), dweight[CONV_TAPS];
    SSM__UNROLL
    for (int j = 0; j < CONV_TAPS; j++) {
        dweight[j] = v16_load(a->dweight + j * 16);
    }
    for (int64_t t = CONV_TAPS - 1; t < a->tokens; t++) {
        const float *x = a->x + (t + 1 - CONV_TAPS) * 16;
        const v16 d = conv_pre(a, t, x, a->weight, CONV_TAPS, silu);
        v16_store(a->dx + t * 16, d);
        dbias = v16_add(dbias, d);
        SSM__UNROLL
        for (int j = 0; j < CONV_TAPS; j++) {
            dweight[j] = v16_fma(d, v16_load(x + j * 16), dweight[j]);
        }
    }
    v16_store(a->dbias, dbias);
    SSM__UNROLL
    for (int j = 0; j < CONV_TAPS; j++) {
        v16_store(a->dweight + j * 16, dweight[j]);
    }
}

SSM__INLINE void conv_pre_gradient(const ssm__conv_backward_args *a, const bool silu)
{
    if (a->d_conv == CONV_TAPS && a->tokens >= CONV_TAPS) {
        conv_some(a, 0, CONV_TAPS - 1, silu);
        conv_four_taps(a, silu);
    } else {
        conv_some(a, 0, a->tokens, silu);
    }
}

/* dx_t = Σ_i w[K−1−i]·d_{t+i} in rising i, in place. */
static void conv_transposed(const ssm__conv_backward_args *a)
{
    const int64_t K = a->d_conv;
    for (int64_t t = 0; t < a->tokens; t++) {
        const int64_t reach = a->tokens - t < K ? a->tokens - t : K;
        v16 sum = v16_set(0.0f);
        for (int64_t i = 0; i < reach; i++) {
            sum = v16_fma(v16_load(a->weight + (K - 1 - i) * 16), v16_load(a->dx + (t + i) * 16),
                          sum);
        }
        v16_store(a->dx + t * 16, sum);
    }
}

static void kernel_conv_silu_backward(const ssm__conv_backward_args *a)
{
    conv_pre_gradient(a, true);
    conv_transposed(a);
}

static void kernel_conv_backward(const ssm__conv_backward_args *a)
{
    conv_pre_gradient(a, false);
    conv_transposed(a);
}

static void kernel_silu_mul_backward(const float *x, const float *gate, const float *dout,
                                     float *dx, float *dgate, int64_t count)
{
    for (int64_t i = 0; i < count; i += 16) {
        const int64_t left = count - i;
        const v16 value = v16_take(x + i, left), g = v16_take(gate + i, left);
        const v16 d = v16_take(dout + i, left);
        const v16 sigmoid = v16_sigmoid(g);
        v16_put(dx + i, v16_mul(d, v16_silu(g)), left);
        v16_put(dgate + i, v16_mul(v16_mul(d, value), v16_silu_slope(g, sigmoid)), left);
    }
}

#endif
