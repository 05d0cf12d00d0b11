/* cli/written.h: what commands that write a checkpoint say about it afterwards. */
#ifndef SSM_CLI_WRITTEN_H
#define SSM_CLI_WRITTEN_H

#include <ssmscope/convert.h>

#include "context.h"

/* Notes what the layout does not hold, though the weights are the same. */
void cli_note_losses(cli_context *context, const ssm_config *config, ssm_layout layout);
/* Opens what was written, which must be a model, and digests it. */
ssm_status cli_check_written(const char *path, char digest[64], ssm_error *err);
/* "Hugging Face" or "original"; "torch" or "safetensors". */
const char *cli_layout_name(ssm_layout layout);
const char *cli_container_name(ssm_container container);

#endif
