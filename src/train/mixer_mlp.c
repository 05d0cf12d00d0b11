/* train/mixer_mlp.c: the gated MLP behind a mixer: (y, gate) = fc1 h; out = fc2 (y·SiLU(gate)).
 * fc1 has the rows of y, then those of the gate. */
#include <stdio.h>

#include "kernels/training.h"
#include "train/mixer.h"
#include "train/work.h"

enum { FC1, FC2 };

typedef struct kept {
    float *y, *gate; /* [T][M] */
} kept;

typedef struct scratch {
    float *hidden;     /* [T][M] */
    float *dy, *dgate; /* [T][M] */
} scratch;

static bool accepts(const ssm__network_config *config, char *why, size_t size)
{
    snprintf(why, size, "an MLP needs a d_mlp of 1 or more; found %lld",
             (long long)config->shape.d_mlp);
    return config->shape.d_mlp > 0;
}

static void declare(ssm__declaration *list, const ssm__network_config *config, int64_t layer)
{
    (void)config;
    ssm__declare_slot(list, SSM_LAYER_MAMBA, layer, SSM__SLOT_fc1);
    ssm__declare_slot(list, SSM_LAYER_MAMBA, layer, SSM__SLOT_fc2);
}

static void *take_weights(ssm__arena *arena, const ssm__network_config *config)
{
    (void)config;
    return SSM__TAKE(arena, char, 1);
}

static void *take_kept(ssm__arena *arena, const ssm__network_config *config, int64_t length,
                       int64_t sequences, bool backward)
{
    const int64_t floats = sequences * length * config->shape.d_mlp;
    kept *out = SSM__TAKE(arena, kept, 1);
    const kept k = {.y = SSM__TAKE(arena, float, floats), .gate = SSM__TAKE(arena, float, floats)};
    (void)backward;
    if (out != NULL) {
        *out = k;
    }
    return out;
}

static void *take_scratch(ssm__arena *arena, const ssm__network_config *config, int64_t length,
                          int64_t sequences, int threads, bool backward)
{
    const int64_t floats = sequences * length * config->shape.d_mlp;
    scratch *out = SSM__TAKE(arena, scratch, 1);
    scratch s = {.hidden = SSM__TAKE(arena, float, floats)};
    (void)threads;
    if (backward) {
        s.dy = SSM__TAKE(arena, float, floats);
        s.dgate = SSM__TAKE(arena, float, floats);
    }
    if (out != NULL) {
        *out = s;
    }
    return out;
}

static void none(const ssm__run *run)
{
    (void)run;
}

static void forward_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const ssm__matrix y = ssm__own_part(run, FC1, 0, 2), gate = ssm__own_part(run, FC1, 1, 2);
    const ssm__matrix fc2 = ssm__own_matrix(run, FC2);
    const int64_t t = task * SSM__WORK_TOKENS, M = y.rows, D = y.cols;
    const int64_t tokens = ssm__least(SSM__WORK_TOKENS, run->sequences * run->length - t);
    const ssm__view in = ssm__rows_view(run->in + t * D, D);
    ssm__project_rows(run, &y, in, ssm__rows_view(k->y + t * M, M), tokens);
    ssm__project_rows(run, &gate, in, ssm__rows_view(k->gate + t * M, M), tokens);
    run->kernels->silu_mul(k->y + t * M, k->gate + t * M, s->hidden + t * M, tokens * M);
    ssm__project_rows(run, &fc2, ssm__rows_view(s->hidden + t * M, M),
                      ssm__rows_view(run->out + t * D, D), tokens);
}

static void backward_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const ssm__training_kernels *kernels = run->kernels->training;
    const ssm__matrix y = ssm__own_part(run, FC1, 0, 2), gate = ssm__own_part(run, FC1, 1, 2);
    const ssm__matrix fc2 = ssm__own_matrix(run, FC2);
    const int64_t t = task * SSM__WORK_TOKENS, M = y.rows, D = y.cols;
    const int64_t tokens = ssm__least(SSM__WORK_TOKENS, run->sequences * run->length - t);
    const ssm__view dy = ssm__rows_view(s->dy + t * M, M),
                    din = ssm__rows_view(run->din + t * D, D);
    run->kernels->silu_mul(k->y + t * M, k->gate + t * M, s->hidden + t * M, tokens * M);
    kernels->linear_input_gradient(&fc2, ssm__rows_view(run->dout + t * D, D), dy, tokens, 0, M,
                                   false);
    kernels->silu_mul_backward(k->y + t * M, k->gate + t * M, s->dy + t * M, s->dy + t * M,
                               s->dgate + t * M, tokens * M);
    kernels->linear_input_gradient(&y, dy, din, tokens, 0, D, false);
    kernels->linear_input_gradient(&gate, ssm__rows_view(s->dgate + t * M, M), din, tokens, 0, D,
                                   true);
}

static void forward(const ssm__run *run)
{
    ssm__pool_run(run->pool, forward_task, (void *)(uintptr_t)run, ssm__token_tasks(run));
}

static void backward(const ssm__run *run)
{
    const scratch *s = run->scratch;
    const int64_t D = run->config->shape.d_model, M = run->config->shape.d_mlp;
    const ssm__side in = {.rows = run->in, .stride = D};
    float *dfc1 = ssm__own_gradient(run, FC1);
    const ssm__weight_product products[] = {
        {.dy = {.rows = s->dy, .stride = M}, .x = in, .rows = M, .cols = D, .dw = dfc1},
        {.dy = {.rows = s->dgate, .stride = M}, .x = in, .rows = M, .cols = D, .dw = dfc1 + M * D},
        {.dy = {.rows = run->dout, .stride = D},
         .x = {.rows = s->hidden, .stride = M},
         .rows = D,
         .cols = M,
         .dw = ssm__own_gradient(run, FC2)},
    };
    ssm__pool_run(run->pool, backward_task, (void *)(uintptr_t)run, ssm__token_tasks(run));
    ssm__weight_products(run, products, sizeof products / sizeof products[0]);
}

const ssm__mixer ssm__mixer_mlp = {
    .accepts = accepts,
    .declare = declare,
    .weights = take_weights,
    .kept = take_kept,
    .scratch = take_scratch,
    .prepare = none,
    .forward = forward,
    .backward = backward,
    .finish = none,
};
