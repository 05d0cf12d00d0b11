/* diagnose/examine_model.c: norms, layers beside each other, rows of the embedding and head. */
#include "diagnose/examine.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantile.h"

/* ---- norms ----------------------------------------------------------------------------------- */

static bool is_norm(const ssm__examination *x, int64_t place)
{
    const ssm__slot_place at = ssm__slot_at(x->config->n_layers, place);
    if (at.layer < 0) {
        return place == x->places - 3; /* norm_f */
    }
    return at.id == SSM__SLOT_norm || at.id == SSM__SLOT_norm2 || at.id == SSM__SLOT_gate_norm;
}

ssm_status ssm__examine_norms(const ssm__examination *x, ssm_error *err)
{
    int64_t norms = 0, small = 0, large = 0, negative = 0;
    const char *first_large = NULL;
    double low = INFINITY, high = 0.0;
    for (int64_t i = 0; i < x->places; i++) {
        const ssm__summary *s = &x->summaries[i];
        if (s->count == 0 || !is_norm(x, i)) {
            continue;
        }
        norms++;
        small += s->mean_abs < 0.05;
        negative += s->max <= 0.0;
        low = s->mean_abs < low ? s->mean_abs : low;
        high = s->mean_abs > high ? s->mean_abs : high;
        if (s->max_abs > 100.0 && large++ == 0) {
            first_large = ssm__place_tensor(x->checkpoint, x->config->n_layers, i)->name;
        }
    }
    if (norms > 0) {
        SSM__FIND(x, OK, "norms", NULL, "mean |weight| of the %" PRId64 " norms: %.3g to %.3g",
                  norms, low, high);
    }
    if (2 * small > norms) {
        SSM__FIND(x, NOTE, "norms", NULL,
                  "most norm weights are around 0: was w - 1 stored in place of w?");
    }
    if (negative > 0) {
        SSM__FIND(x, NOTE, "norms", NULL, "%" PRId64 " norms have no positive weight", negative);
    }
    if (large > 0) {
        SSM__FIND(x, NOTE, "norms", first_large,
                  "%" PRId64 " norms have weights beyond 100, the first is %s", large, first_large);
    }
    return SSM_STATUS_OK;
}

/* ---- layers beside each other ---------------------------------------------------------------- */

/* The same bits in every matrix, of which there is one at least. */
static bool same_layers(const ssm__examination *x, int64_t a, int64_t b)
{
    int64_t matrices = 0;
    for (int field = 0; field < SSM__LAYER_SLOTS; field++) {
        const ssm__summary *left = ssm__field_summary(x, a, field);
        const ssm__summary *right = ssm__field_summary(x, b, field);
        if (field == SSM__SLOT_A_log) {
            continue; /* equal in all layers by default */
        }
        if (strcmp(left->digest, right->digest) != 0) {
            return false;
        }
        matrices += left->rows > 0;
    }
    return matrices > 0;
}

static ssm_status say_duplicates(const ssm__examination *x, ssm_error *err)
{
    int64_t pairs = 0, first_a = 0, first_b = 0;
    for (int64_t b = 1; b < x->config->n_layers; b++) {
        for (int64_t a = 0; a < b; a++) {
            if (same_layers(x, a, b)) {
                first_a = pairs == 0 ? a : first_a;
                first_b = pairs == 0 ? b : first_b;
                pairs++;
                break; /* b is counted once */
            }
        }
    }
    if (pairs > 0) {
        SSM__FIND(x, NOTE, "layers", NULL,
                  "%" PRId64 " layer%s the matrices of an earlier one: layer %" PRId64
                  " those of layer %" PRId64 "%s",
                  pairs, pairs == 1 ? " has" : "s have", first_b, first_a,
                  pairs == 1 ? "" : " and so on");
    }
    return SSM_STATUS_OK;
}

/* log 1, log 2, …, in every row, but for the rounding of a narrow type. */
static bool is_default_A_log(const ssm_tensor *tensor)
{
    const int64_t width = tensor->dims[1];
    for (int64_t i = 0; i < ssm_tensor_count(tensor); i++) {
        const double expected = log((double)(i % width) + 1.0);
        if (!(fabs(ssm_tensor_get(tensor, i) - expected) <= 0x1p-8 * expected)) {
            return false;
        }
    }
    return true;
}

