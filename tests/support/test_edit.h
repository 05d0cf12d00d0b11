/* test_edit.h: a toy checkpoint that a test changes before it is written, to break one rule. */
#ifndef TEST_EDIT_H
#define TEST_EDIT_H

#include <jansson.h>
#include <ssmscope/checkpoint.h>

#include "test_paths.h"

enum { EDIT_TENSORS = 256, EDIT_NAME = 160 };

typedef struct edit {
    char directory[TEST_PATH_MAX]; /* a fresh one; removed by edit_free */
    json_t *config;
    int64_t count;
    ssm_tensor tensors[EDIT_TENSORS]; /* names and data are the edit's own */
} edit;

/* The tensors and config.json of a model directory (NULL: toy_config() in F32, seed 1) in a fresh
 * directory that holds nothing yet. */
edit *edit_create(const char *model);
void edit_free(edit *e);

/* Fails the test when there is no such tensor. */
ssm_tensor *edit_find(edit *e, const char *name);
void edit_remove(edit *e, const char *name);
void edit_rename(edit *e, const char *from, const char *to);
/* Adds zeros; dims end at the first 0. */
ssm_tensor *edit_add(edit *e, const char *name, ssm_dtype dtype, const int64_t dims[3]);
/* Gives a tensor another type or shape, with zeros. */
void edit_reshape(edit *e, const char *name, ssm_dtype dtype, const int64_t dims[3]);
/* json: text of the value, NULL removes the key. */
void edit_config(edit *e, const char *key, const char *json);
/* Replaces OLD by NEW at the start of every name that begins with it. */
void edit_prefix(edit *e, const char *from, const char *to);

void edit_write_config(const edit *e);
/* config.json and model.safetensors. */
void edit_write(const edit *e);
/* config.json, model-0000i-of-0000n.safetensors and their index; tensor k goes to shard k mod n. */
void edit_write_shards(const edit *e, int n);
/* The index of what edit_write_shards writes, to be changed. Owner: the caller. */
json_t *edit_index(const edit *e, int n);
void edit_write_json(const edit *e, const char *name, const json_t *value);
void edit_write_bytes(const edit *e, const char *name, const void *data, size_t bytes);
void edit_write_text(const edit *e, const char *name, const char *text);
/* Path of a file in the directory; returns out. */
const char *edit_path(const edit *e, const char *name, char out[TEST_PATH_MAX]);

#endif
