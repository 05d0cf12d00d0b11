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

/* Of what sets chosen for each window gain over fixed ones, the share that a rule has:
 * (ppl_fixed − ppl_rule) / (ppl_fixed − ppl_best), each on the same windows and resamples. NaN
 * where the best is no better than the fixed sets; resamples of that kind widen an interval at both
 * ends, and where they are more than 2.5 % it is NaN. */
typedef struct ssm_capture {
    double fraction;
    ssm_interval interval_window, interval_block;
} ssm_capture;
SSM_API ssm_status ssm_capture_of(const ssm_window_score *fixed, const ssm_window_score *rule,
                                  const ssm_window_score *best, int64_t count, int64_t n_domains,
                                  int64_t domain, const ssm_bootstrap_options *bootstrap,
                                  ssm_capture *out, ssm_error *err);

/* A record of finished work that an interrupted run resumes from: JSON lines, appended as the work
 * goes on to PATH.partial, which becomes PATH when all is done. */
typedef struct ssm_journal ssm_journal;
/* identity: what the results depend on; resuming takes up PATH.partial when it has the same one (or
 * begins anew when there is none), a last line that was not finished is dropped. Errors: FILE
 * (the partial file is of other work, or damaged: the line), FAILED (cannot be written), MEMORY. */
SSM_API ssm_status ssm_journal_open(const char *path, const char *identity, bool resume,
                                    ssm_journal **out, ssm_error *err);
/* Lines that were there when it was opened. */
SSM_API int64_t ssm_journal_resumed(const ssm_journal *journal);
/* finished: the file gets its name; else PATH.partial stays, unless no work stands in it. Frees the
 * journal, also after an error; NULL is accepted. Errors: FAILED. */
SSM_API ssm_status ssm_journal_close(ssm_journal *journal, bool finished, ssm_error *err);

/* A directory of results that belongs to one piece of work, which plan.json in it names. */
typedef struct ssm_results ssm_results;
/* Makes the directory, locks it until it is closed and writes plan.json; plan is a JSON object of
 * all that the results depend on. resume: takes up a directory with the same plan, if there is one,
 * and removes what a stop left half-written. Errors: USAGE (results are there already and resume is
 * not set; results of another plan: all members that differ are listed; other files are there),
 * FILE (plan.json is damaged), FAILED (cannot be written, another process is writing), MEMORY.
 * Owner of *out: the caller, ssm_results_close. */
SSM_API ssm_status ssm_results_open(const char *directory, const char *plan, bool resume,
                                    ssm_results **out, ssm_error *err);
/* Makes directory/name, or cleans it as ssm_results_open does. Errors: FAILED, MEMORY. */
SSM_API ssm_status ssm_results_folder(ssm_results *results, const char *name, ssm_error *err);
/* Writes directory/name, whole or not at all. Errors: FAILED, MEMORY. */
SSM_API ssm_status ssm_results_write(ssm_results *results, const char *name, const void *data,
                                     size_t bytes, ssm_error *err);
SSM_API void ssm_results_close(ssm_results *results);

/* Chooses what a window is pruned to, before it is scored. */
typedef struct ssm_chooser {
    void *context;
    /* *mask: for this window of corpus->domains[domain]; valid until the next call. Errors stop the
     * pass. */
    ssm_status (*choose)(void *context, int64_t domain, const int32_t *ids, int64_t count,
                         const ssm_mask **mask, ssm_error *err);
} ssm_chooser;

typedef struct ssm_score_options {
    int64_t window;       /* tokens a window */
    int64_t windows;      /* per domain; 0 = as many as there are */
    int64_t offset;       /* first windows of each domain to skip */
    int64_t continuation; /* −1: protocol full; T ≥ 1: score tokens from position T on */
    bool exact_chunks;    /* of the session */
    ssm_pool *pool;
    const ssm_progress *progress;
    ssm_journal *journal; /* NULL: none; finished windows are taken from it and written to it */
    const char *series;   /* of the journal; UTF-8 */
    const ssm_chooser *chooser; /* NULL: `mask` for all windows; else `mask` is not looked at */
} ssm_score_options;

