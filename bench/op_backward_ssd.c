/* bench/op_backward_ssd.c: backwards through a chunk of a head of Mamba-2. a: d_state, b: groups of
 * channels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/training.h"
#include "operators.h"

enum { U, DV, DELTA, B_AND_C, PRODUCTS, D_SKIP, STATE, DSTATE, SCRATCH, RATE };
enum { DU, DDELTA, RATES, DPRODUCTS, DB_AND_DC, BEFORE };

static void prepare(operator_run *run)
{
    const int64_t T = run->shape.tokens, N = run->shape.a, G = run->shape.b;
    operator_normals(run, U, G * T * 16, 0.0, 1.0);
    operator_normals(run, DV, G * T * 16, 0.0, 1.0);
    operator_normals(run, DELTA, T, -3.0, 1.0);
    operator_normals(run, B_AND_C, T * 2 * N, 0.0, 1.0);
    operator_input(run, PRODUCTS, T * SSM__TILE);
    operator_normals(run, D_SKIP, G * 16, 1.0, 0.3);
    operator_normals(run, STATE, G * N * 16, 0.0, 1.0);
    operator_normals(run, DSTATE, G * N * 16, 0.0, 1.0);
    operator_input(run, SCRATCH, ssm__ssd_backward_scratch(N, G));
    operator_input(run, RATE, 1);
    operator_output(run, DU, "du", G * T * 16);
    operator_output(run, DDELTA, "ddelta", T);
    operator_output(run, RATES, "rates", T);
    operator_output(run, DPRODUCTS, "dproducts", T * SSM__TILE);
    operator_fill_normal(run, 10, operator_output(run, DB_AND_DC, "dB, dC", T * 2 * N), T * 2 * N,
                         0.0, 1.0);
    operator_output(run, BEFORE, "state", G * N * 16);
    if (!run->memory) {
        return;
    }
    run->in[RATE][0] = (float)(-2.0 * OPERATOR_LOG2E);
    for (int64_t t = 0; t < T; t++) {
        run->in[DELTA][t] = expf(run->in[DELTA][t]);
        for (int64_t s = 0; s <= t; s++) {
            const float *B = run->in[B_AND_C] + s * 2 * N, *C = run->in[B_AND_C] + t * 2 * N + N;
            float sum = 0.0f;
            for (int64_t n = 0; n < N; n++) {
                sum += B[n] * C[n];
            }
            run->in[PRODUCTS][t * SSM__TILE + s] = sum;
        }
    }
}

static ssm__ssd_chunk chunk_of(operator_run *run)
{
    const int64_t N = run->shape.a;
    return (ssm__ssd_chunk){.tokens = run->shape.tokens,
                            .d_state = N,
                            .groups = run->shape.b,
                            .delta = run->in[DELTA],
                            .A2 = run->in[RATE][0],
                            .B = run->in[B_AND_C],
                            .C = run->in[B_AND_C] + N,
                            .bc_stride = (ptrdiff_t)(2 * N),
                            .dv = run->in[DV],
                            .dv_stride = (ptrdiff_t)(run->shape.tokens * 16)};
}

static void fast(const ssm__kernels *k, operator_run *run)
{
    const int64_t N = run->shape.a;
    const ptrdiff_t stride = (ptrdiff_t)(run->shape.tokens * 16);
    const ssm__ssd_backward_args args = {.chunk = chunk_of(run),
                                         .u = run->in[U],
                                         .u_stride = stride,
                                         .products = run->in[PRODUCTS],
                                         .D = run->in[D_SKIP],
                                         .state = run->in[STATE],
                                         .dstate = run->in[DSTATE],
                                         .du = run->out[DU],
                                         .du_stride = stride,
                                         .ddelta = run->out[DDELTA],
                                         .rates = run->out[RATES],
                                         .dproducts = run->out[DPRODUCTS],
                                         .dB = run->out[DB_AND_DC],
                                         .dC = run->out[DB_AND_DC] + N,
                                         .dbc_stride = (ptrdiff_t)(2 * N),
                                         .scratch = run->in[SCRATCH]};
    k->training->ssd.backward(&args);
    k->training->ssd.state_backward(&args.chunk, run->in[DSTATE], run->out[BEFORE]);
}

/* One (channel, mode): the recurrence forwards, then its adjoint. states: [T + 1], states[0] in.
 * What the kernel leaves to the products of B and C is taken from dB, dC afterwards. */
