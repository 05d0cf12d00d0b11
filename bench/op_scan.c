/* bench/op_scan.c: the selective scan of a group, plain, masked and recorded; Gram; energies.
 * a: d_state. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "operators.h"
#include "reference/reference.h"

enum { KEEP = SCAN_INPUTS };
enum { Y = SCAN_Y, STATE = SCAN_STATE, MODES, ADJOINT, MOMENTS };

void operator_scan_inputs(operator_run *run)
{
    const int64_t T = run->shape.tokens;
    const int64_t N = run->shape.a;
    operator_normals(run, SCAN_U, T * 16, 0.0, 1.0);
    operator_normals(run, SCAN_DELTA, T * 16, -3.0, 1.5); /* then log-normal, median 0.05 */
    operator_normals(run, SCAN_Z, T * 16, 0.0, 2.0);
    operator_normals(run, SCAN_B_AND_C, T * 2 * N, 0.0, 1.0);
    operator_normals(run, SCAN_A2, N * 16, 0.0, 0.3);
    operator_normals(run, SCAN_D_SKIP, 16, 1.0, 0.3);
    if (!run->memory) {
        return;
    }
    for (int64_t i = 0; i < T * 16; i++) {
        run->in[SCAN_DELTA][i] = expf(run->in[SCAN_DELTA][i]);
    }
    for (int64_t i = 0; i < N * 16; i++) { /* around the published −(n + 1) */
        const double A = -(double)(i / 16 + 1) * exp((double)run->in[SCAN_A2][i]);
        run->in[SCAN_A2][i] = (float)(A * OPERATOR_LOG2E);
    }
}

ssm__scan_args operator_scan_args(operator_run *run)
{
    const int64_t N = run->shape.a;
    return (ssm__scan_args){.tokens = run->shape.tokens,
                            .d_state = N,
                            .u = run->in[SCAN_U],
                            .delta = run->in[SCAN_DELTA],
                            .z = run->in[SCAN_Z],
                            .B = run->in[SCAN_B_AND_C],
                            .C = run->in[SCAN_B_AND_C] + N,
                            .bc_stride = (ptrdiff_t)(2 * N),
                            .A2 = run->in[SCAN_A2],
                            .D = run->in[SCAN_D_SKIP],
                            .state = run->out[STATE],
                            .y = run->out[Y]};
}

static void prepare_scan(operator_run *run)
{
    const int64_t T = run->shape.tokens;
    const int64_t N = run->shape.a;
    operator_scan_inputs(run);
    operator_normals(run, KEEP, N * 16, 0.0, 1.0);
    operator_output(run, Y, "y", T * 16);
    operator_fill_normal(run, 7, operator_output(run, STATE, "state", N * 16), N * 16, 0.0, 1.0);
    operator_output(run, MODES, "modes", T * (N + 1) * 16);
    operator_output(run, ADJOINT, "adjoint", N * 16);
    operator_output(run, MOMENTS, "moments", (3 * N + 2) * 16);
    for (int64_t i = 0; run->memory && i < N * 16; i++) {
        run->in[KEEP][i] = run->in[KEEP][i] > 0.0f ? 1.0f : 0.0f;
    }
}

static void fast_scan(const ssm__kernels *k, operator_run *run)
{
    const ssm__scan_args args = operator_scan_args(run);
    k->scan(&args);
}

static void fast_masked(const ssm__kernels *k, operator_run *run)
{
    ssm__scan_args args = operator_scan_args(run);
    args.keep = run->in[KEEP];
    k->scan(&args);
}

static void fast_recorded(const ssm__kernels *k, operator_run *run)
{
    ssm__scan_args args = operator_scan_args(run);
    args.modes = run->out[MODES];
    args.adjoint = run->out[ADJOINT];
    args.moments = run->out[MOMENTS];
    k->scan(&args);
}

/* Sizes of everything the instrument sums, for one lane and mode. */
static void oracle_moments(operator_run *run, int64_t lane, int64_t n)
{
    const int64_t T = run->shape.tokens;
    const int64_t N = run->shape.a;
    const double A = (double)run->in[SCAN_A2][n * 16 + lane] / OPERATOR_LOG2E;
    double x = (double)run->initial[STATE][n * 16 + lane];
    double w = 0.0;
    for (int64_t t = 0; t < T; t++) {
        const double delta = (double)run->in[SCAN_DELTA][t * 16 + lane];
        const double decay = exp(delta * A);
        const double g = ssm__ref_silu((double)run->in[SCAN_Z][t * 16 + lane]);
        const double read = g * (double)run->in[SCAN_B_AND_C][t * 2 * N + N + n];
        x = decay * x + delta * (double)run->in[SCAN_B_AND_C][t * 2 * N + n] *
                            (double)run->in[SCAN_U][t * 16 + lane];
        w = 1.0 + decay * decay * w;
        operator_accumulate(run, MOMENTS, n * 16 + lane, x * x);
        operator_accumulate(run, MOMENTS, (N + n) * 16 + lane, read * read);
        operator_accumulate(run, MOMENTS, (2 * N + n) * 16 + lane, read * read * w);
    }
    run->want[ADJOINT][n * 16 + lane] = w;
    run->scale[ADJOINT][n * 16 + lane] = w + 1.0;
}

