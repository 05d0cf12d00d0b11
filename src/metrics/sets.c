/* Sets of modes as bits: the Jaccard distance of two top-r sets needs a popcount only.
 *   1 − |S∩S'|/|S∪S'|, |S| = |S'| = r  ⇒  1 − k/(2r − k), k = |S∩S'|   [paper] */
#include "metrics/measures.h"

#include <string.h>

int64_t ssm__set_words(int64_t n)
{
    return (n + 63) / 64;
}

void ssm__set_top(const int32_t *order, int64_t r, uint64_t *set, int64_t words)
{
    memset(set, 0, (size_t)words * sizeof *set);
    for (int64_t k = 0; k < r; k++) {
        set[order[k] / 64] |= UINT64_C(1) << (order[k] % 64);
    }
}

int64_t ssm__set_common(const uint64_t *a, const uint64_t *b, int64_t words)
{
    int64_t common = 0;
    for (int64_t i = 0; i < words; i++) {
        common += __builtin_popcountll(a[i] & b[i]);
    }
    return common;
}

double ssm__jaccard_distance(int64_t common, int64_t r)
{
    return 1.0 - (double)common / (double)(2 * r - common);
}
