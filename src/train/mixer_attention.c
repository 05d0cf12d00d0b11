/* train/mixer_attention.c: causal self-attention, forward and backward (docs/hybrid.md):
 *
 *   (q, k, v) = conv1d(in_proj h), the convolution without activation, or absent;
 *   rotary on the leading coordinates of q and k;
 *   o_h = softmax(scale q_h·k_g) v_g over the tokens so far, g = h / (Hq/Hkv);  out = out_proj o
 *
 * Scores exist for 64 queries × 64 keys at a time, forwards and, computed again, backwards. Kept
 * are q (scaled), k, v, o, and of every query the largest score and 1/Σ exp(score − largest). A
 * head's q, k, v are dense rows of its own. The heads that share keys are one task backwards: it
 * sums dk and dv in rising head and query. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/training.h"
#include "train/lanes.h"
#include "train/mixer.h"
#include "train/work.h"

typedef enum parameter { IN_PROJ, OUT_PROJ, CONV, CONV_BIAS } parameter; /* the last two: or none */

typedef struct weights {
    float *conv, *conv_bias, *dconv, *dconv_bias; /* lanes; NULL: no convolution */
    double *turns;                                /* [rotary_dim/2] angle of a token */
} weights;

typedef struct kept {
    ssm__wide in;             /* before the convolution, where there is one */
    float *q, *k, *v;         /* [sequences][heads][L][dh] */
    float *o;                 /* [T][Hq·dh] */
    float *maximum, *inverse; /* [sequences][Hq][L] */
} kept;

typedef struct scratch {
    ssm__wide qkv;  /* what the heads are cut from; backward: its gradient */
    float *threads; /* [threads] of thread_floats */
    int64_t thread_floats;
    /* backward */
    float *dq, *dk, *dv; /* like q, k, v */
    float *dout;         /* [T][Hq·dh] */
} scratch;

static int64_t query_width(const ssm_config *c)
{
    return c->n_query_heads * c->attention_head_dim;
}

static int64_t rows_of(const ssm_config *c)
{
    return (c->n_query_heads + 2 * c->n_kv_heads) * c->attention_head_dim;
}

static bool accepts(const ssm__network_config *config, char *why, size_t size)
{
    const ssm_config *c = &config->shape;
    if (c->n_query_heads < 1 || c->n_kv_heads < 1 || c->attention_head_dim < 1 ||
        c->n_query_heads % c->n_kv_heads != 0) {
        snprintf(why, size,
                 "attention needs heads of 1 or more coordinates, and key heads that divide the "
                 "query heads; found %lld query heads, %lld key heads, %lld coordinates",
                 (long long)c->n_query_heads, (long long)c->n_kv_heads,
                 (long long)c->attention_head_dim);
    } else if (c->rotary_dim < 0 || c->rotary_dim > c->attention_head_dim ||
               c->rotary_dim % 2 != 0 || (c->rotary_dim > 0 && !(c->rotary_base > 0))) {
        snprintf(why, size,
                 "attention: rotary_dim %lld of a base %g; expected an even number up to %lld, "
                 "and a base above 0",
                 (long long)c->rotary_dim, c->rotary_base, (long long)c->attention_head_dim);
    } else if (!isfinite(c->softmax_scale) || c->softmax_scale <= 0 || c->attention_conv < 0) {
        snprintf(why, size,
                 "attention: softmax_scale %g, attention_conv %lld; expected a scale above 0 and a "
                 "width of 0 or more",
                 c->softmax_scale, (long long)c->attention_conv);
    } else {
        return true;
    }
    return false;
}

