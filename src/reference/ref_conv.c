/* reference/ref_conv.c: causal depthwise convolution, SiLU, softplus. */
#include "reference/reference.h"

#include <math.h>

/* max(x, 0) + log1p(exp(−|x|)) is log(1 + exp x) without overflow and without cancellation. */
double ssm__ref_softplus(double x)
{
    return fmax(x, 0.0) + log1p(exp(-fabs(x)));
}

double ssm__ref_silu(double x)
{
    return x / (1.0 + exp(-x));
}

void ssm__ref_conv(const double *x, const double *weight, const double *bias, double *out,
                   int64_t tokens, int64_t channels, int64_t d_conv)
{
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t e = 0; e < channels; e++) {
            double sum = weight ? 0.0 : x[t * channels + e];
            sum += bias ? bias[e] : 0.0;
            for (int64_t j = 0; weight && j < d_conv; j++) {
                const int64_t source = t - (d_conv - 1) + j;
                if (source >= 0) {
                    sum += weight[e * d_conv + j] * x[source * channels + e];
                }
            }
            out[t * channels + e] = sum;
        }
    }
}

void ssm__ref_conv_silu(const double *x, const double *weight, const double *bias, double *out,
                        int64_t tokens, int64_t channels, int64_t d_conv)
{
    ssm__ref_conv(x, weight, bias, out, tokens, channels, d_conv);
    for (int64_t i = 0; i < tokens * channels; i++) {
        out[i] = ssm__ref_silu(out[i]);
    }
}
