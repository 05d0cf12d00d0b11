/* model/sampler.c: the next token from logits: greedy, temperature, top-k, top-p. */
#include <ssmscope/model.h>

#include <math.h>
#include <stdlib.h>

#include "base/error.h"

typedef struct candidate {
    int32_t id;
    double weight; /* logit while sorting, then probability up to a factor */
} candidate;

struct ssm_sampler {
    ssm_sampling sampling;
    ssm_rng rng;
    int64_t n_valid;
    candidate *candidates; /* n_valid */
};

ssm_status ssm_sampler_create(const ssm_sampling *sampling, int64_t vocab_size, int64_t n_valid,
                              ssm_sampler **out, ssm_error *err)
{
    *out = NULL;
    if (!(sampling->temperature >= 0.0) || isinf(sampling->temperature)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "temperature %g must be a finite number ≥ 0 (0 is greedy)",
                         sampling->temperature);
    }
    if (!(sampling->top_p > 0.0 && sampling->top_p <= 1.0)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "top-p %g must lie in (0, 1]; 1 keeps all tokens", sampling->top_p);
    }
    if (sampling->top_k < 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "top-k %lld must be ≥ 0; 0 keeps all tokens", (long long)sampling->top_k);
    }
    if (n_valid < 1 || n_valid > vocab_size) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "%lld of %lld ids cannot be the valid ones", (long long)n_valid,
                         (long long)vocab_size);
    }
    ssm_sampler *sampler = calloc(1, sizeof *sampler);
    candidate *candidates = malloc((size_t)n_valid * sizeof *candidates);
    if (!sampler || !candidates) {
        free(sampler);
        free(candidates);
        return ssm__fail_memory(err, "a sampler", (size_t)n_valid * sizeof *candidates);
    }
    *sampler = (ssm_sampler){.sampling = *sampling,
                             .rng = ssm_rng_create(sampling->seed, "sample"),
                             .n_valid = n_valid,
                             .candidates = candidates};
    *out = sampler;
    return SSM_STATUS_OK;
}

void ssm_sampler_free(ssm_sampler *sampler)
{
    if (sampler) {
        free(sampler->candidates);
        free(sampler);
    }
}

static int32_t greedy(const float *logits, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++) {
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return (int32_t)best;
}

/* Heaviest first, ties to the lower id. */
static int by_weight(const void *a, const void *b)
{
    const candidate *x = a;
    const candidate *y = b;
    if (x->weight != y->weight) {
        return x->weight > y->weight ? -1 : 1;
    }
    return x->id < y->id ? -1 : 1;
}

/* Turns logits into weights and returns how many candidates top-k and top-p leave. */
static int64_t weigh(ssm_sampler *s)
{
    candidate *c = s->candidates;
    int64_t count = s->n_valid;
    if (s->sampling.top_k > 0 && s->sampling.top_k < count) {
        count = s->sampling.top_k;
    }
    const double top = c[0].weight;
    double total = 0.0;
    for (int64_t i = 0; i < count; i++) {
        c[i].weight = exp((c[i].weight - top) / s->sampling.temperature);
        total += c[i].weight;
    }
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) { /* the smallest set that reaches top-p */
        sum += c[i].weight;
        if (sum >= s->sampling.top_p * total) {
            return i + 1;
        }
    }
    return count;
}

int32_t ssm_sampler_next(ssm_sampler *s, const float *logits)
{
    if (s->sampling.temperature == 0.0) {
        return greedy(logits, s->n_valid);
    }
    for (int64_t i = 0; i < s->n_valid; i++) {
        s->candidates[i] = (candidate){(int32_t)i, (double)logits[i]};
    }
    qsort(s->candidates, (size_t)s->n_valid, sizeof *s->candidates, by_weight);
    const int64_t count = weigh(s);
    double total = 0.0;
    for (int64_t i = 0; i < count; i++) {
        total += s->candidates[i].weight;
    }
    double target = ssm_rng_uniform(&s->rng) * total;
    for (int64_t i = 0; i < count; i++) {
        target -= s->candidates[i].weight;
        if (target < 0.0) {
            return s->candidates[i].id;
        }
    }
    return s->candidates[count - 1].id;
}
