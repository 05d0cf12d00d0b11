/* cli/eval_output.h: what `eval` has computed, and how it is printed. */
#ifndef SSM_CLI_EVAL_OUTPUT_H
#define SSM_CLI_EVAL_OUTPUT_H

#include <ssmscope/evaluate.h>

#include "load.h"

/* One model (unpruned, or with a mask) on the windows of all domains. */
typedef struct cli_scored {
    const char *name; /* as --against has it; "unpruned" */
    ssm_window_score *scores;
    int64_t count;
    ssm_perplexity *results; /* n_domains, then all together */
    bool shared;             /* scores and results belong to another */
} cli_scored;

typedef struct cli_evaluation {
    const ssm_corpus *corpus;
    int64_t window, offset, seed, resamples, continuation; /* continuation −1: full */
    const char *mask_path;                                 /* or NULL */
    char rule[64];                                         /* of the mask, or "" */
    int64_t budget;
    cli_scored main;
    cli_scored *baseline;      /* unpruned, when `main` is pruned; else NULL */
    ssm_divergence divergence; /* of `main` from `baseline` */
    cli_scored *others;        /* --against */
    int64_t n_others;
} cli_evaluation;

/* main − base of a domain (n_domains: all together), from the same resamples. */
ssm_status cli_eval_difference(const cli_evaluation *evaluation, const cli_scored *base,
                               int64_t domain, ssm_difference *out, ssm_error *err);
ssm_status cli_eval_json(const cli_context *context, const cli_source *source,
                         const cli_evaluation *evaluation, ssm_error *err);
ssm_status cli_eval_print(const cli_source *source, const cli_evaluation *evaluation,
                          ssm_error *err);

#endif
