/* metrics/measures.h: the metrics as pure functions on plain arrays, one file each with its formula
 * and its source on top. [paper] is the instrument paper, [ours] a definition it leaves open.
 *
 * H channels, N modes a channel (d_state), r kept modes, B blocks of 64 tokens. A set is `words`
 * 64-bit words, bit i = mode i is kept. An order is the modes by falling energy. */
#ifndef SSM_METRICS_MEASURES_H
#define SSM_METRICS_MEASURES_H

#include <ssmscope/metrics.h>

#include "recording/dropped.h"

/* ---- sets.c ---- */
int64_t ssm__set_words(int64_t n);
/* The first r modes of order. */
void ssm__set_top(const int32_t *order, int64_t r, uint64_t *set, int64_t words);
/* |a ∩ b|. */
int64_t ssm__set_common(const uint64_t *a, const uint64_t *b, int64_t words);
/* 1 − |S∩S'|/|S∪S'| of two sets of r modes of which `common` are shared. */
double ssm__jaccard_distance(int64_t common, int64_t r);

/* ---- gap.c ---- */
/* As ssm__dropped_errors with the diagonal only: error[r] = Σ of the dropped energies. */
void ssm__dropped_energies(const double *energy, int64_t n, const int32_t *order, double *error);
/* ρ = sqrt(diag / static) of two dropped sums; NaN unless static > 0. */
double ssm__migration_gap(double diag, double fixed);

/* ---- diagonal.c ---- */
/* Σ e_i over i in `in` and not in `out`. */
double ssm__entering_energy(const double *energy, const uint64_t *in, const uint64_t *out,
                            int64_t words);
/* How far the diagonal identity is from holding in one channel and window, relative to Ê²_static.
 */
double ssm__identity_violation(double fixed, double diag, double entering, double leaving);

/* ---- churn.c ---- */
/* counts[k] += channels whose two sets share k modes. a, b: [H][words]. */
void ssm__count_common(const uint64_t *a, const uint64_t *b, int64_t channels, int64_t words,
                       int64_t *counts);
/* Mean Jaccard distance of what was counted; NaN when nothing was. counts[0 … r]. */
double ssm__mean_distance(const int64_t *counts, int64_t r);
/* Mean over pairs of windows and over channels, pairs of one domain and of two. sets
 * [W][H][words], domains[W]; within_counts and cross_counts: r + 1 numbers of scratch each. */
void ssm__pairwise_churn(const uint64_t *sets, const int64_t *domains, int64_t windows,
                         int64_t channels, int64_t words, int64_t r, int64_t *within_counts,
                         int64_t *cross_counts, double *within, double *cross);

/* ---- decorrelation.c ---- */
/* counts[lag − 1][0 … N] += the common modes of blocks b and b + lag, lag = 1 … lags; rows of
 * counts have N + 1 numbers. sets[B][H][words]. */
void ssm__lag_common(const uint64_t *sets, int64_t blocks, int64_t channels, int64_t words,
                     int64_t n, int64_t lags, int64_t *counts);
/* Scales every channel's energies [B][H][N] to length 1; silent[b] = channels of block b without
 * any energy (they stay zero). */
void ssm__normalise_blocks(double *energy, int64_t blocks, int64_t channels, int64_t n,
                           int64_t *silent);
/* sums[lag − 1] += Σ over block pairs and channels of the cosine of their energies; pairs[lag − 1]
 * += how many there are: a channel that is silent in either block has none. */
void ssm__lag_cosines(const double *unit, const int64_t *silent, int64_t blocks, int64_t channels,
                      int64_t n, int64_t lags, double *sums, int64_t *pairs);

/* ---- participation.c ---- */
/* (Σe)²/Σe²; NaN when all energies are zero. */
double ssm__participation_ratio(const double *energy, int64_t n);

/* ---- time_constant.c ---- */
/* τ = 1/(|A| Δ̄) tokens; infinite for A or Δ̄ zero. */
double ssm__time_constant(double A, double delta_mean);
/* order[0 … n−1] = indices by rising τ, ties to the lower index. Errors: MEMORY. */
ssm_status ssm__order_by_time(const double *tau, int64_t n, int64_t *order, ssm_error *err);

/* ---- instability.c ---- */
/* 4p(1−p), p = members/windows; NaN for fewer than two windows. */
double ssm__instability(int64_t members, int64_t windows);
/* Mean of value over each tenth of order; NaN where a tenth is empty. */
void ssm__decile_means(const float *value, const int64_t *order, int64_t n,
                       double out[SSM_DECILES]);

/* ---- correlation.c ---- */
/* Ranks 1 … n, equal values share the mean of theirs. */
void ssm__average_ranks(const double *values, int64_t n, double *ranks);
/* NaN for n < 2, a constant argument or a NaN in either. */
double ssm__pearson(const double *x, const double *y, int64_t n);
/* Pearson of the average ranks; ranks: scratch [2n]. */
double ssm__spearman(const double *x, const double *y, int64_t n, double *ranks);

/* ---- geometry.c ---- */
/* Fills min_rho … static_tail of out from ρ of the recorded layers; migrating_layers and
 * migrating_depths have room for n. scratch[n]. */
void ssm__geometry(const double *rho, const int64_t *layers, int64_t n, int64_t n_layers,
                   double *scratch, ssm_across_layers *out);

#endif
