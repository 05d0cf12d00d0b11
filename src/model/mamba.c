/* model/mamba.c: the mixer of Mamba-1 and of Falcon-Mamba over one tile of at most 64 tokens
 * (docs/mamba1.md).
 *
 *   (xs, z) = in_proj x;  u = SiLU(conv1d(xs));  (dt, B, C) = x_proj u;
 *   Δ = softplus(dt_proj dt + b);  y = selective scan (u, Δ, A, B, C, D, z);  out = out_proj y
 *
 * Falcon-Mamba: dt, B and C each go through an RMSNorm without weight behind x_proj.
 * Four parallel runs, each over fixed tasks: in_proj and convolution by blocks of channel groups,
 * x_proj by tokens and rows, dt_proj and scan by blocks of groups, out_proj by blocks of rows. */
#include "model/layout.h"
#include "model/session.h"

#include "base/pool.h"

enum {
    BLOCK_GROUPS = 3, /* channel groups a task: 48 rows of a linear */
    BLOCK_ROWS = BLOCK_GROUPS * SSM__LANES,
    X_PROJ_TOKENS = 8 /* tokens a task of x_proj, which has few rows */
};

void ssm__mamba_layout(ssm__arena *arena, const ssm_config *c, const ssm__layer_weights *w,
                       ssm__mamba_layer *out)
{
    const int64_t groups = ssm__scan_groups(c);
    const ssm__lane_map lanes = {0, c->d_inner, c->d_inner, 0};
    const ssm__matrix in_proj = ssm__matrix_of(&w->in_proj);
    ssm__mamba_layer l = {0};
    l.in_proj_x = ssm__matrix_rows(in_proj, 0, c->d_inner);
    l.in_proj_z = ssm__matrix_rows(in_proj, c->d_inner, c->d_inner);
    l.x_proj = ssm__matrix_of(&w->x_proj);
    l.dt_proj = ssm__matrix_of(&w->dt_proj);
    l.out_proj = ssm__matrix_of(&w->out_proj);
    l.in_proj_bias = ssm__copy_dense(arena, &w->in_proj_bias);
    l.out_proj_bias = ssm__copy_dense(arena, &w->out_proj_bias);
    l.conv_weight = SSM__TAKE(arena, float, groups * c->d_conv * SSM__LANES);
    l.conv_bias = SSM__TAKE(arena, float, groups *SSM__LANES);
    l.dt_bias = SSM__TAKE(arena, float, groups *SSM__LANES);
    l.A2 = SSM__TAKE(arena, float, groups * c->d_state * SSM__LANES);
    l.D = SSM__TAKE(arena, float, groups *SSM__LANES);
    ssm__put_lanes(&w->conv1d, c->d_conv, lanes, l.conv_weight);
    ssm__put_lanes(&w->conv1d_bias, 1, lanes, l.conv_bias);
    ssm__put_lanes(&w->dt_proj_bias, 1, lanes, l.dt_bias);
    ssm__put_lanes(&w->A_log, c->d_state, lanes, l.A2);
    ssm__put_lanes(&w->D, 1, lanes, l.D);
    ssm__decay_rates(l.A2, groups * c->d_state * SSM__LANES);
    if (arena->memory) {
        *out = l;
    }
}

typedef struct mixer_run {
    ssm_session *session;
    const ssm__block *block;
    const ssm__mamba_layer *layer;
    const ssm_config *config;
    const ssm__kernels *kernels;
    int64_t index; /* of the layer */
    int64_t position, tokens;
} mixer_run;

/* Groups of task `task`: [*first, *end). */
static void task_groups(const mixer_run *run, int64_t task, int64_t *first, int64_t *end)
{
    *first = task * BLOCK_GROUPS;
    *end = ssm__smaller(*first + BLOCK_GROUPS, run->session->model->n_groups16);
}

/* in_proj, convolution and SiLU of a few channel groups. */
static void project_and_convolve(void *context, int64_t task, int thread)
{
    (void)thread;
    const mixer_run *run = context;
    const ssm_session *s = run->session;
    const ssm__mamba_layer *l = run->layer;
    const ssm_config *c = run->config;
    int64_t first, end;
    task_groups(run, task, &first, &end);
    const int64_t row = first * SSM__LANES;
    const int64_t row_end = ssm__smaller(end * SSM__LANES, c->d_inner);
    const float *bias = l->in_proj_bias;

    run->kernels->linear(&l->in_proj_x, bias, ssm__dense(s->normed, c->d_model),
                         ssm__tiled(s->x_tile), run->tokens, row, row_end);
    run->kernels->linear(&l->in_proj_z, bias ? bias + c->d_inner : NULL,
                         ssm__dense(s->normed, c->d_model), ssm__tiled(s->z_tile), run->tokens, row,
                         row_end);

    const int64_t history = (c->d_conv - 1) * SSM__LANES;
    float *layer_history = s->conv_history + run->block->conv_at;
    const bool raw = ssm__session_wants(s, SSM_TAP_CONV1D);
    for (int64_t g = first; g < end; g++) {
        run->kernels->conv_silu(
            ssm__group_of(s->x_tile, g), l->conv_weight + g * c->d_conv * SSM__LANES,
            l->conv_bias + g * SSM__LANES, layer_history + g * history, ssm__group_of(s->u_tile, g),
            raw ? ssm__group_of(s->raw_tile, g) : NULL, run->tokens, c->d_conv);
    }
}

