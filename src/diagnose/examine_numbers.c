/* diagnose/examine_numbers.c: element types, and numbers that no training makes. */
#include "diagnose/examine.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- element types --------------------------------------------------------------------------- */

typedef enum weight_class {
    CLASS_EMBEDDING,
    CLASS_HEAD,
    CLASS_PROJECTIONS,
    CLASS_CONV,
    CLASS_STATE,
    CLASS_SMALL,
    CLASSES
} weight_class;

static const char *const class_names[CLASSES] = {
    "embedding", "head", "projections", "conv1d", "A_log, D and dt bias", "norms and biases"};

static weight_class class_of(const ssm__examination *x, int64_t place)
{
    const ssm__slot_place at = ssm__slot_at(x->config->n_layers, place);
    if (at.layer < 0) {
        return place == 0 ? CLASS_EMBEDDING : place == x->places - 1 ? CLASS_HEAD : CLASS_SMALL;
    }
    switch (at.id) {
    case SSM__SLOT_in_proj:
    case SSM__SLOT_x_proj:
    case SSM__SLOT_dt_proj:
    case SSM__SLOT_out_proj:
    case SSM__SLOT_fc1:
    case SSM__SLOT_fc2:
        return CLASS_PROJECTIONS;
    case SSM__SLOT_conv1d:
        return CLASS_CONV;
    case SSM__SLOT_A_log:
    case SSM__SLOT_D:
    case SSM__SLOT_dt_bias:
    case SSM__SLOT_dt_proj_bias:
        return CLASS_STATE;
    default:
        return CLASS_SMALL;
    }
}

typedef struct class_sum {
    int64_t tensors[SSM_DTYPE_COUNT];
    int64_t wide; /* F32 tensors */
    bool fits_bf16, fits_f16;
} class_sum;

static void sum_classes(const ssm__examination *x, class_sum sums[CLASSES])
{
    for (int c = 0; c < CLASSES; c++) {
        sums[c] = (class_sum){.fits_bf16 = true, .fits_f16 = true};
    }
    for (int64_t i = 0; i < x->places; i++) {
        const ssm_tensor *tensor = ssm__place_tensor(x->checkpoint, x->config->n_layers, i);
        if (tensor == NULL) {
            continue;
        }
        class_sum *sum = &sums[class_of(x, i)];
        sum->tensors[tensor->dtype]++;
        if (tensor->dtype == SSM_DTYPE_F32) {
            sum->wide++;
            sum->fits_bf16 = sum->fits_bf16 && x->summaries[i].fits_bf16;
            sum->fits_f16 = sum->fits_f16 && x->summaries[i].fits_f16;
        }
    }
}

/* "F32" or "12 in F32, 3 in BF16"; the number of types. */
static int types_text(const class_sum *sum, char *out, size_t size)
{
    int types = 0;
    size_t used = 0;
    for (int t = 0; t < SSM_DTYPE_COUNT; t++) {
        types += sum->tensors[t] > 0;
    }
    out[0] = '\0';
    for (int t = 0; t < SSM_DTYPE_COUNT; t++) {
        if (sum->tensors[t] == 0 || used >= size) {
            continue;
        }
        const char *name = ssm_dtype_name((ssm_dtype)t);
        used += (size_t)(types == 1 ? snprintf(out + used, size - used, "%s", name)
                                    : snprintf(out + used, size - used, "%s%" PRId64 " in %s",
                                               used == 0 ? "" : ", ", sum->tensors[t], name));
    }
    return types;
}

