/* Churn [paper]: mean over pairs of windows of the Jaccard distance of their top-r sets, averaged
 * over channels; pairs of one domain (within) and of two (cross) apart. The null is the distance
 * between the two halves of one window. Ratio = cross / within, margin = cross − null.
 *
 * [ours] Which windows: the evaluation windows. Every pair and every channel weighs the same; a
 * channel without energy has the set {0 … r−1} everywhere (ties go to the lower index) and counts
 * as distance 0.
 *
 * Distances are counted by |S∩S'| and summed once, so the result does not depend on the order. */
#include "metrics/measures.h"

#include <math.h>
#include <string.h>

void ssm__count_common(const uint64_t *a, const uint64_t *b, int64_t channels, int64_t words,
                       int64_t *counts)
{
    if (words == 1) {
        for (int64_t h = 0; h < channels; h++) {
            counts[__builtin_popcountll(a[h] & b[h])]++;
        }
        return;
    }
    for (int64_t h = 0; h < channels; h++) {
        counts[ssm__set_common(a + h * words, b + h * words, words)]++;
    }
}

double ssm__mean_distance(const int64_t *counts, int64_t r)
{
    double sum = 0.0;
    int64_t total = 0;
    for (int64_t k = 0; k <= r; k++) {
        sum += (double)counts[k] * ssm__jaccard_distance(k, r);
        total += counts[k];
    }
    return total > 0 ? sum / (double)total : (double)NAN;
}

void ssm__pairwise_churn(const uint64_t *sets, const int64_t *domains, int64_t windows,
                         int64_t channels, int64_t words, int64_t r, int64_t *within_counts,
                         int64_t *cross_counts, double *within, double *cross)
{
    int64_t stride = channels * words;
    memset(within_counts, 0, (size_t)(r + 1) * sizeof *within_counts);
    memset(cross_counts, 0, (size_t)(r + 1) * sizeof *cross_counts);
    for (int64_t v = 0; v < windows; v++) {
        for (int64_t w = v + 1; w < windows; w++) {
            ssm__count_common(sets + v * stride, sets + w * stride, channels, words,
                              domains[v] == domains[w] ? within_counts : cross_counts);
        }
    }
    *within = ssm__mean_distance(within_counts, r);
    *cross = ssm__mean_distance(cross_counts, r);
}
