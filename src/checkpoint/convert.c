/* From an open checkpoint to a directory in another layout: which tensors under which names, types
 * and shards, and a directory that appears whole or not at all. */
#include "checkpoint/convert.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/internal.h"

/* ---- the list of tensors --------------------------------------------------------------------- */

static ssm_dtype new_dtype(const ssm_convert_options *options, int id, ssm_dtype stored)
{
    if (options->dtype == SSM_DTYPE_COUNT) {
        return stored;
    }
    return options->dtype == SSM_DTYPE_F32 || ssm__slot_is_matrix(id) ? options->dtype : stored;
}

static void add_tensor(ssm__conversion *job, ssm__slot_place place, const ssm_tensor *from)
{
    ssm__written_tensor *tensor = &job->tensors[job->count++];
    const bool original = job->options->layout == SSM_LAYOUT_ORIGINAL;
    tensor->from = from;
    tensor->place = place;
    if (place.id == SSM__SLOT_embedding && original) {
        snprintf(tensor->name, sizeof tensor->name, "backbone.embedding.weight");
    } else {
        ssm__slot_name(place, tensor->name);
    }
    tensor->out = *from;
    tensor->out.name = tensor->name;
    tensor->out.dtype = new_dtype(job->options, place.id, from->dtype);
    if (job->changes != NULL && job->changes->cut != NULL) {
        job->changes->cut(job->changes->context, place, &tensor->cut);
    }
    if (job->changes != NULL && job->changes->edits != NULL) {
        tensor->edited = job->changes->edits(job->changes->editor, place);
    }
    if (tensor->edited && tensor->out.dtype != SSM_DTYPE_F16 &&
        tensor->out.dtype != SSM_DTYPE_BF16) {
        tensor->out.dtype = SSM_DTYPE_F32;
    }
    if (tensor->cut.count > 0) {
        tensor->out.dims[tensor->cut.axis] = tensor->cut.count;
        tensor->out.dtype = tensor->cut.factor != NULL ? SSM_DTYPE_F32 : from->dtype;
    }
    tensor->out.bytes = (size_t)ssm_tensor_count(&tensor->out) * ssm_dtype_size(tensor->out.dtype);
    tensor->out.data = NULL; /* a storage of its own */
}

/* The head follows the embedding: in a torch file both have one storage when tied, and a shard is
 * cut between tensors. */
static void add_tied_head(ssm__conversion *job)
{
    ssm__written_tensor *embedding = &job->tensors[job->count - 1];
    embedding->out.data = embedding->from->data;
    add_tensor(job, (ssm__slot_place){SSM__SLOT_lm_head, -1}, embedding->from);
    job->tensors[job->count - 1].out.data = embedding->out.data;
}

static ssm_status list_tensors(ssm__conversion *job, ssm_error *err)
{
    const ssm_checkpoint *checkpoint = job->checkpoint;
    const int64_t n_layers = checkpoint->config.n_layers;
    const bool tied = checkpoint->config.tied;
    size_t room = (size_t)ssm__slot_count(n_layers);
    job->tensors = calloc(room, sizeof *job->tensors);
    if (job->tensors == NULL) {
        return ssm__fail_memory(err, "the list of tensors", room * sizeof *job->tensors);
    }
    for (int64_t i = 0; i < ssm__slot_count(n_layers); i++) {
        const ssm__slot_place place = ssm__slot_at(n_layers, i);
        const ssm_tensor *from = ssm__slot_tensor_const(&checkpoint->weights, place);
        if (from->name == NULL || (place.id == SSM__SLOT_lm_head && tied)) {
            continue;
        }
        add_tensor(job, place, from);
        job->total += (int64_t)job->tensors[job->count - 1].out.bytes;
        if (place.id == SSM__SLOT_embedding && tied &&
            job->options->container == SSM_CONTAINER_TORCH) {
            add_tied_head(job);
        }
    }
    return SSM_STATUS_OK;
}

/* A new shard where the limit would be passed; a tensor that shares its storage takes no room. */
static void cut_shards(ssm__conversion *job)
{
    int64_t used = 0;
    for (int64_t i = 0; i < job->count; i++) {
        ssm__written_tensor *tensor = &job->tensors[i];
        const bool shares =
            i > 0 && tensor->out.data != NULL && tensor->out.data == job->tensors[i - 1].out.data;
        const int64_t bytes = shares ? 0 : (int64_t)tensor->out.bytes;
        const int64_t limit = job->options->shard_bytes;
        if (limit > 0 && used > 0 && bytes > limit - used && !shares) {
            job->n_shards++;
            used = 0;
        }
        used += bytes;
        tensor->shard = job->n_shards;
    }
    job->n_shards++;
}

