/* kernels/body_products.h: gradients of y = x Wᵀ + b, and the sums that go with them.
 *
 * Both gradients are outer products: what runs along the result's columns is in the lanes, what
 * runs along its rows is spread, so that an element is one chain of fused multiply-adds in rising
 * k and no lane is summed with another. Forty-eight columns of one operand are packed for L1. */
#ifndef SSM_KERNELS_BODY_PRODUCTS_H
#define SSM_KERNELS_BODY_PRODUCTS_H

#include "kernels/training.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_lanes.h"
#include "kernels/unroll.h"

static inline float *view_at(ssm__view view, int64_t token, int64_t channel)
{
    return view.data + token * view.row_stride + channel / 16 * view.group_stride + channel % 16;
}

/* ---- C(m, n) += Σ_k A(m, k) P[k][n]: a tile of C in registers while a packed panel goes by -----
 */

enum {
    PANEL_VECTORS = 3,
    PANEL_COLS = 16 * PANEL_VECTORS,
    INPUT_TOKENS = 512, /* whose dy of INPUT_ROWS rows stays in L2 while panels of w pass */
    INPUT_ROWS = 128,   /* of w in a panel: 24 KiB, L1 but for a tile's dy */
    WEIGHT_TOKENS = 96, /* in a panel of x: 18 KiB; dy of 16 rows is 6 */
    WEIGHT_ROWS = 128   /* of dw that a panel of x serves */
};

/* A(m, k) is a[m·a_row + k/chunk·a_chunk + k%chunk·a_step]; one of a_row and a_step is 1. C(m, n)
 * is c[m·c_row + n/16·c_group + n%16]. */
typedef struct product {
    const float *a;
    ptrdiff_t a_row, a_step, a_chunk;
    int64_t chunk, steps; /* of k; chunk does not exceed steps unless all is one chunk */
    const float *panel;   /* [steps][PANEL_COLS] */
    float *c;
    ptrdiff_t c_row, c_group;
    int64_t rows, cols; /* of C; cols ≤ PANEL_COLS */
    bool from_zero;     /* C is written, not added to */
} product;

static int64_t at_most(int64_t count, int64_t limit)
{
    return count < limit ? count : limit;
}

SSM__INLINE v16 product_load(const product *p, const float *c, int64_t left)
{
    if (p->from_zero) {
        return v16_set(0.0f);
    }
    return v16_take(c, left);
}

/* Rows m … m+rows−1 and `vectors` vectors from `first` on. a_row or a_step is 1, as by_rows says.
 */
SSM__INLINE void product_tile(const product *p, int64_t m, int64_t first, const int rows,
                              const int vectors, const bool by_rows)
{
    const ptrdiff_t a_row = by_rows ? 1 : p->a_row, a_step = by_rows ? p->a_step : 1;
    const float *a = p->a + m * a_row, *panel = p->panel + first * 16;
    float *c = p->c + m * p->c_row + first * p->c_group;
    const int64_t cols = p->cols - first * 16;
    v16 sum[PRODUCT_ROWS * PRODUCT_COLS];
    SSM__UNROLL
    for (int i = 0; i < rows; i++) {
        SSM__UNROLL
        for (int j = 0; j < vectors; j++) {
            sum[i * vectors + j] =
                product_load(p, c + i * p->c_row + j * p->c_group, cols - j * 16);
        }
    }
    for (int64_t left = p->steps; left > 0; left -= p->chunk, a += p->a_chunk) {
        const int64_t steps = left < p->chunk ? left : p->chunk;
        const float *at = a;
        for (int64_t k = 0; k < steps; k++, at += a_step, panel += PANEL_COLS) {
            v16 line[PRODUCT_COLS];
            SSM__UNROLL
            for (int j = 0; j < vectors; j++) {
                line[j] = v16_load(panel + j * 16);
            }
            SSM__UNROLL
            for (int i = 0; i < rows; i++) {
                const v16 factor = v16_set(at[i * a_row]);
                SSM__UNROLL
                for (int j = 0; j < vectors; j++) {
                    sum[i * vectors + j] = v16_fma(factor, line[j], sum[i * vectors + j]);
                }
            }
        }
    }
    SSM__UNROLL
    for (int i = 0; i < rows; i++) {
        SSM__UNROLL
        for (int j = 0; j < vectors; j++) {
            float *to = c + i * p->c_row + j * p->c_group;
            v16_put(to, sum[i * vectors + j], cols - j * 16);
        }
    }
}

SSM__INLINE void product_rows(const product *p, int64_t first, const int vectors,
                              const bool by_rows)
{
    enum { FOUR = PRODUCT_ROWS < 4 ? PRODUCT_ROWS : 4 };
    int64_t m = 0;
    for (; m + PRODUCT_ROWS <= p->rows; m += PRODUCT_ROWS) {
        product_tile(p, m, first, PRODUCT_ROWS, vectors, by_rows);
    }
    for (; m + FOUR <= p->rows; m += FOUR) {
        product_tile(p, m, first, FOUR, vectors, by_rows);
    }
    for (; m < p->rows; m++) {
        product_tile(p, m, first, 1, vectors, by_rows);
    }
}

/* All of C. */
SSM__INLINE void product_panel(const product *p, const bool by_rows)
{
    const int64_t vectors = (p->cols + 15) / 16;
    int64_t first = 0;
    for (; first + PRODUCT_COLS <= vectors; first += PRODUCT_COLS) {
        product_rows(p, first, PRODUCT_COLS, by_rows);
    }
    if (PRODUCT_COLS > 2 && vectors - first == 2) {
        product_rows(p, first, PRODUCT_COLS > 2 ? 2 : 1, by_rows);
        return;
    }
    for (; first < vectors; first++) {
        product_rows(p, first, 1, by_rows);
    }
}

