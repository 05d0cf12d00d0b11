/* A recording → ssm_metrics: layer by layer, then what is said over all of them. */
#include <ssmscope/metrics.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "metrics/layer.h"
#include "recording/energies.h"
#include "recording/schema.h"

/* Everything of one call. */
typedef struct run {
    ssm_recording *recording;
    const ssm_recording_info *info;
    ssm__layer_work work;
    ssm__arena arena;
    double *tau;        /* [layers][timed] */
    float *instability; /* [budgets][layers][timed] */
    int64_t *order;     /* [layers · timed], at least layers */
    double *values;     /* [8][layers], of the metrics over layers */
    int64_t modes;      /* layers · timed */
} run;

/* ---- the request ---------------------------------------------------------------------------- */

/* Indices and domains of the evaluation windows. */
static ssm_status list_windows(ssm__layer_work *work, ssm_error *err)
{
    int64_t count = ssm_recording_window_count(work->recording);
    work->window_index = malloc(((size_t)count + 1) * sizeof *work->window_index);
    work->domains = malloc(((size_t)count + 1) * sizeof *work->domains);
    if (work->window_index == NULL || work->domains == NULL) {
        return ssm__fail_memory(err, "the list of windows", (size_t)count * sizeof *work->domains);
    }
    for (int64_t w = 0; w < count; w++) {
        const ssm_recording_window *window = ssm_recording_get_window(work->recording, w);
        if (window->role != SSM_ROLE_EVALUATION) {
            continue;
        }
        int64_t first = 0; /* the first window of the same domain gives the domain its number */
        while (strcmp(ssm_recording_get_window(work->recording, first)->domain, window->domain) !=
               0) {
            first++;
        }
        work->window_index[work->windows] = w;
        work->domains[work->windows++] = first;
    }
    if (work->windows == 0) {
        return ssm__fail(
            err, SSM_STATUS_USAGE, SSM__NOWHERE,
            "the recording has no evaluation windows: record with --evaluation-windows");
    }
    return SSM_STATUS_OK;
}

/* Reads a tensor before anything is sized by recording.json: its claims about shape are then backed
 * by a file that large. */
static ssm_status probe(run *r, ssm_error *err)
{
    const ssm_tensor *tensor = NULL;
    return ssm_recording_tensor(r->recording, r->work.window_index[0], r->info->layers[0],
                                "energy_blocks", &tensor, err);
}

static int64_t recorded_budget(const ssm_recording_info *info, int64_t budget)
{
    for (int64_t i = 0; i < info->n_budgets; i++) {
        if (info->budgets[i] == budget) {
            return i;
        }
    }
    return -1;
}

static ssm_status prepare(run *r, const int64_t *budgets, int64_t n_budgets, ssm_error *err)
{
    ssm__layer_work *work = &r->work;
    work->recording = r->recording;
    work->channels = ssm_recording_sets(r->info, work->scope);
    work->rows = ssm_recording_channels(r->info);
    work->finer = ssm__scope_is_finer(r->info, work->scope);
    work->n = r->info->d_state;
    work->timed = r->info->family == SSM_FAMILY_MAMBA2 ? work->rows : work->rows * work->n;
    work->words = ssm__set_words(work->n);
    work->blocks = ssm__energy_blocks(r->info->window);
    work->blocks = work->blocks < 2 ? 2 : work->blocks;
    int64_t lags = r->info->window / SSM__BLOCK_TOKENS - 1;
    work->lags = lags < 0 || work->finer ? 0 : lags > SSM_MAX_LAGS ? SSM_MAX_LAGS : lags;
    SSM__TRY(list_windows(work, err));
    SSM__TRY(probe(r, err));
    work->n_budgets = n_budgets;
    work->budgets = calloc((size_t)n_budgets, sizeof *work->budgets);
    if (work->budgets == NULL) {
        return ssm__fail_memory(err, "budgets", (size_t)n_budgets * sizeof *work->budgets);
    }
    for (int64_t b = 0; b < n_budgets; b++) {
        work->budgets[b].r = budgets[b];
        work->budgets[b].recorded = recorded_budget(r->info, budgets[b]);
    }
    ssm__arena counting = {0};
    ssm__layer_layout(work, &counting);
    if (counting.overflow) {
        return ssm__fail_memory(err, "a layer's metrics", SIZE_MAX);
    }
    SSM__TRY(ssm__arena_create(&r->arena, counting.used, err));
    ssm__layer_layout(work, &r->arena);
    return SSM_STATUS_OK;
}

