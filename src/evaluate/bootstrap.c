/* Perplexity of windows with bootstrap intervals, the paired difference of two models, and the
 * share of a gain that a third has.
 *
 * Percentile intervals (Efron & Tibshirani, An Introduction to the Bootstrap, 1993, ch. 13): the
 * statistic of each resample, sorted, at 2.5 % and 97.5 %. Two ways to resample, both within each
 * domain: (a) windows, drawn with replacement; (b) circular blocks (Politis & Romano, 1992) of
 * b = min(4, n) consecutive windows: ⌈n/b⌉ starts uniform in 0 … n−1, wrapping within the domain,
 * cut to n windows; this keeps what neighbouring windows have in common.
 *
 * Draws come from the streams "bootstrap/window/DOMAIN" and "bootstrap/block/DOMAIN" of the seed
 * and depend on the domain's number and count of windows only: two models, a domain alone and all
 * of them together see the same resamples. */
#include <ssmscope/evaluate.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/quantile.h"
#include "evaluate/windows.h"

enum { BLOCK_WINDOWS = 4, MODELS_MAX = 3 };

typedef enum scheme { SCHEME_WINDOW, SCHEME_BLOCK } scheme;

/* Sums of one resample of one model. */
typedef struct sums {
    double nll, tokens;
} sums;

/* Scores of one to three models on the same windows. */
typedef struct sample {
    const ssm_window_score *models[MODELS_MAX];
    int n_models;
    int64_t count, n_domains, domain;
    bool plain; /* the statistic is nll/tokens, not its exponential */
    const ssm_bootstrap_options *bootstrap;
    int64_t *members; /* [count]: windows of the domain at hand */
    sums *resamples;  /* [resamples][n_models] */
    double *values;   /* [resamples] */
} sample;

static bool is_chosen(const sample *s, int64_t domain)
{
    return s->domain < 0 || s->domain == domain;
}

static ssm_status check_scores(const sample *s, ssm_error *err)
{
    int64_t tokens = 0;
    if (s->bootstrap->resamples < 0 || s->domain >= s->n_domains || s->domain < -1) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "expected resamples ≥ 0 and a domain below %lld, found %lld and %lld",
                         (long long)s->n_domains, (long long)s->bootstrap->resamples,
                         (long long)s->domain);
    }
    for (int64_t i = 0; i < s->count * s->n_models; i++) {
        const ssm_window_score *score = &s->models[0][i % s->count];
        const ssm_window_score *last = &s->models[i / s->count][i % s->count];
        if (score->domain < 0 || score->domain >= s->n_domains || score->tokens < 0) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "window %lld: domain %lld of %lld, %lld tokens",
                             (long long)(i % s->count), (long long)score->domain,
                             (long long)s->n_domains, (long long)score->tokens);
        }
        if (score->domain != last->domain || score->tokens != last->tokens) {
            return ssm__fail(
                err, SSM_STATUS_USAGE, SSM__NOWHERE,
                "window %lld is not the same for both models: a paired difference needs "
                "the same windows in the same order",
                (long long)(i % s->count));
        }
        tokens += is_chosen(s, score->domain) ? score->tokens : 0;
    }
    return tokens > 0
               ? SSM_STATUS_OK
               : ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "there are no scored tokens");
}

/* Indices of the windows of a domain, in order; returns how many. */
static int64_t list_members(const sample *s, int64_t domain)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->count; i++) {
        if (s->models[0][i].domain == domain) {
            s->members[n++] = i;
        }
    }
    return n;
}

static void add_window(const sample *s, int64_t member, sums *out)
{
    int64_t window = s->members[member];
    for (int k = 0; k < s->n_models; k++) {
        out[k].nll += s->models[k][window].nll;
        out[k].tokens += (double)s->models[k][window].tokens;
    }
}

