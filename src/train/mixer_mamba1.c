/* train/mixer_mamba1.c: the mixer of Mamba-1, forward and backward (docs/mamba1.md):
 *
 *   (xs, z) = in_proj h;  u = SiLU(conv1d(xs));  (dt, B, C) = x_proj u;
 *   Δ = softplus(dt_proj dt + b);  y = selective scan(u, Δ, A, B, C, D, z);  out = out_proj y
 *
 * Kept for backward: xs and z, what dt_proj gives, x_proj's rows, and the states before every 16th
 * token. u, Δ, the states between and y are computed again. */
#include <stdio.h>
#include <string.h>

#include "kernels/training.h"
#include "model/layout.h"
#include "train/lanes.h"
#include "train/mixer.h"
#include "train/work.h"

/* In time-invariant mode B and C stand in the places of X_PROJ and DT_PROJ, and dt stays 0. */
enum { IN_PROJ, CONV, CONV_BIAS, X_PROJ, DT_PROJ, DT_BIAS, A_LOG, SKIP, OUT_PROJ, PARAMETERS };

enum { X_PROJ_TOKENS = 32 };

/* Parameters in lanes, and their gradients of a pass. */
typedef struct weights {
    float *conv, *conv_bias, *dt_bias, *A2, *D;
    float *dconv, *dconv_bias, *ddt_bias, *dA_log, *dD;
} weights;

typedef struct kept {
    ssm__wide xs, z, dt;
    float *x_proj; /* [T][R + 2N] */
    float *starts; /* [sequences][groups][⌈L/16⌉][N][16] states before every 16th token */
    int64_t start_floats; /* of a group of a sequence */
} kept;

typedef struct scratch {
    ssm__wide u;    /* then y of forward */
    float *history; /* [sequences][groups][K − 1][16] */
    float *states;  /* [threads][N][16] */
    /* backward */
    ssm__wide dy; /* then du, then dxs */
    ssm__wide y, dz, ddt;
    float *parts;   /* [groups][T][2N] of dB, dC */
    float *dx_proj; /* [T][R + 2N] */
    float *scan;    /* [threads] of scan_backward */
    int64_t scan_floats;
} scratch;

static int64_t x_rows_of(const ssm_config *c)
{
    return c->dt_rank + 2 * c->d_state;
}

static bool accepts(const ssm__network_config *config, char *why, size_t size)
{
    const ssm_config *c = &config->shape;
    const bool good = c->d_inner > 0 && c->d_state > 0 && c->d_conv > 0 && c->dt_rank > 0;
    if (!good) {
        snprintf(
            why, size,
            "mamba1 needs d_inner, d_state, d_conv and dt_rank of 1 or more; found %lld, %lld, "
            "%lld and %lld",
            (long long)c->d_inner, (long long)c->d_state, (long long)c->d_conv,
            (long long)c->dt_rank);
    }
    return good;
}

