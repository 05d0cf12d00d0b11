/* ssmscope/init.h: new checkpoints with the published default initialisation. */
#ifndef SSMSCOPE_INIT_H
#define SSMSCOPE_INIT_H

#include <ssmscope/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Named shapes: tiny, mamba-130m, -370m, -790m, -1.4b, -2.8b. NULL-terminated. */
SSM_API const char *const *ssm_shape_names(void);
/* Errors: USAGE (unknown name, with the nearest). */
SSM_API ssm_status ssm_shape_config(const char *name, ssm_config *out, ssm_error *err);

/* Writes a Hugging Face directory (config.json, model.safetensors) with seeded weights drawn from
 * streams named after the tensors (docs/initialisation.md); the same seed gives the same bytes.
 * dtype of matrices: F32, F16 or BF16. Errors: USAGE (directory holds a model), FAILED, MEMORY. */
SSM_API ssm_status ssm_init_write(const ssm_config *config, ssm_dtype dtype, uint64_t seed,
                                  const char *directory, const ssm_progress *progress,
                                  ssm_error *err);

#ifdef __cplusplus
}
#endif
#endif
