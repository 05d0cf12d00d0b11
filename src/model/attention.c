/* model/attention.c: causal self-attention over one tile of at most 64 tokens (docs/hybrid.md).
 *
 *   (q, k, v) = conv1d(in_proj x), the convolution without activation, or absent;
 *   rotary on the leading coordinates of q and k;
 *   o_h = softmax(scale q_h·k_g) v_g over the tokens so far, g = h / (Hq/Hkv);  out = out_proj o
 *
 * Four parallel runs, each over fixed tasks: in_proj and convolution by blocks of rows; rotation
 * and the cache by tokens; heads; out_proj by blocks of rows. A head goes through the cache block
 * by block of 64 positions, so a token's numbers do not depend on the tokens computed with it. */
#include "model/session.h"

#include <math.h>

#include "base/pool.h"
#include "model/layout.h"

enum {
    BLOCK_GROUPS = 3, /* groups of 16 rows that a task of a linear has */
    BLOCK_ROWS = BLOCK_GROUPS * SSM__LANES,
    ROTATE_TOKENS = 8 /* tokens a task of the rotation */
};

void ssm__attention_layout(ssm__arena *arena, const ssm_config *c, const ssm__layer_weights *w,
                           ssm__attention_layer *out)
{
    const int64_t rows = ssm__attention_rows(c);
    const int64_t groups = ssm__ceil_div(rows, SSM__LANES);
    const ssm__lane_map lanes = {0, rows, rows, 0};
    ssm__attention_layer l = {0};
    l.in_proj = ssm__matrix_of(&w->in_proj);
    l.out_proj = ssm__matrix_of(&w->out_proj);
    l.in_proj_bias = ssm__copy_dense(arena, &w->in_proj_bias);
    l.out_proj_bias = ssm__copy_dense(arena, &w->out_proj_bias);
    if (c->attention_conv > 0) {
        l.conv_weight = SSM__TAKE(arena, float, groups * c->attention_conv * SSM__LANES);
        l.conv_bias = SSM__TAKE(arena, float, groups *SSM__LANES);
        ssm__put_lanes(&w->conv1d, c->attention_conv, lanes, l.conv_weight);
        ssm__put_lanes(&w->conv1d_bias, 1, lanes, l.conv_bias);
    }
    *out = l;
}

void ssm__attention_take_scratch(ssm__arena *arena, const ssm_model *model,
                                 ssm__attention_scratch *out)
{
    const ssm_config *c = model->config;
    const int64_t groups = ssm__ceil_div(ssm__attention_rows(c), SSM__LANES);
    const int64_t tile = SSM__TILE_ROWS * SSM__LANES;
    const int64_t width = c->n_query_heads * c->attention_head_dim;
    if (model->n_attention == 0) {
        return;
    }
    out->in_tile = SSM__TAKE(arena, float, groups *tile);
    out->conv_tile = SSM__TAKE(arena, float, c->attention_conv > 0 ? groups * tile : 0);
    out->q = SSM__TAKE(arena, float, SSM__TILE *width);
    out->out = SSM__TAKE(arena, float, SSM__TILE *width);
    out->rotation = SSM__TAKE(arena, float, SSM__TILE * c->rotary_dim);
}

typedef struct mixer_run {
    ssm_session *session;
    const ssm__block *block;
    const ssm__attention_layer *layer;
    const ssm_config *config;
    const ssm__kernels *kernels;
    const ssm__attention_scratch *scratch;
    int64_t position, tokens;
    float *qkv; /* the tile that holds q, k and v */
} mixer_run;

