#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include <ssmscope/instrument.h>
#include <ssmscope/recording.h>

#include "commands.h"
#include "load.h"
#include "messages.h"
#include "plan.h"

enum { MOST_WINDOWS = 16 }; /* of each role, when the command line does not say */

typedef struct record_arguments {
    const char *model, *output;
    cli_texts texts;
    cli_list layers, budgets;
    int64_t window, calibration, evaluation, chunk, invalid_utf8;
    bool no_gram, keep_window_gram, resume;
    cli_load load;
} record_arguments;

/* What will be written. */
typedef struct record_plan {
    int64_t calibration, evaluation; /* windows of a domain */
    int64_t domains, layers, attention;
    double window_bytes, gram_bytes, total_bytes;
} record_plan;

/* Whole windows that the shortest domain has. */
static int64_t windows_in_shortest(const ssm_corpus *corpus, int64_t window, int64_t *shortest)
{
    int64_t least = INT64_MAX;
    for (int64_t d = 0; d < corpus->n_domains; d++) {
        int64_t windows = corpus->domains[d].ids.count / window;
        if (windows < least) {
            least = windows;
            *shortest = d;
        }
    }
    return least;
}

/* Without numbers of windows: half of the shortest domain's for each role, at most MOST_WINDOWS. */
static ssm_status choose_windows(const record_arguments *args, const ssm_corpus *corpus,
                                 record_plan *plan, ssm_error *err)
{
    int64_t shortest = 0;
    int64_t available = windows_in_shortest(corpus, args->window, &shortest);
    plan->calibration = args->calibration;
    plan->evaluation = args->evaluation;
    if (plan->calibration != CLI_UNSET && plan->evaluation != CLI_UNSET) {
        return SSM_STATUS_OK;
    }
    int64_t given = plan->calibration != CLI_UNSET  ? plan->calibration
                    : plan->evaluation != CLI_UNSET ? plan->evaluation
                                                    : available / 2;
    int64_t left = available - given;
    if (left < 1 || available < 2) {
        const ssm_domain *domain = &corpus->domains[shortest];
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "domain '%s' has %lld tokens: too few for %lld and one more window of %lld "
                        "tokens; give more text, a smaller --window, or both "
                        "--calibration-windows and --evaluation-windows",
                        domain->name, (long long)domain->ids.count,
                        (long long)(given < 1 ? 1 : given), (long long)args->window);
    }
    int64_t chosen = left < MOST_WINDOWS ? left : MOST_WINDOWS;
    if (plan->calibration == CLI_UNSET && plan->evaluation == CLI_UNSET) {
        chosen = given < MOST_WINDOWS ? given : MOST_WINDOWS;
    }
    plan->calibration = plan->calibration == CLI_UNSET ? chosen : plan->calibration;
    plan->evaluation = plan->evaluation == CLI_UNSET ? chosen : plan->evaluation;
    return SSM_STATUS_OK;
}

static void plan_bytes(const record_arguments *args, const ssm_checkpoint *checkpoint,
                       record_plan *plan)
{
    const ssm_config *config = ssm_checkpoint_config(checkpoint);
    const int64_t with_states = cli_plan_layers_with_states(checkpoint);
    plan->attention = config->n_layers - with_states;
    plan->layers = args->layers.count > 0 ? args->layers.count : with_states;
    cli_plan_recording one = cli_plan_record(config, plan->layers, args->window);
    plan->window_bytes = (double)one.window_bytes;
    plan->gram_bytes = args->no_gram ? 0 : (double)one.window_gram_bytes;
    int64_t sums = plan->calibration > 0 ? 1 : 0;
    int64_t grams = plan->evaluation + sums + (args->keep_window_gram ? plan->calibration : 0);
    plan->total_bytes = (double)plan->domains *
                        ((double)(plan->calibration + plan->evaluation) * plan->window_bytes +
                         (double)grams * plan->gram_bytes);
}

static void note_plan(cli_context *context, const record_arguments *args, const record_plan *plan)
{
    char total[32];
    cli_format_bytes(plan->total_bytes, total);
    cli_note(context,
             "plan: %lld domain%s x (%lld calibration + %lld evaluation) windows of %lld tokens, "
             "%lld layer%s, %s on disk",
             (long long)plan->domains, plan->domains == 1 ? "" : "s", (long long)plan->calibration,
             (long long)plan->evaluation, (long long)args->window, (long long)plan->layers,
             plan->layers == 1 ? "" : "s", total);
    if (plan->attention > 0) {
        cli_note(context,
                 "%lld of the layers are attention: they have no states and are not recorded",
                 (long long)plan->attention);
    }
    /* The directory is made later; its parent is on the same disk unless something is mounted. */
    struct statvfs disk;
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", args->output);
    char *slash = strrchr(parent, '/');
    snprintf(slash == NULL ? parent : slash + 1, 2, ".");
    if (statvfs(parent, &disk) == 0) {
        double available = (double)disk.f_bavail * (double)disk.f_frsize;
        if (available < plan->total_bytes) {
            char free_text[32];
            cli_format_bytes(available, free_text);
            cli_note(context, "warning: the disk of %s has %s left, which is less", args->output,
                     free_text);
        }
    }
}

