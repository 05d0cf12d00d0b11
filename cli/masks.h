/* cli/masks.h: masks of the command line, checked against the model they are for. */
#ifndef SSM_CLI_MASKS_H
#define SSM_CLI_MASKS_H

#include <ssmscope/model.h>
#include <ssmscope/select.h>

#include "context.h"
#include "load.h"

/* Reads a mask file. Errors: FILE (damaged; made for another model: both digests), MEMORY.
 * The source must have its digest. Owner of *out: the caller, ssm_mask_free. */
ssm_status cli_mask_read(const char *path, const cli_source *source, ssm_mask *out, ssm_error *err);
/* A recording of the same model. Errors: FILE (damaged; recorded from another model: both digests),
 * MEMORY. Owner of *out: the caller, also of NULL. */
ssm_status cli_recording_open(const char *recording, const cli_source *source, ssm_recording **out,
                              ssm_error *err);
/* FILE when an open recording is of another model: path and both digests. */
ssm_status cli_recording_check(const char *path, const ssm_recording *recording,
                               const cli_source *source, ssm_error *err);
/* True for ghost, whose one mask needs the model beside the recording. */
bool cli_is_ghost(const char *name);
/* The names of both kinds, without parameters, NULL-terminated: rules that give a mask file. */
const char *const *cli_mask_rule_names(void);
/* The mask of ghost, on the calibration windows of a recording of the source's model, which must be
 * open; says how much of the state it zeroes. Errors: as ssm_ghost_select; USAGE (another scope
 * than that of its sets). *out for ssm_mask_free. */
ssm_status cli_mask_ghost(cli_context *context, ssm_recording *recording, const cli_source *source,
                          const char *scope, int64_t budget, ssm_mask *out, ssm_error *err);

#endif
