/* The format: u64 little-endian length n of the header; n bytes of JSON that begin with '{' and may
 * end in spaces; the buffer. Offsets count from the end of the header, and the tensors cover the
 * buffer exactly: no hole, no overlap, nothing after the last. Source: the specification in the
 * safetensors project's README. */
#include "safetensors/read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/foreign.h"
#include "base/json.h"
#include "safetensors/dtype.h"
#include "safetensors/names.h"

static const char metadata_key[] = "__metadata__";

/* ---- one entry of the header ----------------------------------------------------------------- */

static ssm_status read_dtype(const char *path, const char *name, const json_t *entry,
                             ssm_dtype *out, ssm_error *err)
{
    const json_t *value = json_object_get(entry, "dtype");
    if (!json_is_string(value)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                         "the header's entry has %s; expected a type name such as \"F32\"",
                         value == NULL ? "no dtype" : "a dtype that is not a string");
    }
    const char *text = json_string_value(value);
    if (ssm__dtype_parse(text, out)) {
        return SSM_STATUS_OK;
    }
    if (ssm__dtype_known_unsupported(text)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                         "dtype %s is not supported; convert the tensor to F32, F16 or BF16", text);
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                     "unknown dtype \"%s\"; expected F64, F32, F16, BF16, I64 … U8 or BOOL", text);
}

static ssm_status read_shape(const char *path, const char *name, const json_t *entry,
                             ssm_tensor *tensor, ssm_error *err)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                         "the header's entry has %s; expected a list of dimensions",
                         shape == NULL ? "no shape" : "a shape that is not a list");
    }
    if (json_array_size(shape) > SSM_MAX_DIMS) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                         "the tensor has %zu dimensions; at most %d are supported",
                         json_array_size(shape), SSM_MAX_DIMS);
    }
    tensor->n_dims = (int)json_array_size(shape);
    for (int i = 0; i < tensor->n_dims; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                             "dimension %d of the shape is not a whole number of 0 or more", i);
        }
        tensor->dims[i] = (int64_t)json_integer_value(dim);
    }
    return SSM_STATUS_OK;
}

/* Fills bytes and file_offset (still relative to the buffer). */
static ssm_status read_offsets(const char *path, const char *name, const json_t *entry,
                               ssm_tensor *tensor, ssm_error *err)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0);
    const json_t *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                         "the header's entry has %s; expected two byte offsets [begin, end]",
                         offsets == NULL ? "no data_offsets" : "malformed data_offsets");
    }
    int64_t first = (int64_t)json_integer_value(begin);
    int64_t last = (int64_t)json_integer_value(end);
    if (first < 0 || last < first) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                         "data_offsets [%" PRId64 ", %" PRId64
                         "] run backwards or are negative; expected 0 ≤ begin ≤ end",
                         first, last);
    }
    char shape[256];
    ssm__shape_text(tensor->dims, tensor->n_dims, shape, sizeof shape);
    size_t bytes;
    if (!ssm__tensor_bytes(tensor, &bytes)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                         "shape %s of %s has more bytes than 63 bits can count", shape,
                         ssm_dtype_name(tensor->dtype));
    }
    if ((uint64_t)(last - first) != bytes) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                         "shape %s of %s needs %zu bytes, data_offsets [%" PRId64 ", %" PRId64
                         "] give %" PRId64,
                         shape, ssm_dtype_name(tensor->dtype), bytes, first, last, last - first);
    }
    tensor->bytes = bytes;
    tensor->file_offset = first;
    return SSM_STATUS_OK;
}

static ssm_status read_entry(const char *path, const char *name, const json_t *entry,
                             ssm_tensor *tensor, ssm_error *err)
{
    if (!json_is_object(entry)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                         "the header's entry is not an object with dtype, shape, data_offsets");
    }
    *tensor = (ssm_tensor){.name = name, .file = path};
    SSM__TRY(read_dtype(path, name, entry, &tensor->dtype, err));
    SSM__TRY(read_shape(path, name, entry, tensor, err));
    return read_offsets(path, name, entry, tensor, err);
}

