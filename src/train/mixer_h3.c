/* train/mixer_h3.c: the mixer of H3 (Fu et al., 2023), forward and backward (docs/training.md), for
 * H heads of P channels, S = HP:
 *
 *   (q, k, v) = in_proj h;  k̄ = conv1d(k);  every pair (i, j) of a head's channels: s_ij = diagonal
 *   SSM of k̄_i v_j with the head's Δ, A, C, D;  o_j = Σ_i q_i s_ij;  out = out_proj o
 *
 * A head lies in one group of 16 lanes, or in whole groups (kernels/training_h3.h): P is 1, 2, 4, 8
 * or a multiple of 16. Kept for backward: q, k, v and o; k̄ and the states are computed again. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/training.h"
#include "train/convolution.h"
#include "train/lanes.h"
#include "train/mixer.h"
#include "train/work.h"

/* in_proj has the rows of q, k and v. */
enum { IN_PROJ, CONV, CONV_BIAS, DT_BIAS, A_LOG, SKIP, READ, OUT_PROJ, PARAMETERS };

/* Constants in lanes, every lane that of its head, and gradients of a pass. */
typedef struct weights {
    ssm__convolution conv;
    float *decay, *read; /* [groups][N][16] exp(Δ A), Δ C */
    float *D;            /* [groups][16] */
    float *ddecay, *dread, *dD;
} weights;

typedef struct kept {
    ssm__wide q, k, v, o;
} kept;

typedef struct scratch {
    ssm__wide u;    /* k̄ */
    float *threads; /* [threads] of thread_floats: history of the convolution, then the kernels' */
    int64_t thread_floats;
    /* backward */
    ssm__wide dout, dq, dk, dv;
} scratch;

/* Groups of lanes of a head, at least one. */
static int64_t unit_of(const ssm_config *c)
{
    return ssm__lane_groups(c->head_dim);
}

static int64_t units_of(const ssm_config *c)
{
    return ssm__divide_up(ssm__lane_groups(c->d_ssm), unit_of(c));
}

static bool accepts(const ssm__network_config *config, char *why, size_t size)
{
    const ssm_config *c = &config->shape;
    const int64_t H = c->n_heads, P = c->head_dim;
    if (H < 1 || P < 1 || c->d_state < 1 || c->d_conv < 1) {
        snprintf(why, size,
                 "h3 needs n_heads, head_dim, d_state and d_conv of 1 or more; found %lld, %lld, "
                 "%lld and %lld",
                 (long long)H, (long long)P, (long long)c->d_state, (long long)c->d_conv);
    } else if (P % SSM__LANES != 0 && SSM__LANES % P != 0) {
        snprintf(why, size, "h3: head_dim is %lld; expected 1, 2, 4, 8 or a multiple of 16",
                 (long long)P);
    } else if (H > c->d_inner || H * P != c->d_inner || c->d_ssm != c->d_inner) {
        snprintf(why, size,
                 "h3 is trained with n_heads·head_dim = d_inner; found %lld·%lld and %lld",
                 (long long)H, (long long)P, (long long)c->d_inner);
    } else if (config->time_invariant) {
        snprintf(why, size, "h3 is time-invariant as it is; expected mamba1 or mamba2");
    } else {
        return true;
    }
    return false;
}

