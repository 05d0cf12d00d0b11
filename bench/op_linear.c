/* bench/op_linear.c: y = x Wᵀ + b over weights of three dtypes. a: rows, b: cols. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "operators.h"

enum { X, W, BIAS };

static void prepare(operator_run *run)
{
    const operator_shape s = run->shape;
    operator_normals(run, X, s.tokens * s.b, 0.0, 1.0);
    operator_normals(run, W, s.a * s.b, 0.0, 0.05);
    operator_normals(run, BIAS, s.a, 0.0, 1.0);
    operator_output(run, 0, "y", s.tokens * s.a);
}

/* Narrows the weights in place: the first half of their memory then holds 16-bit numbers. */
static void narrow(operator_run *run, uint16_t (*convert)(float))
{
    unsigned char *bytes = (unsigned char *)run->in[W];
    for (int64_t i = 0; bytes && i < run->in_count[W]; i++) {
        const uint16_t half = convert(run->in[W][i]);
        memcpy(bytes + 2 * i, &half, sizeof half); /* element i is read before byte 2i is written */
    }
}

static void prepare_f16(operator_run *run)
{
    prepare(run);
    narrow(run, ssm__f16_from_f32);
}

static void prepare_bf16(operator_run *run)
{
    prepare(run);
    narrow(run, ssm__bf16_from_f32);
}

static void fast(const ssm__kernels *k, operator_run *run, ssm_dtype dtype)
{
    const operator_shape s = run->shape;
    const ssm__matrix w = {run->in[W], dtype, s.a, s.b};
    k->linear(&w, run->in[BIAS], (ssm__view){run->in[X], s.b, SSM__LANES},
              (ssm__view){run->out[0], s.a, SSM__LANES}, s.tokens, 0, s.a);
}

static void oracle(operator_run *run, ssm_dtype dtype)
{
    const operator_shape s = run->shape;
    const ssm_tensor w = {.dtype = dtype, .n_dims = 2, .dims = {s.a, s.b}, .data = run->in[W]};
    for (int64_t t = 0; t < s.tokens; t++) {
        for (int64_t n = 0; n < s.a; n++) {
            double sum = (double)run->in[BIAS][n];
            double size = fabs(sum);
            for (int64_t i = 0; i < s.b; i++) {
                const double term =
                    (double)run->in[X][t * s.b + i] * ssm_tensor_get(&w, n * s.b + i);
                sum += term;
                size += fabs(term);
            }
            run->want[0][t * s.a + n] = sum;
            run->scale[0][t * s.a + n] = size;
        }
    }
}

static void fast_f32(const ssm__kernels *k, operator_run *run)
{
    fast(k, run, SSM_DTYPE_F32);
}
static void fast_f16(const ssm__kernels *k, operator_run *run)
{
    fast(k, run, SSM_DTYPE_F16);
}
static void fast_bf16(const ssm__kernels *k, operator_run *run)
{
    fast(k, run, SSM_DTYPE_BF16);
}
static void oracle_f32(operator_run *run)
{
    oracle(run, SSM_DTYPE_F32);
}
static void oracle_f16(operator_run *run)
{
    oracle(run, SSM_DTYPE_F16);
}
static void oracle_bf16(operator_run *run)
{
    oracle(run, SSM_DTYPE_BF16);
}

static double flops(const operator_shape *s)
{
    return 2.0 * (double)s->tokens * (double)s->a * (double)s->b;
}

#define LINEAR_ENTRY(id, text, suffix, prepare_function)                                           \
    const operator_entry id = {                                                                    \
        .name = text,                                                                              \
        .dimensions = "rows, cols",                                                                \
        .test_shapes = {{0, 3, 5},                                                                 \
                        {1, 1, 1},                                                                 \
                        {1, 17, 48},                                                               \
                        {2, 80, 31},                                                               \
                        {7, 16, 16},                                                               \
                        {64, 19, 100},                                                             \
                        {65, 33, 769},                                                             \
                        {-1, 0, 0}},                                                               \
        .bench_shape = {64, 3072, 768},                                                            \
        .prepare = prepare_function,                                                               \
        .fast = fast_##suffix,                                                                     \
        .oracle = oracle_##suffix,                                                                 \
        .tolerance = 4e-6,                                                                         \
        .reason = "K/16 + 5 roundings of 6e-8, relative to the sum of the terms' sizes; K <= 769", \
        .flops = flops}

LINEAR_ENTRY(operator_linear_f32, "linear_f32", f32, prepare);
LINEAR_ENTRY(operator_linear_f16, "linear_f16", f16, prepare_f16);
LINEAR_ENTRY(operator_linear_bf16, "linear_bf16", bf16, prepare_bf16);
