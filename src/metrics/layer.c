/* One layer, window by window: never more than one window's energies and one channel's Gram at
 * once. */
#include "metrics/layer.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "recording/energies.h"
#include "recording/schema.h"

void ssm__layer_layout(ssm__layer_work *work, ssm__arena *arena)
{
    int64_t modes = work->channels * work->n;
    int64_t set = work->channels * work->words;
    work->mean = SSM__TAKE(arena, double, modes);
    work->energy = SSM__TAKE(arena, double, modes);
    work->total = SSM__TAKE(arena, double, modes);
    work->delta = SSM__TAKE(arena, double, work->rows);
    if (!work->finer) {
        work->block_energy = SSM__TAKE(arena, double, modes * work->blocks);
        work->half_energy = SSM__TAKE(arena, double, 2 * modes);
        work->block_order = SSM__TAKE(arena, int32_t, work->blocks * modes);
        work->block_sets = SSM__TAKE(arena, uint64_t, work->blocks * set);
    }
    work->static_order = SSM__TAKE(arena, int32_t, modes);
    work->order = SSM__TAKE(arena, int32_t, modes);
    work->recorded_values = SSM__TAKE(arena, double, work->n_budgets);
    work->errors = SSM__TAKE(arena, double, 4 * (work->n + 1));
    work->gram = SSM__TAKE(arena, float, ssm__gram_entries(work->n));
    work->silent = SSM__TAKE(arena, int64_t, work->blocks);
    work->cosine_sums = SSM__TAKE(arena, double, work->lags);
    work->cosine_pairs = SSM__TAKE(arena, int64_t, work->lags);
    work->within = SSM__TAKE(arena, int64_t, work->n + 1);
    work->cross = SSM__TAKE(arena, int64_t, work->n + 1);
    const int64_t sorted = work->channels > work->timed ? work->channels : work->timed;
    work->sorted = SSM__TAKE(arena, double, sorted);
    work->time_order = SSM__TAKE(arena, int64_t, work->timed);
    for (int64_t b = 0; b < work->n_budgets; b++) {
        ssm__budget_sums *sums = &work->budgets[b];
        sums->static_sets = SSM__TAKE(arena, uint64_t, set);
        sums->window_sets = SSM__TAKE(arena, uint64_t, work->windows * set);
        sums->members = SSM__TAKE(arena, int32_t, modes);
        sums->null_counts = SSM__TAKE(arena, int64_t, work->n + 1);
        sums->lag_counts = SSM__TAKE(arena, int64_t, work->lags * (work->n + 1));
    }
}

/* ---- what a damaged or hand-made recording may claim ----------------------------------------- */

static ssm_status wrong_sign(const ssm_tensor *tensor, int64_t at, const char *expected,
                             ssm_error *err)
{
    ssm__place place = {tensor->file, tensor->name,
                        tensor->file_offset + at * (int64_t)sizeof(float)};
    return ssm__fail(err, SSM_STATUS_FILE, place, "element %lld is %g: expected %s", (long long)at,
                     ssm_tensor_get(tensor, at), expected);
}

static ssm_status check_negative(const ssm_tensor *A, ssm_error *err)
{
    for (int64_t i = 0; i < ssm_tensor_count(A); i++) {
        if (ssm_tensor_get(A, i) > 0.0) {
            return wrong_sign(A, i, "0 or less, because A is -exp(A_log)", err);
        }
    }
    return SSM_STATUS_OK;
}

/* The diagonal holds energies. */
static ssm_status check_diagonal(const ssm_tensor *gram, int64_t n, ssm_error *err)
{
    const int64_t entries = ssm__gram_entries(n);
    for (int64_t h = 0; h < gram->dims[0]; h++) {
        int64_t at = h * entries;
        for (int64_t i = 0; i <= n; i++) {
            if (ssm_tensor_get(gram, at) < 0.0) {
                return wrong_sign(gram, at, "0 or more on the diagonal of a Gram matrix", err);
            }
            at += n + 1 - i;
        }
    }
    return SSM_STATUS_OK;
}

static void clear_sums(ssm__layer_work *work)
{
    size_t modes = (size_t)(work->channels * work->n);
    memset(work->total, 0, modes * sizeof *work->total);
    memset(work->delta, 0, (size_t)work->rows * sizeof *work->delta);
    memset(work->cosine_sums, 0, (size_t)work->lags * sizeof *work->cosine_sums);
    memset(work->cosine_pairs, 0, (size_t)work->lags * sizeof *work->cosine_pairs);
    work->output = 0.0;
    work->energy_sum = 0.0;
    for (int64_t b = 0; b < work->n_budgets; b++) {
        ssm__budget_sums *sums = &work->budgets[b];
        sums->static_error = sums->diag_error = 0.0;
        sums->static_energy = sums->diag_energy = sums->entering = 0.0;
        sums->churned = sums->cases = 0;
        sums->null_distance = 0.0;
        sums->null_windows = 0;
        memset(sums->members, 0, modes * sizeof *sums->members);
        memset(sums->null_counts, 0, (size_t)(work->n + 1) * sizeof *sums->null_counts);
        memset(sums->lag_counts, 0,
               (size_t)(work->lags * (work->n + 1)) * sizeof *sums->lag_counts);
    }
}

