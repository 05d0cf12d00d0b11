/* A checkpoint in several files, with an index that says where each tensor is. */
#include "checkpoint/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

/* Would all files of the directory of the index's kind fill every slot, whatever the index says? */
static bool present_files_suffice(ssm_checkpoint *checkpoint, bool torch, bool lenient)
{
    ssm__close_files(checkpoint);
    bool suffice = ssm__open_all(checkpoint, NULL, torch, lenient, NULL) == SSM_STATUS_OK &&
                   ssm__names_are_complete(checkpoint->entries, checkpoint->n_entries,
                                           checkpoint->claims.n_layers.value);
    ssm__close_files(checkpoint);
    return suffice;
}

static ssm_status check_shards_present(ssm_checkpoint *checkpoint, bool lenient, ssm_error *err)
{
    const ssm__index *index = checkpoint->index;
    ssm__list_text missing = {0};
    for (int64_t i = 0; i < index->n_shards; i++) {
        const ssm__shard *shard = &index->shards[i];
        if (!ssm__holds_file(checkpoint->directory, shard->name)) {
            ssm__list_add(&missing, "%s (%" PRId64 " tensor%s)", shard->name, shard->n_tensors,
                          shard->n_tensors == 1 ? "" : "s");
        }
    }
    if (missing.total == 0) {
        return SSM_STATUS_OK;
    }
    bool suffice = present_files_suffice(checkpoint, index->torch, lenient);
    return ssm__fail(
        err, SSM_STATUS_FILE, SSM__IN_FILE(index->path),
        "%" PRId64 " of the %" PRId64 " shards that the index names are missing: %s. %s",
        missing.total, index->n_shards, ssm__list_end(&missing),
        suffice ? "The files present fill every slot without them: the index is stale; "
                  "--ignore-index accepts that"
                : "Download them again");
}

/* The tensor `name` is not in `shard`, where the index places it. */
static ssm_status not_in_shard(const ssm_checkpoint *checkpoint, const char *name,
                               const char *shard, ssm_error *err)
{
    for (int64_t i = 0; i < checkpoint->n_entries; i++) {
        const ssm_tensor *tensor = checkpoint->entries[i].tensor;
        if (strcmp(tensor->name, name) == 0) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->index->path, name),
                             "the index places the tensor in %s, but it is in %s: the index is "
                             "stale",
                             shard, ssm__file_name(tensor->file));
        }
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->index->path, name),
                     "the index places the tensor in %s, but neither that file nor another shard "
                     "holds it",
                     shard);
}

static const ssm__weight_file *shard_file(const ssm_checkpoint *checkpoint, const char *shard)
{
    for (int64_t i = 0; i < checkpoint->index->n_shards; i++) {
        if (strcmp(checkpoint->index->shards[i].name, shard) == 0) {
            return &checkpoint->files[i]; /* opened in this order */
        }
    }
    return NULL;
}

static ssm_status check_index(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)checkpoint->index->weight_map, name, value)
    {
        const char *shard = json_string_value(value);
        const ssm__weight_file *file = shard_file(checkpoint, shard);
        if (file == NULL || ssm__weight_file_find(file, name) == NULL) {
            return not_in_shard(checkpoint, name, shard, err);
        }
    }
    return SSM_STATUS_OK;
}

/* Tensors that the index does not place in the shard where they are found are not used. */
static ssm_status note_superseded(ssm_checkpoint *checkpoint, ssm_error *err)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < checkpoint->n_entries; i++) {
        ssm__entry *entry = &checkpoint->entries[i];
        const char *file = ssm__file_name(entry->tensor->file);
        const char *shard = ssm__index_shard(checkpoint->index, entry->tensor->name);
        if (shard == NULL) {
            entry->superseded = true;
            SSM__TRY(ssm__note(&checkpoint->notes, err,
                               "Tensor %s in %s is not in the index and is not used.",
                               entry->tensor->name, file));
        } else if (strcmp(shard, file) != 0) {
            entry->superseded = true;
            SSM__TRY(ssm__note(&checkpoint->notes, err,
                               "Tensor %s in %s is not used: the index places it in %s.",
                               entry->tensor->name, file, shard));
        } else {
            bytes += (int64_t)entry->tensor->bytes;
        }
    }
    if (checkpoint->index->total_size >= 0 && checkpoint->index->total_size != bytes) {
        SSM__TRY(ssm__note(&checkpoint->notes, err,
                           "The index says total_size = %" PRId64 ", its tensors have %" PRId64
                           " bytes; the claim is ignored.",
                           checkpoint->index->total_size, bytes));
    }
    return SSM_STATUS_OK;
}

static ssm_status open_shards(ssm_checkpoint *checkpoint, bool lenient, ssm_error *err)
{
    SSM__TRY(check_shards_present(checkpoint, lenient, err));
    for (int64_t i = 0; i < checkpoint->index->n_shards; i++) {
        SSM__TRY(ssm__open_named(checkpoint, checkpoint->index->shards[i].name, lenient, err));
    }
    SSM__TRY(ssm__checkpoint_list(checkpoint, err));
    SSM__TRY(check_index(checkpoint, err));
    return note_superseded(checkpoint, err);
}

ssm_status ssm__open_index(ssm_checkpoint *checkpoint, const char *name,
                           const ssm_checkpoint_options *options, ssm_error *err)
{
    char *path = ssm__path_join(checkpoint->directory, name);
    if (path == NULL) {
        return ssm__fail_memory(err, "a path", strlen(name));
    }
    ssm_status status = ssm__index_read(path, &checkpoint->index, err);
    free(path);
    SSM__TRY(status);
    if (!options->ignore_index) {
        return open_shards(checkpoint, options->lenient, err);
    }
    bool torch = checkpoint->index->torch;
    SSM__TRY(ssm__note(&checkpoint->notes, err,
                       "%s was ignored, as asked: all %s files of the directory were read.", name,
                       torch ? "torch" : ".safetensors"));
    return ssm__open_all(checkpoint, NULL, torch, options->lenient, err);
}
