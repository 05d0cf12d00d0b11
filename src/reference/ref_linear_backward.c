/* reference/ref_linear_backward.c: gradients of y = x Wᵀ + b. */
#include "reference/backward.h"

void ssm__ref_linear_backward(const ssm_tensor *w, const double *x, const double *dy,
                              int64_t tokens, double *dx, double *dw, double *dbias)
{
    const int64_t rows = w->dims[0], cols = w->dims[1];
    for (int64_t i = 0; dx && i < tokens * cols; i++) {
        dx[i] = 0.0;
    }
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t k = 0; k < cols; k++) {
            const double weight = ssm_tensor_get(w, row * cols + k);
            double sum = 0.0;
            for (int64_t t = 0; t < tokens; t++) {
                sum += dy[t * rows + row] * x[t * cols + k];
                if (dx) {
                    dx[t * cols + k] += dy[t * rows + row] * weight;
                }
            }
            if (dw) {
                dw[row * cols + k] += sum;
            }
        }
        for (int64_t t = 0; dbias && t < tokens; t++) {
            dbias[row] += dy[t * rows + row];
        }
    }
}
