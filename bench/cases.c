/* bench/cases.c: the whole-model cases: prefill, decode, record, scan. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/pool.h"
#include "model/session.h"

/* The share of the exp-only rate that a scan is granted in the limit "gemm+scan"
 * (docs/performance.md). */
static const double scan_share = 0.4;
enum { DECODE_STEPS = 24 };
enum {
    MAMBA1 = 1 << SSM_FAMILY_MAMBA | 1 << SSM_FAMILY_FALCON_MAMBA,
    MAMBA2 = 1 << SSM_FAMILY_MAMBA2,
    ANY = MAMBA1 | MAMBA2
};

static double size_of(const ssm__matrix *matrix)
{
    return (double)matrix->rows * (double)matrix->cols;
}

/* Weights of a block's linear maps, those of its MLP included. */
static double block_maps(const ssm__block *b)
{
    const double mlp = size_of(&b->mlp.fc1_y) + size_of(&b->mlp.fc1_gate) + size_of(&b->mlp.fc2);
    switch (b->kind) {
    case SSM_LAYER_MAMBA2:
        return mlp + size_of(&b->mamba2.in_proj) + size_of(&b->mamba2.out_proj);
    case SSM_LAYER_ATTENTION:
        return mlp + size_of(&b->attention.in_proj) + size_of(&b->attention.out_proj);
    case SSM_LAYER_MAMBA:
    case SSM_LAYER_KINDS:
        break;
    }
    return mlp + size_of(&b->mamba.in_proj_x) + size_of(&b->mamba.in_proj_z) +
           size_of(&b->mamba.x_proj) + size_of(&b->mamba.dt_proj) + size_of(&b->mamba.out_proj);
}

/* All linear maps of the blocks for one token (multiply and add apart). */
static double linear_flops(const ssm_model *model)
{
    double maps = 0.0;
    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        maps += block_maps(&model->blocks[layer]);
    }
    return 2.0 * maps;
}

/* Scores and weighted sums of one token of attention, with `tokens` / 2 keys in the mean. */
static double attention_flops(const ssm_model *model, int64_t tokens)
{
    const ssm_config *c = model->config;
    const double width = (double)(c->n_query_heads * c->attention_head_dim);
    return (double)model->n_attention * 4.0 * width * (double)(tokens + 1) / 2.0;
}

/* Of the chunked form for one token, chunks of 64: output and state of every head, the lower
 * triangle of C·B and of its product with the inputs. */
static double chunk_flops(const ssm_model *model)
{
    const ssm_config *c = model->config;
    const double layers = (double)(c->n_layers - model->n_attention);
    const double S = (double)c->d_ssm, N = (double)c->d_state, G = (double)c->n_groups;
    const double triangle = (SSM__TILE + 1.0) / 2.0;
    return 2.0 * layers * (2.0 * S * N + triangle * (S + G * N));
}

double bench_token_bytes(const ssm_model *model)
{
    const ssm_checkpoint *checkpoint = ssm_model_checkpoint(model);
    double bytes = 0.0;
    for (int64_t i = 0; i < ssm_checkpoint_count(checkpoint); i++) {
        bytes += ssm_checkpoint_used(checkpoint, i)
                     ? (double)ssm_checkpoint_at(checkpoint, i)->bytes
                     : 0.0;
    }
    const ssm_config *c = ssm_model_config(model);
    bytes += (double)(model->conv_count + model->state_count) * (double)sizeof(float);
    /* an untied embedding is read one row a token */
    return c->tied ? bytes
                   : bytes - (double)c->vocab_size * (double)c->d_model *
                                 (double)ssm_dtype_size(model->embedding.dtype);
}

static int64_t all_tokens(const bench_run *run)
{
    return run->tokens;
}

static int64_t decode_tokens(const bench_run *run)
{
    (void)run;
    return DECODE_STEPS;
}

static void ignore_logits(void *context, int64_t first, int64_t tokens, const float *logits)
{
    (void)context;
    (void)first;
    (void)tokens;
    (void)logits;
}

static ssm_status timed_forward(bench_run *run, ssm_logits_want want, double *seconds,
                                ssm_error *err)
{
    ssm_session_reset(run->session);
    const double start = bench_now();
    SSM__TRY(
        ssm_session_forward(run->session, run->ids, run->tokens, want, ignore_logits, NULL, err));
    *seconds = bench_now() - start;
    return SSM_STATUS_OK;
}

static double prefill_limit(const bench_run *run, const bench_limits *limits)
{
    const ssm_config *c = ssm_model_config(run->model);
    const double tokens = (double)run->tokens;
    const double head = 2.0 * (double)c->vocab_size * (double)c->d_model;
    const double exps = tokens * (double)(c->n_layers * c->d_inner * c->d_state);
    return (tokens * linear_flops(run->model) + head) / (1e9 * limits->sgemm_gflops) +
           exps / (scan_share * limits->exp_per_s);
}

