/* kernels/body_elementwise.h: elementwise kernels, norms, convolution, log-sum-exp, flush. */
#ifndef SSM_KERNELS_BODY_ELEMENTWISE_H
#define SSM_KERNELS_BODY_ELEMENTWISE_H

#include <math.h>

#include "kernels/kernels.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_math.h"
#include "kernels/body_softmax.h"

static void kernel_exp(const float *x, float *out, int64_t count)
{
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        v16_store(out + i, v16_exp(v16_load(x + i)));
    }
    v16_store_n(out + i, v16_exp(v16_load_n(x + i, count - i)), count - i);
}

static void kernel_decay(const float *p, float *out, int64_t count)
{
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        v16_store(out + i, v16_exp2_decay(v16_load(p + i)));
    }
    v16_store_n(out + i, v16_exp2_decay(v16_load_n(p + i, count - i)), count - i);
}

static void kernel_silu(const float *x, float *out, int64_t count)
{
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        v16_store(out + i, v16_silu(v16_load(x + i)));
    }
    v16_store_n(out + i, v16_silu(v16_load_n(x + i, count - i)), count - i);
}

static void kernel_silu_mul(const float *x, const float *gate, float *out, int64_t count)
{
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        v16_store(out + i, v16_mul(v16_load(x + i), v16_silu(v16_load(gate + i))));
    }
    const int64_t n = count - i;
    v16_store_n(out + i, v16_mul(v16_load_n(x + i, n), v16_silu(v16_load_n(gate + i, n))), n);
}

static void kernel_add(const float *x, float *y, int64_t count)
{
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        v16_store(y + i, v16_add(v16_load(y + i), v16_load(x + i)));
    }
    const int64_t n = count - i;
    v16_store_n(y + i, v16_add(v16_load_n(y + i, n), v16_load_n(x + i, n)), n);
}

static void kernel_softplus_bias(const float *x, const float *bias, float *out, int64_t tokens)
{
    const v16 b = v16_load(bias);
    for (int64_t t = 0; t < tokens; t++) {
        v16_store(out + t * 16, v16_softplus(v16_add(v16_load(x + t * 16), b)));
    }
}

/* Sum of squares of one row in the order of the summation law. */
static float square_sum(const float *row, int64_t width)
{
    v16 sum = v16_set(0.0f);
    int64_t k = 0;
    for (; k + 16 <= width; k += 16) {
        const v16 v = v16_load(row + k);
        sum = v16_fma(v, v, sum);
    }
    const v16 v = v16_load_n(row + k, width - k);
    return v16_sum(v16_fma(v, v, sum));
}

static void kernel_rmsnorm(const float *x, const float *weight, float *out, int64_t tokens,
                           int64_t width, float eps)
{
    for (int64_t t = 0; t < tokens; t++) {
        const float *row = x + t * width;
        float *to = out + t * width;
        const v16 scale = v16_set(norm_scale(square_sum(row, width), width, eps));
        int64_t k = 0;
        for (; k + 16 <= width; k += 16) {
            const v16 v = v16_mul(v16_load(row + k), scale);
            v16_store(to + k, weight ? v16_mul(v, v16_load(weight + k)) : v);
        }
        const int64_t n = width - k;
        const v16 v = v16_mul(v16_load_n(row + k, n), scale);
        v16_store_n(to + k, weight ? v16_mul(v, v16_load_n(weight + k, n)) : v, n);
    }
}

static void kernel_layernorm(const float *x, const float *weight, const float *bias, float *out,
                             int64_t tokens, int64_t width, float eps)
{
    for (int64_t t = 0; t < tokens; t++) {
        const float *row = x + t * width;
        float *to = out + t * width;
        const int64_t whole = width & ~(int64_t)15, n = width - whole;
        v16 sum = v16_set(0.0f);
        for (int64_t k = 0; k < whole; k += 16) {
            sum = v16_add(v16_load(row + k), sum);
        }
        sum = v16_add(v16_load_n(row + whole, n), sum);
        const v16 mean = v16_set(v16_sum(sum) / (float)width);
        for (int64_t k = 0; k < whole; k += 16) {
            v16_store(to + k, v16_sub(v16_load(row + k), mean));
        }
        v16_store_n(to + whole, v16_sub(v16_load_n(row + whole, n), mean), n);

        const v16 scale = v16_set(norm_scale(square_sum(to, width), width, eps));
        for (int64_t k = 0; k < width; k += 16) {
            const int64_t lanes = width - k < 16 ? width - k : 16;
            const v16 v = v16_mul(v16_load_n(to + k, lanes), scale);
            const v16 b = bias ? v16_load_n(bias + k, lanes) : v16_set(0.0f);
            v16_store_n(to + k, v16_fma(v, v16_load_n(weight + k, lanes), b), lanes);
        }
    }
}

/* Input number `source` of the stream whose `past` inputs before x are the history. */
static inline const float *conv_input(const float *x, const float *history, int64_t past,
                                      int64_t source)
{
    return source < 0 ? history + (source + past) * 16 : x + source * 16;
}

static inline v16 conv_sum(const float *x, const float *weight, v16 sum, const float *history,
                           int64_t t, int64_t d_conv)
{
    const int64_t past = d_conv - 1;
    for (int64_t j = 0; j < d_conv; j++) {
        const float *in = conv_input(x, history, past, t - past + j);
        sum = v16_fma(v16_load(weight + j * 16), v16_load(in), sum);
    }
    return sum;
}

/* The last K−1 inputs, from x or from the history itself. */
static inline void conv_remember(const float *x, float *history, int64_t tokens, int64_t d_conv)
{
    const int64_t past = d_conv - 1;
    for (int64_t j = 0; j < past; j++) {
        v16_store(history + j * 16, v16_load(conv_input(x, history, past, tokens - past + j)));
    }
}

static void kernel_conv_silu(const float *x, const float *weight, const float *bias, float *history,
                             float *out, float *sums, int64_t tokens, int64_t d_conv)
{
    for (int64_t t = 0; t < tokens; t++) {
        const v16 sum = conv_sum(x, weight, v16_load(bias), history, t, d_conv);
        if (sums) {
            v16_store(sums + t * 16, sum);
        }
        v16_store(out + t * 16, v16_silu(sum));
    }
    conv_remember(x, history, tokens, d_conv);
}

static void kernel_conv(const float *x, const float *weight, const float *bias, float *history,
                        float *out, int64_t tokens, int64_t d_conv)
{
    for (int64_t t = 0; t < tokens; t++) {
        v16_store(out + t * 16, conv_sum(x, weight, v16_load(bias), history, t, d_conv));
    }
    conv_remember(x, history, tokens, d_conv);
}

static double kernel_logsumexp(const float *x, int64_t count)
{
    const float maximum = row_maximum(x, count);
    return (double)maximum + log(row_exponentials(x, count, maximum, NULL));
}

static void kernel_flush(float *block, double *out, int64_t count)
{
    const v16 zero = v16_set(0.0f);
    for (int64_t i = 0; i < count; i += 16) {
        v16_add_to_f64(out + i, v16_load(block + i));
        v16_store(block + i, zero);
    }
}

#endif
