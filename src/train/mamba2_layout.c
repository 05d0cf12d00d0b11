/* train/mamba2_layout.c: sizes, parameters and memory of Mamba-2's block in training. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/layout.h"
#include "train/mamba2_block.h"

/* ---- sizes -------------------------------------------------------------------------------------
 */

/* What a kind has, in the order of the checkpoint. */
static bool has(const ssm__network_config *config, ssm__mixer_kind kind, int which)
{
    const bool steps = kind == SSM__MIXER_MAMBA2;
    switch (which) {
    case SSM__BLOCK_B:
    case SSM__BLOCK_C:
        return steps && config->time_invariant;
    case SSM__BLOCK_GATE_DOWN:
    case SSM__BLOCK_GATE_UP:
    case SSM__BLOCK_GATE_BIAS:
        return kind == SSM__MIXER_GLA;
    case SSM__BLOCK_DT_BIAS:
    case SSM__BLOCK_A_LOG:
        return steps;
    case SSM__BLOCK_CONV:
    case SSM__BLOCK_CONV_BIAS:
        return config->shape.d_conv > 0;
    case SSM__BLOCK_NORM:
        return config->shape.gated_norm;
    default:
        return true;
    }
}

ssm__block_sizes ssm__block_of(const ssm__network_config *config, ssm__mixer_kind kind)
{
    const ssm_config *c = &config->shape;
    ssm__block_sizes b = {.kind = kind, .H = c->n_heads, .P = c->head_dim, .N = c->d_state};
    b.bc_groups = c->n_groups;
    b.keys = b.bc_groups;
    if (kind == SSM__MIXER_GLA) {
        b.keys = config->gate_groups > 0 ? config->gate_groups : b.bc_groups;
        b.gate_rank = config->gate_rank > 0 ? config->gate_rank : 16;
    }
    b.d_model = c->d_model;
    b.d_conv = c->d_conv;
    b.head_groups = ssm__lane_groups(b.P);
    b.mode_groups = ssm__lane_groups(b.N);
    b.padded_N = b.mode_groups * SSM__LANES;
    b.has_steps = kind == SSM__MIXER_MAMBA2;
    b.fixed = b.has_steps && config->time_invariant;
    b.x_group = b.H * b.head_groups;
    b.bc_group = 2 * b.x_group;
    b.dt_group = b.bc_group + 2 * b.bc_groups * b.mode_groups;
    b.groups = b.dt_group + (b.has_steps ? ssm__lane_groups(b.H) : 0);
    b.conv_groups = b.dt_group - b.x_group;
    b.convolved = b.fixed ? b.x_group : b.conv_groups;
    b.rows = b.fixed ? b.bc_group * SSM__LANES : b.dt_group * SSM__LANES + (b.has_steps ? b.H : 0);
    b.channels = b.x_group * SSM__LANES;
    b.padded = b.P % SSM__LANES != 0 || b.N % SSM__LANES != 0;
    b.norms = c->gated_norm ? c->norm_groups : 1;
    int64_t next = 0;
    for (int i = 0; i < SSM__BLOCK_PARAMETERS; i++) {
        b.index[i] = has(config, kind, i) ? next++ : -1;
    }
    return b;
}