static ssm_status prepare_pool(run *r, ssm_error *err)
{
    int64_t layers = r->info->n_recorded;
    int64_t values;
    if (!ssm__mul_dim(layers, r->work.timed, &r->modes) ||
        !ssm__mul_dim(r->modes, r->work.n_budgets, &values)) {
        return ssm__fail_memory(err, "the modes of all layers", SIZE_MAX);
    }
    r->tau = calloc((size_t)r->modes, sizeof *r->tau);
    r->instability = calloc((size_t)values, sizeof *r->instability);
    r->order = calloc((size_t)(r->modes > layers ? r->modes : layers), sizeof *r->order);
    r->values = calloc((size_t)(8 * layers), sizeof *r->values);
    return r->tau == NULL || r->instability == NULL || r->order == NULL || r->values == NULL
               ? ssm__fail_memory(err, "the modes of all layers", (size_t)values * sizeof *r->tau)
               : SSM_STATUS_OK;
}

static ssm_status allocate(ssm_metrics *out, int64_t n_layers, int64_t n_budgets, ssm_error *err)
{
    size_t layers = (size_t)n_layers;
    size_t budgets = (size_t)n_budgets;
    out->n_layers = n_layers;
    out->n_budgets = n_budgets;
    out->layers = calloc(layers, sizeof *out->layers);
    out->across = calloc(budgets, sizeof *out->across);
    bool failed = out->layers == NULL || out->across == NULL;
    for (size_t i = 0; i < layers && !failed; i++) {
        out->layers[i].budgets = calloc(budgets, sizeof *out->layers[i].budgets);
        failed = out->layers[i].budgets == NULL;
    }
    for (size_t b = 0; b < budgets && !failed; b++) {
        out->across[b].migrating_layers = calloc(layers, sizeof *out->across[b].migrating_layers);
        out->across[b].migrating_depths = calloc(layers, sizeof *out->across[b].migrating_depths);
        failed = out->across[b].migrating_layers == NULL || out->across[b].migrating_depths == NULL;
    }
    return failed ? ssm__fail_memory(err, "metrics", layers * budgets * sizeof(ssm_budget_metrics))
                  : SSM_STATUS_OK;
}

void ssm_metrics_free(ssm_metrics *metrics)
{
    if (metrics == NULL) {
        return;
    }
    for (int64_t i = 0; metrics->layers != NULL && i < metrics->n_layers; i++) {
        free(metrics->layers[i].budgets);
    }
    for (int64_t b = 0; metrics->across != NULL && b < metrics->n_budgets; b++) {
        free(metrics->across[b].migrating_layers);
        free(metrics->across[b].migrating_depths);
    }
    free(metrics->layers);
    free(metrics->across);
    *metrics = (ssm_metrics){0};
}

/* ---- over all layers ------------------------------------------------------------------------ */

static void fill_correlations(run *r, const ssm_metrics *metrics, int64_t b, ssm_across_layers *out)
{
    int64_t n = metrics->n_layers;
    double *rho = r->values;
    double *rho_diag = rho + n;
    double *loss = rho + 2 * n;
    double *energy_churn = rho + 3 * n;
    double *set_churn = rho + 4 * n;
    double *ranks = rho + 5 * n; /* two rows */
    for (int64_t i = 0; i < n; i++) {
        const ssm_budget_metrics *budget = &metrics->layers[i].budgets[b];
        rho[i] = budget->rho;
        rho_diag[i] = budget->rho_diag;
        loss[i] = 1.0 - budget->rho;
        energy_churn[i] = budget->energy_weighted_churn;
        set_churn[i] = budget->set_churn;
    }
    out->pearson_rho_diag_rho = ssm__pearson(rho_diag, rho, n);
    out->spearman_energy_churn = ssm__spearman(energy_churn, loss, n, ranks);
    out->spearman_set_churn = ssm__spearman(set_churn, loss, n, ranks);
}

