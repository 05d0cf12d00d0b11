/* diagnose/examine_mixer.c: step sizes, decay rates and skips of the layers that have a state. */
#include "diagnose/examine.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/quantile.h"

/* dt_proj.bias of Mamba, dt_bias of Mamba-2; −1: the layer has no steps. */
static int step_field(const ssm__examination *x, int64_t layer)
{
    if (ssm__field_summary(x, layer, SSM__SLOT_dt_proj_bias)->count > 0) {
        return SSM__SLOT_dt_proj_bias;
    }
    return ssm__field_summary(x, layer, SSM__SLOT_dt_bias)->count > 0 ? SSM__SLOT_dt_bias : -1;
}

static double softplus(double v)
{
    return v > 30.0 ? v : log1p(exp(v));
}

/* All finite numbers of one field a layer, put through `map`, sorted. */
typedef struct values {
    double *sorted;
    int64_t count;
} values;

static ssm_status collect(const ssm__examination *x, bool steps, double (*map)(double), values *out,
                          ssm_error *err)
{
    int64_t total = 0;
    *out = (values){0};
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t layer = 0; layer < x->config->n_layers; layer++) {
            const int field = steps ? step_field(x, layer) : SSM__SLOT_A_log;
            if (field < 0 || ssm__field_summary(x, layer, field)->count == 0) {
                continue;
            }
            const ssm_tensor *tensor = ssm__place_tensor(x->checkpoint, x->config->n_layers,
                                                         ssm__field_place(layer, field));
            for (int64_t i = 0; pass == 1 && i < ssm_tensor_count(tensor); i++) {
                const double value = map(ssm_tensor_get(tensor, i));
                if (isfinite(value)) {
                    out->sorted[out->count++] = value;
                }
            }
            total += pass == 0 ? ssm_tensor_count(tensor) : 0;
        }
        if (pass == 0) {
            out->sorted = malloc(((size_t)total + 1) * sizeof *out->sorted);
            if (out->sorted == NULL) {
                return ssm__fail_memory(err, "step sizes and decay rates",
                                        ((size_t)total + 1) * sizeof *out->sorted);
            }
        }
    }
    ssm__sort(out->sorted, out->count);
    return SSM_STATUS_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static ssm_status say_limits(const ssm__examination *x, const values *steps, ssm_error *err)
{
    const double low = x->config->dt_limit_low, high = x->config->dt_limit_high;
    /* Families without the setting may leave both 0. */
    if (!(low > 0.0) && (!(high > 0.0) || isinf(high))) {
        SSM__FIND(x, OK, "steps", NULL, "the step size dt is not clamped (limits 0, infinity)");
        return SSM_STATUS_OK;
    }
    int64_t beyond = 0;
    for (int64_t i = 0; i < steps->count; i++) {
        beyond += steps->sorted[i] < low || steps->sorted[i] > high;
    }
    SSM__FIND(x, NOTE, "steps", NULL,
              "the step size dt is clamped to [%g, %g]; %" PRId64 " of %" PRId64
              " lie beyond at the bias alone",
              low, high, beyond, steps->count);
    return SSM_STATUS_OK;
}

static ssm_status say_equal_steps(const ssm__examination *x, ssm_error *err)
{
    int64_t layers = 0, first = -1;
    for (int64_t layer = 0; layer < x->config->n_layers; layer++) {
        const int field = step_field(x, layer);
        const ssm__summary *s = field < 0 ? NULL : ssm__field_summary(x, layer, field);
        if (s != NULL && s->count > 1 && s->min == s->max) {
            first = layers++ == 0 ? layer : first;
        }
    }
    if (layers == 0) {
        return SSM_STATUS_OK;
    }
    const int64_t place = ssm__field_place(first, step_field(x, first));
    const double value = x->summaries[place].min;
    char name[SSM__SLOT_NAME_MAX];
    ssm__place_name(x->config->n_layers, place, name);
    SSM__FIND(x, NOTE, "steps", name,
              "the dt bias of %" PRId64 " layer%s is one number throughout, %g in %s: %s, not the "
              "published initialisation (softplus of it spread over 0.001 to 0.1)",
              layers, layers == 1 ? "" : "s", value, name,
              value == 1.0   ? "a constructor's value that was never replaced"
              : value == 0.0 ? "a framework set biases to zero"
                             : "it was never drawn or trained");
    return SSM_STATUS_OK;
}

