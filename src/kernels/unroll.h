/* kernels/unroll.h: what turns loops with constant bounds over small arrays of vectors into
 * registers. Both compilers need the request: without it they keep the arrays in memory, three
 * times slower. */
#ifndef SSM_KERNELS_UNROLL_H
#define SSM_KERNELS_UNROLL_H

/* For functions whose bodies are specialised by constant arguments. */
#define SSM__INLINE static inline __attribute__((always_inline))

/* Before a loop of at most 16 turns. Under clang's sanitizers every turn carries its checks, and
 * unrolled they take the compiler over a minute a file; there the loops stay. */
#if defined(__clang__)
#if __has_feature(address_sanitizer) || __has_feature(undefined_behavior_sanitizer) ||             \
    __has_feature(thread_sanitizer)
#define SSM__UNROLL
#else
#define SSM__UNROLL _Pragma("clang loop unroll(full)")
#endif
#else
#define SSM__UNROLL _Pragma("GCC unroll 16")
#endif

#endif
