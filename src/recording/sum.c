#include "recording/sum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "recording/schema.h"
#include "safetensors/write.h"

/* Entries that are converted or added at once: 16 KiB of float64, in the first-level cache. */
enum { PIECE = 2048, NAME_BYTES = 64 };

/* ---- checks --------------------------------------------------------------------------------- */

ssm_status ssm__check_named(const ssm_tensor *tensor, int64_t layer, const char *field,
                            ssm_dtype dtype, int n_dims, const int64_t *dims, ssm_error *err)
{
    char name[NAME_BYTES];
    ssm__tensor_name(name, sizeof name, layer, field);
    bool same = tensor->name != NULL && strcmp(tensor->name, name) == 0 && tensor->dtype == dtype &&
                tensor->n_dims == n_dims &&
                memcmp(tensor->dims, dims, (size_t)n_dims * sizeof *dims) == 0 &&
                tensor->data != NULL;
    return same ? SSM_STATUS_OK
                : ssm__fail(err, SSM_STATUS_USAGE, SSM__TENSOR(NULL, name),
                            "the writer was given another name, type or shape: '%s'",
                            tensor->name == NULL ? "" : tensor->name);
}

static const ssm_tensor *find(const ssm_tensor *tensors, int64_t count, const char *name)
{
    for (int64_t i = 0; i < count; i++) {
        if (tensors[i].name != NULL && strcmp(tensors[i].name, name) == 0) {
            return &tensors[i];
        }
    }
    return NULL;
}

/* One field, of a layer or (layer −1) of the window. */
static ssm_status check_field(const ssm_recording_info *info, int64_t tokens, int64_t layer,
                              const ssm__field *field, const ssm_tensor *tensors, int64_t count,
                              ssm_error *err)
{
    char name[NAME_BYTES];
    ssm__tensor_name(name, sizeof name, layer, field->name);
    const ssm_tensor *tensor = find(tensors, count, name);
    if (tensor == NULL) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__TENSOR(NULL, name),
                         "the writer was not given this tensor");
    }
    int64_t dims[SSM_MAX_DIMS];
    int n_dims = ssm__schema_shape(info, field, tokens, dims);
    return ssm__check_named(tensor, layer, field->name, field->dtype, n_dims, dims, err);
}

ssm_status ssm__check_window(const ssm_recording_info *info, int64_t tokens,
                             const ssm_tensor *tensors, int64_t count, const ssm_tensor *grams,
                             int64_t n_grams, ssm_error *err)
{
    int64_t expected = 0;
    for (const ssm__field *field = ssm__schema_fields(); field->name != NULL; field++) {
        if (strcmp(field->name, "gram") == 0 ||
            (field->mamba2_only && info->family != SSM_FAMILY_MAMBA2)) {
            continue;
        }
        for (int64_t i = 0; i < (field->of_layer ? info->n_recorded : 1); i++) {
            int64_t layer = field->of_layer ? info->layers[i] : -1;
            SSM__TRY(check_field(info, tokens, layer, field, tensors, count, err));
            expected++;
        }
    }
    int64_t expected_grams = info->has_gram ? info->n_recorded : 0;
    if (count != expected || n_grams != expected_grams) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the writer expected %lld tensors and %lld Grams, got %lld and %lld",
                         (long long)expected, (long long)expected_grams, (long long)count,
                         (long long)n_grams);
    }
    const int64_t dims[2] = {ssm_recording_channels(info), ssm__gram_entries(info->d_state)};
    for (int64_t i = 0; i < n_grams; i++) {
        SSM__TRY(ssm__check_named(&grams[i], info->layers[i], "gram", SSM_DTYPE_F64, 2, dims, err));
    }
    return SSM_STATUS_OK;
}

/* ---- streaming ------------------------------------------------------------------------------ */

/* Gives the pages of a mapped range back: a sum is read once, and memory must not grow with it. */
static void release_pages(const void *data, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)data & ~(page - 1);
    uintptr_t end = (uintptr_t)data + bytes;
    madvise((void *)begin, end - begin, MADV_DONTNEED); /* advice: failing costs memory only */
}

/* count float64 → float32, piece by piece. data may be unaligned. */
static ssm_status add_as_float(ssm__stream *stream, const void *data, int64_t count, ssm_error *err)
{
    float out[PIECE];
    for (int64_t begin = 0; begin < count; begin += PIECE) {
        int64_t piece = count - begin < PIECE ? count - begin : PIECE;
        for (int64_t i = 0; i < piece; i++) {
            double value;
            memcpy(&value, (const char *)data + (size_t)(begin + i) * sizeof value, sizeof value);
            out[i] = (float)value;
        }
        SSM__TRY(ssm__stream_add(stream, out, (size_t)piece * sizeof *out, err));
    }
    return SSM_STATUS_OK;
}

