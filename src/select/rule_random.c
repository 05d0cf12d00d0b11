/* random, the control: every set of `budget` modes is as likely as any other. The scores are drawn
 * uniformly from the Philox stream "select/random/LAYER" of the seed, so the sets of one seed are
 * nested over the budgets and do not depend on what else is selected. */
#include "select/rule.h"

#include <stdio.h>

static ssm_status score(const ssm__selection *s, int64_t layer, double *scores, ssm_error *err)
{
    (void)err;
    char name[64];
    snprintf(name, sizeof name, "select/random/%lld", (long long)layer);
    ssm_rng rng = ssm_rng_create(s->options->seed, name);
    for (int64_t i = 0; i < s->sets * s->d_state; i++) {
        scores[i] = ssm_rng_uniform(&rng);
    }
    return SSM_STATUS_OK;
}

const ssm__rule ssm__rule_random = {.name = "random", .score = score};
