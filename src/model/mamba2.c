/* model/mamba2.c: the Mamba-2 mixer over one tile of at most 64 tokens (docs/mamba2.md).
 *
 *   (z0, x0, z, xs, B, C, dt) = in_proj x;  (u, B, C) = SiLU(conv1d(xs, B, C));
 *   Δ = clamp(softplus(dt + b));  v = recurrence (u, Δ, A, B, C, D), one A and Δ a head;
 *   y = norm(v·SiLU(z))·w, or norm(v)·w·SiLU(z), or v·SiLU(z);  out = out_proj [SiLU(z0)·x0 ; y]
 *
 * Channels are in the lanes; a head begins a new group of 16. A tile of several tokens goes through
 * the chunked form, a single one through the recurrence. Parallel runs, each over fixed tasks:
 * in_proj and convolution by heads and blocks of rows; C·B; heads; norm by tokens; out_proj by
 * rows.
 */
#include "model/session.h"

#include <string.h>

#include "base/pool.h"
#include "model/layout.h"

enum {
    BLOCK_GROUPS = 3, /* groups of 16 rows that a task of a linear has */
    BLOCK_ROWS = BLOCK_GROUPS * SSM__LANES,
    PRODUCT_TOKENS = 16, /* tokens a task of C·B */
    NORM_TOKENS = 8      /* tokens a task of the norm */
};

typedef struct mixer_run {
    ssm_session *session;
    const ssm__block *block;
    const ssm__mamba2_layer *layer;
    const ssm_config *config;
    const ssm__kernels *kernels;
    const ssm__mamba2_scratch *scratch;
    int64_t index; /* of the layer */
    int64_t position, tokens;
    int64_t head_groups;                  /* groups of 16 of one head */
    int64_t z_row, x_row, bc_row, dt_row; /* where the parts of in_proj's rows begin */
    int64_t front;                        /* E − d_ssm, rows of z0 and of x0 */
    int64_t tasks;                        /* of in_proj: each has its share of all parts */
    bool chunked;                         /* the chunked form, else the recurrence */
    const ssm__packed_heads *heads;       /* of a mask, or NULL */
    bool gate_first;                      /* SiLU(z) is applied before the norm, or there is none */
    bool own_out;                         /* out_proj reads out_tile, not y's tile */
} mixer_run;

/* Recorded layers need the modes, and so do masks under which the channels of a head differ. From
 * two tokens on the products are faster: 1.1 against 1.4 µs a head of 64 × 128, 23 against 38 at 64
 * tokens (AVX-512). */
static bool is_chunked(const ssm_session *s, int64_t layer, int64_t tokens)
{
    const bool recorded = s->sink && s->sink->layers[layer];
    const bool uniform = !ssm__session_masked(s, layer) || s->packing->heads[layer].chunked;
    return tokens > 1 && !s->exact_chunks && uniform && !recorded;
}

static mixer_run make_run(ssm_session *session, int64_t layer, int64_t position, int64_t tokens)
{
    const ssm_model *model = session->model;
    const ssm_config *c = model->config;
    mixer_run run = {.session = session,
                     .block = &model->blocks[layer],
                     .layer = &model->blocks[layer].mamba2,
                     .config = c,
                     .kernels = model->kernels,
                     .scratch = &session->mamba2,
                     .index = layer,
                     .position = position,
                     .tokens = tokens,
                     .head_groups = ssm__groups_per_head(c),
                     .front = c->d_inner - c->d_ssm};
    run.z_row = 2 * run.front;
    run.x_row = run.z_row + c->d_ssm;
    run.bc_row = run.x_row + c->d_ssm;
    run.dt_row = run.bc_row + 2 * c->n_groups * c->d_state;
    const int64_t front_groups = ssm__ceil_div(run.front, SSM__LANES);
    const int64_t groups = ssm__scan_groups(c);
    const int64_t most = groups > ssm__bc_groups(c) ? groups : ssm__bc_groups(c);
    run.tasks = ssm__ceil_div(most > front_groups ? most : front_groups, BLOCK_GROUPS);
    run.chunked = is_chunked(session, layer, tokens);
    run.heads = ssm__session_masked(session, layer) ? &session->packing->heads[layer] : NULL;
    run.gate_first = !c->gated_norm || !c->norm_before_gate;
    run.own_out = run.front > 0 || c->head_dim % SSM__LANES != 0;
    return run;
}

