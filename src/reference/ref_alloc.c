/* reference/ref_alloc.c: scratch arrays of the reference. */
#include "reference/ref_alloc.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"

ssm_status ssm__ref_alloc(int64_t rows, int64_t cols, double **out, ssm_error *err)
{
    int64_t count = 0;
    size_t bytes = SIZE_MAX;
    *out = NULL;
    if (!ssm__mul_dim(rows, cols, &count) || !ssm__mul_size((size_t)count, sizeof **out, &bytes)) {
        return ssm__fail_memory(err, "the float64 reference", SIZE_MAX);
    }
    *out = calloc(count > 0 ? (size_t)count : 1, sizeof **out);
    if (!*out) {
        return ssm__fail_memory(err, "the float64 reference", bytes);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__ref_widen(const ssm_tensor *tensor, double **out, ssm_error *err)
{
    *out = NULL;
    if (!tensor->data) {
        return SSM_STATUS_OK;
    }
    const int64_t count = ssm_tensor_count(tensor);
    SSM__TRY(ssm__ref_alloc(count, 1, out, err));
    for (int64_t i = 0; i < count; i++) {
        (*out)[i] = ssm_tensor_get(tensor, i);
    }
    return SSM_STATUS_OK;
}

double *ssm__ref_array(ssm__ref_arrays *arrays, int64_t rows, int64_t cols)
{
    if (arrays->status != SSM_STATUS_OK) {
        return NULL;
    }
    if (arrays->count == SSM__REF_ARRAYS_MAX) {
        arrays->status = ssm__fail_memory(arrays->err, "the float64 reference", SIZE_MAX);
        return NULL;
    }
    double *out = NULL;
    arrays->status = ssm__ref_alloc(rows, cols, &out, arrays->err);
    arrays->at[arrays->count++] = out;
    return out;
}

void ssm__ref_arrays_free(ssm__ref_arrays *arrays)
{
    for (int i = 0; i < arrays->count; i++) {
        free(arrays->at[i]);
    }
    arrays->count = 0;
}
