/* train/attention_backward.c: attention backwards: scores again, key head after key head. */
#include <string.h>

#include "kernels/training.h"
#include "train/attention.h"

static void back_out(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const ssm__attention_scratch *s = run->scratch;
    const ssm__matrix w = ssm__own_matrix(run, SSM__ATTENTION_OUT_PROJ);
    const int64_t token = task * SSM__WORK_TOKENS;
    run->kernels->training->linear_input_gradient(
        &w, ssm__rows_view(run->dout + token * w.rows, w.rows),
        ssm__rows_view(s->dout + token * w.cols, w.cols),
        ssm__least(SSM__WORK_TOKENS, run->sequences * run->length - token), 0, w.cols, false);
}

/* A block of queries against a block of keys. memory: two tiles of pairs. */
static void back_pair(const ssm__run *run, const ssm__queries *b, int64_t key, const float *mean,
                      float *memory)
{
    const ssm_config *c = &run->config->shape;
    const ssm__attention_kept *k = run->kept;
    const ssm__attention_scratch *s = run->scratch;
    const ssm__training_kernels *kernels = run->kernels->training;
    const int64_t dh = c->attention_head_dim, width = ssm__attention_query_width(c),
                  Hkv = c->n_kv_heads;
    const int64_t keys = ssm__least(SSM__TILE, run->length - key);
    float *scores = memory, *d = memory + SSM__TILE * SSM__TILE;
    const ssm__view p = ssm__rows_view(scores, SSM__TILE), ds = ssm__rows_view(d, SSM__TILE);
    const ssm__matrix rows = {ssm__head_row(run, k->k, Hkv, b->sequence, b->kv_head, key),
                              SSM_DTYPE_F32, keys, dh};
    float *dq = ssm__head_row(run, s->dq, c->n_query_heads, b->sequence, b->head, b->first);
    ssm__queries_score(run, b, k->k, b->q, dh, key, keys, scores);
    ssm__queries_score(run, b, k->v, s->dout + b->row, width, key, keys, d);
    kernels->attend_backward(&(ssm__attend_backward_args){.queries = b->count,
                                                          .keys = keys,
                                                          .seen = ssm__queries_seen(b, key),
                                                          .scores = scores,
                                                          .d = d,
                                                          .maximum = b->maximum,
                                                          .inverse = b->inverse,
                                                          .mean = mean});
    kernels->linear_weight_gradient(p, ssm__rows_view(s->dout + b->row, width), b->count, dh,
                                    ssm__head_row(run, s->dv, Hkv, b->sequence, b->kv_head, key), 0,
                                    keys);
    kernels->linear_weight_gradient(ds, ssm__rows_view(b->q, dh), b->count, dh,
                                    ssm__head_row(run, s->dk, Hkv, b->sequence, b->kv_head, key), 0,
                                    keys);
    kernels->linear_input_gradient(&rows, ds, ssm__rows_view(dq, dh), b->count, 0, dh, key > 0);
}

/* The query heads of a key head of a sequence. */
static void back_heads(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const ssm_config *c = &run->config->shape;
    const ssm__attention_kept *k = run->kept;
    const ssm__attention_scratch *s = run->scratch;
    const int64_t Hkv = c->n_kv_heads, shared = c->n_query_heads / Hkv, dh = c->attention_head_dim;
    const int64_t sequence = task / Hkv, kv_head = task % Hkv;
    const size_t bytes = (size_t)(run->length * dh) * sizeof(float);
    const ptrdiff_t width = (ptrdiff_t)ssm__attention_query_width(c);
    memset(ssm__head_row(run, s->dk, Hkv, sequence, kv_head, 0), 0, bytes);
    memset(ssm__head_row(run, s->dv, Hkv, sequence, kv_head, 0), 0, bytes);
    for (int64_t head = kv_head * shared; head < (kv_head + 1) * shared; head++) {
        for (int64_t first = 0; first < run->length; first += SSM__TILE) {
            const ssm__queries b = ssm__queries_of(run, sequence, head, first);
            float mean[SSM__TILE]; /* Σ_j p_j dp_j = do·o */
            run->kernels->training->row_products(s->dout + b.row, width, k->o + b.row, width,
                                                 b.count, dh, mean);
            for (int64_t key = 0; key <= first; key += SSM__TILE) {
                back_pair(run, &b, key, mean, ssm__attention_memory(run, thread));
            }
        }
    }
}

static void back_conv(void *context, int64_t group, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const ssm__attention_weights *w = run->weights;
    const ssm__attention_kept *k = run->kept;
    const ssm__attention_scratch *s = run->scratch;
    ssm__convolve_back(run, &w->conv, group, k->in, s->qkv, group);
}

static void back_in(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const ssm__attention_scratch *s = run->scratch;
    const ssm__matrix w = ssm__own_matrix(run, SSM__ATTENTION_IN_PROJ);
    int64_t sequence, t;
    const int64_t tokens = ssm__tile_of(run, task, SSM__TILE, &sequence, &t);
    ssm__project_back(run, &w, s->qkv, sequence, t, tokens, false);
}

static void weight_gradients(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const ssm__attention_kept *k = run->kept;
    const ssm__attention_scratch *s = run->scratch;
    const ssm__weight_product products[] = {
        {.dy = {.wide = s->qkv},
         .x = {.rows = run->in, .stride = c->d_model},
         .rows = ssm__attention_rows(c),
         .cols = c->d_model,
         .dw = ssm__own_gradient(run, SSM__ATTENTION_IN_PROJ)},
        {.dy = {.rows = run->dout, .stride = c->d_model},
         .x = {.rows = k->o, .stride = ssm__attention_query_width(c)},
         .rows = c->d_model,
         .cols = ssm__attention_query_width(c),
         .dw = ssm__own_gradient(run, SSM__ATTENTION_OUT_PROJ)},
    };
    ssm__weight_products(run, products, sizeof products / sizeof products[0]);
}

void ssm__attention_backward(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    void *context = (void *)(uintptr_t)run;
    ssm__pool_run(run->pool, back_out, context, ssm__token_tasks(run));
    ssm__pool_run(run->pool, back_heads, context, run->sequences * c->n_kv_heads);
    ssm__pool_run(run->pool, ssm__attention_join_heads, context, ssm__tile_tasks(run, SSM__TILE));
    if (c->attention_conv > 0) {
        ssm__pool_run(run->pool, back_conv, context, ssm__lane_groups(ssm__attention_rows(c)));
    }
    weight_gradients(run);
    ssm__pool_run(run->pool, back_in, context, ssm__tile_tasks(run, SSM__TILE));
}
