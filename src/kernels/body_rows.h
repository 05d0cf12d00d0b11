/* kernels/body_rows.h: the Gram of a head over rows (token, channel), a symmetric product XᵀX.
 *
 * The modes of a head's channels are turned from channels in the lanes to modes in the lanes, so
 * that one row is what one channel has in one token: panels of 16 modes, row after row. Sixteen
 * (AVX2: six) rows of the Gram by sixteen columns stay in registers while all rows of the panels go
 * by, so that an entry is one chain of fused multiply-adds in row order, then added in float64. */
#ifndef SSM_KERNELS_BODY_ROWS_H
#define SSM_KERNELS_BODY_ROWS_H

#include "kernels/kernels.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/unroll.h"

/* modes [tokens][n_modes + 1][16] → rows of the panels and of `last`; see kernels.h. */
static void kernel_mode_rows(const float *modes, int64_t tokens, int64_t n_modes, int64_t row_step,
                             float *panels, ptrdiff_t panel_stride, float *last)
{
    for (int64_t t = 0; t < tokens; t++) {
        const float *signal = modes + t * (n_modes + 1) * 16;
        for (int64_t first = 0; first < n_modes; first += 16, signal += 16 * 16) {
            float *out = panels + first / 16 * panel_stride + t * row_step * 16;
            v16 v[16];
            const int64_t count = n_modes - first;
            if (count >= 16) {
                SSM__UNROLL
                for (int i = 0; i < 16; i++) {
                    v[i] = v16_load(signal + i * 16);
                }
            } else {
                for (int i = 0; i < 16; i++) {
                    v[i] = i < count ? v16_load(signal + i * 16) : v16_set(0.0f);
                }
            }
            v16_transpose(v);
            SSM__UNROLL
            for (int i = 0; i < 16; i++) {
                v16_store(out + i * 16, v[i]);
            }
        }
        v16_store(last + t * row_step, v16_load(modes + (t * (n_modes + 1) + n_modes) * 16));
    }
}

/* Entries of `count` ≤ ROWS_TILE modes, the first at lane 0 of `left`, with the 16 of `right`. */
SSM__INLINE void rows_block(const float *left, const float *right, int64_t rows, double *out,
                            ptrdiff_t width, const int count)
{
    v16 sum[ROWS_TILE];
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        sum[i] = v16_set(0.0f);
    }
    for (int64_t row = 0; row < rows; row++) {
        const v16 values = v16_load(right + row * 16);
        SSM__UNROLL
        for (int i = 0; i < count; i++) {
            sum[i] = v16_fma(v16_set(left[row * 16 + i]), values, sum[i]);
        }
    }
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        v16_add_to_f64(out + i * width, sum[i]);
    }
}

/* All 16 × 16 entries of two panels. */
static void rows_square(const float *left, const float *right, int64_t rows, double *out,
                        ptrdiff_t width)
{
    enum { WHOLE = 16 / ROWS_TILE * ROWS_TILE };
    for (int i = 0; i < WHOLE; i += ROWS_TILE) {
        rows_block(left + i, right, rows, out + i * width, width, ROWS_TILE);
    }
    if (WHOLE < 16) {
        rows_block(left + WHOLE, right, rows, out + WHOLE * width, width, 16 - WHOLE);
    }
}

/* A panel with itself: modes 0 to 7 with all 16, `count` from `first` ≥ 8 with the upper eight. */
SSM__INLINE void rows_lower(const float *panel, int64_t rows, double *out, ptrdiff_t width,
                            const int first, const int count)
{
    v8 sum[8];
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        sum[i] = v8_set(0.0f);
    }
    for (int64_t row = 0; row < rows; row++) {
        const v8 values = v8_load(panel + row * 16 + 8);
        SSM__UNROLL
        for (int i = 0; i < count; i++) {
            sum[i] = v8_fma(v8_set(panel[row * 16 + first + i]), values, sum[i]);
        }
    }
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        v8_add_to_f64(out + (first + i) * width + 8, sum[i]);
    }
}

static void rows_diagonal(const float *panel, int64_t rows, double *out, ptrdiff_t width)
{
    enum { TILE = ROWS_TILE < 8 ? ROWS_TILE : 8, WHOLE = 8 / TILE * TILE };
    for (int i = 0; i < WHOLE; i += TILE) {
        rows_block(panel + i, panel, rows, out + i * width, width, TILE);
    }
    if (WHOLE < 8) {
        rows_block(panel + WHOLE, panel, rows, out + WHOLE * width, width, 8 - WHOLE);
    }
    rows_lower(panel, rows, out, width, 8, 8);
}

/* Entries of `last` with `count` ≤ 4 panels. */
SSM__INLINE void rows_vector(const float *last, const float *panels, ptrdiff_t panel_stride,
                             int64_t rows, double *out, const int count)
{
    v16 sum[4];
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        sum[i] = v16_set(0.0f);
    }
    for (int64_t row = 0; row < rows; row++) {
        const v16 value = v16_set(last[row]);
        SSM__UNROLL
        for (int i = 0; i < count; i++) {
            sum[i] = v16_fma(value, v16_load(panels + i * panel_stride + row * 16), sum[i]);
        }
    }
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        v16_add_to_f64(out + i * 16, sum[i]);
    }
}

static void rows_last(const float *panels, ptrdiff_t panel_stride, const float *last, int64_t rows,
                      int64_t n_panels, double *out)
{
    int64_t panel = 0;
    for (; panel + 4 <= n_panels; panel += 4) {
        rows_vector(last, panels + panel * panel_stride, panel_stride, rows, out + panel * 16, 4);
    }
    for (; panel < n_panels; panel++) {
        rows_vector(last, panels + panel * panel_stride, panel_stride, rows, out + panel * 16, 1);
    }
    v16 sum = v16_set(0.0f); /* lane 0 is the sum; there is no vector of one lane */
    for (int64_t row = 0; row < rows; row++) {
        const v16 value = v16_set(last[row]);
        sum = v16_fma(value, value, sum);
    }
    float square[16];
    v16_store(square, sum);
    out[n_panels * 16] += (double)square[0];
}

static void kernel_gram_rows(const float *panels, ptrdiff_t panel_stride, const float *last,
                             int64_t rows, int64_t n_modes, double *gram)
{
    const int64_t n_panels = (n_modes + 15) / 16;
    for (int64_t i = 0; i < n_panels; i++) {
        const ptrdiff_t width = (ptrdiff_t)(n_panels - i) * 16;
        const float *left = panels + i * panel_stride;
        rows_diagonal(left, rows, gram, width);
        for (int64_t j = i + 1; j < n_panels; j++) {
            rows_square(left, panels + j * panel_stride, rows, gram + (j - i) * 16, width);
        }
        gram += 16 * width;
    }
    rows_last(panels, panel_stride, last, rows, n_panels, gram);
}

#endif