bool ssm__block_accepts(const ssm__network_config *config, ssm__mixer_kind kind, char *why,
                        size_t size)
{
    const ssm_config *c = &config->shape;
    const char *name = ssm__mixer_names()[kind];
    if (c->n_heads < 1 || c->head_dim < 1 || c->n_groups < 1 || c->d_state < 1 || c->d_conv < 0) {
        snprintf(
            why, size,
            "%s needs n_heads, head_dim, n_groups and d_state of 1 or more, d_conv of 0 or more; "
            "found %lld, %lld, %lld, %lld and %lld",
            name, (long long)c->n_heads, (long long)c->head_dim, (long long)c->n_groups,
            (long long)c->d_state, (long long)c->d_conv);
    } else if (c->n_heads > c->d_inner || c->n_heads * c->head_dim != c->d_inner ||
               c->d_ssm != c->d_inner) {
        snprintf(why, size,
                 "%s is trained with n_heads·head_dim = d_inner; found %lld·%lld and %lld", name,
                 (long long)c->n_heads, (long long)c->head_dim, (long long)c->d_inner);
    } else if (c->n_heads % c->n_groups != 0) {
        snprintf(why, size, "%s: n_groups %lld does not divide n_heads %lld", name,
                 (long long)c->n_groups, (long long)c->n_heads);
    } else if (c->gated_norm && (c->norm_groups < 1 || c->n_heads % c->norm_groups != 0 ||
                                 !(c->mixer_norm_eps > 0))) {
        snprintf(why, size,
                 "%s: norm_groups %lld does not divide n_heads %lld, or mixer_norm_eps %g is not "
                 "above 0",
                 name, (long long)c->norm_groups, (long long)c->n_heads, c->mixer_norm_eps);
    } else if (!(c->dt_limit_low >= 0 && c->dt_limit_high > c->dt_limit_low)) {
        snprintf(why, size, "%s: the limits of dt are %g and %g; expected 0 ≤ low < high", name,
                 c->dt_limit_low, c->dt_limit_high);
    } else if (kind == SSM__MIXER_GLA && config->gate_groups != 0 &&
               (config->gate_groups < 0 || config->gate_groups % c->n_groups != 0 ||
                c->n_heads % config->gate_groups != 0)) {
        snprintf(why, size,
                 "gla: gate_groups is %lld; expected a multiple of n_groups %lld that divides "
                 "n_heads %lld, or 0",
                 (long long)config->gate_groups, (long long)c->n_groups, (long long)c->n_heads);
    } else if (config->time_invariant && kind != SSM__MIXER_MAMBA2) {
        snprintf(why, size, "%s has no time-invariant mode; expected mamba1 or mamba2", name);
    } else {
        return true;
    }
    return false;
}

