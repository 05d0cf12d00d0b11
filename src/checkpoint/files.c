#include "checkpoint/internal.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"

static const char index_name[] = "model.safetensors.index.json";
static const char single_name[] = "model.safetensors";

const char *ssm__file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    size_t end_length = strlen(end);
    return length > end_length && strcmp(text + length - end_length, end) == 0;
}

static bool holds(const ssm_checkpoint *checkpoint, const char *name)
{
    return ssm__holds_file(checkpoint->directory, name);
}

/* ---- where ----------------------------------------------------------------------------------- */

/* Something of that name that is no file (a directory, a pipe, a link to nowhere) is not "missing":
 * FILE with what it is; OK where nothing has the name. */
static ssm_status refuse_other_kind(const char *path, ssm_error *err)
{
    struct stat info;
    if (lstat(path, &info) != 0) {
        return SSM_STATUS_OK;
    }
    ssm__map map;
    SSM__TRY(ssm__map_open(path, &map, err));
    ssm__map_close(&map);
    return SSM_STATUS_OK;
}

static ssm_status refuse_in_directory(const ssm_checkpoint *checkpoint, const char *name,
                                      ssm_error *err)
{
    char *path = ssm__path_join(checkpoint->directory, name);
    if (path == NULL) {
        return ssm__fail_memory(err, "a path", strlen(name));
    }
    ssm_status status = refuse_other_kind(path, err);
    free(path);
    return status;
}

static ssm_status no_config(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    SSM__TRY(refuse_other_kind(checkpoint->config_path, err));
    if (holds(checkpoint, "params.json")) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->directory),
                         "there is a params.json but no config.json: a checkpoint in Mistral's own "
                         "layout, which this version does not read; use the Hugging Face layout");
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->config_path),
                     "config.json is missing; it must stand beside the weights");
}