/* One lane through the reference scan; want and scale of y, state and modes. */
static void oracle_lane(operator_run *run, int64_t lane, double *work, bool masked)
{
    const int64_t T = run->shape.tokens;
    const int64_t N = run->shape.a;
    double *u = work, *delta = u + T, *z = delta + T, *B = z + T, *C = B + T * N, *A = C + T * N;
    double *state = A + N, *y = state + N, *modes = y + T;
    uint8_t keep[256];
    for (int64_t t = 0; t < T; t++) {
        u[t] = (double)run->in[SCAN_U][t * 16 + lane];
        delta[t] = (double)run->in[SCAN_DELTA][t * 16 + lane];
        z[t] = (double)run->in[SCAN_Z][t * 16 + lane];
        for (int64_t n = 0; n < N; n++) {
            B[t * N + n] = (double)run->in[SCAN_B_AND_C][t * 2 * N + n];
            C[t * N + n] = (double)run->in[SCAN_B_AND_C][t * 2 * N + N + n];
        }
    }
    for (int64_t n = 0; n < N; n++) {
        A[n] = (double)run->in[SCAN_A2][n * 16 + lane] / OPERATOR_LOG2E;
        state[n] = (double)run->initial[STATE][n * 16 + lane];
        keep[n] = run->in[KEEP][n * 16 + lane] != 0.0f;
    }
    const double D = (double)run->in[SCAN_D_SKIP][lane];
    ssm__ref_scan(&(ssm__ref_scan_args){.tokens = T,
                                        .channels = 1,
                                        .d_state = N,
                                        .u = u,
                                        .delta = delta,
                                        .z = z,
                                        .A = A,
                                        .B = B,
                                        .C = C,
                                        .D_skip = &D,
                                        .keep = masked ? keep : NULL,
                                        .state = state,
                                        .y = y,
                                        .modes = modes});
    for (int64_t t = 0; t < T; t++) {
        double size = 1.0;
        for (int64_t i = 0; i <= N; i++) {
            run->want[MODES][(t * (N + 1) + i) * 16 + lane] = modes[t * (N + 1) + i];
            size += fabs(modes[t * (N + 1) + i]);
        }
        run->want[Y][t * 16 + lane] = y[t];
        run->scale[Y][t * 16 + lane] = size;
        operator_accumulate(run, MOMENTS, 3 * N * 16 + lane, delta[t]);
        operator_accumulate(run, MOMENTS, (3 * N + 1) * 16 + lane, y[t] * y[t]);
        for (int64_t i = 0; i <= N; i++) {
            run->scale[MODES][(t * (N + 1) + i) * 16 + lane] = size;
        }
    }
    for (int64_t n = 0; n < N; n++) {
        run->want[STATE][n * 16 + lane] = state[n];
        run->scale[STATE][n * 16 + lane] = fabs(state[n]) + 1.0;
    }
}

static void oracle_any(operator_run *run, bool masked, bool recorded)
{
    const int64_t T = run->shape.tokens;
    const int64_t N = run->shape.a;
    double *work = malloc((size_t)(5 * T + 2 * T * N + 2 * N + T * (N + 1)) * sizeof *work + 64);
    if (!work) {
        run->want[Y][0] = NAN; /* no oracle: the comparison fails */
        return;
    }
    for (int64_t lane = 0; lane < 16; lane++) {
        oracle_lane(run, lane, work, masked);
        for (int64_t n = 0; n < N; n++) {
            oracle_moments(run, lane, n);
        }
    }
    free(work);
    for (int output = MODES; !recorded && output <= MOMENTS;
         output++) { /* must stay as they were */
        memset(run->want[output], 0, (size_t)run->out_count[output] * sizeof(double));
    }
}

static void oracle_scan(operator_run *run)
{
    oracle_any(run, false, false);
}
static void oracle_masked(operator_run *run)
{
    oracle_any(run, true, false);
}
static void oracle_recorded(operator_run *run)
{
    oracle_any(run, false, true);
}

/* exp counted as ten operations, as in docs/performance.md. */
static double scan_flops(const operator_shape *s)
{
    return 17.0 * (double)s->tokens * (double)s->a * 16.0;
}

