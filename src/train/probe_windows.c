/* train/probe_windows.c: a linear probe and churn over windows. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/probe.h"

enum { SHUFFLES = 20, MOST_STATES = 64, MOST_WINDOWS = 4000 };

static const double ridge = 0.01; /* of the mean squared length of a row of features */

typedef struct probe {
    const ssm__windows_of_layer *w;
    int64_t n_train;   /* windows of the first half of the rows */
    double *features;  /* [n][channels·states] standardised log energies */
    double *products;  /* [n][n_train] of rows of features with those of training, divided by their
                          number */
    double *factor;    /* [n_train][n_train] Cholesky */
    double *weights;   /* [n_train] */
    double *distances; /* [n][n] mean Jaccard distance */
    uint64_t *sets;    /* [n][channels] */
    int32_t *labels;   /* [n] */
} probe;

/* ---- features -------------------------------------------------------------------------------- */

/* Mean 0 and variance 1 over the training windows; a mode that never changes is 0. */
static void standardise(const probe *p)
{
    const int64_t width = p->w->channels * p->w->states;
    for (int64_t i = 0; i < p->w->n * width; i++) {
        p->features[i] = log(fmax(p->w->energies[i], 1e-30));
    }
    for (int64_t k = 0; k < width; k++) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < p->n_train; i++) {
            sum += p->features[i * width + k];
        }
        const double mean = sum / (double)p->n_train;
        for (int64_t i = 0; i < p->n_train; i++) {
            const double d = p->features[i * width + k] - mean;
            squares += d * d;
        }
        const double deviation = sqrt(squares / (double)p->n_train);
        for (int64_t i = 0; i < p->w->n; i++) {
            double *f = &p->features[i * width + k];
            *f = deviation > 1e-12 ? (*f - mean) / deviation : 0;
        }
    }
}

static void multiply(const probe *p)
{
    const int64_t width = p->w->channels * p->w->states;
    for (int64_t i = 0; i < p->w->n; i++) {
        for (int64_t k = 0; k < p->n_train; k++) {
            double sum = 0;
            for (int64_t f = 0; f < width; f++) {
                sum += p->features[i * width + f] * p->features[k * width + f];
            }
            p->products[i * p->n_train + k] = sum / (double)width;
        }
    }
}

/* Products of training + ridge = factor · factorᵀ, lower. */
static void factorise(const probe *p)
{
    const int64_t n = p->n_train;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k <= i; k++) {
            double sum = p->products[i * n + k] + (i == k ? ridge : 0);
            for (int64_t j = 0; j < k; j++) {
                sum -= p->factor[i * n + j] * p->factor[k * n + j];
            }
            p->factor[i * n + k] = i == k ? sqrt(sum) : sum / p->factor[k * n + k];
        }
    }
}

/* ---- the probe ------------------------------------------------------------------------------- */

/* Ridge regression in its dual form: (K + λ) α = y, y = ±1 less its mean. */
static double solve(const probe *p, int32_t regime)
{
    const int64_t n = p->n_train;
    double mean = 0;
    for (int64_t i = 0; i < n; i++) {
        mean += (p->labels[i] == regime ? 1.0 : -1.0) / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        double sum = (p->labels[i] == regime ? 1.0 : -1.0) - mean;
        for (int64_t j = 0; j < i; j++) {
            sum -= p->factor[i * n + j] * p->weights[j];
        }
        p->weights[i] = sum / p->factor[i * n + i];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        double sum = p->weights[i];
        for (int64_t j = i + 1; j < n; j++) {
            sum -= p->factor[j * n + i] * p->weights[j];
        }
        p->weights[i] = sum / p->factor[i * n + i];
    }
    return mean;
}

/* Share of the test windows whose regime has the highest output. best, score [n]: scratch in
 * `distances`, which is filled later. */
static double accuracy(const probe *p)
{
    const int64_t n = p->n_train, tests = p->w->n - n;
    double *score = p->distances;
    int32_t *best = (int32_t *)(p->distances + p->w->n);
    for (int32_t r = 0; r < p->w->regimes; r++) {
        const double mean = solve(p, r);
        for (int64_t i = 0; i < tests; i++) {
            double sum = mean;
            for (int64_t k = 0; k < n; k++) {
                sum += p->products[(n + i) * n + k] * p->weights[k];
            }
            if (r == 0 || sum > score[i]) {
                score[i] = sum;
                best[i] = r;
            }
        }
    }
    int64_t right = 0;
    for (int64_t i = 0; i < tests; i++) {
        right += best[i] == p->w->regime[n + i];
    }
    return (double)right / (double)tests;
}

/* Fisher-Yates over the first `count` labels. */
static void shuffle(const probe *p, int64_t count, ssm_rng *rng)
{
    memcpy(p->labels, p->w->regime, (size_t)p->w->n * sizeof *p->labels);
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t k = (int64_t)ssm_rng_below(rng, (uint64_t)i + 1);
        const int32_t kept = p->labels[i];
        p->labels[i] = p->labels[k];
        p->labels[k] = kept;
    }
}

static void run_probe(const probe *p, ssm__probe_result *out)
{
    ssm_rng rng = ssm_rng_create(0, "experiment.probe");
    standardise(p);
    multiply(p);
    factorise(p);
    memcpy(p->labels, p->w->regime, (size_t)p->w->n * sizeof *p->labels);
    out->accuracy = accuracy(p);
    for (int i = 0; i < SHUFFLES; i++) {
        shuffle(p, p->n_train, &rng);
        out->accuracy_shuffled += accuracy(p) / SHUFFLES;
    }
}

