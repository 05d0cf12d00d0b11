/* Sources: Kingma & Ba 2015; Loshchilov & Hutter 2019 (decoupled decay, in the form of PyTorch's
 * AdamW: the decay is lr·weight_decay). */
#include "train/optimiser.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/pool.h"
#include "kernels/training.h"
#include "train/work.h"

enum { BLOCK = 1 << 14 }; /* floats of a task */

double ssm__learning_rate(const ssm_recipe *recipe, int64_t step)
{
    const ssm__recipe_schedule *s = &recipe->schedule;
    const double lr = recipe->optimiser.lr, pi = 3.14159265358979323846;
    if (step <= s->warmup) {
        return lr * (double)step / (double)s->warmup;
    }
    const double p = (double)(step - 1 - s->warmup) / (double)(s->steps - s->warmup);
    switch ((ssm__decay)s->decay) {
    case SSM__DECAY_COSINE:
        return lr * (s->final + (1 - s->final) * (1 + cos(pi * p)) / 2);
    case SSM__DECAY_LINEAR:
        return lr * (1 - (1 - s->final) * p);
    case SSM__DECAY_CONSTANT:
        break;
    }
    return lr;
}

ssm_status ssm__optimiser_create(ssm__network *network, const ssm__kernels *kernels, ssm_pool *pool,
                                 ssm__optimiser *out, ssm_error *err)
{
    const size_t floats = (size_t)ssm__network_floats(network);
    *out = (ssm__optimiser){.network = network, .kernels = kernels, .pool = pool};
    out->n_blocks = ssm__divide_up((int64_t)floats, BLOCK);
    out->first = calloc(floats, sizeof *out->first);
    out->second = calloc(floats, sizeof *out->second);
    out->norms = calloc((size_t)out->n_blocks, sizeof *out->norms);
    if (out->first == NULL || out->second == NULL || out->norms == NULL) {
        ssm__optimiser_free(out);
        return ssm__fail_memory(err, "an optimiser", 2 * floats * sizeof(float));
    }
    return SSM_STATUS_OK;
}

void ssm__optimiser_free(ssm__optimiser *optimiser)
{
    free(optimiser->first);
    free(optimiser->second);
    free(optimiser->norms);
    optimiser->first = optimiser->second = NULL;
    optimiser->norms = NULL;
}

typedef struct optimiser_job {
    const ssm__optimiser *optimiser;
    const float *gradients;
    ssm__adamw_args decayed, plain; /* but for what a parameter's factor changes: */
    double scale, step;             /* of gradients, and lr/(1 − beta1^t) */
} optimiser_job;

static int64_t block_floats(const ssm__optimiser *optimiser, int64_t block)
{
    return ssm__least(BLOCK, ssm__network_floats(optimiser->network) - block * BLOCK);
}

/* The part [*from, *to) of a parameter that lies in a block; empty: none. */
static void part_in_block(const ssm__optimiser *optimiser, int64_t block, const ssm__parameter *p,
                          int64_t *from, int64_t *to)
{
    const int64_t begin = block * BLOCK;
    *from = p->at > begin ? p->at : begin;
    *to = ssm__least(p->at + p->count, begin + block_floats(optimiser, block));
}

/* Σ g² of a block; the gradient of p is factor·g. */
static void norm_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const optimiser_job *job = context;
    const ssm__optimiser *optimiser = job->optimiser;
    const ssm__training_kernels *kernels = optimiser->kernels->training;
    double sum =
        kernels->squared_norm(job->gradients + task * BLOCK, block_floats(optimiser, task));
    for (int64_t i = 0; i < ssm__network_count(optimiser->network); i++) {
        const ssm__parameter *p = ssm__network_at(optimiser->network, i);
        int64_t from, to;
        part_in_block(optimiser, task, p, &from, &to);
        if (from < to && p->factor != 1) {
            sum += (p->factor * p->factor - 1) *
                   kernels->squared_norm(job->gradients + from, to - from);
        }
    }
    optimiser->norms[task] = sum;
}

double ssm__gradient_norm(const ssm__optimiser *optimiser, const float *gradients)
{
    optimiser_job job = {.optimiser = optimiser, .gradients = gradients};
    double sum = 0;
    ssm__pool_run(optimiser->pool, norm_task, &job, optimiser->n_blocks);
    for (int64_t i = 0; i < optimiser->n_blocks; i++) {
        sum += optimiser->norms[i];
    }
    return sqrt(sum);
}

/* The step of p for its value: factor·p goes by factor times p's step, whose gradient is factor·g.
 * p has the value's decay. */
static ssm__adamw_args args_of(const optimiser_job *job, const ssm__parameter *p)
{
    ssm__adamw_args args = p->decayed ? job->decayed : job->plain;
    args.grad_scale = (float)(p->factor * job->scale);
    args.step = (float)(p->factor * job->step);
    return args;
}

/* One block: the pieces of the parameters that lie in it. */
static void step_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const optimiser_job *job = context;
    const ssm__optimiser *optimiser = job->optimiser;
    float *values = ssm__network_values(optimiser->network);
    for (int64_t i = 0; i < ssm__network_count(optimiser->network); i++) {
        const ssm__parameter *p = ssm__network_at(optimiser->network, i);
        int64_t from, to;
        part_in_block(optimiser, task, p, &from, &to);
        if (from < to) {
            const ssm__adamw_args args = args_of(job, p);
            optimiser->kernels->training->adamw(&args, values + from, job->gradients + from,
                                                optimiser->first + from, optimiser->second + from,
                                                to - from);
        }
    }
}

void ssm__optimiser_step(const ssm__optimiser *optimiser, const ssm_recipe *recipe, int64_t step,
                         const float *gradients, double scale)
{
    const ssm__recipe_optimiser *o = &recipe->optimiser;
    const double lr = ssm__learning_rate(recipe, step), t = (double)step;
    const ssm__adamw_args plain = {.beta1 = (float)o->beta1,
                                   .one_minus_beta1 = (float)(1 - o->beta1),
                                   .beta2 = (float)o->beta2,
                                   .one_minus_beta2 = (float)(1 - o->beta2),
                                   .eps = (float)o->eps,
                                   .keep = 1.0f,
                                   .root = (float)(1 / sqrt(1 - pow(o->beta2, t)))};
    optimiser_job job = {.optimiser = optimiser,
                         .gradients = gradients,
                         .decayed = plain,
                         .plain = plain,
                         .scale = scale,
                         .step = lr / (1 - pow(o->beta1, t))};
    job.decayed.keep = (float)(1 - lr * o->weight_decay);
    ssm__pool_run(optimiser->pool, step_task, &job, optimiser->n_blocks);
}
