/* From a layer's sums to its metrics. */
#include "metrics/layer.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/quantile.h"
#include "recording/schema.h"

static void fill_gap(const ssm__layer_work *work, const ssm__budget_sums *sums,
                     ssm_budget_metrics *out)
{
    bool has_gram =
        ssm_recording_get_info(work->recording)->has_gram && (!work->finer || sums->recorded >= 0);
    double missing = (double)NAN;
    out->rho = out->rho_diag = missing;
    out->error_static = out->error_diag = missing;
    out->set_churn = out->energy_weighted_churn = missing;
    if (has_gram) { /* the window's own sets need no calibration */
        out->error_diag = ssm__relative_error(sums->diag_error, work->output);
    }
    if (work->n_calibration == 0) {
        return;
    }
    if (has_gram) {
        out->error_static = ssm__relative_error(sums->static_error, work->output);
        out->rho = ssm__migration_gap(sums->diag_error, sums->static_error);
    }
    out->rho_diag = ssm__migration_gap(sums->diag_energy, sums->static_energy);
    out->set_churn = (double)sums->churned / (double)(sums->cases * sums->r);
    if (work->energy_sum > 0.0) {
        out->energy_weighted_churn = sums->entering / work->energy_sum;
    }
}

static void fill_decorrelation(const ssm__layer_work *work, const ssm__budget_sums *sums,
                               ssm_budget_metrics *out)
{
    out->n_lags = work->lags;
    for (int64_t k = 0; k < work->lags; k++) {
        int64_t pairs = work->cosine_pairs[k];
        out->decorrelation[k].lag = (k + 1) * SSM__BLOCK_TOKENS;
        out->decorrelation[k].jaccard =
            ssm__mean_distance(sums->lag_counts + k * (work->n + 1), sums->r);
        out->decorrelation[k].cosine =
            pairs > 0 ? work->cosine_sums[k] / (double)pairs : (double)NAN;
    }
}

static void fill_participation(ssm__layer_work *work, ssm_layer_metrics *out)
{
    int64_t count = 0;
    for (int64_t h = 0; h < work->channels; h++) {
        double ratio = ssm__participation_ratio(work->total + h * work->n, work->n);
        if (!isnan(ratio)) {
            work->sorted[count++] = ratio;
        }
    }
    ssm__sort(work->sorted, count);
    out->participation_median = ssm__quantile(work->sorted, count, 0.5);
    out->participation_p10 = ssm__quantile(work->sorted, count, 0.1);
    out->participation_p90 = ssm__quantile(work->sorted, count, 0.9);
}

/* time_order must be there: sorted values need no second sort. */
static void fill_time_constants(ssm__layer_work *work, const double *tau, ssm_layer_metrics *out)
{
    for (int64_t i = 0; i < work->timed; i++) {
        work->sorted[i] = tau[work->time_order[i]];
    }
    out->time_constant_median = ssm__quantile(work->sorted, work->timed, 0.5);
    for (int k = 1; k < SSM_DECILES; k++) {
        out->time_constant_deciles[k - 1] = ssm__quantile(work->sorted, work->timed, k / 10.0);
    }
}

/* 4p(1−p) of every unit that has a time constant: a mode, or the mean over a head's modes. */
static void fill_instability(const ssm__layer_work *work, const ssm__budget_sums *sums,
                             float *value)
{
    const int64_t modes = work->channels * work->n / work->timed;
    for (int64_t i = 0; i < work->timed; i++) {
        double sum = 0.0;
        for (int64_t k = i * modes; k < (i + 1) * modes; k++) {
            sum += ssm__instability(sums->members[k], work->windows);
        }
        value[i] = (float)(sum / (double)modes);
    }
}

static double null_distance(const ssm__layer_work *work, const ssm__budget_sums *sums)
{
    if (work->finer) { /* every window has as many channels */
        return sums->null_windows > 0 ? sums->null_distance / (double)sums->null_windows
                                      : (double)NAN;
    }
    return ssm__mean_distance(sums->null_counts, sums->r);
}

ssm_status ssm__layer_fill(ssm__layer_work *work, double *tau, float *instability, int64_t stride,
                           ssm_layer_metrics *out, ssm_error *err)
{
    fill_participation(work, out);
    SSM__TRY(ssm__order_by_time(tau, work->timed, work->time_order, err));
    fill_time_constants(work, tau, out);
    for (int64_t b = 0; b < work->n_budgets; b++) {
        const ssm__budget_sums *sums = &work->budgets[b];
        ssm_budget_metrics *budget = &out->budgets[b];
        float *value = instability + b * stride;
        budget->budget = sums->r;
        fill_gap(work, sums, budget);
        ssm__pairwise_churn(sums->window_sets, work->domains, work->windows, work->channels,
                            work->words, sums->r, work->within, work->cross, &budget->churn_within,
                            &budget->churn_cross);
        budget->churn_null = null_distance(work, sums);
        fill_instability(work, sums, value);
        ssm__decile_means(value, work->time_order, work->timed, budget->instability_by_decile);
        fill_decorrelation(work, sums, budget);
    }
    return SSM_STATUS_OK;
}