/* ---- orders and sets ------------------------------------------------------------------------ */

/* rows × [N] energies → rows × [N] orders. */
static void rank_rows(const double *energy, int64_t rows, int64_t n, int32_t *order)
{
    for (int64_t i = 0; i < rows; i++) {
        ssm__rank_modes(energy + i * n, n, order + i * n);
    }
}

static void set_rows(const int32_t *order, int64_t rows, int64_t n, int64_t r, int64_t words,
                     uint64_t *sets)
{
    for (int64_t i = 0; i < rows; i++) {
        ssm__set_top(order + i * n, r, sets + i * words, words);
    }
}

static ssm_status make_static_sets(ssm__layer_work *work, int64_t layer, ssm_error *err)
{
    SSM__TRY(ssm__calibration_energies(work->recording, work->scope, layer, work->mean,
                                       work->energy, &work->n_calibration, err));
    rank_rows(work->mean, work->channels, work->n, work->static_order);
    for (int64_t b = 0; b < work->n_budgets; b++) {
        set_rows(work->static_order, work->channels, work->n, work->budgets[b].r, work->words,
                 work->budgets[b].static_sets);
    }
    return SSM_STATUS_OK;
}

/* Δ̄ over all windows, weighted by tokens. */
static ssm_status mean_delta(ssm__layer_work *work, int64_t layer, ssm_error *err)
{
    double tokens = 0.0;
    for (int64_t w = 0; w < ssm_recording_window_count(work->recording); w++) {
        const ssm_tensor *delta = NULL;
        SSM__TRY(ssm_recording_tensor(work->recording, w, layer, "delta_mean", &delta, err));
        SSM__TRY(ssm__check_finite(delta, true, err));
        double weight = (double)ssm_recording_get_window(work->recording, w)->tokens;
        for (int64_t h = 0; h < work->rows; h++) {
            work->delta[h] += weight * ssm_tensor_get(delta, h);
        }
        tokens += weight;
    }
    for (int64_t h = 0; h < work->rows; h++) {
        work->delta[h] /= tokens;
    }
    return SSM_STATUS_OK;
}

/* ---- one evaluation window ------------------------------------------------------------------ */

/* block_energy (energies of channels have no blocks), energy (their sum, block by block), total. */
static ssm_status read_energies(ssm__layer_work *work, int64_t window, int64_t layer,
                                int64_t *blocks, ssm_error *err)
{
    const ssm_tensor *tensor = NULL;
    int64_t modes = work->channels * work->n;
    SSM__TRY(ssm__window_energies(work->recording, work->scope, window, layer, work->energy, err));
    SSM__TRY(ssm_recording_tensor(work->recording, window, layer, "energy_blocks", &tensor, err));
    *blocks = tensor->dims[0];
    for (int64_t b = 0; b < *blocks && !work->finer; b++) {
        double *row = work->block_energy + b * modes;
        ssm_tensor block = *tensor;
        block.dims[0] = 1;
        block.data = (const char *)tensor->data + (size_t)(b * modes) * sizeof(float);
        memset(row, 0, (size_t)modes * sizeof *row);
        ssm__add_energies(&block, modes, row);
    }
    for (int64_t i = 0; i < modes; i++) {
        work->total[i] += work->energy[i];
        work->energy_sum += work->energy[i];
    }
    return SSM_STATUS_OK;
}

static ssm_status read_output(ssm__layer_work *work, int64_t window, int64_t layer, ssm_error *err)
{
    const ssm_tensor *output = NULL;
    SSM__TRY(ssm_recording_tensor(work->recording, window, layer, "output_energy", &output, err));
    SSM__TRY(ssm__check_finite(output, true, err));
    for (int64_t h = 0; h < work->rows; h++) {
        work->output += ssm_tensor_get(output, h);
    }
    return SSM_STATUS_OK;
}

/* The window's own sets, and how often each mode is in them. */
static void add_window_sets(ssm__layer_work *work, int64_t v)
{
    rank_rows(work->energy, work->channels, work->n, work->order);
    for (int64_t b = 0; b < work->n_budgets; b++) {
        ssm__budget_sums *sums = &work->budgets[b];
        set_rows(work->order, work->channels, work->n, sums->r, work->words,
                 sums->window_sets + v * work->channels * work->words);
        for (int64_t h = 0; h < work->channels; h++) {
            for (int64_t k = 0; k < sums->r; k++) {
                sums->members[h * work->n + work->order[h * work->n + k]]++;
            }
        }
    }
}

