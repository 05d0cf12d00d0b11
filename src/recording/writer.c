/* Writing a recording so that it can be stopped anywhere.
 *
 * Every file appears under its name only when it is whole, and every step looks at what is there
 * before it acts, so that doing the same work again changes no byte:
 *
 *   1. recording.json                  the plan; a resume must bring the same text
 *   2. model.safetensors               the same bytes each time it is written
 *   3. of calibration window j of a domain: partial.DOMAIN, from j windows to j + 1. The count
 * stands in the file itself, so a stop between 3 and 4 is seen as "window j is summed, its file is
 *      missing", and the window's Gram is not added twice.
 *   4. windows/NNNNN.safetensors
 *   5. finish: calibration.DOMAIN from partial.DOMAIN, then partial.DOMAIN is removed. A stop in
 *      between leaves both; the sum is whole, so only the removal is done again.
 *
 * What a stop can leave besides is a temporary file of step 1–5; create removes those. */
#include "recording/writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "recording/energies.h"
#include "recording/head.h"
#include "recording/schema.h"
#include "recording/sum.h"
#include "recording/window.h"

struct ssm__recording_writer {
    ssm__head head;
    char *directory;
    int lock;        /* the directory, locked against another writer; -1 without */
    int64_t *rank;   /* per window: how many calibration windows of its domain come before it */
    int64_t *summed; /* per calibration domain: windows in the sum on disk */
    bool *finished;  /* per calibration domain: calibration.DOMAIN is there */
    bool *written;   /* per window: its file is there and whole */
    int64_t current; /* the window that was begun, −1: none */
    ssm__window_files files; /* of it */
};

static ssm_status join(const ssm__recording_writer *writer, const char *file, char **out,
                       ssm_error *err)
{
    *out = ssm__path_join(writer->directory, file);
    return *out == NULL ? ssm__fail_memory(err, "a path", strlen(file)) : SSM_STATUS_OK;
}

/* ---- create --------------------------------------------------------------------------------- */

/* ".name.<16 hex digits>.tmp", as base/writer.c names them, of a file this writer makes. */
static bool is_temporary(const char *name)
{
    size_t length = strlen(name);
    return name[0] == '.' && length > 22 && strcmp(name + length - 4, ".tmp") == 0 &&
           strspn(name + length - 20, "0123456789abcdef") == 16 &&
           (strstr(name, ".safetensors.") != NULL || strstr(name, ".recording.json.") == name);
}

/* Removes what a stop left in `path`; counts the other entries. A missing directory is empty. */
static void clean(const char *path, int64_t *others)
{
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        if (is_temporary(entry->d_name)) {
            unlinkat(dirfd(directory), entry->d_name, 0);
        } else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (*others)++;
        }
    }
    closedir(directory);
}

/* The plan that is there must be the one that was asked for. */
static ssm_status compare_plan(const char *path, const char *text, ssm_error *err)
{
    ssm__map map = {0};
    SSM__TRY(ssm__map_open(path, &map, err));
    ssm_status status = SSM_STATUS_OK;
    if (map.size != strlen(text) || memcmp(map.data, text, map.size) != 0) {
        char difference[512];
        char *old_text = strndup(map.size == 0 ? "" : (const char *)map.data, map.size);
        ssm__head_difference(old_text == NULL ? "" : old_text, text, difference, sizeof difference);
        free(old_text);
        status =
            ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(path),
                      "the recording there is another one: %s; give it another directory or the "
                      "same options",
                      difference);
    }
    ssm__map_close(&map);
    return status;
}

/* Makes the directory and locks it while this writer lives: two writers would remove each other's
 * temporary files. A file system without locks is used without. */
