#include "plan.h"

int64_t cli_plan_state_bytes(const ssm_config *config)
{
    return 4 * config->n_layers * config->d_inner * (config->d_state + config->d_conv - 1);
}

cli_plan_recording cli_plan_record(const ssm_config *config, int64_t n_layers, int64_t window)
{
    int64_t channels = config->d_inner;
    int64_t modes = channels * config->d_state;
    int64_t blocks = (window + 63) / 64;
    int64_t pairs = (config->d_state + 1) * (config->d_state + 2) / 2;
    /* energy_blocks; state, read and adjoint moments; output energy and mean step size. */
    int64_t layer = blocks * modes + 3 * modes + 2 * channels;
    return (cli_plan_recording){.window_bytes = 4 * (n_layers * layer + 2 * window - 1),
                                .window_gram_bytes = 4 * n_layers * channels * pairs};
}
