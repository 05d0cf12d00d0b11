/* A switched linear system: x' = R_s x + noise with two regimes s, each a rotation with decay; the
 * next state is to be given. The outcome (a probe reads the regime) is the paper's, the generator
 * is ours.
 *
 * R_s = Q_s (decay · rotations by θ_{s,0} … θ_{s,width/2−1}) Q_sᵀ with a random orthogonal Q_s and
 * angles uniform between slow and fast of the regime. Noise has the sd sqrt(1 − decay²), so that
 * the states of both regimes have covariance 1 and only the dynamics tell them apart. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/orthogonal.h"
#include "train/tasks/kind.h"

enum { REGIMES = 2, WIDTH_MAX = 256, LENGTH_MAX = 1 << 22 };

typedef struct switched_task {
    ssm_train_task base;
    int64_t width, length, dwell_min, dwell_max;
    double decay;
    double slow[REGIMES], fast[REGIMES]; /* radians a step */
    double *R;                           /* [REGIMES][width][width] */
} switched_task;

static const switched_task *of(const ssm_train_task *task)
{
    return (const switched_task *)task;
}

/* ---- the two matrices ------------------------------------------------------------------------ */

/* R += decay · (rotation by θ in the plane of the rows a and b of Q). */
static void add_plane(double decay, double angle, const double *a, const double *b, int64_t width,
                      double *R)
{
    for (int64_t i = 0; i < width; i++) {
        for (int64_t k = 0; k < width; k++) {
            R[i * width + k] += decay * (cos(angle) * (a[i] * a[k] + b[i] * b[k]) +
                                         sin(angle) * (b[i] * a[k] - a[i] * b[k]));
        }
    }
}

static ssm_status draw_regimes(switched_task *own, ssm_error *err)
{
    const int64_t width = own->width;
    const size_t square = (size_t)(width * width);
    double *Q = calloc(square, sizeof *Q);
    own->R = calloc(REGIMES * square, sizeof *own->R);
    if (Q == NULL || own->R == NULL) {
        free(Q);
        return ssm__fail_memory(err, "the regimes", REGIMES * square * sizeof *Q);
    }
    ssm_rng rng = ssm__task_stream(&own->base, "regimes");
    for (int s = 0; s < REGIMES; s++) {
        ssm__orthonormal_rows(&rng, width, width, Q);
        for (int64_t i = 0; i < width; i += 2) {
            const double angle =
                own->slow[s] + (own->fast[s] - own->slow[s]) * ssm_rng_uniform(&rng);
            add_plane(own->decay, angle, Q + i * width, Q + (i + 1) * width, width,
                      own->R + (size_t)s * square);
        }
    }
    free(Q);
    return SSM_STATUS_OK;
}

static ssm_status open(ssm_train_task *task, ssm_error *err)
{
    static const int64_t one[] = {1};
    switched_task *own = (switched_task *)task;
    if (own->width % 2 != 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "switched-linear: width is %" PRId64
                         "; rotations are in planes: expected an even number",
                         own->width);
    }
    if (own->dwell_min > own->dwell_max) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "switched-linear: dwell_min is %" PRId64 " and dwell_max %" PRId64
                         "; expected dwell_min ≤ dwell_max",
                         own->dwell_min, own->dwell_max);
    }
    for (int s = 0; s < REGIMES; s++) {
        if (own->slow[s] > own->fast[s]) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "switched-linear: slow_%d is %g and fast_%d %g; expected slow ≤ fast",
                             s, own->slow[s], s, own->fast[s]);
        }
    }
    task->info.loss = SSM_TRAIN_VECTORS;
    task->info.input_width = own->width;
    task->info.output_width = own->width;
    task->info.length = own->length;
    task->info.regimes = true;
    SSM__TRY(draw_regimes(own, err));
    return ssm__task_default_sizes(task, own->length, one, 1, err);
}

static void close(ssm_train_task *task)
{
    free(((switched_task *)task)->R);
}

static void range(const ssm_train_task *task, int64_t *low, int64_t *high)
{
    (void)task;
    *low = 1;
    *high = LENGTH_MAX;
}

/* ---- a row ----------------------------------------------------------------------------------- */

