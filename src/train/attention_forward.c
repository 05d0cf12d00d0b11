/* train/attention_forward.c: attention forwards, 64 queries against 64 keys at a time. */
#include <math.h>
#include <string.h>

#include "kernels/training.h"
#include "train/attention.h"

/* in_proj and convolution of a few groups of a sequence. */
static void project(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const ssm__attention_weights *w = run->weights;
    const ssm__attention_kept *k = run->kept;
    const ssm__attention_scratch *s = run->scratch;
    const ssm__matrix m = ssm__own_matrix(run, SSM__ATTENTION_IN_PROJ);
    const bool convolved = w->conv.width > 0;
    int64_t first, end;
    const int64_t sequence = ssm__groups_of(task, s->qkv.groups, &first, &end);
    ssm__project_groups(run, &m, run->in, m.cols, convolved ? k->in : s->qkv, sequence, first, end);
    for (int64_t group = first; group < end && convolved; group++) {
        ssm__convolve(run, &w->conv, group, ssm__wide_group(k->in, sequence, group),
                      ssm__wide_group(s->qkv, sequence, group), ssm__attention_memory(run, thread));
    }
}

ssm__queries ssm__queries_of(const ssm__run *run, int64_t sequence, int64_t head, int64_t first)
{
    const ssm_config *c = &run->config->shape;
    const ssm__attention_kept *k = run->kept;
    const int64_t at = (sequence * c->n_query_heads + head) * run->length + first;
    return (ssm__queries){.sequence = sequence,
                          .head = head,
                          .kv_head = head / (c->n_query_heads / c->n_kv_heads),
                          .first = first,
                          .count = ssm__least(SSM__TILE, run->length - first),
                          .q = ssm__head_row(run, k->q, c->n_query_heads, sequence, head, first),
                          .maximum = k->maximum + at,
                          .inverse = k->inverse + at,
                          .row = (sequence * run->length + first) * ssm__attention_query_width(c) +
                                 head * c->attention_head_dim};
}

void ssm__queries_score(const ssm__run *run, const ssm__queries *b, float *rows, const float *x,
                        int64_t x_stride, int64_t first_key, int64_t keys, float *scores)
{
    const ssm_config *c = &run->config->shape;
    const ssm__matrix m = {
        ssm__head_row(run, rows, c->n_kv_heads, b->sequence, b->kv_head, first_key), SSM_DTYPE_F32,
        keys, c->attention_head_dim};
    run->kernels->linear(&m, NULL, ssm__rows_view(x, x_stride), ssm__rows_view(scores, SSM__TILE),
                         b->count, 0, keys);
}

static void attend_block(const ssm__run *run, const ssm__queries *b, float *scores)
{
    const ssm_config *c = &run->config->shape;
    const ssm__attention_kept *k = run->kept;
    const int64_t dh = c->attention_head_dim, width = ssm__attention_query_width(c);
    double total[SSM__TILE];
    float *out = k->o + b->row;
    for (int64_t t = 0; t < b->count; t++) {
        b->maximum[t] = -INFINITY;
        total[t] = 0.0;
        memset(out + t * width, 0, (size_t)dh * sizeof *out);
    }
    for (int64_t key = 0; key <= b->first; key += SSM__TILE) {
        const int64_t keys = ssm__least(SSM__TILE, run->length - key);
        ssm__queries_score(run, b, k->k, b->q, dh, key, keys, scores);
        run->kernels->attend(&(ssm__attend_args){
            .queries = b->count,
            .keys = keys,
            .seen = ssm__queries_seen(b, key),
            .scores = scores,
            .values = ssm__head_row(run, k->v, c->n_kv_heads, b->sequence, b->kv_head, key),
            .width = dh,
            .maximum = b->maximum,
            .total = total,
            .out = out,
            .out_stride = (ptrdiff_t)width});
    }
    for (int64_t t = 0; t < b->count; t++) {
        b->inverse[t] = (float)(1.0 / total[t]);
        for (int64_t i = 0; i < dh; i++) {
            out[t * width + i] *= b->inverse[t];
        }
    }
}

static void attend_head(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const int64_t Hq = run->config->shape.n_query_heads;
    for (int64_t first = 0; first < run->length; first += SSM__TILE) {
        const ssm__queries b = ssm__queries_of(run, task / Hq, task % Hq, first);
        attend_block(run, &b, ssm__attention_memory(run, thread));
    }
}

static void project_out(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const ssm__attention_kept *k = run->kept;
    const ssm__matrix w = ssm__own_matrix(run, SSM__ATTENTION_OUT_PROJ);
    const int64_t token = task * SSM__WORK_TOKENS;
    const int64_t tokens = ssm__least(SSM__WORK_TOKENS, run->sequences * run->length - token);
    ssm__project_rows(run, &w, ssm__rows_view(k->o + token * w.cols, w.cols),
                      ssm__rows_view(run->out + token * w.rows, w.rows), tokens);
}

void ssm__attention_forward(const ssm__run *run)
{
    const ssm__attention_scratch *s = run->scratch;
    void *context = (void *)(uintptr_t)run; /* tasks read it alone */
    ssm__pool_run(run->pool, project, context, ssm__group_tasks(run, s->qkv.groups));
    ssm__pool_run(run->pool, ssm__attention_cut_heads, context, ssm__tile_tasks(run, SSM__TILE));
    ssm__pool_run(run->pool, attend_head, context,
                  run->sequences * run->config->shape.n_query_heads);
    ssm__pool_run(run->pool, project_out, context, ssm__token_tasks(run));
}
