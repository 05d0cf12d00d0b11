/* cli/eval_state.h: what the files of `eval` share. */
#ifndef SSM_CLI_EVAL_STATE_H
#define SSM_CLI_EVAL_STATE_H

#include <ssmscope/adapt.h>
#include <ssmscope/tasks.h>
#include <time.h>

#include "eval_output.h"
#include "protocol.h"

/* The defaults of --window and --max-length: another value was asked for. */
enum { CLI_EVAL_WINDOW = 1024, CLI_EVAL_MAX_LENGTH = 2048 };

typedef struct cli_eval_arguments {
    const char *model, *mask, *rule, *recording, *protocol;
    const char *task, *data, *prefix_token, *harness_json, *items;
    cli_texts texts, against;
    int64_t budget, scope, window, windows, offset, bootstrap, seed, invalid_utf8;
    int64_t limit, max_length, documents, harness_bootstrap;
    double ridge;
    bool resume;
    cli_load load;
} cli_eval_arguments;

typedef struct cli_eval_state {
    cli_context *context;
    const cli_eval_arguments *args;
    cli_protocol protocol;
    cli_source source;
    ssm_corpus corpus; /* not of tasks */
    ssm_journal *journal;
    int32_t prefix_id; /* −1: none */
    const char *prefix_source;
    /* The rule to judge, and what stands beside it, lists of prefixes taken apart: */
    const char *rule;
    cli_texts against;     /* the rule itself first, where there is one; owned */
    int64_t first_against; /* 1 with a rule */
    cli_evaluation evaluation;
    cli_scored baseline; /* scored when anything needs it */
} cli_eval_state;

/* A model to judge: with a mask, or unpruned. */
typedef struct cli_variant {
    const char *name; /* as it was asked for: "unpruned", a mask file, a rule */
    bool masked;
    ssm_mask mask;
    ssm_adapter *adapter; /* `scheduled`: in place of the mask; else NULL */
} cli_variant;

extern const char cli_unpruned[]; /* "unpruned" */

/* Fills rule, against and, for protocol auto, the continuation. Errors: USAGE, MEMORY. */
ssm_status cli_eval_plan(cli_eval_state *state, ssm_error *err);
void cli_eval_plan_free(cli_eval_state *state);
/* What a rule makes of the recording of the command: a mask, or, where it chooses for every window,
 * an adapter; the source and the corpus are open. *out for cli_variants_free. Errors: as
 * ssm_select, ssm_ghost_select and ssm_adapt_create; FILE (recorded from another model). */
ssm_status cli_eval_choose(cli_eval_state *state, const char *rule, cli_variant *out,
                           ssm_error *err);
/* The models of the command: first the one to judge, then, where that one is pruned, the unpruned
 * one, then those of --against. *out for cli_variants_free, also after an error. */
ssm_status cli_variants_open(cli_eval_state *state, cli_variant **out, int64_t *count,
                             ssm_error *err);
void cli_variants_free(cli_variant *variants, int64_t count);

/* What a way to evaluate writes of model i of the variants, and of the one to judge less it. */
typedef struct cli_variant_json {
    const void *run;
    void (*model)(cli_json *json, json_t *object, const void *run, int64_t i);
    ssm_status (*difference)(cli_json *json, json_t *object, const void *run, int64_t i,
                             ssm_error *err);
} cli_variant_json;
/* `judged` and the model to judge at the root; `baseline` and `difference` where that one is
 * pruned; `others` and `differences` where there are such. Errors: those of difference. */
ssm_status cli_variants_json(cli_json *json, const cli_variant *variants, int64_t count,
                             const cli_variant_json *put, ssm_error *err);

/* --items: opened when given. digest: of what is scored (the data of a task), or NULL. */
ssm_status cli_eval_journal(cli_eval_state *state, const char *digest, ssm_error *err);
/* --harness-json: writes run, with what every evaluation has in common filled in here. */
ssm_status cli_eval_write_harness(const cli_eval_state *state, ssm_harness_run *run,
                                  const struct timespec *started, ssm_error *err);
/* The token of --prefix-token. */
ssm_status cli_eval_prefix(cli_eval_state *state, ssm_error *err);

/* The ways to evaluate. The source is open, and for texts the corpus. */
ssm_status cli_eval_windows(cli_eval_state *state, ssm_error *err);
ssm_status cli_eval_task(cli_eval_state *state, ssm_error *err);
ssm_status cli_eval_rolling(cli_eval_state *state, ssm_error *err);

#endif
