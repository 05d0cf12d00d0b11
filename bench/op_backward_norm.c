/* bench/op_backward_norm.c: gradients of rmsnorm and layernorm, input and weight together.
 * a: width. */
#include <math.h>
#include <stdlib.h>

#include "kernels/training.h"
#include "operators.h"
#include "reference/backward.h"

enum { X, WEIGHT, DY };
enum { DX, DWEIGHT, DBIAS, SCALES, MEANS };

static const float norm_eps = 1e-5f;

static void prepare(operator_run *run)
{
    const int64_t width = run->shape.a, count = run->shape.tokens * width;
    operator_normals(run, X, count, 0.3, 2.0);
    operator_normals(run, WEIGHT, width, 1.0, 0.2);
    operator_normals(run, DY, count, 0.0, 1.0);
    operator_fill_normal(run, 3, operator_output(run, DX, "dx", count), count, 0.0, 1.0);
    operator_fill_normal(run, 4, operator_output(run, DWEIGHT, "dweight", width), width, 0.0, 1.0);
    operator_fill_normal(run, 5, operator_output(run, DBIAS, "dbias", width), width, 0.0, 1.0);
    operator_output(run, SCALES, "scales", run->shape.tokens);
    operator_output(run, MEANS, "means", run->shape.tokens);
}

static void fast_rms(const ssm__kernels *k, operator_run *run, bool accumulate)
{
    const int64_t T = run->shape.tokens, width = run->shape.a, cut = width / 2 & ~(int64_t)15;
    const ssm__training_kernels *training = k->training;
    training->rmsnorm_input_gradient(run->in[X], run->in[WEIGHT], run->in[DY], run->out[DX],
                                     run->out[SCALES], T, width, norm_eps, accumulate);
    training->rmsnorm_weight_gradient(run->in[X], run->in[DY], run->out[SCALES], run->out[DWEIGHT],
                                      T, width, 0, cut);
    training->rmsnorm_weight_gradient(run->in[X], run->in[DY], run->out[SCALES], run->out[DWEIGHT],
                                      T, width, cut, width);
}

static void fast_rms_written(const ssm__kernels *k, operator_run *run)
{
    fast_rms(k, run, false);
}

static void fast_rms_added(const ssm__kernels *k, operator_run *run)
{
    fast_rms(k, run, true);
}

static void fast_layer(const ssm__kernels *k, operator_run *run)
{
    const int64_t T = run->shape.tokens, width = run->shape.a, cut = width / 2 & ~(int64_t)15;
    const ssm__training_kernels *training = k->training;
    training->layernorm_input_gradient(run->in[X], run->in[WEIGHT], run->in[DY], run->out[DX],
                                       run->out[MEANS], run->out[SCALES], T, width, norm_eps,
                                       false);
    training->layernorm_weight_gradient(run->in[X], run->in[DY], run->out[MEANS], run->out[SCALES],
                                        run->out[DWEIGHT], run->out[DBIAS], T, width, 0, cut);
    training->layernorm_weight_gradient(run->in[X], run->in[DY], run->out[MEANS], run->out[SCALES],
                                        run->out[DWEIGHT], run->out[DBIAS], T, width, cut, width);
}

/* 1/√(mean v² + eps) and the mean of each row. */
static void oracle_rows(operator_run *run, bool centred)
{
    const int64_t width = run->shape.a;
    for (int64_t t = 0; t < run->shape.tokens; t++) {
        double mean = 0.0, squares = 0.0;
        for (int64_t i = 0; centred && i < width; i++) {
            mean += (double)run->in[X][t * width + i] / (double)width;
        }
        for (int64_t i = 0; i < width; i++) {
            const double v = (double)run->in[X][t * width + i] - mean;
            squares += v * v / (double)width;
        }
        run->want[MEANS][t] = mean;
        run->want[SCALES][t] = 1.0 / sqrt(squares + (double)norm_eps);
        run->scale[SCALES][t] = run->want[SCALES][t];
    }
}

static void oracle(operator_run *run, bool centred, bool accumulate)
{
    const int64_t T = run->shape.tokens, width = run->shape.a;
    oracle_rows(run, centred);
    double *x = operator_widen(run->in[X], T * width);
    double *dy = operator_widen(run->in[DY], T * width);
    const ssm_tensor weight = {
        .dtype = SSM_DTYPE_F32, .n_dims = 1, .dims = {width}, .data = run->in[WEIGHT]};
    for (int64_t i = 0; i < width; i++) {
        run->want[DWEIGHT][i] = (double)run->initial[DWEIGHT][i];
        run->want[DBIAS][i] = (double)run->initial[DBIAS][i];
    }
    if (x && dy && centred) {
        ssm__ref_layernorm_backward(x, &weight, dy, T, width, (double)norm_eps, run->want[DX],
                                    run->want[DWEIGHT], run->want[DBIAS]);
    } else if (x && dy) {
        ssm__ref_rmsnorm_backward(x, &weight, dy, T, width, (double)norm_eps, run->want[DX],
                                  run->want[DWEIGHT]);
    } else {
        run->want[DWEIGHT][0] = NAN; /* no oracle: the comparison fails */
    }
    for (int64_t i = 0; accumulate && i < T * width; i++) {
        run->want[DX][i] += (double)run->initial[DX][i];
    }
    operator_scale_by_largest(run, DX);
    operator_scale_by_largest(run, DWEIGHT);
    operator_scale_by_largest(run, DBIAS);
    free(x);
    free(dy);
}

static void oracle_rms_written(operator_run *run)
{
    oracle(run, false, false);
}

static void oracle_rms_added(operator_run *run)
{
    oracle(run, false, true);
}

static void oracle_layer(operator_run *run)
{
    oracle(run, true, false);
}

static double norm_flops(const operator_shape *s)
{
    return 16.0 * (double)s->tokens * (double)s->a;
}

#define NORM_ENTRY(id, label, fast_function, oracle_function)                                      \
    const operator_entry id = {                                                                    \
        .name = label,                                                                             \
        .dimensions = "width",                                                                     \
        .test_shapes = {{0, 8, 0},                                                                 \
                        {3, 15, 0},                                                                \
                        {2, 16, 0},                                                                \
                        {5, 17, 0},                                                                \
                        {65, 50, 0},                                                               \
                        {33, 192, 0},                                                              \
                        {2, 768, 0},                                                               \
                        {-1, 0, 0}},                                                               \
        .bench_shape = {512, 192, 0},                                                              \
        .prepare = prepare,                                                                        \
        .fast = fast_function,                                                                     \
        .oracle = oracle_function,                                                                 \
        .tolerance = 2e-6,                                                                         \
        .reason = "two sums over at most 768 columns and ten roundings, relative to the largest",  \
        .flops = norm_flops}

NORM_ENTRY(operator_rmsnorm_gradient, "rmsnorm_gradient", fast_rms_written, oracle_rms_written);
NORM_ENTRY(operator_rmsnorm_gradient_added, "rmsnorm_gradient_added", fast_rms_added,
           oracle_rms_added);
NORM_ENTRY(operator_layernorm_gradient, "layernorm_gradient", fast_layer, oracle_layer);
