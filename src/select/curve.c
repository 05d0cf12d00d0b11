/* The error of sets from recorded Grams, at one budget or at all (docs/select.md).
 *
 * Rules that rank have nested sets: one reverse cumulative sum over a row's Gram gives every
 * budget. Others give a set a budget, and weights an error that is a quadratic form of the Gram. */
#include <ssmscope/select.h>

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "recording/dropped.h"
#include "recording/energies.h"
#include "recording/schema.h"
#include "select/calibration.h"
#include "select/ranking.h"

/* One curve under way. */
typedef struct pricing {
    ssm_recording *recording;
    const ssm_recording_info *info;
    ssm_role role;
    int64_t rows, d_state, n_budgets;
    float *gram;     /* of a row */
    double *exact;   /* the same in float64 */
    double *errors;  /* [N+1] */
    double *dropped; /* [n_budgets] of a layer */
    ssm_error_curve *out;
} pricing;

static ssm_status pricing_create(pricing *p, int64_t n_budgets, ssm_error *err)
{
    const ssm_recording_info *info = p->info;
    const size_t layers = (size_t)info->n_recorded;
    const size_t entries = (size_t)ssm__gram_entries(info->d_state);
    const size_t budgets = (size_t)n_budgets;
    p->rows = ssm_recording_channels(info);
    p->d_state = info->d_state;
    p->n_budgets = n_budgets;
    p->gram = malloc(entries * sizeof *p->gram);
    p->exact = malloc(entries * sizeof *p->exact);
    p->errors = malloc((size_t)(info->d_state + 1) * sizeof *p->errors);
    p->dropped = malloc(budgets * sizeof *p->dropped);
    p->out->n_layers = info->n_recorded;
    p->out->n_budgets = n_budgets;
    p->out->layers = malloc(layers * sizeof *p->out->layers);
    p->out->budgets = malloc(budgets * sizeof *p->out->budgets);
    p->out->error = malloc(layers * budgets * sizeof *p->out->error);
    p->out->mean = malloc(budgets * sizeof *p->out->mean);
    if (!p->gram || !p->exact || !p->errors || !p->dropped || !p->out->layers || !p->out->budgets ||
        !p->out->error || !p->out->mean) {
        return ssm__fail_memory(err, "an error curve", layers * budgets * sizeof(double));
    }
    memcpy(p->out->layers, info->layers, layers * sizeof *p->out->layers);
    return SSM_STATUS_OK;
}

static void pricing_free(pricing *p)
{
    free(p->gram);
    free(p->exact);
    free(p->errors);
    free(p->dropped);
}

void ssm_error_curve_free(ssm_error_curve *curve)
{
    if (curve != NULL) {
        free(curve->layers);
        free(curve->budgets);
        free(curve->error);
        free(curve->mean);
        *curve = (ssm_error_curve){0};
    }
}

static ssm_status check_windows(const pricing *p, ssm_error *err)
{
    const bool evaluation = p->role == SSM_ROLE_EVALUATION;
    if (!ssm__has_windows(p->recording, p->role)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the recording has no %s windows to take the error of: record with "
                         "--%s-windows",
                         evaluation ? "evaluation" : "calibration",
                         evaluation ? "evaluation" : "calibration");
    }
    if (!p->info->has_gram) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the error of a set needs Grams, and the recording was made with "
                         "--no-gram: record without it");
    }
    return SSM_STATUS_OK;
}

static ssm_status check_rows(const pricing *p, int64_t rows, ssm_error *err)
{
    if (rows == p->rows) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                     "the sets are of %lld channels, but a recording of %s has Grams of its %lld "
                     "heads: choose --scope head, group or layer (or judge the mask with eval)",
                     (long long)rows, ssm_family_name(p->info->family), (long long)p->rows);
}

/* Row h of a Gram tensor, which has no alignment. */
static const float *row_of(const pricing *p, const ssm_tensor *tensor, int64_t h)
{
    const size_t bytes = (size_t)ssm__gram_entries(p->d_state) * sizeof(float);
    memcpy(p->gram, (const char *)tensor->data + (size_t)h * bytes, bytes);
    return p->gram;
}