void ssm__block_declare(ssm__declaration *list, const ssm__network_config *config, int64_t layer,
                        ssm__mixer_kind kind)
{
    static const int slots[SSM__BLOCK_PARAMETERS] = {
        SSM__SLOT_in_proj, SSM__SLOT_conv1d, SSM__SLOT_conv1d_bias, SSM__SLOT_dt_bias,
        SSM__SLOT_A_log,   SSM__SLOT_D,      SSM__SLOT_gate_norm,   SSM__SLOT_out_proj};
    const ssm__block_sizes b = ssm__block_of(config, kind);
    const int64_t S = b.H * b.P, GN = b.bc_groups * b.N;
    const int64_t convolved = S + (b.fixed ? 0 : 2 * GN);
    const int64_t steps = b.has_steps && !b.fixed ? b.H : 0;
    for (int i = 0; i <= SSM__BLOCK_OUT_PROJ; i++) {
        if (b.index[i] < 0) {
            continue;
        }
        if (i == SSM__BLOCK_IN_PROJ) {
            ssm__declare_shaped(list, SSM_LAYER_MAMBA2, layer, slots[i], 2,
                                (int64_t[]){S + convolved + steps, b.d_model});
        } else if (i == SSM__BLOCK_CONV) {
            ssm__declare_shaped(list, SSM_LAYER_MAMBA2, layer, slots[i], 3,
                                (int64_t[]){convolved, 1, b.d_conv});
        } else if (i == SSM__BLOCK_CONV_BIAS) {
            ssm__declare_shaped(list, SSM_LAYER_MAMBA2, layer, slots[i], 1, &convolved);
        } else {
            ssm__declare_slot(list, SSM_LAYER_MAMBA2, layer, slots[i]);
        }
    }
    if (b.fixed) {
        const int64_t dims[] = {b.bc_groups, b.N};
        ssm__declare_other(list, layer, "mixer.B", false, 2, dims);
        ssm__declare_other(list, layer, "mixer.C", false, 2, dims);
    }
    if (kind == SSM__MIXER_GLA) {
        const int64_t width = b.keys * b.N;
        ssm__declare_other(list, layer, "mixer.gate_proj.0.weight", true, 2,
                           (int64_t[]){b.gate_rank, b.d_model});
        ssm__declare_other(list, layer, "mixer.gate_proj.1.weight", true, 2,
                           (int64_t[]){width, b.gate_rank});
        ssm__declare_other(list, layer, "mixer.gate_proj.1.bias", false, 1, &width);
    }
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static void take_lanes(ssm__arena *arena, const ssm__block_sizes *b, float **dt_bias, float **D,
                       float **norm)
{
    *dt_bias = SSM__TAKE(arena, float, ssm__lane_groups(b->H) * SSM__LANES);
    *D = SSM__TAKE(arena, float, b->channels);
    *norm = SSM__TAKE(arena, float, b->channels);
}

void *ssm__block_take_weights(ssm__arena *arena, const ssm__network_config *config,
                              ssm__mixer_kind kind)
{
    const ssm__block_sizes b = ssm__block_of(config, kind);
    ssm__block_weights *out = SSM__TAKE(arena, ssm__block_weights, 1);
    ssm__block_weights w = {.conv = ssm__convolution_take(arena, b.conv_groups, b.d_conv, true)};
    take_lanes(arena, &b, &w.dt_bias, &w.D, &w.norm);
    take_lanes(arena, &b, &w.ddt_bias, &w.dD, &w.dnorm);
    w.fixed = SSM__TAKE(arena, float, 2 * b.bc_groups * b.padded_N);
    w.dfixed = SSM__TAKE(arena, float, 2 * b.bc_groups * b.padded_N);
    w.A2 = SSM__TAKE(arena, float, b.H);
    w.dA = SSM__TAKE(arena, double, b.H);
    if (b.padded) {
        w.in_proj = SSM__TAKE(arena, float, b.rows *b.d_model);
        w.din_proj = SSM__TAKE(arena, float, b.rows *b.d_model);
        w.out_proj = SSM__TAKE(arena, float, b.channels *b.d_model);
        w.dout_proj = SSM__TAKE(arena, float, b.channels *b.d_model);
    }
    if (out != NULL) {
        *out = w;
    }
    return out;
}

static int64_t state_floats(const ssm__block_sizes *b, int64_t length, int64_t sequences)
{
    return sequences * ssm__block_chunks(length) * b->channels * b->padded_N;
}

void *ssm__block_take_kept(ssm__arena *arena, const ssm__network_config *config, int64_t length,
                           int64_t sequences, ssm__mixer_kind kind)
{
    const ssm__block_sizes b = ssm__block_of(config, kind);
    const int64_t tokens = sequences * length;
    ssm__block_kept *out = SSM__TAKE(arena, ssm__block_kept, 1);
    ssm__block_kept k = {.in = ssm__wide_take(arena, b.groups * SSM__LANES, length, sequences),
                         .v = ssm__wide_take(arena, b.channels, length, sequences),
                         .states = SSM__TAKE(arena, float, state_floats(&b, length, sequences))};
    if (kind == SSM__MIXER_GLA) {
        k.low = SSM__TAKE(arena, float, tokens *b.gate_rank);
        k.p = SSM__TAKE(arena, float, tokens *b.keys *b.padded_N);
    }
    if (out != NULL) {
        *out = k;
    }
    return out;
}

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Of a thread: forward and backward tasks take what they need from the beginning. */
static int64_t thread_floats(const ssm__block_sizes *b, int64_t length)
{
    const int64_t tile = SSM__TILE_ROWS * SSM__LANES;
    const int64_t heads = b->head_groups * (2 * tile + b->padded_N * SSM__LANES);
    const int64_t all = b->x_group * tile;
    const int64_t rows = 2 * SSM__TILE * b->padded_N + SSM__TILE * SSM__TILE;
    const int64_t chunk = rows + ssm__ssd_backward_scratch(b->padded_N, b->head_groups);
    const int64_t lanes = largest(b->d_conv, length) * SSM__LANES;
    const int64_t gated = b->kind == SSM__MIXER_GLA ? chunk + ssm__gla_floats(b) : 0;
    const int64_t most = largest(largest(heads, all), largest(largest(chunk, gated), lanes));
    return (most + 15) / 16 * 16;
}

/* What gated linear attention adds. */
static void take_gates(ssm__arena *arena, const ssm__block_sizes *b, int64_t tokens, bool backward,
                       ssm__block_scratch *s)
{
    const int64_t rows = tokens * b->keys * b->padded_N;
    s->seen = SSM__TAKE(arena, float, 2 * rows);
    s->factors = SSM__TAKE(arena, float, rows);
    s->totals = SSM__TAKE(arena, float, rows);
    s->counts = SSM__TAKE(arena, int32_t, tokens * b->keys);
    if (backward) {
        s->dp = SSM__TAKE(arena, float, rows);
        s->dlow = SSM__TAKE(arena, float, tokens * b->gate_rank);
    }
}

void *ssm__block_take_scratch(ssm__arena *arena, const ssm__network_config *config, int64_t length,
                              int64_t sequences, int threads, bool backward, ssm__mixer_kind kind)
{
    const ssm__block_sizes b = ssm__block_of(config, kind);
    const int64_t chunks = sequences * ssm__block_chunks(length), tokens = sequences * length;
    ssm__block_scratch *out = SSM__TAKE(arena, ssm__block_scratch, 1);
    ssm__block_scratch s = {
        .u = ssm__wide_take(arena, b.conv_groups * SSM__LANES, length, sequences),
        .bc = SSM__TAKE(arena, float, tokens *b.bc_groups * 2 * b.padded_N),
        .products = SSM__TAKE(arena, float, chunks *b.keys *SSM__TILE *SSM__TILE),
        .delta = SSM__TAKE(arena, float, chunks *b.H *SSM__TILE),
        .thread_floats = thread_floats(&b, length)};
    s.threads = SSM__TAKE(arena, float, threads *s.thread_floats);
    s.seen = s.bc;
    if (kind == SSM__MIXER_GLA) {
        take_gates(arena, &b, tokens, backward, &s);
    }
    if (backward) {
        s.d = ssm__wide_take(arena, b.groups * SSM__LANES, length, sequences);
        s.y = ssm__wide_take(arena, b.channels, length, sequences);
        s.dv = ssm__wide_take(arena, b.channels, length, sequences);
        s.dstates = SSM__TAKE(arena, float, state_floats(&b, length, sequences));
        s.ddelta = SSM__TAKE(arena, float, chunks *b.H *SSM__TILE);
        s.rates = SSM__TAKE(arena, float, chunks *b.H *SSM__TILE);
    }
    if (out != NULL) {
        *out = s;
    }
    return out;
}

/* ---- parameters --------------------------------------------------------------------------------
 */

ssm__block_run ssm__block_run_of(const ssm__run *run)
{
    return (ssm__block_run){.run = run,
                            .b = ssm__block_of(run->config, run->branch->kind),
                            .w = run->weights,
                            .k = run->kept,
                            .s = run->scratch,
                            .chunks = ssm__block_chunks(run->length)};
}

const float *ssm__block_value(const ssm__block_run *r, ssm__block_parameter which)
{
    return ssm__own_value(r->run, r->b.index[which]);
}

static float *gradient(const ssm__block_run *r, ssm__block_parameter which)
{
    return ssm__own_gradient(r->run, r->b.index[which]);
}

float *ssm__block_gradient(const ssm__block_run *r, ssm__block_parameter which)
{
    if (r->b.padded && which == SSM__BLOCK_IN_PROJ) {
        return r->w->din_proj;
    }
    return r->b.padded && which == SSM__BLOCK_OUT_PROJ ? r->w->dout_proj : gradient(r, which);
}

ssm__matrix ssm__block_in_matrix(const ssm__block_run *r)
{
    const float *data = r->b.padded ? r->w->in_proj : ssm__block_value(r, SSM__BLOCK_IN_PROJ);
    return (ssm__matrix){data, SSM_DTYPE_F32, r->b.rows, r->b.d_model};
}

ssm__matrix ssm__block_out_matrix(const ssm__block_run *r)
{
    const float *data = r->b.padded ? r->w->out_proj : ssm__block_value(r, SSM__BLOCK_OUT_PROJ);
    return (ssm__matrix){data, SSM_DTYPE_F32, r->b.d_model, r->b.channels};
}

/* Rows `first` … of in_proj, and where they stand here: blocks of `size` rows in groups of lanes.
 */
typedef struct part {
    int64_t blocks, size;
} part;

enum { PARTS = 4 };

static void parts_of(const ssm__block_sizes *b, part out[PARTS])
{
    out[0] = out[1] = (part){b->H, b->P};
    out[2] = (part){2 * b->bc_groups, b->N};
    out[3] = (part){b->has_steps, b->H};
}

/* What is copied between a parameter, rows of `width` floats, and lanes or padded rows. */
typedef struct copying {
    const ssm__block_sizes *block;
    int first_part, end_part;
    int64_t width;
    bool lanes;    /* the copy is [groups][width][16], else rows [16·groups][width] */
    float *dense;  /* the parameter */
    float *padded; /* the copy */
    bool back;     /* dense += padded, else padded = dense */
} copying;

static void copy_row(const copying *c, int64_t row, int64_t place)
{
    float *dense = c->dense + row * c->width;
    const int64_t first = c->lanes ? place / SSM__LANES * c->width * SSM__LANES + place % SSM__LANES
                                   : place * c->width;
    const int64_t step = c->lanes ? SSM__LANES : 1;
    for (int64_t k = 0; k < c->width; k++) {
        if (c->back) {
            dense[k] += c->padded[first + k * step];
        } else {
            c->padded[first + k * step] = dense[k];
        }
    }
}

static int in_proj_parts(const ssm__block_sizes *b)
{
    return b->fixed ? 2 : PARTS;
}

static int conv_parts(const ssm__block_sizes *b)
{
    return b->fixed ? 2 : 3;
}

/* Lanes that are no row stay zero, as they began. */
static void copy_rows(const copying *c)
{
    part parts[PARTS];
    parts_of(c->block, parts);
    int64_t row = 0, place = 0;
    for (int p = c->first_part; p < c->end_part; p++) {
        for (int64_t i = 0; i < parts[p].blocks; i++) {
            for (int64_t k = 0; k < parts[p].size; k++) {
                copy_row(c, row++, place + k);
            }
            place += ssm__lane_groups(parts[p].size) * SSM__LANES;
        }
    }
}

/* out_proj: columns of heads. */
static void copy_columns(const ssm__block_sizes *b, float *dense, float *padded, bool back)
{
    for (int64_t d = 0; d < b->d_model; d++) {
        for (int64_t e = 0; e < b->H * b->P; e++) {
            float *at =
                padded + d * b->channels + e / b->P * b->head_groups * SSM__LANES + e % b->P;
            float *other = dense + d * b->H * b->P + e;
            if (back) {
                *other += *at;
            } else {
                *at = *other;
            }
        }
    }
}

static float *writable(const float *values)
{
    return (float *)(uintptr_t)values; /* copying from it reads alone */
}

static void prepare_projections(const ssm__block_run *r)
{
    const ssm__block_sizes *b = &r->b;
    if (b->padded) {
        copy_rows(&(copying){b, 0, in_proj_parts(b), b->d_model, false,
                             writable(ssm__block_value(r, SSM__BLOCK_IN_PROJ)), r->w->in_proj,
                             false});
        copy_columns(b, writable(ssm__block_value(r, SSM__BLOCK_OUT_PROJ)), r->w->out_proj, false);
    }
}

/* D is one a head or one a channel. */
static int64_t skips_of_head(const ssm__block_run *r)
{
    return r->run->config->shape.D_per_channel ? r->b.P : 1;
}

static void prepare_skip(const ssm__block_run *r)
{
    const float *D = ssm__block_value(r, SSM__BLOCK_SKIP);
    const int64_t of_head = skips_of_head(r);
    for (int64_t e = 0; e < r->b.H * r->b.P; e++) {
        const int64_t head = e / r->b.P, p = e % r->b.P;
        r->w->D[head * r->b.head_groups * SSM__LANES + p] = D[head * of_head + p % of_head];
    }
}

static void clear(float *values, int64_t count)
{
    memset(values, 0, (size_t)count * sizeof *values);
}

static void clear_gradients(const ssm__block_run *r)
{
    const ssm__block_sizes *b = &r->b;
    const ssm__block_weights *w = r->w;
    ssm__convolution_clear(&w->conv);
    clear(w->ddt_bias, ssm__lane_groups(b->H) * SSM__LANES);
    clear(w->dD, b->channels);
    clear(w->dnorm, b->channels);
    clear(w->dfixed, 2 * b->bc_groups * b->padded_N);
    memset(w->dA, 0, (size_t)b->H * sizeof *w->dA);
    if (b->padded) {
        clear(w->din_proj, b->rows * b->d_model);
        clear(w->dout_proj, b->channels * b->d_model);
    }
}

/* B and C [G][N] of the time-invariant mode, or their gradients. */
static void move_fixed(const ssm__block_run *r, bool back)
{
    const ssm__block_sizes *b = &r->b;
    for (int64_t i = 0; i < 2; i++) {
        const ssm__block_parameter which = i == 0 ? SSM__BLOCK_B : SSM__BLOCK_C;
        const int64_t first = i * b->bc_groups * b->padded_N;
        for (int64_t k = 0; k < b->bc_groups * b->N; k++) {
            const int64_t at = first + k / b->N * b->padded_N + k % b->N;
            if (back) {
                gradient(r, which)[k] += r->w->dfixed[at];
            } else {
                r->w->fixed[at] = ssm__block_value(r, which)[k];
            }
        }
    }
}

void ssm__block_prepare(const ssm__run *run)
{
    const ssm__block_run r = ssm__block_run_of(run);
    const ssm__block_sizes *b = &r.b;
    const ssm__block_weights *w = r.w;
    const int end = conv_parts(b);
    prepare_projections(&r);
    if (b->index[SSM__BLOCK_CONV] >= 0) {
        copy_rows(&(copying){b, 1, end, b->d_conv, true,
                             writable(ssm__block_value(&r, SSM__BLOCK_CONV)), w->conv.weight,
                             false});
        copy_rows(&(copying){b, 1, end, 1, true,
                             writable(ssm__block_value(&r, SSM__BLOCK_CONV_BIAS)), w->conv.bias,
                             false});
    }
    prepare_skip(&r);
    if (b->index[SSM__BLOCK_NORM] >= 0) {
        copy_rows(&(copying){b, 1, 2, 1, true, writable(ssm__block_value(&r, SSM__BLOCK_NORM)),
                             w->norm, false});
    }
    if (b->fixed) {
        move_fixed(&r, false);
    }
    if (b->has_steps) {
        memcpy(w->dt_bias, ssm__block_value(&r, SSM__BLOCK_DT_BIAS), (size_t)b->H * sizeof(float));
        memcpy(w->A2, ssm__block_value(&r, SSM__BLOCK_A_LOG), (size_t)b->H * sizeof(float));
        ssm__decay_rates(w->A2, b->H);
    }
    if (run->gradients != NULL) {
        clear_gradients(&r);
    }
}

static void finish_skip(const ssm__block_run *r)
{
    float *dD = gradient(r, SSM__BLOCK_SKIP);
    const int64_t of_head = skips_of_head(r);
    for (int64_t head = 0; head < r->b.H; head++) {
        const float *lanes = r->w->dD + head * r->b.head_groups * SSM__LANES;
        if (of_head > 1) {
            for (int64_t p = 0; p < r->b.P; p++) {
                dD[head * of_head + p] += lanes[p];
            }
            continue;
        }
        float sum = 0.0f;
        for (int64_t p = 0; p < r->b.P; p++) {
            sum += lanes[p];
        }
        dD[head] += sum;
    }
}

void ssm__block_finish(const ssm__run *run)
{
    const ssm__block_run r = ssm__block_run_of(run);
    const ssm__block_sizes *b = &r.b;
    const ssm__block_weights *w = r.w;
    if (b->padded) {
        copy_rows(&(copying){b, 0, in_proj_parts(b), b->d_model, false,
                             gradient(&r, SSM__BLOCK_IN_PROJ), w->din_proj, true});
        copy_columns(b, gradient(&r, SSM__BLOCK_OUT_PROJ), w->dout_proj, true);
    }
    if (b->index[SSM__BLOCK_CONV] >= 0) {
        copy_rows(&(copying){b, 1, conv_parts(b), b->d_conv, true, gradient(&r, SSM__BLOCK_CONV),
                             w->conv.dweight, true});
        copy_rows(&(copying){b, 1, conv_parts(b), 1, true, gradient(&r, SSM__BLOCK_CONV_BIAS),
                             w->conv.dbias, true});
    }
    finish_skip(&r);
    if (b->index[SSM__BLOCK_NORM] >= 0) {
        copy_rows(&(copying){b, 1, 2, 1, true, gradient(&r, SSM__BLOCK_NORM), w->dnorm, true});
    }
    if (b->fixed) {
        move_fixed(&r, true);
    }
    if (b->has_steps) {
        const float *A_log = ssm__block_value(&r, SSM__BLOCK_A_LOG);
        float *dA_log = gradient(&r, SSM__BLOCK_A_LOG);
        float *ddt_bias = gradient(&r, SSM__BLOCK_DT_BIAS);
        for (int64_t head = 0; head < b->H; head++) {
            dA_log[head] += (float)(-exp((double)A_log[head]) * w->dA[head]);
            ddt_bias[head] += w->ddt_bias[head];
        }
    }
}
