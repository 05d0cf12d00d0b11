/* model/mamba2_layout.c: weights and scratch of a layer of Mamba-2. */
#include "model/layout.h"
#include "model/session.h"

/* The convolution's rows: x head by head, then B and C as one run of channels. */
static void put_conv(const ssm_config *c, const ssm_tensor *tensor, int64_t width, float *out)
{
    const int64_t heads = ssm__scan_groups(c);
    const int64_t bc = 2 * c->n_groups * c->d_state;
    ssm__put_lanes(tensor, width, (ssm__lane_map){0, c->d_ssm, c->head_dim, 0}, out);
    ssm__put_lanes(tensor, width, (ssm__lane_map){c->d_ssm, bc, bc, heads}, out);
}

/* D is one number a channel, or one a head for all its channels. */
static void put_skip(const ssm_config *c, const ssm_tensor *tensor, float *out)
{
    for (int64_t channel = 0; out && channel < c->d_ssm; channel++) {
        const int64_t at = c->D_per_channel ? channel : channel / c->head_dim;
        out[ssm__lane_of(c, channel)] = (float)ssm_tensor_get(tensor, at);
    }
}

void ssm__mamba2_layout(ssm__arena *arena, const ssm_config *c, const ssm__layer_weights *w,
                        ssm__mamba2_layer *out)
{
    const int64_t groups = ssm__scan_groups(c);
    const int64_t conv_groups = groups + ssm__bc_groups(c);
    const int64_t dt_groups = ssm__ceil_div(c->n_heads, SSM__LANES);
    ssm__mamba2_layer l = {0};
    l.in_proj = ssm__matrix_of(&w->in_proj);
    l.out_proj = ssm__matrix_of(&w->out_proj);
    l.in_proj_bias = ssm__copy_dense(arena, &w->in_proj_bias);
    l.out_proj_bias = ssm__copy_dense(arena, &w->out_proj_bias);
    l.conv_weight = SSM__TAKE(arena, float, conv_groups * c->d_conv * SSM__LANES);
    l.conv_bias = SSM__TAKE(arena, float, conv_groups *SSM__LANES);
    l.dt_bias = SSM__TAKE(arena, float, dt_groups *SSM__LANES);
    l.D = SSM__TAKE(arena, float, groups *SSM__LANES);
    l.A2 = ssm__copy_dense(arena, &w->A_log);
    l.gate_norm = c->gated_norm ? SSM__TAKE(arena, float, groups *SSM__LANES) : NULL;
    put_conv(c, &w->conv1d, c->d_conv, l.conv_weight);
    put_conv(c, &w->conv1d_bias, 1, l.conv_bias);
    ssm__put_lanes(&w->dt_bias, 1, (ssm__lane_map){0, c->n_heads, c->n_heads, 0}, l.dt_bias);
    ssm__put_lanes(&w->gate_norm, 1, (ssm__lane_map){0, c->d_ssm, c->head_dim, 0}, l.gate_norm);
    put_skip(c, &w->D, l.D);
    ssm__decay_rates(l.A2, c->n_heads);
    if (arena->memory) {
        *out = l;
    }
}

void ssm__mamba2_take_scratch(ssm__arena *arena, const ssm_model *model, ssm__mamba2_scratch *out)
{
    const ssm_config *c = model->config;
    if (c->family != SSM_FAMILY_MAMBA2) {
        return;
    }
    const int64_t tile = SSM__TILE_ROWS * SSM__LANES;
    const int64_t front = ssm__ceil_div(c->d_inner - c->d_ssm, SSM__LANES);
    const int64_t out_groups = ssm__ceil_div(c->d_inner, SSM__LANES);
    out->bc_tile = SSM__TAKE(arena, float, ssm__bc_groups(c) * tile);
    out->bc_conv = SSM__TAKE(arena, float, ssm__bc_groups(c) * tile);
    out->bc_raw = SSM__TAKE(arena, float, ssm__bc_groups(c) * tile);
    out->bc = SSM__TAKE(arena, float, 2 * SSM__TILE * c->n_groups * c->d_state);
    out->dt_tile = SSM__TAKE(arena, float, ssm__ceil_div(c->n_heads, SSM__LANES) * tile);
    out->delta = SSM__TAKE(arena, float, c->n_heads *SSM__TILE);
    out->products = SSM__TAKE(arena, float, c->n_groups *SSM__TILE *SSM__TILE);
    out->front = SSM__TAKE(arena, float, 2 * front * tile);
    out->out_tile = SSM__TAKE(arena, float, out_groups *tile);
}
