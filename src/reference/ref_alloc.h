/* reference/ref_alloc.h: scratch arrays of the reference. */
#ifndef SSM_REFERENCE_ALLOC_H
#define SSM_REFERENCE_ALLOC_H

#include "reference/reference.h"

/* rows × cols zeroed doubles in *out, for free(). Errors: MEMORY, also when the size overflows. */
ssm_status ssm__ref_alloc(int64_t rows, int64_t cols, double **out, ssm_error *err);
/* A tensor's elements as doubles, for free(); *out NULL when the tensor is absent. Errors: MEMORY.
 */
ssm_status ssm__ref_widen(const ssm_tensor *tensor, double **out, ssm_error *err);

#endif
