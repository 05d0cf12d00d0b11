/* kernels/body_gram.h: the uncentred Gram of the mode outputs of 16 channels.
 *
 * Every entry is one sum by FMA in rising t, continued from call to call; blocks of entries are
 * kept in registers while the tokens go by. */
#ifndef SSM_KERNELS_BODY_GRAM_H
#define SSM_KERNELS_BODY_GRAM_H

#include "kernels/kernels.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/unroll.h"

/* Index of (i, j), i ≤ j < m, in the row-major upper triangle of an m×m matrix. */
SSM__INLINE int64_t gram_row(int64_t i, int64_t j, int64_t m)
{
    return i * m - i * (i - 1) / 2 + (j - i);
}

/* Entries (i0 … i0+rows−1) × (j0 … j0+cols−1); only those on and above the diagonal when the block
 * lies on it. rows, cols and diagonal are constants where this is inlined. */
SSM__INLINE void gram_block(const float *modes, int64_t tokens, int64_t m, float *gram, int64_t i0,
                            int64_t j0, const int rows, const int cols, const bool diagonal)
{
    v16 sum[4][4];
    SSM__UNROLL
    for (int i = 0; i < rows; i++) {
        SSM__UNROLL
        for (int j = diagonal ? i : 0; j < cols; j++) {
            sum[i][j] = v16_load(gram + gram_row(i0 + i, j0 + j, m) * 16);
        }
    }
    for (int64_t t = 0; t < tokens; t++) {
        const float *row = modes + t * m * 16;
        v16 right[4];
        SSM__UNROLL
        for (int j = 0; j < cols; j++) {
            right[j] = v16_load(row + (j0 + j) * 16);
        }
        SSM__UNROLL
        for (int i = 0; i < rows; i++) {
            const v16 left = v16_load(row + (i0 + i) * 16);
            SSM__UNROLL
            for (int j = diagonal ? i : 0; j < cols; j++) {
                sum[i][j] = v16_fma(left, right[j], sum[i][j]);
            }
        }
    }
    SSM__UNROLL
    for (int i = 0; i < rows; i++) {
        SSM__UNROLL
        for (int j = diagonal ? i : 0; j < cols; j++) {
            v16_store(gram + gram_row(i0 + i, j0 + j, m) * 16, sum[i][j]);
        }
    }
}

/* The columns right of the last whole block, one at a time against `rows` rows. */
SSM__INLINE void gram_edge(const float *modes, int64_t tokens, int64_t m, float *gram, int64_t i0,
                           int64_t whole, const int rows)
{
    for (int64_t j = whole; j < m; j++) {
        gram_block(modes, tokens, m, gram, i0, j, rows, 1, false);
    }
}

/* modes [tokens][n_modes + 1][16]: the triangle of all n_modes + 1 signals. */
static void kernel_gram(const float *modes, int64_t tokens, int64_t n_modes, float *gram)
{
    const int64_t m = n_modes + 1;
    const int64_t whole = m - m % GRAM_COLS;
    for (int64_t i = 0; i < whole; i += GRAM_ROWS) {
        gram_block(modes, tokens, m, gram, i, i, GRAM_ROWS, GRAM_COLS, true);
        for (int64_t j = i + GRAM_COLS; j < whole; j += GRAM_COLS) {
            gram_block(modes, tokens, m, gram, i, j, GRAM_ROWS, GRAM_COLS, false);
        }
        gram_edge(modes, tokens, m, gram, i, whole, GRAM_ROWS);
    }
    for (int64_t i = whole; i < m; i++) {
        for (int64_t j = i; j < m; j++) {
            gram_block(modes, tokens, m, gram, i, j, 1, 1, false);
        }
    }
}

static void kernel_energy(const float *modes, int64_t tokens, int64_t n_modes, float *energy)
{
    for (int64_t i = 0; i < n_modes; i++) {
        gram_block(modes + i * 16, tokens, n_modes + 1, energy + i * 16, 0, 0, 1, 1, false);
    }
}

#endif
