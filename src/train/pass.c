/* train/pass.c: a batch through a network, forward and backward, slab by slab. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/inside.h"
#include "train/work.h"

enum { SLAB_TOKENS = 1024 };

/* ---- memory ---------------------------------------------------------------------------------- */

static void *branch_kept(ssm__arena *arena, const ssm__pass *pass, const ssm__branch *branch)
{
    return ssm__mixer_of(branch->kind)
        ->kept(arena, &pass->network->config, pass->length, pass->slab, pass->backward);
}

/* What the branches keep, and share by kind. */
static void lay_branches(ssm__arena *arena, ssm__pass *pass, bool write)
{
    const ssm__network *network = pass->network;
    const ssm_pool *pool = network->pool;
    const int threads = pool == NULL ? 1 : ssm_pool_threads(pool);
    void *scratch[SSM__MIXERS] = {0}, *shared[SSM__MIXERS] = {0};
    bool seen[SSM__MIXERS] = {0};
    for (int64_t b = 0; b < network->n_branches; b++) {
        const ssm__branch *branch = &network->branches[b];
        const ssm__mixer *mixer = ssm__mixer_of(branch->kind);
        if (!seen[branch->kind]) {
            scratch[branch->kind] = mixer->scratch(arena, &network->config, pass->length,
                                                   pass->slab, threads, pass->backward);
            if (!pass->backward) {
                shared[branch->kind] = branch_kept(arena, pass, branch);
            }
            seen[branch->kind] = true;
        }
        void *weights = mixer->weights(arena, &network->config);
        void *kept = pass->backward ? branch_kept(arena, pass, branch) : shared[branch->kind];
        if (write) {
            pass->weights[b] = weights;
            pass->kept[b] = kept;
            pass->scratch[b] = scratch[branch->kind];
        }
    }
}

static void lay_out(ssm__arena *arena, ssm__pass *pass)
{
    const ssm__network *network = pass->network;
    const int64_t tokens = pass->slab * pass->length, branches = network->n_branches;
    const int64_t floats = tokens * network->config.shape.d_model;
    const bool write = arena->memory != NULL;
    pass->weights = SSM__TAKE(arena, void *, branches);
    pass->kept = SSM__TAKE(arena, void *, branches);
    pass->scratch = SSM__TAKE(arena, void *, branches);
    pass->stream = SSM__TAKE(arena, float *, branches + 1);
    float *one = NULL;
    for (int64_t b = 0; b <= branches; b++) {
        one = b == 0 || pass->backward ? SSM__TAKE(arena, float, floats) : one;
        if (write) {
            pass->stream[b] = one;
        }
    }
    pass->normed = SSM__TAKE(arena, float, floats);
    pass->out = SSM__TAKE(arena, float, floats);
    if (pass->backward) {
        pass->din = SSM__TAKE(arena, float, floats);
        pass->dstream = SSM__TAKE(arena, float, floats);
        pass->means = SSM__TAKE(arena, float, tokens);
        pass->scales = SSM__TAKE(arena, float, tokens);
    }
    lay_branches(arena, pass, write);
    ssm__head_layout(arena, network, tokens, &pass->head);
}

ssm_status ssm__pass_create(const ssm__network *network, int64_t length, bool backward,
                            ssm__pass **out, ssm_error *err)
{
    enum { LONGEST = 1 << 24 };
    *out = NULL;
    if (length < 1 || length > LONGEST) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "a sequence has %lld tokens; expected 1 … %d", (long long)length, LONGEST);
    }
    ssm__pass *pass = calloc(1, sizeof *pass);
    if (pass == NULL) {
        return ssm__fail_memory(err, "a training pass", sizeof *pass);
    }
    pass->network = network;
    pass->length = length;
    pass->slab = length < SLAB_TOKENS ? SLAB_TOKENS / length : 1;
    pass->backward = backward;
    ssm__arena counted = {0};
    lay_out(&counted, pass);
    const ssm_status status = ssm__arena_create(&pass->arena, counted.used, err);
    if (status != SSM_STATUS_OK) {
        free(pass);
        return status;
    }
    lay_out(&pass->arena, pass);
    *out = pass;
    return SSM_STATUS_OK;
}

void ssm__pass_free(ssm__pass *pass)
{
    if (pass != NULL) {
        ssm__arena_free(&pass->arena);
        free(pass);
    }
}