static void project_and_convolve(void *context, int64_t task, int thread)
{
    (void)thread;
    const mixer_run *run = context;
    const ssm__attention_layer *l = run->layer;
    const int64_t K = run->config->attention_conv;
    const int64_t row_end = ssm__smaller((task + 1) * BLOCK_ROWS, l->in_proj.rows);
    run->kernels->linear(
        &l->in_proj, l->in_proj_bias, ssm__dense(run->session->normed, run->config->d_model),
        ssm__tiled(run->scratch->in_tile), run->tokens, task * BLOCK_ROWS, row_end);
    if (K == 0) {
        return;
    }
    float *history = run->session->conv_history + run->block->conv_at;
    for (int64_t g = task * BLOCK_GROUPS; g * SSM__LANES < row_end; g++) {
        run->kernels->conv(ssm__group_of(run->scratch->in_tile, g),
                           l->conv_weight + g * K * SSM__LANES, l->conv_bias + g * SSM__LANES,
                           history + g * (K - 1) * SSM__LANES,
                           ssm__group_of(run->scratch->conv_tile, g), run->tokens, K);
    }
}

/* ---- rotation and cache ---------------------------------------------------------------------- */

/* Columns first … first+count−1 of token t. */
static void take_columns(const mixer_run *run, int64_t t, int64_t first, int64_t count, float *out)
{
    for (int64_t k = first; k < first + count; k++) {
        out[k - first] = ssm__group_of(run->qkv, k / SSM__LANES)[t * SSM__LANES + k % SSM__LANES];
    }
}

/* The angles in float64: a float32 product of a late position would be off by a whole token. */
static void make_rotation(const mixer_run *run, int64_t t)
{
    const int64_t half = run->config->rotary_dim / 2;
    float *out = run->scratch->rotation + t * 2 * half;
    for (int64_t i = 0; i < half; i++) {
        const double angle = (double)(run->position + t) * run->session->model->rotary_turns[i];
        out[2 * i] = (float)cos(angle);
        out[2 * i + 1] = (float)sin(angle);
    }
}

static void rotate(const mixer_run *run, int64_t t, float *head)
{
    const ssm_config *c = run->config;
    const int64_t half = c->rotary_dim / 2;
    const float *turn = run->scratch->rotation + t * 2 * half;
    for (int64_t i = 0; i < half; i++) {
        float *a = head + (c->rotary_interleaved ? 2 * i : i);
        float *b = head + (c->rotary_interleaved ? 2 * i + 1 : i + half);
        const float x = *a, y = *b;
        *a = x * turn[2 * i] - y * turn[2 * i + 1];
        *b = y * turn[2 * i] + x * turn[2 * i + 1];
    }
}

