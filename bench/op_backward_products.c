/* bench/op_backward_products.c: gradients of y = x Wᵀ + b and the sums that go with them. a: rows,
 * b: cols of W. Activations once in tiles of 16 channels, once in dense rows. */
#include <math.h>
#include <stdlib.h>

#include "kernels/training.h"
#include "operators.h"

enum { DY, OTHER };

/* Room of [tokens] × width in tiles, every group of 16 channels with one row to spare. */
static int64_t tiled_count(int64_t tokens, int64_t width)
{
    return (width + 15) / 16 * 16 * (tokens + 1);
}

static ssm__view tiled(float *data, int64_t tokens)
{
    return (ssm__view){data, 16, (ptrdiff_t)((tokens + 1) * 16)};
}

static ssm__view dense(float *data, int64_t width)
{
    return (ssm__view){data, (ptrdiff_t)width, 16};
}

static double at(ssm__view view, int64_t token, int64_t channel)
{
    return (double)
        view.data[token * view.row_stride + channel / 16 * view.group_stride + channel % 16];
}

static double gradient_flops(const operator_shape *s)
{
    return 2.0 * (double)s->tokens * (double)s->a * (double)s->b;
}

/* Sets what is wanted of element `index` of output 0, `size` being the sum of its terms' sizes. */
static void want(operator_run *run, int64_t index, double value, double size)
{
    run->want[0][index] = value;
    run->scale[0][index] = size + 1e-30;
}

/* ---- dx = dy W --------------------------------------------------------------------------------
 */

static void prepare_input(operator_run *run, int64_t dy_count, int64_t dx_count)
{
    const operator_shape s = run->shape;
    operator_normals(run, DY, dy_count, 0.0, 1.0);
    operator_normals(run, OTHER, s.a * s.b, 0.0, 0.05);
    operator_fill_normal(run, 2, operator_output(run, 0, "dx", dx_count), dx_count, 0.0, 1.0);
}

static void prepare_input_tiled(operator_run *run)
{
    const operator_shape s = run->shape;
    prepare_input(run, tiled_count(s.tokens, s.a), s.tokens * s.b);
}

static void prepare_input_rows(operator_run *run)
{
    const operator_shape s = run->shape;
    prepare_input(run, s.tokens * s.a, tiled_count(s.tokens, s.b));
}

/* Two tasks, cut at a multiple of 16. */
static void fast_input(const ssm__kernels *k, operator_run *run, ssm__view dy, ssm__view dx,
                       bool accumulate)
{
    const operator_shape s = run->shape;
    const ssm__matrix w = {run->in[OTHER], SSM_DTYPE_F32, s.a, s.b};
    const int64_t cut = s.b / 2 & ~(int64_t)15;
    k->training->linear_input_gradient(&w, dy, dx, s.tokens, 0, cut, accumulate);
    k->training->linear_input_gradient(&w, dy, dx, s.tokens, cut, s.b, accumulate);
}

static void fast_input_tiled(const ssm__kernels *k, operator_run *run)
{
    const operator_shape s = run->shape;
    fast_input(k, run, tiled(run->in[DY], s.tokens), dense(run->out[0], s.b), false);
}

static void fast_input_rows(const ssm__kernels *k, operator_run *run)
{
    const operator_shape s = run->shape;
    fast_input(k, run, dense(run->in[DY], s.a), tiled(run->out[0], s.tokens), true);
}

/* `old`: what dx is added to; its data NULL: nothing. */
static void oracle_input(operator_run *run, ssm__view dy, ssm__view dx, ssm__view old)
{
    const operator_shape s = run->shape;
    for (int64_t i = 0; i < run->out_count[0]; i++) { /* where nothing is written */
        run->want[0][i] = (double)run->initial[0][i];
    }
    for (int64_t t = 0; t < s.tokens; t++) {
        for (int64_t c = 0; c < s.b; c++) {
            double sum = old.data ? at(old, t, c) : 0.0, size = fabs(sum);
            for (int64_t r = 0; r < s.a; r++) {
                const double term = at(dy, t, r) * (double)run->in[OTHER][r * s.b + c];
                sum += term;
                size += fabs(term);
            }
            want(run, t * dx.row_stride + c / 16 * dx.group_stride + c % 16, sum, size);
        }
    }
}

static void oracle_input_tiled(operator_run *run)
{
    const operator_shape s = run->shape;
    oracle_input(run, tiled(run->in[DY], s.tokens), dense(run->out[0], s.b), (ssm__view){0});
}

static void oracle_input_rows(operator_run *run)
{
    const operator_shape s = run->shape;
    oracle_input(run, dense(run->in[DY], s.a), tiled(run->out[0], s.tokens),
                 tiled(run->initial[0], s.tokens));
}