/* How many windows ssm_score_windows would score. Errors: USAGE (a domain has no such window, an
 * option out of range), MEMORY. */
SSM_API ssm_status ssm_score_count(const ssm_corpus *corpus, const ssm_score_options *options,
                                   int64_t *count, ssm_error *err);
/* Scores the windows of corpus with session-level mask `mask` (NULL: unpruned). *scores is
 * allocated, the caller frees it with ssm_scores_free. Errors: USAGE (a domain has no such window),
 * MEMORY. */
SSM_API ssm_status ssm_score_windows(const ssm_model *model, const ssm_corpus *corpus,
                                     const ssm_mask *mask, const ssm_score_options *options,
                                     ssm_window_score **scores, int64_t *count, ssm_error *err);

/* The same windows counted from another token on. */
typedef struct ssm_score_part {
    int64_t continuation; /* as in the options */
    const char *series;   /* of the journal; each part its own */
    /* Result: */
    ssm_window_score *scores; /* for ssm_scores_free; NULL after an error */
} ssm_score_part;
/* ssm_score_windows under n_parts ≥ 1 protocols in one pass, with the same bits. The continuation
 * and the series of the options are not looked at. */
SSM_API ssm_status ssm_score_parts(const ssm_model *model, const ssm_corpus *corpus,
                                   const ssm_mask *mask, const ssm_score_options *options,
                                   ssm_score_part *parts, int64_t n_parts, int64_t *count,
                                   ssm_error *err);

/* How far the pruned model's next-token distributions q are from the unpruned model's p, over all
 * scored tokens. */
enum { SSM_DIVERGENCE_QUANTILES = 9 };
typedef struct ssm_divergence {
    double kl;                                     /* mean of KL(p‖q), nats a token */
    ssm_interval kl_interval;                      /* 95 %, windows resampled within each domain */
    double kl_quantiles[SSM_DIVERGENCE_QUANTILES]; /* at ssm_divergence_level(i) */
    double kl_max;
    double agreement;                /* share of tokens with the same most probable token */
    ssm_interval agreement_interval; /* as kl_interval */
    double probability_change;       /* mean of q(token) − p(token) of the text's tokens */
    double probability_change_rms;
    int64_t tokens;
} ssm_divergence;
/* Level of quantile i: 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99. */
SSM_API double ssm_divergence_level(int i);

/* A pruned model of ssm_score_divergences. */
typedef struct ssm_pruned {
    const ssm_mask *mask;       /* session-level, NULL: all modes kept */
    const ssm_chooser *chooser; /* NULL: `mask` for all windows; else `mask` is not looked at */
    const char *series;         /* of the journal; each model its own */
    /* Results: */
    ssm_window_score *scores;  /* for ssm_scores_free; NULL after an error */
    ssm_divergence divergence; /* from the unpruned model */
} ssm_pruned;

/* ssm_score_windows of the unpruned model and of n_models ≥ 1 pruned ones in one pass, with the
 * same bits, and what lies between the unpruned one and each of them. The chooser and the series of
 * the options are not looked at; the journal has a line for every model of a window. *base: of the
 * unpruned model, for ssm_scores_free. Memory: a session for every model. */
SSM_API ssm_status ssm_score_divergences(const ssm_model *model, const ssm_corpus *corpus,
                                         ssm_pruned *models, int64_t n_models,
                                         const ssm_score_options *options,
                                         const ssm_bootstrap_options *bootstrap,
                                         ssm_window_score **base, int64_t *count, ssm_error *err);
/* The same of one pruned model: `mask`, or the chooser of the options. *base and *pruned for
 * ssm_scores_free. */
SSM_API ssm_status ssm_score_divergence(const ssm_model *model, const ssm_corpus *corpus,
                                        const ssm_mask *mask, const ssm_score_options *options,
                                        const ssm_bootstrap_options *bootstrap,
                                        ssm_window_score **base, ssm_window_score **pruned,
                                        int64_t *count, ssm_divergence *out, ssm_error *err);
SSM_API void ssm_scores_free(ssm_window_score *scores);

#ifdef __cplusplus
}
#endif
#endif