/* Σ_w Σ_h Y of a layer. */
static ssm_status output_energy(const pricing *p, int64_t layer, double *out, ssm_error *err)
{
    *out = 0.0;
    for (int64_t w = 0; w < ssm_recording_window_count(p->recording); w++) {
        const ssm_tensor *tensor = NULL;
        if (ssm_recording_get_window(p->recording, w)->role != p->role) {
            continue;
        }
        SSM__TRY(ssm_recording_tensor(p->recording, w, layer, "output_energy", &tensor, err));
        SSM__TRY(ssm__check_finite(tensor, true, err));
        for (int64_t h = 0; h < p->rows; h++) {
            float value;
            memcpy(&value, (const char *)tensor->data + (size_t)h * sizeof value, sizeof value);
            *out += (double)value;
        }
    }
    return SSM_STATUS_OK;
}

/* ---- nested sets ----------------------------------------------------------------------------- */

/* dropped[r − 1] of a layer, r = 1 … N. */
static ssm_status price_ranking(const pricing *p, const ssm__selection *s,
                                const ssm__ranking *ranking, int64_t place, ssm_error *err)
{
    const int64_t N = p->d_state;
    memset(p->dropped, 0, (size_t)N * sizeof *p->dropped);
    for (int64_t w = 0; w < ssm_recording_window_count(p->recording); w++) {
        const ssm_tensor *tensor = NULL;
        SSM__TRY(ssm__role_gram(p->recording, p->role, w, p->info->layers[place], &tensor, err));
        for (int64_t h = 0; tensor != NULL && h < p->rows; h++) {
            const int64_t set = h / s->rows_per_set;
            ssm__dropped_errors(row_of(p, tensor, h), N,
                                ranking->orders + (place * s->sets + set) * N, p->errors);
            for (int64_t r = 1; r <= N; r++) {
                p->dropped[r - 1] += p->errors[ssm__ranking_count(ranking, place, set, r)];
            }
        }
    }
    return SSM_STATUS_OK;
}

/* ---- any mask -------------------------------------------------------------------------------- */

/* 1 − what a row's mask leaves of each summand. */
static void coefficients_of(const ssm_mask *mask, int64_t row, double *out)
{
    const int64_t N = mask->d_state;
    for (int64_t n = 0; n < N; n++) {
        const double kept = mask->keep[row * N + n] != 0 ? 1.0 : 0.0;
        out[n] = 1.0 - (mask->weight != NULL ? (double)mask->weight[row * N + n] : kept);
    }
    out[N] = mask->skip_weight != NULL ? 1.0 - (double)mask->skip_weight[row] : 0.0;
}

static ssm_status price_mask(const pricing *p, const ssm_mask *mask, int64_t layer, double *dropped,
                             ssm_error *err)
{
    *dropped = 0.0;
    for (int64_t w = 0; w < ssm_recording_window_count(p->recording); w++) {
        const ssm_tensor *tensor = NULL;
        SSM__TRY(ssm__role_gram(p->recording, p->role, w, layer, &tensor, err));
        for (int64_t h = 0; tensor != NULL && h < p->rows; h++) {
            const float *gram = row_of(p, tensor, h);
            for (int64_t i = 0; i < ssm__gram_entries(p->d_state); i++) {
                p->exact[i] = (double)gram[i];
            }
            coefficients_of(mask, layer * p->rows + h, p->errors);
            *dropped += ssm__gram_form(p->exact, p->d_state, p->errors);
        }
    }
    return SSM_STATUS_OK;
}

/* ---- curves ---------------------------------------------------------------------------------- */

static void take_means(const ssm_error_curve *out)
{
    for (int64_t b = 0; b < out->n_budgets; b++) {
        double sum = 0.0;
        for (int64_t l = 0; l < out->n_layers; l++) {
            sum += out->error[l * out->n_budgets + b];
        }
        out->mean[b] = sum / (double)out->n_layers;
    }
}

static ssm_status curve_of_ranking(const pricing *p, const ssm__selection *s, ssm_error *err)
{
    ssm__ranking ranking;
    ssm_status status = ssm__ranking_create(s, s->rule, &ranking, err);
    for (int64_t l = 0; status == SSM_STATUS_OK && l < p->info->n_recorded; l++) {
        double output = 0.0;
        status = price_ranking(p, s, &ranking, l, err);
        status =
            status == SSM_STATUS_OK ? output_energy(p, p->info->layers[l], &output, err) : status;
        for (int64_t b = 0; status == SSM_STATUS_OK && b < p->n_budgets; b++) {
            p->out->error[l * p->n_budgets + b] = ssm__relative_error(p->dropped[b], output);
        }
    }
    ssm__ranking_free(&ranking);
    return status;
}

