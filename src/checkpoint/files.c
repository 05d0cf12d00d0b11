#include "checkpoint/internal.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"

const char *ssm__file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
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
    return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->config_path),
                     "config.json is missing; it must stand beside the weights");
}

/* Mistral's own layout has a params.json in its place. */
static ssm_status find_config(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const bool config = holds(checkpoint, "config.json");
    const bool params = !config && holds(checkpoint, "params.json");
    checkpoint->config_path =
        ssm__path_join(checkpoint->directory, params ? "params.json" : "config.json");
    if (checkpoint->config_path == NULL) {
        return ssm__fail_memory(err, "a path", strlen(checkpoint->directory));
    }
    if (!config && !params) {
        return no_config(checkpoint, err);
    }
    return params ? ssm__note(&checkpoint->notes, err,
                              "There is no config.json; params.json is read in its place.")
                  : SSM_STATUS_OK;
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
                         "no such file or directory; expected a model directory, or a "
                         ".safetensors, .bin, .pt or .pth file");
    }
    if (checkpoint->directory == NULL) {
        return ssm__fail_memory(err, "a path", strlen(path));
    }
    return find_config(checkpoint, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

static ssm_status note_torch(ssm_checkpoint *checkpoint, const ssm__torch_file *file,
                             const char *path, ssm_error *err)
{
    for (int64_t i = 0; i < ssm__torch_note_count(file); i++) {
        SSM__TRY(ssm__note(&checkpoint->notes, err, "%s: %s", ssm__file_name(path),
                           ssm__torch_note(file, i)));
    }
    return SSM_STATUS_OK;
}

static ssm_status open_file(ssm_checkpoint *checkpoint, const char *path, bool lenient,
                            ssm_error *err)
{
    size_t room = ((size_t)checkpoint->n_files + 1) * sizeof(ssm__weight_file);
    ssm__weight_file *files = realloc(checkpoint->files, room);
    if (files == NULL) {
        return ssm__fail_memory(err, "the list of files", room);
    }
    checkpoint->files = files;
    SSM__TRY(ssm__weight_file_open(path, lenient, &files[checkpoint->n_files], err));
    checkpoint->n_files++;
    const ssm__torch_file *torch = files[checkpoint->n_files - 1].torch;
    return torch == NULL ? SSM_STATUS_OK : note_torch(checkpoint, torch, path, err);
}

ssm_status ssm__open_named(ssm_checkpoint *checkpoint, const char *name, bool lenient,
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

void ssm__close_files(ssm_checkpoint *checkpoint)
{
    for (int64_t i = 0; i < checkpoint->n_files; i++) {
        ssm__weight_file_close(&checkpoint->files[i]);
    }
    checkpoint->n_files = 0;
    free(checkpoint->entries);
    checkpoint->entries = NULL;
    checkpoint->n_entries = 0;
}

static int is_safetensors(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && ssm__ends_with(entry->d_name, ".safetensors");
}

/* Not what training leaves beside a model. */
static int is_torch(const struct dirent *entry)
{
    static const char *const others[] = {"training_args.bin", "optimizer.pt", "optimizer.bin",
                                         "scheduler.pt", "scaler.pt"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strcmp(entry->d_name, others[i]) == 0) {
            return 0;
        }
    }
    return entry->d_name[0] != '.' && ssm__is_torch_name(entry->d_name);
}

static int by_bytes(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

/* The names of the directory's files of a kind, sorted; *names and each of them for free(). */
static ssm_status list_names(const ssm_checkpoint *checkpoint, bool torch, struct dirent ***names,
                             int *count, ssm_error *err)
{
    *names = NULL;
    *count = scandir(checkpoint->directory, names, torch ? is_torch : is_safetensors, by_bytes);
    if (*count < 0) {
        *count = 0;
        return ssm__fail_errno(err, SSM_STATUS_FILE, checkpoint->directory,
                               "the directory cannot be listed", errno);
    }
    return SSM_STATUS_OK;
}

static bool starts_with(const char *text, const char *start)
{
    return start == NULL || strncmp(text, start, strlen(start)) == 0;
}

ssm_status ssm__open_all(ssm_checkpoint *checkpoint, const char *start, bool torch, bool lenient,
                         ssm_error *err)
{
    struct dirent **names;
    int count;
    ssm_status status = list_names(checkpoint, torch, &names, &count, err);
    for (int i = 0; i < count; i++) {
        if (status == SSM_STATUS_OK && starts_with(names[i]->d_name, start)) {
            status = ssm__open_named(checkpoint, names[i]->d_name, lenient, err);
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
        total += ssm__weight_file_count(&checkpoint->files[i]);
    }
    free(checkpoint->entries);
    checkpoint->n_entries = 0;
    checkpoint->entries = calloc((size_t)total + 1, sizeof *checkpoint->entries);
    if (checkpoint->entries == NULL) {
        return ssm__fail_memory(err, "the list of tensors",
                                ((size_t)total + 1) * sizeof *checkpoint->entries);
    }
    for (int64_t i = 0; i < checkpoint->n_files; i++) {
        for (int64_t k = 0; k < ssm__weight_file_count(&checkpoint->files[i]); k++) {
            const ssm_tensor *tensor = ssm__weight_file_at(&checkpoint->files[i], k);
            checkpoint->entries[checkpoint->n_entries++] = (ssm__entry){.tensor = tensor};
        }
    }
    return SSM_STATUS_OK;
}

/* ---- which ----------------------------------------------------------------------------------- */

/* What is looked for in a directory, the first that is there is read; safetensors before torch. */
typedef struct candidate {
    const char *name;
    bool is_index, torch;
} candidate;

static const candidate candidates[] = {
    {"model.safetensors.index.json", true, false},
    {"model.safetensors", false, false},
    {"consolidated.safetensors.index.json", true, false},
    {"pytorch_model.bin.index.json", true, true},
    {"pytorch_model.bin", false, true},
};
enum { CANDIDATES = sizeof candidates / sizeof candidates[0] };

static ssm_status no_weights(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    for (size_t i = 0; i < CANDIDATES; i++) {
        SSM__TRY(refuse_in_directory(checkpoint, candidates[i].name, err));
    }
    static const char *const others[] = {"tf_model.h5", "flax_model.msgpack",
                                         "adapter_model.safetensors", "adapter_model.bin"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (holds(checkpoint, others[i])) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->directory),
                             "the directory holds %s, which is not read, and no model.safetensors "
                             "or pytorch_model.bin",
                             others[i]);
        }
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->directory),
                     "the directory holds neither model.safetensors nor pytorch_model.bin, nor an "
                     "index of either (model.safetensors.index.json)");
}

