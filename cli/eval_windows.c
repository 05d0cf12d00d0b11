/* cli/eval_windows.c: every model of `eval` on fixed windows of text: the pruned ones in one pass
 * with the unpruned one, so that what lies between them is known, too. */
#include <stdlib.h>
#include <string.h>

#include "eval_state.h"
#include "messages.h"
#include "rules.h"

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

static ssm_status summarise(const cli_eval_state *state, cli_scored *out, ssm_error *err)
{
    const ssm_bootstrap_options bootstrap = {.resamples = state->args->bootstrap,
                                             .seed = (uint64_t)state->args->seed};
    return cli_scored_summarise(out, &state->corpus, &bootstrap, err);
}

static ssm_status score_options(cli_eval_state *state, ssm_score_options *out, ssm_error *err)
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
                               .series = cli_unpruned};
    return status;
}

/* Nothing is pruned. */
static ssm_status score_alone(cli_eval_state *state, ssm_error *err)
{
    cli_scored *out = &state->evaluation.main;
    ssm_score_options options;
    ssm_status status = score_options(state, &options, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_score_windows(state->source.model, &state->corpus, NULL, &options,
                                   &out->scores, &out->count, err);
    }
    cli_progress_clear(state->context);
    return status == SSM_STATUS_OK ? summarise(state, out, err) : status;
}

/* pruned[k] is what scored[k] will be. */
static ssm_status score_pruned(cli_eval_state *state, ssm_pruned *pruned, cli_scored **scored,
                               int64_t count, ssm_error *err)
{
    cli_evaluation *evaluation = &state->evaluation;
    cli_scored *base = evaluation->baseline != NULL ? evaluation->baseline : &evaluation->main;
    const ssm_bootstrap_options bootstrap = {.resamples = state->args->bootstrap,
                                             .seed = (uint64_t)state->args->seed};
    ssm_score_options options;
    ssm_status status = score_options(state, &options, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_score_divergences(state->source.model, &state->corpus, pruned, count, &options,
                                       &bootstrap, &base->scores, &base->count, err);
    }
    cli_progress_clear(state->context);
    status = status == SSM_STATUS_OK ? summarise(state, base, err) : status;
    for (int64_t i = 0; i < count; i++) {
        scored[i]->scores = pruned[i].scores;
        scored[i]->count = base->count;
        scored[i]->diverges = true;
        scored[i]->divergence = pruned[i].divergence;
        status = status == SSM_STATUS_OK ? summarise(state, scored[i], err) : status;
    }
    return status;
}

/* The models in the places where they are reported: main, the unpruned one beside it, others. */
static ssm_status place_models(cli_eval_state *state, ssm_error *err)
{
    cli_evaluation *evaluation = &state->evaluation;
    const int64_t count = state->against.count - state->first_against;
    evaluation->main.name = state->args->mask != NULL ? state->args->mask : state->rule;
    if (evaluation->main.name == NULL) {
        evaluation->main.name = cli_unpruned;
    } else {
        state->baseline.name = cli_unpruned;
        evaluation->baseline = &state->baseline;
    }
    evaluation->others = count > 0 ? calloc((size_t)count, sizeof(cli_scored)) : NULL;
    if (count > 0 && evaluation->others == NULL) {
        return cli_no_memory(err);
    }
    evaluation->n_others = count;
    for (int64_t i = 0; i < count; i++) {
        evaluation->others[i].name = state->against.values[state->first_against + i];
        evaluation->others[i].shared = strcmp(evaluation->others[i].name, cli_unpruned) == 0;
    }
    return SSM_STATUS_OK;
}

/* Lists the pruned models: the variants that are masked stand in the order of their places. */
static int64_t list_pruned(cli_eval_state *state, const cli_variant *variants, int64_t n_variants,
                           ssm_pruned *pruned, cli_scored **scored)
{
    cli_evaluation *evaluation = &state->evaluation;
    int64_t count = 0;
    if (evaluation->baseline != NULL) {
        scored[count++] = &evaluation->main;
    }
    for (int64_t i = 0; i < evaluation->n_others; i++) {
        if (!evaluation->others[i].shared) {
            scored[count++] = &evaluation->others[i];
        }
    }
    for (int64_t i = 0, k = 0; i < n_variants && k < count; i++) {
        const cli_variant *variant = &variants[i];
        if (variant->masked) {
            pruned[k] = (ssm_pruned){.mask = &variant->mask, .series = scored[k]->name};
            if (variant->adapter != NULL) {
                pruned[k].chooser = ssm_adapt_chooser(variant->adapter);
            }
            k++;
        }
    }
    return count;
}

/* What the report says about the set of the model to judge. */
static void describe_main(cli_eval_state *state, const cli_variant *variant)
{
    cli_evaluation *evaluation = &state->evaluation;
    const bool adapts = variant->adapter != NULL;
    if (variant->masked) {
        evaluation->budget = adapts ? state->args->budget : variant->mask.budget;
        snprintf(evaluation->rule, sizeof evaluation->rule, "%s",
                 adapts ? state->rule : variant->mask.rule);
    }
}

static ssm_status score_all(cli_eval_state *state, const cli_variant *variants, int64_t n_variants,
                            ssm_error *err)
{
    cli_evaluation *evaluation = &state->evaluation;
    ssm_pruned *pruned = calloc((size_t)n_variants, sizeof *pruned);
    cli_scored **scored = calloc((size_t)evaluation->n_others + 1, sizeof *scored);
    ssm_status status = SSM_STATUS_OK;
    if (pruned == NULL || scored == NULL) {
        status = cli_no_memory(err);
    } else {
        const int64_t count = list_pruned(state, variants, n_variants, pruned, scored);
        describe_main(state, &variants[0]);
        status =
            count == 0 ? score_alone(state, err) : score_pruned(state, pruned, scored, count, err);
    }
    free(pruned);
    free((void *)scored);
    for (int64_t i = 0; i < evaluation->n_others; i++) {
        if (evaluation->others[i].shared) {
            evaluation->others[i] =
                evaluation->baseline != NULL ? *evaluation->baseline : evaluation->main;
            evaluation->others[i].shared = true;
        }
    }
    return status;
}

ssm_status cli_eval_windows(cli_eval_state *state, ssm_error *err)
{
    cli_variant *variants = NULL;
    int64_t count = 0;
    ssm_status status = note_overlap(state, err);
    status = status == SSM_STATUS_OK ? cli_eval_journal(state, NULL, err) : status;
    status = status == SSM_STATUS_OK ? place_models(state, err) : status;
    status = status == SSM_STATUS_OK ? cli_variants_open(state, &variants, &count, err) : status;
    status = status == SSM_STATUS_OK ? score_all(state, variants, count, err) : status;
    cli_variants_free(variants, count);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    return state->context->globals.json
               ? cli_eval_json(state->context, &state->source, &state->evaluation, err)
               : cli_eval_print(&state->source, &state->evaluation, err);
}
