/* checkpoint/tensor.h: elements of stored tensors as float arrays. */
#ifndef SSM_CHECKPOINT_TENSOR_H
#define SSM_CHECKPOINT_TENSOR_H

#include <ssmscope/checkpoint.h>

/* All elements, in order, as float32 into out[ssm_tensor_count]. F32 is copied bit for bit, F16 and
 * BF16 are widened exactly; F64 and integers are rounded to nearest. data may be unaligned; an
 * absent tensor (data NULL) writes nothing. */
void ssm__tensor_to_f32(const ssm_tensor *tensor, float *out);
/* Elements first … first+count−1. */
void ssm__tensor_range_to_f32(const ssm_tensor *tensor, int64_t first, int64_t count, float *out);
/* Index of the first NaN or infinity, −1 when every element is finite (integers always are). */
int64_t ssm__tensor_first_nonfinite(const ssm_tensor *tensor);

#endif
