/* bench/op_elementwise.c: norm, convolution, activations, log-sum-exp, flush. Dimensions are given
 * with each entry; "lanes" are the 16 channels of a group. */
#include <math.h>
#include <string.h>

#include "operators.h"
#include "reference/reference.h"

static double no_flops(const operator_shape *s)
{
    (void)s;
    return 0.0;
}

/* ---- rmsnorm: a = width ---------------------------------------------------------------------- */

static const float norm_eps = 1e-5f;

static void prepare_norm(operator_run *run)
{
    const int64_t count = run->shape.tokens * run->shape.a;
    operator_normals(run, 0, count, 0.1, 2.0);
    operator_normals(run, 1, run->shape.a, 1.0, 0.2);
    operator_output(run, 0, "out", count);
}

static void fast_norm(const ssm__kernels *k, operator_run *run)
{
    k->rmsnorm(run->in[0], run->in[1], run->out[0], run->shape.tokens, run->shape.a, norm_eps);
}

static void oracle_norm(operator_run *run)
{
    const int64_t width = run->shape.a;
    for (int64_t t = 0; t < run->shape.tokens; t++) {
        double squares = 0.0;
        for (int64_t i = 0; i < width; i++) {
            squares += (double)run->in[0][t * width + i] * (double)run->in[0][t * width + i];
        }
        const double scale = 1.0 / sqrt(squares / (double)width + (double)norm_eps);
        for (int64_t i = 0; i < width; i++) {
            const int64_t at = t * width + i;
            run->want[0][at] = (double)run->in[0][at] * scale * (double)run->in[1][i];
            run->scale[0][at] = fabs(run->want[0][at]) + 1e-30;
        }
    }
}

const operator_entry operator_rmsnorm = {
    .name = "rmsnorm",
    .dimensions = "width",
    .test_shapes =
        {{0, 8, 0}, {1, 1, 0}, {3, 15, 0}, {2, 16, 0}, {5, 17, 0}, {2, 768, 0}, {-1, 0, 0}},
    .bench_shape = {64, 768, 0},
    .prepare = prepare_norm,
    .fast = fast_norm,
    .oracle = oracle_norm,
    .tolerance = 2e-6,
    .reason =
        "half the relative error of a sum of squares (768/16 + 4 roundings), four more roundings",
    .flops = no_flops};

/* ---- conv_silu: a = d_conv ------------------------------------------------------------------- */

enum { CONV_X, CONV_W, CONV_BIAS };

static void prepare_conv(operator_run *run)
{
    const int64_t T = run->shape.tokens * 16;
    const int64_t K = run->shape.a * 16;
    operator_normals(run, CONV_X, T, 0.0, 1.0);
    operator_normals(run, CONV_W, K, 0.0, 0.5);
    operator_normals(run, CONV_BIAS, 16, 0.0, 0.5);
    operator_output(run, 0, "out", T);
    operator_fill_normal(run, 3, operator_output(run, 1, "history", K - 16), K - 16, 0.0, 1.0);
    operator_output(run, 2, "sums", T);
}

static void fast_conv(const ssm__kernels *k, operator_run *run)
{
    k->conv_silu(run->in[CONV_X], run->in[CONV_W], run->in[CONV_BIAS], run->out[1], run->out[0],
                 run->out[2], run->shape.tokens, run->shape.a);
}

/* Input number i of the stream that begins with the history. */
static double conv_input(const operator_run *run, int64_t i, int64_t lane)
{
    const int64_t past = run->shape.a - 1;
    return (double)(i < past ? run->initial[1][i * 16 + lane]
                             : run->in[CONV_X][(i - past) * 16 + lane]);
}

static void oracle_conv(operator_run *run)
{
    const int64_t K = run->shape.a;
    for (int64_t lane = 0; lane < 16; lane++) {
        for (int64_t t = 0; t < run->shape.tokens; t++) {
            double sum = (double)run->in[CONV_BIAS][lane];
            double size = fabs(sum);
            for (int64_t j = 0; j < K; j++) {
                const double term =
                    (double)run->in[CONV_W][j * 16 + lane] * conv_input(run, t + j, lane);
                sum += term;
                size += fabs(term);
            }
            run->want[0][t * 16 + lane] = ssm__ref_silu(sum);
            run->scale[0][t * 16 + lane] = size;
            run->want[2][t * 16 + lane] = sum;
            run->scale[2][t * 16 + lane] = size;
        }
        for (int64_t j = 0; j < K - 1; j++) {
            run->want[1][j * 16 + lane] = conv_input(run, run->shape.tokens + j, lane);
        }
    }
}

