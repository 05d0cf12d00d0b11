#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "eval_output.h"
#include "masks.h"
#include "messages.h"

static const char unpruned[] = "unpruned";

typedef struct eval_arguments {
    const char *model, *mask, *rule, *recording, *protocol;
    cli_texts texts, against;
    int64_t budget, scope, window, windows, offset, bootstrap, seed, invalid_utf8;
    cli_load load;
} eval_arguments;

typedef struct eval_state {
    cli_context *context;
    const eval_arguments *args;
    cli_source source;
    ssm_corpus corpus;
    cli_evaluation evaluation;
    cli_scored baseline; /* scored when anything needs it */
} eval_state;

/* "full", or "continuation:T" with T ≥ 1. */
static ssm_status parse_protocol(const char *text, int64_t *continuation, ssm_error *err)
{
    static const char prefix[] = "continuation:";
    *continuation = -1;
    if (strcmp(text, "full") == 0) {
        return SSM_STATUS_OK;
    }
    if (strncmp(text, prefix, sizeof prefix - 1) == 0) {
        const char *digits = text + sizeof prefix - 1;
        char *end = NULL;
        errno = 0;
        long long value = strtoll(digits, &end, 10);
        if (digits[0] >= '0' && digits[0] <= '9' && *end == '\0' && errno == 0 && value >= 1) {
            *continuation = value;
            return SSM_STATUS_OK;
        }
    }
    return cli_fail(err, SSM_STATUS_USAGE, NULL,
                    "--protocol: expected full or continuation:T with T at least 1, found '%s'",
                    text);
}

/* ---- scoring --------------------------------------------------------------------------------- */

static ssm_status score(eval_state *state, const ssm_mask *mask, cli_scored *out, ssm_error *err)
{
    const eval_arguments *args = state->args;
    int64_t n_domains = state->corpus.n_domains;
    ssm_pool *pool = NULL;
    ssm_status status = cli_pool(state->context, &pool, err);
    const ssm_score_options options = {.window = args->window,
                                       .windows = args->windows,
                                       .offset = args->offset,
                                       .continuation = state->evaluation.continuation,
                                       .exact_chunks = args->load.exact_chunks,
                                       .pool = pool,
                                       .progress = cli_progress_start(state->context)};
    if (status == SSM_STATUS_OK) {
        status = ssm_score_windows(state->source.model, &state->corpus, mask, &options,
                                   &out->scores, &out->count, err);
    }
    cli_progress_clear(state->context);
    out->results = calloc((size_t)n_domains + 1, sizeof *out->results);
    if (out->results == NULL) {
        return cli_no_memory(err);
    }
    const ssm_bootstrap_options bootstrap = {.resamples = args->bootstrap,
                                             .seed = (uint64_t)args->seed};
    for (int64_t d = 0; status == SSM_STATUS_OK && d <= n_domains; d++) {
        status = ssm_perplexity_of(out->scores, out->count, n_domains, d == n_domains ? -1 : d,
                                   &bootstrap, &out->results[d], err);
    }
    return status;
}

static void free_scored(cli_scored *scored)
{
    ssm_scores_free(scored->scores);
    free(scored->results);
    *scored = (cli_scored){0};
}

/* A mask file, or a rule run on the recording. */
static ssm_status open_mask(eval_state *state, const char *mask, const char *rule, ssm_mask *out,
                            ssm_error *err)
{
    const eval_arguments *args = state->args;
    if (mask != NULL) {
        return cli_mask_read(mask, &state->source, out, err);
    }
    static const char *const scopes[] = {"channel", "head", "group", "layer"};
    const ssm_select_options options = {.rule = rule,
                                        .budget = args->budget,
                                        .scope = scopes[args->scope],
                                        .seed = (uint64_t)args->seed};
    return cli_mask_select(args->recording, &state->source, &options, out, err);
}

static ssm_status score_main(eval_state *state, ssm_error *err)
{
    const eval_arguments *args = state->args;
    cli_evaluation *evaluation = &state->evaluation;
    evaluation->main.name = args->mask != NULL ? args->mask : args->rule;
    if (evaluation->main.name == NULL) {
        evaluation->main.name = unpruned;
        return score(state, NULL, &evaluation->main, err);
    }
    ssm_mask mask = {0};
    ssm_status status = open_mask(state, args->mask, args->rule, &mask, err);
    evaluation->budget = mask.budget;
    snprintf(evaluation->rule, sizeof evaluation->rule, "%s", mask.rule);
    status = status == SSM_STATUS_OK ? score(state, &mask, &evaluation->main, err) : status;
    ssm_mask_free(&mask);
    state->baseline.name = unpruned;
    status = status == SSM_STATUS_OK ? score(state, NULL, &state->baseline, err) : status;
    evaluation->baseline = &state->baseline;
    return status;
}