static int64_t count_above(const ssm_metrics *metrics, int64_t b)
{
    int64_t above = 0;
    int64_t defined = 0;
    for (int64_t i = 0; i < metrics->n_layers; i++) {
        const ssm_budget_metrics *budget = &metrics->layers[i].budgets[b];
        defined += !isnan(budget->churn_cross) && !isnan(budget->churn_within) ? 1 : 0;
        above += budget->churn_cross > budget->churn_within ? 1 : 0;
    }
    return defined > 0 ? above : -1;
}

static ssm_status fill_across(run *r, ssm_metrics *out, ssm_error *err)
{
    SSM__TRY(ssm__order_by_time(r->tau, r->modes, r->order, err));
    for (int64_t b = 0; b < out->n_budgets; b++) {
        ssm_across_layers *across = &out->across[b];
        across->budget = r->work.budgets[b].r;
        fill_correlations(r, out, b, across); /* leaves ρ in the first row of values */
        ssm__geometry(r->values, r->info->layers, out->n_layers, r->info->n_layers,
                      r->values + 7 * out->n_layers, across);
        across->layers_cross_above_within = count_above(out, b);
        ssm__decile_means(r->instability + b * r->modes, r->order, r->modes,
                          across->instability_by_decile);
    }
    return SSM_STATUS_OK;
}

/* ---- the call ------------------------------------------------------------------------------- */

static ssm_status measure_layers(run *r, const ssm_progress *progress, ssm_metrics *out,
                                 ssm_error *err)
{
    int64_t per_layer = r->work.timed;
    for (int64_t i = 0; i < out->n_layers; i++) {
        if (progress != NULL && progress->report != NULL &&
            !progress->report(progress->context, "metrics", i, out->n_layers, "layers")) {
            return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE, "stopped");
        }
        SSM__TRY(ssm__layer_measure(&r->work, r->info->layers[i], r->tau + i * per_layer,
                                    r->instability + i * per_layer, r->modes, &out->layers[i],
                                    err));
    }
    if (progress != NULL && progress->report != NULL) {
        progress->report(progress->context, "metrics", out->n_layers, out->n_layers, "layers");
    }
    out->diagonal_identity_max_violation =
        r->work.n_calibration > 0 ? r->work.identity_violation : (double)NAN;
    out->gram_diagonal_max_deviation =
        r->info->has_gram && !r->work.finer ? r->work.gram_deviation : (double)NAN;
    out->scope = r->work.scope == SSM_SCOPE_HEAD ? SSM_SCOPE_HEAD : SSM_SCOPE_CHANNEL;
    return SSM_STATUS_OK;
}

static ssm_status compute(run *r, const int64_t *budgets, int64_t n_budgets,
                          const ssm_progress *progress, ssm_metrics *out, ssm_error *err)
{
    SSM__TRY(prepare(r, budgets, n_budgets, err));
    SSM__TRY(prepare_pool(r, err));
    SSM__TRY(allocate(out, r->info->n_recorded, n_budgets, err));
    SSM__TRY(measure_layers(r, progress, out, err));
    return fill_across(r, out, err);
}

ssm_status ssm_metrics_compute(ssm_recording *recording, ssm_scope scope, const int64_t *budgets,
                               int64_t n_budgets, const ssm_progress *progress, ssm_metrics *out,
                               ssm_error *err)
{
    *out = (ssm_metrics){0};
    int64_t defaults[3];
    run r = {.recording = recording, .info = ssm_recording_get_info(recording)};
    r.work.scope = scope;
    SSM__TRY(ssm__check_scope(r.info, scope, err));
    if (budgets == NULL && r.info->n_budgets > 0) { /* those that channels have errors of */
        budgets = r.info->budgets;
        n_budgets = r.info->n_budgets;
    } else if (budgets == NULL) {
        n_budgets = ssm_default_budgets(r.info->d_state, defaults);
        budgets = defaults;
    }
    if (n_budgets < 1) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "d_state is %lld: no budget is both ≥ 1 and below it",
                         (long long)r.info->d_state);
    }
    SSM__TRY(ssm__check_budgets(budgets, n_budgets, r.info->d_state, err));
    ssm_status status = compute(&r, budgets, n_budgets, progress, out, err);
    free(r.work.window_index);
    free(r.work.domains);
    free(r.work.budgets);
    free(r.tau);
    free(r.instability);
    free(r.order);
    free(r.values);
    ssm__arena_free(&r.arena);
    if (status != SSM_STATUS_OK) {
        ssm_metrics_free(out);
    }
    return status;
}