/* ---- results --------------------------------------------------------------------------------- */

static ssm_status print_json(const cli_context *context, const record_arguments *args,
                             const cli_source *source, const ssm_corpus *corpus,
                             const record_plan *plan, const ssm_recording *recording,
                             ssm_error *err)
{
    cli_json json = cli_json_create(context, "record");
    cli_json_source(&json, source);
    cli_json_corpus(&json, corpus);
    json_t *written = cli_json_object(&json, json.root, "recording");
    cli_json_text(&json, written, "path", args->output);
    cli_json_text(&json, written, "digest", ssm_recording_get_info(recording)->digest);
    cli_json_integer(&json, json.root, "window", args->window);
    cli_json_integer(&json, json.root, "calibration_windows", plan->calibration);
    cli_json_integer(&json, json.root, "evaluation_windows", plan->evaluation);
    cli_json_integer(&json, json.root, "windows", ssm_recording_window_count(recording));
    cli_json_integer(&json, json.root, "layers", plan->layers);
    cli_json_integer(&json, json.root, "planned_bytes", (int64_t)plan->total_bytes);
    return cli_json_print(&json, err);
}

/* What will be recorded of every text: words, before the work, which may be long. */
static ssm_status print_windows(const record_arguments *args, const ssm_corpus *corpus,
                                const record_plan *plan, ssm_error *err)
{
    static const char *const headings[] = {"domain",      "tokens",     "windows",
                                           "calibration", "evaluation", NULL};
    cli_table table = cli_table_create(headings, "lrrrr");
    for (int64_t d = 0; d < corpus->n_domains; d++) {
        cli_table_cell(&table, "%s", corpus->domains[d].name);
        cli_table_cell(&table, "%lld", (long long)corpus->domains[d].ids.count);
        cli_table_cell(&table, "%lld", (long long)(corpus->domains[d].ids.count / args->window));
        cli_table_cell(&table, "%lld", (long long)plan->calibration);
        cli_table_cell(&table, "%lld", (long long)plan->evaluation);
    }
    ssm_status status = cli_table_print(&table, stderr, err);
    fprintf(stderr,
            "  windows: whole windows of %lld tokens in the text; the first are recorded.\n\n",
            (long long)args->window);
    return status;
}

static void print_done(const record_arguments *args, const record_plan *plan,
                       const ssm_recording *recording)
{
    char bytes[32];
    cli_format_bytes(plan->total_bytes, bytes);
    printf("%s: %lld windows, %lld layers, %s\ndigest %s\n", args->output,
           (long long)ssm_recording_window_count(recording), (long long)plan->layers, bytes,
           ssm_recording_get_info(recording)->digest);
}

/* ---- the command ----------------------------------------------------------------------------- */

static ssm_status record(cli_context *context, const record_arguments *args,
                         const cli_source *source, const ssm_corpus *corpus,
                         const record_plan *plan, ssm_error *err)
{
    ssm_pool *pool = NULL;
    ssm_status status = cli_pool(context, &pool, err);
    const ssm_record_options options = {
        .window = args->window,
        .calibration_windows = plan->calibration,
        .evaluation_windows = plan->evaluation,
        .no_gram = args->no_gram,
        .exact_chunks = args->load.exact_chunks,
        .keep_window_gram = args->keep_window_gram,
        .resume = args->resume,
        .layers = args->layers.values,
        .n_layers = args->layers.count,
        .budgets = args->budgets.values,
        .n_budgets = args->budgets.count,
        .chunk = args->chunk,
        .command = context->canonical,
        .tokenizer_digest = ssm_tokenizer_digest(source->tokenizer),
        .pool = pool,
        .progress = cli_progress_start(context),
    };
    if (status == SSM_STATUS_OK) {
        status = ssm_record(source->model, corpus, args->output, &options, err);
    }
    cli_progress_clear(context);
    ssm_recording *recording = NULL;
    status = status == SSM_STATUS_OK ? ssm_recording_open(args->output, &recording, err) : status;
    if (status == SSM_STATUS_OK) {
        if (context->globals.json) {
            status = print_json(context, args, source, corpus, plan, recording, err);
        } else {
            print_done(args, plan, recording);
        }
    }
    ssm_recording_close(recording);
    return status;
}