/* Columns of the next panel when `left` are left: 64 are two of 32, one of 16 would be slow. */
static int64_t panel_cols(int64_t left)
{
    return left > PANEL_COLS && left <= 64 ? 32 : at_most(left, PANEL_COLS);
}

/* Copies `cols` columns from c on of rows first … first+rows−1 into a panel, missing ones as 0. */
static void product_pack(ssm__view from, int64_t first, int64_t rows, int64_t c, int64_t cols,
                         float *panel)
{
    for (int64_t k = 0; k < rows; k++, panel += PANEL_COLS) {
        for (int64_t j = 0; j * 16 < cols; j++) {
            const float *in = view_at(from, first + k, c + j * 16);
            v16_store(panel + j * 16, v16_take(in, cols - j * 16));
        }
    }
}

static void kernel_linear_input_gradient(const ssm__matrix *w, ssm__view dy, ssm__view dx,
                                         int64_t tokens, int64_t col_begin, int64_t col_end,
                                         bool accumulate)
{
    float panel[INPUT_ROWS * PANEL_COLS];
    const ssm__view weights = {(float *)(uintptr_t)w->data, (ptrdiff_t)w->cols, 16};
    for (int64_t t = 0; t < tokens; t += INPUT_TOKENS) {
        for (int64_t r = 0; r < w->rows; r += INPUT_ROWS) {
            const int64_t rows = at_most(w->rows - r, INPUT_ROWS);
            for (int64_t c = col_begin, cols; c < col_end; c += cols) {
                cols = panel_cols(col_end - c);
                product_pack(weights, r, rows, c, cols, panel);
                const product p = {.a = view_at(dy, t, r),
                                   .a_row = dy.row_stride,
                                   .a_step = 1,
                                   .a_chunk = dy.group_stride,
                                   .chunk = 16,
                                   .steps = rows,
                                   .panel = panel,
                                   .c = view_at(dx, t, c),
                                   .c_row = dx.row_stride,
                                   .c_group = dx.group_stride,
                                   .rows = at_most(tokens - t, INPUT_TOKENS),
                                   .cols = cols,
                                   .from_zero = r == 0 && !accumulate};
                product_panel(&p, false);
            }
        }
    }
}

/* dw[r … r+rows) of some tokens; dy of these rows and tokens in `near`, [group][tokens][16]. */
static void weight_rows(const float *near, ssm__view x, int64_t t, int64_t tokens, int64_t cols,
                        float *dw, int64_t rows)
{
    float panel[WEIGHT_TOKENS * PANEL_COLS];
    for (int64_t c = 0, width; c < cols; c += width) {
        width = panel_cols(cols - c);
        product_pack(x, t, tokens, c, width, panel);
        for (int64_t r = 0; r < rows; r += 16) {
            const product p = {.a = near + r * tokens,
                               .a_row = 1,
                               .a_step = 16,
                               .chunk = tokens,
                               .steps = tokens,
                               .panel = panel,
                               .c = dw + r * cols + c,
                               .c_row = (ptrdiff_t)cols,
                               .c_group = 16,
                               .rows = at_most(rows - r, 16),
                               .cols = width};
            product_panel(&p, true);
        }
    }
}

/* Rows go by outside tokens, so that their part of dw stays in L2. */
static void kernel_linear_weight_gradient(ssm__view dy, ssm__view x, int64_t tokens, int64_t cols,
                                          float *dw, int64_t row_begin, int64_t row_end)
{
    float near[WEIGHT_ROWS * WEIGHT_TOKENS];
    for (int64_t r = row_begin; r < row_end; r += WEIGHT_ROWS) {
        const int64_t rows = at_most(row_end - r, WEIGHT_ROWS);
        for (int64_t t = 0; t < tokens; t += WEIGHT_TOKENS) {
            const int64_t count = at_most(tokens - t, WEIGHT_TOKENS);
            for (int64_t i = 0; i < rows; i += 16) {
                for (int64_t k = 0; k < count; k++) {
                    const float *in = view_at(dy, t + k, r + i);
                    v16_store(near + i * count + k * 16, v16_take(in, rows - i));
                }
            }
            weight_rows(near, x, t, count, cols, dw + r * cols, rows);
        }
    }
}

/* ---- sums --------------------------------------------------------------------------------------
 */

static void kernel_column_sums(ssm__view x, int64_t tokens, float *sums, int64_t col_begin,
                               int64_t col_end)
{
    for (int64_t c = col_begin; c < col_end; c += 16) {
        const int64_t left = col_end - c;
        v16 sum = v16_take(sums + c, left);
        for (int64_t t = 0; t < tokens; t++) {
            sum = v16_add(sum, v16_take(view_at(x, t, c), left));
        }
        v16_put(sums + c, sum, left);
    }
}

static void kernel_sum_parts(const float *parts, int64_t n_parts, ptrdiff_t part_stride,
                             int64_t rows, int64_t width, float *out, ptrdiff_t out_stride)
{
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < width; i += 16) {
            const int64_t left = width - i;
            const float *part = parts + row * width + i;
            v16 sum = v16_take(part, left);
            for (int64_t p = 1; p < n_parts; p++) {
                sum = v16_add(sum, v16_take(part + p * part_stride, left));
            }
            v16_put(out + row * out_stride + i, sum, left);
        }
    }
}

#endif
