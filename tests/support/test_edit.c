/* test_edit.c: a toy checkpoint that a test changes before it is written. */
#include "test_edit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_toy.h"

#define FORGET_CONST(pointer) ((void *)(uintptr_t)(pointer))

const char *edit_path(const edit *e, const char *name, char out[TEST_PATH_MAX])
{
    int length = snprintf(out, TEST_PATH_MAX, "%s/%s", e->directory, name);
    assert_true(length > 0 && length < TEST_PATH_MAX);
    return out;
}

/* ---- from a model ---------------------------------------------------------------------------- */

static void copy_tensors(edit *e, const char *path)
{
    ssm_error err;
    ssm_error_clear(&err);
    ssm_safetensors *file = NULL;
    if (ssm_safetensors_open(path, false, &file, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", path, err.message);
    }
    e->count = ssm_safetensors_count(file);
    assert_true(e->count <= EDIT_TENSORS);
    for (int64_t i = 0; i < e->count; i++) {
        ssm_tensor *tensor = &e->tensors[i];
        *tensor = *ssm_safetensors_at(file, i);
        void *data = malloc(tensor->bytes > 0 ? tensor->bytes : 1);
        assert_non_null(data);
        memcpy(data, tensor->data, tensor->bytes);
        tensor->data = data;
        tensor->name = strdup(tensor->name);
        tensor->file = NULL;
        assert_non_null(tensor->name);
    }
    ssm_safetensors_close(file);
}

edit *edit_create(const char *model)
{
    edit *e = calloc(1, sizeof *e);
    assert_non_null(e);
    test_make_directory(e->directory);
    char source[TEST_PATH_MAX];
    if (model == NULL) {
        ssm_config config = toy_config();
        toy_checkpoint(e->directory, &config, SSM_DTYPE_F32, 1, NULL);
        model = e->directory;
    }
    assert_true(snprintf(source, sizeof source, "%s/config.json", model) < TEST_PATH_MAX);
    e->config = json_load_file(source, 0, NULL);
    assert_non_null(e->config);
    assert_true(snprintf(source, sizeof source, "%s/model.safetensors", model) < TEST_PATH_MAX);
    copy_tensors(e, source);
    if (model == e->directory) {
        remove(source);
        remove(edit_path(e, "config.json", source));
    }
    return e;
}

void edit_free(edit *e)
{
    test_remove_directory(e->directory);
    json_decref(e->config);
    for (int64_t i = 0; i < e->count; i++) {
        free(FORGET_CONST(e->tensors[i].name));
        free(FORGET_CONST(e->tensors[i].data));
    }
    free(e);
}

/* ---- changes --------------------------------------------------------------------------------- */

ssm_tensor *edit_find(edit *e, const char *name)
{
    for (int64_t i = 0; i < e->count; i++) {
        if (strcmp(e->tensors[i].name, name) == 0) {
            return &e->tensors[i];
        }
    }
    fail_msg("the toy has no tensor %s", name);
    return NULL;
}

void edit_remove(edit *e, const char *name)
{
    ssm_tensor *tensor = edit_find(e, name);
    free(FORGET_CONST(tensor->name));
    free(FORGET_CONST(tensor->data));
    ssm_tensor *end = e->tensors + e->count;
    memmove(tensor, tensor + 1, (size_t)(end - tensor - 1) * sizeof *tensor);
    e->count--;
}

void edit_rename(edit *e, const char *from, const char *to)
{
    ssm_tensor *tensor = edit_find(e, from);
    char *copy = strdup(to);
    assert_non_null(copy);
    free(FORGET_CONST(tensor->name));
    tensor->name = copy;
}

static void fill(ssm_tensor *tensor, ssm_dtype dtype, const int64_t dims[3])
{
    tensor->dtype = dtype;
    tensor->n_dims = 0;
    size_t count = 1;
    for (; tensor->n_dims < 3 && dims[tensor->n_dims] > 0; tensor->n_dims++) {
        tensor->dims[tensor->n_dims] = dims[tensor->n_dims];
        count *= (size_t)dims[tensor->n_dims];
    }
    tensor->bytes = count * ssm_dtype_size(dtype);
    tensor->data = calloc(1, tensor->bytes);
    assert_non_null(tensor->data);
}

ssm_tensor *edit_add(edit *e, const char *name, ssm_dtype dtype, const int64_t dims[3])
{
    assert_true(e->count < EDIT_TENSORS);
    ssm_tensor *tensor = &e->tensors[e->count++];
    *tensor = (ssm_tensor){.name = strdup(name)};
    assert_non_null(tensor->name);
    fill(tensor, dtype, dims);
    return tensor;
}

void edit_reshape(edit *e, const char *name, ssm_dtype dtype, const int64_t dims[3])
{
    ssm_tensor *tensor = edit_find(e, name);
    free(FORGET_CONST(tensor->data));
    fill(tensor, dtype, dims);
}

void edit_config(edit *e, const char *key, const char *json)
{
    if (json == NULL) {
        json_object_del(e->config, key);
        return;
    }
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    assert_int_equal(json_object_set_new(e->config, key, value), 0);
}

void edit_prefix(edit *e, const char *from, const char *to)
{
    for (int64_t i = 0; i < e->count; i++) {
        const char *name = e->tensors[i].name;
        if (strncmp(name, from, strlen(from)) == 0) {
            char full[EDIT_NAME];
            assert_true(snprintf(full, sizeof full, "%s%s", to, name + strlen(from)) < EDIT_NAME);
            edit_rename(e, name, full);
        }
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

void edit_write_bytes(const edit *e, const char *name, const void *data, size_t bytes)
{
    char path[TEST_PATH_MAX];
    FILE *file = fopen(edit_path(e, name, path), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

void edit_write_text(const edit *e, const char *name, const char *text)
{
    edit_write_bytes(e, name, text, strlen(text));
}

void edit_write_json(const edit *e, const char *name, const json_t *value)
{
    char path[TEST_PATH_MAX];
    assert_int_equal(json_dump_file(value, edit_path(e, name, path), JSON_INDENT(1)), 0);
}

void edit_write_config(const edit *e)
{
    edit_write_json(e, "config.json", e->config);
}

static void write_tensors(const edit *e, const char *name, const ssm_tensor *tensors, int64_t count)
{
    static const ssm_metadata format = {"format", "pt"};
    char path[TEST_PATH_MAX];
    ssm_error err;
    ssm_error_clear(&err);
    edit_path(e, name, path);
    if (ssm_safetensors_write(path, tensors, count, &format, 1, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", path, err.message);
    }
}

void edit_write(const edit *e)
{
    edit_write_config(e);
    write_tensors(e, "model.safetensors", e->tensors, e->count);
}

static void shard_name(int shard, int n, char out[64])
{
    snprintf(out, 64, "model-%05d-of-%05d.safetensors", shard + 1, n);
}

json_t *edit_index(const edit *e, int n)
{
    json_t *map = json_object();
    json_int_t total = 0;
    for (int64_t i = 0; i < e->count; i++) {
        char name[64];
        shard_name((int)(i % n), n, name);
        assert_int_equal(json_object_set_new(map, e->tensors[i].name, json_string(name)), 0);
        total += (json_int_t)e->tensors[i].bytes;
    }
    json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", total, "weight_map", map);
    assert_non_null(index);
    return index;
}

void edit_write_shards(const edit *e, int n)
{
    edit_write_config(e);
    for (int shard = 0; shard < n; shard++) {
        ssm_tensor part[EDIT_TENSORS];
        int64_t count = 0;
        for (int64_t i = shard; i < e->count; i += n) {
            part[count++] = e->tensors[i];
        }
        char name[64];
        shard_name(shard, n, name);
        write_tensors(e, name, part, count);
    }
    json_t *index = edit_index(e, n);
    edit_write_json(e, "model.safetensors.index.json", index);
    json_decref(index);
}