const operator_entry operator_conv_silu = {
    .name = "conv_silu",
    .dimensions = "d_conv",
    .test_shapes = {{0, 4, 0},
                    {1, 4, 0},
                    {2, 4, 0},
                    {3, 4, 0},
                    {64, 4, 0},
                    {5, 2, 0},
                    {9, 3, 0},
                    {4, 1, 0},
                    {-1, 0, 0}},
    .bench_shape = {64, 4, 0},
    .prepare = prepare_conv,
    .fast = fast_conv,
    .oracle = oracle_conv,
    .tolerance = 1e-6,
    .reason = "d_conv + 1 roundings and 2.4 ulp of SiLU, relative to the sum of the terms' sizes",
    .flops = no_flops};

/* ---- one argument, one result ---------------------------------------------------------------- */

static void prepare_softplus(operator_run *run)
{
    const int64_t count = run->shape.tokens * 16;
    operator_normals(run, 0, count, -3.0, 4.0);
    operator_normals(run, 1, 16, 0.0, 1.0);
    operator_output(run, 0, "out", count);
}

static void fast_softplus(const ssm__kernels *k, operator_run *run)
{
    k->softplus_bias(run->in[0], run->in[1], run->out[0], run->shape.tokens);
}

static void oracle_softplus(operator_run *run)
{
    for (int64_t i = 0; i < run->out_count[0]; i++) {
        const double bias = (double)run->in[1][i % 16];
        const double x = (double)run->in[0][i] + bias;
        run->want[0][i] = ssm__ref_softplus(x);
        /* the rounding of x + bias is an error of the argument: relative to Δ up to |x| */
        run->scale[0][i] = run->want[0][i] * (1.0 + fabs(x) + fabs(bias));
    }
}

const operator_entry operator_softplus_bias = {
    .name = "softplus_bias",
    .dimensions = "none (16 lanes)",
    .test_shapes = {{0, 0, 0}, {1, 0, 0}, {64, 0, 0}, {-1, 0, 0}},
    .bench_shape = {64, 0, 0},
    .prepare = prepare_softplus,
    .fast = fast_softplus,
    .oracle = oracle_softplus,
    .tolerance = 4e-7,
    .reason = "2.8 ulp of softplus and the rounding of the argument",
    .flops = no_flops};

static void prepare_unary(operator_run *run)
{
    operator_normals(run, 0, run->shape.tokens, 0.0, 8.0);
    operator_output(run, 0, "out", run->shape.tokens);
}

static void prepare_negative(operator_run *run)
{
    prepare_unary(run);
    for (int64_t i = 0; run->in[0] && i < run->shape.tokens; i++) {
        run->in[0][i] = -fabsf(run->in[0][i]);
    }
}

static void oracle_unary(operator_run *run, double (*function)(double))
{
    for (int64_t i = 0; i < run->shape.tokens; i++) {
        run->want[0][i] = function((double)run->in[0][i]);
        run->scale[0][i] = fabs(run->want[0][i]) + 1e-30;
    }
}

static void fast_silu(const ssm__kernels *k, operator_run *run)
{
    k->silu(run->in[0], run->out[0], run->shape.tokens);
}
static void fast_exp(const ssm__kernels *k, operator_run *run)
{
    k->exp(run->in[0], run->out[0], run->shape.tokens);
}
static void fast_decay(const ssm__kernels *k, operator_run *run)
{
    k->decay(run->in[0], run->out[0], run->shape.tokens);
}
static void oracle_silu(operator_run *run)
{
    oracle_unary(run, ssm__ref_silu);
}
static void oracle_exp(operator_run *run)
{
    oracle_unary(run, exp);
}
static void oracle_decay(operator_run *run)
{
    oracle_unary(run, exp2);
}

#define UNARY_ENTRY(id, function, prepare_function, bound, why)                                    \
    const operator_entry id = {                                                                    \
        .name = #function,                                                                         \
        .dimensions = "none (tokens are elements)",                                                \
        .test_shapes =                                                                             \
            {{0, 0, 0}, {1, 0, 0}, {15, 0, 0}, {16, 0, 0}, {17, 0, 0}, {1000, 0, 0}, {-1, 0, 0}},  \
        .bench_shape = {4096, 0, 0},                                                               \
        .prepare = prepare_function,                                                               \
        .fast = fast_##function,                                                                   \
        .oracle = oracle_##function,                                                               \
        .tolerance = bound,                                                                        \
        .reason = why,                                                                             \
        .flops = no_flops}