static ssm_status sample_prefill(bench_run *run, const bench_limits *limits, bench_sample *out,
                                 ssm_error *err)
{
    out->at_limit = prefill_limit(run, limits);
    return timed_forward(run, SSM_LOGITS_LAST, &out->seconds, err);
}

/* The products alone, at sgemm's rate. */
static ssm_status sample_prefill2(bench_run *run, const bench_limits *limits, bench_sample *out,
                                  ssm_error *err)
{
    const ssm_config *c = ssm_model_config(run->model);
    const double head = 2.0 * (double)c->vocab_size * (double)c->d_model;
    const double token = linear_flops(run->model) + chunk_flops(run->model) +
                         attention_flops(run->model, run->tokens);
    const double flops = (double)run->tokens * token + head;
    out->at_limit = flops / (1e9 * limits->sgemm_gflops);
    return timed_forward(run, SSM_LOGITS_LAST, &out->seconds, err);
}

static ssm_status sample_decode(bench_run *run, const bench_limits *limits, bench_sample *out,
                                ssm_error *err)
{
    ssm_session_reset(run->session);
    const double start = bench_now();
    for (int i = 0; i < DECODE_STEPS; i++) {
        SSM__TRY(ssm_session_forward(run->session, run->ids + i, 1, SSM_LOGITS_LAST, ignore_logits,
                                     NULL, err));
    }
    out->seconds = bench_now() - start;
    out->at_limit = DECODE_STEPS * bench_token_bytes(run->model) / (1e9 * limits->read_gbps);
    return SSM_STATUS_OK;
}

/* ---- the linear kernel against sgemm at the shapes of a layer
 * ------------------------------------- */

typedef struct linear_run {
    const ssm__kernels *kernels;
    const ssm__matrix *w;
    ssm__view x, y;
    int64_t tokens;
} linear_run;

enum { LINEAR_ROWS = 48 };

static void linear_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const linear_run *run = context;
    const int64_t end = (task + 1) * LINEAR_ROWS;
    for (int64_t t = 0; t < run->tokens; t += SSM__TILE) { /* as the model does: tile by tile */
        ssm__view x = run->x, y = run->y;
        x.data += t * x.row_stride;
        y.data += t * y.row_stride;
        run->kernels->linear(run->w, NULL, x, y,
                             run->tokens - t < SSM__TILE ? run->tokens - t : SSM__TILE,
                             task * LINEAR_ROWS, end < run->w->rows ? end : run->w->rows);
    }
}

static ssm_status sample_linear(bench_run *run, const ssm__matrix *w, bench_sample *out,
                                ssm_error *err)
{
    const size_t x_count = (size_t)(run->tokens * w->cols);
    const size_t y_count = (size_t)(run->tokens * w->rows);
    float *x = malloc(x_count * sizeof *x);
    float *y = calloc(y_count, sizeof *y);
    if (!x || !y) {
        free(x);
        free(y);
        return ssm__fail_memory(err, "a matrix", y_count * sizeof *y);
    }
    for (size_t i = 0; i < x_count; i++) {
        x[i] = (float)(i % 251) * 0.01f - 1.0f;
    }
    linear_run linear = {.kernels = run->model->kernels,
                         .w = w,
                         .x = {x, (ptrdiff_t)w->cols, SSM__LANES},
                         .y = {y, (ptrdiff_t)w->rows, SSM__LANES},
                         .tokens = run->tokens};
    out->at_limit = bench_sgemm_seconds(run->tokens, w->rows, w->cols, run->threads);
    out->seconds = INFINITY;
    for (int i = 0; i < 3; i++) { /* best of three after a warm-up, as for sgemm */
        const double start = bench_now();
        ssm__pool_run(run->pool, linear_task, &linear, (w->rows + LINEAR_ROWS - 1) / LINEAR_ROWS);
        out->seconds = i > 0 ? fmin(out->seconds, bench_now() - start) : INFINITY;
    }
    free(x);
    free(y);
    return SSM_STATUS_OK;
}

static ssm_status sample_in_proj(bench_run *run, const bench_limits *limits, bench_sample *out,
                                 ssm_error *err)
{
    (void)limits;
    const ssm__block *block = &run->model->blocks[0];
    if (block->kind == SSM_LAYER_MAMBA2) {
        return sample_linear(run, &block->mamba2.in_proj, out, err);
    }
    ssm__matrix both = block->mamba.in_proj_x; /* the halves lie one after the other */
    both.rows *= 2;
    return sample_linear(run, &both, out, err);
}
static ssm_status sample_out_proj(bench_run *run, const bench_limits *limits, bench_sample *out,
                                  ssm_error *err)
{
    (void)limits;
    const ssm__block *block = &run->model->blocks[0];
    return sample_linear(
        run, block->kind == SSM_LAYER_MAMBA2 ? &block->mamba2.out_proj : &block->mamba.out_proj,
        out, err);
}
static ssm_status sample_x_proj(bench_run *run, const bench_limits *limits, bench_sample *out,
                                ssm_error *err)
{
    (void)limits;
    return sample_linear(run, &run->model->blocks[0].mamba.x_proj, out, err);
}
static ssm_status sample_dt_proj(bench_run *run, const bench_limits *limits, bench_sample *out,
                                 ssm_error *err)
{
    (void)limits;
    return sample_linear(run, &run->model->blocks[0].mamba.dt_proj, out, err);
}

