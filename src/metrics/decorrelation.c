/* Decorrelation against lag [paper: "decorrelating over a few hundred tokens"; formula ours]:
 * between blocks of 64 tokens of one window that are `lag` blocks apart, the mean Jaccard distance
 * of top-r sets and the mean cosine of energies cos = Σ_i e_i e'_i / (|e| |e'|) over windows, block
 * pairs and channels. [ours] A last block of fewer than 64 tokens is left out; a channel that is
 * silent in a block has no cosine there. */
#include "metrics/measures.h"

#include <math.h>

void ssm__lag_common(const uint64_t *sets, int64_t blocks, int64_t channels, int64_t words,
                     int64_t n, int64_t lags, int64_t *counts)
{
    int64_t stride = channels * words;
    for (int64_t lag = 1; lag <= lags; lag++) {
        for (int64_t b = 0; b + lag < blocks; b++) {
            ssm__count_common(sets + b * stride, sets + (b + lag) * stride, channels, words,
                              counts + (lag - 1) * (n + 1));
        }
    }
}

void ssm__normalise_blocks(double *energy, int64_t blocks, int64_t channels, int64_t n,
                           int64_t *silent)
{
    for (int64_t b = 0; b < blocks; b++) {
        silent[b] = 0;
        for (int64_t h = 0; h < channels; h++) {
            double *e = energy + (b * channels + h) * n;
            double square = 0.0;
            for (int64_t i = 0; i < n; i++) {
                square += e[i] * e[i];
            }
            double scale = square > 0.0 ? 1.0 / sqrt(square) : 0.0;
            for (int64_t i = 0; i < n; i++) {
                e[i] *= scale;
            }
            silent[b] += square > 0.0 ? 0 : 1;
        }
    }
}

/* Eight partial sums in a fixed order: the loop is the metric's most expensive one. */
static double dot(const double *a, const double *b, int64_t n)
{
    double sum[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++) {
            sum[k] += a[i + k] * b[i + k];
        }
    }
    for (; i < n; i++) {
        sum[0] += a[i] * b[i];
    }
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

static bool is_silent(const double *unit, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (unit[i] != 0.0) {
            return false;
        }
    }
    return true;
}

/* Channels that are heard in both blocks. */
static int64_t heard(const double *a, const double *b, int64_t channels, int64_t n)
{
    int64_t count = 0;
    for (int64_t h = 0; h < channels; h++) {
        count += is_silent(a + h * n, n) || is_silent(b + h * n, n) ? 0 : 1;
    }
    return count;
}

void ssm__lag_cosines(const double *unit, const int64_t *silent, int64_t blocks, int64_t channels,
                      int64_t n, int64_t lags, double *sums, int64_t *pairs)
{
    int64_t stride = channels * n;
    for (int64_t lag = 1; lag <= lags; lag++) {
        for (int64_t b = 0; b + lag < blocks; b++) {
            const double *first = unit + b * stride;
            const double *second = unit + (b + lag) * stride;
            sums[lag - 1] += dot(first, second, stride);
            pairs[lag - 1] += silent[b] == 0 && silent[b + lag] == 0
                                  ? channels
                                  : heard(first, second, channels, n);
        }
    }
}
