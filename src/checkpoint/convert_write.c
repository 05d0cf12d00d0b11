/* The files of a conversion: shards written tensor by tensor and block by block, and their index.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/half.h"
#include "base/json.h"
#include "checkpoint/convert.h"
#include "checkpoint/tensor.h"
#include "safetensors/write.h"
#include "torch/write.h"

enum { BLOCK = 1 << 16 }; /* elements converted at a time */

/* One of the two writers. */
typedef struct sink {
    ssm__stream *safetensors;
    ssm__torch_stream *torch;
} sink;

static ssm_status sink_open(const ssm__conversion *job, const char *path, const ssm_tensor *tensors,
                            int64_t count, sink *out, ssm_error *err)
{
    enum { MAX = 16 };
    ssm_metadata metadata[MAX] = {{"format", "pt"}}; /* others refuse a file without it */
    const ssm__changes *changes = job->changes;
    int64_t n_metadata = 1;
    for (int64_t i = 0; changes != NULL && i < changes->n_metadata && n_metadata < MAX; i++) {
        metadata[n_metadata++] = changes->metadata[i];
    }
    *out = (sink){0};
    return job->options->container == SSM_CONTAINER_TORCH
               ? ssm__torch_stream_open(path, tensors, count, &out->torch, err)
               : ssm__stream_open(path, tensors, count, metadata, n_metadata, &out->safetensors,
                                  err);
}

static ssm_status sink_add(sink *to, const void *data, size_t bytes, ssm_error *err)
{
    return to->torch != NULL ? ssm__torch_stream_add(to->torch, data, bytes, err)
                             : ssm__stream_add(to->safetensors, data, bytes, err);
}

static ssm_status sink_commit(sink *to, ssm_error *err)
{
    return to->torch != NULL ? ssm__torch_stream_commit(to->torch, err)
                             : ssm__stream_commit(to->safetensors, err);
}

static void sink_abort(sink *to)
{
    ssm__torch_stream_abort(to->torch);
    ssm__stream_abort(to->safetensors);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static ssm_status report(ssm__conversion *job, size_t bytes, ssm_error *err)
{
    job->done += (int64_t)bytes;
    const char *task = job->changes != NULL ? job->changes->task : "convert";
    if (job->progress != NULL && job->progress->report != NULL &&
        !job->progress->report(job->progress->context, task, job->done, job->total, "bytes")) {
        return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                         "interrupted; nothing was written");
    }
    return SSM_STATUS_OK;
}

/* A finite weight that F16 or BF16 would make infinite is refused: it would be another model. */
static ssm_status check_range(const ssm__written_tensor *tensor, const float *from,
                              const uint16_t *to, int64_t first, int64_t count, ssm_error *err)
{
    const uint16_t exponent = tensor->out.dtype == SSM_DTYPE_F16 ? 0x7c00 : 0x7f80;
    for (int64_t i = 0; i < count; i++) {
        if ((to[i] & exponent) == exponent && isfinite(from[i])) {
            return ssm__fail(err, SSM_STATUS_FILE,
                             SSM__TENSOR(tensor->from->file, tensor->from->name),
                             "element %" PRId64 " is %.9g, which is beyond the range of %s; choose "
                             "another dtype",
                             first + i, (double)from[i], ssm_dtype_name(tensor->out.dtype));
        }
    }
    return SSM_STATUS_OK;
}

/* Elements first … first+count−1 of a cut tensor, gathered in runs of what lies behind the axis. */
static void gather(const ssm__written_tensor *tensor, int64_t first, int64_t count, void *out)
{
    const ssm__cut *cut = &tensor->cut;
    const ssm_tensor *from = tensor->from;
    const size_t size = ssm_dtype_size(tensor->out.dtype);
    int64_t inner = 1;
    for (int d = cut->axis + 1; d < from->n_dims; d++) {
        inner *= from->dims[d];
    }
    for (int64_t done = 0; done < count;) {
        const int64_t within = (first + done) % inner;
        const int64_t row = (first + done) / inner;
        const int64_t k = row % cut->count;
        const int64_t place = cut->from != NULL ? cut->from[k] : k;
        const int64_t at = (row / cut->count * from->dims[cut->axis] + place) * inner + within;
        const int64_t run = inner - within < count - done ? inner - within : count - done;
        if (cut->factor == NULL) {
            memcpy((char *)out + (size_t)done * size, (const char *)from->data + (size_t)at * size,
                   (size_t)run * size);
        } else {
            float *products = (float *)out + done;
            ssm__tensor_range_to_f32(from, at, run, products);
            for (int64_t i = 0; i < run; i++) {
                products[i] *= cut->factor[k];
            }
        }
        done += run;
    }
}