/* count entries of old + new as float64; old may be unaligned. */
static ssm_status add_sum(ssm__stream *stream, const void *old_data, const double *new_data,
                          int64_t count, ssm_error *err)
{
    double out[PIECE];
    for (int64_t begin = 0; begin < count; begin += PIECE) {
        int64_t piece = count - begin < PIECE ? count - begin : PIECE;
        memcpy(out, (const char *)old_data + (size_t)begin * sizeof *out,
               (size_t)piece * sizeof *out);
        for (int64_t i = 0; i < piece; i++) {
            out[i] += new_data[begin + i];
        }
        SSM__TRY(ssm__stream_add(stream, out, (size_t)piece * sizeof *out, err));
    }
    return SSM_STATUS_OK;
}

/* Commits on OK, removes what was written otherwise. */
static ssm_status close_stream(ssm__stream *stream, ssm_status status, ssm_error *err)
{
    if (status == SSM_STATUS_OK) {
        return ssm__stream_commit(stream, err);
    }
    ssm__stream_abort(stream);
    return status;
}

static ssm_tensor as_type(ssm_tensor tensor, ssm_dtype dtype)
{
    tensor.dtype = dtype;
    return tensor;
}

ssm_status ssm__write_window(const char *path, const ssm_recording_info *info,
                             const ssm_recording_window *about, int64_t window,
                             const ssm_tensor *tensors, int64_t count, const ssm_tensor *grams,
                             int64_t n_grams, ssm_error *err)
{
    char index[32];
    snprintf(index, sizeof index, "%lld", (long long)window);
    const ssm_metadata metadata[] = {
        {"schema", SSM__WINDOW_SCHEMA},
        {"recording", info->digest},
        {"window", index},
        {"domain", about->domain},
        {"role", about->role == SSM_ROLE_CALIBRATION ? "calibration" : "evaluation"}};
    ssm_tensor *all = malloc((size_t)(count + n_grams) * sizeof *all);
    if (all == NULL) {
        return ssm__fail_memory(err, "a window's list of tensors",
                                (size_t)(count + n_grams) * sizeof *all);
    }
    memcpy(all, tensors, (size_t)count * sizeof *all);
    for (int64_t i = 0; i < n_grams; i++) {
        all[count + i] = as_type(grams[i], SSM_DTYPE_F32);
    }
    ssm__stream *stream = NULL;
    ssm_status status = ssm__stream_open(path, all, count + n_grams, metadata, 5, &stream, err);
    free(all);
    SSM__TRY(status);
    for (int64_t i = 0; i < count && status == SSM_STATUS_OK; i++) {
        size_t bytes = (size_t)ssm_tensor_count(&tensors[i]) * ssm_dtype_size(tensors[i].dtype);
        status = ssm__stream_add(stream, tensors[i].data, bytes, err);
    }
    for (int64_t i = 0; i < n_grams && status == SSM_STATUS_OK; i++) {
        status = add_as_float(stream, grams[i].data, ssm_tensor_count(&grams[i]), err);
    }
    return close_stream(stream, status, err);
}

/* ---- the sum of a domain -------------------------------------------------------------------- */

ssm_status ssm__sum_count(const ssm_safetensors *file, const char *path, int64_t most, int64_t *out,
                          ssm_error *err)
{
    const char *text = ssm_safetensors_metadata(file, "windows");
    char *end = NULL;
    long long count = text == NULL || text[0] < '0' || text[0] > '9' ? -1 : strtoll(text, &end, 10);
    if (count < 1 || count > most || *end != '\0') {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, "windows"),
                         "expected metadata that says how many of the %lld windows are summed",
                         (long long)most);
    }
    *out = (int64_t)count;
    return SSM_STATUS_OK;
}

/* Opens a partial sum and checks that its tensors are those of the recording, in order. */
static ssm_status open_sum(const char *path, const ssm_recording_info *info,
                           const ssm__calibration *sum, int64_t expected, ssm_safetensors **out,
                           ssm_error *err)
{
    int64_t found = 0;
    const int64_t dims[2] = {ssm_recording_channels(info), ssm__gram_entries(info->d_state)};
    SSM__TRY(ssm_safetensors_open(path, false, out, err));
    ssm_status status = ssm__sum_count(*out, path, sum->windows, &found, err);
    if (status == SSM_STATUS_OK && found != expected) {
        status = ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                           "the sum holds %lld windows, expected %lld", (long long)found,
                           (long long)expected);
    }
    for (int64_t i = 0; i < info->n_recorded && status == SSM_STATUS_OK; i++) {
        char name[NAME_BYTES];
        ssm__tensor_name(name, sizeof name, info->layers[i], "gram");
        const ssm_tensor *tensor = ssm_safetensors_find(*out, name);
        status = tensor == NULL ? ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                                            "the tensor is missing: the file is damaged")
                                : ssm__schema_check(tensor, path, SSM_DTYPE_F64, 2, dims, err);
    }
    if (status != SSM_STATUS_OK) {
        ssm_safetensors_close(*out);
        *out = NULL;
    }
    return status;
}

