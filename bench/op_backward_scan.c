/* bench/op_backward_scan.c: backwards through gate, scan and softplus of a group. a: d_state. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/training.h"
#include "operators.h"
#include "reference/backward.h"

/* CHANNEL: rows dt_bias, D, then A_log of the modes */
enum { U, DT, Z, B_AND_C, CHANNEL, A2, DY, SCRATCH, STARTS };
/* PARAMETERS: rows ddt_bias, dD, then dA_log */
enum { Y, DU, DDT, DZ, DB_AND_DC, PARAMETERS };

static void prepare(operator_run *run)
{
    const int64_t T = run->shape.tokens, N = run->shape.a;
    operator_normals(run, U, T * 16, 0.0, 1.0);
    operator_normals(run, DT, T * 16, 0.0, 1.0);
    operator_normals(run, Z, T * 16, 0.0, 2.0);
    operator_normals(run, B_AND_C, T * 2 * N, 0.0, 1.0);
    operator_normals(run, CHANNEL, (N + 2) * 16, 0.0, 0.3);
    operator_input(run, A2, N * 16);
    operator_normals(run, DY, T * 16, 0.0, 1.0);
    operator_input(run, SCRATCH, ssm__scan_backward_scratch(T, N));
    operator_input(run, STARTS, (T + 15) / 16 * N * 16);
    operator_output(run, Y, "y", T * 16);
    operator_output(run, DU, "du", T * 16);
    operator_output(run, DDT, "ddt", T * 16);
    operator_output(run, DZ, "dz", T * 16);
    operator_output(run, DB_AND_DC, "dB and dC", T * 2 * N);
    operator_fill_normal(run, 9,
                         operator_output(run, PARAMETERS, "ddt_bias, dD, dA_log", (N + 2) * 16),
                         (N + 2) * 16, 0.0, 1.0);
    if (!run->memory) {
        return;
    }
    float *channel = run->in[CHANNEL];
    for (int64_t i = 0; i < 16; i++) { /* Δ around 0.05, D around 1, A around −(n + 1) */
        channel[i] = channel[i] * 3.0f - 3.0f;
        channel[16 + i] += 1.0f;
    }
    for (int64_t i = 0; i < N * 16; i++) {
        channel[32 + i] += logf((float)(i / 16 + 1));
        run->in[A2][i] = (float)(-exp((double)channel[32 + i]) * OPERATOR_LOG2E);
    }
}

static ssm__scan_backward_args arguments(operator_run *run)
{
    const int64_t N = run->shape.a;
    return (ssm__scan_backward_args){.tokens = run->shape.tokens,
                                     .d_state = N,
                                     .u = run->in[U],
                                     .dt = run->in[DT],
                                     .dt_bias = run->in[CHANNEL],
                                     .z = run->in[Z],
                                     .B = run->in[B_AND_C],
                                     .C = run->in[B_AND_C] + N,
                                     .bc_stride = (ptrdiff_t)(2 * N),
                                     .A2 = run->in[A2],
                                     .D = run->in[CHANNEL] + 16,
                                     .dy = run->in[DY],
                                     .y = run->out[Y],
                                     .du = run->out[DU],
                                     .ddt = run->out[DDT],
                                     .dz = run->out[DZ],
                                     .dB = run->out[DB_AND_DC],
                                     .dC = run->out[DB_AND_DC] + N,
                                     .dbc_stride = (ptrdiff_t)(2 * N),
                                     .dA_log = run->out[PARAMETERS] + 32,
                                     .dD = run->out[PARAMETERS] + 16,
                                     .ddt_bias = run->out[PARAMETERS],
                                     .scratch = run->in[SCRATCH]};
}

static void fast(const ssm__kernels *k, operator_run *run)
{
    const ssm__scan_backward_args args = arguments(run);
    k->training->scan_backward(&args);
}

/* With the states that the forward kernels leave; dy's memory takes du. */
static void fast_starts(const ssm__kernels *k, operator_run *run)
{
    const int64_t T = run->shape.tokens, N = run->shape.a;
    ssm__scan_backward_args args = arguments(run);
    float *state = run->in[STARTS];
    float delta[SSM__SCAN_PIECE * 16], y[SSM__SCAN_PIECE * 16];
    memset(state, 0, (size_t)run->in_count[STARTS] * sizeof *state);
    for (int64_t t = 0; t + SSM__SCAN_PIECE < T; t += SSM__SCAN_PIECE, state += N * 16) {
        k->softplus_bias(args.dt + t * 16, args.dt_bias, delta, SSM__SCAN_PIECE);
        memcpy(state + N * 16, state, (size_t)N * 16 * sizeof *state);
        const ssm__scan_args forward = {.tokens = SSM__SCAN_PIECE,
                                        .d_state = N,
                                        .u = args.u + t * 16,
                                        .delta = delta,
                                        .z = args.z + t * 16,
                                        .B = args.B + t * args.bc_stride,
                                        .C = args.C + t * args.bc_stride,
                                        .bc_stride = args.bc_stride,
                                        .A2 = args.A2,
                                        .D = args.D,
                                        .state = state + N * 16,
                                        .y = y};
        k->scan(&forward);
    }
    memcpy(args.du, args.dy, (size_t)T * 16 * sizeof(float));
    args.dy = args.du;
    args.starts = run->in[STARTS];
    k->training->scan_backward(&args);
}

/* The reference's numbers for all 16 channels. */
typedef struct oracle_memory {
    double *u, *dt, *z, *bc, *channel, *dy; /* widened */
    double *block; /* A, dA, state [16][N]; delta, ddelta [T][16]; B, C, dB, dC [T][N] */
} oracle_memory;

