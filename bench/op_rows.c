/* bench/op_rows.c: the Gram of a head: modes to rows, rows to Gram; the error of a set without a
 * Gram. a: d_state, b: channels of the head (a multiple of 16), tokens·b rows; or sets. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "operators.h"

enum { SPARE_ROWS = 3 }; /* rows of a panel's memory beyond the last */

static int64_t n_panels(const operator_run *run)
{
    return (run->shape.a + 15) / 16;
}

static int64_t n_rows(const operator_run *run)
{
    return run->shape.tokens * run->shape.b;
}

static int64_t panel_stride(const operator_run *run)
{
    return (n_rows(run) + SPARE_ROWS) * 16;
}

/* ---- mode_rows ------------------------------------------------------------------------------- */

static void prepare_modes(operator_run *run)
{
    const int64_t count = n_rows(run) * (run->shape.a + 1);
    operator_normals(run, 0, count, 0.2, 1.0);
    operator_output(run, 0, "panels", n_panels(run) * panel_stride(run));
    operator_output(run, 1, "last", n_rows(run));
}

static void fast_modes(const ssm__kernels *k, operator_run *run)
{
    const int64_t group = run->shape.tokens * (run->shape.a + 1) * 16;
    for (int64_t p = 0; p < run->shape.b; p += 16) {
        k->mode_rows(run->in[0] + p / 16 * group, run->shape.tokens, run->shape.a, run->shape.b,
                     run->out[0] + p * 16, (ptrdiff_t)panel_stride(run), run->out[1] + p);
    }
}

static void oracle_modes(operator_run *run)
{
    const int64_t N = run->shape.a;
    const int64_t P = run->shape.b;
    for (int64_t t = 0; t < run->shape.tokens; t++) {
        for (int64_t p = 0; p < P; p++) {
            const int64_t row = t * P + p;
            for (int64_t i = 0; i <= N; i++) {
                const int64_t token = (p / 16 * run->shape.tokens + t) * (N + 1);
                const float mode = run->in[0][(token + i) * 16 + p % 16];
                if (i == N) {
                    run->want[1][row] = (double)mode;
                } else {
                    run->want[0][i / 16 * panel_stride(run) + row * 16 + i % 16] = (double)mode;
                }
            }
        }
    }
}

static double no_flops(const operator_shape *s)
{
    (void)s;
    return 0.0;
}

const operator_entry operator_mode_rows = {.name = "mode_rows",
                                           .dimensions = "d_state, channels",
                                           .test_shapes = {{0, 16, 16},
                                                           {1, 1, 16},
                                                           {3, 16, 32},
                                                           {4, 17, 16},
                                                           {2, 31, 16},
                                                           {4, 64, 64},
                                                           {2, 128, 64},
                                                           {-1, 0, 0}},
                                           .bench_shape = {4, 128, 64},
                                           .prepare = prepare_modes,
                                           .fast = fast_modes,
                                           .oracle = oracle_modes,
                                           .tolerance = 0.0,
                                           .reason = "numbers are moved",
                                           .flops = no_flops};

/* ---- gram_rows ------------------------------------------------------------------------------- */

static void prepare_rows(operator_run *run)
{
    const int64_t count = n_panels(run) * panel_stride(run);
    operator_normals(run, 0, count, 0.2, 1.0);
    operator_normals(run, 1, n_rows(run), 0.2, 1.0);
    /* the float64 sums themselves, for the kernel; then those that the layout names, as float32:
     * the sum of one call begins at zero, so that nothing is lost */
    operator_output(run, 0, "gram", (run->shape.a + 1) * (run->shape.a + 2) / 2);
}

static void fast_rows(const ssm__kernels *k, operator_run *run)
{
    const int64_t N = run->shape.a;
    double *gram = calloc((size_t)ssm__rows_gram_count(N), sizeof *gram);
    if (!gram) {
        return; /* the comparison fails */
    }
    k->gram_rows(run->in[0], (ptrdiff_t)panel_stride(run), run->in[1], n_rows(run), N, gram);
    float *out = run->out[0];
    for (int64_t i = 0; i <= N; i++) {
        for (int64_t j = i; j <= N; j++) {
            *out++ = (float)gram[ssm__rows_gram_at(i, j, N)];
        }
    }
    free(gram);
}