ssm_status ssm__checkpoint_locate(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const char *path = checkpoint->path;
    if (ssm__is_directory(path)) {
        checkpoint->directory = strdup(path);
    } else if (ssm__is_file(path)) {
        const char *name = ssm__file_name(path);
        checkpoint->directory = name == path ? strdup(".") : strndup(path, (size_t)(name - path));
    } else {
        SSM__TRY(refuse_other_kind(path, err));
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "no such file or directory; expected a model directory or a .safetensors "
                         "file");
    }
    if (checkpoint->directory != NULL) {
        checkpoint->config_path = ssm__path_join(checkpoint->directory, "config.json");
    }
    if (checkpoint->config_path == NULL) {
        return ssm__fail_memory(err, "a path", strlen(path));
    }
    return ssm__is_file(checkpoint->config_path) ? SSM_STATUS_OK : no_config(checkpoint, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

static ssm_status open_file(ssm_checkpoint *checkpoint, const char *path, bool lenient,
                            ssm_error *err)
{
    size_t room = ((size_t)checkpoint->n_files + 1) * sizeof(ssm_safetensors *);
    ssm_safetensors **files = realloc(checkpoint->files, room);
    if (files == NULL) {
        return ssm__fail_memory(err, "the list of files", room);
    }
    checkpoint->files = files;
    SSM__TRY(ssm_safetensors_open(path, lenient, &files[checkpoint->n_files], err));
    checkpoint->n_files++;
    return SSM_STATUS_OK;
}

static ssm_status open_named(ssm_checkpoint *checkpoint, const char *name, bool lenient,
                             ssm_error *err)
{
    char *path = ssm__path_join(checkpoint->directory, name);
    if (path == NULL) {
        return ssm__fail_memory(err, "a path", strlen(name));
    }
    ssm_status status = open_file(checkpoint, path, lenient, err);
    free(path);
    return status;
}

static void close_files(ssm_checkpoint *checkpoint)
{
    for (int64_t i = 0; i < checkpoint->n_files; i++) {
        ssm_safetensors_close(checkpoint->files[i]);
    }
    checkpoint->n_files = 0;
    free(checkpoint->entries);
    checkpoint->entries = NULL;
    checkpoint->n_entries = 0;
}

static int is_safetensors(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && ends_with(entry->d_name, ".safetensors");
}

static int by_bytes(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

/* Every .safetensors file of the directory, in the order of their names. */
static ssm_status open_all(ssm_checkpoint *checkpoint, bool lenient, ssm_error *err)
{
    struct dirent **names = NULL;
    int count = scandir(checkpoint->directory, &names, is_safetensors, by_bytes);
    ssm_status status = SSM_STATUS_OK;
    if (count < 0) {
        status = ssm__fail_errno(err, SSM_STATUS_FILE, checkpoint->directory,
                                 "the directory cannot be listed", errno);
    }
    for (int i = 0; i < count; i++) {
        if (status == SSM_STATUS_OK) {
            status = open_named(checkpoint, names[i]->d_name, lenient, err);
        }
        free(names[i]);
    }
    free(names);
    return status == SSM_STATUS_OK ? ssm__checkpoint_list(checkpoint, err) : status;
}

ssm_status ssm__checkpoint_list(ssm_checkpoint *checkpoint, ssm_error *err)
{
    int64_t total = 0;
    for (int64_t i = 0; i < checkpoint->n_files; i++) {
        total += ssm_safetensors_count(checkpoint->files[i]);
    }
    free(checkpoint->entries);
    checkpoint->n_entries = 0;
    checkpoint->entries = calloc((size_t)total + 1, sizeof *checkpoint->entries);
    if (checkpoint->entries == NULL) {
        return ssm__fail_memory(err, "the list of tensors",
                                ((size_t)total + 1) * sizeof *checkpoint->entries);
    }
    for (int64_t i = 0; i < checkpoint->n_files; i++) {
        for (int64_t k = 0; k < ssm_safetensors_count(checkpoint->files[i]); k++) {
            const ssm_tensor *tensor = ssm_safetensors_at(checkpoint->files[i], k);
            checkpoint->entries[checkpoint->n_entries++] = (ssm__entry){.tensor = tensor};
        }
    }
    return SSM_STATUS_OK;
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* Would the .safetensors files of the directory fill every slot, whatever the index says? */
static bool present_files_suffice(ssm_checkpoint *checkpoint, bool lenient)
{
    close_files(checkpoint);
    bool suffice = open_all(checkpoint, lenient, NULL) == SSM_STATUS_OK &&
                   ssm__names_are_complete(checkpoint->entries, checkpoint->n_entries,
                                           checkpoint->claims.n_layers.value);
    close_files(checkpoint);
    return suffice;
}

static ssm_status check_shards_present(ssm_checkpoint *checkpoint, bool lenient, ssm_error *err)
{
    const ssm__index *index = checkpoint->index;
    ssm__list_text missing = {0};
    for (int64_t i = 0; i < index->n_shards; i++) {
        const ssm__shard *shard = &index->shards[i];
        if (!holds(checkpoint, shard->name)) {
            ssm__list_add(&missing, "%s (%" PRId64 " tensor%s)", shard->name, shard->n_tensors,
                          shard->n_tensors == 1 ? "" : "s");
        }
    }
    if (missing.total == 0) {
        return SSM_STATUS_OK;
    }
    bool suffice = present_files_suffice(checkpoint, lenient);
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

static const ssm_safetensors *shard_file(const ssm_checkpoint *checkpoint, const char *shard)
{
    for (int64_t i = 0; i < checkpoint->index->n_shards; i++) {
        if (strcmp(checkpoint->index->shards[i].name, shard) == 0) {
            return checkpoint->files[i]; /* opened in this order */
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
        const ssm_safetensors *file = shard_file(checkpoint, shard);
        if (file == NULL || ssm_safetensors_find(file, name) == NULL) {
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
        SSM__TRY(open_named(checkpoint, checkpoint->index->shards[i].name, lenient, err));
    }
    SSM__TRY(ssm__checkpoint_list(checkpoint, err));
    SSM__TRY(check_index(checkpoint, err));
    if (holds(checkpoint, single_name) && shard_file(checkpoint, single_name) == NULL) {
        SSM__TRY(ssm__note(&checkpoint->notes, err,
                           "%s is not named by the index and was not read.", single_name));
    }
    return note_superseded(checkpoint, err);
}

/* ---- which ----------------------------------------------------------------------------------- */

static ssm_status no_weights(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    SSM__TRY(refuse_in_directory(checkpoint, single_name, err));
    SSM__TRY(refuse_in_directory(checkpoint, index_name, err));
    static const char *const others[] = {"pytorch_model.bin",
                                         "pytorch_model.bin.index.json",
                                         "consolidated.safetensors",
                                         "consolidated.00.pth",
                                         "tf_model.h5",
                                         "flax_model.msgpack",
                                         "adapter_model.safetensors"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (holds(checkpoint, others[i])) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->directory),
                             "the directory holds %s but no %s; this version reads safetensors in "
                             "the Hugging Face layout",
                             others[i], single_name);
        }
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->directory),
                     "the directory holds neither %s nor %s", single_name, index_name);
}

static ssm_status open_index(ssm_checkpoint *checkpoint, const char *name,
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
    SSM__TRY(ssm__note(&checkpoint->notes, err,
                       "%s was ignored, as asked: all .safetensors files of the directory were "
                       "read.",
                       name));
    return open_all(checkpoint, options->lenient, err);
}

ssm_status ssm__checkpoint_open_files(ssm_checkpoint *checkpoint,
                                      const ssm_checkpoint_options *options, ssm_error *err)
{
    const char *name = ssm__file_name(checkpoint->path);
    if (ssm__is_file(checkpoint->path)) {
        if (ends_with(name, ".safetensors.index.json")) {
            return open_index(checkpoint, name, options, err);
        }
        if (strcmp(name, "config.json") == 0) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->path),
                             "this is the configuration; give the directory that it is in");
        }
        SSM__TRY(open_file(checkpoint, checkpoint->path, options->lenient, err));
        return ssm__checkpoint_list(checkpoint, err);
    }
    if (holds(checkpoint, index_name)) {
        return open_index(checkpoint, index_name, options, err);
    }
    if (holds(checkpoint, single_name)) {
        SSM__TRY(refuse_in_directory(checkpoint, index_name, err));
        SSM__TRY(open_named(checkpoint, single_name, options->lenient, err));
        return ssm__checkpoint_list(checkpoint, err);
    }
    return no_weights(checkpoint, err);
}