/* ---- what the configuration says ------------------------------------------------------------- */

static bool kind_has(const ssm_checkpoint *checkpoint, ssm_layer_kind kind, int id)
{
    const int64_t layer = ssm__first_layer(checkpoint, kind);
    const ssm__slot_place place = {id, layer};
    return layer >= 0 && ssm__slot_tensor_const(&checkpoint->weights, place)->name != NULL;
}

static ssm_status describe(ssm__conversion *job, ssm_error *err)
{
    const ssm_checkpoint *checkpoint = job->checkpoint;
    const int64_t n_layers = checkpoint->config.n_layers;
    const ssm_layer_kind mixer =
        checkpoint->config.family == SSM_FAMILY_MAMBA2 ? SSM_LAYER_MAMBA2 : SSM_LAYER_MAMBA;
    job->attention_layers = calloc((size_t)n_layers, sizeof *job->attention_layers);
    if (job->attention_layers == NULL) {
        return ssm__fail_memory(err, "a list of layers", (size_t)n_layers * sizeof(int64_t));
    }
    int64_t n_attention = 0;
    for (int64_t layer = 0; layer < n_layers; layer++) {
        if (checkpoint->weights.layers[layer].kind == SSM_LAYER_ATTENTION) {
            job->attention_layers[n_attention++] = layer;
        }
    }
    const ssm_dtype dtype = job->options->dtype;
    const ssm_layer_kind attention = SSM_LAYER_ATTENTION;
    job->written = (ssm__written_config){
        .config = job->changes != NULL ? job->changes->config : &checkpoint->config,
        .dtype = dtype == SSM_DTYPE_COUNT ? checkpoint->weights.embedding.dtype : dtype,
        .use_bias = kind_has(checkpoint, mixer, SSM__SLOT_in_proj_bias),
        .use_conv_bias = kind_has(checkpoint, mixer, SSM__SLOT_conv1d_bias),
        .qkv_bias = kind_has(checkpoint, attention, SSM__SLOT_in_proj_bias),
        .attention_out_bias = kind_has(checkpoint, attention, SSM__SLOT_out_proj_bias),
        .attention_layers = job->attention_layers,
        .n_attention = n_attention};
    return SSM_STATUS_OK;
}

/* ---- files beside the weights ---------------------------------------------------------------- */

static ssm_status copy_file(const char *from, const char *to, ssm_error *err)
{
    ssm__map map;
    SSM__TRY(ssm__map_open(from, &map, err));
    ssm_status status =
        ssm__write_file(to, map.data == NULL ? (const void *)"" : map.data, map.size, err);
    ssm__map_close(&map);
    return status;
}

static ssm_status copy_tokenizer(const ssm__conversion *job, ssm_error *err)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "tokenizer.model",
                                        "generation_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool own = strcmp(names[i], "generation_config.json") == 0 &&
                   job->options->layout == SSM_LAYOUT_ORIGINAL; /* written with the config */
        if (own || !ssm__holds_file(job->checkpoint->directory, names[i])) {
            continue;
        }
        char *from = ssm__path_join(job->checkpoint->directory, names[i]);
        char *to = ssm__path_join(job->directory, names[i]);
        ssm_status status = from == NULL || to == NULL
                                ? ssm__fail_memory(err, "a path", strlen(names[i]))
                                : copy_file(from, to, err);
        free(from);
        free(to);
        SSM__TRY(status);
    }
    return SSM_STATUS_OK;
}

/* ---- the directory --------------------------------------------------------------------------- */

/* Removes the files of a directory and the directory; it was made here and holds files only. It was
 * opened when there was memory for that. */
static void remove_directory(const char *path, DIR *directory)
{
    rewinddir(directory);
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        unlinkat(dirfd(directory), entry->d_name, 0); /* fails for "." and ".." */
    }
    rmdir(path);
}

static ssm_status check_free(const char *path, ssm_error *err)
{
    if (ssm__is_file(path)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(path),
                         "there is a file of that name; choose another directory");
    }
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return SSM_STATUS_OK;
    }
    int entries = 0;
    while (entries <= 2 && readdir(directory) != NULL) {
        entries++;
    }
    closedir(directory);
    return entries <= 2 ? SSM_STATUS_OK
                        : ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(path),
                                    "the directory is not empty; choose another");
}

