/* kernels/linear_portable.c: the summation law written out; what the other variants must equal.
 *
 * One token and one weight row at a time: 16 lanes, one fmaf each per group of 16 columns, the
 * last group padded with +0 on both sides (which turns a lane of −0 into +0, so it is part of the
 * law), then the tree. The row of w is converted to float32 group by group for a few tokens. */
#include "kernels/linear.h"

#include "base/half.h"

#include <math.h>
#include <string.h>

/* Tokens that share one conversion of a weight group. */
enum { TOKENS = 8 };

/* w[0 … count) as float32, +0 above; data may be unaligned. */
static void load_weights(const unsigned char *data, ssm_dtype dtype, int count,
                         float out[SSM__LANES])
{
    for (int lane = 0; lane < SSM__LANES; lane++) {
        out[lane] = 0.0f;
    }
    if (dtype == SSM_DTYPE_F32) {
        memcpy(out, data, (size_t)count * sizeof(float));
        return;
    }
    uint16_t half[SSM__LANES];
    memcpy(half, data, (size_t)count * sizeof(uint16_t));
    for (int lane = 0; lane < count; lane++) {
        out[lane] = dtype == SSM_DTYPE_BF16 ? ssm__f32_from_bf16(half[lane])
                                            : ssm__f32_from_f16(half[lane]);
    }
}

static void add_products(const float weight[SSM__LANES], const float *x, int count,
                         float lanes[SSM__LANES])
{
    for (int lane = 0; lane < count; lane++) {
        lanes[lane] = fmaf(x[lane], weight[lane], lanes[lane]);
    }
    for (int lane = count; lane < SSM__LANES; lane++) {
        lanes[lane] = fmaf(0.0f, 0.0f, lanes[lane]);
    }
}

static float sum_lanes(float lanes[SSM__LANES])
{
    for (int half = SSM__LANES / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; lane++) {
            lanes[lane] += lanes[lane + half];
        }
    }
    return lanes[0];
}

void ssm__linear_portable(const ssm__matrix *w, const float *bias, ssm__view x, ssm__view y,
                          int64_t tokens, int64_t row_begin, int64_t row_end)
{
    const size_t bytes = w->dtype == SSM_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    const int64_t groups = (w->cols + SSM__LANES - 1) / SSM__LANES;
    for (int64_t n = row_begin; n < row_end; n++) {
        const unsigned char *row = (const unsigned char *)w->data + (size_t)(n * w->cols) * bytes;
        float *y_column = y.data + (n / SSM__LANES) * y.group_stride + n % SSM__LANES;
        for (int64_t first = 0; first < tokens; first += TOKENS) {
            const int count = (int)(tokens - first < TOKENS ? tokens - first : TOKENS);
            float lanes[TOKENS][SSM__LANES] = {{0.0f}};
            for (int64_t group = 0; group < groups; group++) {
                const int64_t k = group * SSM__LANES;
                const int width = (int)(w->cols - k < SSM__LANES ? w->cols - k : SSM__LANES);
                float weight[SSM__LANES];
                load_weights(row + (size_t)k * bytes, w->dtype, width, weight);
                const float *x_group = x.data + first * x.row_stride + group * x.group_stride;
                for (int t = 0; t < count; t++) {
                    add_products(weight, x_group + t * x.row_stride, width, lanes[t]);
                }
            }
            for (int t = 0; t < count; t++) {
                const float sum = sum_lanes(lanes[t]);
                y_column[(first + t) * y.row_stride] = bias != NULL ? sum + bias[n] : sum;
            }
        }
    }
}
