/* evaluate/windows.h: what the passes over windows share. */
#ifndef SSM_EVALUATE_WINDOWS_H
#define SSM_EVALUATE_WINDOWS_H

#include <ssmscope/evaluate.h>

/* Checks the options and counts the windows that they ask for: of each domain, windows[n_domains],
 * and all together. Errors: USAGE. */
ssm_status ssm__windows_count(const ssm_corpus *corpus, const ssm_score_options *options,
                              int64_t *windows, int64_t *total, ssm_error *err);
/* Index of the first scored token of a window. */
int64_t ssm__windows_first(const ssm_score_options *options);
/* Gives the session the mask that the chooser of the options, if there is one, has for a window. */
ssm_status ssm__windows_choose(const ssm_score_options *options, int64_t domain, const int32_t *ids,
                               ssm_session *session, ssm_error *err);
/* Reports `done` of `total` windows and the perplexity so far. Errors: INTERRUPTED. */
ssm_status ssm__windows_report(const ssm_score_options *options, const ssm_window_score *scores,
                               int64_t done, int64_t total, ssm_error *err);

/* Σ nll / Σ tokens and its interval over resampled windows, as ssm_perplexity_of without the
 * exponential: for any sum over tokens. */
ssm_status ssm__mean_of(const ssm_window_score *scores, int64_t count, int64_t n_domains,
                        const ssm_bootstrap_options *bootstrap, double *mean, ssm_interval *window,
                        ssm_error *err);

/* 95 % percentiles of n resamples of which n_defined are defined, in any order (sorted here). The
 * others stand at the far end of either bound: the interval is too wide, never too narrow, and NaN
 * where more than 2.5 % are undefined, or n is 0. */
ssm_interval ssm__interval_of(double *defined, int64_t n_defined, int64_t n);

#endif
