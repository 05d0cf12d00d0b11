/* greedy-swap [ours]: what `optimal` looks for, without looking everywhere, for any N. On the same
 * Gram, from two beginnings, and of the two ends the better one (the first of equals):
 *  - greedy: all modes kept, then always the mode dropped whose loss costs least;
 *  - static: the modes of highest energy kept;
 * then, as long as one lowers the error, the exchange of a kept and a dropped mode that lowers it
 * most. So it is never worse than `static` on its calibration Gram, and no single exchange can
 * better it. Ties: drop the higher mode, exchange the lowest pair. */
#include "select/rule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "recording/energies.h"
#include "recording/schema.h"
#include "select/calibration.h"

/* One set on the way. sums[i] = Σ_{j dropped} G_ij. */
typedef struct walk {
    int64_t n;
    const double *gram; /* upper triangle of (m, f) */
    double *sums;       /* [N] */
    uint8_t *keep;      /* [N] */
    double error;       /* Σ_{ij dropped} G_ij */
} walk;

static double entry(const walk *w, int64_t i, int64_t j)
{
    return w->gram[i < j ? ssm__gram_index(i, j, w->n) : ssm__gram_index(j, i, w->n)];
}

static void flip(walk *w, int64_t mode)
{
    const double sign = w->keep[mode] ? 1.0 : -1.0;
    if (sign > 0.0) {
        w->error += 2.0 * w->sums[mode] + entry(w, mode, mode);
    } else {
        w->error -= 2.0 * w->sums[mode] - entry(w, mode, mode);
    }
    for (int64_t i = 0; i < w->n; i++) {
        w->sums[i] += sign * entry(w, i, mode);
    }
    w->keep[mode] = !w->keep[mode];
}

static void begin(walk *w)
{
    memset(w->keep, 1, (size_t)w->n);
    memset(w->sums, 0, (size_t)w->n * sizeof *w->sums);
    w->error = 0.0;
}

static void drop_greedily(walk *w, int64_t budget)
{
    begin(w);
    for (int64_t kept = w->n; kept > budget; kept--) {
        int64_t cheapest = -1;
        double least = HUGE_VAL;
        for (int64_t i = w->n - 1; i >= 0; i--) {
            const double cost = 2.0 * w->sums[i] + entry(w, i, i);
            if (w->keep[i] && cost < least) {
                least = cost;
                cheapest = i;
            }
        }
        flip(w, cheapest);
    }
}

/* The best exchange, while it is worth more than the rounding of the sums. */
static void exchange(walk *w)
{
    for (int64_t turn = 0; turn < w->n * w->n; turn++) {
        int64_t in = -1;
        int64_t out = -1;
        double best = -1e-12 * fabs(w->error);
        for (int64_t a = 0; a < w->n; a++) {                   /* a: kept, to be dropped */
            for (int64_t b = 0; b < w->n && w->keep[a]; b++) { /* b: dropped, to be kept */
                if (w->keep[b]) {
                    continue;
                }
                const double change = 2.0 * (w->sums[a] - w->sums[b] - entry(w, a, b)) +
                                      entry(w, a, a) + entry(w, b, b);
                if (change < best) {
                    best = change;
                    out = a;
                    in = b;
                }
            }
        }
        if (in < 0) {
            return;
        }
        flip(w, in);
        flip(w, out);
    }
}

typedef struct scratch {
    double *gram, *energy, *sums;
    int32_t *order;
    uint8_t *keep;
} scratch;

static void choose_set(const scratch *s, const double *gram, int64_t n, int64_t budget,
                       uint8_t *keep)
{
    walk w = {.n = n, .gram = gram, .sums = s->sums, .keep = keep};
    drop_greedily(&w, budget);
    exchange(&w);
    walk other = {.n = n, .gram = gram, .sums = s->sums, .keep = s->keep};
    begin(&other);
    for (int64_t i = 0; i < n; i++) {
        s->energy[i] = entry(&w, i, i);
    }
    ssm__rank_modes(s->energy, n, s->order);
    for (int64_t k = budget; k < n; k++) {
        flip(&other, s->order[k]);
    }
    exchange(&other);
    if (other.error < w.error) {
        memcpy(keep, other.keep, (size_t)n);
    }
}

static ssm_status choose(const ssm__selection *selection, int64_t layer, int64_t budget,
                         uint8_t *keep, ssm_error *err)
{
    const int64_t N = selection->d_state;
    const int64_t entries = ssm__gram_entries(N);
    const size_t count = (size_t)(selection->sets * entries);
    scratch s = {.gram = malloc(count * sizeof *s.gram),
                 .energy = malloc((size_t)N * sizeof *s.energy),
                 .sums = malloc((size_t)N * sizeof *s.sums),
                 .order = malloc((size_t)N * sizeof *s.order),
                 .keep = malloc((size_t)N)};
    ssm_status status = !s.gram || !s.energy || !s.sums || !s.order || !s.keep
                            ? ssm__fail_memory(err, "a layer's Grams", count * sizeof *s.gram)
                            : ssm__calibration_gram(selection->recording, layer,
                                                    selection->rows_per_set, s.gram, err);
    for (int64_t set = 0; status == SSM_STATUS_OK && set < selection->sets; set++) {
        choose_set(&s, s.gram + set * entries, N, budget, keep + set * N);
    }
    free(s.gram);
    free(s.energy);
    free(s.sums);
    free(s.order);
    free(s.keep);
    return status;
}

const ssm__rule ssm__rule_greedy_swap = {
    .name = "greedy-swap", .needs = SSM__NEEDS_CALIBRATION | SSM__NEEDS_GRAM, .choose = choose};
