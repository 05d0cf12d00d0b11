/* recording/sum.h: the sum of a domain's Grams on disk, streamed layer by layer so that no second
 * copy of a window's Grams is ever in memory. */
#ifndef SSM_RECORDING_SUM_H
#define SSM_RECORDING_SUM_H

#include <ssmscope/recording.h>

#include "recording/head.h"
#include "safetensors/write.h"

/* USAGE unless the tensor is named layers.<layer>.<field> (or field, layer −1) with this dtype and
 * shape: a mistake of the caller is found before it is on disk. */
ssm_status ssm__check_named(const ssm_tensor *tensor, int64_t layer, const char *field,
                            ssm_dtype dtype, int n_dims, const int64_t *dims, ssm_error *err);
/* Windows in a partial sum, 1 … most. Errors: FILE. */
ssm_status ssm__sum_count(const ssm_safetensors *file, const char *path, int64_t most, int64_t *out,
                          ssm_error *err);
/* Starts partial.DOMAIN of before + 1 windows; *old_sum is that of `before` windows, untouched when
 * before is 0. Owner of both: the caller, also of *old_sum when this fails. Errors: FILE (damaged,
 * another count), FAILED, MEMORY. */
ssm_status ssm__sum_open(const char *directory, const ssm_recording_info *info,
                         const ssm__calibration *sum, int64_t before, ssm_safetensors **old_sum,
                         ssm__stream **stream, ssm_error *err);
/* One layer: float64 old + gram; old_sum NULL: gram alone. The pages read of it are given back. */
ssm_status ssm__sum_put(ssm__stream *stream, const ssm_safetensors *old_sum, const ssm_tensor *gram,
                        ssm_error *err);
/* Writes count float64 numbers as float32, piece by piece. data may be unaligned. */
ssm_status ssm__sum_write_float(ssm__stream *stream, const void *data, int64_t count,
                                ssm_error *err);
/* partial.DOMAIN (float64) → calibration.DOMAIN (float32). */
ssm_status ssm__sum_finish(const char *directory, const ssm_recording_info *info,
                           const ssm__calibration *sum, ssm_error *err);

#endif
