/* reference/ref_linear.c: y = x Wᵀ + b, columns of a matrix, and log Σ exp. */
#include "reference/reference.h"

#include <math.h>

enum { CHUNK = 256 };

/* y[t] += Σ_k w[k] x[t][k] over one stretch of `count` columns, the sum in rising k. Four tokens go
 * side by side only to keep the processor busy; no sum is reordered by it. */
static void add_products(const double *w, const double *x, int64_t cols, int64_t count, double *y,
                         int64_t rows, int64_t tokens)
{
    int64_t t = 0;
    for (; t + 4 <= tokens; t += 4) {
        double sum[4];
        for (int j = 0; j < 4; j++) {
            sum[j] = y[(t + j) * rows];
        }
        for (int64_t k = 0; k < count; k++) {
            const double *x_k = x + t * cols + k;
            sum[0] += w[k] * x_k[0];
            sum[1] += w[k] * x_k[cols];
            sum[2] += w[k] * x_k[2 * cols];
            sum[3] += w[k] * x_k[3 * cols];
        }
        for (int j = 0; j < 4; j++) {
            y[(t + j) * rows] = sum[j];
        }
    }
    for (; t < tokens; t++) {
        for (int64_t k = 0; k < count; k++) {
            y[t * rows] += w[k] * x[t * cols + k];
        }
    }
}

void ssm__ref_linear(const ssm_tensor *w, const ssm_tensor *bias, const double *x, double *y,
                     int64_t tokens)
{
    const int64_t rows = w->dims[0], cols = w->dims[1];
    for (int64_t row = 0; row < rows; row++) {
        const double bias_row = bias && bias->data ? ssm_tensor_get(bias, row) : 0.0;
        for (int64_t t = 0; t < tokens; t++) {
            y[t * rows + row] = bias_row;
        }
        for (int64_t k = 0; k < cols; k += CHUNK) {
            const int64_t count = cols - k < CHUNK ? cols - k : CHUNK;
            double chunk[CHUNK]; /* each weight is widened once, not once a token */
            for (int64_t i = 0; i < count; i++) {
                chunk[i] = ssm_tensor_get(w, row * cols + k + i);
            }
            add_products(chunk, x + k, cols, count, y + row, rows, tokens);
        }
    }
}

void ssm__ref_columns(const double *from, int64_t tokens, int64_t stride, int64_t begin,
                      int64_t width, double *to)
{
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t k = 0; k < width; k++) {
            to[t * width + k] = from[t * stride + begin + k];
        }
    }
}

void ssm__ref_put_columns(const double *from, int64_t tokens, int64_t width, double *to,
                          int64_t stride, int64_t begin)
{
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t k = 0; k < width; k++) {
            to[t * stride + begin + k] = from[t * width + k];
        }
    }
}

void ssm__ref_repeat(const ssm_tensor *row, int64_t tokens, int64_t width, double *to)
{
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t k = 0; k < width; k++) {
            to[t * width + k] = row->data ? ssm_tensor_get(row, k) : 0.0;
        }
    }
}

void ssm__ref_sum_tokens(const double *from, int64_t tokens, int64_t width, double *sum)
{
    for (int64_t t = 0; sum && t < tokens; t++) {
        for (int64_t k = 0; k < width; k++) {
            sum[k] += from[t * width + k];
        }
    }
}

double ssm__ref_logsumexp(const double *x, int64_t count)
{
    double max = x[0];
    for (int64_t i = 1; i < count; i++) {
        max = fmax(max, x[i]);
    }
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += exp(x[i] - max);
    }
    return max + log(sum);
}
