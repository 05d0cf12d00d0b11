/* bench/op_heads.c: Mamba-2's recurrence of a group, plain, masked and recorded; the chunked form;
 * the gated norm. a: d_state, or channels of the norm; b: head_dim. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "operators.h"
#include "reference/reference.h"

enum { U, DELTA, Z, B_AND_C, RATE, D_SKIP, KEEP, PRODUCTS };
enum { Y, STATE, MODES, ADJOINT, MOMENTS, GATES };

static void fill_output(operator_run *run, int index, const char *name, int64_t count)
{
    operator_fill_normal(run, 7, operator_output(run, index, name, count), count, 0.0, 1.0);
}

/* Inputs of `groups` groups of 16 channels, `rows` rows of memory each. */
static void prepare_inputs(operator_run *run, int64_t groups, int64_t rows)
{
    const int64_t T = run->shape.tokens;
    const int64_t N = run->shape.a;
    operator_normals(run, U, groups * rows * 16, 0.0, 1.0);
    operator_normals(run, DELTA, T, -3.0, 1.5); /* made positive below: log-normal, median 0.05 */
    operator_normals(run, Z, groups * rows * 16, 0.0, 2.0);
    operator_normals(run, B_AND_C, T * 2 * N, 0.0, 1.0);
    operator_normals(run, RATE, 1, 0.0, 1.0);
    operator_normals(run, D_SKIP, groups * 16, 1.0, 0.3);
    operator_normals(run, KEEP, groups * N * 16, 0.0, 1.0);
    if (!run->memory) {
        return;
    }
    for (int64_t t = 0; t < T; t++) {
        run->in[DELTA][t] = expf(run->in[DELTA][t]);
    }
    run->in[RATE][0] = (float)(-4.0 * exp((double)run->in[RATE][0]) * OPERATOR_LOG2E);
    for (int64_t i = 0; i < groups * N * 16; i++) {
        run->in[KEEP][i] = run->in[KEEP][i] > 0.0f ? 1.0f : 0.0f;
    }
}

/* ---- the recurrence of one group ------------------------------------------------------------- */

static void prepare_scan(operator_run *run)
{
    const int64_t T = run->shape.tokens;
    const int64_t N = run->shape.a;
    prepare_inputs(run, 1, T);
    operator_output(run, Y, "y", T * 16);
    fill_output(run, STATE, "state", N * 16);
    operator_output(run, MODES, "modes", T * (N + 1) * 16);
    operator_output(run, ADJOINT, "adjoint, weights", 16 + T);
    operator_output(run, MOMENTS, "moments", (2 * N + 1) * 16);
    fill_output(run, GATES, "gates", T * 16);
}

static ssm__head_scan_args arguments(operator_run *run)
{
    const int64_t N = run->shape.a;
    return (ssm__head_scan_args){.tokens = run->shape.tokens,
                                 .d_state = N,
                                 .u = run->in[U],
                                 .z = run->in[Z],
                                 .delta = run->in[DELTA],
                                 .A2 = run->in[RATE][0],
                                 .B = run->in[B_AND_C],
                                 .C = run->in[B_AND_C] + N,
                                 .bc_stride = (ptrdiff_t)(2 * N),
                                 .D = run->in[D_SKIP],
                                 .state = run->out[STATE],
                                 .y = run->out[Y]};
}

static void fast_scan(const ssm__kernels *k, operator_run *run)
{
    const ssm__head_scan_args args = arguments(run);
    k->head_scan(&args);
}

static void fast_masked(const ssm__kernels *k, operator_run *run)
{
    ssm__head_scan_args args = arguments(run);
    args.keep = run->in[KEEP];
    args.z = NULL; /* the norm before the gate, too, is tried once */
    k->head_scan(&args);
}

static void fast_recorded(const ssm__kernels *k, operator_run *run)
{
    ssm__head_scan_args args = arguments(run);
    args.modes = run->out[MODES];
    args.adjoint = run->out[ADJOINT];
    args.weights = run->out[ADJOINT] + 16;
    args.gates = run->out[GATES];
    args.moments = run->out[MOMENTS];
    k->head_scan(&args);
}

/* Moments without the summands (--no-gram). */
static void fast_moments(const ssm__kernels *k, operator_run *run)
{
    ssm__head_scan_args args = arguments(run);
    args.adjoint = run->out[ADJOINT];
    args.weights = run->out[ADJOINT] + 16;
    args.gates = run->out[GATES];
    args.moments = run->out[MOMENTS];
    k->head_scan(&args);
}