/* Elements first … first+count−1 in the new type: *data and *bytes. */
static ssm_status convert_block(const ssm__conversion *job, const ssm__written_tensor *tensor,
                                int64_t first, int64_t count, const void **data, size_t *bytes,
                                ssm_error *err)
{
    const ssm_dtype dtype = tensor->out.dtype;
    *bytes = (size_t)count * ssm_dtype_size(dtype);
    if (tensor->cut.count > 0) {
        gather(tensor, first, count, job->block);
        *data = job->block;
        return SSM_STATUS_OK;
    }
    if (dtype == tensor->from->dtype && !tensor->edited) {
        *data = (const char *)tensor->from->data + (size_t)first * ssm_dtype_size(dtype);
        return SSM_STATUS_OK;
    }
    float *wide = job->block;
    ssm__tensor_range_to_f32(tensor->from, first, count, wide);
    if (tensor->edited) {
        SSM__TRY(job->changes->edit(job->changes->editor, tensor->place, first, count, wide, err));
    }
    *data = wide;
    if (dtype == SSM_DTYPE_F32) {
        return SSM_STATUS_OK;
    }
    uint16_t *narrow = (uint16_t *)(void *)(wide + BLOCK);
    for (int64_t i = 0; i < count; i++) {
        narrow[i] =
            dtype == SSM_DTYPE_F16 ? ssm__f16_from_f32(wide[i]) : ssm__bf16_from_f32(wide[i]);
    }
    *data = narrow;
    return check_range(tensor, wide, narrow, first, count, err);
}

static ssm_status write_tensor(ssm__conversion *job, sink *to, const ssm__written_tensor *tensor,
                               ssm_error *err)
{
    const int64_t elements = ssm_tensor_count(&tensor->out);
    for (int64_t first = 0; first < elements; first += BLOCK) {
        const int64_t count = elements - first < BLOCK ? elements - first : BLOCK;
        const void *data;
        size_t bytes;
        SSM__TRY(convert_block(job, tensor, first, count, &data, &bytes, err));
        SSM__TRY(sink_add(to, data, bytes, err));
        SSM__TRY(report(job, bytes, err));
    }
    return SSM_STATUS_OK;
}

/* ---- shards ---------------------------------------------------------------------------------- */

void ssm__convert_shard_name(const ssm__conversion *job, int64_t shard, char out[64])
{
    const bool torch = job->options->container == SSM_CONTAINER_TORCH;
    const char *stem = torch ? "pytorch_model" : "model";
    const char *end = torch ? "bin" : "safetensors";
    if (job->n_shards == 1) {
        snprintf(out, 64, "%s.%s", stem, end);
    } else {
        snprintf(out, 64, "%s-%05" PRId64 "-of-%05" PRId64 ".%s", stem, shard + 1, job->n_shards,
                 end);
    }
}

static ssm_status write_data(ssm__conversion *job, sink *to, const ssm__written_tensor *tensors,
                             int64_t count, ssm_error *err)
{
    for (int64_t i = 0; i < count; i++) {
        const bool shares = to->torch != NULL && ssm__torch_stream_shares(to->torch, i) >= 0;
        if (!shares) {
            SSM__TRY(write_tensor(job, to, &tensors[i], err));
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status write_shard_at(ssm__conversion *job, const char *path,
                                 const ssm__written_tensor *tensors, int64_t count, ssm_error *err)
{
    ssm_tensor *list = calloc((size_t)count + 1, sizeof *list);
    if (list == NULL) {
        return ssm__fail_memory(err, "a list of tensors", (size_t)count * sizeof *list);
    }
    for (int64_t i = 0; i < count; i++) {
        list[i] = tensors[i].out;
    }
    sink to;
    ssm_status status = sink_open(job, path, list, count, &to, err);
    if (status == SSM_STATUS_OK) {
        status = write_data(job, &to, tensors, count, err);
        if (status == SSM_STATUS_OK) {
            status = sink_commit(&to, err);
        } else {
            sink_abort(&to);
        }
    }
    free(list);
    return status;
}

static ssm_status write_shard(ssm__conversion *job, int64_t shard, ssm_error *err)
{
    int64_t first = 0;
    while (first < job->count && job->tensors[first].shard != shard) {
        first++;
    }
    int64_t count = 0;
    while (first + count < job->count && job->tensors[first + count].shard == shard) {
        count++;
    }
    char name[64];
    ssm__convert_shard_name(job, shard, name);
    char *path = ssm__path_join(job->directory, name);
    if (path == NULL) {
        return ssm__fail_memory(err, "a path", strlen(name));
    }
    ssm_status status = write_shard_at(job, path, job->tensors + first, count, err);
    free(path);
    return status;
}

static json_t *build_index(const ssm__conversion *job)
{
    json_t *map = json_object();
    bool good = map != NULL;
    for (int64_t i = 0; good && i < job->count; i++) {
        char name[64];
        ssm__convert_shard_name(job, job->tensors[i].shard, name);
        good = json_object_set_new(map, job->tensors[i].name, json_string(name)) == 0;
    }
    if (!good) {
        json_decref(map);
        return NULL;
    }
    return json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)job->total,
                     "weight_map", map);
}

static ssm_status write_index(const ssm__conversion *job, ssm_error *err)
{
    const bool torch = job->options->container == SSM_CONTAINER_TORCH;
    return ssm__json_write(build_index(job), JSON_INDENT(2), job->directory,
                           torch ? "pytorch_model.bin.index.json" : "model.safetensors.index.json",
                           err);
}

ssm_status ssm__convert_write(ssm__conversion *job, ssm_error *err)
{
    job->block = malloc(BLOCK * (sizeof(float) + sizeof(uint16_t)));
    if (job->block == NULL) {
        return ssm__fail_memory(err, "a block of weights", BLOCK * sizeof(float));
    }
    for (int64_t shard = 0; shard < job->n_shards; shard++) {
        SSM__TRY(write_shard(job, shard, err));
    }
    return job->n_shards == 1 ? SSM_STATUS_OK : write_index(job, err);
}
