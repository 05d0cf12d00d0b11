/* ssmscope/metrics.h: a recording → numbers. Each metric is a pure function with its formula. */
#ifndef SSMSCOPE_METRICS_H
#define SSMSCOPE_METRICS_H

#include <ssmscope/recording.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SSM_DECILES = 10, SSM_MAX_LAGS = 64 };

/* One budget of one layer. */
typedef struct ssm_budget_metrics {
    int64_t budget; /* r, kept modes a channel */
    double rho, rho_diag;
    double error_static, error_diag; /* E(r) */
    double churn_within, churn_cross, churn_null;
    double set_churn, energy_weighted_churn;
    double instability_by_decile[SSM_DECILES]; /* decile 0: fastest modes; NaN where empty */
    int64_t n_lags;
    struct {
        int64_t lag; /* tokens */
        double jaccard, cosine;
    } decorrelation[SSM_MAX_LAGS];
} ssm_budget_metrics;

typedef struct ssm_layer_metrics {
    int64_t layer;
    double participation_median, participation_p10, participation_p90;
    double time_constant_median;
    double time_constant_deciles[SSM_DECILES - 1];
    ssm_budget_metrics *budgets; /* n_budgets */
} ssm_layer_metrics;

typedef struct ssm_across_layers {
    int64_t budget;
    double pearson_rho_diag_rho, spearman_energy_churn, spearman_set_churn;
    double min_rho;
    int64_t min_rho_layer; /* −1 when rho is NaN everywhere */
    int64_t *migrating_layers;
    double *migrating_depths; /* relative depth, layer / (n_layers − 1) */
    int64_t n_migrating;      /* 0 when rho is NaN everywhere */
    double band_median;       /* median rho over the migrating layers */
    bool contiguous;          /* all layers inside the hull migrate */
    double hull_share;        /* share of the hull's layers that migrate */
    int64_t static_tail; /* number of last layers with rho ≥ 0.95; −1 when rho is NaN everywhere */
    int64_t layers_cross_above_within;         /* −1: no layer has both */
    double instability_by_decile[SSM_DECILES]; /* pooled over the model */
} ssm_across_layers;

typedef struct ssm_metrics {
    ssm_scope scope; /* CHANNEL or HEAD */
    int64_t n_layers, n_budgets;
    ssm_layer_metrics *layers;
    ssm_across_layers *across;              /* n_budgets */
    double diagonal_identity_max_violation; /* relative; NaN without calibration windows */
    double gram_diagonal_max_deviation;     /* |G_ii − e_i| / Σ e, NaN without Gram */
} ssm_metrics;

/* Formulas: docs/metrics.md. scope: what a set belongs to; of the channels of Mamba-2 rho and
 * error_* are known at the recorded budgets only (the default for Mamba-2), and there is no
 * decorrelation. Static sets come from the calibration windows, everything else from
 * the evaluation windows; the mean Δ of the time constants is over all windows. budgets NULL:
 * ssm_default_budgets. What a recording does not support is NaN, never 0: cross churn with one
 * domain; rho, error_* and set churns without calibration windows; rho, error_* (not rho_diag)
 * without Gram. A recording of some layers gives those layers; depths stay relative to the whole
 * model. Owner of *out: the caller, ssm_metrics_free. Errors: USAGE (scope head of a
 * model without heads; a budget outside 1…N−1 or
 * given twice; no evaluation windows), FILE (damaged shard, a value that is not finite), MEMORY,
 * INTERRUPTED. */
SSM_API ssm_status ssm_metrics_compute(ssm_recording *recording, ssm_scope scope,
                                       const int64_t *budgets, int64_t n_budgets,
                                       const ssm_progress *progress, ssm_metrics *out,
                                       ssm_error *err);
SSM_API void ssm_metrics_free(ssm_metrics *metrics);

#ifdef __cplusplus
}
#endif
#endif
