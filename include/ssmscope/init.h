/* ssmscope/init.h: new checkpoints with the published default initialisation. */
#ifndef SSMSCOPE_INIT_H
#define SSMSCOPE_INIT_H

#include <ssmscope/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Named shapes: tiny, mamba-130m … mamba-2.8b, falcon-mamba-7b, mamba2-130m … mamba2-2.7b,
 * mamba-codestral-7b, mamba2attn-2.7b, and a small one of each family, tiny-…, for tests.
 * NULL-terminated. */
SSM_API const char *const *ssm_shape_names(void);
/* Errors: USAGE (unknown name, with the nearest). */
SSM_API ssm_status ssm_shape_config(const char *name, ssm_config *out, ssm_error *err);
/* What stands in each layer of the shape: kinds [n_layers of its config]. Errors: as above. */
SSM_API ssm_status ssm_shape_layers(const char *name, ssm_layer_kind *kinds, ssm_error *err);

/* Writes a directory (config.json, model.safetensors) with seeded weights drawn from streams named
 * after the tensors (docs/initialisation.md); the same seed gives the same bytes. The layout is
 * Hugging Face's where that can hold the model, else the original's. All layers are of the family's
 * kind. dtype of matrices: F32, F16 or BF16. Errors: USAGE (directory holds a model), FAILED,
 * MEMORY. */
SSM_API ssm_status ssm_init_write(const ssm_config *config, ssm_dtype dtype, uint64_t seed,
                                  const char *directory, const ssm_progress *progress,
                                  ssm_error *err);
/* The same with layers of attention: kinds [n_layers]. */
SSM_API ssm_status ssm_init_write_layers(const ssm_config *config, const ssm_layer_kind *kinds,
                                         ssm_dtype dtype, uint64_t seed, const char *directory,
                                         const ssm_progress *progress, ssm_error *err);

#ifdef __cplusplus
}
#endif
#endif
