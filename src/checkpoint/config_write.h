/* checkpoint/config_write.h: config.json in the schema of Hugging Face or of the original code. */
#ifndef SSM_CHECKPOINT_CONFIG_WRITE_H
#define SSM_CHECKPOINT_CONFIG_WRITE_H

#include <ssmscope/checkpoint.h>

/* A config and what else a configuration says about the tensors. */
typedef struct ssm__written_config {
    const ssm_config *config;
    ssm_dtype dtype; /* of the matrices */
    bool use_bias, use_conv_bias;
    bool qkv_bias, attention_out_bias;
    const int64_t *attention_layers; /* n_attention numbers, rising */
    int64_t n_attention;
} ssm__written_config;

/* Writes directory/config.json. Errors: FAILED, MEMORY. */
ssm_status ssm__hf_config_write(const ssm__written_config *written, const char *directory,
                                ssm_error *err);
/* And generation_config.json with the ids of tokens, which the original schema has no keys for (its
 * constructor fails on keys that it does not know). */
ssm_status ssm__original_config_write(const ssm__written_config *written, const char *directory,
                                      ssm_error *err);

#endif
