#include "train/convolution.h"

#include <string.h>

#include "kernels/training.h"
#include "train/work.h"

ssm__convolution ssm__convolution_take(ssm__arena *arena, int64_t groups, int64_t width, bool silu)
{
    const bool constant = silu && width == 0;
    const int64_t taps = constant ? 1 : width;
    const int64_t lanes = taps > 0 ? groups * SSM__LANES : 0;
    const ssm__convolution c = {.width = taps,
                                .constant = constant,
                                .groups = groups,
                                .silu = silu,
                                .weight = SSM__TAKE(arena, float, lanes *taps),
                                .bias = SSM__TAKE(arena, float, lanes),
                                .dweight = SSM__TAKE(arena, float, lanes *taps),
                                .dbias = SSM__TAKE(arena, float, lanes)};
    for (int64_t i = 0; constant && c.weight != NULL && i < lanes; i++) {
        c.weight[i] = 1.0f;
    }
    return c;
}

void ssm__convolution_clear(const ssm__convolution *c)
{
    if (c->width > 0) {
        const size_t lanes = (size_t)(c->groups * SSM__LANES);
        memset(c->dweight, 0, lanes * (size_t)c->width * sizeof(float));
        memset(c->dbias, 0, lanes * sizeof(float));
    }
}

void ssm__convolution_put(const ssm__convolution *c, const ssm__run *run, int64_t channels,
                          int64_t weight)
{
    if (c->width > 0 && !c->constant) {
        ssm__lanes_put(ssm__own_value(run, weight), channels, c->width, c->weight);
        ssm__lanes_put(ssm__own_value(run, weight + 1), channels, 1, c->bias);
    }
}

void ssm__convolution_add(const ssm__convolution *c, const ssm__run *run, int64_t channels,
                          int64_t weight)
{
    if (c->width > 0 && !c->constant) {
        ssm__lanes_add(c->dweight, channels, c->width, ssm__own_gradient(run, weight));
        ssm__lanes_add(c->dbias, channels, 1, ssm__own_gradient(run, weight + 1));
    }
}

void ssm__convolve(const ssm__run *run, const ssm__convolution *c, int64_t group, const float *x,
                   float *out, float *history)
{
    const float *weight = c->weight + group * c->width * SSM__LANES;
    const float *bias = c->bias + group * SSM__LANES;
    memset(history, 0, (size_t)ssm__convolution_history(c->width) * sizeof *history);
    if (c->silu) {
        run->kernels->conv_silu(x, weight, bias, history, out, NULL, run->length, c->width);
    } else {
        run->kernels->conv(x, weight, bias, history, out, run->length, c->width);
    }
}

void ssm__convolve_back(const ssm__run *run, const ssm__convolution *c, int64_t group, ssm__wide x,
                        ssm__wide d, int64_t at)
{
    const ssm__training_kernels *kernels = run->kernels->training;
    const int64_t lanes = group * SSM__LANES;
    for (int64_t sequence = 0; sequence < run->sequences; sequence++) {
        float *gradient = ssm__wide_group(d, sequence, at);
        const ssm__conv_backward_args args = {.tokens = run->length,
                                              .d_conv = c->width,
                                              .x = ssm__wide_group(x, sequence, at),
                                              .weight = c->weight + lanes * c->width,
                                              .bias = c->bias + lanes,
                                              .dout = gradient,
                                              .dx = gradient,
                                              .dweight = c->dweight + lanes * c->width,
                                              .dbias = c->dbias + lanes};
        if (c->silu) {
            kernels->conv_silu_backward(&args);
        } else {
            kernels->conv_backward(&args);
        }
    }
}
