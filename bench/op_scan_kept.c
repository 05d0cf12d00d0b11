/* bench/op_scan_kept.c: the selective scan over kept modes only, packed per channel or shared by
 * all, with and without weights. a: d_state. b: kept modes of a channel; 0: every channel draws its
 * own number, none and all among them. */
#include <math.h>
#include <string.h>

#include "model/packing.h"
#include "operators.h"
#include "reference/reference.h"

enum { FACTORS = SCAN_INPUTS, PACKED };
enum { Y = SCAN_Y, STATE = SCAN_STATE };

/* What lies in the array PACKED: slots, pairs and shared, then the tables (uint16 all), then A2 and
 * weights of the slots. */
static int64_t tables_floats(int64_t d_state)
{
    return (4 + d_state * (SSM__LANES + 2)) / 2 + 1; /* modes, even, odd */
}

static uint16_t *tables_of(const operator_run *run)
{
    return (uint16_t *)(void *)run->in[PACKED];
}

static ssm__kept_modes kept_of(const operator_run *run)
{
    const int64_t N = run->shape.a;
    const uint16_t *tables = tables_of(run);
    return (ssm__kept_modes){.slots = tables[0],
                             .pairs = tables[1],
                             .shared = tables[2] != 0,
                             .modes = tables + 4,
                             .even = tables + 4 + N * SSM__LANES,
                             .odd = tables + 4 + N * (SSM__LANES + 1)};
}

/* Packs the chosen modes of the inputs. */
static void pack(operator_run *run)
{
    const int64_t N = run->shape.a;
    uint16_t *tables = tables_of(run);
    float *rates = run->in[PACKED] + tables_floats(N);
    memset(run->in[PACKED], 0, (size_t)run->in_count[PACKED] * sizeof *rates);
    const ssm__kept_modes kept = ssm__kept_count(run->in[FACTORS], N);
    tables[0] = (uint16_t)kept.slots;
    tables[1] = (uint16_t)kept.pairs;
    tables[2] = kept.shared;
    ssm__kept_fill(run->in[FACTORS], N, &kept, tables + 4, tables + 4 + N * SSM__LANES,
                   tables + 4 + N * (SSM__LANES + 1));
    const ssm__kept_modes filled = kept_of(run);
    ssm__kept_gather(&filled, run->in[SCAN_A2], rates);
    ssm__kept_gather(&filled, run->in[FACTORS], rates + N * 16);
}

/* Which modes are kept: the highest of b normals; shared: those of the first channel for all. */
static void choose(operator_run *run, bool shared, bool weighted)
{
    const int64_t N = run->shape.a;
    float *factors = run->in[FACTORS];
    for (int64_t lane = 0; lane < 16; lane++) {
        const double draw = fabs((double)factors[lane]) * 3.0;
        const int64_t own = draw > (double)N ? N : (int64_t)draw;
        const int64_t count = run->shape.b > 0 ? run->shape.b : own;
        float keep[256];
        for (int64_t n = 0; n < N; n++) {
            int64_t rank = 0;
            for (int64_t k = 0; k < N; k++) {
                rank += factors[k * 16 + lane] > factors[n * 16 + lane];
            }
            const float weight = weighted ? 1.0f + 0.5f * factors[n * 16 + lane] : 1.0f;
            keep[n] = rank < count ? weight : 0.0f;
        }
        for (int64_t n = 0; n < N; n++) {
            factors[n * 16 + lane] = keep[n];
        }
    }
    for (int64_t i = 0; i < N * 16 && shared; i++) {
        factors[i] = factors[i / 16 * 16];
    }
}

static void prepare(operator_run *run, bool shared, bool weighted)
{
    const int64_t N = run->shape.a;
    operator_scan_inputs(run);
    operator_normals(run, FACTORS, N * 16, 0.0, 1.0);
    operator_input(run, PACKED, tables_floats(N) + 2 * N * 16);
    operator_output(run, Y, "y", run->shape.tokens * 16);
    operator_fill_normal(run, 7, operator_output(run, STATE, "state", N * 16), N * 16, 0.0, 1.0);
    if (run->memory) {
        choose(run, shared, weighted);
        pack(run);
    }
}

static void prepare_lanes(operator_run *run)
{
    prepare(run, false, false);
}
static void prepare_weighted(operator_run *run)
{
    prepare(run, false, true);
}
static void prepare_shared(operator_run *run)
{
    prepare(run, true, false);
}
static void prepare_shared_weighted(operator_run *run)
{
    prepare(run, true, true);
}

