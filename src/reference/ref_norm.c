/* reference/ref_norm.c: RMSNorm (Zhang & Sennrich, 2019). */
#include "reference/reference.h"

#include <math.h>

void ssm__ref_rmsnorm(const double *x, const ssm_tensor *weight, double *out, int64_t tokens,
                      int64_t width, double eps)
{
    for (int64_t t = 0; t < tokens; t++) {
        double sum = 0.0;
        for (int64_t k = 0; k < width; k++) {
            sum += x[t * width + k] * x[t * width + k];
        }
        const double scale = 1.0 / sqrt(sum / (double)width + eps);
        for (int64_t k = 0; k < width; k++) {
            const double weight_k = weight && weight->data ? ssm_tensor_get(weight, k) : 1.0;
            out[t * width + k] = x[t * width + k] * scale * weight_k;
        }
    }
}