typedef struct oracle_arrays {
    double *u, *delta, *z, *B, *C, *A, *D, *state, *y, *modes;
    uint8_t *keep;
    void *memory;
} oracle_arrays;

/* Float64 copies of everything for `groups` groups of `rows` rows: channels [t][16·groups]. */
static bool copy_arrays(const operator_run *run, int64_t groups, int64_t rows, oracle_arrays *out)
{
    const int64_t T = run->shape.tokens;
    const int64_t N = run->shape.a;
    const int64_t E = groups * 16;
    const int64_t counts[] = {T * E, T, T * E, T * N, T * N, 1, E, E * N, T * E, T * E * (N + 1)};
    double **const arrays[] = {&out->u, &out->delta, &out->z,     &out->B, &out->C,
                               &out->A, &out->D,     &out->state, &out->y, &out->modes};
    int64_t total = E * N / 8 + 1;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        total += counts[i];
    }
    out->memory = calloc((size_t)total, sizeof(double));
    if (!out->memory) {
        return false;
    }
    double *next = out->memory;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        *arrays[i] = next;
        next += counts[i];
    }
    out->keep = (uint8_t *)next;
    out->A[0] = (double)run->in[RATE][0] / OPERATOR_LOG2E;
    for (int64_t t = 0; t < T; t++) {
        out->delta[t] = (double)run->in[DELTA][t];
        for (int64_t n = 0; n < N; n++) {
            out->B[t * N + n] = (double)run->in[B_AND_C][t * 2 * N + n];
            out->C[t * N + n] = (double)run->in[B_AND_C][t * 2 * N + N + n];
        }
    }
    for (int64_t e = 0; e < E; e++) {
        out->D[e] = (double)run->in[D_SKIP][e];
        for (int64_t t = 0; t < T; t++) {
            const int64_t at = (e / 16 * rows + t) * 16 + e % 16;
            out->u[t * E + e] = (double)run->in[U][at];
            out->z[t * E + e] = (double)run->in[Z][at];
        }
        for (int64_t n = 0; n < N; n++) {
            const int64_t at = (e / 16 * N + n) * 16 + e % 16;
            out->state[e * N + n] = (double)run->initial[STATE][at];
            out->keep[e * N + n] = run->in[KEEP][at] != 0.0f;
        }
    }
    return true;
}

/* The moments of one lane by the state's own recurrence. */
static void sum_moments(operator_run *run, const oracle_arrays *a, int64_t lane)
{
    const int64_t T = run->shape.tokens;
    const int64_t N = run->shape.a;
    double w = 0.0;
    for (int64_t t = 0; t < T; t++) {
        const double decay = exp(a->delta[t] * a->A[0]);
        w = 1.0 + decay * decay * w;
        const double gate = ssm__ref_silu(a->z[t * 16 + lane]);
        operator_accumulate(run, GATES, t * 16 + lane, gate * gate);
        run->want[ADJOINT][16 + t] = w;
        run->scale[ADJOINT][16 + t] = w + 1.0;
        for (int64_t n = 0; n < N; n++) {
            const double mode = a->modes[(t * 16 + lane) * (N + 1) + n];
            double *x = &a->state[lane * N + n];
            *x = decay * *x + a->delta[t] * a->B[t * N + n] * a->u[t * 16 + lane];
            operator_accumulate(run, MOMENTS, n * 16 + lane, mode * mode);
            operator_accumulate(run, MOMENTS, (N + n) * 16 + lane, *x * *x);
        }
        operator_accumulate(run, MOMENTS, 2 * N * 16 + lane,
                            a->y[t * 16 + lane] * a->y[t * 16 + lane]);
    }
    run->want[ADJOINT][lane] = w;
    run->scale[ADJOINT][lane] = w + 1.0;
}

