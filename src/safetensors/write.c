#include "safetensors/write.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "safetensors/dtype.h"
#include "safetensors/read.h"

struct ssm__stream {
    ssm__writer *writer;
    char *path;
    uint64_t expected; /* bytes of the buffer by the header */
    uint64_t added;
};

static ssm_status no_header_memory(ssm_error *err)
{
    return ssm__fail_memory(err, "a safetensors header", 0);
}

static json_t *entry_of(const ssm_tensor *tensor, uint64_t begin, uint64_t end)
{
    json_t *shape = json_array();
    for (int i = 0; i < tensor->n_dims; i++) {
        json_array_append_new(shape, json_integer(tensor->dims[i]));
    }
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", ssm_dtype_name(tensor->dtype),
                              "shape", shape, "data_offsets", (json_int_t)begin, (json_int_t)end);
    if (entry != NULL && json_array_size(shape) != (size_t)tensor->n_dims) {
        json_decref(entry);
        return NULL;
    }
    return entry;
}

static ssm_status add_metadata(json_t *header, const char *path, const ssm_metadata *metadata,
                               int64_t count, ssm_error *err)
{
    if (count == 0) {
        return SSM_STATUS_OK;
    }
    json_t *object = json_object();
    if (json_object_set_new(header, "__metadata__", object) != 0) {
        return no_header_memory(err);
    }
    for (int64_t i = 0; i < count; i++) {
        if (!ssm__is_utf8(metadata[i].key) || !ssm__is_utf8(metadata[i].value)) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__TENSOR(path, "__metadata__"),
                             "entry %" PRId64 " is not valid UTF-8", i);
        }
        if (json_object_set_new(object, metadata[i].key, json_string(metadata[i].value)) != 0) {
            return no_header_memory(err);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status check_tensor(const json_t *header, const char *path, const ssm_tensor *tensor,
                               size_t *bytes, ssm_error *err)
{
    if (tensor->name == NULL || strcmp(tensor->name, "__metadata__") == 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(path),
                         "a tensor has no name, or the reserved name __metadata__");
    }
    if (!ssm__is_utf8(tensor->name)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(path),
                         "the name of a tensor is not valid UTF-8");
    }
    if (json_object_get(header, tensor->name) != NULL) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__TENSOR(path, tensor->name),
                         "two tensors have this name");
    }
    if ((unsigned)tensor->dtype >= SSM_DTYPE_COUNT || tensor->n_dims < 0 ||
        tensor->n_dims > SSM_MAX_DIMS || !ssm__tensor_bytes(tensor, bytes)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__TENSOR(path, tensor->name),
                         "the tensor's type or shape is not valid");
    }
    return SSM_STATUS_OK;
}

static ssm_status fill_header(json_t *header, const char *path, const ssm_tensor *tensors,
                              int64_t count, uint64_t *total, ssm_error *err)
{
    size_t end = 0;
    for (int64_t i = 0; i < count; i++) {
        size_t bytes = 0;
        SSM__TRY(check_tensor(header, path, &tensors[i], &bytes, err));
        size_t begin = end;
        if (!ssm__add_size(begin, bytes, &end) || end > INT64_MAX) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__TENSOR(path, tensors[i].name),
                             "the file would have more bytes than 63 bits can count");
        }
        if (json_object_set_new(header, tensors[i].name, entry_of(&tensors[i], begin, end)) != 0) {
            return no_header_memory(err);
        }
    }
    *total = end;
    return SSM_STATUS_OK;
}