#define PRODUCT_SHAPES                                                                             \
    {                                                                                              \
        {0, 16, 16}, {1, 1, 1}, {3, 5, 7}, {2, 16, 16}, {17, 33, 49}, {30, 44, 100}, {12, 96, 48}, \
            {70, 300, 65}, {150, 40, 192}, {300, 17, 130}, {13, 130, 33}, {-1, 0, 0},              \
    }
#define PRODUCT_REASON                                                                             \
    "rounding errors of a chain of at most 300 terms grow as its square root, a few 2^-24 of "     \
    "Σ|terms|"

const operator_entry operator_linear_input_gradient = {.name = "linear_input_gradient",
                                                       .dimensions = "rows, cols; dy in tiles",
                                                       .test_shapes = PRODUCT_SHAPES,
                                                       .bench_shape = {512, 768, 192},
                                                       .prepare = prepare_input_tiled,
                                                       .fast = fast_input_tiled,
                                                       .oracle = oracle_input_tiled,
                                                       .tolerance = 1e-6,
                                                       .reason = PRODUCT_REASON,
                                                       .flops = gradient_flops};

const operator_entry operator_linear_input_gradient_rows = {
    .name = "linear_input_gradient_rows",
    .dimensions = "rows, cols; dy in dense rows, added to dx in tiles",
    .test_shapes = PRODUCT_SHAPES,
    .bench_shape = {512, 192, 384},
    .prepare = prepare_input_rows,
    .fast = fast_input_rows,
    .oracle = oracle_input_rows,
    .tolerance = 1e-6,
    .reason = PRODUCT_REASON,
    .flops = gradient_flops};

/* ---- dW += dyᵀ x ------------------------------------------------------------------------------
 */

static void prepare_weight(operator_run *run, int64_t dy_count, int64_t x_count)
{
    const operator_shape s = run->shape;
    operator_normals(run, DY, dy_count, 0.0, 1.0);
    operator_normals(run, OTHER, x_count, 0.0, 1.0);
    operator_fill_normal(run, 2, operator_output(run, 0, "dw", s.a * s.b), s.a * s.b, 0.0, 1.0);
}

static void prepare_weight_tiled(operator_run *run)
{
    const operator_shape s = run->shape;
    prepare_weight(run, tiled_count(s.tokens, s.a), s.tokens * s.b);
}

static void prepare_weight_rows(operator_run *run)
{
    const operator_shape s = run->shape;
    prepare_weight(run, s.tokens * s.a, tiled_count(s.tokens, s.b));
}

/* Two tasks, cut at a multiple of 16, and two calls: the second goes on where the first ended. */
static void fast_weight(const ssm__kernels *k, operator_run *run, ssm__view dy, ssm__view x)
{
    const operator_shape s = run->shape;
    const int64_t cut = s.a / 2 & ~(int64_t)15, first = s.tokens / 3;
    ssm__view dy_rest = dy, x_rest = x;
    dy_rest.data += first * dy.row_stride;
    x_rest.data += first * x.row_stride;
    for (int half = 0; half < 2; half++) {
        const int64_t begin = half ? cut : 0, end = half ? s.a : cut;
        k->training->linear_weight_gradient(dy, x, first, s.b, run->out[0], begin, end);
        k->training->linear_weight_gradient(dy_rest, x_rest, s.tokens - first, s.b, run->out[0],
                                            begin, end);
    }
}

static void fast_weight_tiled(const ssm__kernels *k, operator_run *run)
{
    fast_weight(k, run, tiled(run->in[DY], run->shape.tokens), dense(run->in[OTHER], run->shape.b));
}

static void fast_weight_rows(const ssm__kernels *k, operator_run *run)
{
    fast_weight(k, run, dense(run->in[DY], run->shape.a), tiled(run->in[OTHER], run->shape.tokens));
}

static void oracle_weight(operator_run *run, ssm__view dy, ssm__view x)
{
    const operator_shape s = run->shape;
    for (int64_t r = 0; r < s.a; r++) {
        for (int64_t c = 0; c < s.b; c++) {
            double sum = (double)run->initial[0][r * s.b + c], size = fabs(sum);
            for (int64_t t = 0; t < s.tokens; t++) {
                const double term = at(dy, t, r) * at(x, t, c);
                sum += term;
                size += fabs(term);
            }
            want(run, r * s.b + c, sum, size);
        }
    }
}

static void oracle_weight_tiled(operator_run *run)
{
    oracle_weight(run, tiled(run->in[DY], run->shape.tokens), dense(run->in[OTHER], run->shape.b));
}

static void oracle_weight_rows(operator_run *run)
{
    oracle_weight(run, dense(run->in[DY], run->shape.a), tiled(run->in[OTHER], run->shape.tokens));
}

