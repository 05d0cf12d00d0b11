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

/* ---- streaming ------------------------------------------------------------------------------- */

/* Gives the pages of a mapped range back: a sum is read once, and memory must not grow with it. */
static void release_pages(const void *data, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)data & ~(page - 1);
    uintptr_t end = (uintptr_t)data + bytes;
    madvise((void *)begin, end - begin, MADV_DONTNEED); /* advice: failing costs memory only */
}

ssm_status ssm__sum_write_float(ssm__stream *stream, const void *data, int64_t count,
                                ssm_error *err)
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

/* ---- the sum of a domain --------------------------------------------------------------------- */

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

ssm_status ssm__sum_put(ssm__stream *stream, const ssm_safetensors *old_sum, const ssm_tensor *gram,
                        ssm_error *err)
{
    int64_t count = ssm_tensor_count(gram);
    if (old_sum == NULL) {
        return ssm__stream_add(stream, gram->data, (size_t)count * sizeof(double), err);
    }
    const ssm_tensor *old_gram = ssm_safetensors_find(old_sum, gram->name);
    SSM__TRY(add_sum(stream, old_gram->data, gram->data, count, err));
    release_pages(old_gram->data, old_gram->bytes);
    return SSM_STATUS_OK;
}

/* The list of float64 (or, finished, float32) Grams of a sum. names, tensors: n_recorded each. */
static void list_grams(const ssm_recording_info *info, ssm_dtype dtype, char (*names)[NAME_BYTES],
                       ssm_tensor *tensors)
{
    for (int64_t i = 0; i < info->n_recorded; i++) {
        ssm__tensor_name(names[i], NAME_BYTES, info->layers[i], "gram");
        tensors[i] =
            (ssm_tensor){.name = names[i],
                         .dtype = dtype,
                         .n_dims = 2,
                         .dims = {ssm_recording_channels(info), ssm__gram_entries(info->d_state)}};
    }
}

/* Starts a file of Grams of `windows` windows. */
static ssm_status start_sum(const char *path, const ssm_recording_info *info,
                            const ssm__calibration *sum, int64_t windows, ssm_dtype dtype,
                            ssm__stream **out, ssm_error *err)
{
    char count[32];
    snprintf(count, sizeof count, "%lld", (long long)windows);
    const ssm_metadata metadata[] = {{"schema", SSM__SUM_SCHEMA},
                                     {"recording", info->digest},
                                     {"domain", sum->domain},
                                     {"windows", count}};
    size_t layers = (size_t)info->n_recorded;
    char(*names)[NAME_BYTES] = calloc(layers + 1, sizeof *names);
    ssm_tensor *tensors = calloc(layers + 1, sizeof *tensors);
    ssm_status status;
    if (names == NULL || tensors == NULL) {
        status = ssm__fail_memory(err, "a list of tensors", layers * sizeof *tensors);
    } else {
        list_grams(info, dtype, names, tensors);
        status = ssm__stream_open(path, tensors, info->n_recorded, metadata, 4, out, err);
    }
    free(names);
    free(tensors);
    return status;
}

ssm_status ssm__sum_open(const char *directory, const ssm_recording_info *info,
                         const ssm__calibration *sum, int64_t before, ssm_safetensors **old_sum,
                         ssm__stream **stream, ssm_error *err)
{
    char *path = ssm__path_join(directory, sum->partial);
    if (path == NULL) {
        return ssm__fail_memory(err, "a path", strlen(sum->partial));
    }
    ssm_status status =
        before == 0 ? SSM_STATUS_OK : open_sum(path, info, sum, before, old_sum, err);
    if (status == SSM_STATUS_OK) {
        status = start_sum(path, info, sum, before + 1, SSM_DTYPE_F64, stream, err);
    }
    free(path);
    return status;
}

/* Streams the float64 sum as float32. */
static ssm_status write_final(const char *path, const ssm_safetensors *partial,
                              const ssm_recording_info *info, const ssm__calibration *sum,
                              ssm_error *err)
{
    ssm__stream *stream = NULL;
    SSM__TRY(start_sum(path, info, sum, sum->windows, SSM_DTYPE_F32, &stream, err));
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; i < info->n_recorded && status == SSM_STATUS_OK; i++) {
        char name[NAME_BYTES];
        ssm__tensor_name(name, sizeof name, info->layers[i], "gram");
        const ssm_tensor *gram = ssm_safetensors_find(partial, name);
        status = ssm__sum_write_float(stream, gram->data, ssm_tensor_count(gram), err);
        release_pages(gram->data, gram->bytes);
    }
    return close_stream(stream, status, err);
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
