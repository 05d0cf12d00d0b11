#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "eval_options.h"
#include "eval_state.h"
#include "messages.h"

/* ---- the command ----------------------------------------------------------------------------- */

/* An option of one way to evaluate is a mistake in another. */
static ssm_status check_way(const cli_eval_state *state, ssm_error *err)
{
    const cli_eval_arguments *args = state->args;
    const bool rolling = state->protocol >= CLI_PROTOCOL_ROLLING;
    const bool windows = args->task == NULL && !rolling;
    const char *wrong = NULL;
    if (args->task != NULL && args->texts.count > 0) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--task scores the items of --data: '%s' is one word too many",
                        args->texts.values[0]);
    }
    if (args->task != NULL && args->data == NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--task needs --data FILE.jsonl: its items");
    }
    if (args->task == NULL && args->data != NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--data needs --task: what its items are");
    }
    if (args->task == NULL && args->texts.count == 0) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "eval: TEXT is missing (or --task)");
    }
    if (args->resume && args->items == NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--resume needs --items FILE: what to resume");
    }
    if (args->task != NULL && strcmp(args->protocol, "full") != 0 &&
        strcmp(args->protocol, "auto") != 0) {
        wrong = "--protocol is for texts, --task scores items";
    } else if (args->task == NULL && args->limit != 0) {
        wrong = "--limit is for --task";
    } else if (args->harness_json != NULL && args->task == NULL &&
               (state->protocol != CLI_PROTOCOL_ROLLING || args->documents == 0)) {
        wrong = "--harness-json is for --task and for --protocol rolling --documents wikitext";
    } else if (!rolling && args->documents != 0) {
        wrong = "--documents is for --protocol rolling and stateful";
    } else if (!windows &&
               (args->window != CLI_EVAL_WINDOW || args->windows != 0 || args->offset != 0)) {
        wrong = "--window, --windows and --offset are for windows of text; a task or a whole "
                "document takes all of it, --max-length tokens at once";
    } else if (windows && args->max_length != CLI_EVAL_MAX_LENGTH) {
        wrong = "--max-length is for --task and --protocol rolling; windows have --window tokens";
    }
    return wrong == NULL ? SSM_STATUS_OK : cli_fail(err, SSM_STATUS_USAGE, NULL, "%s", wrong);
}

static ssm_status check_arguments(cli_eval_state *state, ssm_error *err)
{
    ssm_status status = cli_protocol_parse(state->args->protocol, &state->protocol,
                                           &state->evaluation.continuation, err);
    status = status == SSM_STATUS_OK ? cli_eval_plan(state, err) : status;
    return status == SSM_STATUS_OK ? check_way(state, err) : status;
}

static ssm_status evaluate(cli_eval_state *state, ssm_error *err)
{
    const cli_eval_arguments *args = state->args;
    if (args->task != NULL) {
        return cli_eval_task(state, err);
    }
    ssm_status status =
        cli_open_with_texts(state->context, args->model, &args->load, &args->texts,
                            args->invalid_utf8, &state->source, &state->corpus, err);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    return state->protocol >= CLI_PROTOCOL_ROLLING ? cli_eval_rolling(state, err)
                                                   : cli_eval_windows(state, err);
}

static ssm_status run_eval(cli_context *context, const void *arguments, ssm_error *err)
{
    const cli_eval_arguments *args = arguments;
    cli_eval_state state = {.context = context, .args = args, .prefix_id = -1};
    state.evaluation = (cli_evaluation){.corpus = &state.corpus,
                                        .window = args->window,
                                        .offset = args->offset,
                                        .seed = args->seed,
                                        .resamples = args->bootstrap,
                                        .mask_path = args->mask};
    ssm_status status = check_arguments(&state, err);
    status = status == SSM_STATUS_OK ? evaluate(&state, err) : status;
    ssm_status closed = ssm_journal_close(state.journal, status == SSM_STATUS_OK, err);
    status = status == SSM_STATUS_OK ? closed : status;
    for (int64_t i = 0; i < state.evaluation.n_others; i++) {
        if (!state.evaluation.others[i].shared) {
            cli_scored_free(&state.evaluation.others[i]);
        }
    }
    free(state.evaluation.others);
    cli_scored_free(&state.evaluation.main);
    cli_scored_free(&state.baseline);
    ssm_corpus_free(&state.corpus);
    cli_source_close(&state.source);
    cli_eval_plan_free(&state);
    return status;
}

const cli_command cli_command_eval = {
    .name = "eval",
    .summary = "perplexity with intervals, tasks, and what a mask costs",
    .description =
        "Scores fixed windows of text and prints the perplexity with 95 % intervals, for "
        "every domain and all together. With a mask or a rule, also the paired "
        "difference to the unpruned model on the same windows, and how far the predictions "
        "are apart: mean KL divergence, share of the same first choice.\n\n"
        "--protocol rolling scores whole documents as lm-evaluation-harness does; --task "
        "scores its multiple-choice tasks and LAMBADA from JSON lines. Their numbers are "
        "the harness's, where model and data are.",
    .examples = cli_eval_examples,
    .positionals = cli_eval_positionals,
    .n_positionals = CLI_EVAL_POSITIONALS,
    .options = cli_eval_options,
    .n_options = CLI_EVAL_OPTIONS,
    .arguments_size = sizeof(cli_eval_arguments),
    .run = run_eval,
};
