#include "select/ranking.h"

#include <stdlib.h>

#include "base/error.h"
#include "recording/energies.h"

ssm_status ssm__ranking_create(const ssm__selection *s, const ssm__rule *rule, ssm__ranking *out,
                               ssm_error *err)
{
    const int64_t layers = s->info->n_recorded;
    const int64_t N = s->d_state;
    const size_t modes = (size_t)(layers * s->sets * N);
    *out = (ssm__ranking){.sets = s->sets, .d_state = N};
    out->scores = malloc(modes * sizeof *out->scores);
    out->orders = malloc(modes * sizeof *out->orders);
    if (out->scores == NULL || out->orders == NULL) {
        return ssm__fail_memory(err, "scores of modes", modes * sizeof *out->scores);
    }
    for (int64_t l = 0; l < layers; l++) {
        double *scores = out->scores + l * s->sets * N;
        SSM__TRY(rule->score(s, s->info->layers[l], scores, err));
        for (int64_t set = 0; set < s->sets; set++) {
            ssm__rank_modes(scores + set * N, N, out->orders + (l * s->sets + set) * N);
        }
    }
    if ((rule->needs & SSM__GLOBAL) == 0) {
        return SSM_STATUS_OK;
    }
    const size_t counts = (size_t)(layers * s->sets * (N + 1));
    out->counts = malloc(counts * sizeof *out->counts);
    if (out->counts == NULL) {
        return ssm__fail_memory(err, "budgets of sets", counts * sizeof *out->counts);
    }
    return ssm__last_counts(out->scores, layers, s->sets, N, out->counts, err);
}

void ssm__ranking_free(ssm__ranking *ranking)
{
    free(ranking->scores);
    free(ranking->orders);
    free(ranking->counts);
    *ranking = (ssm__ranking){0};
}

int64_t ssm__ranking_count(const ssm__ranking *ranking, int64_t layer, int64_t set, int64_t r)
{
    return ranking->counts == NULL
               ? r
               : ranking->counts[(layer * ranking->sets + set) * (ranking->d_state + 1) + r];
}
