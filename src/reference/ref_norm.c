/* reference/ref_norm.c: RMSNorm (Zhang & Sennrich, 2019), LayerNorm (Ba et al., 2016) and the
 * gated norm of Mamba-2. */
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

void ssm__ref_layernorm(const double *x, const ssm_tensor *weight, const ssm_tensor *bias,
                        double *out, int64_t tokens, int64_t width, double eps)
{
    for (int64_t t = 0; t < tokens; t++) {
        double mean = 0.0, variance = 0.0;
        for (int64_t k = 0; k < width; k++) {
            mean += x[t * width + k] / (double)width;
        }
        for (int64_t k = 0; k < width; k++) {
            const double centred = x[t * width + k] - mean;
            variance += centred * centred / (double)width;
        }
        for (int64_t k = 0; k < width; k++) {
            const double bias_k = bias && bias->data ? ssm_tensor_get(bias, k) : 0.0;
            out[t * width + k] =
                (x[t * width + k] - mean) / sqrt(variance + eps) * ssm_tensor_get(weight, k) +
                bias_k;
        }
    }
}

void ssm__ref_block_norm(const ssm_config *config, const ssm_tensor *weight, const ssm_tensor *bias,
                         const double *x, double *out, int64_t tokens)
{
    if (!weight->data) {
        ssm__ref_columns(x, tokens, config->d_model, 0, config->d_model, out);
    } else if (config->layer_norm) {
        ssm__ref_layernorm(x, weight, bias, out, tokens, config->d_model, config->norm_eps);
    } else {
        ssm__ref_rmsnorm(x, weight, out, tokens, config->d_model, config->norm_eps);
    }
}

void ssm__ref_gated_norm(const ssm_config *config, const ssm_tensor *weight, const double *v,
                         const double *z, double *y, int64_t tokens)
{
    const int64_t S = config->d_ssm;
    if (!config->gated_norm) {
        for (int64_t i = 0; i < tokens * S; i++) {
            y[i] = v[i];
        }
        return;
    }
    /* A group of channels is a row of its own. */
    const int64_t groups = config->norm_groups;
    ssm__ref_rmsnorm(v, NULL, y, tokens * groups, S / groups, config->mixer_norm_eps);
    for (int64_t i = 0; i < tokens * S; i++) {
        y[i] *= ssm_tensor_get(weight, i % S);
        if (config->norm_before_gate) {
            y[i] *= ssm__ref_silu(z[i]);
        }
    }
}