UNARY_ENTRY(operator_silu, silu, prepare_unary, 3e-7, "2.4 ulp, docs/numerics.md");
UNARY_ENTRY(operator_exp, exp, prepare_unary, 1.4e-7, "1.1 ulp, docs/numerics.md");
UNARY_ENTRY(operator_decay, decay, prepare_negative, 1.4e-7, "1.1 ulp, docs/numerics.md");

/* ---- add ------------------------------------------------------------------------------------- */

static void prepare_add(operator_run *run)
{
    const int64_t count = run->shape.tokens;
    operator_normals(run, 0, count, 0.0, 1.0);
    operator_fill_normal(run, 1, operator_output(run, 0, "y", count), count, 0.0, 1.0);
}

static void fast_add(const ssm__kernels *k, operator_run *run)
{
    k->add(run->in[0], run->out[0], run->shape.tokens);
}

static void oracle_add(operator_run *run)
{
    for (int64_t i = 0; i < run->shape.tokens; i++) {
        run->want[0][i] = (double)run->in[0][i] + (double)run->initial[0][i];
        run->scale[0][i] = fabs(run->want[0][i]) + 1e-30;
    }
}

const operator_entry operator_add = {
    .name = "add",
    .dimensions = "none (tokens are elements)",
    .test_shapes = {{0, 0, 0}, {1, 0, 0}, {16, 0, 0}, {33, 0, 0}, {-1, 0, 0}},
    .bench_shape = {49152, 0, 0},
    .prepare = prepare_add,
    .fast = fast_add,
    .oracle = oracle_add,
    .tolerance = 6e-8,
    .reason = "one rounding",
    .flops = no_flops};

/* ---- logsumexp: one row of `tokens` logits
 * ------------------------------------------------------- */

static void prepare_row(operator_run *run)
{
    operator_normals(run, 0, run->shape.tokens, -20.0, 15.0);
    operator_output(run, 0, "log-sum-exp", 1);
}

static void fast_logsumexp(const ssm__kernels *k, operator_run *run)
{
    run->out[0][0] = (float)k->logsumexp(run->in[0], run->shape.tokens);
}

static void oracle_logsumexp(operator_run *run)
{
    double maximum = -INFINITY;
    for (int64_t i = 0; i < run->shape.tokens; i++) {
        maximum = fmax(maximum, (double)run->in[0][i]);
    }
    double sum = 0.0;
    for (int64_t i = 0; i < run->shape.tokens; i++) {
        sum += exp((double)run->in[0][i] - maximum);
    }
    run->want[0][0] = maximum + log(sum);
    run->scale[0][0] = 1.0 + fabs(run->want[0][0]);
}

const operator_entry operator_logsumexp = {
    .name = "logsumexp",
    .dimensions = "none (tokens are the row)",
    .test_shapes =
        {{1, 0, 0}, {15, 0, 0}, {16, 0, 0}, {17, 0, 0}, {4096, 0, 0}, {50280, 0, 0}, {-1, 0, 0}},
    .bench_shape = {50280, 0, 0},
    .prepare = prepare_row,
    .fast = fast_logsumexp,
    .oracle = oracle_logsumexp,
    .tolerance = 3e-7,
    .reason = "1.1 ulp a term, a float64 sum, the rounding of this test's float32 result",
    .flops = no_flops};

/* ---- flush: tokens rows of 16; the float64 sums are shown as two float32 halves
 * ------------------ */

static void prepare_flush(operator_run *run)
{
    const int64_t count = run->shape.tokens * 16;
    operator_fill_normal(run, 0, operator_output(run, 0, "block", count), count, 0.0, 1.0);
    operator_output(run, 1, "sums", count * 2);
}

static void fast_flush(const ssm__kernels *k, operator_run *run)
{
    k->flush(run->out[0], (double *)(void *)run->out[1], run->shape.tokens * 16);
}

static void oracle_flush(operator_run *run)
{
    for (int64_t i = 0; i < run->shape.tokens * 16; i++) {
        const double value = (double)run->initial[0][i]; /* 0 + value, exact */
        float halves[2];
        memcpy(halves, &value, sizeof halves);
        run->want[1][2 * i] = (double)halves[0];
        run->want[1][2 * i + 1] = (double)halves[1];
    }
}

const operator_entry operator_flush = {
    .name = "flush",
    .dimensions = "none (tokens are rows)",
    .test_shapes = {{0, 0, 0}, {1, 0, 0}, {153, 0, 0}, {-1, 0, 0}},
    .bench_shape = {153, 0, 0},
    .prepare = prepare_flush,
    .fast = fast_flush,
    .oracle = oracle_flush,
    .tolerance = 0.0,
    .reason = "float64 sums of one float32 are exact",
    .flops = no_flops};
