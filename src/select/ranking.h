/* select/ranking.h: the order in which a scoring rule keeps modes, for all layers and budgets. */
#ifndef SSM_SELECT_RANKING_H
#define SSM_SELECT_RANKING_H

#include "select/rule.h"

/* Layers are the recorded ones, by their place. */
typedef struct ssm__ranking {
    int64_t sets, d_state;
    double *scores;  /* [layers][sets][N] */
    int32_t *orders; /* [layers][sets][N] modes by falling score, ties to the lower index */
    int32_t *counts; /* [layers][sets][N+1] modes kept at budget r; NULL: r of every set */
} ssm__ranking;

/* rule: one with scores. Owner: the caller, also of what a failure leaves: ssm__ranking_free. */
ssm_status ssm__ranking_create(const ssm__selection *selection, const ssm__rule *rule,
                               ssm__ranking *out, ssm_error *err);
void ssm__ranking_free(ssm__ranking *ranking);
/* How many modes a set keeps at budget r, 0 … N. */
int64_t ssm__ranking_count(const ssm__ranking *ranking, int64_t layer, int64_t set, int64_t r);

#endif