/* One resample of n windows of a domain, added to out[n_models]. */
static void draw(const sample *s, scheme how, int64_t n, ssm_rng *rng, sums *out)
{
    if (how == SCHEME_WINDOW) {
        for (int64_t i = 0; i < n; i++) {
            add_window(s, (int64_t)ssm_rng_below(rng, (uint64_t)n), out);
        }
        return;
    }
    int64_t block = n < BLOCK_WINDOWS ? n : BLOCK_WINDOWS;
    for (int64_t i = 0; i < n; i += block) {
        int64_t start = (int64_t)ssm_rng_below(rng, (uint64_t)n);
        for (int64_t k = 0; k < block && i + k < n; k++) {
            add_window(s, (start + k) % n, out);
        }
    }
}

/* resamples[b][model] = sums over all chosen domains. */
static void resample(const sample *s, scheme how)
{
    for (int64_t b = 0; b < s->bootstrap->resamples * s->n_models; b++) {
        s->resamples[b] = (sums){0.0, 0.0};
    }
    for (int64_t domain = 0; domain < s->n_domains; domain++) {
        int64_t n = is_chosen(s, domain) ? list_members(s, domain) : 0;
        char stream[64];
        snprintf(stream, sizeof stream, "bootstrap/%s/%lld",
                 how == SCHEME_WINDOW ? "window" : "block", (long long)domain);
        ssm_rng rng = ssm_rng_create(s->bootstrap->seed, stream);
        for (int64_t b = 0; b < s->bootstrap->resamples && n > 0; b++) {
            draw(s, how, n, &rng, s->resamples + b * s->n_models);
        }
    }
}

/* exp(nll/tokens), of two models the second minus the first, of three (p0 − p1) / (p0 − p2). A
 * resample may miss all tokens when windows have none: NaN. */
static double statistic(const sample *s, const sums *of)
{
    if (s->plain) {
        return of[0].nll / of[0].tokens;
    }
    double value = exp(of[0].nll / of[0].tokens);
    if (s->n_models < 3) {
        return s->n_models == 1 ? value : exp(of[1].nll / of[1].tokens) - value;
    }
    double gain = value - exp(of[2].nll / of[2].tokens);
    return gain > 0.0 ? (value - exp(of[1].nll / of[1].tokens)) / gain : (double)NAN;
}

ssm_interval ssm__interval_of(double *defined, int64_t n_defined, int64_t n)
{
    const double last = (double)(n_defined - 1);
    const double lo = (0.025 * (double)(n - 1) - (double)(n - n_defined)) / last;
    const double hi = 0.975 * (double)(n - 1) / last;
    ssm__sort(defined, n_defined);
    if (n_defined == n && n > 0) {
        return (ssm_interval){ssm__quantile(defined, n, 0.025), ssm__quantile(defined, n, 0.975)};
    }
    if (n_defined < 2 || lo < 0.0 || hi > 1.0) {
        return (ssm_interval){(double)NAN, (double)NAN};
    }
    return (ssm_interval){ssm__quantile(defined, n_defined, lo),
                          ssm__quantile(defined, n_defined, hi)};
}

/* NaN where any resample has no tokens, or there are none. */
static ssm_interval interval(const sample *s, scheme how)
{
    int64_t n = s->bootstrap->resamples;
    int64_t defined = 0;
    resample(s, how);
    for (int64_t b = 0; b < n; b++) {
        s->values[defined] = statistic(s, s->resamples + b * s->n_models);
        defined += isnan(s->values[defined]) ? 0 : 1;
    }
    if (defined == 0 || (defined < n && s->n_models < 3)) {
        return (ssm_interval){(double)NAN, (double)NAN};
    }
    return ssm__interval_of(s->values, defined, n);
}

/* The statistic of the windows as they are. */
static double observed(const sample *s, sums *all)
{
    for (int k = 0; k < s->n_models; k++) {
        all[k] = (sums){0.0, 0.0};
        for (int64_t i = 0; i < s->count; i++) {
            if (is_chosen(s, s->models[k][i].domain)) {
                all[k].nll += s->models[k][i].nll;
                all[k].tokens += (double)s->models[k][i].tokens;
            }
        }
    }
    return statistic(s, all);
}

