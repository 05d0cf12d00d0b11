/* bench/limits.c: clock, memory, and the ceilings of this machine. */
#include "bench.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/pool.h"
#include "kernels/kernels.h"

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return count == 0 ? NAN : (values[(count - 1) / 2] + values[count / 2]) / 2.0;
}

void bench_reset_peak_rss(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (file) {
        fputs("5", file);
        fclose(file);
    }
}

size_t bench_peak_rss(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long long kilobytes = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmHWM: %llu kB", &kilobytes) == 1) {
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    return (size_t)kilobytes * 1024;
}

/* ---- OpenBLAS, if it is installed ------------------------------------------------------------ */

typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                      const float *a, int lda, const float *b, int ldb, float beta, float *c,
                      int ldc);

/* Opened once and kept. */
static struct openblas {
    bool tried;
    sgemm_fn *sgemm;
    void (*set_threads)(int);
    char name[64];
} blas;

/* A function pointer out of dlsym's object pointer. */
static void find(void *library, const char *name, void *out, size_t bytes)
{
    void *symbol = dlsym(library, name);
    memcpy(out, &symbol, bytes);
}

static void open_blas(void)
{
    if (blas.tried) {
        return;
    }
    blas.tried = true;
    snprintf(blas.name, sizeof blas.name, "not installed");
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return;
    }
    char *(*core)(void) = NULL;
    find(library, "cblas_sgemm", &blas.sgemm, sizeof blas.sgemm);
    find(library, "openblas_set_num_threads", &blas.set_threads, sizeof blas.set_threads);
    find(library, "openblas_get_corename", &core, sizeof core);
    snprintf(blas.name, sizeof blas.name, "OpenBLAS (%s)", core ? core() : "unknown");
}

const char *bench_sgemm_name(void)
{
    open_blas();
    return blas.name;
}

double bench_sgemm_seconds(int64_t tokens, int64_t rows, int64_t cols, int threads)
{
    enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112, REPEATS = 2 };
    open_blas();
    float *x = calloc((size_t)(tokens * cols), sizeof *x);
    float *w = calloc((size_t)(rows * cols), sizeof *w);
    float *y = calloc((size_t)(tokens * rows), sizeof *y);
    double best = NAN;
    if (blas.sgemm && blas.set_threads && x && w && y) {
        for (int64_t i = 0; i < tokens * cols; i++) {
            x[i] = (float)(i % 251) * 0.01f - 1.0f;
        }
        for (int64_t i = 0; i < rows * cols; i++) {
            w[i] = (float)(i % 241) * 0.01f - 1.0f;
        }
        blas.set_threads(threads);
        for (int i = 0; i <= REPEATS; i++) { /* the first call warms up */
            const double start = bench_now();
            blas.sgemm(ROW_MAJOR, NO_TRANS, TRANS, (int)tokens, (int)rows, (int)cols, 1.0f, x,
                       (int)cols, w, (int)cols, 0.0f, y, (int)rows);
            const double seconds = bench_now() - start;
            best = i > 0 && !(best <= seconds) ? seconds : best;
        }
    }
    free(x);
    free(w);
    free(y);
    return best;
}

/* ---- streaming read and exponentials --------------------------------------------------------- */

enum { READ_PIECES = 64, EXP_COUNT = 2048, EXP_ROUNDS = 2000 };
static const size_t read_bytes = (size_t)1 << 29;

typedef struct limit_run {
    const unsigned char *memory;
    size_t piece;
    const ssm__kernels *kernels;
    uint64_t sums[READ_PIECES * 8]; /* a cache line apart, so that nothing is optimised away */
} limit_run;

static void read_task(void *context, int64_t task, int thread)
{
    (void)thread;
    limit_run *run = context;
    const uint64_t *words =
        (const uint64_t *)(const void *)(run->memory + (size_t)task * run->piece);
    uint64_t sum[8] = {0};
    enum { AHEAD = 16384 / sizeof *words }; /* a read without prefetch is no ceiling */
    for (size_t i = 0; i < run->piece / sizeof *words; i += 8) {
        __builtin_prefetch(words + i + AHEAD, 0, 2);
        for (size_t j = 0; j < 8; j++) {
            sum[j] += words[i + j];
        }
    }
    for (size_t j = 1; j < 8; j++) {
        sum[0] += sum[j];
    }
    run->sums[task * 8] = sum[0];
}

static void exp_task(void *context, int64_t task, int thread)
{
    (void)thread;
    limit_run *run = context;
    float in[EXP_COUNT], out[EXP_COUNT];
    for (int i = 0; i < EXP_COUNT; i++) {
        in[i] = -(float)i * 0.003f;
    }
    for (int i = 0; i < EXP_ROUNDS; i++) {
        run->kernels->decay(in, out, EXP_COUNT);
        in[i] = -out[i] * 0.5f;
    }
    run->sums[task * 8] = (uint64_t)(out[7] * 1e6f);
}

/* Best of three: the ceiling is what the machine can do, not what its neighbours leave. */
static double best_of_three(ssm_pool *pool, ssm__task_fn *task, limit_run *run, int64_t count)
{
    double best = INFINITY;
    for (int i = 0; i < 3; i++) {
        const double start = bench_now();
        ssm__pool_run(pool, task, run, count);
        best = fmin(best, bench_now() - start);
    }
    return best;
}

bool bench_limits_measure(bench_run *run, bench_limits *out)
{
    const ssm_config *c = ssm_model_config(run->model);
    const double sgemm = bench_sgemm_seconds(1024, 2 * c->d_inner, c->d_model, run->threads);
    out->sgemm_gflops = 2e-9 * 1024.0 * 2.0 * (double)c->d_inner * (double)c->d_model / sgemm;

    limit_run *limit = calloc(1, sizeof *limit);
    unsigned char *memory = malloc(read_bytes);
    if (!limit || !memory) {
        free(limit);
        free(memory);
        return false;
    }
    memset(memory, 1, read_bytes);
    limit->memory = memory;
    limit->piece = read_bytes / READ_PIECES;
    limit->kernels = ssm__kernels_for(ssm_model_isa(run->model));
    out->read_gbps =
        1e-9 * (double)read_bytes / best_of_three(run->pool, read_task, limit, READ_PIECES);
    out->exp_per_s = (double)run->threads * EXP_COUNT * EXP_ROUNDS /
                     best_of_three(run->pool, exp_task, limit, run->threads);
    out->fma_gflops = bench_fma_gflops(run->pool, run->threads, ssm_model_isa(run->model));
    free(memory);
    free(limit);
    return true;
}
