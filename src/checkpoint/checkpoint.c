#include "checkpoint/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

/* The original schema and params.json have no ids of tokens; transformers' file beside them may. */
static ssm_status read_ids(ssm_checkpoint *checkpoint, ssm_error *err)
{
    static const char name[] = "generation_config.json";
    if (checkpoint->claims.schema == SSM__SCHEMA_HF ||
        !ssm__holds_file(checkpoint->directory, name)) {
        return SSM_STATUS_OK;
    }
    char *path = ssm__path_join(checkpoint->directory, name);
    if (path == NULL) {
        return ssm__fail_memory(err, "a path", sizeof name);
    }
    ssm_status status = ssm__claims_read_ids(path, &checkpoint->claims, &checkpoint->notes, err);
    free(path);
    return status;
}

static ssm_status open_into(ssm_checkpoint *checkpoint, const ssm_checkpoint_options *options,
                            ssm_error *err)
{
    SSM__TRY(ssm__checkpoint_locate(checkpoint, err));
    SSM__TRY(
        ssm__claims_read(checkpoint->config_path, &checkpoint->claims, &checkpoint->notes, err));
    SSM__TRY(read_ids(checkpoint, err));
    SSM__TRY(ssm__checkpoint_open_files(checkpoint, options, err));
    return ssm__checkpoint_resolve(checkpoint, options, err);
}

ssm_status ssm_checkpoint_open(const char *path, const ssm_checkpoint_options *options,
                               ssm_checkpoint **out, ssm_error *err)
{
    static const ssm_checkpoint_options defaults = {0};
    *out = NULL;
    ssm_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (checkpoint == NULL || (checkpoint->path = strdup(path)) == NULL) {
        free(checkpoint);
        return ssm__fail_memory(err, "a checkpoint", sizeof *checkpoint);
    }
    ssm_status status = open_into(checkpoint, options == NULL ? &defaults : options, err);
    if (status != SSM_STATUS_OK) {
        ssm_checkpoint_close(checkpoint);
        return status;
    }
    *out = checkpoint;
    return SSM_STATUS_OK;
}

void ssm_checkpoint_close(ssm_checkpoint *checkpoint)
{
    if (checkpoint == NULL) {
        return;
    }
    ssm__close_files(checkpoint);
    free(checkpoint->files);
    free(checkpoint->weights.layers);
    ssm__index_free(checkpoint->index);
    ssm__notes_free(&checkpoint->notes);
    ssm__claims_free(&checkpoint->claims);
    free(checkpoint->config_path);
    free(checkpoint->directory);
    free(checkpoint->path);
    free(checkpoint);
}

const char *ssm_family_name(ssm_family family)
{
    static const char *const names[] = {[SSM_FAMILY_MAMBA] = "mamba",
                                        [SSM_FAMILY_FALCON_MAMBA] = "falcon_mamba",
                                        [SSM_FAMILY_MAMBA2] = "mamba2"};
    return (unsigned)family < sizeof names / sizeof names[0] ? names[family] : "?";
}

const char *ssm_layer_kind_name(ssm_layer_kind kind)
{
    static const char *const names[] = {[SSM_LAYER_MAMBA] = "mamba",
                                        [SSM_LAYER_MAMBA2] = "mamba2",
                                        [SSM_LAYER_ATTENTION] = "attention"};
    return (unsigned)kind < SSM_LAYER_KINDS ? names[kind] : "?";
}

ssm_layer_kind ssm_checkpoint_layer_kind(const ssm_checkpoint *checkpoint, int64_t layer)
{
    return checkpoint->weights.layers[layer].kind;
}

const char *ssm_checkpoint_path(const ssm_checkpoint *checkpoint)
{
    return checkpoint->path;
}

const ssm_config *ssm_checkpoint_config(const ssm_checkpoint *checkpoint)
{
    return &checkpoint->config;
}

int64_t ssm_checkpoint_named_ids(const ssm_checkpoint *checkpoint)
{
    const ssm__claim *claim = &checkpoint->claims.vocab_size;
    const int64_t rows = checkpoint->config.vocab_size;
    return claim->key != NULL && claim->value < rows ? claim->value : rows;
}

const ssm__weights *ssm__checkpoint_weights(const ssm_checkpoint *checkpoint)
{
    return &checkpoint->weights;
}

ssm_status ssm__checkpoint_check_sums(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    for (int64_t i = 0; i < checkpoint->n_files; i++) {
        SSM__TRY(ssm__weight_file_check_sums(&checkpoint->files[i], err));
    }
    return SSM_STATUS_OK;
}

int64_t ssm_checkpoint_count(const ssm_checkpoint *checkpoint)
{
    return checkpoint->n_entries;
}

static const ssm__entry *entry_at(const ssm_checkpoint *checkpoint, int64_t i)
{
    return i >= 0 && i < checkpoint->n_entries ? &checkpoint->entries[i] : NULL;
}

const ssm_tensor *ssm_checkpoint_at(const ssm_checkpoint *checkpoint, int64_t i)
{
    const ssm__entry *entry = entry_at(checkpoint, i);
    return entry == NULL ? NULL : entry->tensor;
}

bool ssm_checkpoint_used(const ssm_checkpoint *checkpoint, int64_t i)
{
    const ssm__entry *entry = entry_at(checkpoint, i);
    return entry != NULL && entry->used;
}

int64_t ssm_checkpoint_note_count(const ssm_checkpoint *checkpoint)
{
    return checkpoint->notes.count;
}

const char *ssm_checkpoint_note(const ssm_checkpoint *checkpoint, int64_t i)
{
    return i >= 0 && i < checkpoint->notes.count ? checkpoint->notes.items[i] : NULL;
}
