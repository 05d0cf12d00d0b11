/* train/norms.c: the norms of the residual stream, forward and backward, over tasks. */
#include <string.h>

#include "kernels/training.h"
#include "train/inside.h"
#include "train/work.h"

enum { NORM_TOKENS = 16, NORM_COLUMNS = 32 };

typedef struct norm_job {
    const ssm__network *network;
    int64_t weight, bias;
    const float *x, *dy;
    float *out; /* or dx */
    float *means, *scales;
    int64_t tokens;
    bool accumulate;
} norm_job;

static const float *value_at(const ssm__network *network, int64_t number)
{
    return number < 0 ? NULL : network->values + network->parameters[number].at;
}

static float *gradient_at(const ssm__network *network, int64_t number)
{
    return number < 0 ? NULL : network->gradients + network->parameters[number].at;
}

static void forward_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const norm_job *job = context;
    const ssm_config *c = &job->network->config.shape;
    const int64_t first = task * NORM_TOKENS, D = c->d_model;
    const int64_t tokens = ssm__least(NORM_TOKENS, job->tokens - first);
    const float *weight = value_at(job->network, job->weight);
    const float *x = job->x + first * D;
    float *out = job->out + first * D;
    const float eps = (float)c->norm_eps;
    if (job->weight < 0) {
        memcpy(out, x, (size_t)(tokens * D) * sizeof *out);
    } else if (c->layer_norm) {
        job->network->kernels->layernorm(x, weight, value_at(job->network, job->bias), out, tokens,
                                         D, eps);
    } else {
        job->network->kernels->rmsnorm(x, weight, out, tokens, D, eps);
    }
}

void ssm__norm_forward(const ssm__network *network, int64_t weight, int64_t bias, const float *x,
                       float *out, int64_t tokens)
{
    norm_job job = {
        .network = network, .weight = weight, .bias = bias, .x = x, .out = out, .tokens = tokens};
    ssm__pool_run(network->pool, forward_task, &job, ssm__divide_up(tokens, NORM_TOKENS));
}

static void none_backward(const norm_job *job, const float *dy, float *dx, int64_t count)
{
    if (job->accumulate) {
        job->network->kernels->add(dy, dx, count);
    } else {
        memmove(dx, dy, (size_t)count * sizeof *dx);
    }
}

static void input_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const norm_job *job = context;
    const ssm_config *c = &job->network->config.shape;
    const ssm__training_kernels *kernels = job->network->kernels->training;
    const int64_t first = task * NORM_TOKENS, D = c->d_model;
    const int64_t tokens = ssm__least(NORM_TOKENS, job->tokens - first);
    const float *weight = value_at(job->network, job->weight);
    const float *x = job->x + first * D, *dy = job->dy + first * D;
    float *dx = job->out + first * D;
    const float eps = (float)c->norm_eps;
    if (job->weight < 0) {
        none_backward(job, dy, dx, tokens * D);
    } else if (c->layer_norm) {
        kernels->layernorm_input_gradient(x, weight, dy, dx, job->means + first,
                                          job->scales + first, tokens, D, eps, job->accumulate);
    } else {
        kernels->rmsnorm_input_gradient(x, weight, dy, dx, job->scales + first, tokens, D, eps,
                                        job->accumulate);
    }
}

static void weight_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const norm_job *job = context;
    const ssm_config *c = &job->network->config.shape;
    const ssm__training_kernels *kernels = job->network->kernels->training;
    const int64_t D = c->d_model, begin = task * NORM_COLUMNS;
    const int64_t end = ssm__least(begin + NORM_COLUMNS, D);
    float *dweight = gradient_at(job->network, job->weight);
    if (c->layer_norm) {
        kernels->layernorm_weight_gradient(job->x, job->dy, job->means, job->scales, dweight,
                                           gradient_at(job->network, job->bias), job->tokens, D,
                                           begin, end);
    } else {
        kernels->rmsnorm_weight_gradient(job->x, job->dy, job->scales, dweight, job->tokens, D,
                                         begin, end);
    }
}

void ssm__norm_backward(const ssm__network *network, int64_t weight, int64_t bias, const float *x,
                        const float *dy, float *dx, float *means, float *scales, int64_t tokens,
                        bool accumulate)
{
    norm_job job = {.network = network,
                    .weight = weight,
                    .bias = bias,
                    .x = x,
                    .dy = dy,
                    .out = dx,
                    .means = means,
                    .scales = scales,
                    .tokens = tokens,
                    .accumulate = accumulate};
    ssm__pool_run(network->pool, input_task, &job, ssm__divide_up(tokens, NORM_TOKENS));
    if (weight >= 0) {
        ssm__pool_run(network->pool, weight_task, &job,
                      ssm__divide_up(network->config.shape.d_model, NORM_COLUMNS));
    }
}
