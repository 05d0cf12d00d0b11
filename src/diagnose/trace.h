/* diagnose/trace.h: what the makers of traces share. */
#ifndef SSM_DIAGNOSE_TRACE_H
#define SSM_DIAGNOSE_TRACE_H

#include <ssmscope/compare.h>

/* Room for planes·rows·width elements, zeroed. Errors: MEMORY. */
ssm_status ssm__trace_reserve(int64_t planes, int64_t rows, int64_t width, size_t element,
                              const char *what, void **out, ssm_error *err);
/* A dense matrix [rows, width] of F32 or F64. */
ssm_tensor ssm__trace_view(const char *name, ssm_dtype dtype, const void *data, int64_t rows,
                           int64_t width);
/* Every id within the vocabulary, and at least one. Errors: USAGE. */
ssm_status ssm__trace_check_ids(const ssm_config *config, const int32_t *ids, int64_t count,
                                ssm_error *err);
/* Runs ids in pieces between which progress is asked; observer and logits function may be NULL.
 * *offset (may be NULL) is the index of the first id of the piece that is running. */
ssm_status ssm__trace_forward(const ssm_model *model, const int32_t *ids, int64_t count,
                              ssm_pool *pool, const ssm_progress *progress,
                              const ssm_observer *observer, ssm_logits_fn *fn, void *context,
                              int64_t *offset, ssm_error *err);

#endif
