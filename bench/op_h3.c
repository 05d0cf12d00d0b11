/* bench/op_h3.c: the recurrence of H3 over the pairs of a head's channels, forwards and backwards.
 * a: d_state, b: channels of a head. */
#include <math.h>
#include <stdlib.h>

#include "kernels/training.h"
#include "operators.h"

enum { Q, K, V, DECAY, READ, SKIP, DOUT, SCRATCH };
enum { O };                                /* of forward */
enum { DQ, DK, DV, DDECAY, DREAD, DSKIP }; /* of backward */

static void prepare_inputs(operator_run *run, int64_t scratch)
{
    const int64_t T = run->shape.tokens, N = run->shape.a, W = run->shape.b;
    operator_normals(run, Q, T * 16, 0.0, 1.0);
    operator_normals(run, K, T * 16, 0.0, 1.0);
    operator_normals(run, V, T * 16, 0.0, 1.0);
    operator_normals(run, DECAY, N * 16, -3.0, 1.0);
    operator_normals(run, READ, N * 16, 0.0, 0.1);
    operator_normals(run, SKIP, 16, 1.0, 0.3);
    operator_normals(run, DOUT, T * 16, 0.0, 1.0);
    operator_input(run, SCRATCH, scratch);
    for (int64_t i = 0; run->memory && i < N * 16; i++) { /* exp(−Δ(n + 1)), the same in a head */
        const int64_t first = i / 16 * 16 + i % 16 / W * W;
        float *decay = &run->in[DECAY][i];
        *decay = i == first ? expf(-expf(*decay) * (float)(i / 16 + 1)) : run->in[DECAY][first];
    }
}

static void prepare(operator_run *run)
{
    const int64_t T = run->shape.tokens;
    prepare_inputs(run, ssm__h3_scratch(run->shape.a));
    operator_fill_normal(run, 9, operator_output(run, O, "o", T * 16), T * 16, 0.0, 1.0);
}

static void prepare_backward(operator_run *run)
{
    static const char *const names[] = {"dq", "dk", "dv", "ddecay", "dread", "dD"};
    const int64_t T = run->shape.tokens, N = run->shape.a;
    const int64_t counts[] = {T * 16, T * 16, T * 16, N * 16, N * 16, 16};
    prepare_inputs(run, ssm__h3_backward_scratch(T, N));
    for (int o = DQ; o <= DSKIP; o++) {
        operator_fill_normal(run, 10 + o, operator_output(run, o, names[o], counts[o]), counts[o],
                             0.0, 1.0);
    }
}

static ssm__h3_args arguments(operator_run *run)
{
    return (ssm__h3_args){.tokens = run->shape.tokens,
                          .d_state = run->shape.a,
                          .width = run->shape.b,
                          .q = run->in[Q],
                          .k = run->in[K],
                          .v = run->in[V],
                          .decay = run->in[DECAY],
                          .read = run->in[READ],
                          .D = run->in[SKIP],
                          .scratch = run->in[SCRATCH]};
}

static void fast(const ssm__kernels *k, operator_run *run)
{
    const ssm__h3_args args = arguments(run);
    k->training->h3.forward(&args, run->out[O]);
}

static void fast_backward(const ssm__kernels *k, operator_run *run)
{
    const ssm__h3_backward_args args = {.forward = arguments(run),
                                        .dout = run->in[DOUT],
                                        .dq = run->out[DQ],
                                        .dk = run->out[DK],
                                        .dv = run->out[DV],
                                        .ddecay = run->out[DDECAY],
                                        .dread = run->out[DREAD],
                                        .dD = run->out[DSKIP]};
    k->training->h3.backward(&args);
}

/* ---- the oracle: lane j with lane i of its head ---------------------------------------------- */

/* The mode of a pair that begins at token `from` and is read at `to` ≥ from: x = a^(to − from) u;
 * s_to = Σ_from u_from Σ_n c a^(to − from), so everything follows from the sums of powers. */
static double power_sum(const operator_run *run, int64_t lane, int64_t lag)
{
    double sum = lag == 0 ? (double)run->in[SKIP][lane] : 0.0;
    for (int64_t n = 0; n < run->shape.a; n++) {
        const double a = (double)run->in[DECAY][n * 16 + lane];
        sum += (double)run->in[READ][n * 16 + lane] * pow(a, (double)lag);
    }
    return sum;
}

static void oracle_forward_pair(operator_run *run, int64_t i, int64_t j, const double *powers)
{
    for (int64_t to = 0; to < run->shape.tokens; to++) {
        double s = 0.0;
        for (int64_t from = 0; from <= to; from++) {
            const double u = (double)run->in[K][from * 16 + i] * (double)run->in[V][from * 16 + j];
            s += powers[to - from] * u;
        }
        run->want[O][to * 16 + j] += (double)run->in[Q][to * 16 + i] * s;
    }
}

