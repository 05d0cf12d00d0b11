/* diagnose/deviation.h: the distance of two arrays. */
#ifndef SSM_DIAGNOSE_DEVIATION_H
#define SSM_DIAGNOSE_DEVIATION_H

#include <ssmscope/compare.h>

/* Of two tensors with equally many elements, of any dtypes, in float64 and in their order. */
void ssm__deviation(const ssm_tensor *a, const ssm_tensor *b, ssm_deviation *out);
/* Elements first … first+count−1 as float64. */
void ssm__tensor_range_to_f64(const ssm_tensor *tensor, int64_t first, int64_t count, double *out);

#endif