static void declare(ssm__declaration *list, const ssm__network_config *config, int64_t layer)
{
    ssm__declare_slot(list, SSM_LAYER_ATTENTION, layer, SSM__SLOT_in_proj);
    ssm__declare_slot(list, SSM_LAYER_ATTENTION, layer, SSM__SLOT_out_proj);
    if (config->shape.attention_conv > 0) {
        ssm__declare_slot(list, SSM_LAYER_ATTENTION, layer, SSM__SLOT_conv1d);
        ssm__declare_slot(list, SSM_LAYER_ATTENTION, layer, SSM__SLOT_conv1d_bias);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *take_weights(ssm__arena *arena, const ssm__network_config *config)
{
    const ssm_config *c = &config->shape;
    const int64_t lanes = c->attention_conv > 0 ? ssm__lane_groups(rows_of(c)) * SSM__LANES : 0;
    weights *out = SSM__TAKE(arena, weights, 1);
    const weights w = {.conv = SSM__TAKE(arena, float, lanes * c->attention_conv),
                       .conv_bias = SSM__TAKE(arena, float, lanes),
                       .dconv = SSM__TAKE(arena, float, lanes * c->attention_conv),
                       .dconv_bias = SSM__TAKE(arena, float, lanes),
                       .turns = SSM__TAKE(arena, double, c->rotary_dim / 2)};
    if (out != NULL) {
        *out = w;
    }
    return out;
}

static void *take_kept(ssm__arena *arena, const ssm__network_config *config, int64_t length,
                       int64_t sequences, bool backward)
{
    const ssm_config *c = &config->shape;
    const int64_t tokens = sequences * length, dh = c->attention_head_dim;
    kept *out = SSM__TAKE(arena, kept, 1);
    kept k = {.q = SSM__TAKE(arena, float, tokens *query_width(c)),
              .k = SSM__TAKE(arena, float, tokens * c->n_kv_heads * dh),
              .v = SSM__TAKE(arena, float, tokens * c->n_kv_heads * dh),
              .o = SSM__TAKE(arena, float, tokens *query_width(c)),
              .maximum = SSM__TAKE(arena, float, tokens * c->n_query_heads),
              .inverse = SSM__TAKE(arena, float, tokens * c->n_query_heads)};
    (void)backward;
    if (c->attention_conv > 0) {
        k.in = ssm__wide_take(arena, rows_of(c), length, sequences);
    }
    if (out != NULL) {
        *out = k;
    }
    return out;
}

static void *take_scratch(ssm__arena *arena, const ssm__network_config *config, int64_t length,
                          int64_t sequences, int threads, bool backward)
{
    const ssm_config *c = &config->shape;
    const int64_t tokens = sequences * length, dh = c->attention_head_dim;
    const int64_t pairs = 3 * SSM__TILE * SSM__TILE, past = c->attention_conv * SSM__LANES;
    scratch *out = SSM__TAKE(arena, scratch, 1);
    scratch s = {.qkv = ssm__wide_take(arena, rows_of(c), length, sequences)};
    s.thread_floats = (pairs + past + rows_of(c) + c->rotary_dim + 15) / 16 * 16;
    s.threads = SSM__TAKE(arena, float, threads *s.thread_floats);
    if (backward) {
        s.dq = SSM__TAKE(arena, float, tokens *query_width(c));
        s.dk = SSM__TAKE(arena, float, tokens * c->n_kv_heads * dh);
        s.dv = SSM__TAKE(arena, float, tokens * c->n_kv_heads * dh);
        s.dout = SSM__TAKE(arena, float, tokens *query_width(c));
    }
    if (out != NULL) {
        *out = s;
    }
    return out;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void prepare(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    const int64_t rows = rows_of(c), half = c->rotary_dim / 2, K = c->attention_conv;
    const int64_t lanes = ssm__lane_groups(rows) * SSM__LANES;
    for (int64_t i = 0; i < half; i++) {
        w->turns[i] = pow(c->rotary_base, -(double)i / (double)half);
    }
    if (K == 0) {
        return;
    }
    ssm__lanes_put(ssm__own_value(run, CONV), rows, K, w->conv);
    ssm__lanes_put(ssm__own_value(run, CONV_BIAS), rows, 1, w->conv_bias);
    if (run->gradients != NULL) {
        memset(w->dconv, 0, (size_t)(lanes * K) * sizeof(float));
        memset(w->dconv_bias, 0, (size_t)lanes * sizeof(float));
    }
}

static void finish(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    if (c->attention_conv > 0) {
        ssm__lanes_add(w->dconv, rows_of(c), c->attention_conv, ssm__own_gradient(run, CONV));
        ssm__lanes_add(w->dconv_bias, rows_of(c), 1, ssm__own_gradient(run, CONV_BIAS));
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

static float *thread_memory(const ssm__run *run, int thread)
{
    const scratch *s = run->scratch;
    return s->threads + thread * s->thread_floats;
}

static int64_t blocks_of(const ssm__run *run)
{
    return ssm__divide_up(ssm__lane_groups(rows_of(&run->config->shape)), SSM__WORK_GROUPS);
}

/* in_proj and convolution of a few groups of a sequence. */
static void project(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const weights *w = run->weights;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const int64_t D = run->config->shape.d_model, K = run->config->shape.attention_conv;
    const ssm__matrix m = ssm__own_matrix(run, IN_PROJ);
    const ssm__wide to = K > 0 ? k->in : s->qkv;
    const int64_t sequence = task / blocks_of(run),
                  first = task % blocks_of(run) * SSM__WORK_GROUPS;
    const int64_t end = ssm__least(first + SSM__WORK_GROUPS, ssm__lane_groups(m.rows));
    for (int64_t t = 0; t < run->length; t += SSM__WORK_TOKENS) {
        run->kernels->linear(
            &m, NULL, ssm__rows_view(run->in + (sequence * run->length + t) * D, D),
            ssm__wide_view(to, sequence, t), ssm__least(SSM__WORK_TOKENS, run->length - t),
            first * SSM__LANES, ssm__least(end * SSM__LANES, m.rows));
    }
    for (int64_t group = first; group < end && K > 0; group++) {
        float *history = thread_memory(run, thread);
        memset(history, 0, (size_t)((K - 1) * SSM__LANES) * sizeof *history);
        run->kernels->conv(ssm__wide_group(k->in, sequence, group),
                           w->conv + group * K * SSM__LANES, w->conv_bias + group * SSM__LANES,
                           history, ssm__wide_group(s->qkv, sequence, group), run->length, K);
    }
}

/* cos and sin of token t's angles; the angles in float64. */
static void make_rotation(const ssm__run *run, int64_t t, float *out)
{
    const weights *w = run->weights;
    for (int64_t i = 0; i < run->config->shape.rotary_dim / 2; i++) {
        const double angle = (double)t * w->turns[i];
        out[2 * i] = (float)cos(angle);
        out[2 * i + 1] = (float)sin(angle);
    }
}

/* sign −1: back, which is the gradient's way. */
static void rotate(const ssm_config *c, const float *turn, float sign, float *head)
{
    const int64_t half = c->rotary_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        float *a = head + (c->rotary_interleaved ? 2 * i : i);
        float *b = head + (c->rotary_interleaved ? 2 * i + 1 : i + half);
        const float x = *a, y = *b, cosine = turn[2 * i], sine = sign * turn[2 * i + 1];
        *a = x * cosine - y * sine;
        *b = y * cosine + x * sine;
    }
}

/* Columns [0, W) of a token of a wide array. */
static void take_token(ssm__wide wide, int64_t sequence, int64_t t, int64_t width, float *out)
{
    for (int64_t c = 0; c < width; c += SSM__LANES) {
        memcpy(out + c, ssm__wide_group(wide, sequence, c / SSM__LANES) + t * SSM__LANES,
               (size_t)ssm__least(SSM__LANES, width - c) * sizeof *out);
    }
}

static void put_token(const float *in, int64_t width, ssm__wide wide, int64_t sequence, int64_t t)
{
    for (int64_t c = 0; c < width; c += SSM__LANES) {
        memcpy(ssm__wide_group(wide, sequence, c / SSM__LANES) + t * SSM__LANES, in + c,
               (size_t)ssm__least(SSM__LANES, width - c) * sizeof *in);
    }
}

/* Row t of head h of `heads` in an array like q. */
static float *head_row(const ssm__run *run, float *array, int64_t heads, int64_t sequence,
                       int64_t h, int64_t t)
{
    const int64_t dh = run->config->shape.attention_head_dim;
    return array + (((sequence * heads + h) * run->length) + t) * dh;
}

/* Heads of a token between a row of (q, k, v) and q, k, v; back: from them, turned back. q is
 * scaled both ways. */
static void move_token(const ssm__run *run, int64_t sequence, int64_t t, float *q, float *k,
                       float *v, float *row, const float *turn, bool back)
{
    const ssm_config *c = &run->config->shape;
    const int64_t dh = c->attention_head_dim, Hq = c->n_query_heads, Hkv = c->n_kv_heads;
    const size_t bytes = (size_t)dh * sizeof(float);
    const float scale = (float)c->softmax_scale;
    for (int64_t h = 0; h < Hq + 2 * Hkv; h++) {
        float *column = row + h * dh;
        float *head = h < Hq         ? head_row(run, q, Hq, sequence, h, t)
                      : h < Hq + Hkv ? head_row(run, k, Hkv, sequence, h - Hq, t)
                                     : head_row(run, v, Hkv, sequence, h - Hq - Hkv, t);
        if (back) {
            memcpy(column, head, bytes);
        }
        if (h < Hq + Hkv) {
            rotate(c, turn, back ? -1.0f : 1.0f, column);
        }
        for (int64_t i = 0; i < dh && h < Hq; i++) {
            column[i] *= scale;
        }
        if (!back) {
            memcpy(head, column, bytes);
        }
    }
}

static void cut_heads(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const int64_t width = rows_of(&run->config->shape);
    int64_t sequence, first;
    const int64_t tokens = ssm__tile_of(run, task, SSM__TILE, &sequence, &first);
    float *turn = thread_memory(run, thread), *row = turn + run->config->shape.rotary_dim;
    for (int64_t t = first; t < first + tokens; t++) {
        make_rotation(run, t, turn);
        take_token(s->qkv, sequence, t, width, row);
        move_token(run, sequence, t, k->q, k->k, k->v, row, turn, false);
    }
}

/* A block of queries of a head of a sequence. */
typedef struct block {
    int64_t sequence, head, kv_head;
    int64_t first, queries;
    const float *q;
    float *maximum, *inverse; /* of its queries */
    int64_t row;              /* of its first query in rows of [T][Hq·dh], in floats */
} block;

static block block_of(const ssm__run *run, int64_t sequence, int64_t head, int64_t first)
{
    const ssm_config *c = &run->config->shape;
    const kept *k = run->kept;
    const int64_t at = (sequence * c->n_query_heads + head) * run->length + first;
    return (block){.sequence = sequence,
                   .head = head,
                   .kv_head = head / (c->n_query_heads / c->n_kv_heads),
                   .first = first,
                   .queries = ssm__least(SSM__TILE, run->length - first),
                   .q = head_row(run, k->q, c->n_query_heads, sequence, head, first),
                   .maximum = k->maximum + at,
                   .inverse = k->inverse + at,
                   .row = (sequence * run->length + first) * query_width(c) +
                          head * c->attention_head_dim};
}

/* Keys of a block of keys that the first query sees, counted from the block's first. */
static int64_t seen_of(const block *b, int64_t first_key)
{
    return first_key < b->first ? SSM__TILE : 1;
}

/* scores ← x·rows of 64 keys (or values) from `first_key` on, `keys` of them. */
static void score(const ssm__run *run, const block *b, float *rows, const float *x,
                  int64_t x_stride, int64_t first_key, int64_t keys, float *scores)
{
    const ssm_config *c = &run->config->shape;
    const ssm__matrix m = {head_row(run, rows, c->n_kv_heads, b->sequence, b->kv_head, first_key),
                           SSM_DTYPE_F32, keys, c->attention_head_dim};
    run->kernels->linear(&m, NULL, ssm__rows_view(x, x_stride), ssm__rows_view(scores, SSM__TILE),
                         b->queries, 0, keys);
}

static void attend_block(const ssm__run *run, const block *b, float *scores)
{
    const ssm_config *c = &run->config->shape;
    const kept *k = run->kept;
    const int64_t dh = c->attention_head_dim, width = query_width(c);
    double total[SSM__TILE];
    float *out = k->o + b->row;
    for (int64_t t = 0; t < b->queries; t++) {
        b->maximum[t] = -INFINITY;
        total[t] = 0.0;
        memset(out + t * width, 0, (size_t)dh * sizeof *out);
    }
    for (int64_t key = 0; key <= b->first; key += SSM__TILE) {
        const int64_t keys = ssm__least(SSM__TILE, run->length - key);
        score(run, b, k->k, b->q, dh, key, keys, scores);
        run->kernels->attend(&(ssm__attend_args){
            .queries = b->queries,
            .keys = keys,
            .seen = seen_of(b, key),
            .scores = scores,
            .values = head_row(run, k->v, c->n_kv_heads, b->sequence, b->kv_head, key),
            .width = dh,
            .maximum = b->maximum,
            .total = total,
            .out = out,
            .out_stride = (ptrdiff_t)width});
    }
    for (int64_t t = 0; t < b->queries; t++) {
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
        const block b = block_of(run, task / Hq, task % Hq, first);
        attend_block(run, &b, thread_memory(run, thread));
    }
}

static void project_out(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const kept *k = run->kept;
    const ssm__matrix w = ssm__own_matrix(run, OUT_PROJ);
    const int64_t token = task * SSM__WORK_TOKENS;
    const int64_t tokens = ssm__least(SSM__WORK_TOKENS, run->sequences * run->length - token);
    ssm__project_rows(run, &w, ssm__rows_view(k->o + token * w.cols, w.cols),
                      ssm__rows_view(run->out + token * w.rows, w.rows), tokens);
}

static void forward(const ssm__run *run)
{
    void *context = (void *)(uintptr_t)run; /* tasks read it alone */
    ssm__pool_run(run->pool, project, context, run->sequences * blocks_of(run));
    ssm__pool_run(run->pool, cut_heads, context, ssm__tile_tasks(run, SSM__TILE));
    ssm__pool_run(run->pool, attend_head, context,
                  run->sequences * run->config->shape.n_query_heads);
    ssm__pool_run(run->pool, project_out, context, ssm__token_tasks(run));
}

/* ---- backward -------------------------------------------------------------------------------- */

static void back_out(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const scratch *s = run->scratch;
    const ssm__matrix w = ssm__own_matrix(run, OUT_PROJ);
    const int64_t token = task * SSM__WORK_TOKENS;
    run->kernels->training->linear_input_gradient(
        &w, ssm__rows_view(run->dout + token * w.rows, w.rows),
        ssm__rows_view(s->dout + token * w.cols, w.cols),
        ssm__least(SSM__WORK_TOKENS, run->sequences * run->length - token), 0, w.cols, false);
}

/* A block of queries against a block of keys. memory: two tiles of pairs. */
static void back_pair(const ssm__run *run, const block *b, int64_t key, const float *mean,
                      float *memory)
{
    const ssm_config *c = &run->config->shape;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const ssm__training_kernels *kernels = run->kernels->training;
    const int64_t dh = c->attention_head_dim, width = query_width(c), Hkv = c->n_kv_heads;
    const int64_t keys = ssm__least(SSM__TILE, run->length - key);
    float *scores = memory, *d = memory + SSM__TILE * SSM__TILE;
    const ssm__view p = ssm__rows_view(scores, SSM__TILE), ds = ssm__rows_view(d, SSM__TILE);
    const ssm__matrix rows = {head_row(run, k->k, Hkv, b->sequence, b->kv_head, key), SSM_DTYPE_F32,
                              keys, dh};
    float *dq = head_row(run, s->dq, c->n_query_heads, b->sequence, b->head, b->first);
    score(run, b, k->k, b->q, dh, key, keys, scores);
    score(run, b, k->v, s->dout + b->row, width, key, keys, d);
    kernels->attend_backward(&(ssm__attend_backward_args){.queries = b->queries,
                                                          .keys = keys,
                                                          .seen = seen_of(b, key),
                                                          .scores = scores,
                                                          .d = d,
                                                          .maximum = b->maximum,
                                                          .inverse = b->inverse,
                                                          .mean = mean});
    kernels->linear_weight_gradient(p, ssm__rows_view(s->dout + b->row, width), b->queries, dh,
                                    head_row(run, s->dv, Hkv, b->sequence, b->kv_head, key), 0,
                                    keys);
    kernels->linear_weight_gradient(ds, ssm__rows_view(b->q, dh), b->queries, dh,
                                    head_row(run, s->dk, Hkv, b->sequence, b->kv_head, key), 0,
                                    keys);
    kernels->linear_input_gradient(&rows, ds, ssm__rows_view(dq, dh), b->queries, 0, dh, key > 0);
}

/* The query heads of a key head of a sequence. */
static void back_heads(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const ssm_config *c = &run->config->shape;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const int64_t Hkv = c->n_kv_heads, shared = c->n_query_heads / Hkv, dh = c->attention_head_dim;
    const int64_t sequence = task / Hkv, kv_head = task % Hkv;
    const size_t bytes = (size_t)(run->length * dh) * sizeof(float);
    const ptrdiff_t width = (ptrdiff_t)query_width(c);
    memset(head_row(run, s->dk, Hkv, sequence, kv_head, 0), 0, bytes);
    memset(head_row(run, s->dv, Hkv, sequence, kv_head, 0), 0, bytes);
    for (int64_t head = kv_head * shared; head < (kv_head + 1) * shared; head++) {
        for (int64_t first = 0; first < run->length; first += SSM__TILE) {
            const block b = block_of(run, sequence, head, first);
            float mean[SSM__TILE]; /* Σ_j p_j dp_j = do·o */
            run->kernels->training->row_products(s->dout + b.row, width, k->o + b.row, width,
                                                 b.queries, dh, mean);
            for (int64_t key = 0; key <= first; key += SSM__TILE) {
                back_pair(run, &b, key, mean, thread_memory(run, thread));
            }
        }
    }
}

static void join_heads(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const scratch *s = run->scratch;
    const int64_t width = rows_of(&run->config->shape);
    int64_t sequence, first;
    const int64_t tokens = ssm__tile_of(run, task, SSM__TILE, &sequence, &first);
    float *turn = thread_memory(run, thread), *row = turn + run->config->shape.rotary_dim;
    for (int64_t t = first; t < first + tokens; t++) {
        make_rotation(run, t, turn);
        move_token(run, sequence, t, s->dq, s->dk, s->dv, row, turn, true);
        put_token(row, width, s->qkv, sequence, t);
    }
}

static void back_conv(void *context, int64_t group, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const weights *w = run->weights;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const int64_t K = run->config->shape.attention_conv, lanes = group * SSM__LANES;
    ssm__back_convolution(run, run->kernels->training->conv_backward,
                          (ssm__conv_backward_args){.d_conv = K,
                                                    .weight = w->conv + lanes * K,
                                                    .bias = w->conv_bias + lanes,
                                                    .dweight = w->dconv + lanes * K,
                                                    .dbias = w->dconv_bias + lanes},
                          k->in, s->qkv, group);
}

static void back_in(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const scratch *s = run->scratch;
    const ssm__matrix w = ssm__own_matrix(run, IN_PROJ);
    int64_t sequence, t;
    const int64_t tokens = ssm__tile_of(run, task, SSM__TILE, &sequence, &t);
    float *din = run->din + (sequence * run->length + t) * w.cols;
    run->kernels->training->linear_input_gradient(&w, ssm__wide_view(s->qkv, sequence, t),
                                                  ssm__rows_view(din, w.cols), tokens, 0, w.cols,
                                                  false);
}

static void weight_gradients(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const ssm__weight_product products[] = {
        {.dy = {.wide = s->qkv},
         .x = {.rows = run->in, .stride = c->d_model},
         .rows = rows_of(c),
         .cols = c->d_model,
         .dw = ssm__own_gradient(run, IN_PROJ)},
        {.dy = {.rows = run->dout, .stride = c->d_model},
         .x = {.rows = k->o, .stride = query_width(c)},
         .rows = c->d_model,
         .cols = query_width(c),
         .dw = ssm__own_gradient(run, OUT_PROJ)},
    };
    ssm__weight_products(run, products, sizeof products / sizeof products[0]);
}

static void backward(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    void *context = (void *)(uintptr_t)run;
    ssm__pool_run(run->pool, back_out, context, ssm__token_tasks(run));
    ssm__pool_run(run->pool, back_heads, context, run->sequences * c->n_kv_heads);
    ssm__pool_run(run->pool, join_heads, context, ssm__tile_tasks(run, SSM__TILE));
    if (c->attention_conv > 0) {
        ssm__pool_run(run->pool, back_conv, context, ssm__lane_groups(rows_of(c)));
    }
    weight_gradients(run);
    ssm__pool_run(run->pool, back_in, context, ssm__tile_tasks(run, SSM__TILE));
}

const ssm__mixer ssm__mixer_attention = {
    .accepts = accepts,
    .declare = declare,
    .weights = take_weights,
    .kept = take_kept,
    .scratch = take_scratch,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .finish = finish,
};
