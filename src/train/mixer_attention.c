/* train/mixer_attention.c: attention: its parameters and its memory. */
#include <math.h>
#include <stdio.h>

#include "train/attention.h"

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
    ssm__attention_weights *out = SSM__TAKE(arena, ssm__attention_weights, 1);
    const ssm__attention_weights w = {
        .conv = ssm__convolution_take(arena, ssm__lane_groups(ssm__attention_rows(c)),
                                      c->attention_conv, false),
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
    ssm__attention_kept *out = SSM__TAKE(arena, ssm__attention_kept, 1);
    ssm__attention_kept k = {.q = SSM__TAKE(arena, float, tokens *ssm__attention_query_width(c)),
                             .k = SSM__TAKE(arena, float, tokens * c->n_kv_heads * dh),
                             .v = SSM__TAKE(arena, float, tokens * c->n_kv_heads * dh),
                             .o = SSM__TAKE(arena, float, tokens *ssm__attention_query_width(c)),
                             .maximum = SSM__TAKE(arena, float, tokens * c->n_query_heads),
                             .inverse = SSM__TAKE(arena, float, tokens * c->n_query_heads)};
    (void)backward;
    if (c->attention_conv > 0) {
        k.in = ssm__wide_take(arena, ssm__attention_rows(c), length, sequences);
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
    ssm__attention_scratch *out = SSM__TAKE(arena, ssm__attention_scratch, 1);
    ssm__attention_scratch s = {
        .qkv = ssm__wide_take(arena, ssm__attention_rows(c), length, sequences)};
    s.thread_floats = (pairs + past + ssm__attention_rows(c) + c->rotary_dim + 15) / 16 * 16;
    s.threads = SSM__TAKE(arena, float, threads *s.thread_floats);
    if (backward) {
        s.dq = SSM__TAKE(arena, float, tokens *ssm__attention_query_width(c));
        s.dk = SSM__TAKE(arena, float, tokens * c->n_kv_heads * dh);
        s.dv = SSM__TAKE(arena, float, tokens * c->n_kv_heads * dh);
        s.dout = SSM__TAKE(arena, float, tokens *ssm__attention_query_width(c));
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
    const ssm__attention_weights *w = run->weights;
    const int64_t half = c->rotary_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        w->turns[i] = pow(c->rotary_base, -(double)i / (double)half);
    }
    ssm__convolution_put(&w->conv, run, ssm__attention_rows(c), SSM__ATTENTION_CONV);
    if (run->gradients != NULL) {
        ssm__convolution_clear(&w->conv);
    }
}

static void finish(const ssm__run *run)
{
    const ssm__attention_weights *w = run->weights;
    ssm__convolution_add(&w->conv, run, ssm__attention_rows(&run->config->shape),
                         SSM__ATTENTION_CONV);
}

const ssm__mixer ssm__mixer_attention = {
    .accepts = accepts,
    .declare = declare,
    .weights = take_weights,
    .kept = take_kept,
    .scratch = take_scratch,
    .prepare = prepare,
    .forward = ssm__attention_forward,
    .backward = ssm__attention_backward,
    .finish = finish,
};
