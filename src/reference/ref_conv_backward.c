/* reference/ref_conv_backward.c: gradients of the causal depthwise convolution, SiLU, sigmoid.
 *
 *   out[t] = bias + Σ_j w[j] x[t − (K−1) + j]
 *   dw[j] = Σ_t dout[t] x[t − (K−1) + j],  dx[s] = Σ_j w[j] dout[s + (K−1) − j],  dbias = Σ_t
 * dout[t] SiLU'(a) = σ(a) (1 + a (1 − σ(a))) */
#include "reference/backward.h"

#include <math.h>

double ssm__ref_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

double ssm__ref_silu_slope(double x)
{
    const double sigmoid = ssm__ref_sigmoid(x);
    return sigmoid * (1.0 + x * (1.0 - sigmoid));
}

void ssm__ref_conv_backward(const double *x, const double *weight, const double *dout,
                            int64_t tokens, int64_t channels, int64_t d_conv, double *dx,
                            double *dweight, double *dbias)
{
    for (int64_t i = 0; i < tokens * channels; i++) {
        dx[i] = weight ? 0.0 : dout[i];
    }
    ssm__ref_sum_tokens(dout, tokens, channels, dbias);
    for (int64_t t = 0; weight && t < tokens; t++) {
        for (int64_t e = 0; e < channels; e++) {
            const double d = dout[t * channels + e];
            for (int64_t j = 0; j < d_conv; j++) {
                const int64_t source = t - (d_conv - 1) + j;
                if (source >= 0) {
                    dx[source * channels + e] += weight[e * d_conv + j] * d;
                    if (dweight) {
                        dweight[e * d_conv + j] += d * x[source * channels + e];
                    }
                }
            }
        }
    }
}

void ssm__ref_conv_silu_backward(const double *x, const double *weight, const double *bias,
                                 const double *dout, int64_t tokens, int64_t channels,
                                 int64_t d_conv, double *before, double *dx, double *dweight,
                                 double *dbias)
{
    ssm__ref_conv(x, weight, bias, before, tokens, channels, d_conv);
    for (int64_t i = 0; i < tokens * channels; i++) {
        before[i] = dout[i] * ssm__ref_silu_slope(before[i]);
    }
    ssm__ref_conv_backward(x, weight, before, tokens, channels, d_conv, dx, dweight, dbias);
}
