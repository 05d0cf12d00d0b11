/* Source: state-spaces/mamba, the published code's defaults (dt_min 1e-3, dt_max 0.1, dt_init_floor
 * 1e-4, dt_scale 1, A_init_range (1, 16), initializer_range 0.02, rescale_prenorm_residual). */
#include "train/draw.h"

#include <math.h>

/* Residual branches of a layer: the mixer, and the MLP where there is one. */
static double branches(const ssm_config *config)
{
    return (double)config->n_layers * (config->d_mlp > 0 ? 2 : 1);
}

static double uniform_bound(const ssm_config *config, ssm_layer_kind kind, int id)
{
    const bool attention = kind == SSM_LAYER_ATTENTION;
    const double heads = (double)(config->n_query_heads * config->attention_head_dim);
    switch (id) {
    case SSM__SLOT_conv1d:
    case SSM__SLOT_conv1d_bias: /* fan-in of a depthwise convolution */
        return 1 / sqrt((double)(attention ? config->attention_conv : config->d_conv));
    case SSM__SLOT_dt_proj:
        return 1 / sqrt((double)config->dt_rank);
    case SSM__SLOT_x_proj:
        return 1 / sqrt((double)config->d_inner);
    case SSM__SLOT_out_proj:
        return 1 / sqrt(attention ? heads : (double)config->d_inner) / sqrt(branches(config));
    case SSM__SLOT_fc2:
        return 1 / sqrt((double)config->d_mlp) / sqrt(branches(config));
    default: /* in_proj, fc1 and an untied head read the stream */
        return 1 / sqrt((double)config->d_model);
    }
}

static ssm__draw_kind kind_of(ssm_layer_kind kind, int id)
{
    switch (id) {
    case SSM__SLOT_embedding:
        return SSM__DRAW_NORMAL;
    case SSM__SLOT_norm:
    case SSM__SLOT_norm2:
    case SSM__SLOT_gate_norm:
    case SSM__SLOT_norm_f:
    case SSM__SLOT_D:
        return SSM__DRAW_ONE;
    case SSM__SLOT_A_log:
        return kind == SSM_LAYER_MAMBA2 ? SSM__DRAW_A_UNIFORM : SSM__DRAW_A_LOG;
    case SSM__SLOT_dt_proj_bias:
    case SSM__SLOT_dt_bias:
        return SSM__DRAW_DT_BIAS;
    default:
        return SSM__DRAW_UNIFORM;
    }
}

bool ssm__draw_has(const ssm_config *config, ssm_layer_kind kind, int id)
{
    const bool attention = kind == SSM_LAYER_ATTENTION;
    switch (id) {
    case SSM__SLOT_lm_head:
        return !config->tied;
    case SSM__SLOT_conv1d:
    case SSM__SLOT_conv1d_bias:
        return !attention || config->attention_conv > 0;
    case SSM__SLOT_gate_norm:
        return kind == SSM_LAYER_MAMBA2 && config->gated_norm;
    case SSM__SLOT_norm2:
    case SSM__SLOT_fc1:
    case SSM__SLOT_fc2:
        return config->d_mlp > 0;
    default:
        return ssm__slot_need(kind, id) == SSM__REQUIRED;
    }
}

ssm__draw ssm__draw_create(const ssm_config *config, ssm_layer_kind kind, ssm__slot_place place,
                           uint64_t seed)
{
    char name[SSM__SLOT_NAME_MAX];
    ssm__slot_name(place, name);
    ssm__draw draw = {.kind = kind_of(kind, place.id),
                      .d_state = config->d_state,
                      .rng = ssm_rng_create(seed, name)};
    draw.scale = draw.kind == SSM__DRAW_NORMAL ? 0.02 : uniform_bound(config, kind, place.id);
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
        case SSM__DRAW_A_UNIFORM:
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