/* Queries scaled into scratch, keys and values into the cache. */
static void rotate_and_store(void *context, int64_t task, int thread)
{
    (void)thread;
    const mixer_run *run = context;
    const ssm_config *c = run->config;
    const int64_t dh = c->attention_head_dim, Hq = c->n_query_heads, Hkv = c->n_kv_heads;
    const float scale = (float)c->softmax_scale;
    const int64_t end = ssm__smaller((task + 1) * ROTATE_TOKENS, run->tokens);
    for (int64_t t = task * ROTATE_TOKENS; t < end; t++) {
        const int64_t block = (run->position + t) / SSM__TILE;
        const int64_t row = (run->position + t) % SSM__TILE * dh;
        float *q = run->scratch->q + t * Hq * dh;
        make_rotation(run, t);
        take_columns(run, t, 0, Hq * dh, q);
        for (int64_t h = 0; h < Hq; h++) {
            rotate(run, t, q + h * dh);
        }
        for (int64_t i = 0; i < Hq * dh; i++) {
            q[i] *= scale;
        }
        for (int64_t h = 0; h < Hkv; h++) {
            const int64_t index = run->layer->cache_index;
            float *key = ssm__cache_keys(run->session, block, index, h) + row;
            float *value = ssm__cache_values(run->session, block, index, h) + row;
            take_columns(run, t, (Hq + h) * dh, dh, key);
            rotate(run, t, key);
            take_columns(run, t, (Hq + Hkv + h) * dh, dh, value);
        }
    }
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* One head of the tile's queries through all blocks of the cache. */
static void attend_head(void *context, int64_t head, int thread)
{
    (void)thread;
    const mixer_run *run = context;
    const ssm_config *c = run->config;
    const int64_t dh = c->attention_head_dim, width = c->n_query_heads * dh;
    const int64_t kv_head = head / (c->n_query_heads / c->n_kv_heads);
    const int64_t last = run->position / SSM__TILE, before = run->position % SSM__TILE;
    float scores[SSM__TILE * SSM__TILE], maximum[SSM__TILE];
    double total[SSM__TILE];
    float *out = run->scratch->out + head * dh;
    for (int64_t t = 0; t < run->tokens; t++) {
        maximum[t] = -INFINITY;
        total[t] = 0.0;
        for (int64_t i = 0; i < dh; i++) {
            out[t * width + i] = 0.0f;
        }
    }
    for (int64_t block = 0; block <= last; block++) {
        const int64_t keys = block < last ? SSM__TILE : before + run->tokens;
        const int64_t index = run->layer->cache_index;
        const ssm__matrix rows = {ssm__cache_keys(run->session, block, index, kv_head),
                                  SSM_DTYPE_F32, keys, dh};
        run->kernels->linear(&rows, NULL, ssm__dense(run->scratch->q + head * dh, width),
                             ssm__dense(scores, SSM__TILE), run->tokens, 0, keys);
        run->kernels->attend(
            &(ssm__attend_args){.queries = run->tokens,
                                .keys = keys,
                                .seen = block < last ? SSM__TILE : before + 1,
                                .scores = scores,
                                .values = ssm__cache_values(run->session, block, index, kv_head),
                                .width = dh,
                                .maximum = maximum,
                                .total = total,
                                .out = out,
                                .out_stride = width});
    }
    for (int64_t t = 0; t < run->tokens; t++) {
        for (int64_t i = 0; i < dh; i++) {
            out[t * width + i] /= (float)total[t];
        }
    }
}

static void project_out(void *context, int64_t task, int thread)
{
    (void)thread;
    const mixer_run *run = context;
    const ssm__matrix *w = &run->layer->out_proj;
    run->kernels->linear(w, run->layer->out_proj_bias, ssm__dense(run->scratch->out, w->cols),
                         ssm__dense(run->session->mixed, w->rows), run->tokens, task * BLOCK_ROWS,
                         ssm__smaller((task + 1) * BLOCK_ROWS, w->rows));
}

void ssm__attention_mixer(ssm_session *session, int64_t layer, int64_t position, int64_t tokens)
{
    const ssm_model *model = session->model;
    const ssm_config *c = model->config;
    mixer_run run = {.session = session,
                     .block = &model->blocks[layer],
                     .layer = &model->blocks[layer].attention,
                     .config = c,
                     .kernels = model->kernels,
                     .scratch = &session->attention,
                     .position = position,
                     .tokens = tokens};
    const int64_t rows = run.layer->in_proj.rows, D = c->d_model;
    run.qkv = c->attention_conv > 0 ? run.scratch->conv_tile : run.scratch->in_tile;

    ssm__pool_run(session->pool, project_and_convolve, &run, ssm__ceil_div(rows, BLOCK_ROWS));
    ssm__session_tap(session, SSM_TAP_IN_PROJ, layer, position, tokens, rows,
                     ssm__tiled(run.scratch->in_tile));
    ssm__session_tap(session, SSM_TAP_CONV1D, layer, position, tokens, rows, ssm__tiled(run.qkv));

    ssm__pool_run(session->pool, rotate_and_store, &run, ssm__ceil_div(tokens, ROTATE_TOKENS));
    ssm__pool_run(session->pool, attend_head, &run, c->n_query_heads);
    ssm__session_tap(session, SSM_TAP_ATTENTION_OUT, layer, position, tokens,
                     run.layer->out_proj.cols,
                     ssm__dense(run.scratch->out, run.layer->out_proj.cols));

    ssm__pool_run(session->pool, project_out, &run, ssm__ceil_div(D, BLOCK_ROWS));
    ssm__session_tap(session, SSM_TAP_MIXER_OUT, layer, position, tokens, D,
                     ssm__dense(session->mixed, D));
}