ssm_status ssm__examine_dtypes(const ssm__examination *x, ssm_error *err)
{
    class_sum sums[CLASSES];
    char text[512], types[128];
    size_t used = 0;
    sum_classes(x, sums);
    text[0] = '\0';
    for (int c = 0; c < CLASSES; c++) {
        if ((c == CLASS_HEAD && x->config->tied) ||
            types_text(&sums[c], types, sizeof types) == 0) {
            continue;
        }
        if (used < sizeof text) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s",
                                     used == 0 ? "" : "; ", class_names[c], types);
        }
    }
    SSM__FIND(x, OK, "dtypes", NULL, "stored: %s; everything is computed in F32", text);
    for (int c = 0; c < CLASSES; c++) {
        if (types_text(&sums[c], types, sizeof types) > 1) {
            SSM__FIND(x, NOTE, "dtypes", NULL, "%s are stored in several types: %s", class_names[c],
                      types);
        }
        if (c <= CLASS_PROJECTIONS && sums[c].wide > 0 && (sums[c].fits_bf16 || sums[c].fits_f16) &&
            !(c == CLASS_HEAD && x->config->tied)) {
            const char *narrow = sums[c].fits_bf16 ? "BF16" : "F16";
            SSM__FIND(x, NOTE, "dtypes", NULL,
                      "every F32 number of the %s is one of %s: half of their bytes say nothing, "
                      "they were converted from %s",
                      class_names[c], narrow, narrow);
        }
    }
    return SSM_STATUS_OK;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static ssm_status say_nonfinite(const ssm__examination *x, int64_t *bad, ssm_error *err)
{
    enum { SHOWN = 10 };
    for (int64_t i = 0; i < x->places; i++) {
        const ssm__summary *s = &x->summaries[i];
        if (s->nonfinite == 0 || (*bad)++ >= SHOWN) {
            continue;
        }
        const ssm_tensor *tensor = ssm__place_tensor(x->checkpoint, x->config->n_layers, i);
        SSM__FIND(x, PROBLEM, "numbers", tensor->name,
                  "%" PRId64 " of %" PRId64 " numbers of %s are not finite, the first is number "
                  "%" PRId64,
                  s->nonfinite, s->count, tensor->name, s->first_nonfinite);
    }
    if (*bad > SHOWN) {
        SSM__FIND(x, PROBLEM, "numbers", NULL, "%" PRId64 " more tensors are not finite",
                  *bad - SHOWN);
    }
    return SSM_STATUS_OK;
}

/* Tensors of which `is` holds: how many, and the first of them. */
typedef bool summary_test(const ssm__summary *s);

static ssm_status say_tensors(const ssm__examination *x, summary_test *is, bool matrices_only,
                              const char *what, ssm_error *err)
{
    int64_t count = 0;
    const char *first = NULL;
    for (int64_t i = 0; i < x->places; i++) {
        const ssm__summary *s = &x->summaries[i];
        const bool copy = x->config->tied && i == x->places - 1;
        if (s->count > 0 && !copy && (!matrices_only || s->rows > 0) && is(s)) {
            first = count++ == 0 ? ssm__place_tensor(x->checkpoint, x->config->n_layers, i)->name
                                 : first;
        }
    }
    if (count > 0) {
        SSM__FIND(x, NOTE, "numbers", first, "%" PRId64 " tensor%s %s, the first is %s", count,
                  count == 1 ? "" : "s", what, first);
    }
    return SSM_STATUS_OK;
}

static bool is_constant(const ssm__summary *s)
{
    return s->count > 1 && s->min == s->max;
}

static bool has_subnormals(const ssm__summary *s)
{
    return s->subnormals > 0;
}

/* Trained matrices reach some tens of their root mean square; a thousand is a stray bit. */
static bool has_outlier(const ssm__summary *s)
{
    return s->max_abs > 1000.0 * s->rms && s->count > 1000000;
}

static bool is_huge(const ssm__summary *s)
{
    return s->max_abs > 1e4;
}

static ssm_status say_zero_rows(const ssm__examination *x, ssm_error *err)
{
    for (int field = 0; field < SSM__LAYER_SLOTS; field++) {
        int64_t rows = 0, layers = 0, first_layer = -1;
        for (int64_t layer = 0; layer < x->config->n_layers; layer++) {
            const ssm__summary *s = ssm__field_summary(x, layer, field);
            if (s->zero_rows > 0 && s->zero_rows < s->rows) {
                rows += s->zero_rows;
                layers++;
                first_layer = first_layer < 0 ? layer : first_layer;
            }
        }
        /* A row of A_log is zero where N = 1 by default: |A| = 1. */
        if (rows > 0 && field != SSM__SLOT_A_log) {
            char name[SSM__SLOT_NAME_MAX];
            ssm__place_name(x->config->n_layers, ssm__field_place(first_layer, field), name);
            SSM__FIND(x, NOTE, "numbers", name,
                      "%" PRId64 " rows of %" PRId64 " matri%s are zero, the first is row %" PRId64
                      " of %s",
                      rows, layers, layers == 1 ? "x" : "ces",
                      ssm__field_summary(x, first_layer, field)->first_zero_row, name);
        }
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__examine_numbers(const ssm__examination *x, ssm_error *err)
{
    int64_t bad = 0;
    SSM__TRY(say_nonfinite(x, &bad, err));
    if (bad == 0) {
        SSM__FIND(x, OK, "numbers", NULL, "every weight is finite");
    }
    SSM__TRY(say_tensors(x, is_constant, true, "of one number throughout", err));
    SSM__TRY(say_tensors(x, has_subnormals, false,
                         "with numbers so small that they are subnormal in float32", err));
    SSM__TRY(say_tensors(x, has_outlier, true,
                         "with a number of more than 1000 times their root mean square", err));
    SSM__TRY(say_tensors(x, is_huge, false, "with a number beyond 10000", err));
    return say_zero_rows(x, err);
}
