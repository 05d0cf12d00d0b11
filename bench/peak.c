/* bench/peak.c: the rate of fused multiply-adds alone, twelve independent chains in registers. */
#include "bench.h"

#include <math.h>

#include "base/pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/unroll.h"

enum { CHAINS = 12, ROUNDS = 400000 };

/* Keeps a chain in a register and from being computed away. */
#define KEEP(x) __asm__ volatile("" : "+v"(x))

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void chains_avx512(void)
{
    __m512 sum[CHAINS];
    const __m512 x = _mm512_set1_ps(0.999f);
    const __m512 y = _mm512_set1_ps(0.001f);
    SSM__UNROLL
    for (int i = 0; i < CHAINS; i++) {
        sum[i] = _mm512_set1_ps((float)i);
    }
    for (int64_t round = 0; round < ROUNDS; round++) {
        SSM__UNROLL
        for (int i = 0; i < CHAINS; i++) {
            sum[i] = _mm512_fmadd_ps(sum[i], x, y);
            KEEP(sum[i]);
        }
    }
}

__attribute__((target("avx2,fma"))) static void chains_avx2(void)
{
    __m256 sum[CHAINS];
    const __m256 x = _mm256_set1_ps(0.999f);
    const __m256 y = _mm256_set1_ps(0.001f);
    SSM__UNROLL
    for (int i = 0; i < CHAINS; i++) {
        sum[i] = _mm256_set1_ps((float)i);
    }
    for (int64_t round = 0; round < ROUNDS; round++) {
        SSM__UNROLL
        for (int i = 0; i < CHAINS; i++) {
            sum[i] = _mm256_fmadd_ps(sum[i], x, y);
            KEEP(sum[i]);
        }
    }
}
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
