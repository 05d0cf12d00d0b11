/* bench/op_subsets.c: the best of all sets of modes. a: n_modes, b: how many are dropped; tokens
 * (rows of the random signals whose Gram is searched) ≥ 1. */
#include <math.h>
#include <stdlib.h>

#include "operators.h"

enum { CHANNELS = 16 };

static int64_t entries(const operator_run *run)
{
    return run->shape.a * (run->shape.a + 1) / 2;
}

/* The Gram of signals that have a common part, as modes of a channel do. */
static void prepare(operator_run *run)
{
    const int64_t n = run->shape.a;
    const int64_t signals = run->shape.tokens * n * CHANNELS;
    float *x = operator_input(run, 0, signals);
    float *gram = operator_input(run, 1, entries(run) * CHANNELS);
    operator_fill_normal(run, 0, x, signals, 0.3, 1.0);
    for (int64_t at = 0, i = 0; gram && i < n; i++) {
        for (int64_t j = i; j < n; j++) {
            for (int64_t h = 0; h < CHANNELS; h++, at++) {
                double sum = 0.0;
                for (int64_t t = 0; t < run->shape.tokens; t++) {
                    const float *row = x + t * n * CHANNELS + h;
                    sum += (double)row[i * CHANNELS] * (double)row[j * CHANNELS];
                }
                gram[at] = (float)sum;
            }
        }
    }
    operator_output(run, 0, "errors", CHANNELS);
    operator_output(run, 1, "sets", CHANNELS);
}

static void fast(const ssm__kernels *k, operator_run *run)
{
    const int64_t count = entries(run) * CHANNELS;
    double *gram = calloc((size_t)count, sizeof *gram);
    uint32_t sets[CHANNELS];
    double errors[CHANNELS];
    if (!gram) {
        return; /* the comparison fails */
    }
    for (int64_t i = 0; i < count; i++) {
        gram[i] = (double)run->in[1][i];
    }
    k->least_dropped(gram, run->shape.a, run->shape.b, sets, errors);
    for (int h = 0; h < CHANNELS; h++) {
        run->out[0][h] = (float)errors[h];
        run->out[1][h] = (float)sets[h]; /* at most 20 bits */
    }
    free(gram);
}

static double error_of(const operator_run *run, uint32_t set, int64_t channel, double *size)
{
    double error = 0.0;
    int64_t at = 0;
    for (int64_t i = 0; i < run->shape.a; i++) {
        for (int64_t j = i; j < run->shape.a; j++, at++) {
            if ((set >> i & 1) && (set >> j & 1)) {
                const double entry = (double)run->in[1][at * CHANNELS + channel];
                error += i == j ? entry : 2.0 * entry;
                *size += i == j ? fabs(entry) : 2.0 * fabs(entry);
            }
        }
    }
    return error;
}

static int64_t members(uint32_t set)
{
    int64_t count = 0;
    for (; set; set &= set - 1) {
        count++;
    }
    return count;
}

/* Every number of n bits, from the highest down, which is the order of the tie rule. */
static void oracle(operator_run *run)
{
    for (int64_t h = 0; h < CHANNELS; h++) {
        double least = HUGE_VAL;
        for (int64_t set = ((int64_t)1 << run->shape.a) - 1; set >= 0; set--) {
            double size = 0.0;
            if (members((uint32_t)set) != run->shape.b) {
                continue;
            }
            const double error = error_of(run, (uint32_t)set, h, &size);
            if (error < least) {
                least = error;
                run->want[0][h] = error;
                run->scale[0][h] = size > 0.0 ? size : 1.0;
                run->want[1][h] = (double)set;
            }
        }
        run->scale[1][h] = 1.0;
    }
}

static double flops(const operator_shape *s)
{
    double sets = 1.0;
    for (int64_t i = 0; i < s->b; i++) {
        sets = sets * (double)(s->a - i) / (double)(i + 1);
    }
    return sets * CHANNELS; /* one addition a set; those of the costs come on top */
}

const operator_entry operator_least_dropped = {
    .name = "least_dropped",
    .dimensions = "n_modes, dropped",
    .test_shapes = {{3, 1, 0},
                    {3, 1, 1},
                    {5, 5, 0},
                    {5, 7, 1},
                    {2, 7, 2},
                    {9, 7, 3},
                    {9, 7, 7},
                    {30, 12, 6},
                    {40, 13, 10},
                    {40, 16, 15},
                    {-1, 0, 0}},
    .bench_shape = {40, 16, 8},
    .prepare = prepare,
    .fast = fast,
    .oracle = oracle,
    .tolerance = 1e-7,
    .reason = "float64 sums, told in float32; the set itself is exact",
    .flops = flops};