static ssm_status lock_directory(ssm__recording_writer *writer, ssm_error *err)
{
    SSM__TRY(ssm__make_directories(writer->directory, err));
    writer->lock = open(writer->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (writer->lock >= 0 && flock(writer->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__IN_FILE(writer->directory),
                         "another process is recording into this directory: wait until it is done, "
                         "or give another directory");
    }
    return SSM_STATUS_OK;
}

static ssm_status start_directory(ssm__recording_writer *writer, const char *path,
                                  const char *windows, const char *text, bool resume,
                                  ssm_error *err)
{
    SSM__TRY(lock_directory(writer, err));
    bool planned = ssm__is_file(path);
    if (planned && !resume) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(writer->directory),
                         "the directory holds a recording already: give another one, or --resume");
    }
    int64_t others = 0;
    if (planned) {
        SSM__TRY(compare_plan(path, text, err)); /* before anything there is touched */
        clean(writer->directory, &others);
        clean(windows, &others);
        return ssm__make_directories(windows, err);
    }
    int64_t allowed = ssm__is_directory(windows) ? 1 : 0;
    clean(writer->directory, &others);
    clean(windows, &others);
    if (others > allowed) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(writer->directory),
                         "the directory is not empty and holds no recording: give another one");
    }
    SSM__TRY(ssm__make_directories(windows, err));
    return ssm__write_file(path, text, strlen(text), err);
}

static ssm_status check_window_name(const ssm__recording_writer *writer, int64_t i, ssm_error *err)
{
    const char *file = writer->head.windows[i].file;
    const char *name = strchr(file, '/');
    if (strncmp(file, "windows/", 8) != 0 || strchr(name + 1, '/') != NULL) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(file),
                         "window files of a new recording are named windows/NAME");
    }
    return SSM_STATUS_OK;
}

/* A file of ours that is there must open and belong to this recording, and be the part of it that
 * `key` ("window" or "domain") says. */
static ssm_status check_owned(const ssm__recording_writer *writer, const char *path,
                              const char *key, const char *value, ssm_safetensors **file,
                              ssm_error *err)
{
    SSM__TRY(ssm_safetensors_open(path, false, file, err));
    const char *owner = ssm_safetensors_metadata(*file, "recording");
    if (owner == NULL || strcmp(owner, writer->head.info.digest) != 0) {
        ssm_safetensors_close(*file);
        *file = NULL;
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "the file is of another recording; remove it to have it made again");
    }
    const char *part = ssm_safetensors_metadata(*file, key);
    if (part == NULL || strcmp(part, value) != 0) {
        ssm_status status = ssm__fail(
            err, SSM_STATUS_FILE, SSM__IN_FILE(path),
            "the file is of %s %.64s, expected %s %.64s: files were swapped; remove it to "
            "have it made again",
            key, part == NULL ? "?" : part, key, value);
        ssm_safetensors_close(*file);
        *file = NULL;
        return status;
    }
    return SSM_STATUS_OK;
}

static ssm_status look_at_window(ssm__recording_writer *writer, int64_t i, ssm_error *err)
{
    char *path = NULL;
    SSM__TRY(check_window_name(writer, i, err));
    SSM__TRY(join(writer, writer->head.windows[i].file, &path, err));
    ssm_status status = SSM_STATUS_OK;
    if (ssm__is_file(path)) {
        ssm_safetensors *file = NULL;
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)i);
        status = check_owned(writer, path, "window", number, &file, err);
        ssm_safetensors_close(file);
        writer->written[i] = status == SSM_STATUS_OK;
    }
    free(path);
    return status;
}

static ssm_status look_at_sum(ssm__recording_writer *writer, int64_t k, ssm_error *err)
{
    const ssm__calibration *sum = &writer->head.calibrations[k];
    char *path = NULL;
    char *partial = NULL;
    ssm_safetensors *file = NULL;
    ssm_status status = join(writer, sum->file, &path, err);
    if (status == SSM_STATUS_OK) {
        status = join(writer, sum->partial, &partial, err);
    }
    if (status == SSM_STATUS_OK && ssm__is_file(path)) {
        status = check_owned(writer, path, "domain", sum->domain, &file, err);
        writer->finished[k] = status == SSM_STATUS_OK;
    } else if (status == SSM_STATUS_OK && ssm__is_file(partial)) {
        status = check_owned(writer, partial, "domain", sum->domain, &file, err);
        if (status == SSM_STATUS_OK) {
            status = ssm__sum_count(file, partial, sum->windows, &writer->summed[k], err);
        }
    }
    ssm_safetensors_close(file);
    free(path);
    free(partial);
    return status;
}

