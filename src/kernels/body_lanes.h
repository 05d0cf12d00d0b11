/* kernels/body_lanes.h: loads and stores of the vectors of a row whose last may be a part. Whole
 * vectors go the short way: masks are slow where there are no mask registers. */
#ifndef SSM_KERNELS_BODY_LANES_H
#define SSM_KERNELS_BODY_LANES_H

#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif

/* `left` ≥ 1 numbers from p on, at most 16 of them; the other lanes are +0. */
static inline v16 v16_take(const float *p, int64_t left)
{
    return left >= 16 ? v16_load(p) : v16_load_n(p, left);
}

/* The first `left` lanes, at most all. */
static inline void v16_put(float *p, v16 a, int64_t left)
{
    if (left >= 16) {
        v16_store(p, a);
    } else {
        v16_store_n(p, a, left);
    }
}

#endif
