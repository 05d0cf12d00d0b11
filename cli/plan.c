#include "plan.h"

int64_t cli_plan_layers_with_states(const ssm_checkpoint *checkpoint)
{
    int64_t count = 0;
    for (int64_t i = 0; i < ssm_checkpoint_config(checkpoint)->n_layers; i++) {
        count += ssm_checkpoint_layer_kind(checkpoint, i) != SSM_LAYER_ATTENTION;
    }
    return count;
}

/* Numbers that one layer carries from token to token, keys and values aside. */
static int64_t layer_state(const ssm_config *c, ssm_layer_kind kind)
{
    switch (kind) {
    case SSM_LAYER_MAMBA2:
        return c->d_ssm * c->d_state + (c->d_ssm + 2 * c->n_groups * c->d_state) * (c->d_conv - 1);
    case SSM_LAYER_ATTENTION:
        return (c->n_query_heads + 2 * c->n_kv_heads) * c->attention_head_dim *
               (c->attention_conv > 0 ? c->attention_conv - 1 : 0);
    case SSM_LAYER_MAMBA:
    case SSM_LAYER_KINDS:
        break;
    }
    return c->d_inner * (c->d_state + c->d_conv - 1);
}

int64_t cli_plan_state_bytes(const ssm_checkpoint *checkpoint)
{
    const ssm_config *config = ssm_checkpoint_config(checkpoint);
    int64_t numbers = 0;
    for (int64_t i = 0; i < config->n_layers; i++) {
        numbers += layer_state(config, ssm_checkpoint_layer_kind(checkpoint, i));
    }
    return 4 * numbers;
}

int64_t cli_plan_mode_bytes(const ssm_checkpoint *checkpoint)
{
    const ssm_config *config = ssm_checkpoint_config(checkpoint);
    const int64_t channels = config->n_heads > 0 ? config->d_ssm : config->d_inner;
    return 4 * channels * cli_plan_layers_with_states(checkpoint);
}

int64_t cli_plan_token_bytes(const ssm_checkpoint *checkpoint)
{
    const ssm_config *config = ssm_checkpoint_config(checkpoint);
    const int64_t attention = config->n_layers - cli_plan_layers_with_states(checkpoint);
    return 4 * attention * 2 * config->n_kv_heads * config->attention_head_dim;
}

cli_plan_recording cli_plan_record(const ssm_config *config, int64_t n_layers, int64_t window)
{
    const bool heads = config->n_heads > 0;
    int64_t rows = heads ? config->n_heads : config->d_inner;
    int64_t modes = rows * config->d_state;
    int64_t blocks = (window + 63) / 64;
    int64_t pairs = (config->d_state + 1) * (config->d_state + 2) / 2;
    /* energy_blocks; state, read and adjoint moments; output energy and mean step size; of Mamba-2
     * the energies of every channel, too. */
    int64_t layer = blocks * modes + 3 * modes + 2 * rows;
    layer += heads ? config->d_ssm * config->d_state : 0;
    return (cli_plan_recording){.window_bytes = 4 * (n_layers * layer + 2 * window - 1),
                                .window_gram_bytes = 4 * n_layers * rows * pairs};
}
