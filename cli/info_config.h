/* cli/info_config.h: the configuration of a checkpoint, for people and as JSON. */
#ifndef SSM_CLI_INFO_CONFIG_H
#define SSM_CLI_INFO_CONFIG_H

#include <ssmscope/checkpoint.h>

#include "output.h"

/* The table of sizes and settings. */
ssm_status cli_info_shape(const ssm_checkpoint *checkpoint, ssm_error *err);
/* The member "config" of the root. */
void cli_info_config(cli_json *json, const ssm_checkpoint *checkpoint);

#endif