/* x ← R x + noise. */
static void step(const switched_task *own, const double *R, ssm_rng *rng, double *x)
{
    double next[WIDTH_MAX];
    const double sd = sqrt(1 - own->decay * own->decay);
    for (int64_t i = 0; i < own->width; i++) {
        double sum = 0;
        for (int64_t k = 0; k < own->width; k++) {
            sum += R[i * own->width + k] * x[k];
        }
        next[i] = sum + sd * ssm_rng_normal(rng);
    }
    memcpy(x, next, (size_t)own->width * sizeof *x);
}

/* Starts in a random regime, a uniform part of its dwell time in, with a stationary state. */
static void example(const ssm_train_task *task, int64_t size, ssm__row *row)
{
    const switched_task *own = of(task);
    const int64_t width = own->width;
    double x[WIDTH_MAX];
    int64_t regime = ssm__row_between(&row->rng, 0, REGIMES - 1);
    int64_t left = ssm__row_between(&row->rng, own->dwell_min, own->dwell_max);
    left = ssm__row_between(&row->rng, 1, left);
    for (int64_t i = 0; i < width; i++) {
        x[i] = ssm_rng_normal(&row->rng);
    }
    for (int64_t t = 0; t < size; t++) {
        for (int64_t i = 0; i < width; i++) {
            row->inputs[t * width + i] = (float)x[i];
        }
        row->regimes[t] = (int32_t)regime;
        step(own, own->R + regime * width * width, &row->rng, x);
        for (int64_t i = 0; i < width; i++) {
            row->targets[t * width + i] = (float)x[i];
        }
        left--;
        if (left == 0) {
            regime = (regime + 1) % REGIMES;
            left = ssm__row_between(&row->rng, own->dwell_min, own->dwell_max);
        }
    }
    *row->used = (int32_t)size;
}

static void train_row(const ssm_train_task *task, ssm__row *row)
{
    example(task, of(task)->length, row);
}

#define ANGLE(key_, field_, fallback_, words)                                                      \
    {                                                                                              \
        .key = (key_), .kind = SSM__SETTING_REAL, .into = offsetof(switched_task, field_),         \
        .fallback = (fallback_), .low = 0, .high = 3.2, .help = (words)                            \
    }

static const ssm__setting settings[] = {
    {.key = "width",
     .kind = SSM__SETTING_INTEGER,
     .into = offsetof(switched_task, width),
     .fallback = "8",
     .min = 2,
     .max = WIDTH_MAX,
     .help = "components of the state, an even number"},
    {.key = "length",
     .kind = SSM__SETTING_INTEGER,
     .into = offsetof(switched_task, length),
     .fallback = "1024",
     .min = 1,
     .max = LENGTH_MAX,
     .help = "steps of a training row"},
    {.key = "dwell_min",
     .kind = SSM__SETTING_INTEGER,
     .into = offsetof(switched_task, dwell_min),
     .fallback = "200",
     .min = 1,
     .max = LENGTH_MAX,
     .help = "least steps in a regime"},
    {.key = "dwell_max",
     .kind = SSM__SETTING_INTEGER,
     .into = offsetof(switched_task, dwell_max),
     .fallback = "400",
     .min = 1,
     .max = LENGTH_MAX,
     .help = "most steps in a regime"},
    {.key = "decay",
     .kind = SSM__SETTING_REAL,
     .into = offsetof(switched_task, decay),
     .fallback = "0.98",
     .low = 0,
     .high = 1,
     .help = "length of a rotated vector a step later; 1: no noise"},
    ANGLE("slow_0", slow[0], "0.1", "least angle of the first regime, radians a step"),
    ANGLE("fast_0", fast[0], "0.5", "largest angle of the first regime"),
    ANGLE("slow_1", slow[1], "1", "least angle of the second regime"),
    ANGLE("fast_1", fast[1], "2", "largest angle of the second regime"),
    SSM__EVALUATE(1, LENGTH_MAX, "lengths at evaluation; length when not given"),
};

const ssm__task_kind ssm__task_switched_linear = {
    .name = "switched-linear",
    .summary = "the next state of a linear system that switches between two regimes",
    .size = "steps",
    .settings = settings,
    .n_settings = sizeof settings / sizeof settings[0],
    .bytes = sizeof(switched_task),
    .open = open,
    .close = close,
    .range = range,
    .length = ssm__task_size_is_length,
    .row = train_row,
    .example = example,
};