static bool all_ones(const ssm__summary *s)
{
    return s->count == 0 || (s->min == 1.0 && s->max == 1.0);
}

/* Everything that the published initialisation sets to fixed numbers still has them. Mamba-2 draws
 * A, so there only norms and skips can tell. */
static bool layer_is_fresh(const ssm__examination *x, int64_t layer)
{
    const ssm_tensor *A_log = &x->weights->layers[layer].A_log;
    return all_ones(ssm__field_summary(x, layer, SSM__SLOT_norm)) &&
           all_ones(ssm__field_summary(x, layer, SSM__SLOT_gate_norm)) &&
           all_ones(ssm__field_summary(x, layer, SSM__SLOT_D)) &&
           (A_log->data == NULL || A_log->n_dims != 2 || is_default_A_log(A_log));
}

ssm_status ssm__examine_layers(const ssm__examination *x, ssm_error *err)
{
    int64_t fresh = 0;
    SSM__TRY(say_duplicates(x, err));
    for (int64_t layer = 0; layer < x->config->n_layers; layer++) {
        fresh += layer_is_fresh(x, layer);
    }
    if (fresh > 0) {
        SSM__FIND(x, NOTE, "layers", NULL,
                  "norm weights, D%s of %s%" PRId64 " layer%s are those of the published "
                  "initialisation: %s",
                  x->config->family == SSM_FAMILY_MAMBA2 ? "" : " and A_log",
                  fresh == x->config->n_layers ? "all " : "", fresh, fresh == 1 ? "" : "s",
                  fresh == x->config->n_layers ? "the model was never trained"
                                               : "these were never trained");
    }
    return SSM_STATUS_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static ssm_status say_rows(const ssm__examination *x, const char *what, const ssm_tensor *tensor,
                           const ssm__summary *s, const double *norms, ssm_error *err)
{
    const int64_t rows = s->rows;
    double *sorted = malloc((size_t)rows * sizeof *sorted);
    if (sorted == NULL) {
        return ssm__fail_memory(err, "norms of rows", (size_t)rows * sizeof *sorted);
    }
    memcpy(sorted, norms, (size_t)rows * sizeof *sorted);
    ssm__sort(sorted, rows);
    const double median = ssm__quantile(sorted, rows, 0.5);
    free(sorted);
    int64_t far = 0, first_far = -1;
    for (int64_t i = 0; i < rows; i++) {
        if (norms[i] > 0.0 && (norms[i] > 10.0 * median || norms[i] < 0.1 * median)) {
            first_far = far++ == 0 ? i : first_far;
        }
    }
    SSM__FIND(x, OK, "rows", tensor->name,
              "rows of the %s have norm %.3g (id %" PRId64 ") to %.3g (id %" PRId64
              "), median %.3g",
              what, s->smallest_row, s->smallest_at, s->largest_row, s->largest_at, median);
    if (s->zero_rows > 0) {
        SSM__FIND(x, NOTE, "rows", tensor->name,
                  "%" PRId64 " rows of the %s are zero, the first is that of id %" PRId64,
                  s->zero_rows, what, s->first_zero_row);
    }
    if (far > 0) {
        SSM__FIND(x, NOTE, "rows", tensor->name,
                  "%" PRId64 " rows of the %s have a norm of less than a tenth or more than ten "
                  "times the median, the first is that of id %" PRId64 " (%.3g)",
                  far, what, first_far, norms[first_far]);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__examine_rows(const ssm__examination *x, ssm_error *err)
{
    const ssm__summary *embedding = &x->summaries[0], *head = &x->summaries[x->places - 1];
    if (embedding->rows > 0 && embedding->nonfinite == 0) {
        SSM__TRY(
            say_rows(x, "embedding", &x->weights->embedding, embedding, x->embedding_norms, err));
    }
    if (x->config->tied || head->rows == 0) {
        return SSM_STATUS_OK;
    }
    if (strcmp(embedding->digest, head->digest) == 0) {
        SSM__FIND(x, NOTE, "rows", x->weights->lm_head.name,
                  "the head is not tied, but has the numbers of the embedding");
    } else if (head->nonfinite == 0) {
        SSM__TRY(say_rows(x, "head", &x->weights->lm_head, head, x->head_norms, err));
    }
    return SSM_STATUS_OK;
}
