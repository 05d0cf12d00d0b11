/* checkpoint/index.h: model.safetensors.index.json or pytorch_model.bin.index.json, which says in
 * which shard each tensor is. */
#ifndef SSM_CHECKPOINT_INDEX_H
#define SSM_CHECKPOINT_INDEX_H

#include <jansson.h>
#include <ssmscope/base.h>

typedef struct ssm__shard {
    const char *name;  /* file name, without directory */
    int64_t n_tensors; /* that weight_map places there */
} ssm__shard;

typedef struct ssm__index {
    char *path;
    json_t *root; /* owns all names */
    const json_t *weight_map;
    ssm__shard *shards; /* sorted by name */
    int64_t n_shards;
    bool torch;         /* the shards are torch files, not safetensors */
    int64_t total_size; /* metadata.total_size, −1: not given */
} ssm__index;

/* Errors: FILE (not an object, no weight_map, a name that is not a .safetensors file, or
 * throughout a torch file, of the same directory), MEMORY. Owner: the caller, ssm__index_free. */
ssm_status ssm__index_read(const char *path, ssm__index **out, ssm_error *err);
/* The same from text; path is for messages. */
ssm_status ssm__index_parse(const char *path, const char *text, size_t bytes, ssm__index **out,
                            ssm_error *err);
void ssm__index_free(ssm__index *index);
/* The shard of a tensor, NULL when the index does not name it (or index is NULL). */
const char *ssm__index_shard(const ssm__index *index, const char *tensor);

#endif
