/* safetensors/dtype.h: element types by their names in the format. */
#ifndef SSM_SAFETENSORS_DTYPE_H
#define SSM_SAFETENSORS_DTYPE_H

#include <ssmscope/checkpoint.h>

/* "F32" → SSM_DTYPE_F32. False: not one of SSM_DTYPES. */
bool ssm__dtype_parse(const char *text, ssm_dtype *out);
/* True for names the format defines but this library does not compute with (F8_E4M3, F4, C64, …).
 */
bool ssm__dtype_known_unsupported(const char *text);
/* Product of dims × size of the type. False: a negative dimension or an overflow. */
bool ssm__tensor_bytes(const ssm_tensor *tensor, size_t *out);
/* "[128, 1, 4]" into out; a longer text is cut at a dimension. */
void ssm__shape_text(const int64_t *dims, int n_dims, char *out, size_t size);

#endif
