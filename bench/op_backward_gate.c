/* bench/op_backward_gate.c: the gate of gated linear attention, forwards and backwards. a: d_state.
 */
#include <math.h>

#include "kernels/training.h"
#include "operators.h"

enum { P, B, C, PASSING, FACTORS, COUNTS, OWN };
enum { SCALED_B, SCALED_C, TOTALS, DB, DC, DP };

static const double divisor = 16.0;

static void prepare(operator_run *run)
{
    const int64_t T = run->shape.tokens, N = run->shape.a;
    operator_normals(run, P, T * N, -4.0, 1.0); /* pieces of 16 tokens: 2^(16·0.09·8) at most */
    operator_normals(run, B, T * N, 0.0, 1.0);
    operator_normals(run, C, T * N, 0.0, 1.0);
    operator_normals(run, PASSING, N, 0.0, 1.0);
    operator_input(run, FACTORS, T * N);
    operator_input(run, COUNTS, T);
    operator_normals(run, OWN, T, 0.0, 1.0);
    operator_output(run, SCALED_B, "B", T * N);
    operator_output(run, SCALED_C, "C", T * N);
    operator_output(run, TOTALS, "totals", T * N);
    operator_fill_normal(run, 7, operator_output(run, DB, "dB", T * N), T * N, 0.0, 1.0);
    operator_fill_normal(run, 8, operator_output(run, DC, "dC", T * N), T * N, 0.0, 1.0);
    operator_output(run, DP, "dp", T * N);
}

static void fast(const ssm__kernels *k, operator_run *run)
{
    const int64_t T = run->shape.tokens, N = run->shape.a;
    int32_t counts[SSM__TILE];
    const ssm__gate_args args = {.tokens = T,
                                 .d_state = N,
                                 .rate = (float)(-OPERATOR_LOG2E / divisor),
                                 .p = run->in[P],
                                 .p_stride = (ptrdiff_t)N,
                                 .B = run->in[B],
                                 .C = run->in[C],
                                 .scaled_B = run->out[SCALED_B],
                                 .scaled_C = run->out[SCALED_C],
                                 .factors = run->in[FACTORS],
                                 .totals = run->out[TOTALS],
                                 .counts = counts};
    k->training->ssd.gate(&args);
    for (int64_t t = 0; t < T; t += counts[t]) {
        const ssm__gate_backward_args back = {.tokens = counts[t],
                                              .d_state = N,
                                              .share = (float)(1.0 / divisor),
                                              .p = args.p + t * N,
                                              .p_stride = (ptrdiff_t)N,
                                              .scaled_B = args.scaled_B + t * N,
                                              .scaled_C = args.scaled_C + t * N,
                                              .factors = args.factors + t * N,
                                              .passing = run->in[PASSING],
                                              .own = run->in[OWN] + t,
                                              .dB = run->out[DB] + t * N,
                                              .dC = run->out[DC] + t * N,
                                              .dp = run->out[DP] + t * N};
        k->training->ssd.gate_backward(&back);
    }
}

/* log α */
static double gate_log(const operator_run *run, int64_t at)
{
    return -log1p(exp(-(double)run->in[P][at])) / divisor;
}

/* Mode n of a piece. */
static void oracle_piece(operator_run *run, int64_t first, int64_t end, int64_t n)
{
    const int64_t N = run->shape.a;
    double tail = 0.0, passing = (double)run->in[PASSING][n];
    for (int64_t t = end - 1; t >= first; t--) {
        const int64_t at = t * N + n;
        run->want[SCALED_B][at] = (double)run->in[B][at] * exp(tail);
        run->want[SCALED_C][at] = (double)run->in[C][at] * exp(-tail);
        const double own = (double)run->in[OWN][t];
        run->want[DB][at] = (double)run->initial[DB][at] * exp(tail) + own * (double)run->in[C][at];
        run->want[DC][at] =
            (double)run->initial[DC][at] * exp(-tail) + own * (double)run->in[B][at];
        tail += gate_log(run, at);
    }
    run->want[TOTALS][first * N + n] = exp(tail);
    for (int64_t t = first; t < end; t++) {
        const int64_t at = t * N + n;
        run->want[DP][at] = passing / divisor / (1.0 + exp((double)run->in[P][at]));
        passing += run->want[SCALED_B][at] * (double)run->initial[DB][at];
        passing -= run->want[SCALED_C][at] * (double)run->initial[DC][at];
    }
}

static void oracle(operator_run *run)
{
    const int64_t T = run->shape.tokens, N = run->shape.a;
    for (int64_t first = 0; first < T; first += SSM__GATE_PIECE) {
        const int64_t end = first + SSM__GATE_PIECE < T ? first + SSM__GATE_PIECE : T;
        for (int64_t n = 0; n < N; n++) {
            oracle_piece(run, first, end, n);
        }
    }
    for (int o = SCALED_B; o <= DP; o++) {
        operator_scale_by_largest(run, o);
    }
}

static double flops(const operator_shape *s)
{
    return 20.0 * (double)s->tokens * (double)s->a; /* exponentials apart */
}

const operator_entry operator_gate = {
    .name = "gate",
    .dimensions = "d_state",
    .test_shapes = {{1, 16, 0}, {2, 32, 0}, {16, 16, 0}, {17, 48, 0}, {64, 128, 0}, {-1, 0, 0}},
    .bench_shape = {64, 128, 0},
    .prepare = prepare,
    .fast = fast,
    .oracle = oracle,
    .tolerance = 5e-6,
    .reason = "powers of 2 up to 2^12 whose exponents, sums of 16, are rounded",
    .flops = flops};
