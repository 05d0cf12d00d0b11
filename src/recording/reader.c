/* Reading a recording: shards are mapped on first use and stay mapped until close, so that a metric
 * touches only the pages of the layer it is at. */
#include <ssmscope/recording.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "recording/head.h"
#include "recording/schema.h"

struct ssm_recording {
    ssm__head head;
    char *directory;
    ssm_safetensors **shards; /* one a window */
    ssm_safetensors **sums;   /* one a calibration domain */
    ssm_safetensors *model;
};

int64_t ssm_recording_channels(const ssm_recording_info *info)
{
    return info->family == SSM_FAMILY_MAMBA2 ? info->n_heads : info->d_inner;
}

int64_t ssm_recording_sets(const ssm_recording_info *info, ssm_scope scope)
{
    const bool channels = info->family == SSM_FAMILY_MAMBA2 && scope != SSM_SCOPE_HEAD;
    return ssm_recording_channels(info) * (channels ? info->head_dim : 1);
}

const char *ssm_scope_name(ssm_scope scope)
{
    return scope == SSM_SCOPE_HEAD ? "head" : "channel";
}

int64_t ssm_default_budgets(int64_t d_state, int64_t out[3])
{
    const int64_t wanted[3] = {d_state / 4, d_state / 2, 3 * d_state / 4};
    int64_t count = 0;
    for (int i = 0; i < 3 && d_state > 1; i++) {
        int64_t budget = wanted[i] < 1 ? 1 : wanted[i];
        if (count == 0 || out[count - 1] != budget) {
            out[count++] = budget;
        }
    }
    return count;
}

/* ---- opening -------------------------------------------------------------------------------- */

static ssm_status read_head(const char *directory, ssm__head *head, ssm_error *err)
{
    char *path = ssm__path_join(directory, "recording.json");
    if (path == NULL) {
        return ssm__fail_memory(err, "a path", strlen(directory));
    }
    ssm__map map = {0};
    ssm_status status;
    if (ssm__is_directory(directory) && !ssm__is_file(path)) {
        status = ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(directory),
                           "the directory holds no recording.json: not a recording");
    } else {
        status = ssm__map_open(path, &map, err);
    }
    if (status == SSM_STATUS_OK && map.size == 0) {
        status = ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                           "is empty: the recording was damaged");
    } else if (status == SSM_STATUS_OK) {
        status =
            ssm__head_parse(path, SSM_STATUS_FILE, (const char *)map.data, map.size, head, err);
        ssm__map_close(&map);
    }
    free(path);
    return status;
}

static ssm_status require_file(const ssm_recording *recording, const char *file, ssm_error *err)
{
    char *path = ssm__path_join(recording->directory, file);
    if (path == NULL) {
        return ssm__fail_memory(err, "a path", strlen(file));
    }
    ssm_status status = SSM_STATUS_OK;
    if (!ssm__is_file(path)) {
        status = ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                           "the recording names this file but it is not there: the recording is "
                           "unfinished (record again with --resume) or was damaged");
    }
    free(path);
    return status;
}

static ssm_status check_files(const ssm_recording *recording, ssm_error *err)
{
    const ssm__head *head = &recording->head;
    SSM__TRY(require_file(recording, "model.safetensors", err));
    for (int64_t i = 0; i < head->n_windows; i++) {
        SSM__TRY(require_file(recording, head->windows[i].file, err));
    }
    for (int64_t k = 0; k < head->n_calibrations && head->info.has_gram; k++) {
        SSM__TRY(require_file(recording, head->calibrations[k].file, err));
    }
    return SSM_STATUS_OK;
}

ssm_status ssm_recording_open(const char *directory, ssm_recording **out, ssm_error *err)
{
    *out = NULL;
    ssm_recording *recording = calloc(1, sizeof *recording);
    if (recording == NULL) {
        return ssm__fail_memory(err, "a recording", sizeof *recording);
    }
    ssm_status status = read_head(directory, &recording->head, err);
    if (status == SSM_STATUS_OK) {
        recording->directory = strdup(directory);
        recording->shards =
            calloc((size_t)recording->head.n_windows + 1, sizeof *recording->shards);
        recording->sums =
            calloc((size_t)recording->head.n_calibrations + 1, sizeof *recording->sums);
        if (recording->directory == NULL || recording->shards == NULL || recording->sums == NULL) {
            status = ssm__fail_memory(err, "a recording", (size_t)recording->head.n_windows * 8);
        }
    }
    if (status == SSM_STATUS_OK) {
        status = check_files(recording, err);
    }
    if (status != SSM_STATUS_OK) {
        ssm_recording_close(recording);
        return status;
    }
    *out = recording;
    return SSM_STATUS_OK;
}