const operator_entry operator_linear_weight_gradient = {.name = "linear_weight_gradient",
                                                        .dimensions = "rows, cols; dy in tiles",
                                                        .test_shapes = PRODUCT_SHAPES,
                                                        .bench_shape = {512, 768, 192},
                                                        .prepare = prepare_weight_tiled,
                                                        .fast = fast_weight_tiled,
                                                        .oracle = oracle_weight_tiled,
                                                        .tolerance = 1e-6,
                                                        .reason = PRODUCT_REASON,
                                                        .flops = gradient_flops};

const operator_entry operator_linear_weight_gradient_rows = {
    .name = "linear_weight_gradient_rows",
    .dimensions = "rows, cols; dy in dense rows, x in tiles",
    .test_shapes = PRODUCT_SHAPES,
    .bench_shape = {512, 192, 384},
    .prepare = prepare_weight_rows,
    .fast = fast_weight_rows,
    .oracle = oracle_weight_rows,
    .tolerance = 1e-6,
    .reason = PRODUCT_REASON,
    .flops = gradient_flops};

/* ---- column sums: a = columns ---------------------------------------------------------------- */

static void prepare_columns(operator_run *run)
{
    const int64_t count = run->shape.tokens * run->shape.a;
    operator_normals(run, 0, count, 0.0, 1.0);
    operator_fill_normal(run, 1, operator_output(run, 0, "sums", run->shape.a), run->shape.a, 0.0,
                         1.0);
}

static void fast_columns(const ssm__kernels *k, operator_run *run)
{
    const int64_t width = run->shape.a, cut = width / 2 & ~(int64_t)15;
    const ssm__view x = dense(run->in[0], width);
    k->training->column_sums(x, run->shape.tokens, run->out[0], 0, cut);
    k->training->column_sums(x, run->shape.tokens, run->out[0], cut, width);
}

static void oracle_columns(operator_run *run)
{
    for (int64_t c = 0; c < run->shape.a; c++) {
        double sum = (double)run->initial[0][c], size = fabs(sum);
        for (int64_t t = 0; t < run->shape.tokens; t++) {
            const double x = (double)run->in[0][t * run->shape.a + c];
            sum += x;
            size += fabs(x);
        }
        want(run, c, sum, size);
    }
}

const operator_entry operator_column_sums = {
    .name = "column_sums",
    .dimensions = "columns",
    .test_shapes =
        {{0, 8, 0}, {1, 1, 0}, {5, 16, 0}, {64, 33, 0}, {257, 100, 0}, {33, 192, 0}, {-1, 0, 0}},
    .bench_shape = {512, 192, 0},
    .prepare = prepare_columns,
    .fast = fast_columns,
    .oracle = oracle_columns,
    .tolerance = 1e-6,
    .reason = "a chain of 257 additions",
    .flops = gradient_flops};

/* ---- sum of parts: tokens rows, a = parts, b = width; rows of the result are 3 floats apart more
 */

enum { PARTS_GAP = 3 };

static void prepare_parts(operator_run *run)
{
    const operator_shape s = run->shape;
    const int64_t count = s.tokens * s.a * s.b, out = s.tokens * (s.b + PARTS_GAP);
    operator_normals(run, 0, count, 0.0, 1.0);
    operator_fill_normal(run, 1, operator_output(run, 0, "out", out), out, 0.0, 1.0);
}

static void fast_parts(const ssm__kernels *k, operator_run *run)
{
    const operator_shape s = run->shape;
    k->training->sum_parts(run->in[0], s.a, (ptrdiff_t)(s.tokens * s.b), s.tokens, s.b, run->out[0],
                           (ptrdiff_t)(s.b + PARTS_GAP));
}

static void oracle_parts(operator_run *run)
{
    const operator_shape s = run->shape;
    for (int64_t i = 0; i < run->out_count[0]; i++) {
        const int64_t row = i / (s.b + PARTS_GAP), column = i % (s.b + PARTS_GAP);
        run->want[0][i] = (double)run->initial[0][i];
        double sum = 0.0, size = 0.0;
        for (int64_t p = 0; column < s.b && p < s.a; p++) {
            const double x = (double)run->in[0][(p * s.tokens + row) * s.b + column];
            sum += x;
            size += fabs(x);
        }
        if (column < s.b) {
            want(run, i, sum, size);
        }
    }
}

const operator_entry operator_sum_parts = {
    .name = "sum_parts",
    .dimensions = "parts, width (tokens are rows)",
    .test_shapes = {{0, 2, 32}, {1, 1, 32}, {5, 3, 17}, {9, 24, 32}, {2, 48, 256}, {-1, 0, 0}},
    .bench_shape = {512, 24, 32},
    .prepare = prepare_parts,
    .fast = fast_parts,
    .oracle = oracle_parts,
    .tolerance = 5e-7,
    .reason = "a chain of 48 additions",
    .flops = gradient_flops};
