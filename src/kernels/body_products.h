/* kernels/body_products.h: gradients of y = x Wᵀ + b. */
#ifndef SSM_KERNELS_BODY_PRODUCTS_H
#define SSM_KERNELS_BODY_PRODUCTS_H

#include "kernels/training.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif

static inline float *view_at(ssm__view view, int64_t token, int64_t channel)
{
    return view.data + token * view.row_stride + channel / 16 * view.group_stride + channel % 16;
}

static void kernel_linear_input_gradient(const ssm__matrix *w, ssm__view dy, ssm__view dx,
                                         int64_t tokens, int64_t col_begin, int64_t col_end,
                                         bool accumulate)
{
    const float *weights = w->data;
    for (int64_t c = col_begin; c < col_end; c += 16) {
        const int64_t lanes = col_end - c < 16 ? col_end - c : 16;
        for (int64_t t = 0; t < tokens; t++) {
            float *out = view_at(dx, t, c);
            v16 sum = accumulate ? v16_load_n(out, lanes) : v16_set(0.0f);
            for (int64_t r = 0; r < w->rows; r++) {
                sum = v16_fma(v16_set(*view_at(dy, t, r)),
                              v16_load_n(weights + r * w->cols + c, lanes), sum);
            }
            v16_store_n(out, sum, lanes);
        }
    }
}

static void kernel_linear_weight_gradient(ssm__view dy, ssm__view x, int64_t tokens, int64_t cols,
                                          float *dw, int64_t row_begin, int64_t row_end)
{
    for (int64_t c = 0; c < cols; c += 16) {
        const int64_t lanes = cols - c < 16 ? cols - c : 16;
        for (int64_t r = row_begin; r < row_end; r++) {
            v16 sum = v16_load_n(dw + r * cols + c, lanes);
            for (int64_t t = 0; t < tokens; t++) {
                sum =
                    v16_fma(v16_set(*view_at(dy, t, r)), v16_load_n(view_at(x, t, c), lanes), sum);
            }
            v16_store_n(dw + r * cols + c, sum, lanes);
        }
    }
}

static void kernel_column_sums(ssm__view x, int64_t tokens, float *sums, int64_t col_begin,
                               int64_t col_end)
{
    for (int64_t c = col_begin; c < col_end; c += 16) {
        const int64_t lanes = col_end - c < 16 ? col_end - c : 16;
        v16 sum = v16_load_n(sums + c, lanes);
        for (int64_t t = 0; t < tokens; t++) {
            sum = v16_add(sum, v16_load_n(view_at(x, t, c), lanes));
        }
        v16_store_n(sums + c, sum, lanes);
    }
}

static void kernel_sum_parts(const float *parts, int64_t n_parts, ptrdiff_t part_stride,
                             int64_t rows, int64_t width, float *out, ptrdiff_t out_stride)
{
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < width; i += 16) {
            const int64_t lanes = width - i < 16 ? width - i : 16;
            const float *part = parts + row * width + i;
            v16 sum = v16_load_n(part, lanes);
            for (int64_t p = 1; p < n_parts; p++) {
                sum = v16_add(sum, v16_load_n(part + p * part_stride, lanes));
            }
            v16_store_n(out + row * out_stride + i, sum, lanes);
        }
    }
}

#endif
