/* safetensors/names.h: the tensors of a file in the order of their names. */
#ifndef SSM_SAFETENSORS_NAMES_H
#define SSM_SAFETENSORS_NAMES_H

#include <ssmscope/checkpoint.h>

/* by_name [count] gets pointers to the tensors, sorted by name (bytes). */
void ssm__names_sort(ssm_tensor *tensors, int64_t count, ssm_tensor **by_name);
/* The tensor of that name in a list so sorted, NULL when there is none. */
const ssm_tensor *ssm__names_find(ssm_tensor *const *by_name, int64_t count, const char *name);

#endif