/* The part of `count` things that is task's share: [*first, *end). */
static void share_of(const mixer_run *run, int64_t task, int64_t count, int64_t *first,
                     int64_t *end)
{
    *first = task * count / run->tasks;
    *end = (task + 1) * count / run->tasks;
}

/* ---- in_proj and convolution ----------------------------------------------------------------- */

/* Rows [row, row + count) of in_proj into the groups that begin at `tile`. */
static void project(const mixer_run *run, int64_t row, int64_t count, float *tile)
{
    const ssm__matrix part = ssm__matrix_rows(run->layer->in_proj, row, count);
    const float *bias = run->layer->in_proj_bias;
    run->kernels->linear(&part, bias ? bias + row : NULL,
                         ssm__dense(run->session->normed, run->config->d_model), ssm__tiled(tile),
                         run->tokens, 0, count);
}

/* One part (z or x) of the rows of heads [first, end). */
static void project_heads(const mixer_run *run, int64_t row, int64_t first, int64_t end,
                          float *tile)
{
    const int64_t P = run->config->head_dim;
    if (P % SSM__LANES == 0) {
        project(run, row + first * P, (end - first) * P,
                ssm__group_of(tile, first * run->head_groups));
        return;
    }
    for (int64_t head = first; head < end; head++) {
        project(run, row + head * P, P, ssm__group_of(tile, head * run->head_groups));
    }
}

/* Convolution of one group, `group` counted over x, then B and C; raw may be NULL. */
static void convolve(const mixer_run *run, int64_t group, const float *in, float *out, float *raw)
{
    const int64_t K = run->config->d_conv;
    float *history = run->session->conv_history + run->block->conv_at;
    run->kernels->conv_silu(in, run->layer->conv_weight + group * K * SSM__LANES,
                            run->layer->conv_bias + group * SSM__LANES,
                            history + group * (K - 1) * SSM__LANES, out, raw, run->tokens, K);
}

/* x and z of heads [first, end). */
static void head_part(const mixer_run *run, int64_t first, int64_t end)
{
    const ssm_session *s = run->session;
    const bool raw = ssm__session_wants(s, SSM_TAP_CONV1D);
    project_heads(run, run->x_row, first, end, s->x_tile);
    project_heads(run, run->z_row, first, end, s->z_tile);
    for (int64_t g = first * run->head_groups; g < end * run->head_groups; g++) {
        convolve(run, g, ssm__group_of(s->x_tile, g), ssm__group_of(s->u_tile, g),
                 raw ? ssm__group_of(s->raw_tile, g) : NULL);
    }
}

/* Channels 16·group … of (B, C) from lanes to rows [n_groups][2][64][N]. */
static void put_rows(const mixer_run *run, int64_t group, const float *tile)
{
    const ssm_config *c = run->config;
    const int64_t N = c->d_state;
    const int64_t width = c->n_groups * N;
    const int64_t first = group * SSM__LANES;
    const int64_t end = ssm__smaller(first + SSM__LANES, 2 * width);
    int64_t run_end;
    for (int64_t channel = first; channel < end; channel = run_end) { /* a run within one row */
        const int64_t n = channel % N;
        const int64_t row = channel % width / N * 2 + channel / width;
        run_end = ssm__smaller(channel + N - n, end);
        float *out = run->scratch->bc + row * SSM__TILE * N + n;
        for (int64_t t = 0; t < run->tokens; t++) {
            memcpy(out + t * N, tile + t * SSM__LANES + channel - first,
                   (size_t)(run_end - channel) * sizeof *out);
        }
    }
}

