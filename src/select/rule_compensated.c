/* compensated [ours]: the sets of another rule, its parameter (static when none), and in every row
 * (channel; Mamba-2: head) weights with which what is kept best stands in for what is dropped:
 *   ŷ = Σ_{i∈S} (1 + w_i) m_i + (1 + v) f
 * with K = S ∪ {f} and the calibration Gram Ḡ of (m, f), by least squares,
 *   (w, v) = argmin Σ_t (Σ_{j∉S} m_j − Σ_{k∈K} w_k m_k)² + λ Σ_{k∈K} Ḡ_kk w_k²
 *          = (Ḡ_KK + λ diag Ḡ_KK)⁻¹ Ḡ_KD 1,
 * by Cholesky in float64. The ridge λ is relative to each summand's own energy, so that no weight
 * depends on the units of a mode; it also keeps modes that are nearly multiples of each other from
 * large weights of opposite signs. The calibration error is the quadratic form of Ḡ with
 * coefficients 1 (dropped) and −w (kept): for λ → 0 the Schur complement 1ᵀ(Ḡ_DD − Ḡ_DK Ḡ_KK⁻¹
 * Ḡ_KD)1. It is never above that of the sets alone: where rounding to float32 would make it so, the
 * weights are 1. A summand without energy has weight 1. */
#include "select/rule.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "recording/schema.h"
#include "select/calibration.h"

static double entry(const double *gram, int64_t i, int64_t j, int64_t n)
{
    return gram[i < j ? ssm__gram_index(i, j, n) : ssm__gram_index(j, i, n)];
}

void ssm__solve_positive(double *A, int64_t k, double *b)
{
    for (int64_t j = 0; j < k; j++) {
        double *row = A + j * k;
        const double whole = row[j];
        for (int64_t i = 0; i < j; i++) {
            double sum = row[i];
            for (int64_t l = 0; l < i; l++) {
                sum -= row[l] * A[i * k + l];
            }
            row[i] = A[i * k + i] > 0.0 ? sum / A[i * k + i] : 0.0;
            row[j] -= row[i] * row[i];
        }
        row[j] = row[j] > 1e-13 * whole ? sqrt(row[j]) : 0.0;
        for (int64_t i = 0; i < j; i++) {
            b[j] -= row[i] * b[i];
        }
        b[j] = row[j] > 0.0 ? b[j] / row[j] : 0.0;
    }
    for (int64_t j = k - 1; j >= 0; j--) {
        for (int64_t i = j + 1; i < k; i++) {
            b[j] -= A[i * k + j] * b[i];
        }
        b[j] = A[j * k + j] > 0.0 ? b[j] / A[j * k + j] : 0.0;
    }
}

/* The next member of K after `i`: kept modes, then f. */
static int64_t next_kept(const uint8_t *keep, int64_t n, int64_t i)
{
    do {
        i++;
    } while (i < n && !keep[i]);
    return i;
}

void ssm__compensate(const double *gram, int64_t d_state, const uint8_t *keep, double ridge,
                     double *matrix, double *vector, float *out)
{
    const int64_t n = d_state;
    int64_t k = 1;
    for (int64_t i = 0; i < n; i++) {
        k += keep[i] != 0;
    }
    int64_t row = 0;
    for (int64_t i = next_kept(keep, n, -1); i <= n; i = next_kept(keep, n, i), row++) {
        int64_t col = 0;
        for (int64_t j = next_kept(keep, n, -1); j <= i; j = next_kept(keep, n, j), col++) {
            matrix[row * k + col] = entry(gram, i, j, n) * (i == j ? 1.0 + ridge : 1.0);
        }
        vector[row] = 0.0;
        for (int64_t j = 0; j < n; j++) {
            vector[row] += keep[j] ? 0.0 : entry(gram, i, j, n);
        }
    }
    ssm__solve_positive(matrix, k, vector);
    row = 0;
    for (int64_t i = 0; i <= n; i++) {
        out[i] = i == n || keep[i] ? (float)(1.0 + vector[row++]) : 0.0F;
    }
    for (int64_t i = 0; i <= n; i++) { /* coefficients of the two errors */
        vector[i] = 1.0 - (double)out[i];
        matrix[i] = i == n || keep[i] ? 0.0 : 1.0;
    }
    if (!(ssm__gram_form(gram, n, vector) < ssm__gram_form(gram, n, matrix))) {
        for (int64_t i = 0; i <= n; i++) {
            out[i] = i == n || keep[i] ? 1.0F : 0.0F;
        }
    }
}

typedef struct scratch {
    double *gram, *matrix, *vector;
    float *weights;
} scratch;

static ssm_status compensate_layer(const ssm__selection *s, int64_t layer, const scratch *work,
                                   ssm_mask *mask, ssm_error *err)
{
    const int64_t N = s->d_state;
    SSM__TRY(ssm__calibration_gram(s->recording, layer, 1, work->gram, err));
    for (int64_t h = 0; h < s->rows; h++) {
        const int64_t row = layer * s->rows + h;
        ssm__compensate(work->gram + h * ssm__gram_entries(N), N, mask->keep + row * N, s->ridge,
                        work->matrix, work->vector, work->weights);
        for (int64_t n = 0; n < N; n++) {
            mask->weight[row * N + n] = work->weights[n];
        }
        mask->skip_weight[row] = work->weights[N];
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__add_compensation(const ssm__selection *s, ssm_mask *mask, ssm_error *err)
{
    if (s->rule == &ssm__rule_compensated_shared) {
        return ssm__add_shared_compensation(s, mask, err);
    }
    const size_t n = (size_t)s->d_state + 1;
    const size_t entries = (size_t)(s->rows * ssm__gram_entries(s->d_state));
    scratch work = {.gram = malloc(entries * sizeof(double)),
                    .matrix = malloc(n * n * sizeof(double)),
                    .vector = malloc(n * sizeof(double)),
                    .weights = malloc(n * sizeof(float))};
    ssm_status status = !work.gram || !work.matrix || !work.vector || !work.weights
                            ? ssm__fail_memory(err, "a layer's Grams", entries * sizeof(double))
                            : ssm_mask_add_weights(mask, err);
    for (int64_t i = 0; status == SSM_STATUS_OK && i < s->info->n_recorded; i++) {
        status = compensate_layer(s, s->info->layers[i], &work, mask, err);
    }
    free(work.gram);
    free(work.matrix);
    free(work.vector);
    free(work.weights);
    return status;
}

static const char *const bases[] = {"static",      "hankel", "hankel-adjoint",
                                    "activity",    "random", "optimal",
                                    "greedy-swap", "last",   NULL};

const ssm__rule ssm__rule_compensated = {
    .name = "compensated", .needs = SSM__NEEDS_CALIBRATION | SSM__NEEDS_GRAM, .parameters = bases};
