/* reference/ref_alloc.h: scratch arrays of the reference. */
#ifndef SSM_REFERENCE_ALLOC_H
#define SSM_REFERENCE_ALLOC_H

#include "reference/reference.h"

/* rows × cols zeroed doubles in *out, for free(). Errors: MEMORY, also when the size overflows. */
ssm_status ssm__ref_alloc(int64_t rows, int64_t cols, double **out, ssm_error *err);
/* A tensor's elements as doubles, for free(); *out NULL when the tensor is absent. Errors: MEMORY.
 */
ssm_status ssm__ref_widen(const ssm_tensor *tensor, double **out, ssm_error *err);

/* Arrays that live and die together. The first failure is kept in status and err, and every call
 * behind it gives NULL, so that one look at status is enough after all have been taken. Starts
 * zeroed but for err. */
enum { SSM__REF_ARRAYS_MAX = 40 };
typedef struct ssm__ref_arrays {
    double *at[SSM__REF_ARRAYS_MAX];
    int count;
    ssm_status status;
    ssm_error *err; /* borrowed, may be NULL */
} ssm__ref_arrays;
/* rows × cols zeroed doubles, or NULL. */
double *ssm__ref_array(ssm__ref_arrays *arrays, int64_t rows, int64_t cols);
void ssm__ref_arrays_free(ssm__ref_arrays *arrays);

#endif