/* Groups [first, end) of the rows of B and C. */
static void bc_part(const mixer_run *run, int64_t first, int64_t end)
{
    const ssm__mamba2_scratch *m = run->scratch;
    const int64_t rows = run->dt_row - run->bc_row;
    const bool raw = ssm__session_wants(run->session, SSM_TAP_CONV1D);
    project(run, run->bc_row + first * SSM__LANES,
            ssm__smaller(end * SSM__LANES, rows) - first * SSM__LANES,
            ssm__group_of(m->bc_tile, first));
    for (int64_t g = first; g < end; g++) {
        float *out = ssm__group_of(m->bc_conv, g);
        convolve(run, ssm__scan_groups(run->config) + g, ssm__group_of(m->bc_tile, g), out,
                 raw ? ssm__group_of(m->bc_raw, g) : NULL);
        put_rows(run, g, out);
    }
}

/* Δ of the sixteen heads of a group: in lanes for the tap, in rows of tokens for the recurrence. */
static void dt_part(const mixer_run *run, int64_t group)
{
    const ssm_config *c = run->config;
    const float low = (float)c->dt_limit_low, high = (float)c->dt_limit_high;
    const int64_t first = group * SSM__LANES;
    const int64_t heads = ssm__smaller(SSM__LANES, c->n_heads - first);
    float *tile = ssm__group_of(run->scratch->dt_tile, group);
    project(run, run->dt_row + first, heads, tile);
    run->kernels->softplus_bias(tile, run->layer->dt_bias + first, tile, run->tokens);
    for (int64_t t = 0; t < run->tokens; t++) {
        for (int64_t i = 0; i < heads; i++) {
            float *step = tile + t * SSM__LANES + i;
            *step = *step < low ? low : *step > high ? high : *step;
            run->scratch->delta[(first + i) * SSM__TILE + t] = *step;
        }
    }
}

/* Groups [first, end) of z0 and of x0, which do not go through the recurrence. */
static void front_part(const mixer_run *run, int64_t first, int64_t end)
{
    const int64_t groups = ssm__ceil_div(run->front, SSM__LANES);
    const int64_t rows = ssm__smaller(end * SSM__LANES, run->front) - first * SSM__LANES;
    for (int64_t part = 0; part < 2; part++) {
        project(run, part * run->front + first * SSM__LANES, rows,
                ssm__group_of(run->scratch->front, part * groups + first));
    }
}

