/* bench/op_attention.c: what attention, MLP and LayerNorm add. Dimensions are given with each
 * entry.
 */
#include <math.h>

#include "operators.h"
#include "reference/reference.h"

static double no_flops(const operator_shape *s)
{
    (void)s;
    return 0.0;
}

/* ---- layernorm: a = width, b = 1: without bias ----------------------------------------------- */

static const float norm_eps = 1e-5f;

static void prepare_norm(operator_run *run)
{
    const int64_t count = run->shape.tokens * run->shape.a;
    operator_normals(run, 0, count, 3.0, 2.0);
    operator_normals(run, 1, run->shape.a, 1.0, 0.2);
    operator_normals(run, 2, run->shape.a, 0.0, 0.5);
    operator_output(run, 0, "out", count);
}

static void fast_norm(const ssm__kernels *k, operator_run *run)
{
    k->layernorm(run->in[0], run->in[1], run->shape.b ? NULL : run->in[2], run->out[0],
                 run->shape.tokens, run->shape.a, norm_eps);
}

static void oracle_norm(operator_run *run)
{
    const int64_t width = run->shape.a;
    for (int64_t t = 0; t < run->shape.tokens; t++) {
        const float *row = run->in[0] + t * width;
        double mean = 0.0, squares = 0.0, size = 0.0;
        for (int64_t i = 0; i < width; i++) {
            mean += (double)row[i] / (double)width;
            size = fmax(size, fabs((double)row[i]));
        }
        for (int64_t i = 0; i < width; i++) {
            squares += ((double)row[i] - mean) * ((double)row[i] - mean);
        }
        const double scale = 1.0 / sqrt(squares / (double)width + (double)norm_eps);
        for (int64_t i = 0; i < width; i++) {
            const int64_t at = t * width + i;
            const double weight = scale * (double)run->in[1][i];
            const double bias = run->shape.b ? 0.0 : (double)run->in[2][i];
            run->want[0][at] = ((double)row[i] - mean) * weight + bias;
            /* the mean is as exact as the largest input */
            run->scale[0][at] = fabs(weight) * size + fabs(bias) + 1e-30;
        }
    }
}

const operator_entry operator_layernorm = {
    .name = "layernorm",
    .dimensions = "width, 1: no bias",
    .test_shapes =
        {{0, 8, 0}, {1, 1, 0}, {3, 15, 0}, {2, 16, 1}, {5, 17, 0}, {2, 768, 0}, {-1, 0, 0}},
    .bench_shape = {64, 768, 0},
    .prepare = prepare_norm,
    .fast = fast_norm,
    .oracle = oracle_norm,
    .tolerance = 2e-6,
    .reason = "half the relative error of a sum of squares (768/16 + 4 roundings), the mean's, "
              "five more roundings",
    .flops = no_flops};

/* ---- conv: a = d_conv ------------------------------------------------------------------------ */

static void prepare_conv(operator_run *run)
{
    const int64_t T = run->shape.tokens * 16, K = run->shape.a * 16;
    operator_normals(run, 0, T, 0.0, 1.0);
    operator_normals(run, 1, K, 0.0, 0.5);
    operator_normals(run, 2, 16, 0.0, 0.5);
    operator_output(run, 0, "out", T);
    operator_fill_normal(run, 3, operator_output(run, 1, "history", K - 16), K - 16, 0.0, 1.0);
}

static void fast_conv(const ssm__kernels *k, operator_run *run)
{
    k->conv(run->in[0], run->in[1], run->in[2], run->out[1], run->out[0], run->shape.tokens,
            run->shape.a);
}

static double conv_input(const operator_run *run, int64_t i, int64_t lane)
{
    const int64_t past = run->shape.a - 1;
    return (double)(i < past ? run->initial[1][i * 16 + lane] : run->in[0][(i - past) * 16 + lane]);
}

static void oracle_conv(operator_run *run)
{
    const int64_t K = run->shape.a;
    for (int64_t lane = 0; lane < 16; lane++) {
        for (int64_t t = 0; t < run->shape.tokens; t++) {
            double sum = (double)run->in[2][lane], size = fabs(sum);
            for (int64_t j = 0; j < K; j++) {
                const double term =
                    (double)run->in[1][j * 16 + lane] * conv_input(run, t + j, lane);
                sum += term;
                size += fabs(term);
            }
            run->want[0][t * 16 + lane] = sum;
            run->scale[0][t * 16 + lane] = size;
        }
        for (int64_t j = 0; j < K - 1; j++) {
            run->want[1][j * 16 + lane] = conv_input(run, run->shape.tokens + j, lane);
        }
    }
}

const operator_entry operator_conv = {
    .name = "conv",
    .dimensions = "d_conv",
    .test_shapes =
        {{0, 4, 0}, {1, 4, 0}, {2, 4, 0}, {64, 4, 0}, {5, 2, 0}, {9, 3, 0}, {4, 1, 0}, {-1, 0, 0}},
    .bench_shape = {64, 4, 0},
    .prepare = prepare_conv,
    .fast = fast_conv,
    .oracle = oracle_conv,
    .tolerance = 4e-7,
    .reason = "d_conv + 1 roundings, relative to the sum of the terms' sizes",
    .flops = no_flops};

/* ---- silu_mul -------------------------------------------------------------------------------- */

static void prepare_gate(operator_run *run)
{
    const int64_t count = run->shape.tokens;
    operator_normals(run, 0, count, 0.0, 1.0);
    operator_normals(run, 1, count, 0.0, 4.0);
    operator_output(run, 0, "out", count);
}