/* x_proj: a task is a block of tokens and, for a single token, a block of rows. */
static void project_selective(void *context, int64_t task, int thread)
{
    (void)thread;
    const mixer_run *run = context;
    const ssm_session *s = run->session;
    const ssm__matrix *w = &run->layer->x_proj;
    const int64_t row_blocks = ssm__ceil_div(w->rows, SSM__LANES);
    const int64_t token = task / row_blocks * X_PROJ_TOKENS;
    const int64_t row = task % row_blocks * SSM__LANES;
    run->kernels->linear(w, NULL, ssm__tiled(s->u_tile + token * SSM__LANES),
                         ssm__dense(s->x_proj + token * w->rows, w->rows),
                         ssm__smaller(X_PROJ_TOKENS, run->tokens - token), row,
                         ssm__smaller(row + SSM__LANES, w->rows));
}

/* Falcon-Mamba's norms of dt, B and C, where x_proj left them. */
static void norm_selective(void *context, int64_t task, int thread)
{
    (void)thread;
    const mixer_run *run = context;
    const ssm_config *c = run->config;
    const float eps = (float)c->mixer_norm_eps;
    const int64_t end = ssm__smaller((task + 1) * X_PROJ_TOKENS, run->tokens);
    for (int64_t t = task * X_PROJ_TOKENS; t < end; t++) {
        float *dt = run->session->x_proj + t * run->layer->x_proj.rows;
        float *B = dt + c->dt_rank;
        float *C = B + c->d_state;
        run->kernels->rmsnorm(dt, NULL, dt, 1, c->dt_rank, eps);
        run->kernels->rmsnorm(B, NULL, B, 1, c->d_state, eps);
        run->kernels->rmsnorm(C, NULL, C, 1, c->d_state, eps);
    }
}

/* One group through the scan, in sub-tiles when the instrument looks on. */
static void scan_group(const mixer_run *run, int64_t g, int thread)
{
    const ssm_session *s = run->session;
    const ssm__mamba_layer *l = run->layer;
    const ssm_config *c = run->config;
    const int64_t per_group = c->d_state * SSM__LANES;
    const ssm__packed_group *group = ssm__session_group(s, run->index, g);
    const bool packed = group && group->packed;
    ssm__scan_args args = {
        .tokens = run->tokens,
        .d_state = c->d_state,
        .u = ssm__group_of(s->u_tile, g),
        .delta = ssm__group_of(s->x_tile, g),
        .z = ssm__group_of(s->z_tile, g),
        .B = s->x_proj + c->dt_rank,
        .C = s->x_proj + c->dt_rank + c->d_state,
        .bc_stride = (ptrdiff_t)run->layer->x_proj.rows,
        .A2 = packed ? group->A2 : l->A2 + g * per_group,
        .D = ssm__session_skip(s, run->index, g, l->D),
        .keep = group ? group->keep : NULL,
        .state = ssm__packing_state(s->model, s->packing, s->ssm_state, run->index, g),
        .y = ssm__group_of(s->u_tile, g),
    };
    const ssm__mode_sink *sink = s->sink;
    if (packed) {
        run->kernels->scan_kept(&args, &group->kept);
        return;
    }
    if (!sink || !sink->layers[run->index]) {
        run->kernels->scan(&args);
        return;
    }
    for (int64_t t = 0; t < run->tokens; t += SSM__SUBTILE) {
        ssm__scan_args part = args;
        part.tokens = ssm__smaller(SSM__SUBTILE, run->tokens - t);
        part.u += t * SSM__LANES;
        part.delta += t * SSM__LANES;
        part.z += t * SSM__LANES;
        part.y += t * SSM__LANES;
        part.B += t * part.bc_stride;
        part.C += t * part.bc_stride;
        sink->enter(sink->context, run->index, g, thread, &part);
        run->kernels->scan(&part);
        sink->leave(sink->context, run->index, g, run->position + t, &part);
    }
}

/* What softplus will be taken of, for the tap. */
static void keep_raw_dt(const mixer_run *run, int64_t g)
{
    const float *dt = ssm__group_of(run->session->x_tile, g);
    const float *bias = run->layer->dt_bias + g * SSM__LANES;
    float *raw = ssm__group_of(run->session->raw_tile, g);
    for (int64_t i = 0; i < run->tokens * SSM__LANES; i++) {
        raw[i] = dt[i] + bias[i % SSM__LANES];
    }
}