void ssm_recording_close(ssm_recording *recording)
{
    if (recording == NULL) {
        return;
    }
    for (int64_t i = 0; i < recording->head.n_windows && recording->shards != NULL; i++) {
        ssm_safetensors_close(recording->shards[i]);
    }
    for (int64_t k = 0; k < recording->head.n_calibrations && recording->sums != NULL; k++) {
        ssm_safetensors_close(recording->sums[k]);
    }
    ssm_safetensors_close(recording->model);
    free(recording->shards);
    free(recording->sums);
    free(recording->directory);
    ssm__head_free(&recording->head);
    free(recording);
}

const ssm_recording_info *ssm_recording_get_info(const ssm_recording *recording)
{
    return &recording->head.info;
}

int64_t ssm_recording_window_count(const ssm_recording *recording)
{
    return recording->head.n_windows;
}

const ssm_recording_window *ssm_recording_get_window(const ssm_recording *recording, int64_t i)
{
    return i < 0 || i >= recording->head.n_windows ? NULL : &recording->head.windows[i];
}

/* ---- shards --------------------------------------------------------------------------------- */

/* Maps a file of the recording into *slot unless it is there already. A file that says which
 * recording it belongs to must say this one; files of other writers may say nothing. */
static ssm_status open_shard(const ssm_recording *recording, const char *file,
                             ssm_safetensors **slot, char **path, ssm_error *err)
{
    *path = ssm__path_join(recording->directory, file);
    if (*path == NULL) {
        return ssm__fail_memory(err, "a path", strlen(file));
    }
    if (*slot != NULL) {
        return SSM_STATUS_OK;
    }
    SSM__TRY(ssm_safetensors_open(*path, false, slot, err));
    const char *owner = ssm_safetensors_metadata(*slot, "recording");
    if (owner != NULL && strcmp(owner, recording->head.info.digest) != 0) {
        ssm_safetensors_close(*slot);
        *slot = NULL;
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(*path),
                         "the file is of another recording (or recording.json was changed since): "
                         "expected %s",
                         recording->head.info.digest);
    }
    return SSM_STATUS_OK;
}

/* The tensor named so, with this dtype and shape. */
static ssm_status find_tensor(const ssm_safetensors *shard, const char *path, const char *name,
                              ssm_dtype dtype, int n_dims, const int64_t *dims,
                              const ssm_tensor **out, ssm_error *err)
{
    const ssm_tensor *tensor = ssm_safetensors_find(shard, name);
    if (tensor == NULL) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                         "the tensor is missing: the file is damaged or of another recording");
    }
    SSM__TRY(ssm__schema_check(tensor, path, dtype, n_dims, dims, err));
    *out = tensor;
    return SSM_STATUS_OK;
}

static ssm_status check_layer(const ssm_recording *recording, int64_t layer, ssm_error *err)
{
    const ssm_recording_info *info = &recording->head.info;
    for (int64_t i = 0; i < info->n_recorded; i++) {
        if (info->layers[i] == layer) {
            return SSM_STATUS_OK;
        }
    }
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(recording->directory),
                     "layer %lld was not recorded (%lld of %lld layers were)", (long long)layer,
                     (long long)info->n_recorded, (long long)info->n_layers);
}

static ssm_status check_request(const ssm_recording *recording, int64_t window, int64_t layer,
                                const char *field, const ssm__field **found, ssm_error *err)
{
    const ssm_recording_info *info = &recording->head.info;
    const ssm__field *entry = ssm__schema_find(info->family, layer >= 0, field);
    if (window < 0 || window >= recording->head.n_windows) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(recording->directory),
                         "there is no window %lld: the recording has %lld", (long long)window,
                         (long long)recording->head.n_windows);
    }
    if (entry == NULL) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__TENSOR(recording->directory, field),
                         "a window of a %s recording has no such tensor",
                         ssm_family_name(info->family));
    }
    if (layer >= 0) {
        SSM__TRY(check_layer(recording, layer, err));
    }
    bool calibration = recording->head.windows[window].role == SSM_ROLE_CALIBRATION;
    if (strcmp(field, "gram") == 0 &&
        (!info->has_gram || (calibration && !info->has_window_gram))) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__TENSOR(recording->directory, field),
                         info->has_gram
                             ? "the Gram of a calibration window is only in its domain's "
                               "sum (record with --keep-window-gram to keep both)"
                             : "the recording was made with --no-gram");
    }
    if (!ssm__schema_has(info, entry, recording->head.windows[window].role)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__TENSOR(recording->directory, field),
                         "%s has no such tensor",
                         calibration       ? "a calibration window"
                         : !info->has_gram ? "a recording that was made with --no-gram"
                                           : "a recording without calibration windows");
    }
    *found = entry;
    return SSM_STATUS_OK;
}