static ssm_status check_metadata(const char *path, json_t *metadata, ssm_error *err)
{
    if (!json_is_object(metadata)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, metadata_key),
                         "__metadata__ is not an object of strings");
    }
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value)) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, metadata_key),
                             "the value of \"%s\" in __metadata__ is not a string", key);
        }
    }
    return SSM_STATUS_OK;
}

/* ---- the header ------------------------------------------------------------------------------ */

static ssm_status find_header(const char *path, const unsigned char *data, size_t size,
                              uint64_t *length, ssm_error *err)
{
    SSM__TRY(ssm__refuse_foreign(path, data, size, err));
    if (size < 8) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(path, 0),
                         "the file has %zu bytes; a safetensors file has at least 10: it is empty "
                         "or truncated",
                         size);
    }
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) {
        n = n << 8 | data[i];
    }
    if (n > SSM__HEADER_MAX) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(path, 0),
                         "the header length is %" PRIu64
                         " bytes, the limit is %d: not a safetensors file",
                         n, SSM__HEADER_MAX);
    }
    if (n < 2) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(path, 0),
                         "the header length is %" PRIu64
                         "; the smallest header is {}: an incomplete download or not a "
                         "safetensors file",
                         n);
    }
    if (n > size - 8) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(path, 8),
                         "the header has %" PRIu64
                         " bytes but only %zu follow its length: the file is truncated",
                         n, size - 8);
    }
    if (data[8] != '{') {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(path, 8),
                         "the header begins with byte 0x%02x; expected '{'", data[8]);
    }
    *length = n;
    return SSM_STATUS_OK;
}

static ssm_status read_entries(ssm_safetensors *file, ssm_error *err)
{
    size_t size = json_object_size(file->header);
    file->tensors = calloc(size + 1, sizeof *file->tensors);
    file->by_name = calloc(size + 1, sizeof(ssm_tensor *));
    if (file->tensors == NULL || file->by_name == NULL) {
        return ssm__fail_memory(err, "the list of tensors", (size + 1) * sizeof *file->tensors);
    }
    const char *name;
    json_t *entry;
    json_object_foreach(file->header, name, entry)
    {
        if (strcmp(name, metadata_key) == 0) {
            SSM__TRY(check_metadata(file->path, entry, err));
            continue;
        }
        SSM__TRY(read_entry(file->path, name, entry, &file->tensors[file->count], err));
        file->count++;
    }
    return SSM_STATUS_OK;
}

/* ---- the buffer ------------------------------------------------------------------------------ */

/* By place; an empty tensor stands before a full one at the same place; then by name. */
static int compare_places(const void *left, const void *right)
{
    const ssm_tensor *a = left;
    const ssm_tensor *b = right;
    if (a->file_offset != b->file_offset) {
        return a->file_offset < b->file_offset ? -1 : 1;
    }
    if (a->bytes != b->bytes) {
        return a->bytes < b->bytes ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

static ssm_status check_gap(const ssm_safetensors *file, const ssm_tensor *tensor,
                            const ssm_tensor *before, int64_t end, int64_t buffer, ssm_error *err)
{
    if (tensor->file_offset > end) {
        return ssm__fail(err, SSM_STATUS_FILE,
                         ((ssm__place){file->path, tensor->name, buffer + end}),
                         "hole of %" PRId64 " bytes before the tensor: it begins at %" PRId64
                         ", the data before it end at %" PRId64,
                         tensor->file_offset - end, tensor->file_offset, end);
    }
    if (tensor->file_offset < end) {
        return ssm__fail(err, SSM_STATUS_FILE,
                         ((ssm__place){file->path, tensor->name, buffer + tensor->file_offset}),
                         "the tensor begins at %" PRId64 " and overlaps %s, which ends at %" PRId64,
                         tensor->file_offset, before->name, end);
    }
    return SSM_STATUS_OK;
}

static ssm_status place_tensors(ssm_safetensors *file, const unsigned char *data, size_t size,
                                size_t buffer, bool lenient, ssm_error *err)
{
    qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, compare_places);
    int64_t end = 0;
    for (int64_t i = 0; i < file->count; i++) {
        ssm_tensor *tensor = &file->tensors[i];
        SSM__TRY(check_gap(file, tensor, tensor - 1, end, (int64_t)buffer, err));
        end = tensor->file_offset + (int64_t)tensor->bytes;
    }
    uint64_t present = size - buffer;
    if ((uint64_t)end > present) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(file->path, (int64_t)size),
                         "the file is truncated: the header describes %" PRIu64
                         " bytes in all, the file has %zu",
                         (uint64_t)end + buffer, size);
    }
    if ((uint64_t)end < present && !lenient) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(file->path, (int64_t)buffer + end),
                         "%" PRIu64 " bytes follow the last tensor; the format forbids that "
                         "(--lenient ignores them)",
                         present - (uint64_t)end);
    }
    for (int64_t i = 0; i < file->count; i++) {
        file->tensors[i].data = data + buffer + file->tensors[i].file_offset;
        file->tensors[i].file_offset += (int64_t)buffer;
    }
    ssm__names_sort(file->tensors, file->count, file->by_name);
    return SSM_STATUS_OK;
}