static ssm_status look_around(ssm__recording_writer *writer, ssm_error *err)
{
    const ssm__head *head = &writer->head;
    size_t windows = (size_t)head->n_windows + 1;
    size_t sums = (size_t)head->n_calibrations + 1;
    writer->rank = calloc(windows, sizeof *writer->rank);
    writer->written = calloc(windows, sizeof *writer->written);
    writer->summed = calloc(sums, sizeof *writer->summed);
    writer->finished = calloc(sums, sizeof *writer->finished);
    int64_t *seen = calloc(sums, sizeof *seen);
    if (writer->rank == NULL || writer->written == NULL || writer->summed == NULL ||
        writer->finished == NULL || seen == NULL) {
        free(seen);
        return ssm__fail_memory(err, "a recording writer", windows * sizeof *writer->rank);
    }
    for (int64_t i = 0; i < head->n_windows; i++) {
        int64_t k = head->calibration_of[i];
        writer->rank[i] = k < 0 ? -1 : seen[k]++;
    }
    free(seen);
    for (int64_t i = 0; i < head->n_windows; i++) {
        SSM__TRY(look_at_window(writer, i, err));
    }
    for (int64_t k = 0; k < head->n_calibrations && head->info.has_gram; k++) {
        SSM__TRY(look_at_sum(writer, k, err));
    }
    return SSM_STATUS_OK;
}

static ssm_status create(ssm__recording_writer *writer, const char *text, bool resume,
                         ssm_error *err)
{
    char *path = NULL;
    char *windows = NULL;
    ssm_status status = join(writer, "recording.json", &path, err);
    if (status == SSM_STATUS_OK) {
        status = join(writer, "windows", &windows, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm__head_parse(path, SSM_STATUS_USAGE, text, strlen(text), &writer->head, err);
    }
    if (status == SSM_STATUS_OK) {
        status = start_directory(writer, path, windows, text, resume, err);
    }
    free(path);
    free(windows);
    return status == SSM_STATUS_OK ? look_around(writer, err) : status;
}

ssm_status ssm__recording_create(const char *directory, const ssm__recording_plan *plan,
                                 ssm__recording_writer **out, ssm_error *err)
{
    *out = NULL;
    char *text = NULL;
    SSM__TRY(ssm__head_print(&plan->info, plan->windows, plan->n_windows, plan->extra, &text, err));
    ssm__recording_writer *writer = calloc(1, sizeof *writer);
    if (writer != NULL) {
        writer->current = -1;
        writer->lock = -1;
        writer->directory = strdup(directory);
    }
    ssm_status status = writer == NULL || writer->directory == NULL
                            ? ssm__fail_memory(err, "a recording writer", sizeof *writer)
                            : create(writer, text, plan->resume, err);
    free(text);
    if (status != SSM_STATUS_OK) {
        ssm__recording_writer_free(writer);
        return status;
    }
    *out = writer;
    return SSM_STATUS_OK;
}

void ssm__recording_writer_free(ssm__recording_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    ssm__window_abort(&writer->files);
    if (writer->lock >= 0) {
        close(writer->lock); /* ends the lock; so does the end of the process, however it comes */
    }
    free(writer->rank);
    free(writer->summed);
    free(writer->finished);
    free(writer->written);
    free(writer->directory);
    ssm__head_free(&writer->head);
    free(writer);
}

/* ---- the model and the windows -------------------------------------------------------------- */

/* True when the Gram of window i is in its domain's sum, or there is none to add. */
static bool is_summed(const ssm__recording_writer *writer, int64_t i)
{
    int64_t k = writer->head.calibration_of[i];
    return k < 0 || !writer->head.info.has_gram || writer->finished[k] ||
           writer->summed[k] > writer->rank[i];
}

bool ssm__recording_has(const ssm__recording_writer *writer, int64_t window)
{
    return writer->written[window] && is_summed(writer, window);
}

ssm_status ssm__recording_put_model(ssm__recording_writer *writer, const ssm_tensor *tensors,
                                    int64_t count, ssm_error *err)
{
    const ssm_recording_info *info = &writer->head.info;
    const int64_t dims[2] = {ssm_recording_channels(info), info->d_state};
    if (count != info->n_recorded) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "expected %lld tensors A, got %lld",
                         (long long)info->n_recorded, (long long)count);
    }
    for (int64_t i = 0; i < count; i++) {
        int n_dims = info->family == SSM_FAMILY_MAMBA2 ? 1 : 2;
        SSM__TRY(
            ssm__check_named(&tensors[i], info->layers[i], "A", SSM_DTYPE_F32, n_dims, dims, err));
    }
    const ssm_metadata metadata[] = {{"schema", SSM__MODEL_SCHEMA}, {"recording", info->digest}};
    char *path = NULL;
    SSM__TRY(join(writer, "model.safetensors", &path, err));
    ssm_status status = ssm_safetensors_write(path, tensors, count, metadata, 2, err);
    free(path);
    return status;
}

