#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands.h"
#include "masks.h"
#include "messages.h"
#include "sweep.h"

/* A finished sweep's windows are taken up again as those of a stopped one are. */
static ssm_status open_journal(cli_sweep *sweep, ssm_error *err)
{
    const cli_sweep_arguments *args = sweep->args;
    char path[PATH_MAX], partial[PATH_MAX];
    struct stat info;
    const int length = snprintf(path, sizeof path, "%s/windows.jsonl", args->output);
    const int longer = snprintf(partial, sizeof partial, "%s/windows.jsonl.partial", args->output);
    if (length >= PATH_MAX || longer >= PATH_MAX) {
        return cli_fail(err, SSM_STATUS_USAGE, args->output, "the path is too long");
    }
    if (args->resume && stat(partial, &info) != 0 && rename(path, partial) != 0 &&
        errno != ENOENT) {
        return cli_fail(err, SSM_STATUS_FAILED, path, "cannot be taken up: %s", strerror(errno));
    }
    ssm_status status = ssm_journal_open(path, sweep->plan, args->resume, &sweep->journal, err);
    if (status == SSM_STATUS_OK && ssm_journal_resumed(sweep->journal) > 0) {
        cli_note(sweep->context, "resuming: %lld windows are there already",
                 (long long)ssm_journal_resumed(sweep->journal));
    }
    return status;
}

static ssm_status open_sweep(cli_sweep *sweep, ssm_error *err)
{
    const cli_sweep_arguments *args = sweep->args;
    ssm_status status =
        cli_open_with_texts(sweep->context, args->model, &args->load, &args->texts,
                            args->invalid_utf8, &sweep->source, &sweep->corpus, err);
    if (status == SSM_STATUS_OK) {
        status = cli_recording_open(args->recording, &sweep->source, &sweep->recording, err);
    }
    status = status == SSM_STATUS_OK ? cli_sweep_plan(sweep, err) : status;
    if (status == SSM_STATUS_OK) {
        cli_note_overlap(sweep->context, sweep->recording, &sweep->corpus, args->window,
                         args->offset);
        status = ssm_results_open(args->output, sweep->plan, args->resume, &sweep->results, err);
    }
    return status == SSM_STATUS_OK ? open_journal(sweep, err) : status;
}

static ssm_status run_sweep(cli_context *context, const void *arguments, ssm_error *err)
{
    cli_sweep sweep = {.context = context, .args = arguments};
    ssm_status status = open_sweep(&sweep, err);
    status = status == SSM_STATUS_OK ? cli_sweep_run(&sweep, err) : status;
    ssm_status closed = ssm_journal_close(sweep.journal, status == SSM_STATUS_OK, err);
    status = status == SSM_STATUS_OK ? closed : status;
    status = status == SSM_STATUS_OK ? cli_sweep_write(&sweep, err) : status;
    ssm_results_close(sweep.results);
    cli_sweep_plan_free(&sweep);
    ssm_recording_close(sweep.recording);
    ssm_corpus_free(&sweep.corpus);
    cli_source_close(&sweep.source);
    return status;
}

static const char *const *rule_words(void)
{
    return cli_rule_names();
}

static const cli_positional sweep_positionals[] = {
    {.name = "REC",
     .into = offsetof(cli_sweep_arguments, recording),
     .flags = CLI_REQUIRED,
     .help = "The recording that rules choose on: the directory that record wrote."},
    CLI_MODEL_ENTRY(cli_sweep_arguments),
    CLI_TEXT_ENTRY(cli_sweep_arguments),
};

static const cli_option sweep_options[] = {
    {.name = "rules",
     .kind = CLI_TEXT,
     .into = offsetof(cli_sweep_arguments, rules),
     .argument = "RULES",
     .words = rule_words,
     .flags = CLI_REQUIRED,
     .help = "Rules of select and eval with commas between them, such as "
             "static,last:squared,compensated:optimal,prefix:64,256; all: every rule "
             "that is defined for the model. static always stands beside the others."},
    {.name = "budgets",
     .kind = CLI_LIST,
     .into = offsetof(cli_sweep_arguments, budgets),
     .argument = "LIST",
     .min = 1,
     .max = 65536,
     .help = "Modes that a rule keeps in every channel (or head). [default: a quarter, a half and "
             "three quarters of d_state]"},
    {.name = "scopes",
     .kind = CLI_TEXT,
     .into = offsetof(cli_sweep_arguments, scopes),
     .argument = "SCOPES",
     .fallback = "channel",
     .help = "What a set is for, with commas between them: channel, layer and, for Mamba-2, head "
             "and group; all: all that the model has."},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_TEXT,
     .into = offsetof(cli_sweep_arguments, output),
     .argument = "DIR",
     .flags = CLI_REQUIRED | CLI_OUTPUT,
     .help = "Directory of the results; it is created."},
    CLI_WINDOW_ENTRIES(cli_sweep_arguments),
    {.name = "protocol",
     .kind = CLI_TEXT,
     .into = offsetof(cli_sweep_arguments, protocol),
     .argument = "P",
     .fallback = "auto",
     .help = "auto scores every token of a window but the first, and of rules that choose on the "
             "first tokens of a window those behind them, each beside models scored on the same "
             "tokens; full and continuation:T score all rules alike."},
    CLI_BOOTSTRAP_ENTRIES(cli_sweep_arguments),
    CLI_RIDGE_ENTRY(cli_sweep_arguments),
    {.name = "resume",
     .kind = CLI_FLAG,
     .into = offsetof(cli_sweep_arguments, resume),
     .flags = CLI_NEUTRAL,
     .help = "Go on with a sweep that was stopped; the bytes are the same in the end."},
    CLI_INVALID_UTF8_ENTRY(cli_sweep_arguments),
    CLI_LOAD_ENTRIES(cli_sweep_arguments),
    CLI_EXACT_CHUNKS_ENTRY(cli_sweep_arguments),
};

static const char *const sweep_examples[] = {
    "ssmscope sweep rec tiny prose=a.txt code=b.txt --rules all --offset 8 -o sweep",
    "Every rule at a quarter, a half and three quarters of the modes.",
    "ssmscope sweep rec tiny a.txt --rules static,optimal --scopes all --budgets 4,8,12 -o sweep",
    "Two rules at three budgets and every scope.",
    "ssmscope sweep rec tiny a.txt --rules all -o sweep --resume",
    "Go on after a stop.",
    NULL};

const cli_command cli_command_sweep = {
    .name = "sweep",
    .summary = "rules x budgets x scopes in one table, with intervals",
    .description =
        "Judges every rule at every budget and scope on the same windows, as eval does one: "
        "perplexity with 95 % intervals, the paired differences to the unpruned model and to "
        "static at the same budget and scope, and the exact offline error of the sets. A rule that "
        "is not defined somewhere says why.\n\n"
        "DIR gets the table as table.md, sweep.csv and sweep.json, the masks, and "
        "windows.jsonl, from which a stopped sweep goes on.",
    .examples = sweep_examples,
    .positionals = sweep_positionals,
    .n_positionals = sizeof sweep_positionals / sizeof *sweep_positionals,
    .options = sweep_options,
    .n_options = sizeof sweep_options / sizeof *sweep_options,
    .arguments_size = sizeof(cli_sweep_arguments),
    .run = run_sweep,
};