/* Files that were passed over are named. */
static ssm_status note_others(ssm_checkpoint *checkpoint, const candidate *taken, ssm_error *err)
{
    for (const candidate *other = candidates; other < candidates + CANDIDATES; other++) {
        if (other == taken || !holds(checkpoint, other->name)) {
            continue;
        }
        if (checkpoint->index != NULL && !other->is_index && other->torch == taken->torch) {
            bool shard = false;
            for (int64_t i = 0; i < checkpoint->index->n_shards; i++) {
                shard = shard || strcmp(checkpoint->index->shards[i].name, other->name) == 0;
            }
            if (!shard) {
                SSM__TRY(ssm__note(&checkpoint->notes, err,
                                   "%s is not named by the index and was not read.", other->name));
            }
        } else if (other->torch != taken->torch) {
            SSM__TRY(ssm__note(&checkpoint->notes, err, "%s was not read: %s is there, too.",
                               other->name, taken->name));
        }
    }
    return SSM_STATUS_OK;
}

/* The first name that begins so, NULL: none. */
static const char *find_start(struct dirent **names, int count, const char *start)
{
    for (int i = 0; i < count; i++) {
        if (starts_with(names[i]->d_name, start)) {
            return names[i]->d_name;
        }
    }
    return NULL;
}

/* No usual name: consolidated*.safetensors and .pth as Mistral writes them; else the one file of
 * its kind. *found: something was opened. */
static ssm_status open_unusual(ssm_checkpoint *checkpoint, bool torch, bool lenient, bool *found,
                               ssm_error *err)
{
    static const char consolidated[] = "consolidated";
    struct dirent **names;
    int count;
    ssm_status status = list_names(checkpoint, torch, &names, &count, err);
    const char *mistral = find_start(names, count, consolidated);
    const char *adapter = find_start(names, count, "adapter_model");
    *found = status == SSM_STATUS_OK && adapter == NULL && count > 0;
    if (*found && mistral != NULL) {
        status = ssm__open_all(checkpoint, consolidated, torch, lenient, err);
    } else if (*found && count == 1) {
        status = ssm__open_all(checkpoint, NULL, torch, lenient, err);
    } else if (*found) {
        status = ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->directory),
                           "the directory holds %d files that may be the weights (%s, %s, …) and "
                           "no index; give the file, or the index, that is meant",
                           count, names[0]->d_name, names[1]->d_name);
    }
    if (status == SSM_STATUS_OK && *found) {
        status = ssm__note(&checkpoint->notes, err, "The weights were read from %s%s.",
                           mistral != NULL ? mistral : names[0]->d_name,
                           checkpoint->n_files > 1 ? " and its like" : "");
    }
    for (int i = 0; i < count; i++) {
        free(names[i]);
    }
    free(names);
    return status;
}

static ssm_status open_directory(ssm_checkpoint *checkpoint, const ssm_checkpoint_options *options,
                                 ssm_error *err)
{
    const candidate *taken = NULL;
    for (size_t i = 0; i < CANDIDATES && taken == NULL; i++) {
        taken = holds(checkpoint, candidates[i].name) ? &candidates[i] : NULL;
    }
    if (taken != NULL && taken->is_index) {
        SSM__TRY(ssm__open_index(checkpoint, taken->name, options, err));
        return note_others(checkpoint, taken, err);
    }
    if (taken != NULL) {
        for (const candidate *before = candidates; before < taken; before++) {
            SSM__TRY(refuse_in_directory(checkpoint, before->name, err));
        }
        SSM__TRY(ssm__open_named(checkpoint, taken->name, options->lenient, err));
        SSM__TRY(ssm__checkpoint_list(checkpoint, err));
        return note_others(checkpoint, taken, err);
    }
    bool found = false;
    SSM__TRY(open_unusual(checkpoint, false, options->lenient, &found, err));
    if (!found) {
        SSM__TRY(open_unusual(checkpoint, true, options->lenient, &found, err));
    }
    return found ? SSM_STATUS_OK : no_weights(checkpoint, err);
}

ssm_status ssm__checkpoint_open_files(ssm_checkpoint *checkpoint,
                                      const ssm_checkpoint_options *options, ssm_error *err)
{
    const char *name = ssm__file_name(checkpoint->path);
    if (!ssm__is_file(checkpoint->path)) {
        return open_directory(checkpoint, options, err);
    }
    if (ssm__ends_with(name, ".index.json")) {
        return ssm__open_index(checkpoint, name, options, err);
    }
    if (ssm__ends_with(name, ".json")) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->path),
                         "this is the configuration; give the directory that it is in");
    }
    SSM__TRY(open_file(checkpoint, checkpoint->path, options->lenient, err));
    return ssm__checkpoint_list(checkpoint, err);
}
