/* cli/outputs.h: outputs and inputs of one command must be different files. */
#ifndef SSM_CLI_OUTPUTS_H
#define SSM_CLI_OUTPUTS_H

#include "options.h"

/* USAGE when an output would replace an input, a file of the model or of the recording that is
 * read, or the command's other output. */
ssm_status cli_check_outputs(const cli_invocation *invocation, ssm_error *err);

#endif