static void declare(ssm__declaration *list, const ssm__network_config *config, int64_t layer)
{
    const ssm_config *c = &config->shape;
    const int64_t S = c->d_ssm, H = c->n_heads, N = c->d_state;
    const struct {
        int slot, n_dims;
        int64_t dims[3];
        ssm_layer_kind kind; /* A_log starts as Mamba's, log n */
    } slots[PARAMETERS] = {
        [IN_PROJ] = {SSM__SLOT_in_proj, 2, {3 * S, c->d_model}, SSM_LAYER_MAMBA2},
        [CONV] = {SSM__SLOT_conv1d, 3, {S, 1, c->d_conv}, SSM_LAYER_MAMBA2},
        [CONV_BIAS] = {SSM__SLOT_conv1d_bias, 1, {S}, SSM_LAYER_MAMBA2},
        [DT_BIAS] = {SSM__SLOT_dt_bias, 1, {H}, SSM_LAYER_MAMBA2},
        [A_LOG] = {SSM__SLOT_A_log, 2, {H, N}, SSM_LAYER_MAMBA},
        [SKIP] = {SSM__SLOT_D, 1, {H}, SSM_LAYER_MAMBA2},
        [READ] = {-1, 2, {H, N}, SSM_LAYER_MAMBA2},
        [OUT_PROJ] = {SSM__SLOT_out_proj, 2, {c->d_model, S}, SSM_LAYER_MAMBA2}};
    for (int i = 0; i < PARAMETERS; i++) {
        if (slots[i].slot < 0) {
            ssm__declare_other(list, layer, "mixer.C", false, slots[i].n_dims, slots[i].dims);
        } else {
            ssm__declare_shaped(list, slots[i].kind, layer, slots[i].slot, slots[i].n_dims,
                                slots[i].dims);
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void take_lanes(ssm__arena *arena, const ssm_config *c, float **decay, float **read,
                       float **D)
{
    const int64_t channels = ssm__lane_groups(c->d_ssm) * SSM__LANES;
    *decay = SSM__TAKE(arena, float, channels * c->d_state);
    *read = SSM__TAKE(arena, float, channels * c->d_state);
    *D = SSM__TAKE(arena, float, channels);
}

static void *take_weights(ssm__arena *arena, const ssm__network_config *config)
{
    const ssm_config *c = &config->shape;
    weights *out = SSM__TAKE(arena, weights, 1);
    weights w = {.conv =
                     ssm__convolution_take(arena, ssm__lane_groups(c->d_ssm), c->d_conv, false)};
    take_lanes(arena, c, &w.decay, &w.read, &w.D);
    take_lanes(arena, c, &w.ddecay, &w.dread, &w.dD);
    if (out != NULL) {
        *out = w;
    }
    return out;
}

static void *take_kept(ssm__arena *arena, const ssm__network_config *config, int64_t length,
                       int64_t sequences, bool backward)
{
    (void)backward;
    const int64_t S = config->shape.d_ssm;
    kept *out = SSM__TAKE(arena, kept, 1);
    const kept k = {.q = ssm__wide_take(arena, S, length, sequences),
                    .k = ssm__wide_take(arena, S, length, sequences),
                    .v = ssm__wide_take(arena, S, length, sequences),
                    .o = ssm__wide_take(arena, S, length, sequences)};
    if (out != NULL) {
        *out = k;
    }
    return out;
}

static void *take_scratch(ssm__arena *arena, const ssm__network_config *config, int64_t length,
                          int64_t sequences, int threads, bool backward)
{
    const ssm_config *c = &config->shape;
    scratch *out = SSM__TAKE(arena, scratch, 1);
    scratch s = {.u = ssm__wide_take(arena, c->d_ssm, length, sequences)};
    const int64_t kernel =
        backward ? ssm__h3_backward_scratch(length, c->d_state) : ssm__h3_scratch(c->d_state);
    s.thread_floats = (c->d_conv - 1) * SSM__LANES + kernel;
    s.threads = SSM__TAKE(arena, float, threads *s.thread_floats);
    if (backward) {
        s.dout = ssm__wide_take(arena, c->d_ssm, length, sequences);
        s.dq = ssm__wide_take(arena, c->d_ssm, length, sequences);
        s.dk = ssm__wide_take(arena, c->d_ssm, length, sequences);
        s.dv = ssm__wide_take(arena, c->d_ssm, length, sequences);
    }
    if (out != NULL) {
        *out = s;
    }
    return out;
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* What a head's constants are made of, in float64. */
typedef struct constants {
    double delta, slope; /* softplus(dt_bias) and its derivative */
} constants;

static constants constants_of(const ssm__run *run, int64_t head)
{
    const double bias = (double)ssm__own_value(run, DT_BIAS)[head];
    const double delta = fmax(bias, 0.0) + log1p(exp(-fabs(bias)));
    return (constants){.delta = delta, .slope = -expm1(-delta)};
}

static double rate_of(const ssm__run *run, int64_t at)
{
    return -exp((double)ssm__own_value(run, A_LOG)[at]);
}

/* A head's channels in lanes: element n of channel c of [groups][N][16]. */
static int64_t lane_at(int64_t channel, int64_t n, int64_t N)
{
    return (channel / SSM__LANES * N + n) * SSM__LANES + channel % SSM__LANES;
}

static void put_head(const ssm__run *run, int64_t head)
{
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    const int64_t N = c->d_state, first = head * c->head_dim;
    const constants h = constants_of(run, head);
    for (int64_t channel = first; channel < first + c->head_dim; channel++) {
        w->D[channel] = ssm__own_value(run, SKIP)[head];
    }
    for (int64_t n = 0; n < N; n++) {
        const float decay = (float)exp(h.delta * rate_of(run, head * N + n));
        const float read = (float)(h.delta * (double)ssm__own_value(run, READ)[head * N + n]);
        for (int64_t channel = first; channel < first + c->head_dim; channel++) {
            w->decay[lane_at(channel, n, N)] = decay;
            w->read[lane_at(channel, n, N)] = read;
        }
    }
}

static void prepare(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    const size_t channels = (size_t)(ssm__lane_groups(c->d_ssm) * SSM__LANES);
    ssm__convolution_put(&w->conv, run, c->d_ssm, CONV);
    for (int64_t head = 0; head < c->n_heads; head++) {
        put_head(run, head);
    }
    if (run->gradients != NULL) {
        ssm__convolution_clear(&w->conv);
        memset(w->ddecay, 0, channels * (size_t)c->d_state * sizeof(float));
        memset(w->dread, 0, channels * (size_t)c->d_state * sizeof(float));
        memset(w->dD, 0, channels * sizeof(float));
    }
}

/* decay = exp(Δ A), read = Δ C, A = −exp(A_log), Δ = softplus(dt_bias). */
static void add_head(const ssm__run *run, int64_t head)
{
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    const int64_t N = c->d_state, first = head * c->head_dim;
    const constants h = constants_of(run, head);
    double dD = 0, ddelta = 0;
    for (int64_t n = 0; n < N; n++) {
        const int64_t at = head * N + n;
        const double A = rate_of(run, at);
        double ddecay = 0, dread = 0;
        for (int64_t channel = first; channel < first + c->head_dim; channel++) {
            ddecay += (double)w->ddecay[lane_at(channel, n, N)];
            dread += (double)w->dread[lane_at(channel, n, N)];
            dD += n == 0 ? (double)w->dD[channel] : 0.0;
        }
        const double slope = ddecay * exp(h.delta * A); /* by the exponent Δ A */
        ddelta += slope * A + dread * (double)ssm__own_value(run, READ)[at];
        ssm__own_gradient(run, A_LOG)[at] += (float)(slope * h.delta * A);
        ssm__own_gradient(run, READ)[at] += (float)(dread * h.delta);
    }
    ssm__own_gradient(run, SKIP)[head] += (float)dD;
    ssm__own_gradient(run, DT_BIAS)[head] += (float)(ddelta * h.slope);
}

static void finish(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    ssm__convolution_add(&w->conv, run, c->d_ssm, CONV);
    for (int64_t head = 0; head < c->n_heads; head++) {
        add_head(run, head);
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

static void project_in(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const kept *k = run->kept;
    const ssm__wide parts[] = {k->q, k->k, k->v};
    int64_t first, end;
    const int64_t sequence = ssm__groups_of(task, k->q.groups, &first, &end);
    for (int i = 0; i < 3; i++) {
        const ssm__matrix w = ssm__own_part(run, IN_PROJ, i, 3);
        ssm__project_groups(run, &w, run->in, w.cols, parts[i], sequence, first, end);
    }
}

/* k̄ of the groups [first, end) of a sequence. */
static void convolve(const ssm__run *run, int64_t sequence, int64_t first, int64_t end, int thread)
{
    const weights *w = run->weights;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    for (int64_t group = first; group < end; group++) {
        ssm__convolve(run, &w->conv, group, ssm__wide_group(k->k, sequence, group),
                      ssm__wide_group(s->u, sequence, group),
                      s->threads + thread * s->thread_floats);
    }
}

/* Channels of group j with those of group i of the same head. */
static ssm__h3_args pairs(const ssm__run *run, int64_t sequence, int64_t i, int64_t j, int thread)
{
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    return (ssm__h3_args){.tokens = run->length,
                          .d_state = c->d_state,
                          .width = ssm__least(c->head_dim, SSM__LANES),
                          .q = ssm__wide_group(k->q, sequence, i),
                          .k = ssm__wide_group(s->u, sequence, i),
                          .v = ssm__wide_group(k->v, sequence, j),
                          .decay = w->decay + j * c->d_state * SSM__LANES,
                          .read = w->read + j * c->d_state * SSM__LANES,
                          .D = w->D + j * SSM__LANES,
                          .scratch = s->threads + thread * s->thread_floats +
                                     (c->d_conv - 1) * SSM__LANES};
}

static void clear(const ssm__run *run, ssm__wide wide, int64_t sequence, int64_t group)
{
    memset(ssm__wide_group(wide, sequence, group), 0,
           (size_t)(run->length * SSM__LANES) * sizeof(float));
}

/* Convolution and recurrence of the groups of a head of a sequence. */
static void recur(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const ssm_config *c = &run->config->shape;
    const kept *k = run->kept;
    const int64_t sequence = task / units_of(c), first = task % units_of(c) * unit_of(c);
    const int64_t end = first + unit_of(c);
    convolve(run, sequence, first, end, thread);
    for (int64_t j = first; j < end; j++) {
        clear(run, k->o, sequence, j);
        for (int64_t i = first; i < end; i++) {
            const ssm__h3_args args = pairs(run, sequence, i, j, thread);
            run->kernels->training->h3.forward(&args, ssm__wide_group(k->o, sequence, j));
        }
    }
}

static void project_out(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const kept *k = run->kept;
    const ssm__matrix w = ssm__own_matrix(run, OUT_PROJ);
    int64_t sequence, t;
    const int64_t tokens = ssm__tile_of(run, task, SSM__WORK_TOKENS, &sequence, &t);
    const ssm__view out = ssm__rows_view(run->out + (sequence * run->length + t) * w.rows, w.rows);
    ssm__project_rows(run, &w, ssm__wide_view(k->o, sequence, t), out, tokens);
}

static void forward(const ssm__run *run)
{
    const kept *k = run->kept;
    void *context = (void *)(uintptr_t)run; /* tasks read it alone */
    ssm__pool_run(run->pool, project_in, context, ssm__group_tasks(run, k->q.groups));
    ssm__pool_run(run->pool, recur, context, run->sequences * units_of(&run->config->shape));
    ssm__pool_run(run->pool, project_out, context, ssm__tile_tasks(run, SSM__WORK_TOKENS));
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Gradient of o: out_proj's input gradient. */
static void back_out(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const scratch *s = run->scratch;
    const ssm__matrix w = ssm__own_matrix(run, OUT_PROJ);
    int64_t first, end;
    const int64_t sequence = ssm__groups_of(task, s->dout.groups, &first, &end);
    ssm__project_groups_back(run, &w, s->dout, sequence, first, end);
}

static void back_pairs(const ssm__run *run, int64_t sequence, int64_t i, int64_t j, int thread)
{
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    const scratch *s = run->scratch;
    const ssm__h3_backward_args args = {.forward = pairs(run, sequence, i, j, thread),
                                        .dout = ssm__wide_group(s->dout, sequence, j),
                                        .dq = ssm__wide_group(s->dq, sequence, i),
                                        .dk = ssm__wide_group(s->dk, sequence, i),
                                        .dv = ssm__wide_group(s->dv, sequence, j),
                                        .ddecay = w->ddecay + j * c->d_state * SSM__LANES,
                                        .dread = w->dread + j * c->d_state * SSM__LANES,
                                        .dD = w->dD + j * SSM__LANES};
    run->kernels->training->h3.backward(&args);
}

/* The groups of a head of all sequences: the sums of its constants, and of its convolution, are
 * this task's. */
static void back_recur(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const ssm_config *c = &run->config->shape;
    const weights *w = run->weights;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const int64_t first = task * unit_of(c), end = first + unit_of(c);
    for (int64_t sequence = 0; sequence < run->sequences; sequence++) {
        convolve(run, sequence, first, end, thread);
        for (int64_t j = first; j < end; j++) {
            clear(run, s->dq, sequence, j);
            clear(run, s->dk, sequence, j);
            clear(run, s->dv, sequence, j);
        }
        for (int64_t j = first; j < end; j++) {
            for (int64_t i = first; i < end; i++) {
                back_pairs(run, sequence, i, j, thread);
            }
        }
    }
    for (int64_t group = first; group < end; group++) {
        ssm__convolve_back(run, &w->conv, group, k->k, s->dk, group);
    }
}

static void back_in(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const scratch *s = run->scratch;
    const ssm__wide parts[] = {s->dq, s->dk, s->dv};
    int64_t sequence, t;
    const int64_t tokens = ssm__tile_of(run, task, SSM__WORK_TOKENS, &sequence, &t);
    for (int i = 0; i < 3; i++) {
        const ssm__matrix w = ssm__own_part(run, IN_PROJ, i, 3);
        ssm__project_back(run, &w, parts[i], sequence, t, tokens, i > 0);
    }
}

static void weight_gradients(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const kept *k = run->kept;
    const scratch *s = run->scratch;
    const int64_t D = c->d_model, S = c->d_ssm;
    const ssm__side in = {.rows = run->in, .stride = D};
    float *din_proj = ssm__own_gradient(run, IN_PROJ);
    const ssm__weight_product products[] = {
        {.dy = {.wide = s->dq}, .x = in, .rows = S, .cols = D, .dw = din_proj},
        {.dy = {.wide = s->dk}, .x = in, .rows = S, .cols = D, .dw = din_proj + S * D},
        {.dy = {.wide = s->dv}, .x = in, .rows = S, .cols = D, .dw = din_proj + 2 * S * D},
        {.dy = {.rows = run->dout, .stride = D},
         .x = {.wide = k->o},
         .rows = D,
         .cols = S,
         .dw = ssm__own_gradient(run, OUT_PROJ)}};
    ssm__weight_products(run, products, (int)(sizeof products / sizeof products[0]));
}

static void backward(const ssm__run *run)
{
    const scratch *s = run->scratch;
    void *context = (void *)(uintptr_t)run;
    ssm__pool_run(run->pool, back_out, context, ssm__group_tasks(run, s->dout.groups));
    ssm__pool_run(run->pool, back_recur, context, units_of(&run->config->shape));
    weight_gradients(run);
    ssm__pool_run(run->pool, back_in, context, ssm__tile_tasks(run, SSM__WORK_TOKENS));
}

const ssm__mixer ssm__mixer_h3 = {
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
