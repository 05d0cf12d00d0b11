/* diagnose/deviation.c: largest difference, relative norms and angle of two arrays. */
#include "diagnose/deviation.h"

#include <math.h>

#include "checkpoint/tensor.h"

enum { BLOCK = 512 };

void ssm__tensor_range_to_f64(const ssm_tensor *tensor, int64_t first, int64_t count, double *out)
{
    float narrow[BLOCK];
    const bool exact = tensor->dtype == SSM_DTYPE_F32 || tensor->dtype == SSM_DTYPE_F16 ||
                       tensor->dtype == SSM_DTYPE_BF16;
    for (int64_t done = 0; done < count; done += BLOCK) {
        const int64_t n = count - done < BLOCK ? count - done : BLOCK;
        if (exact) {
            ssm__tensor_range_to_f32(tensor, first + done, n, narrow);
        }
        for (int64_t i = 0; i < n; i++) {
            out[done + i] = exact ? (double)narrow[i] : ssm_tensor_get(tensor, first + done + i);
        }
    }
}

/* |a − b|, infinite where the two cannot be compared. */
static double distance(double a, double b)
{
    if (a == b || (isnan(a) && isnan(b))) {
        return 0.0;
    }
    const double difference = fabs(a - b);
    return isfinite(difference) ? difference : INFINITY;
}

static double larger_finite(double scale, double value)
{
    const double size = fabs(value);
    return isfinite(size) && size > scale ? size : scale;
}

void ssm__deviation(const ssm_tensor *a, const ssm_tensor *b, ssm_deviation *out)
{
    double left[BLOCK], right[BLOCK];
    double square_a = 0.0, square_b = 0.0, product = 0.0, square_difference = 0.0;
    *out = (ssm_deviation){.count = ssm_tensor_count(a), .at = -1};
    for (int64_t first = 0; first < out->count; first += BLOCK) {
        const int64_t n = out->count - first < BLOCK ? out->count - first : BLOCK;
        ssm__tensor_range_to_f64(a, first, n, left);
        ssm__tensor_range_to_f64(b, first, n, right);
        for (int64_t i = 0; i < n; i++) {
            const double difference = distance(left[i], right[i]);
            out->scale = larger_finite(larger_finite(out->scale, left[i]), right[i]);
            out->differing += difference > 0.0;
            if (difference > out->max_abs) {
                out->max_abs = difference;
                out->at = first + i;
                out->a = left[i];
                out->b = right[i];
            }
            square_a += left[i] * left[i];
            square_b += right[i] * right[i];
            product += left[i] * right[i];
            square_difference += difference * difference;
        }
    }
    const double norm = sqrt(square_a > square_b ? square_a : square_b);
    out->relative = out->max_abs > 0.0 ? out->max_abs / out->scale : 0.0;
    out->relative_l2 = norm > 0.0 ? sqrt(square_difference) / norm : 0.0;
    out->cosine = square_a == 0.0 && square_b == 0.0 ? 1.0 : product / sqrt(square_a * square_b);
}