ssm_status ssm__examine_steps(const ssm__examination *x, ssm_error *err)
{
    values steps;
    SSM__TRY(collect(x, true, softplus, &steps, err));
    ssm_status status = SSM_STATUS_OK;
    if (steps.count > 0) {
        const double smallest = steps.sorted[0], largest = steps.sorted[steps.count - 1];
        const double median = ssm__quantile(steps.sorted, steps.count, 0.5);
        /* Trained models stay within a factor of some hundred of the initialisation. */
        const bool odd = median < 1e-5 || median > 10.0;
        status = ssm_findings_add(
            x->findings, odd ? SSM_FINDING_NOTE : SSM_FINDING_OK, "steps", NULL, err,
            "step sizes at the bias alone, softplus(dt bias): %.3g to %.3g, median %.3g "
            "(initialised over 0.001 to 0.1)%s",
            smallest, largest, median, odd ? ": far from every published model" : "");
        status = status == SSM_STATUS_OK ? say_limits(x, &steps, err) : status;
    }
    free(steps.sorted);
    return status == SSM_STATUS_OK ? say_equal_steps(x, err) : status;
}

/* ---- decay ----------------------------------------------------------------------------------- */

static ssm_status say_negative_A_log(const ssm__examination *x, ssm_error *err)
{
    int64_t layers = 0, first = -1;
    for (int64_t layer = 0; layer < x->config->n_layers; layer++) {
        const ssm__summary *s = ssm__field_summary(x, layer, SSM__SLOT_A_log);
        if (s->count > 0 && s->max < 0.0 && s->mean_abs > 2.0) {
            first = layers++ == 0 ? layer : first;
        }
    }
    if (layers == 0) {
        return SSM_STATUS_OK;
    }
    const int64_t place = ssm__field_place(first, SSM__SLOT_A_log);
    char name[SSM__SLOT_NAME_MAX];
    ssm__place_name(x->config->n_layers, place, name);
    SSM__FIND(x, NOTE, "decay", name,
              "every number of A_log is negative in %" PRId64 " layer%s (%.3g to %.3g in %s): "
              "was A itself stored in place of log(-A)?",
              layers, layers == 1 ? "" : "s", x->summaries[place].min, x->summaries[place].max,
              name);
    return SSM_STATUS_OK;
}

static ssm_status say_overflow(const ssm__examination *x, ssm_error *err)
{
    for (int64_t layer = 0; layer < x->config->n_layers; layer++) {
        const int64_t place = ssm__field_place(layer, SSM__SLOT_A_log);
        if (x->summaries[place].count > 0 && x->summaries[place].max > 88.0) {
            char name[SSM__SLOT_NAME_MAX];
            ssm__place_name(x->config->n_layers, place, name);
            SSM__FIND(x, PROBLEM, "decay", name,
                      "%s reaches %g: its exponential overflows float32 (at most 88 was expected)",
                      name, x->summaries[place].max);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status say_skips(const ssm__examination *x, ssm_error *err)
{
    int64_t zeros = 0, count = 0, first = -1;
    for (int64_t layer = 0; layer < x->config->n_layers; layer++) {
        const ssm__summary *s = ssm__field_summary(x, layer, SSM__SLOT_D);
        first = s->zeros > 0 && first < 0 ? layer : first;
        zeros += s->zeros;
        count += s->count;
    }
    if (zeros > 0) {
        SSM__FIND(x, NOTE, "decay", NULL,
                  "%" PRId64 " of %" PRId64 " skips D are exactly zero, first in layer %" PRId64,
                  zeros, count, first);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__examine_decay(const ssm__examination *x, ssm_error *err)
{
    values rates;
    SSM__TRY(collect(x, false, exp, &rates, err));
    ssm_status status = SSM_STATUS_OK;
    if (rates.count > 0) {
        const double slow = rates.sorted[0], fast = rates.sorted[rates.count - 1];
        const bool odd = slow < 1e-6 || fast > 1e5;
        status = ssm_findings_add(x->findings, odd ? SSM_FINDING_NOTE : SSM_FINDING_OK, "decay",
                                  NULL, err, "decay rates |A|: %.3g to %.3g, median %.3g%s", slow,
                                  fast, ssm__quantile(rates.sorted, rates.count, 0.5),
                                  !odd          ? ""
                                  : slow < 1e-6 ? "; the slowest modes never forget"
                                                : "; the fastest modes forget at once");
    }
    free(rates.sorted);
    SSM__TRY(status);
    SSM__TRY(say_overflow(x, err));
    SSM__TRY(say_negative_A_log(x, err));
    return say_skips(x, err);
}
