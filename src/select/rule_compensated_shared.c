/* compensated-shared [ours]: the sets of another rule, its parameter (static when none), with the
 * best weights that a smaller checkpoint has places for (docs/prune.md):
 *   ŷ_h = Σ_{i∈S} (1 + w_i) m_{h,i} + (1 + v_h) f_h        Mamba-1: w for all channels h of a set
 * and w = 0 where C passes another operation before it is used (Mamba-2: SiLU, Falcon-Mamba: a
 * norm). By least squares on the calibration Grams Ḡ_h of (m, f), with the ridge of compensated:
 *   v_h(w) = (Ḡ_h,fD 1 − Ḡ_h,fS w) / φ_h,   φ_h = (1 + λ) Ḡ_h,ff,
 * which leaves for w the system of the sums of all channels' Schur complements
 *   Σ_h (Ḡ_h,SS + λ diag Ḡ_h,SS − Ḡ_h,Sf Ḡ_h,fS / φ_h) w = Σ_h (Ḡ_h,SD 1 − Ḡ_h,Sf Ḡ_h,fD 1 / φ_h).
 * The error summed over a set's channels is never above that of the set alone: where rounding to
 * float32 would make it so, the weights are 1. Single channels may lose. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "recording/schema.h"
#include "select/calibration.h"
#include "select/rule.h"

/* The rows of one set. */
typedef struct shared {
    int64_t n, rows;
    bool modes;          /* have weights */
    const double *gram;  /* [rows] upper triangles */
    const uint8_t *keep; /* [n], of every row */
    double ridge;
    double *matrix, *vector, *coefficients; /* scratch: [n·n], [n], [n + 1] */
} shared;

static double entry(const shared *s, int64_t row, int64_t i, int64_t j)
{
    const int64_t at = i < j ? ssm__gram_index(i, j, s->n) : ssm__gram_index(j, i, s->n);
    return s->gram[row * ssm__gram_entries(s->n) + at];
}

/* Ḡ_iD 1 of a row. */
static double with_dropped(const shared *s, int64_t row, int64_t i)
{
    double sum = 0.0;
    for (int64_t j = 0; j < s->n; j++) {
        sum += s->keep[j] ? 0.0 : entry(s, row, i, j);
    }
    return sum;
}

/* Adds a row's Schur complement; k kept modes in all. */
static void add_row(const shared *s, int64_t row, int64_t k)
{
    const double phi = (1.0 + s->ridge) * entry(s, row, s->n, s->n);
    const double skip_dropped = with_dropped(s, row, s->n);
    int64_t a = 0;
    for (int64_t i = 0; i < s->n; i++) {
        if (!s->keep[i]) {
            continue;
        }
        const double share = phi > 0.0 ? entry(s, row, i, s->n) / phi : 0.0;
        int64_t b = 0;
        for (int64_t j = 0; j <= i; j++) {
            if (s->keep[j]) {
                s->matrix[a * k + b++] += entry(s, row, i, j) * (i == j ? 1.0 + s->ridge : 1.0) -
                                          share * entry(s, row, j, s->n);
            }
        }
        s->vector[a++] += with_dropped(s, row, i) - share * skip_dropped;
    }
}

/* weight [n] of the modes for all rows of the set. */
static void weigh_modes(const shared *s, float *weight)
{
    int64_t k = 0;
    for (int64_t i = 0; i < s->n; i++) {
        k += s->keep[i] != 0;
    }
    for (int64_t i = 0; i < k * k; i++) {
        s->matrix[i] = 0.0;
    }
    for (int64_t i = 0; i < k; i++) {
        s->vector[i] = 0.0;
    }
    for (int64_t row = 0; s->modes && row < s->rows; row++) {
        add_row(s, row, k);
    }
    ssm__solve_positive(s->matrix, k, s->vector);
    k = 0;
    for (int64_t i = 0; i < s->n; i++) {
        weight[i] = s->keep[i] ? (float)(1.0 + s->vector[k++]) : 0.0F;
    }
}

