#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "eval_options.h"
#include "eval_state.h"
#include "masks.h"
#include "messages.h"
#include "rules.h"

/* ---- scoring --------------------------------------------------------------------------------- */

/* adapter: of a rule that chooses for every window; NULL: a mask, or none. */
static ssm_status score_options(cli_eval_state *state, const char *series,
                                const ssm_adapter *adapter, ssm_score_options *out, ssm_error *err)
{
    const cli_eval_arguments *args = state->args;
    ssm_pool *pool = NULL;
    ssm_status status = cli_pool(state->context, &pool, err);
    *out = (ssm_score_options){.window = args->window,
                               .windows = args->windows,
                               .offset = args->offset,
                               .continuation = state->evaluation.continuation,
                               .exact_chunks = args->load.exact_chunks,
                               .pool = pool,
                               .progress = cli_progress_start(state->context),
                               .journal = state->journal,
                               .series = series,
                               .chooser = adapter != NULL ? ssm_adapt_chooser(adapter) : NULL};
    return status;
}

static ssm_status summarise(const cli_eval_state *state, cli_scored *out, ssm_error *err)
{
    const ssm_bootstrap_options bootstrap = {.resamples = state->args->bootstrap,
                                             .seed = (uint64_t)state->args->seed};
    return cli_scored_summarise(out, &state->corpus, &bootstrap, err);
}

static ssm_status score(cli_eval_state *state, const ssm_mask *mask, const ssm_adapter *adapter,
                        cli_scored *out, ssm_error *err)
{
    ssm_score_options options;
    ssm_status status = score_options(state, out->name, adapter, &options, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_score_windows(state->source.model, &state->corpus, mask, &options,
                                   &out->scores, &out->count, err);
    }
    cli_progress_clear(state->context);
    return status == SSM_STATUS_OK ? summarise(state, out, err) : status;
}

/* The pruned model and the unpruned one in one pass, with what lies between them. */
static ssm_status score_both(cli_eval_state *state, const ssm_mask *mask,
                             const ssm_adapter *adapter, ssm_error *err)
{
    cli_scored *pruned = &state->evaluation.main;
    cli_scored *base = &state->baseline;
    const ssm_bootstrap_options bootstrap = {.resamples = state->args->bootstrap,
                                             .seed = (uint64_t)state->args->seed};
    ssm_score_options options;
    ssm_status status = score_options(state, pruned->name, adapter, &options, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_score_divergence(state->source.model, &state->corpus, mask, &options,
                                      &bootstrap, &base->scores, &pruned->scores, &pruned->count,
                                      &state->evaluation.divergence, err);
    }
    cli_progress_clear(state->context);
    base->count = pruned->count;
    status = status == SSM_STATUS_OK ? summarise(state, base, err) : status;
    return status == SSM_STATUS_OK ? summarise(state, pruned, err) : status;
}

/* A mask, or a rule that chooses for every window. */
static ssm_status open_model(cli_eval_state *state, const char *mask_path, const char *rule,
                             ssm_mask *mask, ssm_adapter **adapter, ssm_error *err)
{
    return rule != NULL && ssm_adapt_is_rule(rule)
               ? cli_eval_adapter(state, rule, adapter, err)
               : cli_eval_mask(state, mask_path, rule, mask, err);
}

static ssm_status score_main(cli_eval_state *state, ssm_error *err)
{
    const cli_eval_arguments *args = state->args;
    cli_evaluation *evaluation = &state->evaluation;
    evaluation->main.name = args->mask != NULL ? args->mask : state->rule;
    if (evaluation->main.name == NULL) {
        evaluation->main.name = cli_unpruned;
        return score(state, NULL, NULL, &evaluation->main, err);
    }
    ssm_mask mask = {0};
    ssm_adapter *adapter = NULL;
    ssm_status status = open_model(state, args->mask, state->rule, &mask, &adapter, err);
    evaluation->budget = adapter != NULL ? args->budget : mask.budget;
    snprintf(evaluation->rule, sizeof evaluation->rule, "%s",
             adapter != NULL ? state->rule : mask.rule);
    state->baseline.name = cli_unpruned;
    evaluation->baseline = &state->baseline;
    status = status == SSM_STATUS_OK ? score_both(state, &mask, adapter, err) : status;
    ssm_mask_free(&mask);
    ssm_adapt_free(adapter);
    return status;
}

static ssm_status score_other(cli_eval_state *state, const char *name, cli_scored *out,
                              ssm_error *err)
{
    out->name = name;
    if (strcmp(name, cli_unpruned) == 0) {
        /* Scored already: as the baseline, or as the model itself. */
        *out = state->evaluation.baseline != NULL ? state->baseline : state->evaluation.main;
        out->shared = true;
        return SSM_STATUS_OK;
    }
    ssm_mask mask = {0};
    ssm_adapter *adapter = NULL;
    bool rule = cli_is_rule(name);
    ssm_status status =
        open_model(state, rule ? NULL : name, rule ? name : NULL, &mask, &adapter, err);
    status = status == SSM_STATUS_OK ? score(state, &mask, adapter, out, err) : status;
    ssm_mask_free(&mask);
    ssm_adapt_free(adapter);
    return status;
}

static ssm_status score_others(cli_eval_state *state, ssm_error *err)
{
    const int64_t count = state->against.count - state->first_against;
    const char *const *names = state->against.values + state->first_against;
    if (count == 0) {
        return SSM_STATUS_OK;
    }
    state->evaluation.others = calloc((size_t)count, sizeof(cli_scored));
    if (state->evaluation.others == NULL) {
        return cli_no_memory(err);
    }
    state->evaluation.n_others = count;
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; status == SSM_STATUS_OK && i < count; i++) {
        status = score_other(state, names[i], &state->evaluation.others[i], err);
    }
    return status;
}

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

static ssm_status note_overlap(cli_eval_state *state, ssm_error *err)
{
    const cli_eval_arguments *args = state->args;
    ssm_recording *recording = NULL;
    if (args->recording == NULL) {
        return SSM_STATUS_OK;
    }
    ssm_status status = ssm_recording_open(args->recording, &recording, err);
    if (status == SSM_STATUS_OK) {
        cli_note_overlap(state->context, recording, &state->corpus, args->window, args->offset);
    }
    ssm_recording_close(recording);
    return status;
}

static ssm_status evaluate_windows(cli_eval_state *state, ssm_error *err)
{
    ssm_status status = note_overlap(state, err);
    status = status == SSM_STATUS_OK ? cli_eval_journal(state, NULL, err) : status;
    status = status == SSM_STATUS_OK ? score_main(state, err) : status;
    status = status == SSM_STATUS_OK ? score_others(state, err) : status;
    if (status != SSM_STATUS_OK) {
        return status;
    }
    return state->context->globals.json
               ? cli_eval_json(state->context, &state->source, &state->evaluation, err)
               : cli_eval_print(&state->source, &state->evaluation, err);
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
                                                   : evaluate_windows(state, err);
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