/* One channel's contribution to the sums of one budget. errors: [4][N+1], see add_gaps. */
static void add_channel(ssm__layer_work *work, ssm__budget_sums *sums, int64_t v, int64_t h)
{
    const double *errors = work->errors;
    int64_t row = work->n + 1;
    const uint64_t *fixed = sums->static_sets + h * work->words;
    const uint64_t *own = sums->window_sets + (v * work->channels + h) * work->words;
    const double *energy = work->energy + h * work->n;
    double entering = ssm__entering_energy(energy, own, fixed, work->words);
    double leaving = ssm__entering_energy(energy, fixed, own, work->words);
    double violation =
        ssm__identity_violation(errors[sums->r], errors[row + sums->r], entering, leaving);
    work->identity_violation = fmax(work->identity_violation, violation);
    sums->static_energy += errors[sums->r];
    sums->diag_energy += errors[row + sums->r];
    sums->static_error += errors[2 * row + sums->r];
    sums->diag_error += errors[3 * row + sums->r];
    sums->entering += entering;
    sums->churned += sums->r - ssm__set_common(own, fixed, work->words);
    sums->cases++;
}

/* The recorded Gram's diagonal against the recorded energies: both are Σ m² of the same m. */
static void compare_diagonal(ssm__layer_work *work, const double *energy)
{
    double sum = 0.0;
    double worst = 0.0;
    int64_t at = 0;
    for (int64_t i = 0; i < work->n; i++) {
        sum += energy[i];
        worst = fmax(worst, fabs((double)work->gram[at] - energy[i]));
        at += work->n + 1 - i;
    }
    if (sum > 0.0) {
        work->gram_deviation = fmax(work->gram_deviation, worst / sum);
    }
}

/* Errors of the static and the window's own nested sets: energies only, then the full Gram. */
static ssm_status add_gaps(ssm__layer_work *work, int64_t window, int64_t layer, int64_t v,
                           ssm_error *err)
{
    const ssm_tensor *gram = NULL;
    int64_t n = work->n;
    int64_t row = n + 1;
    if (!work->finer && ssm_recording_get_info(work->recording)->has_gram) {
        SSM__TRY(ssm_recording_tensor(work->recording, window, layer, "gram", &gram, err));
        SSM__TRY(ssm__check_finite(gram, false, err));
        SSM__TRY(check_diagonal(gram, n, err));
    }
    size_t bytes = (size_t)ssm__gram_entries(n) * sizeof *work->gram;
    for (int64_t h = 0; h < work->channels; h++) {
        const int32_t *fixed = work->static_order + h * n;
        const int32_t *own = work->order + h * n;
        const double *energy = work->energy + h * n;
        ssm__dropped_energies(energy, n, fixed, work->errors);
        ssm__dropped_energies(energy, n, own, work->errors + row);
        if (gram != NULL) {
            memcpy(work->gram, (const char *)gram->data + (size_t)h * bytes, bytes);
            ssm__dropped_errors(work->gram, n, fixed, work->errors + 2 * row);
            ssm__dropped_errors(work->gram, n, own, work->errors + 3 * row);
            compare_diagonal(work, energy);
        }
        for (int64_t b = 0; b < work->n_budgets; b++) {
            add_channel(work, &work->budgets[b], v, h);
        }
    }
    return SSM_STATUS_OK;
}

/* One recorded value of each budget, where the budget was recorded. */
static ssm_status read_budgets(ssm__layer_work *work, int64_t window, int64_t layer,
                               const char *field, double *out, ssm_error *err)
{
    const ssm_tensor *tensor = NULL;
    SSM__TRY(ssm_recording_tensor(work->recording, window, layer, field, &tensor, err));
    for (int64_t b = 0; b < work->n_budgets; b++) {
        const int64_t at = work->budgets[b].recorded;
        out[b] = at < 0 ? (double)NAN : ssm_tensor_get(tensor, at);
        if (at >= 0 && !(isfinite(out[b]) && out[b] >= 0.0)) {
            ssm__place place = {tensor->file, tensor->name,
                                tensor->file_offset + at * (int64_t)sizeof(double)};
            return ssm__fail(err, SSM_STATUS_FILE, place,
                             "element %lld is %g: expected a finite number of 0 or more",
                             (long long)at, out[b]);
        }
    }
    return SSM_STATUS_OK;
}