/* want and scale of y, state and modes of `groups` groups; modes only when they are an output. */
static void take_results(operator_run *run, const oracle_arrays *a, int64_t groups, int64_t rows)
{
    const int64_t T = run->shape.tokens;
    const int64_t N = run->shape.a;
    const int64_t E = groups * 16;
    for (int64_t e = 0; e < E; e++) {
        for (int64_t t = 0; t < T; t++) {
            const double *modes = a->modes + (t * E + e) * (N + 1);
            double size = 1.0;
            for (int64_t i = 0; i <= N; i++) {
                size += fabs(modes[i]);
            }
            const int64_t at = (e / 16 * rows + t) * 16 + e % 16;
            run->want[Y][at] = a->y[t * E + e];
            run->scale[Y][at] = size;
            for (int64_t i = 0; run->want[MODES] && i <= N; i++) {
                run->want[MODES][(t * (N + 1) + i) * 16 + e] = modes[i];
                run->scale[MODES][(t * (N + 1) + i) * 16 + e] = size;
            }
        }
        for (int64_t n = 0; n < N; n++) {
            const int64_t at = (e / 16 * N + n) * 16 + e % 16;
            run->want[STATE][at] = a->state[e * N + n];
            run->scale[STATE][at] = fabs(a->state[e * N + n]) + 1.0;
        }
    }
}

static void oracle_groups(operator_run *run, int64_t groups, int64_t rows, bool masked,
                          bool recorded)
{
    oracle_arrays a;
    if (!copy_arrays(run, groups, rows, &a)) {
        run->want[STATE][0] = NAN; /* no oracle: the comparison fails */
        return;
    }
    ssm__ref_scan2(&(ssm__ref_scan2_args){.tokens = run->shape.tokens,
                                          .n_heads = 1,
                                          .head_dim = groups * 16,
                                          .n_groups = 1,
                                          .d_state = run->shape.a,
                                          .u = a.u,
                                          .delta = a.delta,
                                          .z = masked ? NULL : a.z,
                                          .A = a.A,
                                          .B = a.B,
                                          .C = a.C,
                                          .D_skip = a.D,
                                          .D_per_channel = true,
                                          .keep = masked ? a.keep : NULL,
                                          .state = a.state,
                                          .y = a.y,
                                          .modes = a.modes});
    take_results(run, &a, groups, rows);
    for (int64_t i = 0; i < groups * 16 * run->shape.a; i++) { /* [e][n] again from the start */
        const int64_t e = i / run->shape.a, n = i % run->shape.a;
        a.state[i] = (double)run->initial[STATE][(e / 16 * run->shape.a + n) * 16 + e % 16];
    }
    for (int64_t lane = 0; recorded && lane < 16; lane++) {
        sum_moments(run, &a, lane);
    }
    for (int o = MODES; o <= GATES && run->want[o]; o++) { /* what is added to, or stays */
        for (int64_t i = 0; i < run->out_count[o] && (o == GATES || !recorded); i++) {
            run->want[o][i] = (recorded ? run->want[o][i] : 0.0) + (double)run->initial[o][i];
        }
    }
    free(a.memory);
}

static void oracle_scan(operator_run *run)
{
    oracle_groups(run, 1, run->shape.tokens, false, false);
}
static void oracle_masked(operator_run *run)
{
    oracle_groups(run, 1, run->shape.tokens, true, false);
}
static void oracle_recorded(operator_run *run)
{
    oracle_groups(run, 1, run->shape.tokens, false, true);
}
static void oracle_moments(operator_run *run)
{
    oracle_groups(run, 1, run->shape.tokens, false, true);
    memset(run->want[MODES], 0, (size_t)run->out_count[MODES] * sizeof(double));
}

/* ---- the sums of a head's reads -------------------------------------------------------------- */

static void prepare_reads(operator_run *run)
{
    const int64_t T = run->shape.tokens;
    const int64_t N = run->shape.a;
    operator_normals(run, 0, T * (N + 3), 0.0, 1.0); /* C in rows with a rest */
    float *gates = operator_input(run, 1, T * 16);
    float *weights = operator_input(run, 2, T);
    operator_fill_normal(run, 1, gates, T * 16, 0.0, 1.0);
    operator_fill_normal(run, 2, weights, T, 0.0, 1.0);
    fill_output(run, 0, "reads", (N + 15) / 16 * 16);
    fill_output(run, 1, "adjoint", (N + 15) / 16 * 16);
    for (int64_t i = 0; gates && i < T * 16; i++) {
        gates[i] *= gates[i];
    }
    for (int64_t t = 0; weights && t < T; t++) {
        weights[t] = 1.0f + weights[t] * weights[t];
    }
}

static void fast_reads(const ssm__kernels *k, operator_run *run)
{
    k->head_reads(run->in[0], (ptrdiff_t)(run->shape.a + 3), run->in[1], run->in[2],
                  run->shape.tokens, run->shape.a, run->out[0], run->out[1]);
}

