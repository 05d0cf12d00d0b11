/* diagnose/weights.c: the weights of two checkpoints, slot by slot. */
#include <ssmscope/compare.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "base/pool.h"
#include "diagnose/deviation.h"
#include "diagnose/tensors.h"

_Static_assert((int)SSM_WEIGHT_NAME_MAX == (int)SSM__SLOT_NAME_MAX, "the names of slots fit");

const char *ssm_weight_relation_name(ssm_weight_relation relation)
{
    static const char *const names[SSM_WEIGHT_RELATIONS] = {"same",     "converted", "different",
                                                            "reshaped", "only_a",    "only_b"};
    return (unsigned)relation < SSM_WEIGHT_RELATIONS ? names[relation] : NULL;
}

static bool same_shape(const ssm_tensor *a, const ssm_tensor *b)
{
    bool same = a->n_dims == b->n_dims;
    for (int i = 0; same && i < a->n_dims; i++) {
        same = a->dims[i] == b->dims[i];
    }
    return same;
}

/* Unit roundoff of the stored type, relative to a normal number. */
static double roundoff(ssm_dtype dtype)
{
    switch (dtype) {
    case SSM_DTYPE_BF16:
        return 0x1p-8;
    case SSM_DTYPE_F16:
        return 0x1p-11;
    case SSM_DTYPE_F32:
        return 0x1p-24;
    default:
        return 0.0;
    }
}

static bool rounds_to(float wide, float narrow, ssm_dtype dtype)
{
    const uint32_t bits = ssm__bits_from_f32(narrow);
    const float rounded = dtype == SSM_DTYPE_BF16 ? ssm__f32_from_bf16(ssm__bf16_from_f32(wide))
                                                  : ssm__f32_from_f16(ssm__f16_from_f32(wide));
    return ssm__bits_from_f32(rounded) == bits;
}

/* Could a and b be one number in two types? F32 holds both others, so there it is asked exactly;
 * between F16 and BF16, and from F64, within the two roundings (F16's smallest step included). */
static bool could_be_one(double a, ssm_dtype a_type, double b, ssm_dtype b_type)
{
    if (a == b) {
        return true;
    }
    if (a_type == SSM_DTYPE_F32 && (b_type == SSM_DTYPE_BF16 || b_type == SSM_DTYPE_F16)) {
        return rounds_to((float)a, (float)b, b_type);
    }
    if (b_type == SSM_DTYPE_F32 && (a_type == SSM_DTYPE_BF16 || a_type == SSM_DTYPE_F16)) {
        return rounds_to((float)b, (float)a, a_type);
    }
    const double step = a_type == SSM_DTYPE_F16 || b_type == SSM_DTYPE_F16 ? 0x1p-25 : 0.0;
    return fabs(a - b) <= roundoff(a_type) * fabs(a) + roundoff(b_type) * fabs(b) + step;
}

static bool only_converted(const ssm_tensor *a, const ssm_tensor *b)
{
    enum { BLOCK = 256 };
    double left[BLOCK], right[BLOCK];
    const int64_t count = ssm_tensor_count(a);
    if (a->dtype == b->dtype) {
        return false;
    }
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t n = count - first < BLOCK ? count - first : BLOCK;
        ssm__tensor_range_to_f64(a, first, n, left);
        ssm__tensor_range_to_f64(b, first, n, right);
        for (int64_t i = 0; i < n; i++) {
            if (!could_be_one(left[i], a->dtype, right[i], b->dtype)) {
                return false;
            }
        }
    }
    return true;
}

static void compare_one(ssm_weight_comparison *c)
{
    if (c->a == NULL || c->b == NULL) {
        c->relation = c->a == NULL ? SSM_WEIGHT_ONLY_B : SSM_WEIGHT_ONLY_A;
    } else if (!same_shape(c->a, c->b)) {
        c->relation = SSM_WEIGHT_RESHAPED;
    } else if (c->a->dtype == c->b->dtype && memcmp(c->a->data, c->b->data, c->a->bytes) == 0) {
        c->relation = SSM_WEIGHT_SAME;
    } else {
        c->relation = only_converted(c->a, c->b) ? SSM_WEIGHT_CONVERTED : SSM_WEIGHT_DIFFERENT;
        ssm__deviation(c->a, c->b, &c->deviation);
    }
}

