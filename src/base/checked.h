/* base/checked.h: arithmetic on sizes that cannot overflow silently. False = overflow. */
#ifndef SSM_BASE_CHECKED_H
#define SSM_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool ssm__mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool ssm__add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
/* For dimensions: both must be ≥ 0. */
static inline bool ssm__mul_dim(int64_t a, int64_t b, int64_t *out)
{
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out);
}

#endif
