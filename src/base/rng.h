/* base/rng.h: the bare generator, for its tests and for code that owns its counters. */
#ifndef SSM_BASE_RNG_H
#define SSM_BASE_RNG_H

#include <stdint.h>

/* One block of Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, SC'11). */
void ssm__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
