/* kernels/body_ssd_tile.h: the product that Mamba-2's chunked form is made of, forwards and
 * backwards: a tile of rows × vectors of columns in registers, row factors broadcast, no sum across
 * lanes. */
#ifndef SSM_KERNELS_BODY_SSD_TILE_H
#define SSM_KERNELS_BODY_SSD_TILE_H

#include <stddef.h>

#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/unroll.h"

enum { SSD_MOST_ROWS = 8, SSD_MOST_COLS = 2 };

/* Row factors: that of row r in step k is at data[r·row + k·step]. */
typedef struct ssd_factors {
    const float *data;
    ptrdiff_t row, step;
} ssd_factors;

/* sum[r][c] += factor(r, k)·v[c·v_group + k·16] for k < count. rows, cols are constants. */
SSM__INLINE void ssd_products(v16 sum[SSD_MOST_ROWS][SSD_MOST_COLS], ssd_factors f, const float *v,
                              ptrdiff_t v_group, int64_t count, const int rows, const int cols)
{
    for (int64_t k = 0; k < count; k++) {
        v16 right[SSD_MOST_COLS];
        SSM__UNROLL
        for (int c = 0; c < cols; c++) {
            right[c] = v16_load(v + c * v_group + k * 16);
        }
        SSM__UNROLL
        for (int r = 0; r < rows; r++) {
            const v16 left = v16_set(f.data[r * f.row + k * f.step]);
            SSM__UNROLL
            for (int c = 0; c < cols; c++) {
                sum[r][c] = v16_fma(left, right[c], sum[r][c]);
            }
        }
    }
}

#endif
