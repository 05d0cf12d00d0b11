/* recording/sum.h: the files of the writer: a window's shard and a domain's sum of Grams, streamed
 * layer by layer so that no second copy of a window's Grams is ever in memory. */
#ifndef SSM_RECORDING_SUM_H
#define SSM_RECORDING_SUM_H

#include <ssmscope/recording.h>

#include "recording/head.h"

/* USAGE unless the tensor is named layers.<layer>.<field> (or field, layer −1) with this dtype and
 * shape: a mistake of the caller is found before it is on disk. */
ssm_status ssm__check_named(const ssm_tensor *tensor, int64_t layer, const char *field,
                            ssm_dtype dtype, int n_dims, const int64_t *dims, ssm_error *err);
/* The same for all that ssm__recording_put_window is given: every field of the schema, nothing
 * else. */
ssm_status ssm__check_window(const ssm_recording_info *info, int64_t tokens,
                             const ssm_tensor *tensors, int64_t count, const ssm_tensor *grams,
                             int64_t n_grams, ssm_error *err);

/* Writes tensors as they are, then n_grams Grams as float32. Errors: FAILED, MEMORY. */
ssm_status ssm__write_window(const char *path, const ssm_recording_info *info,
                             const ssm_recording_window *about, int64_t window,
                             const ssm_tensor *tensors, int64_t count, const ssm_tensor *grams,
                             int64_t n_grams, ssm_error *err);

/* Windows in a partial sum, 1 … most. Errors: FILE. */
ssm_status ssm__sum_count(const ssm_safetensors *file, const char *path, int64_t most, int64_t *out,
                          ssm_error *err);
/* partial.DOMAIN of `before` windows (0: none yet) plus grams → partial.DOMAIN of before + 1. */
ssm_status ssm__sum_add(const char *directory, const ssm_recording_info *info,
                        const ssm__calibration *sum, const ssm_tensor *grams, int64_t n_grams,
                        int64_t before, ssm_error *err);
/* partial.DOMAIN (float64) → calibration.DOMAIN (float32). */
ssm_status ssm__sum_finish(const char *directory, const ssm_recording_info *info,
                           const ssm__calibration *sum, ssm_error *err);

#endif
