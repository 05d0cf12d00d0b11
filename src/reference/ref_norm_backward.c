/* reference/ref_norm_backward.c: gradients of RMSNorm, LayerNorm and the gated norm of Mamba-2.
 *
 * RMSNorm: x̂ = x / r, r = sqrt(mean x² + ε), y = w x̂; with s = w dy
 *   dw = Σ_t dy x̂,  dx = (s − x̂ mean(s x̂)) / r
 * LayerNorm: x̂ = (x − mean x) / r, r = sqrt(variance x + ε), y = w x̂ + b
 *   dw and db likewise,  dx = (s − mean s − x̂ mean(s x̂)) / r */
#include "reference/backward.h"

#include <math.h>

static double weight_at(const ssm_tensor *weight, int64_t k)
{
    return weight && weight->data ? ssm_tensor_get(weight, k) : 1.0;
}

/* One row of either; mean is the row's for LayerNorm and 0 for RMSNorm. */
static void norm_row_backward(const double *x, const ssm_tensor *weight, const double *dy,
                              int64_t width, double eps, bool centred, double *dx, double *dweight)
{
    double mean = 0.0, square = 0.0, mean_s = 0.0, mean_sx = 0.0;
    for (int64_t k = 0; centred && k < width; k++) {
        mean += x[k] / (double)width;
    }
    for (int64_t k = 0; k < width; k++) {
        square += (x[k] - mean) * (x[k] - mean) / (double)width;
    }
    const double r = sqrt(square + eps);
    for (int64_t k = 0; k < width; k++) {
        const double s = weight_at(weight, k) * dy[k], x_hat = (x[k] - mean) / r;
        mean_s += centred ? s / (double)width : 0.0;
        mean_sx += s * x_hat / (double)width;
        if (dweight) {
            dweight[k] += dy[k] * x_hat;
        }
    }
    for (int64_t k = 0; k < width; k++) {
        const double s = weight_at(weight, k) * dy[k], x_hat = (x[k] - mean) / r;
        dx[k] = (s - mean_s - x_hat * mean_sx) / r;
    }
}

void ssm__ref_rmsnorm_backward(const double *x, const ssm_tensor *weight, const double *dy,
                               int64_t tokens, int64_t width, double eps, double *dx,
                               double *dweight)
{
    for (int64_t t = 0; t < tokens; t++) {
        norm_row_backward(x + t * width, weight, dy + t * width, width, eps, false, dx + t * width,
                          dweight);
    }
}

void ssm__ref_layernorm_backward(const double *x, const ssm_tensor *weight, const double *dy,
                                 int64_t tokens, int64_t width, double eps, double *dx,
                                 double *dweight, double *dbias)
{
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t k = 0; dbias && k < width; k++) {
            dbias[k] += dy[t * width + k];
        }
        norm_row_backward(x + t * width, weight, dy + t * width, width, eps, true, dx + t * width,
                          dweight);
    }
}

void ssm__ref_block_norm_backward(const ssm_config *config, const ssm_tensor *weight,
                                  const double *x, const double *dy, int64_t tokens, double *dx,
                                  double *dweight, double *dbias)
{
    const int64_t D = config->d_model;
    if (!weight->data) {
        ssm__ref_columns(dy, tokens, D, 0, D, dx);
    } else if (config->layer_norm) {
        ssm__ref_layernorm_backward(x, weight, dy, tokens, D, config->norm_eps, dx, dweight, dbias);
    } else {
        ssm__ref_rmsnorm_backward(x, weight, dy, tokens, D, config->norm_eps, dx, dweight);
    }
}
