/* diagnose/compare.c: two traces, state by state, and two models, tap by tap inside one layer. */
#include <ssmscope/compare.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "diagnose/deviation.h"
#include "diagnose/trace.h"

/* ---- traces ---------------------------------------------------------------------------------- */

static ssm_status check_size(const char *what, int64_t a, int64_t b, ssm_error *err)
{
    if (a == b) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                     "the %s differ: %" PRId64 " on one side, %" PRId64
                     " on the other; these are not two runs of one model on one text",
                     what, a, b);
}

static ssm_status check_sizes(const ssm_trace *a, const ssm_trace *b, ssm_error *err)
{
    SSM__TRY(check_size("numbers of tokens", a->tokens, b->tokens, err));
    const bool hidden = a->n_hidden > 0 && b->n_hidden > 0;
    const bool logits = a->logits.data != NULL && b->logits.data != NULL;
    if (!hidden && !logits) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "one side has only hidden states, the other only logits");
    }
    if (hidden) {
        SSM__TRY(check_size("numbers of hidden states", a->n_hidden, b->n_hidden, err));
        SSM__TRY(check_size("widths of the hidden states", a->hidden[0].dims[1],
                            b->hidden[0].dims[1], err));
    }
    return hidden ? SSM_STATUS_OK
                  : check_size("vocabularies", a->logits.dims[1], b->logits.dims[1], err);
}

/* The last state of one side may stand behind the final norm. */
static void try_normed(const ssm_trace *with_norm, const ssm_trace *other,
                       ssm_trace_comparison *out)
{
    ssm_deviation *last = &out->hidden[out->n_hidden - 1];
    if (with_norm->ln_final.data != NULL && last->relative > out->tolerance) {
        ssm_deviation normed;
        ssm__deviation(&with_norm->ln_final, &other->hidden[out->n_hidden - 1], &normed);
        if (normed.relative <= out->tolerance) {
            *last = normed;
            out->last_is_normed = true;
        }
    }
}

static int64_t argmax(const ssm_tensor *logits, int64_t row, double *scratch)
{
    const int64_t width = logits->dims[1];
    int64_t best = 0;
    ssm__tensor_range_to_f64(logits, row * width, width, scratch);
    for (int64_t i = 1; i < width; i++) {
        best = scratch[i] > scratch[best] ? i : best;
    }
    return best;
}

static ssm_status compare_logits(const ssm_trace *a, const ssm_trace *b, ssm_trace_comparison *out,
                                 ssm_error *err)
{
    void *scratch = NULL;
    SSM__TRY(ssm__trace_reserve(1, 1, a->logits.dims[1], sizeof(double), "a row of logits",
                                &scratch, err));
    out->has_logits = true;
    ssm__deviation(&a->logits, &b->logits, &out->logits);
    for (int64_t t = 0; t < a->tokens; t++) {
        out->same_argmax += argmax(&a->logits, t, scratch) == argmax(&b->logits, t, scratch);
    }
    free(scratch);
    return SSM_STATUS_OK;
}

ssm_status ssm_compare_traces(const ssm_trace *a, const ssm_trace *b, double tolerance,
                              ssm_trace_comparison *out, ssm_error *err)
{
    *out = (ssm_trace_comparison){.tolerance = tolerance, .first = -1};
    SSM__TRY(check_sizes(a, b, err));
    if (a->n_hidden > 0 && b->n_hidden > 0) {
        void *list = NULL;
        SSM__TRY(ssm__trace_reserve(1, 1, a->n_hidden, sizeof *out->hidden, "the differences",
                                    &list, err));
        out->hidden = list;
        out->n_hidden = a->n_hidden;
        for (int64_t k = 0; k < out->n_hidden; k++) {
            ssm__deviation(&a->hidden[k], &b->hidden[k], &out->hidden[k]);
        }
        try_normed(a, b, out);
        try_normed(b, a, out);
    }
    if (a->logits.data != NULL && b->logits.data != NULL &&
        a->logits.dims[1] == b->logits.dims[1]) {
        const ssm_status status = compare_logits(a, b, out, err);
        if (status != SSM_STATUS_OK) {
            ssm_trace_comparison_free(out);
            return status;
        }
    }
    for (int64_t k = 0; k < out->n_hidden && out->first < 0; k++) {
        out->first = out->hidden[k].relative > tolerance ? k : -1;
    }
    if (out->first < 0 && out->has_logits && out->logits.relative > tolerance) {
        out->first = out->n_hidden;
    }
    return SSM_STATUS_OK;
}