static ssm_status score_other(eval_state *state, const char *name, cli_scored *out, ssm_error *err)
{
    out->name = name;
    if (strcmp(name, unpruned) == 0) {
        /* Scored already: as the baseline, or as the model itself. */
        *out = state->evaluation.baseline != NULL ? state->baseline : state->evaluation.main;
        out->shared = true;
        return SSM_STATUS_OK;
    }
    ssm_mask mask = {0};
    bool rule = cli_is_rule(name);
    ssm_status status = open_mask(state, rule ? NULL : name, rule ? name : NULL, &mask, err);
    status = status == SSM_STATUS_OK ? score(state, &mask, out, err) : status;
    ssm_mask_free(&mask);
    return status;
}

static ssm_status score_others(eval_state *state, ssm_error *err)
{
    const cli_texts *against = &state->args->against;
    if (against->count == 0) {
        return SSM_STATUS_OK;
    }
    state->evaluation.others = calloc((size_t)against->count, sizeof(cli_scored));
    if (state->evaluation.others == NULL) {
        return cli_no_memory(err);
    }
    state->evaluation.n_others = against->count;
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; status == SSM_STATUS_OK && i < against->count; i++) {
        status = score_other(state, against->values[i], &state->evaluation.others[i], err);
    }
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Combinations that the table cannot say. */
static ssm_status check_arguments(const eval_arguments *args, ssm_error *err)
{
    bool needs_recording = args->rule != NULL;
    for (int64_t i = 0; i < args->against.count; i++) {
        needs_recording = needs_recording || cli_is_rule(args->against.values[i]);
        for (int64_t k = 0; k < i; k++) {
            if (strcmp(args->against.values[i], args->against.values[k]) == 0) {
                return cli_fail(err, SSM_STATUS_USAGE, NULL, "--against %s is given twice",
                                args->against.values[i]);
            }
        }
    }
    if (needs_recording && args->recording == NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "a rule needs --recording REC to choose on");
    }
    if (needs_recording && args->budget == CLI_UNSET) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "a rule needs --budget R: modes to keep");
    }
    if (!needs_recording && (args->recording != NULL || args->budget != CLI_UNSET)) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--recording and --budget need --rule");
    }
    return SSM_STATUS_OK;
}

/* Windows on which the set was chosen say little about what it costs elsewhere. */
static ssm_status note_overlap(eval_state *state, ssm_error *err)
{
    const eval_arguments *args = state->args;
    if (args->recording == NULL) {
        return SSM_STATUS_OK;
    }
    ssm_recording *recording = NULL;
    ssm_status status = ssm_recording_open(args->recording, &recording, err);
    int64_t last = 0;
    for (int64_t i = 0; status == SSM_STATUS_OK && i < ssm_recording_window_count(recording); i++) {
        const ssm_recording_window *window = ssm_recording_get_window(recording, i);
        int64_t end = window->token_offset + window->tokens;
        for (int64_t d = 0; window->role == SSM_ROLE_CALIBRATION && d < state->corpus.n_domains;
             d++) {
            if (strcmp(state->corpus.domains[d].name, window->domain) == 0 && end > last) {
                last = end;
            }
        }
    }
    ssm_recording_close(recording);
    int64_t wanted = (last + args->window - 1) / args->window;
    if (status == SSM_STATUS_OK && args->offset < wanted) {
        cli_note(state->context,
                 "note: the recording was calibrated on the first windows of domains of these "
                 "names; if the texts are the same, --offset %lld leaves them out",
                 (long long)wanted);
    }
    return status;
}

static ssm_status evaluate(eval_state *state, ssm_error *err)
{
    const eval_arguments *args = state->args;
    ssm_status status =
        cli_open_with_texts(state->context, args->model, &args->load, &args->texts,
                            args->invalid_utf8, &state->source, &state->corpus, err);
    status = status == SSM_STATUS_OK ? note_overlap(state, err) : status;
    status = status == SSM_STATUS_OK ? score_main(state, err) : status;
    status = status == SSM_STATUS_OK ? score_others(state, err) : status;
    if (status != SSM_STATUS_OK) {
        return status;
    }
    return state->context->globals.json
               ? cli_eval_json(state->context, &state->source, &state->evaluation, err)
               : cli_eval_print(&state->source, &state->evaluation, err);
}

