/* last [LAST, Gwak et al. 2024, with the realised Gramians of `hankel` in the place of theirs]:
 * s = √(P Q) as in hankel (last:squared: P Q, as the rule's authors have it). In every layer all
 * modes of all sets are pooled and ranked by
 *   LAST(i) = s_i / Σ_{s_j ≥ s_i} s_j
 * and one threshold for all layers keeps budget·sets·layers modes: the budgets differ by channel
 * and by layer. Ties go to the lower layer, then channel, then mode.
 *
 * Inside a set the order is that of s, so the sets of all budgets are nested. */
#include "select/rule.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

typedef struct pooled_mode {
    double score;
    int64_t at; /* (layer·sets + set)·N + mode */
} pooled_mode;

static int by_falling_score(const void *left, const void *right)
{
    const pooled_mode *a = left;
    const pooled_mode *b = right;
    if (a->score != b->score) {
        return a->score > b->score ? -1 : 1;
    }
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Sorted s of one layer → LAST. Equal ones share their denominator; no energy at all: 0. */
static void normalise(pooled_mode *modes, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count;) {
        int64_t end = i;
        while (end < count && modes[end].score == modes[i].score) {
            sum += modes[end++].score;
        }
        const double share = sum > 0.0 ? modes[i].score / sum : 0.0;
        for (; i < end; i++) {
            modes[i].score = share;
        }
    }
}

ssm_status ssm__last_counts(const double *scores, int64_t layers, int64_t sets, int64_t d_state,
                            int32_t *counts, ssm_error *err)
{
    const int64_t per_layer = sets * d_state;
    const size_t bytes = (size_t)(layers * per_layer) * sizeof(pooled_mode);
    pooled_mode *modes = malloc(bytes);
    if (modes == NULL) {
        return ssm__fail_memory(err, "the modes of all layers", bytes);
    }
    for (int64_t i = 0; i < layers * per_layer; i++) {
        modes[i] = (pooled_mode){scores[i], i};
    }
    for (int64_t l = 0; l < layers; l++) {
        qsort(modes + l * per_layer, (size_t)per_layer, sizeof *modes, by_falling_score);
        normalise(modes + l * per_layer, per_layer);
    }
    qsort(modes, (size_t)(layers * per_layer), sizeof *modes, by_falling_score);
    memset(counts, 0, (size_t)(layers * sets * (d_state + 1)) * sizeof *counts);
    for (int64_t i = 0; i < layers * per_layer; i++) { /* from budget i/(layers·sets) + 1 on */
        counts[modes[i].at / d_state * (d_state + 1) + i / (layers * sets) + 1]++;
    }
    for (int64_t set = 0; set < layers * sets; set++) {
        for (int64_t r = 1; r <= d_state; r++) {
            counts[set * (d_state + 1) + r] += counts[set * (d_state + 1) + r - 1];
        }
    }
    free(modes);
    return SSM_STATUS_OK;
}

static ssm_status score(const ssm__selection *s, int64_t layer, double *scores, ssm_error *err)
{
    SSM__TRY(ssm__hankel_scores(s, layer, "read_moment", scores, err));
    for (int64_t i = 0; s->parameter_at == 0 && i < s->sets * s->d_state; i++) {
        scores[i] *= scores[i];
    }
    return SSM_STATUS_OK;
}

static const char *const parameters[] = {"squared", NULL};

const ssm__rule ssm__rule_last = {.name = "last",
                                  .needs = SSM__NEEDS_CALIBRATION | SSM__BY_ROW | SSM__GLOBAL,
                                  .parameters = parameters,
                                  .score = score};
