#include "safetensors/dtype.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"

typedef struct dtype_info {
    const char *name;
    size_t size;
} dtype_info;

static const dtype_info infos[SSM_DTYPE_COUNT] = {
#define DTYPE_INFO(name, text, size) [SSM_DTYPE_##name] = {text, size},
    SSM_DTYPES(DTYPE_INFO)
#undef DTYPE_INFO
};

const char *ssm_dtype_name(ssm_dtype dtype)
{
    return (unsigned)dtype < SSM_DTYPE_COUNT ? infos[dtype].name : "?";
}

size_t ssm_dtype_size(ssm_dtype dtype)
{
    return (unsigned)dtype < SSM_DTYPE_COUNT ? infos[dtype].size : 0;
}

bool ssm__dtype_parse(const char *text, ssm_dtype *out)
{
    for (unsigned i = 0; i < SSM_DTYPE_COUNT; i++) {
        if (strcmp(text, infos[i].name) == 0) {
            *out = (ssm_dtype)i;
            return true;
        }
    }
    return false;
}

bool ssm__dtype_known_unsupported(const char *text)
{
    static const char *const names[] = {"F8_E4M3",     "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ",
                                        "F8_E5M2FNUZ", "F6_E2M3", "F6_E3M2", "F4",
                                        "C64",         "C128",    "I4",      "U4"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

int64_t ssm_tensor_count(const ssm_tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->n_dims; i++) {
        count *= tensor->dims[i];
    }
    return count;
}

bool ssm__tensor_bytes(const ssm_tensor *tensor, size_t *out)
{
    /* A zero dimension makes the tensor empty however large the others are, so it is looked for
     * first; otherwise [2^62, 2^62, 0] would count as an overflow. */
    bool empty = false;
    for (int i = 0; i < tensor->n_dims; i++) {
        if (tensor->dims[i] < 0) {
            return false;
        }
        empty = empty || tensor->dims[i] == 0;
    }
    if (empty) {
        *out = 0;
        return true;
    }
    int64_t count = 1;
    for (int i = 0; i < tensor->n_dims; i++) {
        if (!ssm__mul_dim(count, tensor->dims[i], &count)) {
            return false;
        }
    }
    size_t bytes;
    if (!ssm__mul_size((size_t)count, ssm_dtype_size(tensor->dtype), &bytes) || bytes > INT64_MAX) {
        return false;
    }
    *out = bytes;
    return true;
}

void ssm__shape_text(const int64_t *dims, int n_dims, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < n_dims && used + 24 < size; i++) {
        used += (size_t)snprintf(out + used, size - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)dims[i]);
    }
    if (used + 2 <= size) {
        snprintf(out + used, size - used, "]");
    }
}