static void compare_task(void *context, int64_t task, int thread)
{
    (void)thread;
    compare_one((ssm_weight_comparison *)context + task);
}

static ssm_status compare_all(ssm_weight_comparison *list, int64_t count, ssm_pool *pool,
                              const ssm_progress *progress, ssm_error *err)
{
    enum { BATCH = 64 }; /* slots between two reports */
    for (int64_t first = 0; first < count; first += BATCH) {
        const int64_t n = count - first < BATCH ? count - first : BATCH;
        ssm__pool_run(pool, compare_task, list + first, n);
        if (progress != NULL &&
            !progress->report(progress->context, "weights", first + n, count, "tensors")) {
            return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                             "stopped after %lld of %lld weights", (long long)(first + n),
                             (long long)count);
        }
    }
    return SSM_STATUS_OK;
}

ssm_status ssm_compare_weights(const ssm_checkpoint *a, const ssm_checkpoint *b, ssm_pool *pool,
                               const ssm_progress *progress, ssm_weight_comparison **out,
                               int64_t *count, ssm_error *err)
{
    *out = NULL;
    *count = 0;
    int64_t layers = ssm_checkpoint_config(a)->n_layers;
    if (ssm_checkpoint_config(b)->n_layers > layers) {
        layers = ssm_checkpoint_config(b)->n_layers;
    }
    const int64_t places = ssm__slot_count(layers);
    ssm_weight_comparison *list = calloc((size_t)places, sizeof *list);
    if (list == NULL) {
        return ssm__fail_memory(err, "the list of weights", (size_t)places * sizeof *list);
    }
    int64_t used = 0;
    for (int64_t i = 0; i < places; i++) {
        ssm_weight_comparison *c = &list[used];
        c->a = ssm__place_tensor(a, layers, i);
        c->b = ssm__place_tensor(b, layers, i);
        c->layer = ssm__slot_at(layers, i).layer;
        if (c->a != NULL || c->b != NULL) {
            ssm__place_name(layers, i, c->name);
            used++;
        }
    }
    const ssm_status status = compare_all(list, used, pool, progress, err);
    if (status != SSM_STATUS_OK) {
        free(list);
        return status;
    }
    *out = list;
    *count = used;
    return SSM_STATUS_OK;
}

void ssm_weight_comparisons_free(ssm_weight_comparison *comparisons)
{
    free(comparisons);
}

/* ---- what rounding explains ------------------------------------------------------------------ */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Roundoff of a narrow type of a trace's numbers; those of a computed trace are F32 or F64. */
static double trace_roundoff(const ssm_trace *trace)
{
    double unit = 0.0;
    if (trace != NULL && trace->n_hidden > 0) {
        unit = roundoff(trace->hidden[trace->n_hidden - 1].dtype);
    }
    if (trace != NULL && trace->logits.data != NULL) {
        unit = larger(unit, roundoff(trace->logits.dtype));
    }
    return unit;
}

double ssm_compare_tolerance(const ssm_weight_comparison *weights, int64_t count,
                             const ssm_trace *a, const ssm_trace *b)
{
    /* The fast pass is within 2e-6 of float64 (docs/numerics.md); other programs sum otherwise. */
    double tolerance = 1e-5;
    double unit = larger(trace_roundoff(a), trace_roundoff(b));
    for (int64_t i = 0; weights != NULL && i < count; i++) {
        const ssm_weight_comparison *w = &weights[i];
        if (w->a != NULL && w->b != NULL && w->a->dtype != w->b->dtype) {
            unit = larger(unit, larger(roundoff(w->a->dtype), roundoff(w->b->dtype)));
        }
    }
    return larger(tolerance, 8.0 * unit);
}
