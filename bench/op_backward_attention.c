/* bench/op_backward_attention.c: backwards through the softmax of a block of keys. a: keys. */
#include <math.h>

#include "kernels/training.h"
#include "operators.h"

enum { ROWS }; /* maximum, inverse, mean of every query */
enum { SCORES, D };

/* The last query sees all keys. */
static int64_t seen_by(const operator_shape *s, int64_t t)
{
    const int64_t seen = s->a - s->tokens + 1 + t;
    return seen < 1 ? 1 : seen;
}

static void prepare(operator_run *run)
{
    const int64_t T = run->shape.tokens;
    operator_normals(run, ROWS, 3 * T, 0.0, 1.0);
    operator_fill_normal(run, 1, operator_output(run, SCORES, "p", T * SSM__TILE), T * SSM__TILE,
                         0.0, 2.0);
    operator_fill_normal(run, 2, operator_output(run, D, "ds", T * SSM__TILE), T * SSM__TILE, 0.0,
                         1.0);
    for (int64_t t = 0; run->memory && t < T; t++) {
        run->in[ROWS][t] += 6.0f;
        run->in[ROWS][T + t] = expf(run->in[ROWS][T + t]);
    }
}

static void fast(const ssm__kernels *k, operator_run *run)
{
    const int64_t T = run->shape.tokens;
    for (int64_t t = 0; t < T; t++) { /* keys of every query, as seen_by says */
        k->training->attend_backward(
            &(ssm__attend_backward_args){.queries = 1,
                                         .keys = run->shape.a,
                                         .seen = seen_by(&run->shape, t),
                                         .scores = run->out[SCORES] + t * SSM__TILE,
                                         .d = run->out[D] + t * SSM__TILE,
                                         .maximum = run->in[ROWS] + t,
                                         .inverse = run->in[ROWS] + T + t,
                                         .mean = run->in[ROWS] + 2 * T + t});
    }
}

static void oracle(operator_run *run)
{
    const int64_t T = run->shape.tokens;
    for (int64_t t = 0; t < T; t++) {
        for (int64_t j = 0; j < SSM__TILE; j++) {
            const int64_t at = t * SSM__TILE + j;
            const bool seen = j < run->shape.a && j < seen_by(&run->shape, t);
            const double score = (double)run->initial[SCORES][at] - (double)run->in[ROWS][t];
            const double p = seen ? exp(score) * (double)run->in[ROWS][T + t] : 0.0;
            run->want[SCORES][at] = p;
            run->want[D][at] = p * ((double)run->initial[D][at] - (double)run->in[ROWS][2 * T + t]);
        }
    }
    operator_scale_by_largest(run, SCORES);
    operator_scale_by_largest(run, D);
}

static double flops(const operator_shape *s)
{
    return 4.0 * (double)s->tokens * (double)s->a; /* exponentials apart */
}

const operator_entry operator_attend_backward = {
    .name = "attend_backward",
    .dimensions = "keys",
    .test_shapes = {{0, 1, 0}, {1, 1, 0}, {3, 17, 0}, {64, 64, 0}, {10, 5, 0}, {-1, 0, 0}},
    .bench_shape = {64, 64, 0},
    .prepare = prepare,
    .fast = fast,
    .oracle = oracle,
    .tolerance = 1e-6,
    .reason = "an exponential, whose argument near 10 is rounded, and three products",
    .flops = flops};