/* ---- churn ----------------------------------------------------------------------------------- */

/* The r modes with the most energy, ties to the lower index. */
static uint64_t top_set(const double *energies, int64_t states, int64_t r)
{
    uint64_t set = 0;
    for (int64_t i = 0; i < states; i++) {
        int64_t above = 0;
        for (int64_t k = 0; k < states; k++) {
            above += energies[k] > energies[i] || (energies[k] == energies[i] && k < i);
        }
        set |= above < r ? UINT64_C(1) << i : 0;
    }
    return set;
}

static void measure_distances(const probe *p, int64_t budget)
{
    const int64_t n = p->w->n, channels = p->w->channels;
    for (int64_t i = 0; i < n * channels; i++) {
        p->sets[i] = top_set(p->w->energies + i * p->w->states, p->w->states, budget);
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < n; k++) {
            double sum = 0;
            for (int64_t e = 0; e < channels; e++) {
                const uint64_t a = p->sets[i * channels + e], b = p->sets[k * channels + e];
                sum += 1 - (double)__builtin_popcountll(a & b) / __builtin_popcountll(a | b);
            }
            p->distances[i * n + k] = sum / (double)channels;
        }
    }
}

/* Mean distance over pairs of windows of one regime, and of two; only pairs of different rows:
 * neighbours in time are alike anyway. */
static void mean_churn(const probe *p, double *within, double *cross)
{
    const int64_t n = p->w->n;
    double sums[2] = {0};
    int64_t counts[2] = {0};
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < i; k++) {
            if (p->w->row[i] == p->w->row[k]) {
                continue;
            }
            const int apart = p->labels[i] != p->labels[k];
            sums[apart] += p->distances[i * n + k];
            counts[apart]++;
        }
    }
    *within = sums[0] / (double)counts[0];
    *cross = sums[1] / (double)counts[1];
}

static void run_churn(const probe *p, int64_t budget, ssm__probe_result *out)
{
    ssm_rng rng = ssm_rng_create(0, "experiment.churn");
    measure_distances(p, budget);
    memcpy(p->labels, p->w->regime, (size_t)p->w->n * sizeof *p->labels);
    mean_churn(p, &out->churn_within, &out->churn_cross);
    out->margin = out->churn_cross - out->churn_within;
    for (int i = 0; i < SHUFFLES; i++) {
        double within, cross;
        shuffle(p, p->w->n, &rng);
        mean_churn(p, &within, &cross);
        out->margin_shuffled += (cross - within) / SHUFFLES;
    }
}

/* ---- both ------------------------------------------------------------------------------------ */

/* The first half of the rows is for training, and both halves need windows of two regimes. */
static ssm_status split(const ssm__windows_of_layer *w, int64_t *n_train, ssm_error *err)
{
    int64_t counts[2][2] = {{0}}, rows = 0;
    *n_train = 0;
    for (int64_t i = 0; i < w->n; i++) {
        rows += i == 0 || w->row[i] != w->row[i - 1];
        const int half = w->row[i] > (w->row[w->n - 1] - 1) / 2;
        counts[half][w->regime[i] == w->regime[0]]++;
        *n_train += half == 0;
    }
    if (counts[0][0] < 2 || counts[0][1] < 2 || counts[1][0] < 1 || counts[1][1] < 1 || rows < 3 ||
        w->n > MOST_WINDOWS) { /* of three rows two have a regime in common */
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "probe: %" PRId64 " windows inside one regime, of %" PRId64
                         " rows, not at least two of two regimes in both halves of three rows or "
                         "more (at most %d in all); change rows or window",
                         w->n, rows, MOST_WINDOWS);
    }
    return SSM_STATUS_OK;
}

static ssm_status take(const ssm__windows_of_layer *w, probe *p, ssm_error *err)
{
    const size_t n = (size_t)w->n, train = (size_t)p->n_train;
    p->features = calloc(n * (size_t)(w->channels * w->states), sizeof *p->features);
    p->products = calloc(n * train, sizeof *p->products);
    p->factor = calloc(train * train, sizeof *p->factor);
    p->weights = calloc(train, sizeof *p->weights);
    p->distances = calloc(n * n + 2 * n, sizeof *p->distances);
    p->sets = calloc(n * (size_t)w->channels, sizeof *p->sets);
    p->labels = calloc(n, sizeof *p->labels);
    return p->features == NULL || p->products == NULL || p->factor == NULL || p->weights == NULL ||
                   p->distances == NULL || p->sets == NULL || p->labels == NULL
               ? ssm__fail_memory(err, "a probe", n * n * sizeof *p->distances)
               : SSM_STATUS_OK;
}

ssm_status ssm__probe_windows(const ssm__windows_of_layer *w, int64_t budget,
                              ssm__probe_result *out, ssm_error *err)
{
    probe p = {.w = w};
    *out = (ssm__probe_result){0};
    if (w->states > MOST_STATES || budget < 1 || budget > w->states) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "probe: a budget of %" PRId64 " of %" PRId64
                         " states; expected 1 … d_state, and d_state of at most %d",
                         budget, w->states, MOST_STATES);
    }
    SSM__TRY(split(w, &p.n_train, err));
    const ssm_status status = take(w, &p, err);
    if (status == SSM_STATUS_OK) {
        run_probe(&p, out);
        run_churn(&p, budget, out);
    }
    free(p.features);
    free(p.products);
    free(p.factor);
    free(p.weights);
    free(p.distances);
    free(p.sets);
    free(p.labels);
    return status;
}