/* ---- an operator of the registry ------------------------------------------------------------- */

static int64_t operator_tokens(const bench_run *run)
{
    return run->op->bench_shape.tokens;
}

/* Mean over enough calls for the clock, best of three, as for sgemm. */
static ssm_status sample_operator(bench_run *run, const bench_limits *limits, bench_sample *out,
                                  ssm_error *err)
{
    enum { ROUNDS = 3 };
    const double least = 0.02; /* seconds */
    (void)limits;
    operator_run work;
    if (!operator_create(run->op, run->op->bench_shape, 0, &work)) {
        return ssm__fail_memory(err, "an operator's arrays", 0);
    }
    int64_t calls = 1;
    out->seconds = INFINITY;
    for (int round = 0; round < ROUNDS;) {
        operator_rewind(&work); /* states and sums must not grow without end */
        const double start = bench_now();
        for (int64_t i = 0; i < calls; i++) {
            run->op->fast(run->model->kernels, &work);
        }
        const double seconds = bench_now() - start;
        if (seconds < least) {
            calls *= 2;
            continue;
        }
        out->seconds = fmin(out->seconds, seconds / (double)calls);
        round++;
    }
    operator_free(&work);
    return SSM_STATUS_OK;
}

const bench_case bench_operator_case = {
    "operator/NAME", "one call of an operator", NULL, NULL, false, ANY, operator_tokens,
    sample_operator};

const bench_case bench_cases[] = {
    {"prefill", "a forward pass over all tokens, logits of the last one", "gemm+scan", NULL, true,
     MAMBA1, all_tokens, sample_prefill},
    {"prefill", "a forward pass over all tokens, logits of the last one", "gemm", NULL, true,
     MAMBA2, all_tokens, sample_prefill2},
    {"decode", "one token at a time with logits", "bandwidth", NULL, true, ANY, decode_tokens,
     sample_decode},
    {"record", "a pass that scores every token with every layer's full Gram, over the same without",
     NULL, "ratio_over_plain", true, ANY, all_tokens, bench_sample_record},
    {"record_no_head", "the same without the head on either side", NULL, "ratio_over_plain", true,
     ANY, all_tokens, bench_sample_record_no_head},
    {"record_moments", "as record, energies and moments only (--no-gram)", NULL, "ratio_over_plain",
     true, ANY, all_tokens, bench_sample_record_moments},
    {"scan", "the selective scan of one layer", "exp", NULL, true, MAMBA1, all_tokens,
     bench_sample_scan},
    {"scan_pruned", "the same under a mask: half of the modes, drawn for every channel, over all",
     "exp", "ratio_over_full", true, MAMBA1, all_tokens, bench_sample_scan_pruned},
    {"scan_pruned_layer", "the same, one half for the whole layer", "exp", "ratio_over_full", true,
     MAMBA1, all_tokens, bench_sample_scan_pruned_layer},
    {"linear_in_proj", "in_proj of one layer against sgemm", "gemm", NULL, true, ANY, all_tokens,
     sample_in_proj},
    {"linear_out_proj", "out_proj", "gemm", NULL, true, ANY, all_tokens, sample_out_proj},
    {"linear_x_proj", "x_proj", "gemm", NULL, true, MAMBA1, all_tokens, sample_x_proj},
    {"linear_dt_proj", "dt_proj", "gemm", NULL, true, MAMBA1, all_tokens, sample_dt_proj},
    {"linear_dx", "input gradients of in_proj and out_proj against sgemm", "gemm", NULL, true, ANY,
     all_tokens, bench_sample_linear_dx},
    {"linear_dw", "their weight gradients", "gemm", NULL, true, ANY, all_tokens,
     bench_sample_linear_dw},
    {"gram_heads",
     "the per-head Gram of one Mamba-2 layer (mamba2-130m's where the shape has no heads)", "fma",
     NULL, true, ANY, all_tokens, bench_sample_gram_heads},
    {"train", "a step of training, 8 sequences of 512 tokens", "gemm", NULL, false,
     1 << SSM_FAMILY_MAMBA | MAMBA2, bench_train_tokens, bench_sample_train},
    {"train_small", "the same of d_model 128, 4 layers, on 16 sequences of 256 bytes", "gemm", NULL,
     false, ANY, bench_train_small_tokens, bench_sample_train_small},
    {NULL, NULL, NULL, NULL, false, 0, NULL, NULL}};
