/* kernels/body_subsets.h: of all sets of modes, the one whose loss changes the output least.
 *
 * Channels are in the lanes, eight at a time, in float64. The sets are built mode by mode, from the
 * highest down: with D the modes dropped so far, error(D ∪ {b}) = error(D) + cost_b(D), cost_b
 * = G_bb + 2 Σ_{a∈D} G_ab, and dropping a changes the other costs by 2 G_ab. So a complete set
 * costs one addition and a comparison, the sets that have one mode less pay for the costs, and no
 * rounding wanders from set to set, as it would where each set is reached from the one before. */
#ifndef SSM_KERNELS_BODY_SUBSETS_H
#define SSM_KERNELS_BODY_SUBSETS_H

#include <math.h>

#include "kernels/kernels.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/unroll.h"

enum { SUBSET_MODES = SSM__SUBSET_MODES, SUBSET_PAIRS = SUBSET_MODES * (SUBSET_MODES - 1) / 2 };

/* Eight channels' search. */
typedef struct subset_search {
    int64_t n, dropped;
    double pairs[SUBSET_PAIRS * 8];                /* 2 G_ab at a(a−1)/2 + b, b < a */
    double costs[SUBSET_MODES * SUBSET_MODES * 8]; /* [modes dropped so far][b] */
    double errors[SUBSET_MODES * 8];               /* [modes dropped so far] */
    double sets[SUBSET_MODES];                     /* [modes dropped so far] Σ 2^mode */
    d8 least, set;
} subset_search;

/* The last mode of a set: all b ≤ last. `add` are the pairs of the mode before it, or NULL. */
SSM__INLINE void subset_last(subset_search *s, d8 error, const double *costs, const double *add,
                             int64_t last, double set)
{
    d8 least = s->least;
    d8 best = s->set;
    for (int64_t b = last; b >= 0; b--) {
        d8 cost = d8_load(costs + b * 8);
        cost = add ? d8_add(cost, d8_load(add + b * 8)) : cost;
        const d8 found = d8_add(error, cost);
        best = d8_where_less(found, least, d8_set(set + (double)(1 << b)), best);
        least = d8_where_less(found, least, found, least);
    }
    s->least = least;
    s->set = best;
}

/* Mode a joins the `depth` ones dropped so far. */
SSM__INLINE void subset_drop(subset_search *s, int64_t depth, int64_t a)
{
    const double *costs = s->costs + depth * SUBSET_MODES * 8;
    const double *pairs = s->pairs + a * (a - 1) / 2 * 8;
    const d8 error = d8_add(d8_load(s->errors + depth * 8), d8_load(costs + a * 8));
    const double set = s->sets[depth] + (double)(1 << a);
    if (depth + 2 == s->dropped) {
        subset_last(s, error, costs, pairs, a - 1, set);
        return;
    }
    double *next = s->costs + (depth + 1) * SUBSET_MODES * 8;
    for (int64_t b = 0; b < a; b++) {
        d8_store(next + b * 8, d8_add(d8_load(costs + b * 8), d8_load(pairs + b * 8)));
    }
    d8_store(s->errors + (depth + 1) * 8, error);
    s->sets[depth + 1] = set;
}

static void subset_walk(subset_search *s)
{
    if (s->dropped < 2) {
        subset_last(s, d8_set(0.0), s->costs, NULL, s->n - 1, 0.0);
        return;
    }
    int64_t next[SUBSET_MODES]; /* the mode that is dropped next */
    int64_t depth = 0;
    next[0] = s->n - 1;
    while (depth >= 0) {
        const int64_t a = next[depth];
        if (a < s->dropped - 1 - depth) { /* too few are left below */
            depth--;
            continue;
        }
        next[depth]--;
        subset_drop(s, depth, a);
        if (depth + 2 < s->dropped) {
            depth++;
            next[depth] = a - 1;
        }
    }
}

/* gram of eight of the 16 channels. */
static void subset_prepare(subset_search *s, const double *gram)
{
    const d8 zero = d8_set(0.0);
    for (int64_t i = 0; i < s->n; i++) {
        for (int64_t j = i; j < s->n; j++, gram += 16) {
            const d8 entry = d8_load(gram);
            if (i == j) {
                d8_store(s->costs + i * 8, entry);
            } else {
                d8_store(s->pairs + (j * (j - 1) / 2 + i) * 8, d8_add(entry, entry));
            }
        }
    }
    d8_store(s->errors, zero);
    s->sets[0] = 0.0;
    s->least = d8_set(HUGE_VAL);
    s->set = zero;
}

static void kernel_least_dropped(const double *gram, int64_t n_modes, int64_t n_dropped,
                                 uint32_t *sets, double *errors)
{
    for (int64_t half = 0; half < 16; half += 8) {
        subset_search s;
        s.n = n_modes;
        s.dropped = n_dropped;
        subset_prepare(&s, gram + half);
        if (n_dropped == 0) {
            s.least = d8_set(0.0);
        } else {
            subset_walk(&s);
        }
        double set[8];
        d8_store(set, s.set);
        d8_store(errors + half, s.least);
        for (int64_t i = 0; i < 8; i++) {
            sets[half + i] = (uint32_t)set[i];
        }
    }
}

#endif