static void fast_gate(const ssm__kernels *k, operator_run *run)
{
    k->silu_mul(run->in[0], run->in[1], run->out[0], run->shape.tokens);
}

static void oracle_gate(operator_run *run)
{
    for (int64_t i = 0; i < run->shape.tokens; i++) {
        run->want[0][i] = (double)run->in[0][i] * ssm__ref_silu((double)run->in[1][i]);
        run->scale[0][i] = fabs(run->want[0][i]) + 1e-30;
    }
}

const operator_entry operator_silu_mul = {
    .name = "silu_mul",
    .dimensions = "none (tokens are elements)",
    .test_shapes = {{0, 0, 0}, {1, 0, 0}, {16, 0, 0}, {33, 0, 0}, {1000, 0, 0}, {-1, 0, 0}},
    .bench_shape = {4096, 0, 0},
    .prepare = prepare_gate,
    .fast = fast_gate,
    .oracle = oracle_gate,
    .tolerance = 3.6e-7,
    .reason = "2.4 ulp of SiLU (docs/numerics.md) and one rounding",
    .flops = no_flops};

/* ---- attend: tokens queries, a = keys, b = width; query t sees max(1, keys − queries + 1 + t) -
 */

enum { SCORES, MAXIMUM, TOTAL, OUT, VALUES = 0 };

static int64_t first_seen(const operator_run *run)
{
    const int64_t seen = run->shape.a - run->shape.tokens + 1;
    return seen > 1 ? seen : 1;
}

/* As after another block: sums of size 1 under a maximum near the new scores. */
static void prepare_attend(operator_run *run)
{
    const int64_t T = run->shape.tokens, count = T * run->shape.b;
    const int64_t values = run->shape.a * run->shape.b;
    operator_normals(run, VALUES, values, 0.0, 1.0);
    operator_fill_normal(run, 1, operator_output(run, SCORES, "probabilities", T * 64), T * 64, 0.0,
                         3.0);
    operator_fill_normal(run, 2, operator_output(run, MAXIMUM, "maximum", T), T, 4.0, 3.0);
    operator_fill_normal(run, 3, operator_output(run, TOTAL, "total", T), T, 20.0, 1.0);
    operator_fill_normal(run, 4, operator_output(run, OUT, "out", count), count, 0.0, 1.0);
}

static void fast_attend(const ssm__kernels *k, operator_run *run)
{
    double total[64];
    for (int64_t t = 0; t < run->shape.tokens; t++) {
        total[t] = (double)run->out[TOTAL][t];
    }
    k->attend(&(ssm__attend_args){.queries = run->shape.tokens,
                                  .keys = run->shape.a,
                                  .seen = first_seen(run),
                                  .scores = run->out[SCORES],
                                  .values = run->in[VALUES],
                                  .width = run->shape.b,
                                  .maximum = run->out[MAXIMUM],
                                  .total = total,
                                  .out = run->out[OUT],
                                  .out_stride = run->shape.b});
    for (int64_t t = 0; t < run->shape.tokens; t++) {
        run->out[TOTAL][t] = (float)total[t];
    }
}

static void oracle_query(operator_run *run, int64_t t, int64_t seen)
{
    const float *scores = run->initial[SCORES] + t * 64;
    double top = (double)run->initial[MAXIMUM][t];
    for (int64_t j = 0; j < seen; j++) {
        top = fmax(top, (double)scores[j]);
    }
    const double factor = exp((double)run->initial[MAXIMUM][t] - top);
    double total = (double)run->initial[TOTAL][t] * factor;
    double *p = run->want[SCORES] + t * 64;
    for (int64_t j = 0; j < 64; j++) {
        p[j] = j < seen ? exp((double)scores[j] - top) : 0.0;
        total += p[j];
        run->scale[SCORES][t * 64 + j] = p[j] * (1.0 + fabs((double)scores[j] - top)) + 1e-30;
    }
    run->want[MAXIMUM][t] = top;
    run->want[TOTAL][t] = run->scale[TOTAL][t] = total;
    for (int64_t i = 0; i < run->shape.b; i++) {
        const int64_t at = t * run->shape.b + i;
        run->want[OUT][at] = (double)run->initial[OUT][at] * factor;
        run->scale[OUT][at] = fabs(run->want[OUT][at]);
        for (int64_t j = 0; j < seen; j++) {
            const double term = p[j] * (double)run->in[VALUES][j * run->shape.b + i];
            run->want[OUT][at] += term;
            run->scale[OUT][at] += fabs(term);
        }
    }
}

static void oracle_attend(operator_run *run)
{
    for (int64_t t = 0; t < run->shape.tokens; t++) {
        const int64_t seen = first_seen(run) + t;
        oracle_query(run, t, seen < run->shape.a ? seen : run->shape.a);
    }
}

static double attend_flops(const operator_shape *s)
{
    return 2.0 * (double)(s->tokens * s->a * s->b);
}

const operator_entry operator_attend = {
    .name = "attend",
    .dimensions = "keys, width of a head",
    .test_shapes = {{0, 1, 8},
                    {1, 1, 16},
                    {1, 64, 128},
                    {64, 64, 17},
                    {7, 9, 5},
                    {3, 20, 150},
                    {5, 40, 272},
                    {-1, 0, 0}},
    .bench_shape = {64, 64, 128},
    .prepare = prepare_attend,
    .fast = fast_attend,
    .oracle = oracle_attend,
    .tolerance = 2e-6,
    .reason = "1.1 ulp of exp, its argument's rounding, at most 64 roundings in rising order, "
              "relative to the terms' sizes",
    .flops = attend_flops};
