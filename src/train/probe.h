/* train/probe.h: does a trained network use other modes of its states in other regimes of its
 * input?
 *
 * A mode is a pair (channel e, state n) of a layer; it contributes m_t = C_t[n] x_t[e, n] to the
 * channel's output, and its energy in a window is Σ m². A linear probe reads the regime from the
 * log energies of windows; churn is the mean Jaccard distance between the top-r sets of the
 * channels in two windows (docs/metrics.md).
 */
#ifndef SSM_TRAIN_PROBE_H
#define SSM_TRAIN_PROBE_H

#include <jansson.h>

#include "train/network.h"

typedef struct ssm__probe_settings {
    int64_t rows;   /* evaluation examples that windows are cut from */
    int64_t window; /* positions of one */
    int64_t budget; /* modes of a set, r */
} ssm__probe_settings;

/* Windows of one layer: energies [n][E·N] and the regime of each, 0 … regimes − 1, and the row that
 * it was cut from. */
typedef struct ssm__windows_of_layer {
    int64_t n, channels, states, regimes;
    const double *energies;
    const int32_t *regime;
    const int64_t *row;
} ssm__windows_of_layer;

typedef struct ssm__probe_result {
    double accuracy, accuracy_shuffled; /* of windows of the second half of the rows */
    double churn_within, churn_cross;
    double margin, margin_shuffled; /* cross − within */
} ssm__probe_result;

/* Contributions' energies of a Mamba-1 layer over one sequence, in float64: normed [L][D] is the
 * layer's input behind its norm; out [windows][E·N], windows = ⌊L/window⌋. Errors: USAGE (not a
 * layer of Mamba-1), MEMORY. */
ssm_status ssm__mode_energies(const ssm__network *network, int64_t layer, const float *normed,
                              int64_t length, int64_t window, double *out, ssm_error *err);

/* Probe and churn. Labels are shuffled by numbers of their own, 20 times, and averaged. Errors:
 * USAGE (one regime only, too few windows), MEMORY. */
ssm_status ssm__probe_windows(const ssm__windows_of_layer *windows, int64_t budget,
                              ssm__probe_result *out, ssm_error *err);

/* All layers of a network on the task's evaluation examples of its first size: {"layer 0":
 * {"probe": accuracy, …}, …}. Errors: USAGE (a task without regimes; another mixer), MEMORY. */
ssm_status ssm__probe_network(const ssm__network *network, const ssm_train_task *task,
                              const ssm__probe_settings *settings, json_t **out, ssm_error *err);

#endif