static void oracle_run(operator_run *run, const oracle_memory *m)
{
    const int64_t T = run->shape.tokens, N = run->shape.a;
    double *A = m->block, *dA = A + 16 * N, *state = dA + 16 * N, *delta = state + 16 * N;
    double *ddelta = delta + 16 * T, *B = ddelta + 16 * T, *C = B + T * N, *dB = C + T * N;
    double *dC = dB + T * N;
    for (int64_t i = 0; i < 16 * N; i++) {
        A[i % 16 * N + i / 16] = -exp(m->channel[32 + i]);
        dA[i] = state[i] = 0.0;
    }
    for (int64_t i = 0; i < T * N; i++) {
        B[i] = m->bc[i / N * 2 * N + i % N];
        C[i] = m->bc[i / N * 2 * N + N + i % N];
    }
    for (int64_t i = 0; i < T * 16; i++) {
        delta[i] = ssm__ref_softplus(m->dt[i] + m->channel[i % 16]);
    }
    for (int64_t i = 0; i < (N + 2) * 16; i++) {
        run->want[PARAMETERS][i] = (double)run->initial[PARAMETERS][i];
    }
    const ssm__ref_scan_args args = {.tokens = T,
                                     .channels = 16,
                                     .d_state = N,
                                     .u = m->u,
                                     .delta = delta,
                                     .z = m->z,
                                     .A = A,
                                     .B = B,
                                     .C = C,
                                     .D_skip = m->channel + 16,
                                     .state = state,
                                     .y = run->want[Y]};
    const ssm__ref_scan_gradients gradients = {.u = run->want[DU],
                                               .delta = ddelta,
                                               .z = run->want[DZ],
                                               .B = dB,
                                               .C = dC,
                                               .A = dA,
                                               .D_skip = run->want[PARAMETERS] + 16};
    if (ssm__ref_scan_backward(&args, m->dy, &gradients, NULL) != SSM_STATUS_OK) {
        run->want[PARAMETERS][0] = NAN; /* no oracle: the comparison fails */
    }
    ssm__ref_scan(&args);
    for (int64_t i = 0; i < T * 16; i++) {
        run->want[DDT][i] = ddelta[i] * ssm__ref_sigmoid(m->dt[i] + m->channel[i % 16]);
        run->want[PARAMETERS][i % 16] += run->want[DDT][i];
    }
    for (int64_t i = 0; i < T * N; i++) {
        run->want[DB_AND_DC][i / N * 2 * N + i % N] = dB[i];
        run->want[DB_AND_DC][i / N * 2 * N + N + i % N] = dC[i];
    }
    for (int64_t i = 0; i < 16 * N; i++) { /* ∂A/∂A_log = A */
        const int64_t at = i % 16 * N + i / 16;
        run->want[PARAMETERS][32 + i] += dA[at] * A[at];
    }
}

static void oracle(operator_run *run)
{
    const int64_t T = run->shape.tokens, N = run->shape.a;
    oracle_memory m = {.u = operator_widen(run->in[U], T * 16),
                       .dt = operator_widen(run->in[DT], T * 16),
                       .z = operator_widen(run->in[Z], T * 16),
                       .bc = operator_widen(run->in[B_AND_C], T * 2 * N),
                       .channel = operator_widen(run->in[CHANNEL], (N + 2) * 16),
                       .dy = operator_widen(run->in[DY], T * 16),
                       .block = malloc((size_t)(48 * N + 32 * T + 4 * T * N) * sizeof(double))};
    if (m.u && m.dt && m.z && m.bc && m.channel && m.dy && m.block) {
        oracle_run(run, &m);
    } else {
        run->want[PARAMETERS][0] = NAN;
    }
    for (int o = Y; o <= PARAMETERS; o++) {
        operator_scale_by_largest(run, o);
    }
    free(m.u);
    free(m.dt);
    free(m.z);
    free(m.bc);
    free(m.channel);
    free(m.dy);
    free(m.block);
}

static double flops(const operator_shape *s)
{
    return 16.0 * (double)s->tokens * (double)s->a * 15.0; /* exponentials apart */
}

#define SCAN_ENTRY(id, label, fast_function)                                                       \
    const operator_entry id = {                                                                    \
        .name = label,                                                                             \
        .dimensions = "d_state",                                                                   \
        .test_shapes = {{0, 16, 0},                                                                \
                        {1, 16, 0},                                                                \
                        {2, 1, 0},                                                                 \
                        {15, 3, 0},                                                                \
                        {16, 16, 0},                                                               \
                        {17, 8, 0},                                                                \
                        {33, 12, 0},                                                               \
                        {64, 16, 0},                                                               \
                        {257, 16, 0},                                                              \
                        {100, 17, 0},                                                              \
                        {50, 64, 0},                                                               \
                        {-1, 0, 0}},                                                               \
        .bench_shape = {512, 16, 0},                                                               \
        .prepare = prepare,                                                                        \
        .fast = fast_function,                                                                     \
        .oracle = oracle,                                                                          \
        .tolerance = 5e-6,                                                                         \
        .reason =                                                                                  \
            "products of 257 decays with 1.1 ulp and a chain as long, relative to the largest",    \
        .flops = flops}

SCAN_ENTRY(operator_scan_backward, "scan_backward", fast);
SCAN_ENTRY(operator_scan_backward_starts, "scan_backward_starts", fast_starts);
