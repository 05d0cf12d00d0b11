/* cli/scored.h: what a model scored on windows of text, its statistics, and how they are printed
 * for programs. */
#ifndef SSM_CLI_SCORED_H
#define SSM_CLI_SCORED_H

#include <ssmscope/evaluate.h>

#include "load.h"

/* One model (unpruned, or with a mask) on the windows of all domains. */
typedef struct cli_scored {
    const char *name; /* as --against has it; "unpruned" */
    ssm_window_score *scores;
    int64_t count;
    ssm_perplexity *results;   /* n_domains, then all together */
    bool shared;               /* scores and results belong to another */
    bool diverges;             /* pruned, and it was measured: */
    ssm_divergence divergence; /* from the unpruned model */
} cli_scored;

/* Fills results from scores. Errors: USAGE, MEMORY. */
ssm_status cli_scored_summarise(cli_scored *scored, const ssm_corpus *corpus,
                                const ssm_bootstrap_options *bootstrap, ssm_error *err);
void cli_scored_free(cli_scored *scored);

/* A hundred times the interval. */
ssm_interval cli_percent(ssm_interval interval);
/* [lo, hi] under key. */
void cli_json_interval(cli_json *json, json_t *object, const char *key, ssm_interval interval);
/* Perplexity and its intervals, all together and of every domain. */
void cli_json_scored(cli_json *json, json_t *object, const ssm_corpus *corpus,
                     const cli_scored *scored);
/* The `windows` of it: domain, nll, tokens. */
void cli_json_windows(cli_json *json, json_t *object, const ssm_corpus *corpus,
                      const cli_scored *scored);
void cli_json_difference(cli_json *json, json_t *object, const ssm_difference *difference);
/* KL divergence, agreement, change of probability, with their intervals. */
void cli_json_divergence(cli_json *json, json_t *object, const ssm_divergence *divergence);
/* `fraction` and its intervals. */
void cli_json_capture(cli_json *json, json_t *object, const ssm_capture *capture);

/* True when every domain has more windows than a block of the bootstrap, so that its intervals from
 * blocks are more than a point; scored: of any model. */
bool cli_scored_has_blocks(const cli_scored *scored, const ssm_corpus *corpus);
/* Says so where it is not true. */
void cli_footnote_blocks(void);
/* What a table of captured shares means, and its dashes. */
void cli_footnote_captures(void);

/* Table entries of what is scored, and of its intervals; `type` has int64_t window, windows,
 * offset, and bootstrap, seed. */
#define CLI_WINDOW_ENTRIES(type)                                                                   \
    {.name = "window",                                                                             \
     .kind = CLI_INTEGER,                                                                          \
     .into = offsetof(type, window),                                                               \
     .argument = "T",                                                                              \
     .fallback = "1024",                                                                           \
     .min = 2,                                                                                     \
     .max = 1 << 24,                                                                               \
     .help = "Tokens of a window. Every window starts from the zero state."},                      \
        {.name = "windows",                                                                        \
         .kind = CLI_INTEGER,                                                                      \
         .into = offsetof(type, windows),                                                          \
         .argument = "K",                                                                          \
         .fallback = "0",                                                                          \
         .min = 0,                                                                                 \
         .max = INT32_MAX,                                                                         \
         .help = "Windows of every domain; 0 is as many as there are."},                           \
    {                                                                                              \
        .name = "offset", .kind = CLI_INTEGER, .into = offsetof(type, offset), .argument = "W",    \
        .fallback = "0", .min = 0, .max = INT32_MAX,                                               \
        .help = "Skip the first W windows of every domain, for example those of the calibration."  \
    }
#define CLI_BOOTSTRAP_ENTRIES(type)                                                                \
    {.name = "bootstrap",                                                                          \
     .kind = CLI_INTEGER,                                                                          \
     .into = offsetof(type, bootstrap),                                                            \
     .argument = "B",                                                                              \
     .fallback = "10000",                                                                          \
     .min = 1,                                                                                     \
     .max = 10000000,                                                                              \
     .help = "Resamples for the intervals."},                                                      \
    {                                                                                              \
        .name = "seed", .kind = CLI_INTEGER, .into = offsetof(type, seed), .argument = "S",        \
        .fallback = "0", .min = 0, .max = INT64_MAX,                                               \
        .help = "Seed of the resampling and of rules that draw."                                   \
    }

#endif
