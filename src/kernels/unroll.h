/* kernels/unroll.h: what turns loops with constant bounds over small arrays of vectors into
 * registers. Both compilers need the request: without it they keep the arrays in memory, three
 * times slower. */
#ifndef SSM_KERNELS_UNROLL_H
#define SSM_KERNELS_UNROLL_H

/* For functions whose bodies are specialised by constant arguments. */
#define SSM__INLINE static inline __attribute__((always_inline))

/* Before a loop of at most 16 turns. */
#if defined(__clang__)
#define SSM__UNROLL _Pragma("clang loop unroll(full)")
#else
#define SSM__UNROLL _Pragma("GCC unroll 16")
#endif

#endif
