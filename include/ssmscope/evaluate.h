/* ssmscope/evaluate.h: perplexity over fixed windows with intervals and paired differences. */
#ifndef SSMSCOPE_EVALUATE_H
#define SSMSCOPE_EVALUATE_H

#include <ssmscope/model.h>
#include <ssmscope/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ssm_interval {
    double lo, hi;
} ssm_interval;

typedef struct ssm_window_score {
    int64_t domain; /* index */
    double nll;     /* sum, float64 */
    int64_t tokens; /* scored tokens */
} ssm_window_score;

/* exp(Σ nll / Σ tokens) and its 95 % percentile intervals. */
typedef struct ssm_perplexity {
    double perplexity, nll_sum;
    int64_t tokens;
    ssm_interval interval_window; /* windows resampled within each domain */
    ssm_interval interval_block;  /* circular blocks of min(4, n) windows within each domain */
} ssm_perplexity;

typedef struct ssm_difference {
    double perplexity; /* other − base */
    ssm_interval interval_window, interval_block;
} ssm_difference;

typedef struct ssm_bootstrap_options {
    int64_t resamples; /* 10000 */
    uint64_t seed;
} ssm_bootstrap_options;

/* Pure statistics on window scores, grouped by domain 0 … n_domains−1. domain −1: all of them.
 * All results of one seed use the same resamples. Errors: USAGE, MEMORY. */
SSM_API ssm_status ssm_perplexity_of(const ssm_window_score *scores, int64_t count,
                                     int64_t n_domains, int64_t domain,
                                     const ssm_bootstrap_options *bootstrap, ssm_perplexity *out,
                                     ssm_error *err);
SSM_API ssm_status ssm_difference_of(const ssm_window_score *base, const ssm_window_score *other,
                                     int64_t count, int64_t n_domains, int64_t domain,
                                     const ssm_bootstrap_options *bootstrap, ssm_difference *out,
                                     ssm_error *err);

typedef struct ssm_score_options {
    int64_t window;       /* tokens a window */
    int64_t windows;      /* per domain; 0 = as many as there are */
    int64_t offset;       /* first windows of each domain to skip */
    int64_t continuation; /* −1: protocol full; T ≥ 1: score tokens from position T on */
    bool exact_chunks;    /* of the session */
    ssm_pool *pool;
    const ssm_progress *progress;
} ssm_score_options;

/* Scores the windows of corpus with session-level mask `mask` (NULL: unpruned). *scores is
 * allocated, the caller frees it with ssm_scores_free. Errors: USAGE (a domain has no such window),
 * MEMORY. */
SSM_API ssm_status ssm_score_windows(const ssm_model *model, const ssm_corpus *corpus,
                                     const ssm_mask *mask, const ssm_score_options *options,
                                     ssm_window_score **scores, int64_t *count, ssm_error *err);
SSM_API void ssm_scores_free(ssm_window_score *scores);

#ifdef __cplusplus
}
#endif
#endif
