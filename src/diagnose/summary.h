/* diagnose/summary.h: one tensor in a few numbers. */
#ifndef SSM_DIAGNOSE_SUMMARY_H
#define SSM_DIAGNOSE_SUMMARY_H

#include <ssmscope/checkpoint.h>

typedef struct ssm__summary {
    int64_t count;
    int64_t nonfinite, first_nonfinite; /* −1: none; the rest is over the finite ones */
    int64_t zeros, subnormals;          /* subnormal as float32 */
    double min, max, max_abs, mean_abs, rms;
    bool fits_bf16, fits_f16; /* every number is one of that type */
    /* of a matrix; rows is 0 for other tensors */
    int64_t rows, zero_rows, first_zero_row;
    double smallest_row, largest_row; /* Euclidean norms */
    int64_t smallest_at, largest_at;
    char digest[64]; /* of the bytes of a matrix, else "" */
} ssm__summary;

/* tensor: F32, F16 or BF16, with at least one element. row_norms [rows] or NULL. */
void ssm__summarize(const ssm_tensor *tensor, double *row_norms, ssm__summary *out);

#endif
