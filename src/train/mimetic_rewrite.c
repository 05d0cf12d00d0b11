/* Mimetic initialisation of an existing checkpoint. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "checkpoint/convert.h"
#include "checkpoint/internal.h"
#include "checkpoint/tensor.h"
#include "train/mimetic_edit.h"

static bool read_tensor(void *source, ssm__slot_place place, int64_t first, int64_t count,
                        float *out)
{
    const ssm_checkpoint *checkpoint = source;
    const ssm_tensor *tensor = ssm__slot_tensor_const(&checkpoint->weights, place);
    if (tensor->name == NULL) {
        return false;
    }
    ssm__tensor_range_to_f32(tensor, first, count, out);
    return true;
}

static bool edits(const void *editor, ssm__slot_place place)
{
    return ssm__mimetic_edit_concerns(editor, place);
}

static ssm_status edit(void *editor, ssm__slot_place place, int64_t first, int64_t count,
                       float *block, ssm_error *err)
{
    return ssm__mimetic_edit_block(editor, place, first, count, block, err);
}

static const char *text_or_empty(const char *text)
{
    return text == NULL ? "" : text;
}

static ssm_status write_edited(const ssm_checkpoint *checkpoint, const ssm__mimetic_job *job,
                               ssm__mimetic_edit *editor, const ssm_mimetic_origin *origin,
                               const char *directory, const ssm_progress *progress, ssm_error *err)
{
    char digest[64];
    char description[512];
    char seed[32];
    const char *model_digest = origin == NULL ? NULL : origin->model_digest;
    if (model_digest == NULL) {
        SSM__TRY(ssm_checkpoint_digest(checkpoint, digest, err));
        model_digest = digest;
    }
    snprintf(seed, sizeof seed, "%" PRIu64, job->seed);
    ssm__mimetic_describe(job->mimetic, description, sizeof description);
    const ssm_metadata metadata[] = {
        {"schema", "ssmscope.mimetic/1"},
        {"model_digest", model_digest},
        {"mimetic", description},
        {"seed", seed},
        {"program_version", ssm_version()},
        {"command", text_or_empty(origin == NULL ? NULL : origin->command)}};
    const ssm__changes changes = {.task = "initialise",
                                  .config = &checkpoint->config,
                                  .edits = edits,
                                  .edit = edit,
                                  .editor = editor,
                                  .metadata = metadata,
                                  .n_metadata = (int64_t)(sizeof metadata / sizeof metadata[0]),
                                  .metadata_file = "mimetic.json"};
    ssm_convert_options options = {.dtype = SSM_DTYPE_COUNT};
    SSM__TRY(ssm__convert_keep_layout(checkpoint, &options, err));
    return ssm__convert(checkpoint, &options, &changes, directory, progress, err);
}

ssm_status ssm_mimetic_rewrite(const ssm_checkpoint *checkpoint, const ssm_mimetic *mimetic,
                               uint64_t seed, const ssm_mimetic_origin *origin,
                               const char *directory, const ssm_progress *progress, ssm_error *err)
{
    const int64_t n_layers = checkpoint->config.n_layers;
    ssm_layer_kind *kinds = calloc((size_t)n_layers, sizeof *kinds);
    ssm__mimetic_edit *editor = NULL;
    if (kinds == NULL) {
        return ssm__fail_memory(err, "a list of layers", (size_t)n_layers * sizeof *kinds);
    }
    for (int64_t layer = 0; layer < n_layers; layer++) {
        kinds[layer] = ssm_checkpoint_layer_kind(checkpoint, layer);
    }
    const ssm__mimetic_job job = {.mimetic = mimetic,
                                  .config = &checkpoint->config,
                                  .kinds = kinds,
                                  .seed = seed,
                                  .read = read_tensor,
                                  .source = (void *)(uintptr_t)checkpoint};
    ssm_status status = ssm__mimetic_edit_create(&job, &editor, err);
    if (status == SSM_STATUS_OK) {
        status = write_edited(checkpoint, &job, editor, origin, directory, progress, err);
    }
    ssm__mimetic_edit_free(editor);
    free(kinds);
    return status;
}
