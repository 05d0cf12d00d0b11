/* bench/train.c: a step of training, from ids to new weights, against its matrix products alone at
 * the measured rate of sgemm. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/optimiser.h"

enum { SMALL_ROWS = 16, SMALL_LENGTH = 256, ROWS = 8, LENGTH = 512 };

/* d_model 128, 4 layers, N 16, bytes: the shape that other trainers were measured at. */
static const ssm_config small_shape = {.family = SSM_FAMILY_MAMBA,
                                       .vocab_size = 256,
                                       .d_model = 128,
                                       .n_layers = 4,
                                       .d_inner = 256,
                                       .d_state = 16,
                                       .d_conv = 4,
                                       .dt_rank = 8,
                                       .norm_eps = 1e-5,
                                       .tied = true};

typedef struct training {
    ssm__mixer_kind *mixers;
    ssm__network *network;
    ssm__pass *pass;
    ssm__optimiser optimiser;
    ssm_train_batch batch;
} training;

static void release(training *t)
{
    ssm__optimiser_free(&t->optimiser);
    ssm__pass_free(t->pass);
    ssm__network_free(t->network);
    free(t->mixers);
    free(t->batch.ids);
    free(t->batch.labels);
    free(t->batch.used);
}

static ssm__mixer_kind mixer_of(const bench_run *run, int64_t layer)
{
    switch (ssm_checkpoint_layer_kind(ssm_model_checkpoint(run->model), layer)) {
    case SSM_LAYER_MAMBA2:
        return SSM__MIXER_MAMBA2;
    case SSM_LAYER_ATTENTION:
        return SSM__MIXER_ATTENTION;
    case SSM_LAYER_MAMBA:
    case SSM_LAYER_KINDS:
        break;
    }
    return SSM__MIXER_MAMBA1;
}

static ssm_status create(const bench_run *run, const ssm_config *shape, int64_t rows,
                         int64_t length, training *t, ssm_error *err)
{
    const size_t tokens = (size_t)(rows * length);
    t->mixers = calloc((size_t)shape->n_layers, sizeof *t->mixers);
    t->batch = (ssm_train_batch){.rows = rows, .length = length};
    t->batch.ids = calloc(tokens, sizeof *t->batch.ids);
    t->batch.labels = calloc(tokens, sizeof *t->batch.labels);
    t->batch.used = calloc((size_t)rows, sizeof *t->batch.used);
    if (!t->mixers || !t->batch.ids || !t->batch.labels || !t->batch.used) {
        return ssm__fail_memory(err, "a batch", tokens * sizeof *t->batch.ids);
    }
    for (int64_t layer = 0; layer < shape->n_layers; layer++) {
        t->mixers[layer] = shape == &small_shape ? SSM__MIXER_MAMBA1 : mixer_of(run, layer);
    }
    for (size_t i = 0; i < tokens; i++) {
        t->batch.ids[i] = (int32_t)((i * 7919 + 13) % (size_t)shape->vocab_size);
        t->batch.labels[i] = (int32_t)((i * 104729 + 7) % (size_t)shape->vocab_size);
    }
    for (int64_t r = 0; r < rows; r++) {
        t->batch.used[r] = (int32_t)length;
    }
    const ssm__network_config config = {.shape = *shape, .mixers = t->mixers};
    const ssm__kernels *kernels = ssm__kernels_for(ssm_model_isa(run->model));
    SSM__TRY(ssm__network_create(&config, kernels, run->pool, &t->network, err));
    SSM__TRY(ssm__pass_create(t->network, length, true, &t->pass, err));
    SSM__TRY(ssm__optimiser_create(t->network, kernels, run->pool, &t->optimiser, err));
    ssm__network_draw(t->network, 1);
    return SSM_STATUS_OK;
}

static void step(training *t, int64_t number)
{
    static const ssm_recipe recipe = {.optimiser = {1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0},
                                      .schedule = {.steps = 1000, .decay = SSM__DECAY_CONSTANT}};
    float *gradients = ssm__network_gradients(t->network);
    ssm__loss loss;
    memset(gradients, 0, (size_t)ssm__network_floats(t->network) * sizeof *gradients);
    ssm__pass_train(t->pass, &t->batch, 1.0 / (double)(t->batch.rows * t->batch.length), NULL,
                    &loss);
    const double norm = ssm__gradient_norm(&t->optimiser, gradients);
    ssm__optimiser_step(&t->optimiser, &recipe, number, gradients, 1 / fmax(norm, 1));
}

/* Multiply and add of every matrix, forward and twice backward; Mamba-2's chunks are not counted.
 */
static double product_flops(const training *t)
{
    double weights = 0;
    for (int64_t i = 0; i < ssm__network_count(t->network); i++) {
        const ssm__parameter *p = ssm__network_at(t->network, i);
        weights += p->slot >= 0 && ssm__slot_is_matrix(p->slot) ? (double)p->count : 0;
    }
    return 6.0 * weights * (double)(t->batch.rows * t->batch.length);
}

static ssm_status sample(bench_run *run, const ssm_config *shape, int64_t rows, int64_t length,
                         double gflops, bench_sample *out, ssm_error *err)
{
    enum { STEPS = 3 }; /* best of, as for sgemm; the first warms up */
    training t = {0};
    const ssm_status status = create(run, shape, rows, length, &t, err);
    if (status == SSM_STATUS_OK) {
        out->seconds = INFINITY;
        for (int i = 0; i <= STEPS; i++) {
            const double start = bench_now();
            step(&t, i + 1);
            out->seconds = i > 0 ? fmin(out->seconds, bench_now() - start) : INFINITY;
        }
        out->at_limit = product_flops(&t) / (1e9 * gflops);
    }
    release(&t);
    return status;
}

int64_t bench_train_tokens(const bench_run *run)
{
    (void)run;
    return ROWS * LENGTH;
}

int64_t bench_train_small_tokens(const bench_run *run)
{
    (void)run;
    return SMALL_ROWS * SMALL_LENGTH;
}

ssm_status bench_sample_train(bench_run *run, const bench_limits *limits, bench_sample *out,
                              ssm_error *err)
{
    return sample(run, ssm_model_config(run->model), ROWS, LENGTH, limits->sgemm_gflops, out, err);
}

ssm_status bench_sample_train_small(bench_run *run, const bench_limits *limits, bench_sample *out,
                                    ssm_error *err)
{
    (void)limits;
    const ssm_config *c = &small_shape;
    const double seconds = bench_sgemm_seconds(1024, 2 * c->d_inner, c->d_model, run->threads);
    const double flops = 2.0 * 1024.0 * 2.0 * (double)c->d_inner * (double)c->d_model;
    return sample(run, c, SMALL_ROWS, SMALL_LENGTH, 1e-9 * flops / seconds, out, err);
}
