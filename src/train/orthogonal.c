#include "train/orthogonal.h"

#include <math.h>

static double product(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t k = 0; k < count; k++) {
        sum += a[k] * b[k];
    }
    return sum;
}

void ssm__orthonormal_rows(ssm_rng *rng, int64_t rows, int64_t cols, double *Q)
{
    for (int64_t i = 0; i < rows; i++) {
        double *row = Q + i * cols;
        for (int64_t k = 0; k < cols; k++) {
            row[k] = ssm_rng_normal(rng);
        }
        for (int64_t j = 0; j < 2 * i; j++) { /* once more, against what rounding left */
            const double *other = Q + j % i * cols;
            const double part = product(row, other, cols);
            for (int64_t k = 0; k < cols; k++) {
                row[k] -= part * other[k];
            }
        }
        const double norm = sqrt(product(row, row, cols));
        for (int64_t k = 0; k < cols; k++) {
            row[k] /= norm;
        }
    }
}
