/* diagnose/summary.c: one pass over a tensor, row by row. */
#include "diagnose/summary.h"

#include <float.h>
#include <math.h>

#include "base/digest.h"
#include "base/half.h"
#include "checkpoint/tensor.h"

enum { BLOCK = 1024 };

typedef struct sums {
    double absolute, squares;
} sums;

static void add_number(ssm__summary *s, sums *t, float value, int64_t at)
{
    const double x = (double)value;
    if (!isfinite(value)) {
        s->nonfinite++;
        s->first_nonfinite = s->first_nonfinite < 0 ? at : s->first_nonfinite;
        return;
    }
    const double size = fabs(x);
    s->min = x < s->min ? x : s->min;
    s->max = x > s->max ? x : s->max;
    s->zeros += size == 0.0;
    s->subnormals += size > 0.0 && size < (double)FLT_MIN;
    t->absolute += size;
    t->squares += x * x;
}

static void add_types(ssm__summary *s, float value)
{
    if (s->fits_bf16) {
        s->fits_bf16 = (ssm__bits_from_f32(value) & 0xFFFFU) == 0;
    }
    if (s->fits_f16) {
        s->fits_f16 = ssm__f32_from_f16(ssm__f16_from_f32(value)) == value;
    }
}

/* `count` elements from `first` on; the sum of their squares. */
static double add_range(const ssm_tensor *tensor, int64_t first, int64_t count, ssm__summary *s,
                        double *absolute)
{
    float block[BLOCK];
    sums t = {0};
    for (int64_t done = 0; done < count; done += BLOCK) {
        const int64_t n = count - done < BLOCK ? count - done : BLOCK;
        ssm__tensor_range_to_f32(tensor, first + done, n, block);
        for (int64_t i = 0; i < n; i++) {
            add_number(s, &t, block[i], first + done + i);
        }
        for (int64_t i = 0; i < n && (s->fits_bf16 || s->fits_f16); i++) {
            add_types(s, block[i]);
        }
    }
    *absolute += t.absolute;
    return t.squares;
}

static void add_row(ssm__summary *s, int64_t row, double norm)
{
    if (norm == 0.0 && s->zero_rows++ == 0) {
        s->first_zero_row = row;
    }
    if (row == 0 || norm < s->smallest_row) {
        s->smallest_row = norm;
        s->smallest_at = row;
    }
    if (row == 0 || norm > s->largest_row) {
        s->largest_row = norm;
        s->largest_at = row;
    }
}

void ssm__summarize(const ssm_tensor *tensor, double *row_norms, ssm__summary *out)
{
    *out = (ssm__summary){.count = ssm_tensor_count(tensor),
                          .first_nonfinite = -1,
                          .first_zero_row = -1,
                          .min = INFINITY,
                          .max = -INFINITY,
                          .fits_bf16 = true,
                          .fits_f16 = true};
    const int64_t rows = tensor->n_dims == 2 ? tensor->dims[0] : 1;
    const int64_t width = out->count / rows;
    double absolute = 0.0, squares = 0.0;
    for (int64_t row = 0; row < rows; row++) {
        const double square = add_range(tensor, row * width, width, out, &absolute);
        squares += square;
        if (tensor->n_dims == 2) {
            add_row(out, row, sqrt(square));
        }
        if (row_norms != NULL) {
            row_norms[row] = sqrt(square);
        }
    }
    const int64_t finite = out->count - out->nonfinite;
    if (finite == 0) {
        out->min = out->max = NAN;
    } else {
        out->max_abs = -out->min > out->max ? -out->min : out->max;
        out->mean_abs = absolute / (double)finite;
        out->rms = sqrt(squares / (double)finite);
    }
    if (tensor->n_dims == 2) {
        out->rows = rows;
        ssm__digest_bytes(tensor->data, tensor->bytes, out->digest);
    }
}
