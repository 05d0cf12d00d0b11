/* bench/op_backward_lanes.c: the small kernels of training: sums of products and turns into lanes.
 * a and b as each entry says. */
#include <math.h>

#include "kernels/training.h"
#include "operators.h"

enum { FIRST, SECOND, BIAS };

/* An output that is added to, or that keeps what is not written. */
static void fill_output(operator_run *run, const char *name, int64_t count)
{
    operator_fill_normal(run, OPERATOR_INPUTS, operator_output(run, 0, name, count), count, 0.0,
                         1.0);
}

/* Adds first[i]·second[j] to a wanted sum, and its size to what the error is relative to. */
static void add_product(operator_run *run, int64_t at, int64_t i, int64_t j)
{
    operator_accumulate(run, 0, at, (double)run->in[FIRST][i] * (double)run->in[SECOND][j]);
}

/* Sums start at `initial`, or at 0. */
static void start_sums(operator_run *run, bool initial)
{
    for (int64_t i = 0; i < run->out_count[0]; i++) {
        run->want[0][i] = initial ? (double)run->initial[0][i] : 0.0;
        run->scale[0][i] = fabs(run->want[0][i]) + 1e-3; /* an empty sum has a scale, too */
    }
}

/* ---- row products: tokens rows, a = width; rows are a few floats apart more ------------------ */

enum { LEFT_GAP = 3, RIGHT_GAP = 5 };

static void prepare_rows(operator_run *run)
{
    const operator_shape s = run->shape;
    operator_normals(run, FIRST, s.tokens * (s.a + LEFT_GAP), 0.0, 1.0);
    operator_normals(run, SECOND, s.tokens * (s.a + RIGHT_GAP), 0.0, 1.0);
    fill_output(run, "out", s.tokens);
}

static void fast_rows(const ssm__kernels *k, operator_run *run)
{
    const operator_shape s = run->shape;
    k->training->row_products(run->in[FIRST], (ptrdiff_t)(s.a + LEFT_GAP), run->in[SECOND],
                              (ptrdiff_t)(s.a + RIGHT_GAP), s.tokens, s.a, run->out[0]);
}

static void oracle_rows(operator_run *run)
{
    const operator_shape s = run->shape;
    start_sums(run, false);
    for (int64_t row = 0; row < s.tokens; row++) {
        for (int64_t i = 0; i < s.a; i++) {
            add_product(run, row, row * (s.a + LEFT_GAP) + i, row * (s.a + RIGHT_GAP) + i);
        }
    }
}

/* ---- lane products --------------------------------------------------------------------------- */

static void prepare_lanes(operator_run *run)
{
    operator_normals(run, FIRST, run->shape.tokens * 16, 0.0, 1.0);
    operator_normals(run, SECOND, run->shape.tokens * 16, 0.0, 1.0);
    fill_output(run, "sums", 16);
}

static void fast_lanes(const ssm__kernels *k, operator_run *run)
{
    k->training->ssd.lane_products(run->in[FIRST], run->in[SECOND], run->shape.tokens, run->out[0]);
}

static void oracle_lanes(operator_run *run)
{
    start_sums(run, true);
    for (int64_t i = 0; i < run->shape.tokens * 16; i++) {
        add_product(run, i % 16, i, i);
    }
}

/* ---- state products: a = d_state, b = groups of channels ------------------------------------- */

static void prepare_states(operator_run *run)
{
    const int64_t count = run->shape.a * run->shape.b * 16;
    operator_normals(run, FIRST, count, 0.0, 1.0);
    operator_normals(run, SECOND, count, 0.0, 1.0);
    fill_output(run, "sums", run->shape.a);
}

static void fast_states(const ssm__kernels *k, operator_run *run)
{
    k->training->ssd.state_products(run->in[FIRST], run->in[SECOND], run->shape.a, run->shape.b,
                                    run->out[0]);
}

static void oracle_states(operator_run *run)
{
    start_sums(run, true);
    for (int64_t i = 0; i < run->shape.a * run->shape.b * 16; i++) {
        add_product(run, i / 16 % run->shape.a, i, i);
    }
}

/* ---- state times factors: a = d_state, b = groups of channels -------------------------------- */

static void prepare_scaled(operator_run *run)
{
    const int64_t count = run->shape.a * run->shape.b * 16;
    operator_normals(run, FIRST, count, 0.0, 1.0);
    operator_normals(run, SECOND, run->shape.a, 0.0, 1.0);
    fill_output(run, "state", count);
}

static void fast_scaled(const ssm__kernels *k, operator_run *run)
{
    k->training->ssd.scale_state(run->in[FIRST], run->in[SECOND], run->shape.a, run->shape.b,
                                 run->out[0]);
}

static void oracle_scaled(operator_run *run)
{
    start_sums(run, false);
    for (int64_t i = 0; i < run->shape.a * run->shape.b * 16; i++) {
        add_product(run, i, i, i / 16 % run->shape.a);
    }
}

/* ---- into lanes: tokens columns, a = rows; rows are a few floats apart more ------------------ */