static void fast(const ssm__kernels *k, operator_run *run, bool weighted)
{
    const int64_t N = run->shape.a;
    const ssm__kept_modes kept = kept_of(run);
    const float *rates = run->in[PACKED] + tables_floats(N);
    ssm__scan_args args = operator_scan_args(run);
    args.A2 = rates;
    args.keep = weighted ? rates + N * 16 : NULL;
    k->scan_kept(&args, &kept);
}

static void fast_plain(const ssm__kernels *k, operator_run *run)
{
    fast(k, run, false);
}
static void fast_weighted(const ssm__kernels *k, operator_run *run)
{
    fast(k, run, true);
}

/* Mode n of one channel, whose state is in row `row`. */
static void oracle_mode(operator_run *run, int64_t lane, int64_t n, int64_t row, double factor)
{
    const int64_t N = run->shape.a;
    const double A = (double)run->in[SCAN_A2][n * 16 + lane] / OPERATOR_LOG2E;
    double x = (double)run->initial[STATE][row * 16 + lane];
    for (int64_t t = 0; t < run->shape.tokens; t++) {
        const int64_t at = t * 16 + lane;
        const double delta = (double)run->in[SCAN_DELTA][at];
        const double g = ssm__ref_silu((double)run->in[SCAN_Z][at]);
        const float *bc = run->in[SCAN_B_AND_C] + t * 2 * N;
        x = exp(delta * A) * x + delta * (double)bc[n] * (double)run->in[SCAN_U][at];
        operator_accumulate(run, Y, at, factor * g * (double)bc[N + n] * x);
    }
    run->want[STATE][row * 16 + lane] = x;
    run->scale[STATE][row * 16 + lane] = fabs(x) + 1.0;
}

/* Slots without a mode carry mode 0's recurrence, which nothing reads: their state is compared all
 * the same, so that it is defined. */
static void oracle(operator_run *run)
{
    const ssm__kept_modes kept = kept_of(run);
    for (int64_t i = 0; i < run->shape.a * 16; i++) { /* rows behind the slots stay */
        run->want[STATE][i] = (double)run->initial[STATE][i];
    }
    for (int64_t i = 0; i < run->shape.tokens * 16; i++) {
        const double g = ssm__ref_silu((double)run->in[SCAN_Z][i]);
        const double f = g * (double)run->in[SCAN_D_SKIP][i % 16] * (double)run->in[SCAN_U][i];
        run->want[Y][i] = f;
        run->scale[Y][i] = 1.0 + fabs(f);
    }
    for (int64_t i = 0; i < kept.slots * 16; i++) {
        const unsigned lanes = (unsigned)kept.even[i / 16] | kept.odd[i / 16];
        const bool here = (lanes >> (i % 16) & 1) != 0;
        const float factor = run->in[FACTORS][kept.modes[i] * 16 + i % 16];
        oracle_mode(run, i % 16, kept.modes[i], i / 16, here ? (double)factor : 0.0);
    }
}

/* As of the scan (bench/op_scan.c), over the kept modes. */
static double kept_flops(const operator_shape *s)
{
    return 17.0 * (double)s->tokens * (double)s->b * 16.0;
}

#define KEPT_ENTRY(id, text, how, pass)                                                            \
    const operator_entry id = {.name = text,                                                       \
                               .dimensions = "d_state, kept (16 lanes)",                           \
                               .test_shapes = {{0, 4, 2},                                          \
                                               {1, 1, 1},                                          \
                                               {2, 4, 0},                                          \
                                               {7, 3, 1},                                          \
                                               {64, 16, 8},                                        \
                                               {33, 16, 0},                                        \
                                               {16, 16, 5},                                        \
                                               {9, 20, 11},                                        \
                                               {5, 33, 0},                                         \
                                               {8, 64, 31},                                        \
                                               {17, 100, 0},                                       \
                                               {-1, 0, 0}},                                        \
                               .bench_shape = {64, 16, 8},                                         \
                               .prepare = prepare_##how,                                           \
                               .fast = fast_##pass,                                                \
                               .oracle = oracle,                                                   \
                               OPERATOR_SCAN_BOUND,                                                \
                               .flops = kept_flops}

KEPT_ENTRY(operator_scan_kept, "scan_kept", lanes, plain);
KEPT_ENTRY(operator_scan_kept_weighted, "scan_kept_weighted", weighted, weighted);
KEPT_ENTRY(operator_scan_kept_shared, "scan_kept_shared", shared, plain);
KEPT_ENTRY(operator_scan_kept_shared_weighted, "scan_kept_shared_weighted", shared_weighted,
           weighted);