static ssm_status stream_sum(ssm__stream *stream, const ssm_safetensors *old_file,
                             const ssm_tensor *grams, int64_t n_grams, ssm_error *err)
{
    for (int64_t i = 0; i < n_grams; i++) {
        int64_t count = ssm_tensor_count(&grams[i]);
        if (old_file == NULL) {
            SSM__TRY(ssm__stream_add(stream, grams[i].data, (size_t)count * sizeof(double), err));
            continue;
        }
        const ssm_tensor *old_gram = ssm_safetensors_find(old_file, grams[i].name);
        SSM__TRY(add_sum(stream, old_gram->data, grams[i].data, count, err));
        release_pages(old_gram->data, old_gram->bytes);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__sum_add(const char *directory, const ssm_recording_info *info,
                        const ssm__calibration *sum, const ssm_tensor *grams, int64_t n_grams,
                        int64_t before, ssm_error *err)
{
    char windows[32];
    snprintf(windows, sizeof windows, "%lld", (long long)before + 1);
    const ssm_metadata metadata[] = {{"schema", SSM__SUM_SCHEMA},
                                     {"recording", info->digest},
                                     {"domain", sum->domain},
                                     {"windows", windows}};
    char *path = ssm__path_join(directory, sum->partial);
    if (path == NULL) {
        return ssm__fail_memory(err, "a path", strlen(sum->partial));
    }
    ssm_safetensors *old_file = NULL;
    ssm__stream *stream = NULL;
    ssm_status status =
        before == 0 ? SSM_STATUS_OK : open_sum(path, info, sum, before, &old_file, err);
    if (status == SSM_STATUS_OK) {
        status = ssm__stream_open(path, grams, n_grams, metadata, 4, &stream, err);
    }
    if (status == SSM_STATUS_OK) {
        status = close_stream(stream, stream_sum(stream, old_file, grams, n_grams, err), err);
    }
    ssm_safetensors_close(old_file);
    free(path);
    return status;
}

/* Streams the float64 sum as float32. */
static ssm_status write_final(const char *path, const ssm_safetensors *partial,
                              const ssm_recording_info *info, const ssm__calibration *sum,
                              ssm_error *err)
{
    char windows[32];
    snprintf(windows, sizeof windows, "%lld", (long long)sum->windows);
    const ssm_metadata metadata[] = {{"schema", SSM__SUM_SCHEMA},
                                     {"recording", info->digest},
                                     {"domain", sum->domain},
                                     {"windows", windows}};
    ssm_tensor *tensors = malloc((size_t)info->n_recorded * sizeof *tensors);
    if (tensors == NULL) {
        return ssm__fail_memory(err, "a list of tensors",
                                (size_t)info->n_recorded * sizeof *tensors);
    }
    for (int64_t i = 0; i < info->n_recorded; i++) {
        char name[NAME_BYTES];
        ssm__tensor_name(name, sizeof name, info->layers[i], "gram");
        tensors[i] = as_type(*ssm_safetensors_find(partial, name), SSM_DTYPE_F32);
    }
    ssm__stream *stream = NULL;
    ssm_status status =
        ssm__stream_open(path, tensors, info->n_recorded, metadata, 4, &stream, err);
    if (status == SSM_STATUS_OK) {
        for (int64_t i = 0; i < info->n_recorded && status == SSM_STATUS_OK; i++) {
            status = add_as_float(stream, tensors[i].data, ssm_tensor_count(&tensors[i]), err);
            release_pages(tensors[i].data, tensors[i].bytes);
        }
        status = close_stream(stream, status, err);
    }
    free(tensors);
    return status;
}

ssm_status ssm__sum_finish(const char *directory, const ssm_recording_info *info,
                           const ssm__calibration *sum, ssm_error *err)
{
    char *partial_path = ssm__path_join(directory, sum->partial);
    char *path = ssm__path_join(directory, sum->file);
    ssm_safetensors *partial = NULL;
    ssm_status status = partial_path == NULL || path == NULL
                            ? ssm__fail_memory(err, "a path", strlen(sum->file))
                            : open_sum(partial_path, info, sum, sum->windows, &partial, err);
    if (status == SSM_STATUS_OK) {
        status = write_final(path, partial, info, sum, err);
    }
    ssm_safetensors_close(partial);
    free(partial_path);
    free(path);
    return status;
}
