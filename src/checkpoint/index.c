#include "checkpoint/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/foreign.h"
#include "base/json.h"
#include "checkpoint/weight_file.h"

static ssm_status check_shard_name(const ssm__index *index, const char *tensor, const json_t *value,
                                   ssm_error *err)
{
    ssm__place place = SSM__TENSOR(index->path, tensor);
    if (!json_is_string(value)) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "the entry of weight_map is not a string; expected the name of a shard");
    }
    const char *name = json_string_value(value);
    if (strchr(name, '/') != NULL || strchr(name, '\\') != NULL || name[0] == '.') {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "weight_map names the shard \"%s\"; expected a file of the same directory",
                         name);
    }
    if (ssm__ends_with(name, index->torch ? ".safetensors" : ".bin")) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "weight_map names the %s shard \"%s\" in an index of %s files",
                         index->torch ? "safetensors" : "PyTorch", name,
                         index->torch ? "PyTorch" : "safetensors");
    }
    if (!(index->torch ? ssm__is_torch_name(name) : ssm__ends_with(name, ".safetensors"))) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "weight_map names the shard \"%s\"; expected a %s file", name,
                         index->torch ? ".bin" : ".safetensors");
    }
    return SSM_STATUS_OK;
}

static int compare_shards(const void *left, const void *right)
{
    const ssm__shard *a = left;
    const ssm__shard *b = right;
    return strcmp(a->name, b->name);
}

/* Sorts the shards of all tensors and merges equal names. */
static ssm_status collect_shards(ssm__index *index, ssm_error *err)
{
    size_t n_tensors = json_object_size(index->weight_map);
    index->shards = calloc(n_tensors, sizeof *index->shards);
    if (index->shards == NULL) {
        return ssm__fail_memory(err, "the list of shards", n_tensors * sizeof *index->shards);
    }
    const char *tensor;
    json_t *value;
    int64_t count = 0;
    json_object_foreach((json_t *)(uintptr_t)index->weight_map, tensor, value)
    {
        SSM__TRY(check_shard_name(index, tensor, value, err));
        index->shards[count++] = (ssm__shard){json_string_value(value), 1};
    }
    qsort(index->shards, (size_t)count, sizeof *index->shards, compare_shards);
    for (int64_t i = 0; i < count; i++) {
        ssm__shard *last = index->n_shards == 0 ? NULL : &index->shards[index->n_shards - 1];
        if (last != NULL && strcmp(last->name, index->shards[i].name) == 0) {
            last->n_tensors++;
        } else {
            index->shards[index->n_shards++] = index->shards[i];
        }
    }
    return SSM_STATUS_OK;
}

/* By its name; an index of another name is what its first shard is. */
static bool is_torch_index(const ssm__index *index)
{
    if (strstr(index->path, ".safetensors.index") != NULL) {
        return false;
    }
    if (strstr(index->path, ".bin.index") != NULL) {
        return true;
    }
    const json_t *map = index->weight_map;
    void *first = json_object_iter((json_t *)(uintptr_t)map);
    const char *name = json_string_value(json_object_iter_value(first));
    return name != NULL && ssm__is_torch_name(name);
}

static ssm_status parse_into(ssm__index *index, const char *text, size_t bytes, ssm_error *err)
{
    SSM__TRY(ssm__refuse_foreign(index->path, (const unsigned char *)text, bytes, err));
    SSM__TRY(ssm__json_parse(index->path, 0, text, bytes, SSM__JSON_STRICT, &index->root, err));
    if (!json_is_object(index->root)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(index->path, 0),
                         "the index is not a JSON object");
    }
    index->weight_map = json_object_get(index->root, "weight_map");
    if (!json_is_object(index->weight_map)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(index->path, "weight_map"),
                         "the index has %s; expected an object from tensor names to shards",
                         index->weight_map == NULL ? "no weight_map"
                                                   : "a weight_map that is not an object");
    }
    if (json_object_size(index->weight_map) == 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(index->path, "weight_map"),
                         "the index's weight_map is empty");
    }
    index->torch = is_torch_index(index);
    const json_t *total = json_object_get(json_object_get(index->root, "metadata"), "total_size");
    index->total_size = json_is_integer(total) ? (int64_t)json_integer_value(total) : -1;
    return collect_shards(index, err);
}

ssm_status ssm__index_parse(const char *path, const char *text, size_t bytes, ssm__index **out,
                            ssm_error *err)
{
    *out = NULL;
    ssm__index *index = calloc(1, sizeof *index);
    if (index == NULL || (index->path = strdup(path)) == NULL) {
        free(index);
        return ssm__fail_memory(err, "a shard index", sizeof *index);
    }
    ssm_status status = parse_into(index, text, bytes, err);
    if (status != SSM_STATUS_OK) {
        ssm__index_free(index);
        return status;
    }
    *out = index;
    return SSM_STATUS_OK;
}

ssm_status ssm__index_read(const char *path, ssm__index **out, ssm_error *err)
{
    enum { LIMIT = 256 << 20 };
    *out = NULL;
    ssm__map map;
    SSM__TRY(ssm__map_open(path, &map, err));
    ssm_status status;
    if (map.size > LIMIT) {
        status = ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                           "the index has %zu bytes, the limit is %d", map.size, LIMIT);
    } else {
        status = ssm__index_parse(path, map.data == NULL ? "" : (const char *)map.data, map.size,
                                  out, err);
    }
    ssm__map_close(&map);
    return status;
}

void ssm__index_free(ssm__index *index)
{
    if (index == NULL) {
        return;
    }
    json_decref(index->root);
    free(index->shards);
    free(index->path);
    free(index);
}

const char *ssm__index_shard(const ssm__index *index, const char *tensor)
{
    return index == NULL ? NULL : json_string_value(json_object_get(index->weight_map, tensor));
}
