/* metrics/layer.h: one layer of a recording, read window by window, into its metrics. */
#ifndef SSM_METRICS_LAYER_H
#define SSM_METRICS_LAYER_H

#include "base/arena.h"
#include "metrics/measures.h"

/* What is summed over windows at one budget. */
typedef struct ssm__budget_sums {
    int64_t r;
    double static_error, diag_error;   /* Σ of (4), full Gram */
    double static_energy, diag_energy; /* Σ of the dropped energies */
    double entering;                   /* Σ e over S_w∖S */
    int64_t churned, cases;            /* Σ |S_w∖S|; channels × windows */
    uint64_t *static_sets;             /* [H][words] */
    uint64_t *window_sets;             /* [W][H][words], evaluation windows */
    int32_t *members;                  /* [H][N]: windows whose set holds the mode */
    int64_t *null_counts;              /* [N+1] */
    int64_t recorded;                  /* finer: place among the recorded budgets, −1: none */
    double null_distance;              /* finer: Σ over windows of the mean distance */
    int64_t null_windows;
    int64_t *lag_counts; /* [lags][N+1] */
} ssm__budget_sums;

/* Buffers of one layer at a time, and the shape that all layers share. One arena. */
typedef struct ssm__layer_work {
    ssm_recording *recording;
    ssm_scope scope;
    bool finer;       /* sets of Mamba-2's channels: no blocks, no Gram, errors as recorded */
    int64_t channels; /* sets: channels, or heads */
    int64_t rows;     /* of the recorded tensors: channels, or heads */
    int64_t timed;    /* units that have a time constant of their own: modes, or heads */
    int64_t n, words, blocks, lags;
    int64_t windows;       /* evaluation windows */
    int64_t *window_index; /* [windows] → index in the recording */
    int64_t *domains;      /* [windows] */
    int64_t n_calibration, n_budgets;
    ssm__budget_sums *budgets;
    double *mean, *energy, *total; /* [H][N] */
    double *delta;                 /* [rows] */
    double *block_energy;          /* [B][H][N] */
    double *half_energy;           /* [2][H][N] */
    int32_t *static_order, *order; /* [H][N] */
    int32_t *block_order;          /* [B][H][N] */
    uint64_t *block_sets;          /* [max(B, 2)][H][words] */
    double *errors;                /* [4][N+1] */
    double *recorded_values;       /* [budgets] */
    float *gram;                   /* [(N+1)(N+2)/2] */
    int64_t *silent;               /* [B] */
    double *cosine_sums;           /* [lags] */
    int64_t *cosine_pairs;         /* [lags] */
    int64_t *within, *cross;       /* [N+1] */
    double *sorted;                /* [max(H, timed)] */
    int64_t *time_order;           /* [timed] */
    double output, energy_sum;     /* Σ Y, Σ e over channels and windows */
    double identity_violation, gram_deviation;
} ssm__layer_work;

/* Takes all buffers from the arena (counting while it has no memory); shape fields are set before.
 */
void ssm__layer_layout(ssm__layer_work *work, ssm__arena *arena);
/* Reads the layer and fills out (budgets allocated). tau[timed] and, per budget b,
 * instability[b·stride … + timed] go to the metrics over all layers. Errors: FILE, MEMORY. */
ssm_status ssm__layer_measure(ssm__layer_work *work, int64_t layer, double *tau, float *instability,
                              int64_t stride, ssm_layer_metrics *out, ssm_error *err);
/* The second half: from the sums to the numbers (layer_fill.c). */
ssm_status ssm__layer_fill(ssm__layer_work *work, double *tau, float *instability, int64_t stride,
                           ssm_layer_metrics *out, ssm_error *err);

#endif
