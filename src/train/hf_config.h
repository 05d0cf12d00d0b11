/* train/hf_config.h: config.json of a new checkpoint. */
#ifndef SSM_TRAIN_HF_CONFIG_H
#define SSM_TRAIN_HF_CONFIG_H

#include <ssmscope/checkpoint.h>

/* Writes directory/config.json as Hugging Face's MambaConfig. Errors: FAILED, MEMORY. */
ssm_status ssm__hf_config_write(const ssm_config *config, ssm_dtype dtype, const char *directory,
                                ssm_error *err);

#endif