static void oracle_reads(operator_run *run)
{
    const int64_t N = run->shape.a;
    for (int64_t n = 0; n < run->out_count[0]; n++) {
        for (int o = 0; o < 2; o++) {
            run->want[o][n] = (double)run->initial[o][n];
            run->scale[o][n] = fabs(run->want[o][n]) + 1.0;
        }
        for (int64_t t = 0; n < N && t < run->shape.tokens; t++) {
            const double c = (double)run->in[0][t * (N + 3) + n];
            double gates = 0.0;
            for (int64_t lane = 0; lane < 16; lane++) {
                gates += (double)run->in[1][t * 16 + lane];
            }
            operator_accumulate(run, 0, n, gates * c * c);
            operator_accumulate(run, 1, n, (double)run->in[2][t] * gates * c * c);
        }
    }
}

static double reads_flops(const operator_shape *s)
{
    return 5.0 * (double)s->tokens * (double)s->a;
}

const operator_entry operator_head_reads = {
    .name = "head_reads",
    .dimensions = "d_state",
    .test_shapes =
        {{0, 4, 0}, {1, 1, 0}, {5, 15, 0}, {16, 16, 0}, {64, 24, 0}, {16, 128, 0}, {-1, 0, 0}},
    .bench_shape = {16, 128, 0},
    .prepare = prepare_reads,
    .fast = fast_reads,
    .oracle = oracle_reads,
    .tolerance = 2e-6,
    .reason = "at most 64 roundings of sums of positive terms, and five of each term",
    .flops = reads_flops};

/* Two for the state, three for the output and its sum. */
static double scan_flops(const operator_shape *s)
{
    return 6.0 * (double)s->tokens * (double)s->a * 16.0;
}

#define SCAN_ENTRY(id, text, suffix)                                                               \
    const operator_entry id = {.name = text,                                                       \
                               .dimensions = "d_state (16 lanes)",                                 \
                               .test_shapes = {{0, 4, 0},                                          \
                                               {1, 1, 0},                                          \
                                               {2, 3, 0},                                          \
                                               {15, 8, 0},                                         \
                                               {17, 7, 0},                                         \
                                               {64, 64, 0},                                        \
                                               {33, 18, 0},                                        \
                                               {16, 128, 0},                                       \
                                               {5, 256, 0},                                        \
                                               {-1, 0, 0}},                                        \
                               .bench_shape = {64, 128, 0},                                        \
                               .prepare = prepare_scan,                                            \
                               .fast = fast_##suffix,                                              \
                               .oracle = oracle_##suffix,                                          \
                               OPERATOR_SCAN_BOUND,                                                \
                               .flops = scan_flops}

SCAN_ENTRY(operator_head_scan, "head_scan", scan);
SCAN_ENTRY(operator_head_scan_masked, "head_scan_masked", masked);
SCAN_ENTRY(operator_head_scan_recorded, "head_scan_recorded", recorded);
SCAN_ENTRY(operator_head_scan_moments, "head_scan_moments", moments);

/* ---- the chunked form of one head ------------------------------------------------------------ */

static int64_t head_groups(const operator_run *run)
{
    return (run->shape.b + 15) / 16;
}

static void prepare_ssd(operator_run *run)
{
    const int64_t T = run->shape.tokens;
    const int64_t N = run->shape.a;
    prepare_inputs(run, head_groups(run), SSM__TILE_ROWS);
    float *products = operator_input(run, PRODUCTS, T * SSM__TILE);
    operator_output(run, Y, "y", head_groups(run) * SSM__TILE_ROWS * 16);
    fill_output(run, STATE, "state", head_groups(run) * N * 16);
    for (int64_t t = 0; products && t < T; t++) {
        for (int64_t s = 0; s < SSM__TILE; s++) {
            double sum = s <= t ? 0.0 : NAN; /* must not be looked at */
            for (int64_t n = 0; s <= t && n < N; n++) {
                sum += (double)run->in[B_AND_C][t * 2 * N + N + n] *
                       (double)run->in[B_AND_C][s * 2 * N + n];
            }
            products[t * SSM__TILE + s] = (float)sum;
        }
    }
}