/* Length, JSON and padding in one block: 8 + length is a multiple of 64. */
static ssm_status write_header(ssm__stream *stream, const json_t *header, ssm_error *err)
{
    size_t bytes = json_dumpb(header, NULL, 0, JSON_COMPACT);
    if (bytes == 0) {
        return no_header_memory(err);
    }
    size_t total = (8 + bytes + 63) / 64 * 64;
    if (total - 8 > SSM__HEADER_MAX) {
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__IN_FILE(stream->path),
                         "the header would have %zu bytes, the format's limit is %d", total - 8,
                         SSM__HEADER_MAX);
    }
    char *block = malloc(total);
    if (block == NULL) {
        return ssm__fail_memory(err, "a safetensors header", total);
    }
    for (int i = 0; i < 8; i++) {
        block[i] = (char)((uint64_t)(total - 8) >> (8 * i) & 0xff);
    }
    memset(block + 8, ' ', total - 8);
    ssm_status status = json_dumpb(header, block + 8, bytes, JSON_COMPACT) == bytes
                            ? ssm__writer_write(stream->writer, block, total, err)
                            : no_header_memory(err);
    free(block);
    return status;
}

static ssm_status start(ssm__stream *stream, const ssm_tensor *tensors, int64_t count,
                        const ssm_metadata *metadata, int64_t metadata_count, ssm_error *err)
{
    json_t *header = json_object();
    if (header == NULL) {
        return no_header_memory(err);
    }
    ssm_status status = add_metadata(header, stream->path, metadata, metadata_count, err);
    if (status == SSM_STATUS_OK) {
        status = fill_header(header, stream->path, tensors, count, &stream->expected, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm__writer_open(stream->path, &stream->writer, err);
    }
    if (status == SSM_STATUS_OK) {
        status = write_header(stream, header, err);
    }
    json_decref(header);
    return status;
}

ssm_status ssm__stream_open(const char *path, const ssm_tensor *tensors, int64_t count,
                            const ssm_metadata *metadata, int64_t metadata_count, ssm__stream **out,
                            ssm_error *err)
{
    *out = NULL;
    ssm__stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL || (stream->path = strdup(path)) == NULL) {
        free(stream);
        return ssm__fail_memory(err, "a safetensors writer", sizeof *stream);
    }
    ssm_status status = start(stream, tensors, count, metadata, metadata_count, err);
    if (status != SSM_STATUS_OK) {
        ssm__stream_abort(stream);
        return status;
    }
    *out = stream;
    return SSM_STATUS_OK;
}

ssm_status ssm__stream_add(ssm__stream *stream, const void *data, size_t bytes, ssm_error *err)
{
    stream->added += bytes;
    return bytes == 0 ? SSM_STATUS_OK : ssm__writer_write(stream->writer, data, bytes, err);
}

ssm_status ssm__stream_commit(ssm__stream *stream, ssm_error *err)
{
    ssm_status status;
    if (stream->added == stream->expected) {
        status = ssm__writer_commit(stream->writer, err);
        stream->writer = NULL;
    } else {
        status = ssm__fail(err, SSM_STATUS_FAILED, SSM__IN_FILE(stream->path),
                           "%" PRIu64 " bytes of data were written, the header says %" PRIu64,
                           stream->added, stream->expected);
    }
    ssm__stream_abort(stream);
    return status;
}

void ssm__stream_abort(ssm__stream *stream)
{
    if (stream == NULL) {
        return;
    }
    ssm__writer_abort(stream->writer);
    free(stream->path);
    free(stream);
}

ssm_status ssm_safetensors_write(const char *path, const ssm_tensor *tensors, int64_t count,
                                 const ssm_metadata *metadata, int64_t metadata_count,
                                 ssm_error *err)
{
    ssm__stream *stream;
    SSM__TRY(ssm__stream_open(path, tensors, count, metadata, metadata_count, &stream, err));
    for (int64_t i = 0; i < count; i++) {
        size_t bytes = 0;
        ssm__tensor_bytes(&tensors[i], &bytes); /* it was valid for the header */
        ssm_status status = ssm__stream_add(stream, tensors[i].data, bytes, err);
        if (status != SSM_STATUS_OK) {
            ssm__stream_abort(stream);
            return status;
        }
    }
    return ssm__stream_commit(stream, err);
}