static ssm_status run_eval(cli_context *context, const void *arguments, ssm_error *err)
{
    const eval_arguments *args = arguments;
    eval_state state = {.context = context, .args = args};
    state.evaluation = (cli_evaluation){.corpus = &state.corpus,
                                        .window = args->window,
                                        .offset = args->offset,
                                        .seed = args->seed,
                                        .resamples = args->bootstrap,
                                        .mask_path = args->mask};
    ssm_status status = check_arguments(args, err);
    if (status == SSM_STATUS_OK) {
        status = parse_protocol(args->protocol, &state.evaluation.continuation, err);
    }
    status = status == SSM_STATUS_OK ? evaluate(&state, err) : status;
    for (int64_t i = 0; i < state.evaluation.n_others; i++) {
        if (!state.evaluation.others[i].shared) {
            free_scored(&state.evaluation.others[i]);
        }
    }
    free(state.evaluation.others);
    free_scored(&state.evaluation.main);
    free_scored(&state.baseline);
    ssm_corpus_free(&state.corpus);
    cli_source_close(&state.source);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const cli_positional eval_positionals[] = {CLI_MODEL_ENTRY(eval_arguments),
                                                  CLI_TEXT_ENTRY(eval_arguments)};

static const cli_option eval_options[] = {
    {.name = "mask",
     .kind = CLI_TEXT,
     .into = offsetof(eval_arguments, mask),
     .argument = "MASK",
     .conflicts = "rule",
     .help = "Judge the model with only the modes that this mask keeps."},
    {.name = "rule",
     .kind = CLI_TEXT,
     .into = offsetof(eval_arguments, rule),
     .argument = "RULE",
     .words = ssm_select_rules,
     .help = "Choose the modes by a rule, as select does, with --recording and --budget."},
    {.name = "recording",
     .kind = CLI_TEXT,
     .into = offsetof(eval_arguments, recording),
     .argument = "REC",
     .help = "The recording that a rule chooses on."},
    {.name = "budget",
     .kind = CLI_INTEGER,
     .into = offsetof(eval_arguments, budget),
     .argument = "R",
     .min = 1,
     .max = 65536,
     .help = "Modes that a rule keeps in every channel (or head)."},
    {.name = "scope",
     .kind = CLI_CHOICE,
     .into = offsetof(eval_arguments, scope),
     .choices = "channel|head|group|layer",
     .fallback = "channel",
     .help = "What a rule chooses a set for: every channel, (Mamba-2) every head or group, or the "
             "whole layer."},
    {.name = "against",
     .kind = CLI_TEXTS,
     .into = offsetof(eval_arguments, against),
     .argument = "WHAT",
     .words = ssm_select_rules,
     .help =
         "Compare with this too: unpruned, a mask file, or a rule. May be repeated. With --mask "
         "or --rule the unpruned model is always compared."},
    {.name = "window",
     .kind = CLI_INTEGER,
     .into = offsetof(eval_arguments, window),
     .argument = "T",
     .fallback = "1024",
     .min = 2,
     .max = 1 << 24,
     .help = "Tokens of a window. Every window starts from the zero state."},
    {.name = "windows",
     .kind = CLI_INTEGER,
     .into = offsetof(eval_arguments, windows),
     .argument = "K",
     .fallback = "0",
     .min = 0,
     .max = INT32_MAX,
     .help = "Windows of every domain; 0 is as many as there are."},
    {.name = "offset",
     .kind = CLI_INTEGER,
     .into = offsetof(eval_arguments, offset),
     .argument = "W",
     .fallback = "0",
     .min = 0,
     .max = INT32_MAX,
     .help = "Skip the first W windows of every domain, for example those of the calibration."},
    {.name = "protocol",
     .kind = CLI_TEXT,
     .into = offsetof(eval_arguments, protocol),
     .argument = "P",
     .fallback = "full",
     .help = "full scores every token of a window but the first; continuation:T scores from token "
             "T on."},
    {.name = "bootstrap",
     .kind = CLI_INTEGER,
     .into = offsetof(eval_arguments, bootstrap),
     .argument = "B",
     .fallback = "10000",
     .min = 1,
     .max = 10000000,
     .help = "Resamples for the intervals."},
    {.name = "seed",
     .kind = CLI_INTEGER,
     .into = offsetof(eval_arguments, seed),
     .argument = "S",
     .fallback = "0",
     .min = 0,
     .max = INT64_MAX,
     .help = "Seed of the resampling."},
    CLI_INVALID_UTF8_ENTRY(eval_arguments),
    CLI_LOAD_ENTRIES(eval_arguments),
    CLI_EXACT_CHUNKS_ENTRY(eval_arguments),
};

static const char *const eval_examples[] = {
    "ssmscope eval tiny prose=a.txt code=b.txt",
    "Perplexity with 95 % intervals.",
    "ssmscope eval tiny a.txt --mask mask.safetensors --offset 16",
    "What a mask costs, on windows that it was not chosen on.",
    "ssmscope eval tiny a.txt --rule static --budget 8 --recording rec",
    "Choose and judge at once.",
    NULL};

const cli_command cli_command_eval = {
    .name = "eval",
    .summary = "perplexity with intervals, and what a mask costs",
    .description =
        "Scores fixed windows of text and prints the perplexity with 95 % intervals, for "
        "every domain and all together. With a mask or a rule, also the paired "
        "difference to the unpruned model on the same windows.",
    .examples = eval_examples,
    .positionals = eval_positionals,
    .n_positionals = sizeof eval_positionals / sizeof *eval_positionals,
    .options = eval_options,
    .n_options = sizeof eval_options / sizeof *eval_options,
    .arguments_size = sizeof(eval_arguments),
    .run = run_eval,
};