/* dt_proj, softplus and scan of a few channel groups; Δ takes the place of xs, y that of u. */
static void discretise_and_scan(void *context, int64_t task, int thread)
{
    const mixer_run *run = context;
    const ssm_session *s = run->session;
    const ssm__mamba_layer *l = run->layer;
    const ssm_config *c = run->config;
    int64_t first, end;
    task_groups(run, task, &first, &end);
    run->kernels->linear(&l->dt_proj, NULL, ssm__dense(s->x_proj, l->x_proj.rows),
                         ssm__tiled(s->x_tile), run->tokens, first * SSM__LANES,
                         ssm__smaller(end * SSM__LANES, c->d_inner));
    for (int64_t g = first; g < end; g++) {
        float *delta = ssm__group_of(s->x_tile, g);
        if (ssm__session_wants(s, SSM_TAP_DT_PROJ)) {
            keep_raw_dt(run, g);
        }
        run->kernels->softplus_bias(delta, l->dt_bias + g * SSM__LANES, delta, run->tokens);
        scan_group(run, g, thread);
    }
}

static void project_out(void *context, int64_t task, int thread)
{
    (void)thread;
    const mixer_run *run = context;
    const ssm_session *s = run->session;
    const ssm__matrix *w = &run->layer->out_proj;
    run->kernels->linear(w, run->layer->out_proj_bias, ssm__tiled(s->u_tile),
                         ssm__dense(s->mixed, w->rows), run->tokens, task * BLOCK_ROWS,
                         ssm__smaller((task + 1) * BLOCK_ROWS, w->rows));
}

/* in_proj's two halves side by side, as published. */
static void tap_in_proj(const mixer_run *run)
{
    const ssm_session *s = run->session;
    const int64_t E = run->config->d_inner;
    if (!ssm__session_wants(s, SSM_TAP_IN_PROJ)) {
        return;
    }
    for (int64_t t = 0; t < run->tokens; t++) {
        for (int64_t k = 0; k < E; k++) {
            const int64_t at = k % SSM__LANES + t * SSM__LANES;
            s->tap[t * 2 * E + k] = ssm__group_of(s->x_tile, k / SSM__LANES)[at];
            s->tap[t * 2 * E + E + k] = ssm__group_of(s->z_tile, k / SSM__LANES)[at];
        }
    }
    ssm__session_tap(s, SSM_TAP_IN_PROJ, run->index, run->position, run->tokens, 2 * E,
                     ssm__dense(s->tap, 2 * E));
}

void ssm__mamba_mixer(ssm_session *session, int64_t layer, int64_t position, int64_t tokens)
{
    const ssm_model *model = session->model;
    mixer_run run = {.session = session,
                     .block = &model->blocks[layer],
                     .layer = &model->blocks[layer].mamba,
                     .config = model->config,
                     .kernels = model->kernels,
                     .index = layer,
                     .position = position,
                     .tokens = tokens};
    const int64_t E = run.config->d_inner;
    const int64_t channel_tasks = ssm__ceil_div(model->n_groups16, BLOCK_GROUPS);
    const int64_t x_rows = run.layer->x_proj.rows;

    ssm__pool_run(session->pool, project_and_convolve, &run, channel_tasks);
    tap_in_proj(&run);
    ssm__session_tap(session, SSM_TAP_CONV1D, layer, position, tokens, E,
                     ssm__tiled(session->raw_tile));
    ssm__session_tap(session, SSM_TAP_U, layer, position, tokens, E, ssm__tiled(session->u_tile));

    ssm__pool_run(session->pool, project_selective, &run,
                  ssm__ceil_div(tokens, X_PROJ_TOKENS) * ssm__ceil_div(x_rows, SSM__LANES));
    ssm__session_tap(session, SSM_TAP_X_PROJ, layer, position, tokens, x_rows,
                     ssm__dense(session->x_proj, x_rows));
    if (run.config->family == SSM_FAMILY_FALCON_MAMBA) {
        ssm__pool_run(session->pool, norm_selective, &run, ssm__ceil_div(tokens, X_PROJ_TOKENS));
    }

    ssm__pool_run(session->pool, discretise_and_scan, &run, channel_tasks);
    ssm__session_tap(session, SSM_TAP_DT_PROJ, layer, position, tokens, E,
                     ssm__tiled(session->raw_tile));
    ssm__session_tap(session, SSM_TAP_DELTA, layer, position, tokens, E,
                     ssm__tiled(session->x_tile));
    ssm__session_tap(session, SSM_TAP_SSM_OUT, layer, position, tokens, E,
                     ssm__tiled(session->u_tile));

    ssm__pool_run(session->pool, project_out, &run, ssm__ceil_div(run.config->d_model, BLOCK_ROWS));
    ssm__session_tap(session, SSM_TAP_MIXER_OUT, layer, position, tokens, run.config->d_model,
                     ssm__dense(session->mixed, run.config->d_model));
}
