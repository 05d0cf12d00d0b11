/* kernels/body_norm_backward.h: gradients of rmsnorm and layernorm.
 *
 * A row stays in L1 while it is passed over: the sums that the forward kernel takes, in its order,
 * then the inner products of the gradient, then the result. Inner products keep the summation law.
 */
#ifndef SSM_KERNELS_BODY_NORM_BACKWARD_H
#define SSM_KERNELS_BODY_NORM_BACKWARD_H

#include "kernels/training.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_lanes.h"
#include "kernels/body_math.h"

/* w·dy for `left` columns (at most 16) from k on. */
static inline v16 norm_upstream(const float *weight, const float *dy, int64_t k, int64_t left)
{
    const v16 d = v16_take(dy + k, left);
    return weight ? v16_mul(v16_take(weight + k, left), d) : d;
}

static void kernel_rmsnorm_input_gradient(const float *x, const float *weight, const float *dy,
                                          float *dx, float *scales, int64_t tokens, int64_t width,
                                          float eps, bool accumulate)
{
    for (int64_t t = 0; t < tokens; t++, x += width, dy += width, dx += width) {
        v16 squares = v16_set(0.0f), products = v16_set(0.0f);
        for (int64_t k = 0; k < width; k += 16) {
            const int64_t left = width - k;
            const v16 v = v16_take(x + k, left);
            squares = v16_fma(v, v, squares);
            products = v16_fma(norm_upstream(weight, dy, k, left), v, products);
        }
        const float scale = norm_scale(v16_sum(squares), width, eps);
        const float pull = v16_sum(products) / (float)width * scale * scale;
        scales[t] = scale;
        for (int64_t k = 0; k < width; k += 16) {
            const int64_t left = width - k;
            const v16 up = norm_upstream(weight, dy, k, left);
            const v16 inner = v16_fnma(v16_take(x + k, left), v16_set(pull), up);
            const v16 base = accumulate ? v16_take(dx + k, left) : v16_set(0.0f);
            v16_put(dx + k, v16_fma(v16_set(scale), inner, base), left);
        }
    }
}

static void kernel_rmsnorm_weight_gradient(const float *x, const float *dy, const float *scales,
                                           float *dweight, int64_t tokens, int64_t width,
                                           int64_t col_begin, int64_t col_end)
{
    for (int64_t c = col_begin; c < col_end; c += 16) {
        const int64_t left = col_end - c;
        v16 sum = v16_take(dweight + c, left);
        for (int64_t t = 0; t < tokens; t++) {
            const v16 normed = v16_mul(v16_take(x + t * width + c, left), v16_set(scales[t]));
            sum = v16_fma(v16_take(dy + t * width + c, left), normed, sum);
        }
        v16_put(dweight + c, sum, left);
    }
}

/* Σ of one row (lane j its columns ≡ j, then the tree). */
static inline float norm_row_sum(const float *x, int64_t width)
{
    v16 sum = v16_set(0.0f);
    for (int64_t k = 0; k < width; k += 16) {
        sum = v16_add(v16_take(x + k, width - k), sum);
    }
    return v16_sum(sum);
}

/* x − mean; padding lanes stay zero. */
static inline v16 norm_centred(const float *x, float mean, int64_t k, int64_t left)
{
    const v16 v = v16_sub(v16_take(x + k, left), v16_set(mean));
    if (left >= 16) {
        return v;
    }
    float row[16];
    v16_store(row, v);
    return v16_take(row, left);
}

static void kernel_layernorm_input_gradient(const float *x, const float *weight, const float *dy,
                                            float *dx, float *means, float *scales, int64_t tokens,
                                            int64_t width, float eps, bool accumulate)
{
    for (int64_t t = 0; t < tokens; t++, x += width, dy += width, dx += width) {
        const float mean = norm_row_sum(x, width) / (float)width;
        v16 squares = v16_set(0.0f), products = v16_set(0.0f), ups = v16_set(0.0f);
        for (int64_t k = 0; k < width; k += 16) {
            const int64_t left = width - k;
            const v16 v = norm_centred(x, mean, k, left);
            const v16 up = norm_upstream(weight, dy, k, left);
            squares = v16_fma(v, v, squares);
            products = v16_fma(up, v, products);
            ups = v16_add(up, ups);
        }
        const float scale = norm_scale(v16_sum(squares), width, eps);
        const float pull = v16_sum(products) / (float)width * scale * scale;
        const v16 up_mean = v16_set(v16_sum(ups) / (float)width);
        means[t] = mean;
        scales[t] = scale;
        for (int64_t k = 0; k < width; k += 16) {
            const int64_t left = width - k;
            const v16 up = v16_sub(norm_upstream(weight, dy, k, left), up_mean);
            const v16 inner = v16_fnma(norm_centred(x, mean, k, left), v16_set(pull), up);
            const v16 base = accumulate ? v16_take(dx + k, left) : v16_set(0.0f);
            v16_put(dx + k, v16_fma(v16_set(scale), inner, base), left);
        }
    }
}

static void kernel_layernorm_weight_gradient(const float *x, const float *dy, const float *means,
                                             const float *scales, float *dweight, float *dbias,
                                             int64_t tokens, int64_t width, int64_t col_begin,
                                             int64_t col_end)
{
    for (int64_t c = col_begin; c < col_end; c += 16) {
        const int64_t left = col_end - c;
        v16 sum = v16_take(dweight + c, left);
        v16 bias = dbias ? v16_take(dbias + c, left) : v16_set(0.0f);
        for (int64_t t = 0; t < tokens; t++) {
            const v16 centred = v16_sub(v16_take(x + t * width + c, left), v16_set(means[t]));
            const v16 d = v16_take(dy + t * width + c, left);
            sum = v16_fma(d, v16_mul(centred, v16_set(scales[t])), sum);
            bias = v16_add(bias, d);
        }
        v16_put(dweight + c, sum, left);
        if (dbias) {
            v16_put(dbias + c, bias, left);
        }
    }
}

#endif