ssm_status ssm_recording_tensor(ssm_recording *recording, int64_t window, int64_t layer,
                                const char *field, const ssm_tensor **out, ssm_error *err)
{
    const ssm__field *entry = NULL;
    SSM__TRY(check_request(recording, window, layer, field, &entry, err));
    char name[128];
    ssm__tensor_name(name, sizeof name, layer, field);
    const ssm_recording_window *about = &recording->head.windows[window];
    int64_t dims[SSM_MAX_DIMS];
    int n_dims = ssm__schema_shape(&recording->head.info, entry, about->tokens, dims);
    char *path = NULL;
    ssm_status status = open_shard(recording, about->file, &recording->shards[window], &path, err);
    char expected[32];
    snprintf(expected, sizeof expected, "%lld", (long long)window);
    const char *index = status == SSM_STATUS_OK
                            ? ssm_safetensors_metadata(recording->shards[window], "window")
                            : NULL;
    if (index != NULL && strcmp(index, expected) != 0) {
        status = ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                           "the file is window %.32s of the recording, expected window %s", index,
                           expected);
    }
    if (status == SSM_STATUS_OK) {
        status = find_tensor(recording->shards[window], path, name, entry->dtype, n_dims, dims, out,
                             err);
    }
    free(path);
    return status;
}

ssm_status ssm_recording_calibration_gram(ssm_recording *recording, const char *domain,
                                          int64_t layer, const ssm_tensor **out, ssm_error *err)
{
    const ssm__head *head = &recording->head;
    int64_t k = 0;
    while (k < head->n_calibrations && strcmp(head->calibrations[k].domain, domain) != 0) {
        k++;
    }
    if (k == head->n_calibrations || !head->info.has_gram) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(recording->directory),
                         head->info.has_gram ? "domain '%s' has no calibration windows"
                                             : "the recording was made with --no-gram",
                         domain);
    }
    SSM__TRY(check_layer(recording, layer, err));
    char name[128];
    ssm__tensor_name(name, sizeof name, layer, "gram");
    const int64_t dims[2] = {ssm_recording_channels(&head->info),
                             ssm__gram_entries(head->info.d_state)};
    char *path = NULL;
    ssm_status status =
        open_shard(recording, head->calibrations[k].file, &recording->sums[k], &path, err);
    const char *owner =
        status == SSM_STATUS_OK ? ssm_safetensors_metadata(recording->sums[k], "domain") : NULL;
    if (owner != NULL && strcmp(owner, domain) != 0) {
        status = ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                           "the file is the sum of domain %.64s, expected domain %.64s: files were "
                           "swapped",
                           owner, domain);
    }
    if (status == SSM_STATUS_OK) {
        status = find_tensor(recording->sums[k], path, name, SSM_DTYPE_F32, 2, dims, out, err);
    }
    free(path);
    return status;
}

ssm_status ssm_recording_A(ssm_recording *recording, int64_t layer, const ssm_tensor **out,
                           ssm_error *err)
{
    const ssm_recording_info *info = &recording->head.info;
    SSM__TRY(check_layer(recording, layer, err));
    char name[128];
    ssm__tensor_name(name, sizeof name, layer, "A");
    const int64_t dims[2] = {ssm_recording_channels(info), info->d_state};
    int n_dims = info->family == SSM_FAMILY_MAMBA2 ? 1 : 2; /* Mamba-2: one A a head */
    char *path = NULL;
    ssm_status status = open_shard(recording, "model.safetensors", &recording->model, &path, err);
    if (status == SSM_STATUS_OK) {
        status = find_tensor(recording->model, path, name, SSM_DTYPE_F32, n_dims, dims, out, err);
    }
    free(path);
    return status;
}