static ssm_status run(sample *s, sums *all, double *value, ssm_interval *window,
                      ssm_interval *block, ssm_error *err)
{
    SSM__TRY(check_scores(s, err));
    size_t resamples;
    size_t bytes;
    if (!ssm__mul_size((size_t)s->bootstrap->resamples + 1, (size_t)s->n_models, &resamples) ||
        !ssm__mul_size(resamples, sizeof *s->resamples, &bytes)) {
        return ssm__fail_memory(err, "bootstrap resamples", SIZE_MAX);
    }
    s->members = malloc((size_t)s->count * sizeof *s->members);
    s->resamples = malloc(bytes);
    s->values = malloc(((size_t)s->bootstrap->resamples + 1) * sizeof *s->values);
    ssm_status status = SSM_STATUS_OK;
    if (s->members == NULL || s->resamples == NULL || s->values == NULL) {
        status = ssm__fail_memory(err, "bootstrap resamples", bytes);
    } else {
        *value = observed(s, all);
        *window = interval(s, SCHEME_WINDOW);
        *block = interval(s, SCHEME_BLOCK);
    }
    free(s->members);
    free(s->resamples);
    free(s->values);
    return status;
}

ssm_status ssm_perplexity_of(const ssm_window_score *scores, int64_t count, int64_t n_domains,
                             int64_t domain, const ssm_bootstrap_options *bootstrap,
                             ssm_perplexity *out, ssm_error *err)
{
    sums all[MODELS_MAX];
    sample s = {.models = {scores, scores},
                .n_models = 1,
                .count = count,
                .n_domains = n_domains,
                .domain = domain,
                .bootstrap = bootstrap};
    *out = (ssm_perplexity){0};
    SSM__TRY(run(&s, all, &out->perplexity, &out->interval_window, &out->interval_block, err));
    out->nll_sum = all[0].nll;
    for (int64_t i = 0; i < count; i++) {
        out->tokens += is_chosen(&s, scores[i].domain) ? scores[i].tokens : 0;
    }
    return SSM_STATUS_OK;
}

ssm_status ssm_difference_of(const ssm_window_score *base, const ssm_window_score *other,
                             int64_t count, int64_t n_domains, int64_t domain,
                             const ssm_bootstrap_options *bootstrap, ssm_difference *out,
                             ssm_error *err)
{
    sums all[MODELS_MAX];
    sample s = {.models = {base, other},
                .n_models = 2,
                .count = count,
                .n_domains = n_domains,
                .domain = domain,
                .bootstrap = bootstrap};
    *out = (ssm_difference){0};
    return run(&s, all, &out->perplexity, &out->interval_window, &out->interval_block, err);
}

ssm_status ssm_capture_of(const ssm_window_score *fixed, const ssm_window_score *rule,
                          const ssm_window_score *best, int64_t count, int64_t n_domains,
                          int64_t domain, const ssm_bootstrap_options *bootstrap, ssm_capture *out,
                          ssm_error *err)
{
    sums all[MODELS_MAX];
    sample s = {.models = {fixed, rule, best},
                .n_models = 3,
                .count = count,
                .n_domains = n_domains,
                .domain = domain,
                .bootstrap = bootstrap};
    *out = (ssm_capture){0};
    return run(&s, all, &out->fraction, &out->interval_window, &out->interval_block, err);
}

ssm_status ssm__mean_of(const ssm_window_score *scores, int64_t count, int64_t n_domains,
                        const ssm_bootstrap_options *bootstrap, double *mean, ssm_interval *window,
                        ssm_error *err)
{
    sums all[MODELS_MAX];
    ssm_interval block;
    sample s = {.models = {scores, scores},
                .n_models = 1,
                .count = count,
                .n_domains = n_domains,
                .domain = -1,
                .plain = true,
                .bootstrap = bootstrap};
    return run(&s, all, mean, window, &block, err);
}