/* Fields of the schema that the writer is given of a layer, or (false) of a window. */
static int64_t field_count(const ssm_recording_info *info, ssm_role role, bool of_layer)
{
    int64_t count = 0;
    for (const ssm__field *field = ssm__schema_fields(); field->name != NULL; field++) {
        count += field->of_layer == of_layer && (field->flags & SSM__FIELD_GRAM) == 0 &&
                 ssm__schema_has(info, field, role);
    }
    return count;
}

static ssm_status check_count(int64_t expected, int64_t count, int64_t expected_grams,
                              int64_t n_grams, ssm_error *err)
{
    return expected == count && expected_grams == n_grams
               ? SSM_STATUS_OK
               : ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                           "the writer expected %lld tensors and %lld Grams, got %lld and %lld",
                           (long long)expected, (long long)expected_grams, (long long)count,
                           (long long)n_grams);
}

/* Nothing of the window is left when a piece of it fails. */
static ssm_status keep_window(ssm__recording_writer *writer, ssm_status status)
{
    if (status != SSM_STATUS_OK) {
        ssm__window_abort(&writer->files);
        writer->current = -1;
    }
    return status;
}

ssm_status ssm__recording_begin_window(ssm__recording_writer *writer, int64_t window,
                                       ssm_error *err)
{
    const ssm__head *head = &writer->head;
    ssm__window_abort(&writer->files);
    writer->current = -1;
    if (window < 0 || window >= head->n_windows) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "there is no window %lld",
                         (long long)window);
    }
    const ssm_recording_window *about = &head->windows[window];
    ssm__window_place place = {.directory = writer->directory, .window = window};
    if (!is_summed(writer, window)) {
        int64_t k = head->calibration_of[window];
        if (writer->summed[k] != writer->rank[window]) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "windows are put in rising order: window %lld of domain '%s' is next",
                             (long long)writer->summed[k], about->domain);
        }
        place.sum = &head->calibrations[k];
        place.summed = writer->summed[k];
    }
    char *path = NULL;
    SSM__TRY(join(writer, about->file, &path, err));
    place.shard = writer->written[window] ? NULL : path;
    ssm_status status = ssm__window_open(&head->info, about, &place, &writer->files, err);
    free(path);
    writer->current = status == SSM_STATUS_OK ? window : -1;
    return status;
}

