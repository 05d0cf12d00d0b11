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
/* What a mask says about layers that have states: those of attention stand whole in it. */
typedef struct cli_mask_sums {
    int64_t layers, modes, kept;
} cli_mask_sums;
cli_mask_sums cli_mask_count(const ssm_mask *mask, const ssm_recording *recording);
/* Mean over the layers of the exact error of a mask on the windows of a role; NaN where the
 * recording has no Grams for it, or no such windows. Errors: FILE, MEMORY. */
ssm_status cli_mask_error(ssm_recording *recording, const ssm_mask *mask, ssm_role role,
                          double *out, ssm_error *err);
/* The mask of ghost, on the calibration windows of a recording of the source's model, which must be
 * open; says how much of the state it zeroes. Errors: as ssm_ghost_select; USAGE (another scope
 * than that of its sets). *out for ssm_mask_free. */
ssm_status cli_mask_ghost(cli_context *context, ssm_recording *recording, const cli_source *source,
                          const char *scope, int64_t budget, ssm_mask *out, ssm_error *err);

#endif