static void oracle_mode(operator_run *run, int64_t g, int64_t lane, int64_t n, double *states)
{
    const int64_t T = run->shape.tokens, N = run->shape.a, place = (g * N + n) * 16 + lane;
    const double A = (double)run->in[RATE][0] / OPERATOR_LOG2E;
    const float *bc = run->in[B_AND_C], *u = run->in[U] + g * T * 16 + lane;
    const float *dv = run->in[DV] + g * T * 16 + lane;
    states[0] = (double)run->in[STATE][place];
    for (int64_t t = 0; t < T; t++) {
        const double delta = (double)run->in[DELTA][t];
        states[t + 1] =
            exp(delta * A) * states[t] + delta * (double)bc[t * 2 * N + n] * (double)u[t * 16];
    }
    double adjoint = (double)run->in[DSTATE][place];
    for (int64_t t = T - 1; t >= 0; t--) {
        const double delta = (double)run->in[DELTA][t], decay = exp(delta * A);
        const double B = (double)bc[t * 2 * N + n], C = (double)bc[t * 2 * N + N + n];
        adjoint += (double)dv[t * 16] * C;
        run->want[DU][g * T * 16 + t * 16 + lane] += delta * adjoint * B;
        run->want[RATES][t] += adjoint * decay * states[t];
        run->want[DDELTA][t] += A * adjoint * decay * states[t] + adjoint * B * (double)u[t * 16];
        adjoint *= decay;
    }
    run->want[BEFORE][place] = adjoint;
}

static double cross(const operator_run *run, int64_t t, int64_t s)
{
    const int64_t T = run->shape.tokens;
    double sum = 0.0;
    for (int64_t g = 0; g < run->shape.b; g++) {
        for (int64_t lane = 0; lane < 16; lane++) {
            sum += (double)run->in[DV][(g * T + t) * 16 + lane] *
                   (double)run->in[U][(g * T + s) * 16 + lane];
        }
    }
    return sum;
}

/* Δ_s·decay(t, s), t ≥ s. */
static double step_between(const operator_run *run, int64_t t, int64_t s)
{
    double exponent = 0.0;
    for (int64_t k = s + 1; k <= t; k++) {
        exponent += (double)run->in[DELTA][k] * (double)run->in[RATE][0];
    }
    return exp2(exponent);
}

/* What the states before and behind give to C and B of token t. */
static void oracle_rows(operator_run *run, int64_t t)
{
    const int64_t T = run->shape.tokens, N = run->shape.a;
    const double carry = step_between(run, t, -1);
    const double weight = step_between(run, T - 1, t) * (double)run->in[DELTA][t];
    for (int64_t n = 0; n < N; n++) {
        double dB = (double)run->initial[DB_AND_DC][t * 2 * N + n];
        double dC = (double)run->initial[DB_AND_DC][t * 2 * N + N + n];
        for (int64_t g = 0; g < run->shape.b; g++) {
            for (int64_t lane = 0; lane < 16; lane++) {
                const int64_t at = (g * T + t) * 16 + lane, place = (g * N + n) * 16 + lane;
                dB += weight * (double)run->in[U][at] * (double)run->in[DSTATE][place];
                dC += carry * (double)run->in[DV][at] * (double)run->in[STATE][place];
            }
        }
        run->want[DB_AND_DC][t * 2 * N + n] = dB;
        run->want[DB_AND_DC][t * 2 * N + N + n] = dC;
    }
    for (int64_t s = 0; s <= t; s++) {
        run->want[DPRODUCTS][t * SSM__TILE + s] =
            cross(run, t, s) * step_between(run, t, s) * (double)run->in[DELTA][s];
    }
}

static void oracle(operator_run *run)
{
    const int64_t T = run->shape.tokens, N = run->shape.a, G = run->shape.b;
    double *states = malloc((size_t)(T + 1) * sizeof *states);
    for (int64_t i = 0; i < G * T * 16; i++) {
        run->want[DU][i] =
            (double)run->in[D_SKIP][i / (T * 16) * 16 + i % 16] * (double)run->in[DV][i];
    }
    for (int64_t i = 0; states && i < G * 16 * N; i++) {
        oracle_mode(run, i / (16 * N), i / N % 16, i % N, states);
    }
    if (!states) {
        run->want[DU][0] = NAN; /* no oracle: the comparison fails */
    }
    for (int64_t t = 0; t < T; t++) {
        oracle_rows(run, t);
    }
    for (int o = DU; o <= BEFORE; o++) {
        operator_scale_by_largest(run, o);
    }
    free(states);
}

static double flops(const operator_shape *s)
{
    const double inner = 5.0 * (double)s->a + (double)s->tokens; /* a token and channel */
    return 2.0 * 16.0 * (double)s->b * (double)s->tokens * inner;
}

const operator_entry operator_ssd_backward = {
    .name = "ssd_backward",
    .dimensions = "d_state, groups of channels",
    .test_shapes = {{1, 16, 1},
                    {2, 16, 2},
                    {7, 32, 3},
                    {16, 16, 1},
                    {17, 48, 2},
                    {33, 64, 4},
                    {63, 16, 5},
                    {64, 128, 2},
                    {64, 32, 1},
                    {-1, 0, 0}},
    .bench_shape = {64, 128, 2},
    .prepare = prepare,
    .fast = fast,
    .oracle = oracle,
    .tolerance = 5e-6,
    .reason = "chains of 128 modes or 80 channels, the inputs' products themselves being rounded",
    .flops = flops};

