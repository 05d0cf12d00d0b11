/* bench/op_backward_conv.c: backwards through the convolution of a group (a: d_conv) and through a
 * gate. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/training.h"
#include "operators.h"
#include "reference/backward.h"
#include "reference/reference.h"

enum { X, WEIGHT, BIAS, DOUT };
enum { DX, DWEIGHT, DBIAS };

static void prepare_conv(operator_run *run)
{
    const int64_t T = run->shape.tokens * 16, K = run->shape.a * 16;
    operator_normals(run, X, T, 0.0, 1.0);
    operator_normals(run, WEIGHT, K, 0.0, 0.5);
    operator_normals(run, BIAS, 16, 0.0, 0.5);
    operator_normals(run, DOUT, T, 0.0, 1.0);
    operator_output(run, DX, "dx", T);
    operator_fill_normal(run, 4, operator_output(run, DWEIGHT, "dweight", K), K, 0.0, 1.0);
    operator_fill_normal(run, 5, operator_output(run, DBIAS, "dbias", 16), 16, 0.0, 1.0);
}

static ssm__conv_backward_args conv_arguments(operator_run *run)
{
    return (ssm__conv_backward_args){.tokens = run->shape.tokens,
                                     .d_conv = run->shape.a,
                                     .x = run->in[X],
                                     .weight = run->in[WEIGHT],
                                     .bias = run->in[BIAS],
                                     .dout = run->in[DOUT],
                                     .dx = run->out[DX],
                                     .dweight = run->out[DWEIGHT],
                                     .dbias = run->out[DBIAS]};
}

static void fast_conv_silu(const ssm__kernels *k, operator_run *run)
{
    const ssm__conv_backward_args args = conv_arguments(run);
    k->training->conv_silu_backward(&args);
}

/* In place: dx is dout. */
static void fast_conv(const ssm__kernels *k, operator_run *run)
{
    ssm__conv_backward_args args = conv_arguments(run);
    memcpy(args.dx, args.dout, (size_t)run->out_count[DX] * sizeof(float));
    args.dout = args.dx;
    k->training->conv_backward(&args);
}

/* [K][16] of the kernel to [16][K] of the reference, or back. */
static void turn(const double *from, double *to, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) {
            to[j * rows + i] = from[i * cols + j];
        }
    }
}

static void oracle_conv(operator_run *run, bool silu)
{
    const int64_t T = run->shape.tokens, K = run->shape.a;
    double *x = operator_widen(run->in[X], T * 16), *taps = operator_widen(run->in[WEIGHT], K * 16);
    double *dout = operator_widen(run->in[DOUT], T * 16),
           *before = operator_widen(run->in[X], T * 16);
    double *dtaps = operator_widen(run->initial[DWEIGHT], K * 16);
    double *weight = malloc((size_t)K * 32 * sizeof *weight);
    double bias[16];
    for (int i = 0; i < 16; i++) {
        bias[i] = (double)run->in[BIAS][i];
        run->want[DBIAS][i] = (double)run->initial[DBIAS][i];
    }
    if (x && taps && dout && before && dtaps && weight) {
        double *dweight = weight + K * 16;
        turn(taps, weight, K, 16);
        turn(dtaps, dweight, K, 16);
        if (silu) {
            ssm__ref_conv_silu_backward(x, weight, bias, dout, T, 16, K, before, run->want[DX],
                                        dweight, run->want[DBIAS]);
        } else {
            ssm__ref_conv_backward(x, weight, dout, T, 16, K, run->want[DX], dweight,
                                   run->want[DBIAS]);
        }
        turn(dweight, run->want[DWEIGHT], 16, K);
    } else {
        run->want[DBIAS][0] = NAN; /* no oracle: the comparison fails */
    }
    for (int o = DX; o <= DBIAS; o++) {
        operator_scale_by_largest(run, o);
    }
    free(x);
    free(taps);
    free(dout);
    free(before);
    free(dtaps);
    free(weight);
}