size_t ssm__pass_bytes(const ssm__pass *pass)
{
    return pass->arena.used;
}

/* ---- a slab ---------------------------------------------------------------------------------- */

static ssm__run run_of(const ssm__pass *pass, int64_t b)
{
    const ssm__network *network = pass->network;
    return (ssm__run){.config = &network->config,
                      .kernels = network->kernels,
                      .pool = network->pool,
                      .branch = &network->branches[b],
                      .parameters = network->parameters,
                      .values = network->values,
                      .gradients = pass->backward ? network->gradients : NULL,
                      .length = pass->length,
                      .sequences = pass->sequences,
                      .in = pass->normed,
                      .out = pass->out,
                      .dout = pass->out,
                      .din = pass->din,
                      .weights = pass->weights[b],
                      .kept = pass->kept[b],
                      .scratch = pass->scratch[b]};
}

typedef struct add_job {
    const ssm__network *network;
    const float *x, *more;
    float *out;
    int64_t tokens;
} add_job;

/* out ← x + more. */
static void add_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const add_job *job = context;
    const int64_t D = job->network->config.shape.d_model, first = task * SSM__WORK_TOKENS * D;
    const int64_t count = ssm__least(SSM__WORK_TOKENS * D, job->tokens * D - first);
    if (job->x != job->out) {
        memcpy(job->out + first, job->x + first, (size_t)count * sizeof *job->out);
    }
    if (job->more != NULL) {
        job->network->kernels->add(job->more + first, job->out + first, count);
    }
}

static void add_rows(const ssm__pass *pass, const float *x, const float *more, float *out)
{
    add_job job = {.network = pass->network,
                   .x = x,
                   .more = more,
                   .out = out,
                   .tokens = pass->sequences * pass->length};
    ssm__pool_run(pass->network->pool, add_task, &job,
                  ssm__divide_up(job.tokens, SSM__WORK_TOKENS));
}

static void forward_slab(const ssm__pass *pass, const ssm_train_batch *batch, int64_t first,
                         const ssm__dropout *dropout)
{
    const ssm__network *network = pass->network;
    const int64_t tokens = pass->sequences * pass->length;
    ssm__front_forward(pass, batch, first);
    for (int64_t b = 0; b < network->n_branches; b++) {
        const ssm__branch *branch = &network->branches[b];
        const ssm__run run = run_of(pass, b);
        ssm__norm_forward(network, branch->norm, branch->norm_bias, pass->stream[b], pass->normed,
                          tokens);
        ssm__mixer_of(branch->kind)->forward(&run);
        ssm__dropout_apply(network, dropout, b, first * pass->length, tokens, pass->out);
        add_rows(pass, pass->stream[b], pass->out, pass->stream[b + 1]);
    }
}

static void backward_slab(const ssm__pass *pass, const ssm_train_batch *batch, int64_t first,
                          const ssm__dropout *dropout)
{
    const ssm__network *network = pass->network;
    const int64_t tokens = pass->sequences * pass->length;
    const bool dropped = dropout != NULL && network->config.dropout > 0;
    for (int64_t b = network->n_branches - 1; b >= 0; b--) {
        const ssm__branch *branch = &network->branches[b];
        ssm__run run = run_of(pass, b);
        ssm__norm_forward(network, branch->norm, branch->norm_bias, pass->stream[b], pass->normed,
                          tokens);
        if (dropped) {
            add_rows(pass, pass->dstream, NULL, pass->out);
            ssm__dropout_apply(network, dropout, b, first * pass->length, tokens, pass->out);
        } else {
            run.dout = pass->dstream;
        }
        ssm__mixer_of(branch->kind)->backward(&run);
        ssm__norm_backward(network, branch->norm, branch->norm_bias, pass->stream[b], pass->din,
                           pass->dstream, pass->means, pass->scales, tokens, true);
    }
    ssm__front_backward(pass, batch, first);
}

/* ---- a batch --------------------------------------------------------------------------------- */

typedef struct branches_job {
    const ssm__pass *pass;
} branches_job;

static void prepare_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const branches_job *job = context;
    const ssm__run run = run_of(job->pass, task);
    ssm__mixer_of(run.branch->kind)->prepare(&run);
}

/* Branch after branch: layers that share weights add to the same gradients. */
static void finish_branches(const ssm__pass *pass)
{
    for (int64_t b = 0; b < pass->network->n_branches; b++) {
        const ssm__run run = run_of(pass, b);
        ssm__mixer_of(run.branch->kind)->finish(&run);
    }
}

