#include "written.h"

void cli_note_losses(cli_context *context, const ssm_config *config, ssm_layout layout)
{
    if (config->family == SSM_FAMILY_MAMBA2 && config->norm_groups != config->n_groups) {
        cli_note(context, "the groups of the norm are not written: a reader takes n_groups = %lld",
                 (long long)config->n_groups);
    }
    if (layout == SSM_LAYOUT_HF && config->family == SSM_FAMILY_MAMBA2 && config->n_groups > 1) {
        cli_note(context,
                 "transformers norms the whole width where the original has %lld groups: "
                 "its numbers will differ (here: --norm-groups=1)",
                 (long long)config->n_groups);
    }
}

ssm_status cli_check_written(const char *path, char digest[64], ssm_error *err)
{
    ssm_checkpoint *checkpoint = NULL;
    ssm_status status = ssm_checkpoint_open(path, NULL, &checkpoint, err);
    status = status == SSM_STATUS_OK ? ssm_checkpoint_digest(checkpoint, digest, err) : status;
    ssm_checkpoint_close(checkpoint);
    return status;
}

const char *cli_layout_name(ssm_layout layout)
{
    return layout == SSM_LAYOUT_HF ? "Hugging Face" : "original";
}

const char *cli_container_name(ssm_container container)
{
    return container == SSM_CONTAINER_TORCH ? "torch" : "safetensors";
}
