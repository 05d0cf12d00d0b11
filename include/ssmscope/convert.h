/* ssmscope/convert.h: writing an open checkpoint in another layout, container or dtype. */
#ifndef SSMSCOPE_CONVERT_H
#define SSMSCOPE_CONVERT_H

#include <ssmscope/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ssm_layout {
    SSM_LAYOUT_HF,      /* transformers: config.json with model_type, backbone.embeddings.weight */
    SSM_LAYOUT_ORIGINAL /* state-spaces: config.json with ssm_cfg, backbone.embedding.weight */
} ssm_layout;

typedef enum ssm_container {
    SSM_CONTAINER_SAFETENSORS, /* model.safetensors, with {"format": "pt"} */
    SSM_CONTAINER_TORCH        /* pytorch_model.bin, a zip archive */
} ssm_container;

typedef struct ssm_convert_options {
    ssm_layout layout;
    ssm_container container;
    /* F32: all weights are F32. F16, BF16: the matrices are; vectors, convolutions and A_log keep
     * their stored type. SSM_DTYPE_COUNT: everything keeps it, and the result is bit-identical. */
    ssm_dtype dtype;
    int64_t shard_bytes; /* a new shard begins before this is passed; 0: one file */
} ssm_convert_options;

/* Writes config.json, the weights (with an index when there are several files) and a copy of the
 * tokenizer's files beside them. directory must not exist, or be empty: it appears when everything
 * is written, and nothing is left behind otherwise. A tied head is written once: safetensors leaves
 * it out, a torch file gives both names one storage.
 *
 * Memory holds one block of one tensor. progress counts bytes. Errors: USAGE (the layout cannot
 * hold the model, with what it lacks; the directory is in use), FILE (F16 cannot hold a weight),
 * FAILED, INTERRUPTED, MEMORY. */
SSM_API ssm_status ssm_convert(const ssm_checkpoint *checkpoint, const ssm_convert_options *options,
                               const char *directory, const ssm_progress *progress, ssm_error *err);

#ifdef __cplusplus
}
#endif
#endif