static ssm_status parse_into(ssm_safetensors *file, const unsigned char *data, size_t size,
                             bool lenient, ssm_error *err)
{
    uint64_t length = 0;
    SSM__TRY(find_header(file->path, data, size, &length, err));
    SSM__TRY(ssm__json_parse(file->path, 8, (const char *)data + 8, (size_t)length,
                             SSM__JSON_STRICT, &file->header, err));
    if (!json_is_object(file->header)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(file->path, 8),
                         "the header is not a JSON object");
    }
    SSM__TRY(read_entries(file, err));
    return place_tensors(file, data, size, (size_t)length + 8, lenient, err);
}

/* ---- public ---------------------------------------------------------------------------------- */

static ssm_status create(const char *path, ssm_safetensors **out, ssm_error *err)
{
    ssm_safetensors *file = calloc(1, sizeof *file);
    if (file == NULL || (file->path = strdup(path)) == NULL) {
        free(file);
        return ssm__fail_memory(err, "an open safetensors file", sizeof *file);
    }
    *out = file;
    return SSM_STATUS_OK;
}

ssm_status ssm__safetensors_parse(const char *path, const unsigned char *data, size_t size,
                                  bool lenient, ssm_safetensors **out, ssm_error *err)
{
    *out = NULL;
    ssm_safetensors *file = NULL;
    SSM__TRY(create(path, &file, err));
    ssm_status status = parse_into(file, data, size, lenient, err);
    if (status != SSM_STATUS_OK) {
        ssm_safetensors_close(file);
        return status;
    }
    *out = file;
    return SSM_STATUS_OK;
}

ssm_status ssm_safetensors_open(const char *path, bool lenient, ssm_safetensors **out,
                                ssm_error *err)
{
    *out = NULL;
    ssm_safetensors *file = NULL;
    SSM__TRY(create(path, &file, err));
    ssm_status status = ssm__map_open(path, &file->map, err);
    if (status == SSM_STATUS_OK) {
        status = parse_into(file, file->map.data, file->map.size, lenient, err);
    }
    if (status != SSM_STATUS_OK) {
        ssm_safetensors_close(file);
        return status;
    }
    *out = file;
    return SSM_STATUS_OK;
}

void ssm_safetensors_close(ssm_safetensors *file)
{
    if (file == NULL) {
        return;
    }
    json_decref(file->header);
    free(file->tensors);
    free(file->by_name);
    ssm__map_close(&file->map);
    free(file->path);
    free(file);
}

int64_t ssm_safetensors_count(const ssm_safetensors *file)
{
    return file->count;
}

const ssm_tensor *ssm_safetensors_at(const ssm_safetensors *file, int64_t i)
{
    return i >= 0 && i < file->count ? &file->tensors[i] : NULL;
}

const ssm_tensor *ssm_safetensors_find(const ssm_safetensors *file, const char *name)
{
    return ssm__names_find(file->by_name, file->count, name);
}

const char *ssm_safetensors_metadata(const ssm_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, metadata_key), key));
}
