/* bench/op_backward_loss.c: softmax cross-entropy (a: vocabulary), the embedding's gradient (a:
 * vocabulary, b: width), AdamW and the squared norm. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/training.h"
#include "operators.h"

static double few_flops(const operator_shape *s)
{
    return 4.0 * (double)s->tokens * (double)(s->a > 0 ? s->a : 1);
}

/* Integers below `limit` in the memory of input `index`; every ninth is −1 with `gaps`. */
static void fill_integers(operator_run *run, int index, int64_t count, int64_t limit, bool gaps)
{
    operator_input(run, index, count);
    ssm_rng rng = ssm_rng_create(run->seed, "operator/integers");
    for (int64_t i = 0; run->memory && i < count; i++) {
        int32_t value = (int32_t)ssm_rng_below(&rng, (uint64_t)limit);
        value = gaps && i % 9 == 8 ? -1 : value;
        memcpy(run->in[index] + i, &value, sizeof value);
    }
}

static const int32_t *integers(const operator_run *run, int index)
{
    return (const int32_t *)(const void *)run->in[index];
}

/* ---- cross_entropy ----------------------------------------------------------------------------
 */

enum { LABELS };
enum { LOGITS, LOSS };
static const float loss_scale = 0.125f;

static void prepare_loss(operator_run *run)
{
    const int64_t count = run->shape.tokens * run->shape.a;
    fill_integers(run, LABELS, run->shape.tokens, run->shape.a, true);
    operator_fill_normal(run, 1, operator_output(run, LOGITS, "dlogits", count), count, -20.0, 6.0);
    operator_output(run, LOSS, "nll, and their sum", run->shape.tokens + 2);
}

static void fast_loss(const ssm__kernels *k, operator_run *run)
{
    const int64_t rows = run->shape.tokens;
    double nll[64];
    float *loss = run->out[LOSS];
    /* the first time the logits must stay as they are */
    loss[rows] = (float)k->training->cross_entropy(run->out[LOGITS], integers(run, LABELS), rows,
                                                   run->shape.a, loss_scale, false, NULL);
    loss[rows + 1] = (float)k->training->cross_entropy(run->out[LOGITS], integers(run, LABELS),
                                                       rows, run->shape.a, loss_scale, true, nll);
    for (int64_t row = 0; row < rows; row++) {
        loss[row] = (float)nll[row];
    }
}

/* logsumexp(logits) − logits[label]; dlogits = scale·(softmax − onehot). */
static double cross_entropy(const float *logits, int64_t label, int64_t count, double scale,
                            double *dlogits)
{
    double maximum = (double)logits[0], sum = 0.0;
    for (int64_t i = 1; i < count; i++) {
        maximum = fmax(maximum, (double)logits[i]);
    }
    for (int64_t i = 0; i < count; i++) {
        sum += exp((double)logits[i] - maximum);
    }
    for (int64_t i = 0; i < count; i++) {
        const double p = exp((double)logits[i] - maximum) / sum;
        dlogits[i] = scale * (p - (i == label ? 1.0 : 0.0));
    }
    return maximum + log(sum) - (double)logits[label];
}

static void oracle_loss(operator_run *run)
{
    const int64_t rows = run->shape.tokens, count = run->shape.a;
    double total = 0.0;
    for (int64_t row = 0; row < rows; row++) {
        const int32_t label = integers(run, LABELS)[row];
        double *dlogits = run->want[LOGITS] + row * count;
        if (label >= 0) {
            run->want[LOSS][row] = cross_entropy(run->initial[LOGITS] + row * count, label, count,
                                                 (double)loss_scale, dlogits);
        }
        for (int64_t i = 0; label >= 0 && i < count; i++) {
            run->scale[LOGITS][row * count + i] =
                i == label ? (double)loss_scale : fabs(dlogits[i]) + 1e-37;
        }
        run->scale[LOSS][row] = 30.0;
        total += run->want[LOSS][row];
    }
    run->want[LOSS][rows] = run->want[LOSS][rows + 1] = total;
    run->scale[LOSS][rows] = run->scale[LOSS][rows + 1] = 30.0 * (double)(rows + 1);
}

