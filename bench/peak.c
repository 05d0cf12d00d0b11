/* bench/peak.c: the rate of fused multiply-adds alone, twelve independent chains in registers. */
#include "bench.h"

#include <math.h>

#include "base/pool.h"

#include "kernels/unroll.h"

enum { CHAINS = 12, ROUNDS = 400000 };

#if defined(__x86_64__)
/* The instruction itself, so that no compiler shortens the chains. Both vectors and the function
 * that uses it carry their instruction set with them: this file is compiled for any processor. */
#define CHAIN(sum, x, y) __asm__ volatile("vfmadd213ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y))

typedef float lanes16 __attribute__((vector_size(64)));
typedef float lanes8 __attribute__((vector_size(32)));

#define DEFINE_CHAINS(name, set, lanes)                                                            \
    __attribute__((target(set))) static void name(void)                                            \
    {                                                                                              \
        lanes sum[CHAINS];                                                                         \
        const lanes x = (lanes){0} + 0.999f;                                                       \
        const lanes y = (lanes){0} + 0.001f;                                                       \
        SSM__UNROLL                                                                                \
        for (int i = 0; i < CHAINS; i++) {                                                         \
            sum[i] = (lanes){0} + (float)i;                                                        \
        }                                                                                          \
        for (int64_t round = 0; round < ROUNDS; round++) {                                         \
            SSM__UNROLL                                                                            \
            for (int i = 0; i < CHAINS; i++) {                                                     \
                CHAIN(sum[i], x, y);                                                               \
            }                                                                                      \
        }                                                                                          \
    }

DEFINE_CHAINS(chains_avx512, "avx512f", lanes16)
DEFINE_CHAINS(chains_avx2, "avx2,fma", lanes8)
#endif

static void peak_task(void *context, int64_t task, int thread)
{
    (void)task;
    (void)thread;
#if defined(__x86_64__)
    if (*(const ssm_isa *)context == SSM_ISA_AVX512) {
        chains_avx512();
    } else {
        chains_avx2();
    }
#else
    (void)context;
#endif
}

double bench_fma_gflops(ssm_pool *pool, int threads, ssm_isa isa)
{
    if (isa != SSM_ISA_AVX2 && isa != SSM_ISA_AVX512) {
        return NAN; /* the compiler's choice of instructions is no ceiling */
    }
    const double lanes = isa == SSM_ISA_AVX512 ? 16.0 : 8.0;
    double best = INFINITY;
    for (int i = 0; i < 3; i++) {
        const double start = bench_now();
        ssm__pool_run(pool, peak_task, &isa, threads);
        best = fmin(best, bench_now() - start);
    }
    return 1e-9 * 2.0 * lanes * CHAINS * (double)ROUNDS * (double)threads / best;
}