static void run_batch(ssm__pass *pass, const ssm_train_batch *batch, float scale,
                      const ssm__dropout *dropout, ssm__loss *loss, int32_t *predictions,
                      float *outputs)
{
    branches_job job = {.pass = pass};
    *loss = (ssm__loss){0};
    ssm__pool_run(pass->network->pool, prepare_task, &job, pass->network->n_branches);
    for (int64_t first = 0; first < batch->rows; first += pass->slab) {
        pass->sequences = ssm__least(pass->slab, batch->rows - first);
        forward_slab(pass, batch, first, dropout);
        ssm__head_run(pass, batch, first, scale, loss, predictions, outputs);
        if (!isfinite(loss->sum)) {
            return; /* the streams show where it began */
        }
        if (pass->backward) {
            backward_slab(pass, batch, first, dropout);
        }
    }
    if (pass->backward) {
        finish_branches(pass);
    }
}

void ssm__pass_train(ssm__pass *pass, const ssm_train_batch *batch, double scale,
                     const ssm__dropout *dropout, ssm__loss *loss)
{
    run_batch(pass, batch, (float)scale, dropout, loss, NULL, NULL);
}

void ssm__pass_evaluate(ssm__pass *pass, const ssm_train_batch *batch, ssm__loss *loss,
                        int32_t *predictions, float *outputs)
{
    run_batch(pass, batch, 1.0f, NULL, loss, predictions, outputs);
}

/* ---- what is not finite ---------------------------------------------------------------------- */

static bool first_bad(const float *x, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(x[i])) {
            *out = x[i];
            return true;
        }
    }
    return false;
}

static const char *spell(float x)
{
    return isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

static bool bad_parameter(const ssm__network *network, const float *arrays, const char *what,
                          char *out, size_t size)
{
    float bad;
    for (int64_t i = 0; i < network->n_parameters; i++) {
        const ssm__parameter *p = &network->parameters[i];
        if (first_bad(arrays + p->at, p->count, &bad)) {
            snprintf(out, size, "%s%s is %s", what, p->name, spell(bad));
            return true;
        }
    }
    return false;
}

/* A row that is finite and whose squares are not a float32: the norm behind it has no numbers. */
static bool first_too_large(const float *x, int64_t rows, int64_t width, float *out)
{
    for (int64_t t = 0; t < rows; t++, x += width) {
        double sum = 0.0;
        int64_t top = 0;
        for (int64_t i = 0; i < width; i++) {
            sum += (double)x[i] * (double)x[i];
            top = fabsf(x[i]) > fabsf(x[top]) ? i : top;
        }
        if (sum >= (double)FLT_MAX) {
            *out = x[top];
            return true;
        }
    }
    return false;
}

static void name_stream(const ssm__network *network, int64_t b, char *out, size_t size)
{
    if (b == 0) {
        snprintf(out, size, "the first row of the stream is");
        return;
    }
    const int per_layer = network->config.shape.d_mlp > 0 ? 2 : 1;
    snprintf(out, size, "the %s of block %lld gives",
             network->branches[b - 1].kind == SSM__MIXER_MLP ? "MLP" : "mixer",
             (long long)((b - 1) / per_layer));
}

static bool bad_stream(const ssm__pass *pass, char *out, size_t size)
{
    const ssm__network *network = pass->network;
    const int64_t width = network->config.shape.d_model;
    const int64_t rows = pass->sequences * pass->length;
    const bool normed = network->config.norm != SSM__NORM_NONE;
    char place[64];
    float bad;
    for (int64_t b = 0; b <= network->n_branches; b++) {
        name_stream(network, b, place, sizeof place);
        if (first_bad(pass->stream[b], rows * width, &bad)) {
            snprintf(out, size, "%s %s", place, spell(bad));
            return true;
        }
        if (normed && first_too_large(pass->stream[b], rows, width, &bad)) {
            snprintf(out, size, "%s %g, whose square overflows float32 in the norm behind it",
                     place, (double)bad);
            return true;
        }
    }
    return false;
}

bool ssm__pass_not_finite(const ssm__pass *pass, char *out, size_t size)
{
    const ssm__network *network = pass->network;
    return bad_parameter(network, network->values, "", out, size) || bad_stream(pass, out, size) ||
           bad_parameter(network, network->gradients, "the gradient of ", out, size);
}