const operator_entry operator_cross_entropy = {
    .name = "cross_entropy",
    .dimensions = "vocabulary",
    .test_shapes = {{0, 16, 0},
                    {1, 1, 0},
                    {3, 15, 0},
                    {9, 16, 0},
                    {10, 17, 0},
                    {64, 100, 0},
                    {18, 4096, 0},
                    {-1, 0, 0}},
    .bench_shape = {64, 4096, 0},
    .prepare = prepare_loss,
    .fast = fast_loss,
    .oracle = oracle_loss,
    .tolerance = 4e-6,
    .reason =
        "the rounding of x − maximum, up to 40, is an error of the exponent: 40·2^-24, and 1.1 "
        "ulp of e^x",
    .flops = few_flops};

/* ---- embedding_gradient -----------------------------------------------------------------------
 */

enum { IDS, EMBEDDING_DY };

static void prepare_embedding(operator_run *run)
{
    const operator_shape s = run->shape;
    fill_integers(run, IDS, s.tokens, s.a, false);
    operator_normals(run, EMBEDDING_DY, s.tokens * s.b, 0.0, 1.0);
    operator_fill_normal(run, 2, operator_output(run, 0, "dweight", s.a * s.b), s.a * s.b, 0.0,
                         1.0);
}

/* All ids but the last, so that one is passed over. */
static void fast_embedding(const ssm__kernels *k, operator_run *run)
{
    const operator_shape s = run->shape;
    k->training->embedding_gradient(integers(run, IDS), run->in[EMBEDDING_DY], run->out[0],
                                    s.tokens, s.b, 0, s.a / 2);
    k->training->embedding_gradient(integers(run, IDS), run->in[EMBEDDING_DY], run->out[0],
                                    s.tokens, s.b, s.a / 2, s.a - 1);
}

static void oracle_embedding(operator_run *run)
{
    const operator_shape s = run->shape;
    for (int64_t i = 0; i < s.a * s.b; i++) {
        double sum = (double)run->initial[0][i], size = fabs(sum);
        for (int64_t t = 0; t < s.tokens; t++) {
            if (integers(run, IDS)[t] == i / s.b && i / s.b < s.a - 1) {
                sum += (double)run->in[EMBEDDING_DY][t * s.b + i % s.b];
                size += fabs((double)run->in[EMBEDDING_DY][t * s.b + i % s.b]);
            }
        }
        run->want[0][i] = sum;
        run->scale[0][i] = size + 1e-30;
    }
}

const operator_entry operator_embedding_gradient = {
    .name = "embedding_gradient",
    .dimensions = "vocabulary, width",
    .test_shapes = {{0, 4, 16}, {1, 2, 5}, {40, 7, 17}, {100, 50, 48}, {-1, 0, 0}},
    .bench_shape = {512, 4096, 192},
    .prepare = prepare_embedding,
    .fast = fast_embedding,
    .oracle = oracle_embedding,
    .tolerance = 5e-7,
    .reason = "a chain of some twenty additions",
    .flops = few_flops};

/* ---- adamw, squared_norm ----------------------------------------------------------------------
 */

enum { GRADIENT };
enum { W, M, V };

/* The tenth step of lr 1e-2, decay 0.1, betas 0.9 and 0.95, clipped by 0.7. */
static ssm__adamw_args adamw_step(void)
{
    return (ssm__adamw_args){.beta1 = 0.9f,
                             .one_minus_beta1 = 0.1f,
                             .beta2 = 0.95f,
                             .one_minus_beta2 = 0.05f,
                             .eps = 1e-8f,
                             .keep = (float)(1.0 - 1e-2 * 0.1),
                             .step = (float)(1e-2 / (1.0 - pow(0.9, 10.0))),
                             .root = (float)(1.0 / sqrt(1.0 - pow(0.95, 10.0))),
                             .grad_scale = 0.7f};
}

