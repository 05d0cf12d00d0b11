/* cli/sweep.h: what the files of `sweep` share. */
#ifndef SSM_CLI_SWEEP_H
#define SSM_CLI_SWEEP_H

#include <ssmscope/recording.h>

#include "rules.h"
#include "scored.h"

typedef struct cli_sweep_arguments {
    const char *recording, *model, *rules, *scopes, *protocol, *output;
    cli_texts texts;
    cli_list budgets;
    int64_t window, windows, offset, bootstrap, seed, invalid_utf8;
    double ridge;
    bool resume;
    cli_load load;
} cli_sweep_arguments;

/* A rule as it was asked for. */
typedef struct cli_sweep_rule {
    char *name;
    bool of_all;    /* not named: from `all` */
    int64_t scored; /* the first scored token of a window, −1: all but the first */
} cli_sweep_rule;

/* One rule at one budget and scope, judged under one protocol; or the unpruned model. */
typedef struct cli_sweep_cell {
    const char *rule, *scope; /* scope NULL: the unpruned model */
    int64_t budget, protocol; /* index of protocols */
    char *note;               /* why there is no such cell; NULL: there is */
    bool hidden;              /* not asked for by name, and defined at no scope */
    cli_scored scored;
    ssm_difference *difference, *from_static; /* [n_domains + 1], the last all together; NULL */
    ssm_capture *capture;                     /* the same */
    double error, calibration_error;          /* offline; NaN where Grams do not tell */
    double kept;                              /* share of the modes; NaN: differs by window */
    char mask[320], mask_digest[64];          /* relative to the directory; "": none */
} cli_sweep_cell;

typedef struct cli_sweep {
    cli_context *context;
    const cli_sweep_arguments *args;
    cli_source source;
    ssm_corpus corpus;
    ssm_recording *recording;
    ssm_results *results;
    ssm_journal *journal;
    char *plan; /* JSON: all that the cells depend on */
    cli_sweep_rule *rules;
    int64_t n_rules;
    const char *scopes[4];
    int64_t n_scopes;
    const int64_t *budgets; /* of the arguments, or default_budgets */
    int64_t n_budgets, default_budgets[3];
    int64_t *protocols; /* [n_protocols] first scored tokens, rising; −1: full */
    int64_t n_protocols;
    cli_sweep_cell *cells;
    int64_t n_cells, windows; /* windows of a cell */
} cli_sweep;

/* The lists of the command line, the protocols, the cells, the plan; source, corpus and recording
 * are open. Errors: USAGE (a rule, scope or budget that does not exist, domains that the recording
 * does not have), MEMORY. */
ssm_status cli_sweep_plan(cli_sweep *sweep, ssm_error *err);
void cli_sweep_plan_free(cli_sweep *sweep);

/* Makes the masks, scores all cells and fills in their statistics. */
ssm_status cli_sweep_run(cli_sweep *sweep, ssm_error *err);

/* `rules` (without those that are hidden), `budgets`, `scopes`. */
void cli_sweep_json_lists(const cli_sweep *sweep, cli_json *json);
/* sweep.json, sweep.csv and table.md in the directory; the JSON or the table on stdout. */
ssm_status cli_sweep_write(const cli_sweep *sweep, ssm_error *err);
/* The tables as aligned text, or as Markdown with every interval and domain. */
ssm_status cli_sweep_print_text(const cli_sweep *sweep, FILE *out, ssm_error *err);
ssm_status cli_sweep_print_markdown(const cli_sweep *sweep, FILE *out, ssm_error *err);

#endif