/* ---- the gated norm -----------------------------------------------------------------------------
 */

enum { V, Z, DY, WEIGHT };
enum { Y, DV_OUT, DZ, DW };

static void prepare_norm(operator_run *run)
{
    const int64_t T = run->shape.tokens, G = run->shape.a, count = G * T * 16;
    operator_normals(run, V, count, 0.0, 1.0);
    operator_normals(run, Z, count, 0.0, 2.0);
    operator_normals(run, DY, count, 0.0, 1.0);
    operator_normals(run, WEIGHT, G * 16, 1.0, 0.3);
    operator_output(run, Y, "y", count);
    operator_output(run, DV_OUT, "dv", count);
    operator_output(run, DZ, "dz", count);
    operator_output(run, DW, "dw", count);
}

/* b: 0 the gate first, 1 the norm first, 2 no norm. */
static void fast_norm(const ssm__kernels *k, operator_run *run)
{
    const ptrdiff_t stride = (ptrdiff_t)(run->shape.tokens * 16);
    ssm__gated_norm_args args = {.tokens = run->shape.tokens,
                                 .groups = run->shape.a,
                                 .width = run->shape.a * 16,
                                 .eps = 1e-5f,
                                 .norm_first = run->shape.b == 1,
                                 .weight = run->shape.b == 2 ? NULL : run->in[WEIGHT],
                                 .v = run->in[V],
                                 .z = run->in[Z],
                                 .v_stride = stride,
                                 .z_stride = stride,
                                 .y = run->out[Y],
                                 .y_stride = stride,
                                 .dy = run->in[DY],
                                 .dy_stride = stride,
                                 .dv = run->out[DV_OUT],
                                 .dz = run->out[DZ],
                                 .dw = run->out[DW],
                                 .dv_stride = stride,
                                 .dz_stride = stride,
                                 .dw_stride = stride};
    k->training->ssd.gated_norm_backward(&args);
}

static double silu(double z)
{
    return z / (1.0 + exp(-z));
}

static double silu_slope(double z)
{
    const double sigmoid = 1.0 / (1.0 + exp(-z));
    return sigmoid * (1.0 + z * (1.0 - sigmoid));
}

static void oracle_norm_token(operator_run *run, int64_t t)
{
    const int64_t T = run->shape.tokens, width = run->shape.a * 16, form = run->shape.b;
    double square = 0.0, inner = 0.0;
    for (int64_t e = 0; e < width; e++) {
        const int64_t at = (e / 16 * T + t) * 16 + e % 16;
        const double v = (double)run->in[V][at], gate = silu((double)run->in[Z][at]);
        const double x = form == 1 ? v : v * gate;
        square += x * x;
        inner += x * (double)run->in[WEIGHT][e] * (double)run->in[DY][at] * (form == 1 ? gate : 1);
    }
    const double scale = 1.0 / sqrt(square / (double)width + (double)1e-5f);
    const double mean = inner / (double)width;
    for (int64_t e = 0; e < width; e++) {
        const int64_t at = (e / 16 * T + t) * 16 + e % 16;
        const double v = (double)run->in[V][at], z = (double)run->in[Z][at];
        const double dy = (double)run->in[DY][at], w = (double)run->in[WEIGHT][e];
        const double gate = silu(z), x = form == 1 ? v : v * gate;
        const double given = form == 1 ? dy * gate : dy;
        const double dx = form == 2 ? dy : scale * (w * given - x * scale * scale * mean);
        run->want[Y][at] = form == 2 ? x : x * scale * w * (form == 1 ? gate : 1);
        run->want[DV_OUT][at] = form == 1 ? dx : dx * gate;
        run->want[DZ][at] = silu_slope(z) * (form == 1 ? dy * x * scale * w : dx * v);
        run->want[DW][at] = form == 2 ? 0.0 : given * x * scale;
    }
}

static void oracle_norm(operator_run *run)
{
    for (int64_t t = 0; t < run->shape.tokens; t++) {
        oracle_norm_token(run, t);
    }
    for (int o = Y; o <= DW; o++) {
        operator_scale_by_largest(run, o);
    }
}

static double flops_norm(const operator_shape *s)
{
    return 16.0 * (double)s->a * (double)s->tokens * 25.0; /* exponentials apart */
}

const operator_entry operator_gated_norm_backward = {
    .name = "gated_norm_backward",
    .dimensions = "groups of channels, form",
    .test_shapes = {{0, 1, 0},
                    {1, 1, 0},
                    {2, 3, 1},
                    {17, 2, 2},
                    {64, 24, 0},
                    {64, 24, 1},
                    {33, 24, 2},
                    {-1, 0, 0}},
    .bench_shape = {64, 24, 0},
    .prepare = prepare_norm,
    .fast = fast_norm,
    .oracle = oracle_norm,
    .tolerance = 4e-6,
    .reason = "a mean of 384 products in 24 steps a lane, a sigmoid, a root",
    .flops = flops_norm};
