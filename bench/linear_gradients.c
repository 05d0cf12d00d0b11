/* bench/linear_gradients.c: the cases linear_dx and linear_dw: the gradients of in_proj and
 * out_proj of one layer against sgemm, laid out as training has them: wide arrays in tiles of 16
 * channels. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/pool.h"
#include "kernels/training.h"
#include "model/model.h"

enum { TASK_LANES = 48, TASK_TOKENS = 512 };

typedef struct gradient_run {
    const ssm__training_kernels *kernels;
    ssm__matrix w; /* in F32, whatever the model has */
    float *dw;
    ssm__view x, y; /* the map's input and output, or their gradients */
    int64_t tokens;
} gradient_run;

static ssm__view later(ssm__view view, int64_t tokens)
{
    view.data += tokens * view.row_stride;
    return view;
}

static int64_t at_most(int64_t count, int64_t limit)
{
    return count < limit ? count : limit;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* A block of columns of dx for a tile of tokens. */
static void input_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const gradient_run *run = context;
    const int64_t blocks = divide_up(run->w.cols, TASK_LANES);
    const int64_t c = task % blocks * TASK_LANES, t = task / blocks * TASK_TOKENS;
    run->kernels->linear_input_gradient(&run->w, later(run->y, t), later(run->x, t),
                                        at_most(run->tokens - t, TASK_TOKENS), c,
                                        at_most(c + TASK_LANES, run->w.cols), false);
}

/* A block of rows of dw. */
static void weight_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const gradient_run *run = context;
    const int64_t r = task * TASK_LANES;
    run->kernels->linear_weight_gradient(run->y, run->x, run->tokens, run->w.cols, run->dw, r,
                                         at_most(r + TASK_LANES, run->w.rows));
}

/* Numbers that are neither equal nor random; NULL: out of memory. */
static float *numbers(int64_t count)
{
    float *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; values && i < count; i++) {
        values[i] = (float)(i % 251) * 0.01f - 1.0f;
    }
    return values;
}

/* The sides of the map of which one is `wide`: tiles with an odd number of rows. */
static ssm__view side(float *data, int64_t width, int64_t tokens, bool wide)
{
    const ptrdiff_t rows = (ptrdiff_t)(tokens | 1);
    return wide ? (ssm__view){data, SSM__LANES, SSM__LANES * rows}
                : (ssm__view){data, (ptrdiff_t)width, SSM__LANES};
}

static int64_t side_count(int64_t width, int64_t tokens)
{
    return divide_up(width, SSM__LANES) * SSM__LANES * (tokens | 1);
}

static ssm_status sample_map(bench_run *bench, const ssm__matrix *w, bool wide_output, bool weight,
                             bench_sample *out, ssm_error *err)
{
    const int64_t tokens = bench->tokens, rows = w->rows, cols = w->cols;
    float *weights = numbers(rows * cols), *dw = numbers(rows * cols);
    float *x = numbers(side_count(cols, tokens)), *y = numbers(side_count(rows, tokens));
    ssm_status status = SSM_STATUS_OK;
    if (!weights || !dw || !x || !y) {
        status = ssm__fail_memory(err, "a matrix", (size_t)(rows * cols) * sizeof(float));
    } else {
        gradient_run run = {.kernels = bench->model->kernels->training,
                            .w = {weights, SSM_DTYPE_F32, rows, cols},
                            .dw = dw,
                            .x = side(x, cols, tokens, !wide_output),
                            .y = side(y, rows, tokens, wide_output),
                            .tokens = tokens};
        const int64_t tasks = weight ? divide_up(rows, TASK_LANES)
                                     : divide_up(cols, TASK_LANES) * divide_up(tokens, TASK_TOKENS);
        double best = INFINITY;
        for (int i = 0; i < 3; i++) { /* best of two after a warm-up, as for sgemm */
            const double start = bench_now();
            ssm__pool_run(bench->pool, weight ? weight_task : input_task, &run, tasks);
            best = i > 0 ? fmin(best, bench_now() - start) : INFINITY;
        }
        out->seconds += best;
        out->at_limit += weight ? bench_sgemm_seconds(rows, cols, tokens, bench->threads)
                                : bench_sgemm_seconds(tokens, cols, rows, bench->threads);
    }
    free(weights);
    free(dw);
    free(x);
    free(y);
    return status;
}

static ssm_status sample_both(bench_run *run, bool weight, bench_sample *out, ssm_error *err)
{
    const ssm__block *block = &run->model->blocks[0];
    ssm__matrix in = block->mamba2.in_proj, last = block->mamba2.out_proj;
    if (block->kind == SSM_LAYER_MAMBA) {
        in = block->mamba.in_proj_x; /* with in_proj_z, of the same shape */
        in.rows *= 2;
        last = block->mamba.out_proj;
    }
    out->seconds = out->at_limit = 0.0;
    SSM__TRY(sample_map(run, &in, true, weight, out, err));
    return sample_map(run, &last, false, weight, out, err);
}

ssm_status bench_sample_linear_dx(bench_run *run, const bench_limits *limits, bench_sample *out,
                                  ssm_error *err)
{
    (void)limits;
    return sample_both(run, false, out, err);
}

ssm_status bench_sample_linear_dw(bench_run *run, const bench_limits *limits, bench_sample *out,
                                  ssm_error *err)
{
    (void)limits;
    return sample_both(run, true, out, err);
}
