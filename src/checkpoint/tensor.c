#include "checkpoint/tensor.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

/* load_TYPE(data, i): element i of unaligned data. */
#define LOADER(type)                                                                               \
    static inline type load_##type(const void *data, int64_t i)                                    \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, (const unsigned char *)data + (size_t)i * sizeof value, sizeof value);      \
        return value;                                                                              \
    }
LOADER(float)
LOADER(double)
LOADER(int64_t)
LOADER(int32_t)
LOADER(int16_t)
LOADER(int8_t)
LOADER(uint64_t)
LOADER(uint32_t)
LOADER(uint16_t)
LOADER(uint8_t)
#undef LOADER

double ssm_tensor_get(const ssm_tensor *tensor, int64_t i)
{
    const void *data = tensor->data;
    switch (tensor->dtype) {
    case SSM_DTYPE_F32:
        return (double)load_float(data, i);
    case SSM_DTYPE_F16:
        return (double)ssm__f32_from_f16(load_uint16_t(data, i));
    case SSM_DTYPE_BF16:
        return (double)ssm__f32_from_bf16(load_uint16_t(data, i));
    case SSM_DTYPE_F64:
        return load_double(data, i);
    case SSM_DTYPE_I64:
        return (double)load_int64_t(data, i);
    case SSM_DTYPE_I32:
        return (double)load_int32_t(data, i);
    case SSM_DTYPE_I16:
        return (double)load_int16_t(data, i);
    case SSM_DTYPE_I8:
        return (double)load_int8_t(data, i);
    case SSM_DTYPE_U64:
        return (double)load_uint64_t(data, i);
    case SSM_DTYPE_U32:
        return (double)load_uint32_t(data, i);
    case SSM_DTYPE_U16:
        return (double)load_uint16_t(data, i);
    case SSM_DTYPE_U8:
    case SSM_DTYPE_BOOL:
        return (double)load_uint8_t(data, i);
    case SSM_DTYPE_COUNT:
        break;
    }
    return (double)NAN;
}

void ssm__tensor_range_to_f32(const ssm_tensor *tensor, int64_t first, int64_t count, float *out)
{
    const unsigned char *data = tensor->data;
    if (data == NULL || count <= 0) {
        return;
    }
    switch (tensor->dtype) {
    case SSM_DTYPE_F32:
        memcpy(out, data + (size_t)first * sizeof(float), (size_t)count * sizeof(float));
        break;
    case SSM_DTYPE_F16:
        for (int64_t i = 0; i < count; i++) {
            out[i] = ssm__f32_from_f16(load_uint16_t(data, first + i));
        }
        break;
    case SSM_DTYPE_BF16:
        for (int64_t i = 0; i < count; i++) {
            out[i] = ssm__f32_from_bf16(load_uint16_t(data, first + i));
        }
        break;
    default:
        for (int64_t i = 0; i < count; i++) {
            out[i] = (float)ssm_tensor_get(tensor, first + i);
        }
        break;
    }
}

void ssm__tensor_to_f32(const ssm_tensor *tensor, float *out)
{
    ssm__tensor_range_to_f32(tensor, 0, tensor->data == NULL ? 0 : ssm_tensor_count(tensor), out);
}

/* All exponent bits set means NaN or infinity; the test on bits is the same for every width. */
static int64_t first_all_ones16(const void *data, int64_t count, uint16_t mask)
{
    for (int64_t i = 0; i < count; i++) {
        if ((load_uint16_t(data, i) & mask) == mask) {
            return i;
        }
    }
    return -1;
}

int64_t ssm__tensor_first_nonfinite(const ssm_tensor *tensor)
{
    int64_t count = tensor->data == NULL ? 0 : ssm_tensor_count(tensor);
    const void *data = tensor->data;
    switch (tensor->dtype) {
    case SSM_DTYPE_F16:
        return first_all_ones16(data, count, 0x7c00);
    case SSM_DTYPE_BF16:
        return first_all_ones16(data, count, 0x7f80);
    case SSM_DTYPE_F32:
        for (int64_t i = 0; i < count; i++) {
            if ((load_uint32_t(data, i) & 0x7f800000u) == 0x7f800000u) {
                return i;
            }
        }
        return -1;
    case SSM_DTYPE_F64:
        for (int64_t i = 0; i < count; i++) {
            if (!isfinite(load_double(data, i))) {
                return i;
            }
        }
        return -1;
    default:
        return -1;
    }
}