static void prepare_adamw(operator_run *run)
{
    const int64_t count = run->shape.tokens;
    operator_normals(run, GRADIENT, count, 0.0, 0.1);
    operator_fill_normal(run, 1, operator_output(run, W, "w", count), count, 0.0, 1.0);
    operator_fill_normal(run, 2, operator_output(run, M, "m", count), count, 0.0, 0.05);
    operator_fill_normal(run, 3, operator_output(run, V, "v", count), count, 0.0, 0.1);
    for (int64_t i = 0; run->memory && i < count; i++) {
        run->initial[V][i] *= run->initial[V][i];
    }
}

static void fast_adamw(const ssm__kernels *k, operator_run *run)
{
    const ssm__adamw_args step = adamw_step();
    k->training->adamw(&step, run->out[W], run->in[GRADIENT], run->out[M], run->out[V],
                       run->shape.tokens);
}

static void oracle_adamw(operator_run *run)
{
    for (int64_t i = 0; i < run->shape.tokens; i++) {
        const double g = 0.7 * (double)run->in[GRADIENT][i];
        const double m = 0.9 * (double)run->initial[M][i] + 0.1 * g;
        const double v = 0.95 * (double)run->initial[V][i] + 0.05 * g * g;
        const double move =
            1e-2 * (m / (1.0 - pow(0.9, 10.0))) / (sqrt(v / (1.0 - pow(0.95, 10.0))) + 1e-8);
        run->want[M][i] = m;
        run->want[V][i] = v;
        run->want[W][i] = (double)run->initial[W][i] * (1.0 - 1e-2 * 0.1) - move;
        run->scale[M][i] = fabs(0.9 * (double)run->initial[M][i]) + fabs(0.1 * g) + 1e-30;
        run->scale[V][i] = v + 1e-30;
        run->scale[W][i] = fabs((double)run->initial[W][i]) + fabs(move);
    }
}

const operator_entry operator_adamw = {
    .name = "adamw",
    .dimensions = "none (tokens are elements)",
    .test_shapes = {{0, 0, 0}, {1, 0, 0}, {15, 0, 0}, {16, 0, 0}, {1003, 0, 0}, {-1, 0, 0}},
    .bench_shape = {147456, 0, 0},
    .prepare = prepare_adamw,
    .fast = fast_adamw,
    .oracle = oracle_adamw,
    .tolerance = 5e-7,
    .reason = "eight roundings, and those of the factors",
    .flops = few_flops};

static void prepare_square(operator_run *run)
{
    const int64_t count = run->shape.tokens;
    operator_normals(run, 0, count, 0.0, 1.0);
    for (int64_t i = 0; run->memory && i < count; i += 7) {
        run->in[0][i] *= 1e25f; /* squares beyond float32 */
    }
    operator_output(run, 0, "root", 1);
}

static void fast_square(const ssm__kernels *k, operator_run *run)
{
    run->out[0][0] = (float)sqrt(k->training->squared_norm(run->in[0], run->shape.tokens));
}

static void oracle_square(operator_run *run)
{
    double sum = 0.0;
    for (int64_t i = 0; i < run->shape.tokens; i++) {
        sum += (double)run->in[0][i] * (double)run->in[0][i];
    }
    run->want[0][0] = sqrt(sum);
    run->scale[0][0] = sqrt(sum) + 1e-30;
}

const operator_entry operator_squared_norm = {
    .name = "squared_norm",
    .dimensions = "none (tokens are elements)",
    .test_shapes = {{0, 0, 0}, {1, 0, 0}, {15, 0, 0}, {16, 0, 0}, {1003, 0, 0}, {-1, 0, 0}},
    .bench_shape = {147456, 0, 0},
    .prepare = prepare_square,
    .fast = fast_square,
    .oracle = oracle_square,
    .tolerance = 6e-8,
    .reason = "the rounding of this test's float32 result",
    .flops = few_flops};
