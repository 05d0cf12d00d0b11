/* recording/window.h: one window on its way to the disk: its shard and the sum of its domain's
 * Grams, both streamed layer by layer, so that one layer's numbers are in memory at a time. */
#ifndef SSM_RECORDING_WINDOW_H
#define SSM_RECORDING_WINDOW_H

#include <ssmscope/recording.h>

#include "recording/head.h"
#include "safetensors/write.h"

typedef struct ssm__window_files {
    const ssm_recording_info *info;
    int64_t tokens;
    ssm_role role;
    ssm__stream *shard;       /* NULL: it is there already */
    ssm__stream *sum;         /* NULL: nothing to add to */
    ssm_safetensors *old_sum; /* NULL: the first window of its domain */
    int64_t next;             /* index into info->layers of the layer that is put next */
} ssm__window_files;

/* What goes where. */
typedef struct ssm__window_place {
    const char *directory;
    const char *shard;           /* path, or NULL: it is there already */
    const ssm__calibration *sum; /* NULL: nothing to add to */
    int64_t summed;              /* windows in the sum on disk */
    int64_t window;              /* its number */
} ssm__window_place;

/* Starts both files. Errors: FILE (a damaged sum), FAILED, MEMORY; nothing is left then. */
ssm_status ssm__window_open(const ssm_recording_info *info, const ssm_recording_window *about,
                            const ssm__window_place *place, ssm__window_files *out, ssm_error *err);
/* The next layer's fields, found by name among tensors, and its Gram (NULL without). Everything is
 * checked against the schema before a byte of it is written. Errors: USAGE, FAILED. */
ssm_status ssm__window_put_layer(ssm__window_files *files, const ssm_tensor *tensors, int64_t count,
                                 const ssm_tensor *gram, ssm_error *err);
/* The window's own tensors (nll, ids). */
ssm_status ssm__window_put_rest(ssm__window_files *files, const ssm_tensor *tensors, int64_t count,
                                ssm_error *err);
/* Publishes the sum, true in *summed once it is; then the shard. Frees everything, also on failure.
 */
ssm_status ssm__window_commit(ssm__window_files *files, bool *summed, ssm_error *err);
/* Removes what was written; fine on a zeroed or committed one. */
void ssm__window_abort(ssm__window_files *files);

#endif