/* "…/name.part-PID-I" beside the directory, made as public as the umask says; for free(). */
static ssm_status make_part(const char *directory, char **out, ssm_error *err)
{
    enum { END = 48, TRIES = 100 };
    size_t length = strlen(directory);
    while (length > 1 && directory[length - 1] == '/') {
        length--;
    }
    char *path = malloc(length + END);
    if (path == NULL) {
        return ssm__fail_memory(err, "a path", length + END);
    }
    memcpy(path, directory, length);
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    ssm_status status = SSM_STATUS_OK;
    if (slash != NULL && slash != path) {
        *slash = '\0';
        status = ssm__make_directories(path, err);
        *slash = '/';
    }
    int made = -1;
    for (int i = 0; status == SSM_STATUS_OK && made != 0 && i < TRIES; i++) {
        snprintf(path + length, END, ".part-%ld-%d", (long)getpid(), i);
        made = mkdir(path, 0777);
        if (made != 0 && errno != EEXIST) {
            break;
        }
    }
    if (status == SSM_STATUS_OK && made != 0) {
        status = ssm__fail_errno(err, SSM_STATUS_FAILED, directory,
                                 "a directory cannot be made beside it", errno);
    }
    if (status != SSM_STATUS_OK) {
        free(path);
        return status;
    }
    *out = path;
    return SSM_STATUS_OK;
}

/* The metadata of the changes as a JSON object of texts. */
static ssm_status write_metadata(const ssm__conversion *job, ssm_error *err)
{
    const ssm__changes *changes = job->changes;
    json_t *root = json_object();
    bool good = root != NULL;
    for (int64_t i = 0; good && i < changes->n_metadata; i++) {
        const ssm_metadata *pair = &changes->metadata[i];
        good = json_object_set_new(root, pair->key, json_string(pair->value)) == 0;
    }
    if (!good) {
        json_decref(root);
        root = NULL;
    }
    return ssm__json_write(root, JSON_INDENT(2), job->directory, changes->metadata_file, err);
}

static ssm_status write_all(ssm__conversion *job, ssm_error *err)
{
    SSM__TRY(list_tensors(job, err));
    cut_shards(job);
    SSM__TRY(describe(job, err));
    SSM__TRY(ssm__convert_write(job, err));
    SSM__TRY(copy_tokenizer(job, err));
    if (job->changes != NULL) {
        SSM__TRY(write_metadata(job, err));
    }
    return job->options->layout == SSM_LAYOUT_HF
               ? ssm__hf_config_write(&job->written, job->directory, err)
               : ssm__original_config_write(&job->written, job->directory, err);
}

ssm_status ssm_convert(const ssm_checkpoint *checkpoint, const ssm_convert_options *options,
                       const char *directory, const ssm_progress *progress, ssm_error *err)
{
    return ssm__convert(checkpoint, options, NULL, directory, progress, err);
}

ssm_status ssm__convert(const ssm_checkpoint *checkpoint, const ssm_convert_options *options,
                        const ssm__changes *changes, const char *directory,
                        const ssm_progress *progress, ssm_error *err)
{
    char *part = NULL;
    if (options->dtype != SSM_DTYPE_COUNT && options->dtype != SSM_DTYPE_F32 &&
        options->dtype != SSM_DTYPE_F16 && options->dtype != SSM_DTYPE_BF16) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "weights cannot be stored as %s; expected F32, F16 or BF16",
                         ssm_dtype_name(options->dtype));
    }
    SSM__TRY(ssm__convert_refuse(checkpoint, options->layout, err));
    SSM__TRY(check_free(directory, err));
    /* A copy of damaged weights would be sound to every later look. */
    SSM__TRY(ssm__checkpoint_check_sums(checkpoint, err));
    SSM__TRY(make_part(directory, &part, err));
    ssm__conversion job = {.checkpoint = checkpoint,
                           .options = options,
                           .changes = changes,
                           .progress = progress,
                           .directory = part};
    DIR *opened = opendir(part);
    ssm_status status =
        opened == NULL
            ? ssm__fail_errno(err, errno == ENOMEM ? SSM_STATUS_MEMORY : SSM_STATUS_FAILED, part,
                              "the directory cannot be opened", errno)
            : write_all(&job, err);
    if (status == SSM_STATUS_OK && rename(part, directory) != 0) {
        status = ssm__fail_errno(err, SSM_STATUS_FAILED, directory,
                                 "the directory cannot be put in its place", errno);
    }
    if (opened == NULL) {
        rmdir(part);
    } else if (status != SSM_STATUS_OK) {
        remove_directory(part, opened);
    }
    if (opened != NULL) {
        closedir(opened);
    }
    free(part);
    free(job.tensors);
    free(job.attention_layers);
    free(job.block);
    return status;
}