/* What a model gave must fit float32: a recording with an infinity in it answers no question. */
static ssm_status check_finite(const ssm_tensor *tensors, int64_t count, ssm_error *err)
{
    for (int64_t i = 0; i < count; i++) {
        const float *values = tensors[i].data;
        const int64_t n = tensors[i].dtype == SSM_DTYPE_F32 ? ssm_tensor_count(&tensors[i]) : 0;
        for (int64_t k = 0; k < n; k++) {
            if (!isfinite(values[k])) {
                return ssm__fail(err, SSM_STATUS_FAILED, SSM__TENSOR(NULL, tensors[i].name),
                                 "element %lld is %g: the model's numbers overflow float32 when "
                                 "they are squared; the checkpoint is damaged or was badly "
                                 "converted",
                                 (long long)k, (double)values[k]);
            }
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status check_begun(const ssm__recording_writer *writer, ssm_error *err)
{
    return writer->current >= 0 ? SSM_STATUS_OK
                                : ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                                            "the writer was given a piece of no window");
}

ssm_status ssm__recording_put_layer(ssm__recording_writer *writer, const ssm_tensor *tensors,
                                    int64_t count, const ssm_tensor *gram, ssm_error *err)
{
    const ssm_recording_info *info = &writer->head.info;
    SSM__TRY(check_begun(writer, err));
    const ssm_role role = writer->head.windows[writer->current].role;
    ssm_status status = check_count(field_count(info, role, true), count, info->has_gram ? 1 : 0,
                                    gram == NULL ? 0 : 1, err);
    if (status == SSM_STATUS_OK) {
        status = check_finite(tensors, count, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm__window_put_layer(&writer->files, tensors, count, gram, err);
    }
    return keep_window(writer, status);
}

static ssm_status end_window(ssm__recording_writer *writer, const ssm_tensor *tensors,
                             int64_t count, ssm_error *err)
{
    int64_t window = writer->current;
    bool summed = false;
    SSM__TRY(keep_window(writer, ssm__window_put_rest(&writer->files, tensors, count, err)));
    writer->current = -1;
    ssm_status status = ssm__window_commit(&writer->files, &summed, err);
    if (summed) {
        writer->summed[writer->head.calibration_of[window]]++;
    }
    writer->written[window] = writer->written[window] || status == SSM_STATUS_OK;
    return status;
}

ssm_status ssm__recording_end_window(ssm__recording_writer *writer, const ssm_tensor *tensors,
                                     int64_t count, ssm_error *err)
{
    SSM__TRY(check_begun(writer, err));
    const ssm_role role = writer->head.windows[writer->current].role;
    const int64_t expected = field_count(&writer->head.info, role, false);
    SSM__TRY(keep_window(writer, check_count(expected, count, 0, 0, err)));
    return end_window(writer, tensors, count, err);
}

ssm_status ssm__recording_put_window(ssm__recording_writer *writer, int64_t window,
                                     const ssm_tensor *tensors, int64_t count,
                                     const ssm_tensor *grams, int64_t n_grams, ssm_error *err)
{
    const ssm_recording_info *info = &writer->head.info;
    const ssm_role role = window >= 0 && window < writer->head.n_windows
                              ? writer->head.windows[window].role
                              : SSM_ROLE_EVALUATION; /* begin will say that there is no such one */
    int64_t expected =
        info->n_recorded * field_count(info, role, true) + field_count(info, role, false);
    SSM__TRY(check_count(expected, count, info->has_gram ? info->n_recorded : 0, n_grams, err));
    SSM__TRY(ssm__recording_begin_window(writer, window, err));
    for (int64_t i = 0; i < info->n_recorded; i++) {
        const ssm_tensor *gram = n_grams > 0 ? &grams[i] : NULL;
        SSM__TRY(
            keep_window(writer, ssm__window_put_layer(&writer->files, tensors, count, gram, err)));
    }
    return end_window(writer, tensors, count, err);
}

/* ---- reading back ---------------------------------------------------------------------------- */

/* energy[i] = element i of the layer's channel energies in the file of a written window. */
static ssm_status read_energy(const ssm__recording_writer *writer, int64_t window, int64_t layer,
                              double *energy, ssm_error *err)
{
    const ssm_recording_info *info = &writer->head.info;
    const int64_t dims[3] = {info->n_heads, info->head_dim, info->d_state};
    const int64_t width = dims[0] * dims[1] * dims[2];
    char name[64];
    char number[24];
    char *path = NULL;
    ssm_safetensors *file = NULL;
    ssm__tensor_name(name, sizeof name, layer, "energy");
    snprintf(number, sizeof number, "%lld", (long long)window);
    SSM__TRY(join(writer, writer->head.windows[window].file, &path, err));
    ssm_status status = check_owned(writer, path, "window", number, &file, err);
    const ssm_tensor *tensor = status == SSM_STATUS_OK ? ssm_safetensors_find(file, name) : NULL;
    if (status == SSM_STATUS_OK && tensor == NULL) {
        status = ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                           "the tensor is missing: remove the file to have it made again");
    }
    if (status == SSM_STATUS_OK) {
        status = ssm__schema_check(tensor, path, SSM_DTYPE_F32, 3, dims, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm__check_finite(tensor, true, err);
    }
    if (status == SSM_STATUS_OK) {
        memset(energy, 0, (size_t)width * sizeof *energy);
        ssm__add_energies(tensor, width, energy);
    }
    ssm_safetensors_close(file);
    free(path);
    return status;
}

ssm_status ssm__recording_mean_energy(const ssm__recording_writer *writer, int64_t layer,
                                      double *mean, double *scratch, ssm_error *err)
{
    const ssm__head *head = &writer->head;
    const int64_t width = head->info.n_heads * head->info.head_dim * head->info.d_state;
    double count = 0.0;
    memset(mean, 0, (size_t)width * sizeof *mean);
    for (int64_t w = 0; w < head->n_windows; w++) {
        if (head->windows[w].role == SSM_ROLE_CALIBRATION) {
            SSM__TRY(read_energy(writer, w, layer, scratch, err));
            for (int64_t i = 0; i < width; i++) {
                mean[i] += scratch[i];
            }
            count += 1.0;
        }
    }
    for (int64_t i = 0; i < width && count > 0.0; i++) {
        mean[i] /= count;
    }
    return SSM_STATUS_OK;
}

/* ---- finish ---------------------------------------------------------------------------------- */

static ssm_status finish_sum(ssm__recording_writer *writer, int64_t k, ssm_error *err)
{
    const ssm__calibration *sum = &writer->head.calibrations[k];
    if (!writer->finished[k]) {
        SSM__TRY(ssm__sum_finish(writer->directory, &writer->head.info, sum, err));
        writer->finished[k] = true;
    }
    char *partial = NULL;
    SSM__TRY(join(writer, sum->partial, &partial, err));
    ssm_status status = SSM_STATUS_OK;
    if (unlink(partial) != 0 && errno != ENOENT) {
        status = ssm__fail_errno(err, SSM_STATUS_FAILED, partial, "cannot be removed", errno);
    }
    free(partial);
    return status;
}

ssm_status ssm__recording_finish(ssm__recording_writer *writer, ssm_error *err)
{
    const ssm__head *head = &writer->head;
    for (int64_t i = 0; i < head->n_windows; i++) {
        if (!ssm__recording_has(writer, i)) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(head->windows[i].file),
                             "the recording cannot be finished: this window is missing");
        }
    }
    for (int64_t k = 0; k < head->n_calibrations && head->info.has_gram; k++) {
        SSM__TRY(finish_sum(writer, k, err));
    }
    return SSM_STATUS_OK;
}
