/* model/layout.c: see the header. */
#include "model/layout.h"

#include <math.h>

#include "checkpoint/tensor.h"

ssm__matrix ssm__matrix_of(const ssm_tensor *tensor)
{
    return (ssm__matrix){tensor->data, tensor->dtype, tensor->dims[0], tensor->dims[1]};
}

ssm__matrix ssm__matrix_rows(ssm__matrix matrix, int64_t first, int64_t rows)
{
    const size_t row_bytes = (size_t)matrix.cols * ssm_dtype_size(matrix.dtype);
    matrix.data = (const char *)matrix.data + (size_t)first * row_bytes;
    matrix.rows = rows;
    return matrix;
}

float *ssm__copy_dense(ssm__arena *arena, const ssm_tensor *tensor)
{
    if (!tensor->data) {
        return NULL;
    }
    float *out = SSM__TAKE(arena, float, ssm_tensor_count(tensor));
    if (out) {
        ssm__tensor_to_f32(tensor, out);
    }
    return out;
}

void ssm__put_lanes(const ssm_tensor *tensor, int64_t width, ssm__lane_map map, float *out)
{
    const int64_t groups_per_head = (map.head + SSM__LANES - 1) / SSM__LANES;
    for (int64_t i = 0; out && tensor->data && i < map.count; i++) {
        const int64_t lane = i % map.head;
        const int64_t group = map.group + i / map.head * groups_per_head + lane / SSM__LANES;
        for (int64_t k = 0; k < width; k++) {
            out[(group * width + k) * SSM__LANES + lane % SSM__LANES] =
                (float)ssm_tensor_get(tensor, (map.first + i) * width + k);
        }
    }
}

void ssm__decay_rates(float *values, int64_t count)
{
    for (int64_t i = 0; values && i < count; i++) {
        values[i] = (float)(-exp((double)values[i]) * 1.4426950408889634);
    }
}