static double signal_at(const operator_run *run, int64_t row, int64_t i)
{
    return (double)(i == run->shape.a ? run->in[1][row]
                                      : run->in[0][i / 16 * panel_stride(run) + row * 16 + i % 16]);
}

static void oracle_rows(operator_run *run)
{
    const int64_t N = run->shape.a;
    int64_t at = 0;
    for (int64_t i = 0; i <= N; i++) {
        for (int64_t j = i; j <= N; j++, at++) {
            double size = 1e-30;
            for (int64_t row = 0; row < n_rows(run); row++) {
                const double term = signal_at(run, row, i) * signal_at(run, row, j);
                run->want[0][at] += term;
                size += fabs(term);
            }
            run->scale[0][at] = size;
        }
    }
}

static double rows_flops(const operator_shape *s)
{
    return (double)(s->a + 1) * (double)(s->a + 2) * (double)(s->tokens * s->b);
}

const operator_entry operator_gram_rows = {
    .name = "gram_rows",
    .dimensions = "d_state, channels",
    .test_shapes = {{0, 16, 16},
                    {1, 1, 16},
                    {3, 2, 16},
                    {1, 15, 1},
                    {4, 16, 16},
                    {5, 17, 1},
                    {2, 24, 16},
                    {1, 64, 32},
                    {4, 128, 16},
                    {1, 256, 16},
                    {-1, 0, 0}},
    .bench_shape = {4, 128, 64},
    .prepare = prepare_rows,
    .fast = fast_rows,
    .oracle = oracle_rows,
    .tolerance = 2e-6,
    .reason = "at most 64 roundings of a growing sum, relative to the terms' sizes",
    .flops = rows_flops};

/* ---- dropped: b sets ------------------------------------------------------------------------- */

static void prepare_dropped(operator_run *run)
{
    const int64_t modes = run->shape.tokens * (run->shape.a + 1) * 16;
    const int64_t factors = run->shape.b * run->shape.a * 16;
    operator_normals(run, 0, modes, 0.2, 1.0);
    float *drop = operator_input(run, 1, factors);
    operator_fill_normal(run, 1, drop, factors, 0.0, 1.0);
    for (int64_t i = 0; drop && i < factors; i++) {
        drop[i] = drop[i] > 0.0f ? 1.0f : 0.0f;
    }
    operator_fill_normal(run, 2, operator_output(run, 0, "sums", run->shape.b * 16),
                         run->shape.b * 16, 5.0, 1.0);
}

static void fast_dropped(const ssm__kernels *k, operator_run *run)
{
    k->dropped(run->in[0], run->shape.tokens, run->shape.a, run->shape.b, run->in[1],
               (ptrdiff_t)(run->shape.a * 16), run->out[0]);
}

static void oracle_dropped(operator_run *run)
{
    const int64_t N = run->shape.a;
    for (int64_t i = 0; i < run->shape.b * 16; i++) {
        const float *drop = run->in[1] + i / 16 * N * 16 + i % 16;
        run->want[0][i] = (double)run->initial[0][i];
        run->scale[0][i] = fabs(run->want[0][i]);
        for (int64_t t = 0; t < run->shape.tokens; t++) {
            double sum = 0.0;
            double size = 0.0;
            for (int64_t n = 0; n < N; n++) {
                const double term =
                    (double)drop[n * 16] * (double)run->in[0][(t * (N + 1) + n) * 16 + i % 16];
                sum += term;
                size += fabs(term);
            }
            run->want[0][i] += sum * sum;
            run->scale[0][i] += size * size;
        }
    }
}

static double dropped_flops(const operator_shape *s)
{
    return 2.0 * (double)s->tokens * (double)(s->a + 1) * (double)s->b * 16.0;
}

const operator_entry operator_dropped = {
    .name = "dropped",
    .dimensions = "d_state, sets",
    .test_shapes = {{0, 4, 1},
                    {1, 1, 1},
                    {3, 7, 6},
                    {16, 16, 3},
                    {9, 17, 7},
                    {4, 64, 12},
                    {16, 128, 6},
                    {-1, 0, 0}},
    .bench_shape = {16, 128, 6},
    .prepare = prepare_dropped,
    .fast = fast_dropped,
    .oracle = oracle_dropped,
    .tolerance = 2e-6,
    .reason = "at most 128 roundings a sum, which mostly cancel, and 16 of the squares",
    .flops = dropped_flops};