void ssm_trace_comparison_free(ssm_trace_comparison *comparison)
{
    free(comparison->hidden);
    comparison->hidden = NULL;
    comparison->n_hidden = 0;
}

/* ---- taps ------------------------------------------------------------------------------------ */

/* Everything that fires in one layer. */
typedef struct tap_recorder {
    int64_t layer, tokens;
    ssm_tap_point order[SSM_TAP_COUNT]; /* of the first firing */
    int64_t n_taps;
    int64_t width[SSM_TAP_COUNT];
    float *numbers[SSM_TAP_COUNT]; /* [tokens][width] */
    ssm_status status;
    ssm_error *err;
} tap_recorder;

static void read_tap(void *context, const ssm_tap *tap)
{
    tap_recorder *r = context;
    const int point = (int)tap->point;
    if (tap->layer != r->layer || r->status != SSM_STATUS_OK) {
        return;
    }
    if (r->numbers[point] == NULL) {
        void *memory = NULL;
        r->status =
            ssm__trace_reserve(1, r->tokens, tap->width, sizeof(float), "a tap", &memory, r->err);
        if (r->status != SSM_STATUS_OK) {
            return;
        }
        r->numbers[point] = memory;
        r->width[point] = tap->width;
        r->order[r->n_taps++] = tap->point;
    }
    ssm_tap_copy(tap, r->numbers[point] + tap->position * tap->width);
}

static ssm_status record_taps(const ssm_model *model, const int32_t *ids, int64_t count,
                              ssm_pool *pool, tap_recorder *r, ssm_error *err)
{
    r->tokens = count;
    r->err = err;
    SSM__TRY(ssm__trace_check_ids(ssm_model_config(model), ids, count, err));
    const ssm_observer observer = {.context = r, .points = ~UINT64_C(0), .read = read_tap};
    SSM__TRY(ssm__trace_forward(model, ids, count, pool, NULL, &observer, NULL, NULL, NULL, err));
    return r->status;
}

static void free_taps(tap_recorder *r)
{
    for (int i = 0; i < SSM_TAP_COUNT; i++) {
        free(r->numbers[i]);
    }
}

static void compare_tap(const tap_recorder *a, const tap_recorder *b, ssm_tap_point point,
                        ssm_tap_comparison *out)
{
    *out = (ssm_tap_comparison){
        .point = point, .width_a = a->width[point], .width_b = b->width[point]};
    if (out->width_a == out->width_b) {
        const ssm_tensor left =
            ssm__trace_view("tap", SSM_DTYPE_F32, a->numbers[point], a->tokens, out->width_a);
        const ssm_tensor right =
            ssm__trace_view("tap", SSM_DTYPE_F32, b->numbers[point], b->tokens, out->width_b);
        ssm__deviation(&left, &right, &out->deviation);
    }
}

ssm_status ssm_compare_taps(const ssm_model *a, const ssm_model *b, const int32_t *ids,
                            int64_t count, int64_t layer, ssm_pool *pool,
                            ssm_tap_comparison out[SSM_TAP_COUNT], int64_t *n_taps, ssm_error *err)
{
    tap_recorder left = {.layer = layer}, right = {.layer = layer};
    *n_taps = 0;
    ssm_status status = record_taps(a, ids, count, pool, &left, err);
    if (status == SSM_STATUS_OK) {
        status = record_taps(b, ids, count, pool, &right, err);
    }
    if (status == SSM_STATUS_OK) {
        for (int64_t i = 0; i < left.n_taps; i++) {
            compare_tap(&left, &right, left.order[i], &out[(*n_taps)++]);
        }
        for (int64_t i = 0; i < right.n_taps; i++) {
            if (left.numbers[right.order[i]] == NULL) {
                compare_tap(&left, &right, right.order[i], &out[(*n_taps)++]);
            }
        }
    }
    free_taps(&left);
    free_taps(&right);
    return status;
}
