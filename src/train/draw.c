/* Source: state-spaces/mamba, the published code's defaults (d_state 16, dt_min 1e-3, dt_max 0.1,
 * dt_init_floor 1e-4, dt_scale 1, initializer_range 0.02, rescale_prenorm_residual). */
#include "train/draw.h"

#include <math.h>

static double uniform_bound(const ssm_config *config, int id)
{
    switch (id) {
    case SSM__SLOT_conv1d:
    case SSM__SLOT_conv1d_bias:
        return 1 / sqrt((double)config->d_conv); /* fan-in of a depthwise convolution */
    case SSM__SLOT_dt_proj:
        return 1 / sqrt((double)config->dt_rank);
    case SSM__SLOT_x_proj:
        return 1 / sqrt((double)config->d_inner);
    case SSM__SLOT_out_proj:
        return 1 / sqrt((double)config->d_inner) / sqrt((double)config->n_layers);
    default: /* in_proj and an untied head read the stream */
        return 1 / sqrt((double)config->d_model);
    }
}

static ssm__draw_kind kind_of(const ssm_config *config, int id)
{
    switch (id) {
    case SSM__SLOT_embedding:
        return SSM__DRAW_NORMAL;
    case SSM__SLOT_norm:
    case SSM__SLOT_norm_f:
    case SSM__SLOT_gate_norm:
    case SSM__SLOT_D:
        return SSM__DRAW_ONE;
    case SSM__SLOT_A_log:
        return config->family == SSM_FAMILY_MAMBA2 ? SSM__DRAW_A_LOG_HEAD : SSM__DRAW_A_LOG;
    case SSM__SLOT_dt_proj_bias:
    case SSM__SLOT_dt_bias:
        return SSM__DRAW_DT_BIAS;
    default:
        return SSM__DRAW_UNIFORM;
    }
}

ssm_layer_kind ssm__draw_layer(const ssm_config *config)
{
    return config->family == SSM_FAMILY_MAMBA2 ? SSM_LAYER_MAMBA2 : SSM_LAYER_MAMBA;
}

bool ssm__draw_has(const ssm_config *config, int id)
{
    if (id == SSM__SLOT_lm_head) {
        return !config->tied;
    }
    return ssm__slot_need(ssm__draw_layer(config), id) == SSM__REQUIRED ||
           id == SSM__SLOT_conv1d_bias || (id == SSM__SLOT_gate_norm && config->gated_norm);
}

ssm__draw ssm__draw_create(const ssm_config *config, ssm__slot_place place, uint64_t seed)
{
    char name[SSM__SLOT_NAME_MAX];
    ssm__slot_name(place, name);
    ssm__draw draw = {.kind = kind_of(config, place.id),
                      .d_state = config->d_state,
                      .rng = ssm_rng_create(seed, name)};
    draw.scale = draw.kind == SSM__DRAW_NORMAL ? 0.02 : uniform_bound(config, place.id);
    return draw;
}

/* bias with softplus(bias) = dt: dt + log(−expm1(−dt)). */
static double draw_dt_bias(ssm_rng *rng)
{
    const double low = log(1e-3);
    const double high = log(0.1);
    double dt = exp(low + (high - low) * ssm_rng_uniform(rng));
    dt = fmax(dt, 1e-4);
    return dt + log(-expm1(-dt));
}

void ssm__draw_next(ssm__draw *draw, int64_t first, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++) {
        double value = 1;
        switch (draw->kind) {
        case SSM__DRAW_UNIFORM:
            value = draw->scale * (2 * ssm_rng_uniform(&draw->rng) - 1);
            break;
        case SSM__DRAW_NORMAL:
            value = draw->scale * ssm_rng_normal(&draw->rng);
            break;
        case SSM__DRAW_A_LOG:
            value = log((double)((first + i) % draw->d_state + 1));
            break;
        case SSM__DRAW_A_LOG_HEAD:
            value = log(1 + 15 * ssm_rng_uniform(&draw->rng));
            break;
        case SSM__DRAW_DT_BIAS:
            value = draw_dt_bias(&draw->rng);
            break;
        case SSM__DRAW_ONE:
            break;
        }
        out[i] = (float)value;
    }
}
