/* cli/masks.h: masks of the command line, checked against the model they are for. */
#ifndef SSM_CLI_MASKS_H
#define SSM_CLI_MASKS_H

#include <ssmscope/model.h>
#include <ssmscope/select.h>

#include "load.h"

/* Reads a mask file. Errors: FILE (damaged; made for another model: both digests), MEMORY.
 * The source must have its digest. Owner of *out: the caller, ssm_mask_free. */
ssm_status cli_mask_read(const char *path, const cli_source *source, ssm_mask *out, ssm_error *err);
/* A mask by a rule on a recording of the same model. Errors: as ssm_select, FILE (recorded from
 * another model). */
ssm_status cli_mask_select(const char *recording, const cli_source *source,
                           const ssm_select_options *options, ssm_mask *out, ssm_error *err);
/* A recording of the same model. Errors: FILE (damaged; recorded from another model: both digests),
 * MEMORY. Owner of *out: the caller, also of NULL. */
ssm_status cli_recording_open(const char *recording, const cli_source *source, ssm_recording **out,
                              ssm_error *err);
/* True when `name` is a rule of ssm_select. */
bool cli_is_rule(const char *name);

#endif