/* lags[d] = Σ_to ds_to u_(to − d): what the constants' gradients follow from. */
static void oracle_backward_pair(operator_run *run, int64_t i, int64_t j, const double *powers,
                                 double *lags)
{
    for (int64_t to = 0; to < run->shape.tokens; to++) {
        const double dout = (double)run->in[DOUT][to * 16 + j];
        const double q = (double)run->in[Q][to * 16 + i];
        for (int64_t from = 0; from <= to; from++) {
            const double k = (double)run->in[K][from * 16 + i];
            const double v = (double)run->in[V][from * 16 + j];
            const double power = powers[to - from];
            run->want[DQ][to * 16 + i] += dout * power * k * v;
            run->want[DK][from * 16 + i] += dout * q * power * v;
            run->want[DV][from * 16 + j] += dout * q * power * k;
            lags[to - from] += dout * q * k * v;
        }
    }
}

static void oracle_constants(operator_run *run, int64_t j, const double *lags)
{
    for (int64_t n = 0; n < run->shape.a; n++) {
        const int64_t at = n * 16 + j;
        const double a = (double)run->in[DECAY][at], c = (double)run->in[READ][at];
        for (int64_t lag = 0; lag < run->shape.tokens; lag++) {
            run->want[DREAD][at] += lags[lag] * pow(a, (double)lag);
            if (lag > 0) {
                run->want[DDECAY][at] += lags[lag] * c * (double)lag * pow(a, (double)(lag - 1));
            }
        }
    }
    run->want[DSKIP][j] += run->shape.tokens > 0 ? lags[0] : 0.0;
}

static void oracle_of(operator_run *run, bool backward)
{
    const int64_t T = run->shape.tokens, W = run->shape.b;
    const int last = backward ? DSKIP : O;
    double *powers = calloc((size_t)(2 * T + 1), sizeof *powers),
           *lags = powers ? powers + T : NULL;
    for (int o = 0; o <= last; o++) {
        for (int64_t i = 0; i < run->out_count[o]; i++) {
            run->want[o][i] = powers ? (double)run->initial[o][i] : (double)NAN;
        }
    }
    for (int64_t j = 0; powers && j < 16; j++) {
        for (int64_t lag = 0; lag < T; lag++) {
            powers[lag] = power_sum(run, j, lag);
            lags[lag] = 0.0;
        }
        for (int64_t i = j / W * W; i < (j / W + 1) * W; i++) {
            if (backward) {
                oracle_backward_pair(run, i, j, powers, lags);
            } else {
                oracle_forward_pair(run, i, j, powers);
            }
        }
        if (backward) {
            oracle_constants(run, j, lags);
        }
    }
    for (int o = 0; o <= last; o++) {
        operator_scale_by_largest(run, o);
    }
    free(powers);
}

static void oracle(operator_run *run)
{
    oracle_of(run, false);
}

static void oracle_backward(operator_run *run)
{
    oracle_of(run, true);
}

static double flops(const operator_shape *s)
{
    return 16.0 * (double)(s->tokens * s->a * s->b) * 4.0;
}

static double backward_flops(const operator_shape *s)
{
    return 16.0 * (double)(s->tokens * s->a * s->b) * 14.0;
}

#define H3_ENTRY(id, label, prepare_function, fast_function, oracle_function, flops_function)      \
    const operator_entry id = {                                                                    \
        .name = label,                                                                             \
        .dimensions = "d_state, head_dim",                                                         \
        .test_shapes = {{0, 16, 4},                                                                \
                        {1, 16, 16},                                                               \
                        {2, 1, 2},                                                                 \
                        {15, 3, 8},                                                                \
                        {16, 16, 8},                                                               \
                        {17, 4, 1},                                                                \
                        {33, 7, 4},                                                                \
                        {64, 16, 16},                                                              \
                        {150, 17, 2},                                                              \
                        {-1, 0, 0}},                                                               \
        .bench_shape = {512, 16, 8},                                                               \
        .prepare = prepare_function,                                                               \
        .fast = fast_function,                                                                     \
        .oracle = oracle_function,                                                                 \
        .tolerance = 5e-6,                                                                         \
        .reason = "chains as long as the text of roundings of 6e-8, relative to the largest",      \
        .flops = flops_function}

H3_ENTRY(operator_h3, "h3", prepare, fast, oracle, flops);
H3_ENTRY(operator_h3_backward, "h3_backward", prepare_backward, fast_backward, oracle_backward,
         backward_flops);