static void oracle_conv_silu(operator_run *run)
{
    oracle_conv(run, true);
}

static void oracle_conv_plain(operator_run *run)
{
    oracle_conv(run, false);
}

static double conv_flops(const operator_shape *s)
{
    return 96.0 * (double)s->tokens * (double)s->a; /* three products of 16 lanes a tap */
}

#define CONV_ENTRY(id, label, fast_function, oracle_function)                                      \
    const operator_entry id = {                                                                    \
        .name = label,                                                                             \
        .dimensions = "d_conv",                                                                    \
        .test_shapes = {{0, 4, 0},                                                                 \
                        {1, 4, 0},                                                                 \
                        {2, 4, 0},                                                                 \
                        {3, 4, 0},                                                                 \
                        {64, 4, 0},                                                                \
                        {300, 4, 0},                                                               \
                        {5, 2, 0},                                                                 \
                        {9, 3, 0},                                                                 \
                        {4, 1, 0},                                                                 \
                        {40, 7, 0},                                                                \
                        {-1, 0, 0}},                                                               \
        .bench_shape = {512, 4, 0},                                                                \
        .prepare = prepare_conv,                                                                   \
        .fast = fast_function,                                                                     \
        .oracle = oracle_function,                                                                 \
        .tolerance = 2e-6,                                                                         \
        .reason = "a chain over 300 tokens of terms with five roundings and two exponentials",     \
        .flops = conv_flops}

CONV_ENTRY(operator_conv_silu_backward, "conv_silu_backward", fast_conv_silu, oracle_conv_silu);
CONV_ENTRY(operator_conv_backward, "conv_backward", fast_conv, oracle_conv_plain);

/* ---- silu_mul ----------------------------------------------------------------------------------
 */

enum { GATE = 1, GATED_DOUT = 2, DGATE = 1 };

static void prepare_gate(operator_run *run)
{
    const int64_t count = run->shape.tokens;
    operator_normals(run, X, count, 0.0, 1.0);
    operator_normals(run, GATE, count, 0.0, 6.0);
    operator_normals(run, GATED_DOUT, count, 0.0, 1.0);
    operator_output(run, DX, "dx", count);
    operator_output(run, DGATE, "dgate", count);
}

static void fast_gate(const ssm__kernels *k, operator_run *run)
{
    k->training->silu_mul_backward(run->in[X], run->in[GATE], run->in[GATED_DOUT], run->out[DX],
                                   run->out[DGATE], run->shape.tokens);
}

static void oracle_gate(operator_run *run)
{
    for (int64_t i = 0; i < run->shape.tokens; i++) {
        const double x = (double)run->in[X][i], gate = (double)run->in[GATE][i];
        const double d = (double)run->in[GATED_DOUT][i];
        run->want[DX][i] = d * ssm__ref_silu(gate);
        run->scale[DX][i] = fabs(run->want[DX][i]) + 1e-30;
        run->want[DGATE][i] = d * x * ssm__ref_silu_slope(gate);
        /* σ and xσ(1−σ) cancel where SiLU' passes zero and where 1 − σ has lost its digits */
        const double sigmoid = ssm__ref_sigmoid(gate);
        run->scale[DGATE][i] = fabs(d * x) * sigmoid * (1.0 + fabs(gate)) + 1e-30;
    }
}

static double gate_flops(const operator_shape *s)
{
    return 8.0 * (double)s->tokens;
}

const operator_entry operator_silu_mul_backward = {
    .name = "silu_mul_backward",
    .dimensions = "none (tokens are elements)",
    .test_shapes =
        {{0, 0, 0}, {1, 0, 0}, {15, 0, 0}, {16, 0, 0}, {17, 0, 0}, {1000, 0, 0}, {-1, 0, 0}},
    .bench_shape = {49152, 0, 0},
    .prepare = prepare_gate,
    .fast = fast_gate,
    .oracle = oracle_gate,
    .tolerance = 5e-7,
    .reason = "2.4 ulp of SiLU, as many of σ, three roundings",
    .flops = gate_flops};
