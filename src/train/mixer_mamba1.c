/* train/mixer_mamba1.c: the mixer of Mamba-1: its parameters and its memory. */
#include "train/mamba1.h"

#include <stdio.h>
#include <string.h>

#include "kernels/training.h"
#include "model/layout.h"
#include "train/work.h"

static bool accepts(const ssm__network_config *config, char *why, size_t size)
{
    const ssm_config *c = &config->shape;
    const bool good = c->d_inner > 0 && c->d_state > 0 && c->d_conv >= 0 && c->dt_rank > 0;
    if (!good) {
        snprintf(
            why, size,
            "mamba1 needs d_inner, d_state and dt_rank of 1 or more, d_conv of 0 or more; found "
            "%lld, %lld, %lld and %lld",
            (long long)c->d_inner, (long long)c->d_state, (long long)c->dt_rank,
            (long long)c->d_conv);
    }
    return good;
}

static void declare(ssm__declaration *list, const ssm__network_config *config, int64_t layer)
{
    static const int slots[SSM__MAMBA1_PARAMETERS] = {
        SSM__SLOT_in_proj, SSM__SLOT_conv1d,  SSM__SLOT_conv1d_bias,
        SSM__SLOT_x_proj,  SSM__SLOT_dt_proj, SSM__SLOT_dt_proj_bias,
        SSM__SLOT_A_log,   SSM__SLOT_D,       SSM__SLOT_out_proj};
    const int64_t dims[] = {1, config->shape.d_state};
    for (int i = 0; i < SSM__MAMBA1_PARAMETERS; i++) {
        const bool of_conv = i == SSM__MAMBA1_CONV || i == SSM__MAMBA1_CONV_BIAS;
        if (of_conv && config->shape.d_conv == 0) {
            ssm__declare_absent(list);
        } else if (config->time_invariant &&
                   (i == SSM__MAMBA1_X_PROJ || i == SSM__MAMBA1_DT_PROJ)) {
            ssm__declare_other(list, layer, i == SSM__MAMBA1_X_PROJ ? "mixer.B" : "mixer.C", false,
                               2, dims);
        } else {
            ssm__declare_slot(list, SSM_LAYER_MAMBA, layer, slots[i]);
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void take_lanes(ssm__arena *arena, const ssm_config *c, float **dt_bias, float **A,
                       float **D)
{
    const int64_t channels = ssm__lane_groups(c->d_inner) * SSM__LANES;
    *dt_bias = SSM__TAKE(arena, float, channels);
    *A = SSM__TAKE(arena, float, channels * c->d_state);
    *D = SSM__TAKE(arena, float, channels);
}

static void *take_weights(ssm__arena *arena, const ssm__network_config *config)
{
    const ssm_config *c = &config->shape;
    ssm__mamba1_weights *out = SSM__TAKE(arena, ssm__mamba1_weights, 1);
    ssm__mamba1_weights w = {
        .conv = ssm__convolution_take(arena, ssm__lane_groups(c->d_inner), c->d_conv, true)};
    take_lanes(arena, c, &w.dt_bias, &w.A2, &w.D);
    take_lanes(arena, c, &w.ddt_bias, &w.dA_log, &w.dD);
    if (out != NULL) {
        *out = w;
    }
    return out;
}

static void *take_kept(ssm__arena *arena, const ssm__network_config *config, int64_t length,
                       int64_t sequences, bool backward)
{
    const ssm_config *c = &config->shape;
    ssm__mamba1_kept *out = SSM__TAKE(arena, ssm__mamba1_kept, 1);
    ssm__mamba1_kept k = {.xs = ssm__wide_take(arena, c->d_inner, length, sequences),
                          .z = ssm__wide_take(arena, c->d_inner, length, sequences),
                          .dt = ssm__wide_take(arena, c->d_inner, length, sequences),
                          .x_proj =
                              SSM__TAKE(arena, float, sequences *length *ssm__mamba1_x_rows(c))};
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
    ssm__mamba1_scratch *out = SSM__TAKE(arena, ssm__mamba1_scratch, 1);
    ssm__mamba1_scratch s = {.u = ssm__wide_take(arena, c->d_inner, length, sequences)};
    s.history = SSM__TAKE(arena, float, sequences *groups *ssm__convolution_history(c->d_conv));
    s.states = SSM__TAKE(arena, float, threads * c->d_state * SSM__LANES);
    if (backward) {
        s.dy = ssm__wide_take(arena, c->d_inner, length, sequences);
        s.y = ssm__wide_take(arena, c->d_inner, length, sequences);
        s.dz = ssm__wide_take(arena, c->d_inner, length, sequences);
        s.ddt = ssm__wide_take(arena, c->d_inner, length, sequences);
        s.parts = SSM__TAKE(arena, float, groups *tokens * 2 * c->d_state);
        s.dx_proj = SSM__TAKE(arena, float, tokens *ssm__mamba1_x_rows(c));
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

static void prepare(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const ssm__mamba1_weights *w = run->weights;
    const int64_t E = c->d_inner;
    const int64_t channels = ssm__lane_groups(E) * SSM__LANES;
    ssm__convolution_put(&w->conv, run, E, SSM__MAMBA1_CONV);
    ssm__lanes_put(ssm__own_value(run, SSM__MAMBA1_DT_BIAS), E, 1, w->dt_bias);
    ssm__lanes_put(ssm__own_value(run, SSM__MAMBA1_SKIP), E, 1, w->D);
    ssm__lanes_put(ssm__own_value(run, SSM__MAMBA1_A_LOG), E, c->d_state, w->A2);
    ssm__decay_rates(w->A2, channels * c->d_state);
    if (run->gradients != NULL) {
        ssm__convolution_clear(&w->conv);
        memset(w->ddt_bias, 0, (size_t)channels * sizeof(float));
        memset(w->dA_log, 0, (size_t)(channels * c->d_state) * sizeof(float));
        memset(w->dD, 0, (size_t)channels * sizeof(float));
    }
}

static void finish(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const ssm__mamba1_weights *w = run->weights;
    const int64_t E = c->d_inner;
    ssm__convolution_add(&w->conv, run, E, SSM__MAMBA1_CONV);
    ssm__lanes_add(w->ddt_bias, E, 1, ssm__own_gradient(run, SSM__MAMBA1_DT_BIAS));
    ssm__lanes_add(w->dA_log, E, c->d_state, ssm__own_gradient(run, SSM__MAMBA1_A_LOG));
    ssm__lanes_add(w->dD, E, 1, ssm__own_gradient(run, SSM__MAMBA1_SKIP));
}

const ssm__mixer ssm__mixer_mamba1 = {
    .accepts = accepts,
    .declare = declare,
    .weights = take_weights,
    .kept = take_kept,
    .scratch = take_scratch,
    .prepare = prepare,
    .forward = ssm__mamba1_forward,
    .backward = ssm__mamba1_backward,
    .finish = finish,
};