#define SCAN_ENTRY(id, text, suffix)                                                               \
    const operator_entry id = {.name = text,                                                       \
                               .dimensions = "d_state (16 lanes)",                                 \
                               .test_shapes = {{0, 4, 0},                                          \
                                               {1, 1, 0},                                          \
                                               {2, 2, 0},                                          \
                                               {7, 3, 0},                                          \
                                               {64, 4, 0},                                         \
                                               {9, 7, 0},                                          \
                                               {17, 15, 0},                                        \
                                               {64, 16, 0},                                        \
                                               {33, 17, 0},                                        \
                                               {8, 64, 0},                                         \
                                               {5, 128, 0},                                        \
                                               {-1, 0, 0}},                                        \
                               .bench_shape = {64, 16, 0},                                         \
                               .prepare = prepare_scan,                                            \
                               .fast = fast_##suffix,                                              \
                               .oracle = oracle_##suffix,                                          \
                               OPERATOR_SCAN_BOUND,                                                \
                               .flops = scan_flops}

SCAN_ENTRY(operator_scan, "scan", scan);
SCAN_ENTRY(operator_scan_masked, "scan_masked", masked);
SCAN_ENTRY(operator_scan_recorded, "scan_recorded", recorded);

/* ---- Gram and energies -------------------------------------------------------------------------
 */

static void prepare_modes(operator_run *run, const char *name, int64_t rows)
{
    const int64_t count = run->shape.tokens * (run->shape.a + 1) * 16;
    operator_normals(run, 0, count, 0.2, 1.0);
    operator_fill_normal(run, 1, operator_output(run, 0, name, rows * 16), rows * 16, 5.0, 1.0);
}

static void prepare_gram(operator_run *run)
{
    prepare_modes(run, "gram", (run->shape.a + 1) * (run->shape.a + 2) / 2);
}
static void prepare_energy(operator_run *run)
{
    prepare_modes(run, "energy", run->shape.a);
}

static void fast_gram(const ssm__kernels *k, operator_run *run)
{
    k->gram(run->in[0], run->shape.tokens, run->shape.a, run->out[0]);
}
static void fast_energy(const ssm__kernels *k, operator_run *run)
{
    k->energy(run->in[0], run->shape.tokens, run->shape.a, run->out[0]);
}

/* Entry (i, j) of one lane into row `row`. */
static void oracle_entry(operator_run *run, int64_t row, int64_t i, int64_t j)
{
    const int64_t m = run->shape.a + 1;
    for (int64_t lane = 0; lane < 16; lane++) {
        double sum = (double)run->initial[0][row * 16 + lane];
        double size = fabs(sum);
        for (int64_t t = 0; t < run->shape.tokens; t++) {
            const double term = (double)run->in[0][(t * m + i) * 16 + lane] *
                                (double)run->in[0][(t * m + j) * 16 + lane];
            sum += term;
            size += fabs(term);
        }
        run->want[0][row * 16 + lane] = sum;
        run->scale[0][row * 16 + lane] = size;
    }
}

static void oracle_gram(operator_run *run)
{
    int64_t row = 0;
    for (int64_t i = 0; i <= run->shape.a; i++) {
        for (int64_t j = i; j <= run->shape.a; j++) {
            oracle_entry(run, row++, i, j);
        }
    }
}

static void oracle_energy(operator_run *run)
{
    for (int64_t i = 0; i < run->shape.a; i++) {
        oracle_entry(run, i, i, i);
    }
}

static double gram_flops(const operator_shape *s)
{
    return (double)(s->a + 1) * (double)(s->a + 2) * (double)s->tokens * 16.0;
}
static double energy_flops(const operator_shape *s)
{
    return 2.0 * (double)s->a * (double)s->tokens * 16.0;
}

#define GRAM_ENTRY(id, function)                                                                   \
    const operator_entry id = {.name = #function,                                                  \
                               .dimensions = "d_state (16 lanes)",                                 \
                               .test_shapes = {{0, 4, 0},                                          \
                                               {1, 1, 0},                                          \
                                               {3, 2, 0},                                          \
                                               {16, 3, 0},                                         \
                                               {16, 7, 0},                                         \
                                               {16, 16, 0},                                        \
                                               {9, 17, 0},                                         \
                                               {5, 20, 0},                                         \
                                               {4, 64, 0},                                         \
                                               {-1, 0, 0}},                                        \
                               .bench_shape = {16, 16, 0},                                         \
                               .prepare = prepare_##function,                                      \
                               .fast = fast_##function,                                            \
                               .oracle = oracle_##function,                                        \
                               .tolerance = 1e-6,                                                  \
                               .reason = "at most 16 roundings, relative to the terms' sizes",     \
                               .flops = function##_flops}

GRAM_ENTRY(operator_gram, gram);
GRAM_ENTRY(operator_energy, energy);