static ssm_status run_record(cli_context *context, const void *arguments, ssm_error *err)
{
    const record_arguments *args = arguments;
    cli_source source = {0};
    ssm_corpus corpus = {0};
    record_plan plan = {0};
    ssm_status status = cli_open_with_texts(context, args->model, &args->load, &args->texts,
                                            args->invalid_utf8, &source, &corpus, err);
    if (status == SSM_STATUS_OK) {
        plan.domains = corpus.n_domains;
        status = choose_windows(args, &corpus, &plan, err);
    }
    if (status == SSM_STATUS_OK) {
        plan_bytes(args, source.checkpoint, &plan);
        note_plan(context, args, &plan);
        status = context->globals.quiet ? SSM_STATUS_OK : print_windows(args, &corpus, &plan, err);
    }
    if (status == SSM_STATUS_OK) {
        status = record(context, args, &source, &corpus, &plan, err);
    }
    ssm_corpus_free(&corpus);
    cli_source_close(&source);
    return status;
}

static const cli_positional record_positionals[] = {CLI_MODEL_ENTRY(record_arguments),
                                                    CLI_TEXT_ENTRY(record_arguments)};

static const cli_option record_options[] = {
    {.name = "output",
     .letter = 'o',
     .kind = CLI_TEXT,
     .into = offsetof(record_arguments, output),
     .argument = "REC",
     .flags = CLI_REQUIRED | CLI_OUTPUT,
     .help = "Directory of the recording; it is created."},
    {.name = "window",
     .kind = CLI_INTEGER,
     .into = offsetof(record_arguments, window),
     .argument = "T",
     .fallback = "1024",
     .min = 2,
     .max = 1 << 24,
     .help = "Tokens of a window. Every window starts from the zero state."},
    {.name = "calibration-windows",
     .kind = CLI_INTEGER,
     .into = offsetof(record_arguments, calibration),
     .argument = "K",
     .min = 0,
     .max = INT32_MAX,
     .help = "The first K windows of every domain, on which sets of modes are chosen. [default: "
             "half of the windows of the shortest domain, at most 16]"},
    {.name = "evaluation-windows",
     .kind = CLI_INTEGER,
     .into = offsetof(record_arguments, evaluation),
     .argument = "K",
     .min = 0,
     .max = INT32_MAX,
     .help = "The next K windows of every domain, on which everything is measured. [default: as "
             "many as for calibration]"},
    {.name = "layers",
     .kind = CLI_LIST,
     .into = offsetof(record_arguments, layers),
     .argument = "LIST",
     .min = 0,
     .max = 65535,
     .help = "Record these layers only, counted from 0. [default: all]"},
    {.name = "budgets",
     .kind = CLI_LIST,
     .into = offsetof(record_arguments, budgets),
     .argument = "LIST",
     .min = 1,
     .max = 65536,
     .help = "Kept modes a channel that the recording is for. [default: a quarter, a half and "
             "three quarters of d_state]"},
    {.name = "no-gram",
     .kind = CLI_FLAG,
     .into = offsetof(record_arguments, no_gram),
     .conflicts = "keep-window-gram",
     .help = "Leave the Gram matrices out: smaller and faster; errors and ρ are then unknown."},
    {.name = "keep-window-gram",
     .kind = CLI_FLAG,
     .into = offsetof(record_arguments, keep_window_gram),
     .help = "Keep the Gram matrices of every calibration window, not only their sum."},
    {.name = "resume",
     .kind = CLI_FLAG,
     .into = offsetof(record_arguments, resume),
     .flags = CLI_NEUTRAL,
     .help = "Go on with a recording that was stopped; the bytes are the same in the end."},
    {.name = "chunk",
     .kind = CLI_INTEGER,
     .into = offsetof(record_arguments, chunk),
     .argument = "T",
     .fallback = "0",
     .min = 0,
     .max = 1 << 20,
     .flags = CLI_NEUTRAL,
     .help = "Tokens that go through the model at once; 0 is a window. The results are the "
             "same."},
    CLI_INVALID_UTF8_ENTRY(record_arguments),
    CLI_LOAD_ENTRIES(record_arguments),
    CLI_EXACT_CHUNKS_ENTRY(record_arguments),
};

static const char *const record_examples[] = {
    "ssmscope record tiny prose=a.txt code=b.txt -o rec",
    "Record two domains.",
    "ssmscope record tiny a.txt -o rec --calibration-windows 8 --evaluation-windows 8",
    "Say how many windows.",
    "ssmscope record tiny a.txt -o rec --resume",
    "Go on after a stop.",
    NULL};

const cli_command cli_command_record = {
    .name = "record",
    .summary = "measure exactly how the model uses its state on texts",
    .description = "Runs the model over windows of text and writes, for every layer and channel, "
                   "the Gram matrix of the mode outputs, their energies and moments. metrics and "
                   "select read the recording; no model is needed for that.",
    .examples = record_examples,
    .positionals = record_positionals,
    .n_positionals = sizeof record_positionals / sizeof *record_positionals,
    .options = record_options,
    .n_options = sizeof record_options / sizeof *record_options,
    .arguments_size = sizeof(record_arguments),
    .run = run_record,
};