/* Errors and null of the channels of Mamba-2, which were measured while recording. */
static ssm_status add_recorded(ssm__layer_work *work, int64_t window, int64_t layer, int64_t blocks,
                               ssm_error *err)
{
    double *values = work->recorded_values;
    if (!ssm_recording_get_info(work->recording)->has_gram) {
        return SSM_STATUS_OK;
    }
    SSM__TRY(read_budgets(work, window, layer, "channel_error_diag", values, err));
    for (int64_t b = 0; b < work->n_budgets; b++) {
        work->budgets[b].diag_error += values[b];
    }
    if (work->n_calibration > 0) {
        SSM__TRY(read_budgets(work, window, layer, "channel_error_static", values, err));
        for (int64_t b = 0; b < work->n_budgets; b++) {
            work->budgets[b].static_error += values[b];
        }
    }
    SSM__TRY(read_budgets(work, window, layer, "channel_churn_null", values, err));
    for (int64_t b = 0; b < work->n_budgets && blocks >= 2; b++) {
        work->budgets[b].null_distance += values[b];
        work->budgets[b].null_windows++;
    }
    return SSM_STATUS_OK;
}

/* The null: first ⌊B/2⌋ blocks against the rest. */
static void add_null(ssm__layer_work *work, int64_t blocks)
{
    int64_t modes = work->channels * work->n;
    int64_t set = work->channels * work->words;
    memset(work->half_energy, 0, (size_t)(2 * modes) * sizeof *work->half_energy);
    for (int64_t b = 0; b < blocks; b++) {
        double *half = work->half_energy + (b < blocks / 2 ? 0 : modes);
        for (int64_t i = 0; i < modes; i++) {
            half[i] += work->block_energy[b * modes + i];
        }
    }
    /* block_order has room for two halves: there are at least two blocks */
    rank_rows(work->half_energy, 2 * work->channels, work->n, work->block_order);
    for (int64_t b = 0; b < work->n_budgets; b++) {
        ssm__budget_sums *sums = &work->budgets[b];
        set_rows(work->block_order, 2 * work->channels, work->n, sums->r, work->words,
                 work->block_sets);
        ssm__count_common(work->block_sets, work->block_sets + set, work->channels, work->words,
                          sums->null_counts);
    }
}

/* Scales block_energy: the last thing done with a window. */
static void add_decorrelation(ssm__layer_work *work, int64_t full_blocks)
{
    int64_t lags = full_blocks - 1 < work->lags ? full_blocks - 1 : work->lags;
    rank_rows(work->block_energy, full_blocks * work->channels, work->n, work->block_order);
    for (int64_t b = 0; b < work->n_budgets; b++) {
        ssm__budget_sums *sums = &work->budgets[b];
        set_rows(work->block_order, full_blocks * work->channels, work->n, sums->r, work->words,
                 work->block_sets);
        ssm__lag_common(work->block_sets, full_blocks, work->channels, work->words, work->n, lags,
                        sums->lag_counts);
    }
    ssm__normalise_blocks(work->block_energy, full_blocks, work->channels, work->n, work->silent);
    ssm__lag_cosines(work->block_energy, work->silent, full_blocks, work->channels, work->n, lags,
                     work->cosine_sums, work->cosine_pairs);
}

static ssm_status add_window(ssm__layer_work *work, int64_t v, int64_t layer, ssm_error *err)
{
    int64_t window = work->window_index[v];
    int64_t blocks = 0;
    SSM__TRY(read_energies(work, window, layer, &blocks, err));
    SSM__TRY(read_output(work, window, layer, err));
    add_window_sets(work, v);
    SSM__TRY(add_gaps(work, window, layer, v, err));
    if (work->finer) {
        return add_recorded(work, window, layer, blocks, err);
    }
    if (blocks >= 2) {
        add_null(work, blocks);
    }
    int64_t full_blocks =
        ssm_recording_get_window(work->recording, window)->tokens / SSM__BLOCK_TOKENS;
    if (full_blocks >= 2) {
        add_decorrelation(work, full_blocks);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__layer_measure(ssm__layer_work *work, int64_t layer, double *tau, float *instability,
                              int64_t stride, ssm_layer_metrics *out, ssm_error *err)
{
    const ssm_tensor *A = NULL;
    clear_sums(work);
    SSM__TRY(ssm_recording_A(work->recording, layer, &A, err));
    SSM__TRY(ssm__check_finite(A, false, err));
    SSM__TRY(check_negative(A, err));
    SSM__TRY(make_static_sets(work, layer, err));
    SSM__TRY(mean_delta(work, layer, err));
    for (int64_t v = 0; v < work->windows; v++) {
        SSM__TRY(add_window(work, v, layer, err));
    }
    for (int64_t i = 0; i < work->timed; i++) { /* Mamba-2: one A a head */
        tau[i] =
            ssm__time_constant(ssm_tensor_get(A, i), work->delta[i * work->rows / work->timed]);
    }
    out->layer = layer;
    return ssm__layer_fill(work, tau, instability, stride, out, err);
}