/* Every task has its share of every part, so that neighbours cost the same. */
static void project_and_convolve(void *context, int64_t task, int thread)
{
    (void)thread;
    const mixer_run *run = context;
    const ssm_config *c = run->config;
    int64_t first, end;
    share_of(run, task, c->n_heads, &first, &end);
    if (first < end) {
        head_part(run, first, end);
    }
    share_of(run, task, ssm__bc_groups(c), &first, &end);
    if (first < end) {
        bc_part(run, first, end);
    }
    share_of(run, task, ssm__ceil_div(c->n_heads, SSM__LANES), &first, &end);
    for (int64_t group = first; group < end; group++) {
        dt_part(run, group);
    }
    share_of(run, task, ssm__ceil_div(run->front, SSM__LANES), &first, &end);
    if (first < end) {
        front_part(run, first, end);
    }
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* The unit whose B and C a head reads, NULL: those of its group as they are. Factors are the
 * recurrence's own. */
static const ssm__packed_unit *unit_of(const mixer_run *run, int64_t head)
{
    if (!run->heads || run->heads->unit_of[head] < 0) {
        return NULL;
    }
    const ssm__packed_unit *unit = &run->heads->units[run->heads->unit_of[head]];
    return run->chunked || unit->modes ? unit : NULL;
}

/* Columns of B and C from rows [n_groups][2][64][N] to those of a unit, [2][64][slots]. */
static void gather_unit(void *context, int64_t index, int thread)
{
    (void)thread;
    const mixer_run *run = context;
    const ssm__packed_unit *unit = &run->heads->units[index];
    const int64_t N = run->config->d_state;
    const float *in = run->scratch->bc + 2 * unit->bc_group * SSM__TILE * N;
    float *out = run->session->packing->unit_bc + unit->bc_at;
    for (int64_t part = 0; part < 2; part++) {
        const float *factors = part == 1 && run->chunked ? unit->factors : NULL;
        for (int64_t t = 0; t < run->tokens; t++) {
            const float *row = in + (part * SSM__TILE + t) * N;
            float *to = out + (part * SSM__TILE + t) * unit->slots;
            for (int64_t s = 0; s < unit->slots; s++) {
                const float value = row[unit->modes ? unit->modes[s * SSM__LANES] : s];
                to[s] = factors ? factors[s * SSM__LANES] * value : value;
            }
        }
    }
}

static ssm__head_scan_args scan_arguments(const mixer_run *run, int64_t head, int64_t g)
{
    const ssm_session *s = run->session;
    const ssm_config *c = run->config;
    const int64_t N = c->d_state;
    const int64_t group = head / (c->n_heads / c->n_groups); /* of B and C */
    const ssm__packed_group *packed = ssm__session_group(s, run->index, g);
    ssm__head_scan_args args = {
        .tokens = run->tokens,
        .d_state = N,
        .u = ssm__group_of(s->u_tile, g),
        .z = run->gate_first ? ssm__group_of(s->z_tile, g) : NULL,
        .delta = run->scratch->delta + head * SSM__TILE,
        .A2 = run->layer->A2[head],
        .B = run->scratch->bc + 2 * group * SSM__TILE * N,
        .D = ssm__session_skip(s, run->index, g, run->layer->D),
        .keep = packed ? packed->keep : NULL,
        .state = ssm__packing_state(s->model, s->packing, s->ssm_state, run->index, g),
        .y = ssm__group_of(s->x_tile, g),
    };
    const ssm__packed_unit *unit = unit_of(run, head);
    if (unit) {
        args.d_state = unit->slots;
        args.B = s->packing->unit_bc + unit->bc_at;
    }
    if (packed && packed->packed) {
        args.tail = packed->kept.slots - packed->kept.pairs;
        args.tail_odd = args.tail > 0 && packed->kept.odd[packed->kept.pairs] != 0;
    }
    args.C = args.B + SSM__TILE * args.d_state;
    args.bc_stride = (ptrdiff_t)args.d_state;
    return args;
}

/* All groups of a head over the same few tokens, then the next tokens: the instrument looks on. */
static void record_head(const mixer_run *run, int64_t head, int thread)
{
    const ssm__mode_sink *sink = run->session->sink;
    const int64_t first = head * run->head_groups;
    for (int64_t t = 0; t < run->tokens; t += SSM__SUBTILE) {
        for (int64_t g = first; g < first + run->head_groups; g++) {
            ssm__head_scan_args part = scan_arguments(run, head, g);
            part.tokens = ssm__smaller(SSM__SUBTILE, run->tokens - t);
            part.u += t * SSM__LANES;
            if (part.z) {
                part.z += t * SSM__LANES;
            }
            part.delta += t;
            part.y += t * SSM__LANES;
            part.B += t * part.bc_stride;
            part.C += t * part.bc_stride;
            sink->enter_head(sink->context, run->index, g, thread, &part);
            run->kernels->head_scan(&part);
            sink->leave_head(sink->context, run->index, g, run->position + t, &part);
        }
    }
}

/* Groups whose B and C are read as they are, counted as all or none. */
static int64_t whole_groups(const mixer_run *run)
{
    return !run->heads || run->heads->whole ? run->config->n_groups : 0;
}

/* C_t·B_s of B and C in rows for the tokens of block `i` and all s up to its last. */
static void multiply_block(const mixer_run *run, float *B, int64_t N, int64_t i, float *products)
{
    const int64_t blocks = ssm__ceil_div(run->tokens, PRODUCT_TOKENS);
    /* later blocks cost more: first and last take turns */
    const int64_t first = (i % 2 == 0 ? i / 2 : blocks - 1 - i / 2) * PRODUCT_TOKENS;
    const int64_t end = ssm__smaller(first + PRODUCT_TOKENS, run->tokens);
    float *C = B + SSM__TILE * N;
    const ssm__matrix rows = {B, SSM_DTYPE_F32, run->tokens, N};
    run->kernels->linear(&rows, NULL, ssm__dense(C + first * N, N),
                         ssm__dense(products + first * SSM__TILE, SSM__TILE), end - first, 0, end);
}

/* Groups of B and C as they are, then units. */
static void multiply_rows(void *context, int64_t task, int thread)
{
    (void)thread;
    const mixer_run *run = context;
    const int64_t N = run->config->d_state;
    const int64_t blocks = ssm__ceil_div(run->tokens, PRODUCT_TOKENS);
    const int64_t whole = whole_groups(run);
    const int64_t index = task / blocks;
    if (index < whole) {
        multiply_block(run, run->scratch->bc + 2 * index * SSM__TILE * N, N, task % blocks,
                       run->scratch->products + index * SSM__TILE * SSM__TILE);
        return;
    }
    const ssm__packing *packing = run->session->packing;
    const ssm__packed_unit *unit = &run->heads->units[index - whole];
    multiply_block(run, packing->unit_bc + unit->bc_at, unit->slots, task % blocks,
                   packing->unit_products + (index - whole) * SSM__TILE * SSM__TILE);
}

static void multiply_head(const mixer_run *run, int64_t head)
{
    const ssm__head_scan_args first = scan_arguments(run, head, head * run->head_groups);
    const int64_t group = head / (run->config->n_heads / run->config->n_groups);
    const float *products = run->scratch->products + group * SSM__TILE * SSM__TILE;
    if (unit_of(run, head)) {
        products = run->session->packing->unit_products +
                   run->heads->unit_of[head] * SSM__TILE * SSM__TILE;
    }
    const ssm__ssd_args args = {
        .tokens = first.tokens,
        .d_state = first.d_state,
        .groups = run->head_groups,
        .u = first.u,
        .z = first.z,
        .delta = first.delta,
        .A2 = first.A2,
        .B = first.B,
        .C = first.C,
        .bc_stride = first.bc_stride,
        .products = products,
        .D = first.D,
        .state = first.state,
        .y = first.y,
    };
    run->kernels->ssd(&args);
}

static void run_head(void *context, int64_t head, int thread)
{
    const mixer_run *run = context;
    if (run->chunked) {
        multiply_head(run, head);
        return;
    }
    const ssm__mode_sink *sink = run->session->sink;
    if (sink && sink->layers[run->index]) {
        record_head(run, head, thread);
        return;
    }
    for (int64_t g = head * run->head_groups; g < (head + 1) * run->head_groups; g++) {
        const ssm__head_scan_args args = scan_arguments(run, head, g);
        run->kernels->head_scan(&args);
    }
}

/* ---- norm and out_proj ----------------------------------------------------------------------- */

/* A token's row of out_proj's input as published: SiLU(z0)·x0, then y without padding. */
static void join_token(const mixer_run *run, int64_t t)
{
    const ssm_config *c = run->config;
    const int64_t groups = ssm__ceil_div(run->front, SSM__LANES);
    const float *z0 = run->scratch->front + t * SSM__LANES;
    const float *x0 = ssm__group_of(run->scratch->front, groups) + t * SSM__LANES;
    const float *y = run->session->x_tile + t * SSM__LANES;
    float *out = run->scratch->out_tile + t * SSM__LANES;
    const ptrdiff_t step = SSM__LANES * SSM__TILE_ROWS;
    for (int64_t k = 0; k < run->front; k++) {
        const ptrdiff_t at = k / SSM__LANES * step + k % SSM__LANES;
        out[at] = z0[at] * x0[at];
    }
    for (int64_t channel = 0; channel < c->d_ssm; channel++) {
        const int64_t k = run->front + channel;
        const int64_t lane = ssm__lane_of(c, channel);
        out[k / SSM__LANES * step + k % SSM__LANES] =
            y[lane / SSM__LANES * step + lane % SSM__LANES];
    }
}

/* The gated norm of a few tokens, in place in y's tile; then the row that out_proj reads. */
static void norm_tokens(void *context, int64_t task, int thread)
{
    (void)thread;
    const mixer_run *run = context;
    const ssm_session *s = run->session;
    const ssm_config *c = run->config;
    const int64_t first = task * NORM_TOKENS;
    const int64_t tokens = ssm__smaller(NORM_TOKENS, run->tokens - first);
    const int64_t groups = c->gated_norm ? ssm__scan_groups(c) / c->norm_groups : 0;
    for (int64_t i = 0; c->gated_norm && i < c->norm_groups; i++) {
        const int64_t g = i * groups;
        const float *z = ssm__group_of(s->z_tile, g) + first * SSM__LANES;
        run->kernels->gated_norm(ssm__group_of(s->x_tile, g) + first * SSM__LANES,
                                 run->layer->gate_norm + g * SSM__LANES, run->gate_first ? NULL : z,
                                 tokens, groups, c->d_ssm / c->norm_groups,
                                 (float)c->mixer_norm_eps);
    }
    for (int64_t g = 0; g < ssm__ceil_div(run->front, SSM__LANES); g++) {
        float *z0 = ssm__group_of(run->scratch->front, g) + first * SSM__LANES;
        run->kernels->silu(z0, z0, tokens * SSM__LANES);
    }
    for (int64_t t = first; run->own_out && t < first + tokens; t++) {
        join_token(run, t);
    }
}

static void project_out(void *context, int64_t task, int thread)
{
    (void)thread;
    const mixer_run *run = context;
    const ssm_session *s = run->session;
    const ssm__matrix *w = &run->layer->out_proj;
    float *in = run->own_out ? run->scratch->out_tile : s->x_tile;
    run->kernels->linear(w, run->layer->out_proj_bias, ssm__tiled(in),
                         ssm__dense(s->mixed, w->rows), run->tokens, task * BLOCK_ROWS,
                         ssm__smaller((task + 1) * BLOCK_ROWS, w->rows));
}

/* ---- taps ------------------------------------------------------------------------------------ */

/* Channels of a tile by heads into columns [column, column + d_ssm) of the tap's rows. */
static void put_heads(const mixer_run *run, const float *tile, int64_t column, int64_t width)
{
    for (int64_t channel = 0; channel < run->config->d_ssm; channel++) {
        const int64_t lane = ssm__lane_of(run->config, channel);
        const float *in =
            tile + lane / SSM__LANES * SSM__LANES * SSM__TILE_ROWS + lane % SSM__LANES;
        for (int64_t t = 0; t < run->tokens; t++) {
            run->session->tap[t * width + column + channel] = in[t * SSM__LANES];
        }
    }
}

/* Columns of a tile without padding into the tap's rows. */
static void put_columns(const mixer_run *run, const float *tile, int64_t count, int64_t column,
                        int64_t width)
{
    for (int64_t k = 0; k < count; k++) {
        const float *in = tile + k / SSM__LANES * SSM__LANES * SSM__TILE_ROWS + k % SSM__LANES;
        for (int64_t t = 0; t < run->tokens; t++) {
            run->session->tap[t * width + column + k] = in[t * SSM__LANES];
        }
    }
}

static void fire(const mixer_run *run, ssm_tap_point point, int64_t width)
{
    ssm__session_tap(run->session, point, run->index, run->position, run->tokens, width,
                     ssm__dense(run->session->tap, width));
}

/* A tile by heads as it is published. */
static void tap_heads(const mixer_run *run, ssm_tap_point point, const float *tile)
{
    if (ssm__session_wants(run->session, point)) {
        put_heads(run, tile, 0, run->config->d_ssm);
        fire(run, point, run->config->d_ssm);
    }
}

/* in_proj's dt is Δ by now: what softplus was taken of is projected anew. */
static void tap_in_proj(const mixer_run *run)
{
    const ssm_session *s = run->session;
    const ssm__mamba2_scratch *m = run->scratch;
    const int64_t width = run->layer->in_proj.rows;
    if (!ssm__session_wants(s, SSM_TAP_IN_PROJ)) {
        return;
    }
    const float *bias = run->layer->in_proj_bias;
    const ssm__matrix dt = ssm__matrix_rows(run->layer->in_proj, run->dt_row, run->config->n_heads);
    ssm__view out = ssm__dense(s->tap + run->dt_row, width);
    run->kernels->linear(&dt, bias ? bias + run->dt_row : NULL,
                         ssm__dense(s->normed, run->config->d_model), out, run->tokens, 0, dt.rows);
    const float *x0 = ssm__group_of(m->front, ssm__ceil_div(run->front, SSM__LANES));
    put_columns(run, m->front, run->front, 0, width);
    put_columns(run, x0, run->front, run->front, width);
    put_heads(run, s->z_tile, run->z_row, width);
    put_heads(run, s->x_tile, run->x_row, width);
    put_columns(run, m->bc_tile, run->dt_row - run->bc_row, run->bc_row, width);
    fire(run, SSM_TAP_IN_PROJ, width);
}

static void tap_conv(const mixer_run *run)
{
    const int64_t bc = run->dt_row - run->bc_row;
    const int64_t width = run->config->d_ssm + bc;
    if (ssm__session_wants(run->session, SSM_TAP_CONV1D)) {
        put_heads(run, run->session->raw_tile, 0, width);
        put_columns(run, run->scratch->bc_raw, bc, run->config->d_ssm, width);
        fire(run, SSM_TAP_CONV1D, width);
    }
}

/* ---- the mixer ------------------------------------------------------------------------------- */

void ssm__mamba2_mixer(ssm_session *session, int64_t layer, int64_t position, int64_t tokens)
{
    mixer_run run = make_run(session, layer, position, tokens);
    const ssm_config *c = run.config;

    ssm__pool_run(session->pool, project_and_convolve, &run, run.tasks);
    tap_in_proj(&run);
    tap_conv(&run);
    tap_heads(&run, SSM_TAP_U, session->u_tile);
    ssm__session_tap(session, SSM_TAP_DELTA, layer, position, tokens, c->n_heads,
                     ssm__tiled(run.scratch->dt_tile));

    const int64_t units = run.heads ? run.heads->n_units : 0;
    ssm__pool_run(session->pool, gather_unit, &run, units);
    if (run.chunked) {
        ssm__pool_run(session->pool, multiply_rows, &run,
                      (whole_groups(&run) + units) * ssm__ceil_div(tokens, PRODUCT_TOKENS));
    }
    ssm__pool_run(session->pool, run_head, &run, c->n_heads);
    tap_heads(&run, SSM_TAP_SSM_OUT, session->x_tile);

    if (c->gated_norm || run.own_out) {
        ssm__pool_run(session->pool, norm_tokens, &run, ssm__ceil_div(tokens, NORM_TOKENS));
    }
    tap_heads(&run, SSM_TAP_INNER_NORM, session->x_tile);

    ssm__pool_run(session->pool, project_out, &run, ssm__ceil_div(c->d_model, BLOCK_ROWS));
    ssm__session_tap(session, SSM_TAP_MIXER_OUT, layer, position, tokens, c->d_model,
                     ssm__dense(session->mixed, c->d_model));
}
