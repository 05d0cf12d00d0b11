/* cli/eval_output.h: what `eval` has computed, and how it is printed. */
#ifndef SSM_CLI_EVAL_OUTPUT_H
#define SSM_CLI_EVAL_OUTPUT_H

#include "scored.h"

typedef struct cli_evaluation {
    const ssm_corpus *corpus;
    int64_t window, offset, seed, resamples, continuation; /* continuation −1: full */
    const char *mask_path;                                 /* or NULL */
    char rule[64];                                         /* of the mask, or "" */
    int64_t budget;
    bool adapts; /* some model has a rule that chooses for every window */
    cli_scored main;
    cli_scored *baseline; /* unpruned, when `main` is pruned; else NULL */
    cli_scored *others;   /* --against */
    int64_t n_others;
} cli_evaluation;

/* other − base of a domain (n_domains: all together), from the same resamples. */
ssm_status cli_eval_difference(const cli_evaluation *evaluation, const cli_scored *base,
                               const cli_scored *other, int64_t domain, ssm_difference *out,
                               ssm_error *err);
/* The models side by side, differences between any two of them, and how much of what `scheduled`
 * gains over `static` each of them has. */
ssm_status cli_eval_json_models(cli_json *json, const cli_evaluation *evaluation, ssm_error *err);
ssm_status cli_eval_print_models(const cli_evaluation *evaluation, ssm_error *err);
/* Perplexity, domains, windows. */
void cli_eval_json_scored(cli_json *json, json_t *object, const cli_evaluation *evaluation,
                          const cli_scored *scored);
ssm_status cli_eval_json(const cli_context *context, const cli_source *source,
                         const cli_evaluation *evaluation, ssm_error *err);
ssm_status cli_eval_print(const cli_source *source, const cli_evaluation *evaluation,
                          ssm_error *err);

#endif