/* Column b of the curve. */
static ssm_status column_of_mask(const pricing *p, const ssm_mask *mask, int64_t b, ssm_error *err)
{
    for (int64_t l = 0; l < p->info->n_recorded; l++) {
        double dropped = 0.0;
        double output = 0.0;
        SSM__TRY(price_mask(p, mask, p->info->layers[l], &dropped, err));
        SSM__TRY(output_energy(p, p->info->layers[l], &output, err));
        p->out->error[l * p->n_budgets + b] = ssm__relative_error(dropped, output);
    }
    return SSM_STATUS_OK;
}

static ssm_status curve_of_masks(const pricing *p, const ssm__selection *s, ssm_error *err)
{
    for (int64_t b = 0; b < p->n_budgets; b++) {
        ssm_mask mask = {0};
        SSM__TRY(ssm__selection_mask(s, p->out->budgets[b], &mask, err));
        const ssm_status status = column_of_mask(p, &mask, b, err);
        ssm_mask_free(&mask);
        SSM__TRY(status);
    }
    return SSM_STATUS_OK;
}

static ssm_status finish(pricing *p, ssm_status status)
{
    pricing_free(p);
    if (status == SSM_STATUS_OK) {
        take_means(p->out);
    } else {
        ssm_error_curve_free(p->out);
    }
    return status;
}

ssm_status ssm_select_curve(ssm_recording *recording, const ssm_select_options *options,
                            ssm_role role, ssm_error_curve *out, ssm_error *err)
{
    ssm__selection selection;
    pricing p = {.recording = recording,
                 .info = ssm_recording_get_info(recording),
                 .role = role,
                 .out = out};
    *out = (ssm_error_curve){0};
    SSM__TRY(ssm__selection_create(recording, options, &selection, err));
    SSM__TRY(check_windows(&p, err));
    p.rows = ssm_recording_channels(p.info);
    SSM__TRY(check_rows(&p, selection.rows, err));
    ssm_status status = pricing_create(&p, p.info->d_state, err);
    for (int64_t b = 0; status == SSM_STATUS_OK && b < p.n_budgets; b++) {
        out->budgets[b] = b + 1;
    }
    if (status == SSM_STATUS_OK) {
        status = selection.rule->score != NULL ? curve_of_ranking(&p, &selection, err)
                                               : curve_of_masks(&p, &selection, err);
    }
    return finish(&p, status);
}

static ssm_status check_mask(const pricing *p, const ssm_mask *mask, ssm_error *err)
{
    const ssm_recording_info *info = p->info;
    if (mask->model_digest[0] != '\0' && strcmp(mask->model_digest, info->model_digest) != 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the mask is for model %s, but the recording is of model %s",
                         mask->model_digest, info->model_digest);
    }
    if (mask->n_layers != info->n_layers || mask->d_state != info->d_state ||
        (mask->n_channels != ssm_recording_sets(info, SSM_SCOPE_CHANNEL) &&
         mask->n_channels != p->rows)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the mask is for %lld layers of %lld channels with %lld modes, the "
                         "recording is of %lld of %lld with %lld",
                         (long long)mask->n_layers, (long long)mask->n_channels,
                         (long long)mask->d_state, (long long)info->n_layers, (long long)p->rows,
                         (long long)info->d_state);
    }
    return check_rows(p, mask->n_channels, err);
}

ssm_status ssm_select_error(ssm_recording *recording, const ssm_mask *mask, ssm_role role,
                            ssm_error_curve *out, ssm_error *err)
{
    pricing p = {.recording = recording,
                 .info = ssm_recording_get_info(recording),
                 .role = role,
                 .out = out};
    *out = (ssm_error_curve){0};
    p.rows = ssm_recording_channels(p.info);
    SSM__TRY(check_windows(&p, err));
    SSM__TRY(check_mask(&p, mask, err));
    ssm_status status = pricing_create(&p, 1, err);
    if (status == SSM_STATUS_OK) {
        out->budgets[0] = mask->budget;
        status = column_of_mask(&p, mask, 0, err);
    }
    return finish(&p, status);
}
