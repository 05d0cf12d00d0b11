/* train/front.c: the first rows of the stream, from ids or from vectors, and backward. */
#include <string.h>

#include "kernels/training.h"
#include "train/inside.h"
#include "train/work.h"

enum { ID_RANGES = 16 };

typedef struct front_job {
    const ssm__pass *pass;
    const ssm_train_batch *batch;
    int64_t first, tokens; /* of the slab in the batch */
} front_job;

static ssm__matrix input_matrix(const ssm__network *network)
{
    const ssm__parameter *p = &network->parameters[network->input];
    return (ssm__matrix){network->values + p->at, SSM_DTYPE_F32, p->dims[0], p->dims[1]};
}

static void embed(const front_job *job, int64_t t, int64_t tokens)
{
    const ssm__network *network = job->pass->network;
    const int64_t D = network->config.shape.d_model;
    const float *rows = network->values + network->parameters[network->input].at;
    for (int64_t i = t; i < t + tokens; i++) {
        const int32_t id = job->batch->ids[job->first + i];
        memcpy(job->pass->stream[0] + i * D, rows + id * D, (size_t)D * sizeof *rows);
    }
}

static void forward_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const front_job *job = context;
    const ssm__network *network = job->pass->network;
    const int64_t t = task * SSM__WORK_TOKENS;
    const int64_t tokens = ssm__least(SSM__WORK_TOKENS, job->tokens - t);
    if (network->config.loss != SSM_TRAIN_VECTORS) {
        embed(job, t, tokens);
        return;
    }
    const ssm__matrix w = input_matrix(network);
    const float *bias = network->values + network->parameters[network->input_bias].at;
    network->kernels->linear(
        &w, bias, ssm__rows_view(job->batch->inputs + (job->first + t) * w.cols, w.cols),
        ssm__rows_view(job->pass->stream[0] + t * w.rows, w.rows), tokens, 0, w.rows);
}

void ssm__front_forward(const ssm__pass *pass, const ssm_train_batch *batch, int64_t first)
{
    front_job job = {.pass = pass,
                     .batch = batch,
                     .first = first * pass->length,
                     .tokens = pass->sequences * pass->length};
    ssm__pool_run(pass->network->pool, forward_task, &job,
                  ssm__divide_up(job.tokens, SSM__WORK_TOKENS));
}

/* The rows of a range of ids, by one task. */
static void embedding_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const front_job *job = context;
    const ssm__network *network = job->pass->network;
    const int64_t V = network->config.shape.vocab_size;
    network->kernels->training->embedding_gradient(
        job->batch->ids + job->first, job->pass->dstream,
        network->gradients + network->parameters[network->input].at, job->tokens,
        network->config.shape.d_model, task * V / ID_RANGES, (task + 1) * V / ID_RANGES);
}

static void input_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const front_job *job = context;
    const ssm__network *network = job->pass->network;
    const ssm__matrix w = input_matrix(network);
    const int64_t row = task * SSM__LANES, end = ssm__least(row + SSM__LANES, w.rows);
    const ssm__view dy = ssm__rows_view(job->pass->dstream, w.rows);
    network->kernels->training->linear_weight_gradient(
        dy, ssm__rows_view(job->batch->inputs + job->first * w.cols, w.cols), job->tokens, w.cols,
        network->gradients + network->parameters[network->input].at, row, end);
    network->kernels->training->column_sums(
        dy, job->tokens, network->gradients + network->parameters[network->input_bias].at, row,
        end);
}

void ssm__front_backward(const ssm__pass *pass, const ssm_train_batch *batch, int64_t first)
{
    front_job job = {.pass = pass,
                     .batch = batch,
                     .first = first * pass->length,
                     .tokens = pass->sequences * pass->length};
    if (pass->network->config.loss == SSM_TRAIN_VECTORS) {
        ssm__pool_run(pass->network->pool, input_task, &job,
                      ssm__divide_up(pass->network->config.shape.d_model, SSM__LANES));
    } else {
        ssm__pool_run(pass->network->pool, embedding_task, &job, ID_RANGES);
    }
}