/* The best weight of a row's feed-through beside the modes' (as they were rounded). */
static float weigh_skip(const shared *s, int64_t row, const float *weight)
{
    const double phi = (1.0 + s->ridge) * entry(s, row, s->n, s->n);
    double sum = with_dropped(s, row, s->n);
    for (int64_t i = 0; i < s->n; i++) {
        sum -= s->keep[i] ? ((double)weight[i] - 1.0) * entry(s, row, i, s->n) : 0.0;
    }
    return phi > 0.0 ? (float)(1.0 + sum / phi) : 1.0F;
}

/* Squared error of a row: weight [n] of modes, 0 where dropped, and skip. */
static double error_of(const shared *s, int64_t row, const float *weight, float skip)
{
    for (int64_t i = 0; i < s->n; i++) {
        s->coefficients[i] = 1.0 - (double)weight[i];
    }
    s->coefficients[s->n] = 1.0 - (double)skip;
    return ssm__gram_form(s->gram + row * ssm__gram_entries(s->n), s->n, s->coefficients);
}

/* Weights of the rows of a set: weight [rows][n], skip [rows], both without compensation yet. */
static void weigh_set(const shared *s, float *shared_weight, float *weight, float *skip)
{
    double error = 0.0;
    double plain = 0.0;
    weigh_modes(s, shared_weight);
    for (int64_t row = 0; row < s->rows; row++) {
        plain += error_of(s, row, weight + row * s->n, 1.0F);
        error += error_of(s, row, shared_weight, weigh_skip(s, row, shared_weight));
    }
    for (int64_t row = 0; row < s->rows && error < plain; row++) {
        skip[row] = weigh_skip(s, row, shared_weight);
        for (int64_t i = 0; i < s->n; i++) {
            weight[row * s->n + i] = shared_weight[i];
        }
    }
}

static ssm_status weigh_layer(const ssm__selection *s, int64_t layer, shared *set, double *gram,
                              float *scratch, ssm_mask *mask, ssm_error *err)
{
    SSM__TRY(ssm__calibration_gram(s->recording, layer, 1, gram, err));
    for (int64_t first = 0; first < s->rows; first += s->rows_per_set) {
        const int64_t row = layer * s->rows + first;
        set->gram = gram + first * ssm__gram_entries(s->d_state);
        set->keep = mask->keep + row * s->d_state;
        weigh_set(set, scratch, mask->weight + row * s->d_state, mask->skip_weight + row);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__add_shared_compensation(const ssm__selection *s, ssm_mask *mask, ssm_error *err)
{
    const size_t n = (size_t)s->d_state + 1;
    const size_t entries = (size_t)(s->rows * ssm__gram_entries(s->d_state));
    double *gram = malloc(entries * sizeof *gram);
    float *scratch = malloc(n * sizeof *scratch);
    shared set = {.n = s->d_state,
                  .rows = s->rows_per_set,
                  .modes = s->info->family == SSM_FAMILY_MAMBA,
                  .ridge = s->ridge,
                  .matrix = malloc(n * n * sizeof(double)),
                  .vector = malloc(n * sizeof(double)),
                  .coefficients = malloc(n * sizeof(double))};
    ssm_status status = !gram || !scratch || !set.matrix || !set.vector || !set.coefficients
                            ? ssm__fail_memory(err, "a layer's Grams", entries * sizeof *gram)
                            : ssm_mask_add_weights(mask, err);
    for (int64_t i = 0; status == SSM_STATUS_OK && i < s->info->n_recorded; i++) {
        status = weigh_layer(s, s->info->layers[i], &set, gram, scratch, mask, err);
    }
    free(gram);
    free(scratch);
    free(set.matrix);
    free(set.vector);
    free(set.coefficients);
    return status;
}

static const char *const bases[] = {"static", "hankel",  "hankel-adjoint", "activity",
                                    "random", "optimal", "greedy-swap",    NULL};

const ssm__rule ssm__rule_compensated_shared = {.name = "compensated-shared",
                                                .needs = SSM__NEEDS_CALIBRATION | SSM__NEEDS_GRAM |
                                                         SSM__SHARED_SETS,
                                                .parameters = bases};