static void declare(ssm__declaration *list, const ssm__network_config *config, int64_t layer)
{
    static const int slots[PARAMETERS] = {
        SSM__SLOT_in_proj, SSM__SLOT_conv1d,  SSM__SLOT_conv1d_bias,
        SSM__SLOT_x_proj,  SSM__SLOT_dt_proj, SSM__SLOT_dt_proj_bias,
        SSM__SLOT_A_log,   SSM__SLOT_D,       SSM__SLOT_out_proj};
    const int64_t dims[] = {1, config->shape.d_state};
    for (int i = 0; i < PARAMETERS; i++) {
        if (config->time_invariant && (i == X_PROJ || i == DT_PROJ)) {
            ssm__declare_other(list, layer, i == X_PROJ ? "mixer.B" : "mixer.C", false, 2, dims);
        } else {
            ssm__declare_slot(list, SSM_LAYER_MAMBA, layer, slots[i]);
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void take_lanes(ssm__arena *arena, const ssm_config *c, float **conv, float **conv_bias,
                       float **dt_bias, float **A, float **D)
{
    const int64_t channels = ssm__lane_groups(c->d_inner) * SSM__LANES;
    *conv = SSM__TAKE(arena, float, channels * c->d_conv);
    *conv_bias = SSM__TAKE(arena, float, channels);
    *dt_bias = SSM__TAKE(arena, float, channels);
    *A = SSM__TAKE(arena, float, channels * c->d_state);
    *D = SSM__TAKE(arena, float, channels);
}

static void *take_weights(ssm__arena *arena, const ssm__network_config *config)
{
    const ssm_config *c = &config->shape;
    weights w;
    weights *out = SSM__TAKE(arena, weights, 1);
    take_lanes(arena, c, &w.conv, &w.conv_bias, &w.dt_bias, &w.A2, &w.D);
    take_lanes(arena, c, &w.dconv, &w.dconv_bias, &w.ddt_bias, &w.dA_log, &w.dD);
    if (out != NULL) {
        *out = w;
    }
    return out;
}

static void *take_kept(ssm__arena *arena, const ssm__network_config *config, int64_t length,
                       int64_t sequences, bool backward)
{
    const ssm_config *c = &config->shape;
    kept *out = SSM__TAKE(arena, kept, 1);
    kept k = {.xs = ssm__wide_take(arena, c->d_inner, length, sequences),
              .z = ssm__wide_take(arena, c->d_inner, length, sequences),
              .dt = ssm__wide_take(arena, c->d_inner, length, sequences),
              .x_proj = SSM__TAKE(arena, float, sequences *length *x_rows_of(c))};
    if (backward) {
        const int64_t pieces = ssm__divide_up(length, SSM__SCAN_PIECE);
        k.start_floats = pieces * c->d_state * SSM__LANES;
        k.starts = SSM__TAKE(arena, float, sequences *k.xs.groups *k.start_floats);
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
    const int64_t groups = ssm__lane_groups(c->d_inner);
    const int64_t tokens = sequences * length;
    scratch *out = SSM__TAKE(arena, scratch, 1);
    scratch s = {.u = ssm__wide_take(arena, c->d_inner, length, sequences)};
    s.history = SSM__TAKE(arena, float, sequences *groups *(c->d_conv - 1) * SSM__LANES);
    s.states = SSM__TAKE(arena, float, threads * c->d_state * SSM__LANES);
    if (backward) {
        s.dy = ssm__wide_take(arena, c->d_inner, length, sequences);
        s.y = ssm__wide_take(arena, c->d_inner, length, sequences);
        s.dz = ssm__wide_take(arena, c->d_inner, length, sequences);
        s.ddt = ssm__wide_take(arena, c->d_inner, length, sequences);
        s.parts = SSM__TAKE(arena, float, groups *tokens * 2 * c->d_state);
        s.dx_proj = SSM__TAKE(arena, float, tokens *x_rows_of(c));
        s.scan_floats = ssm__scan_backward_scratch(length, c->d_state) + 15;
        s.scan_floats -= s.scan_floats % 16;
        s.scan = SSM__TAKE(arena, float, threads *s.scan_floats);
    }
    if (out != NULL) {
        *out = s;
    }
    return out;
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* in_proj's rows of xs, or of z. */
static ssm__matrix in_half(const ssm__run *run, bool z)
{
    ssm__matrix m = ssm__own_matrix(run, IN_PROJ);
    m.rows /= 2;
    m.data = (const float *)m.data + (z ? m.rows * m.cols : 0);
    return m;
}

static void prepare(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    const int64_t E = c->d_inner;
    const int64_t channels = ssm__lane_groups(E) * SSM__LANES;
    ssm__lanes_put(ssm__own_value(run, CONV), E, c->d_conv, w->conv);
    ssm__lanes_put(ssm__own_value(run, CONV_BIAS), E, 1, w->conv_bias);
    ssm__lanes_put(ssm__own_value(run, DT_BIAS), E, 1, w->dt_bias);
    ssm__lanes_put(ssm__own_value(run, SKIP), E, 1, w->D);
    ssm__lanes_put(ssm__own_value(run, A_LOG), E, c->d_state, w->A2);
    ssm__decay_rates(w->A2, channels * c->d_state);
    if (run->gradients != NULL) {
        memset(w->dconv, 0, (size_t)(channels * c->d_conv) * sizeof(float));
        memset(w->dconv_bias, 0, (size_t)channels * sizeof(float));
        memset(w->ddt_bias, 0, (size_t)channels * sizeof(float));
        memset(w->dA_log, 0, (size_t)(channels * c->d_state) * sizeof(float));
        memset(w->dD, 0, (size_t)channels * sizeof(float));
    }
}

static void finish(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    const int64_t E = c->d_inner;
    ssm__lanes_add(w->dconv, E, c->d_conv, ssm__own_gradient(run, CONV));
    ssm__lanes_add(w->dconv_bias, E, 1, ssm__own_gradient(run, CONV_BIAS));
    ssm__lanes_add(w->ddt_bias, E, 1, ssm__own_gradient(run, DT_BIAS));
    ssm__lanes_add(w->dA_log, E, c->d_state, ssm__own_gradient(run, A_LOG));
    ssm__lanes_add(w->dD, E, 1, ssm__own_gradient(run, SKIP));
}

/* ---- forward --------------------------------------------------------------------------------- */

static int64_t blocks_of(const ssm__run *run)
{
    return ssm__divide_up(ssm__lane_groups(run->config->shape.d_inner), SSM__WORK_GROUPS);
}

/* Channel groups of a block of a task: [*first, *end), and its sequence. */
static int64_t task_groups(const ssm__run *run, int64_t task, int64_t *first, int64_t *end)
{
    const int64_t blocks = blocks_of(run);
    *first = task % blocks * SSM__WORK_GROUPS;
    *end = ssm__least(*first + SSM__WORK_GROUPS, ssm__lane_groups(run->config->shape.d_inner));
    return task / blocks;
}

static void convolve(const ssm__run *run, int64_t sequence, int64_t group)
{
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const int64_t past = (c->d_conv - 1) * SSM__LANES;
    float *history = s->history + (sequence * s->u.groups + group) * past;
    memset(history, 0, (size_t)past * sizeof(float));
    run->kernels->conv_silu(ssm__wide_group(k->xs, sequence, group),
                            w->conv + group * c->d_conv * SSM__LANES,
                            w->conv_bias + group * SSM__LANES, history,
                            ssm__wide_group(s->u, sequence, group), NULL, run->length, c->d_conv);
}

/* in_proj, convolution and SiLU of a few channel groups of a sequence. */
static void project_and_convolve(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const kept *k = run->kept;
    const int64_t D = run->config->shape.d_model;
    const ssm__matrix xs = in_half(run, false), z = in_half(run, true);
    int64_t first, end;
    const int64_t sequence = task_groups(run, task, &first, &end);
    const int64_t row = first * SSM__LANES;
    const int64_t row_end = ssm__least(end * SSM__LANES, xs.rows);
    for (int64_t t = 0; t < run->length; t += SSM__WORK_TOKENS) {
        const int64_t tokens = ssm__least(SSM__WORK_TOKENS, run->length - t);
        const ssm__view in = ssm__rows_view(run->in + (sequence * run->length + t) * D, D);
        run->kernels->linear(&xs, NULL, in, ssm__wide_view(k->xs, sequence, t), tokens, row,
                             row_end);
        run->kernels->linear(&z, NULL, in, ssm__wide_view(k->z, sequence, t), tokens, row, row_end);
    }
    for (int64_t group = first; group < end; group++) {
        convolve(run, sequence, group);
    }
}

/* B and C of a token that are parameters. */
static void put_fixed(const ssm__run *run, int64_t tokens, float *rows)
{
    const ssm_config *c = &run->config->shape;
    const size_t bytes = (size_t)c->d_state * sizeof(float);
    for (int64_t t = 0; t < tokens; t++, rows += x_rows_of(c)) {
        memcpy(rows + c->dt_rank, ssm__own_value(run, X_PROJ), bytes);
        memcpy(rows + c->dt_rank + c->d_state, ssm__own_value(run, DT_PROJ), bytes);
    }
}

static void project_selective(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const ssm__matrix w = ssm__own_matrix(run, X_PROJ);
    int64_t sequence, t;
    const int64_t tokens = ssm__tile_of(run, task, X_PROJ_TOKENS, &sequence, &t);
    float *rows = k->x_proj + (sequence * run->length + t) * x_rows_of(&run->config->shape);
    if (run->config->time_invariant) {
        put_fixed(run, tokens, rows);
        return;
    }
    run->kernels->linear(&w, NULL, ssm__wide_view(s->u, sequence, t), ssm__rows_view(rows, w.rows),
                         tokens, 0, w.rows);
}

static float *starts_of(const kept *k, int64_t sequence, int64_t group)
{
    return k->starts + (sequence * k->xs.groups + group) * k->start_floats;
}

/* The scan in pieces, the state before each being kept. */
static void scan_pieces(const ssm__run *run, const ssm__scan_args *args, float *starts)
{
    const int64_t floats = args->d_state * SSM__LANES;
    for (int64_t t = 0; t < args->tokens; t += SSM__SCAN_PIECE) {
        ssm__scan_args piece = *args;
        piece.tokens = ssm__least(SSM__SCAN_PIECE, args->tokens - t);
        piece.u += t * SSM__LANES;
        piece.delta += t * SSM__LANES;
        piece.z += t * SSM__LANES;
        piece.y += t * SSM__LANES;
        piece.B += t * args->bc_stride;
        piece.C += t * args->bc_stride;
        memcpy(starts + t / SSM__SCAN_PIECE * floats, args->state, (size_t)floats * sizeof(float));
        run->kernels->scan(&piece);
    }
}

/* Δ and scan of a group; y takes the place of u. */
static void scan_group(const ssm__run *run, int64_t sequence, int64_t group, float *state)
{
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const int64_t stride = x_rows_of(c);
    const float *rows = k->x_proj + sequence * run->length * stride;
    const float *dt = ssm__wide_group(k->dt, sequence, group);
    float *u = ssm__wide_group(s->u, sequence, group);
    float delta[SSM__TILE * SSM__LANES];
    memset(state, 0, (size_t)(c->d_state * SSM__LANES) * sizeof *state);
    for (int64_t t = 0; t < run->length; t += SSM__TILE) {
        const int64_t tokens = ssm__least(SSM__TILE, run->length - t);
        run->kernels->softplus_bias(dt + t * SSM__LANES, w->dt_bias + group * SSM__LANES, delta,
                                    tokens);
        const ssm__scan_args args = {
            .tokens = tokens,
            .d_state = c->d_state,
            .u = u + t * SSM__LANES,
            .delta = delta,
            .z = ssm__wide_group(k->z, sequence, group) + t * SSM__LANES,
            .B = rows + t * stride + c->dt_rank,
            .C = rows + t * stride + c->dt_rank + c->d_state,
            .bc_stride = (ptrdiff_t)stride,
            .A2 = w->A2 + group * c->d_state * SSM__LANES,
            .D = w->D + group * SSM__LANES,
            .state = state,
            .y = u + t * SSM__LANES,
        };
        if (k->starts != NULL) {
            scan_pieces(run, &args, starts_of(k, sequence, group) + t * c->d_state);
        } else {
            run->kernels->scan(&args);
        }
    }
}

/* dt_proj and scan of a few channel groups of a sequence. */
static void discretise_and_scan(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const ssm_config *c = &run->config->shape;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const ssm__matrix w = ssm__own_matrix(run, DT_PROJ);
    const int64_t stride = x_rows_of(c);
    int64_t first, end;
    const int64_t sequence = task_groups(run, task, &first, &end);
    const bool fixed = run->config->time_invariant;
    for (int64_t t = 0; t < run->length && !fixed; t += SSM__WORK_TOKENS) {
        const float *rows = k->x_proj + (sequence * run->length + t) * stride;
        run->kernels->linear(&w, NULL, ssm__rows_view(rows, stride),
                             ssm__wide_view(k->dt, sequence, t),
                             ssm__least(SSM__WORK_TOKENS, run->length - t), first * SSM__LANES,
                             ssm__least(end * SSM__LANES, w.rows));
    }
    for (int64_t group = first; group < end; group++) {
        scan_group(run, sequence, group, s->states + thread * c->d_state * SSM__LANES);
    }
}

static void project_out(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const scratch *s = run->scratch;
    const ssm__matrix w = ssm__own_matrix(run, OUT_PROJ);
    int64_t sequence, t;
    const int64_t tokens = ssm__tile_of(run, task, SSM__WORK_TOKENS, &sequence, &t);
    const ssm__view out = ssm__rows_view(run->out + (sequence * run->length + t) * w.rows, w.rows);
    ssm__project_rows(run, &w, ssm__wide_view(s->u, sequence, t), out, tokens);
}

static void forward(const ssm__run *run)
{
    const int64_t channel_tasks = run->sequences * blocks_of(run);
    void *context = (void *)(uintptr_t)run; /* tasks read it alone */
    ssm__pool_run(run->pool, project_and_convolve, context, channel_tasks);
    ssm__pool_run(run->pool, project_selective, context, ssm__tile_tasks(run, X_PROJ_TOKENS));
    ssm__pool_run(run->pool, discretise_and_scan, context, channel_tasks);
    ssm__pool_run(run->pool, project_out, context, ssm__tile_tasks(run, SSM__WORK_TOKENS));
}

/* ---- backward -------------------------------------------------------------------------------- */

/* dy of a few channel groups of a sequence: out_proj's input gradient. */
static void back_out(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const scratch *s = run->scratch;
    const ssm__matrix w = ssm__own_matrix(run, OUT_PROJ);
    int64_t first, end;
    const int64_t sequence = task_groups(run, task, &first, &end);
    for (int64_t t = 0; t < run->length; t += SSM__WORK_TOKENS) {
        const float *dout = run->dout + (sequence * run->length + t) * w.rows;
        run->kernels->training->linear_input_gradient(
            &w, ssm__rows_view(dout, w.rows), ssm__wide_view(s->dy, sequence, t),
            ssm__least(SSM__WORK_TOKENS, run->length - t), first * SSM__LANES,
            ssm__least(end * SSM__LANES, w.cols), false);
    }
}

/* One group of all sequences through the scan: the sums of its parameters are this task's. */
static void back_scan(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const int64_t stride = x_rows_of(c), N = c->d_state, lanes = task * SSM__LANES;
    for (int64_t sequence = 0; sequence < run->sequences; sequence++) {
        const float *rows = k->x_proj + sequence * run->length * stride;
        float *parts = s->parts + (task * run->sequences + sequence) * run->length * 2 * N;
        convolve(run, sequence, task);
        const ssm__scan_backward_args args = {
            .tokens = run->length,
            .d_state = N,
            .u = ssm__wide_group(s->u, sequence, task),
            .dt = ssm__wide_group(k->dt, sequence, task),
            .dt_bias = w->dt_bias + lanes,
            .z = ssm__wide_group(k->z, sequence, task),
            .B = rows + c->dt_rank,
            .C = rows + c->dt_rank + N,
            .bc_stride = (ptrdiff_t)stride,
            .A2 = w->A2 + lanes * N,
            .D = w->D + lanes,
            .starts = starts_of(k, sequence, task),
            .dy = ssm__wide_group(s->dy, sequence, task),
            .y = ssm__wide_group(s->y, sequence, task),
            .du = ssm__wide_group(s->dy, sequence, task),
            .ddt = ssm__wide_group(s->ddt, sequence, task),
            .dz = ssm__wide_group(s->dz, sequence, task),
            .dB = parts,
            .dC = parts + N,
            .dbc_stride = (ptrdiff_t)(2 * N),
            .dA_log = w->dA_log + lanes * N,
            .dD = w->dD + lanes,
            .ddt_bias = w->ddt_bias + lanes,
            .scratch = s->scan + thread * s->scan_floats,
        };
        run->kernels->training->scan_backward(&args);
    }
}

/* A tile of tokens: (dt, B, C)'s gradients, and what they add to du. */
static void back_selective(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const ssm_config *c = &run->config->shape;
    const scratch *s = run->scratch;
    const ssm__training_kernels *kernels = run->kernels->training;
    const ssm__matrix dt_proj = ssm__own_matrix(run, DT_PROJ),
                      x_proj = ssm__own_matrix(run, X_PROJ);
    int64_t sequence, t;
    const int64_t tokens = ssm__tile_of(run, task, SSM__WORK_TOKENS, &sequence, &t);
    const int64_t first = sequence * run->length + t, width = 2 * c->d_state;
    float *rows = s->dx_proj + first * x_rows_of(c);
    const ssm__view view = ssm__rows_view(rows, x_rows_of(c));
    kernels->sum_parts(s->parts + first * width, s->dy.groups,
                       (ptrdiff_t)(run->sequences * run->length * width), tokens, width,
                       rows + c->dt_rank, (ptrdiff_t)x_rows_of(c));
    if (run->config->time_invariant) {
        return;
    }
    kernels->linear_input_gradient(&dt_proj, ssm__wide_view(s->ddt, sequence, t), view, tokens, 0,
                                   dt_proj.cols, false);
    kernels->linear_input_gradient(&x_proj, view, ssm__wide_view(s->dy, sequence, t), tokens, 0,
                                   x_proj.cols, true);
}

/* One group of all sequences through the convolution; dxs takes the place of du. */
static void back_conv(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const int64_t lanes = task * SSM__LANES;
    ssm__back_convolution(run, run->kernels->training->conv_silu_backward,
                          (ssm__conv_backward_args){.d_conv = c->d_conv,
                                                    .weight = w->conv + lanes * c->d_conv,
                                                    .bias = w->conv_bias + lanes,
                                                    .dweight = w->dconv + lanes * c->d_conv,
                                                    .dbias = w->dconv_bias + lanes},
                          k->xs, s->dy, task);
}

static void back_in(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const scratch *s = run->scratch;
    const ssm__matrix xs = in_half(run, false), z = in_half(run, true);
    int64_t sequence, t;
    const int64_t tokens = ssm__tile_of(run, task, SSM__WORK_TOKENS, &sequence, &t);
    float *rows = run->din + (sequence * run->length + t) * xs.cols;
    const ssm__view din = ssm__rows_view(rows, xs.cols);
    run->kernels->training->linear_input_gradient(&xs, ssm__wide_view(s->dy, sequence, t), din,
                                                  tokens, 0, xs.cols, false);
    run->kernels->training->linear_input_gradient(&z, ssm__wide_view(s->dz, sequence, t), din,
                                                  tokens, 0, z.cols, true);
}

/* B and C that are parameters: sums over all tokens. */
static void fixed_gradients(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const scratch *s = run->scratch;
    const int64_t N = c->d_state, tokens = run->sequences * run->length;
    const float *rows = s->dx_proj + c->dt_rank;
    run->kernels->training->column_sums(ssm__rows_view(rows, x_rows_of(c)), tokens,
                                        ssm__own_gradient(run, X_PROJ), 0, N);
    run->kernels->training->column_sums(ssm__rows_view(rows + N, x_rows_of(c)), tokens,
                                        ssm__own_gradient(run, DT_PROJ), 0, N);
}

static void weight_gradients(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const int64_t D = c->d_model, E = c->d_inner, R = c->dt_rank, rows = x_rows_of(c);
    const ssm__side in = {.rows = run->in, .stride = D};
    float *din_proj = ssm__own_gradient(run, IN_PROJ);
    const ssm__weight_product products[] = {
        {.dy = {.wide = s->dy}, .x = in, .rows = E, .cols = D, .dw = din_proj},
        {.dy = {.wide = s->dz}, .x = in, .rows = E, .cols = D, .dw = din_proj + E * D},
        {.dy = {.rows = run->dout, .stride = D},
         .x = {.wide = s->y},
         .rows = D,
         .cols = E,
         .dw = ssm__own_gradient(run, OUT_PROJ)},
        {.dy = {.rows = s->dx_proj, .stride = rows},
         .x = {.wide = s->u},
         .rows = rows,
         .cols = E,
         .dw = ssm__own_gradient(run, X_PROJ)},
        {.dy = {.wide = s->ddt},
         .x = {.rows = k->x_proj, .stride = rows},
         .rows = E,
         .cols = R,
         .dw = ssm__own_gradient(run, DT_PROJ)},
    };
    const int count = (int)(sizeof products / sizeof products[0]);
    ssm__weight_products(run, products, run->config->time_invariant ? count - 2 : count);
}

static void backward(const ssm__run *run)
{
    const int64_t groups = ssm__lane_groups(run->config->shape.d_inner);
    void *context = (void *)(uintptr_t)run;
    ssm__pool_run(run->pool, back_out, context, run->sequences * blocks_of(run));
    ssm__pool_run(run->pool, back_scan, context, groups);
    ssm__pool_run(run->pool, back_selective, context, ssm__tile_tasks(run, SSM__WORK_TOKENS));
    ssm__pool_run(run->pool, back_conv, context, groups);
    weight_gradients(run);
    if (run->config->time_invariant) {
        fixed_gradients(run);
    }
    ssm__pool_run(run->pool, back_in, context, ssm__tile_tasks(run, SSM__WORK_TOKENS));
}

const ssm__mixer ssm__mixer_mamba1 = {
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