static void fast_ssd(const ssm__kernels *k, operator_run *run)
{
    const int64_t N = run->shape.a;
    const ssm__ssd_args args = {.tokens = run->shape.tokens,
                                .d_state = N,
                                .groups = head_groups(run),
                                .u = run->in[U],
                                .z = run->in[Z],
                                .delta = run->in[DELTA],
                                .A2 = run->in[RATE][0],
                                .B = run->in[B_AND_C],
                                .C = run->in[B_AND_C] + N,
                                .bc_stride = (ptrdiff_t)(2 * N),
                                .products = run->in[PRODUCTS],
                                .D = run->in[D_SKIP],
                                .state = run->out[STATE],
                                .y = run->out[Y]};
    k->ssd(&args);
}

static void oracle_ssd(operator_run *run)
{
    oracle_groups(run, head_groups(run), SSM__TILE_ROWS, false, false);
}

/* The three products; the triangle counts half. */
static double ssd_flops(const operator_shape *s)
{
    const double T = (double)s->tokens, N = (double)s->a, P = (double)((s->b + 15) / 16 * 16);
    return 4.0 * T * N * P + T * (T + 1.0) * P;
}

const operator_entry operator_ssd = {
    .name = "ssd",
    .dimensions = "d_state, head_dim",
    .test_shapes = {{1, 1, 1},
                    {2, 4, 16},
                    {3, 16, 24},
                    {7, 17, 64},
                    {16, 64, 48},
                    {33, 128, 64},
                    {63, 20, 80},
                    {64, 128, 64},
                    {64, 256, 32},
                    {-1, 0, 0}},
    .bench_shape = {64, 128, 64},
    .prepare = prepare_ssd,
    .fast = fast_ssd,
    .oracle = oracle_ssd,
    .tolerance = 3e-6,
    .reason = "chains of up to N + 64 roundings, relative to the terms' sizes; decays as in scan",
    .flops = ssd_flops};

/* ---- gated norm ------------------------------------------------------------------------------ */

enum { NORM_Z, NORM_WEIGHT };
static const float norm_eps = 1e-5f;

static int64_t norm_groups(const operator_run *run)
{
    return run->shape.a / 16;
}

static void prepare_norm(operator_run *run)
{
    const int64_t count = norm_groups(run) * SSM__TILE_ROWS * 16;
    operator_normals(run, NORM_Z, count, 0.0, 2.0);
    operator_normals(run, NORM_WEIGHT, norm_groups(run) * 16, 1.0, 0.3);
    fill_output(run, 0, "y", count);
}

static void fast_norm(const ssm__kernels *k, operator_run *run)
{
    k->gated_norm(run->out[0], run->in[NORM_WEIGHT], run->shape.b ? run->in[NORM_Z] : NULL,
                  run->shape.tokens, norm_groups(run), run->shape.a, norm_eps);
}

static void oracle_norm(operator_run *run)
{
    for (int64_t i = 0; i < run->out_count[0]; i++) { /* rows that are no tokens stay */
        run->want[0][i] = (double)run->initial[0][i];
    }
    for (int64_t t = 0; t < run->shape.tokens; t++) {
        double mean = 0.0;
        for (int64_t c = 0; c < run->shape.a; c++) {
            const double v = (double)run->initial[0][(c / 16 * SSM__TILE_ROWS + t) * 16 + c % 16];
            mean += v * v / (double)run->shape.a;
        }
        for (int64_t c = 0; c < run->shape.a; c++) {
            const int64_t at = (c / 16 * SSM__TILE_ROWS + t) * 16 + c % 16;
            const double gate = run->shape.b ? ssm__ref_silu((double)run->in[NORM_Z][at]) : 1.0;
            run->want[0][at] = (double)run->initial[0][at] / sqrt(mean + (double)norm_eps) *
                               (double)run->in[NORM_WEIGHT][c] * gate;
            run->scale[0][at] = fabs(run->want[0][at]) + 1e-3;
        }
    }
}

static double norm_flops(const operator_shape *s)
{
    return 4.0 * (double)s->tokens * (double)s->a;
}

const operator_entry operator_gated_norm = {
    .name = "gated_norm",
    .dimensions = "channels, gate after the norm (0 or 1)",
    .test_shapes = {{0, 16, 0}, {1, 16, 1}, {3, 48, 0}, {8, 1536, 1}, {64, 192, 1}, {-1, 0, 0}},
    .bench_shape = {8, 1536, 0},
    .prepare = prepare_norm,
    .fast = fast_norm,
    .oracle = oracle_norm,
    .tolerance = 1e-6,
    .reason = "square root, two products, SiLU of 3 ulp and a mean of positive terms",
    .flops = norm_flops};