static void prepare_turned(operator_run *run)
{
    const operator_shape s = run->shape;
    operator_normals(run, FIRST, s.a * (s.tokens + LEFT_GAP), 0.0, 1.0);
    fill_output(run, "lanes", s.tokens * 16);
}

static void fast_turned(const ssm__kernels *k, operator_run *run)
{
    const operator_shape s = run->shape;
    k->training->ssd.to_lanes(run->in[FIRST], (ptrdiff_t)(s.tokens + LEFT_GAP), s.a, s.tokens,
                              run->out[0]);
}

static void oracle_turned(operator_run *run)
{
    const operator_shape s = run->shape;
    for (int64_t i = 0; i < s.tokens * 16; i++) {
        const int64_t row = i % 16, column = i / 16;
        run->want[0][i] =
            row < s.a ? (double)run->in[FIRST][row * (s.tokens + LEFT_GAP) + column] : 0.0;
        run->scale[0][i] = 1.0;
    }
}

/* ---- softplus -------------------------------------------------------------------------------- */

static void prepare_softplus(operator_run *run)
{
    const int64_t count = run->shape.tokens * 16;
    operator_normals(run, FIRST, count, 0.0, 8.0);
    operator_normals(run, SECOND, count, 0.0, 1.0);
    operator_normals(run, BIAS, 16, 0.0, 1.0);
    fill_output(run, "ddt", count);
}

static void fast_softplus(const ssm__kernels *k, operator_run *run)
{
    k->training->ssd.softplus_backward(run->in[FIRST], run->in[BIAS], run->in[SECOND], run->out[0],
                                       run->shape.tokens);
}

static void oracle_softplus(operator_run *run)
{
    for (int64_t i = 0; i < run->shape.tokens * 16; i++) {
        const double x = (double)run->in[FIRST][i] + (double)run->in[BIAS][i % 16];
        run->want[0][i] = (double)run->in[SECOND][i] / (1.0 + exp(-x));
        run->scale[0][i] = fabs(run->want[0][i]) * (1.0 + fabs(x));
    }
}

static double row_flops(const operator_shape *s)
{
    return 2.0 * (double)s->tokens * (double)s->a;
}
static double lane_flops(const operator_shape *s)
{
    return 2.0 * 16.0 * (double)s->tokens;
}
static double state_flops(const operator_shape *s)
{
    return 2.0 * 16.0 * (double)s->a * (double)s->b;
}
static double scaled_flops(const operator_shape *s)
{
    return 16.0 * (double)s->a * (double)s->b;
}
static double copy_flops(const operator_shape *s)
{
    (void)s;
    return 0.0;
}

#define LANES_ENTRY(id, text, what, how, bench_a, bench_b, bound, why, work, ...)                  \
    const operator_entry id = {.name = text,                                                       \
                               .dimensions = what,                                                 \
                               .test_shapes = {__VA_ARGS__, {-1, 0, 0}},                           \
                               .bench_shape = {SSM__TILE, bench_a, bench_b},                       \
                               .prepare = prepare_##how,                                           \
                               .fast = fast_##how,                                                 \
                               .oracle = oracle_##how,                                             \
                               .tolerance = bound,                                                 \
                               .reason = why,                                                      \
                               .flops = work}

LANES_ENTRY(operator_row_products, "row_products", "width (tokens are rows)", rows, 64, 0, 5e-7,
            "chains of 7 products, then the tree", row_flops, {0, 1, 0}, {1, 1, 0}, {3, 15, 0},
            {5, 16, 0}, {64, 17, 0}, {33, 100, 0});
LANES_ENTRY(operator_lane_products, "lane_products", "none (16 lanes)", lanes, 0, 0, 1e-6,
            "a chain of 257 products", lane_flops, {0, 0, 0}, {1, 0, 0}, {17, 0, 0}, {64, 0, 0},
            {257, 0, 0});
LANES_ENTRY(operator_state_products, "state_products", "d_state, groups of channels", states, 128,
            2, 5e-7, "chains of 5 products, then the tree", state_flops, {0, 16, 1}, {0, 32, 2},
            {0, 48, 5}, {0, 128, 4});
LANES_ENTRY(operator_scale_state, "scale_state", "d_state, groups of channels", scaled, 128, 2,
            6e-8, "one product, rounded", scaled_flops, {0, 16, 1}, {0, 32, 3}, {0, 128, 4});
LANES_ENTRY(operator_to_lanes, "to_lanes", "rows (tokens are columns)", turned, 16, 0, 0.0,
            "a copy", copy_flops, {0, 1, 0}, {1, 1, 0}, {15, 16, 0}, {16, 7, 0}, {17, 16, 0},
            {64, 12, 0}, {100, 15, 0});
LANES_ENTRY(operator_softplus_backward, "softplus_backward", "none (16 lanes)", softplus, 0, 0,
            3e-7, "an exponential whose argument is rounded, a quotient, a product", lane_flops,
            {0, 0, 0}, {1, 0, 0}, {7, 0, 0}, {64, 0, 0});
