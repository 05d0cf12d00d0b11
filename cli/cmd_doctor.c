#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "load.h"
#include "messages.h"
#include "plan.h"

typedef struct doctor_arguments {
    const char *model;
    bool lenient, ignore_index;
} doctor_arguments;

/* Everything that was found, in the order it was looked for. */
typedef struct finding {
    const char *kind; /* "ok", "note", "problem" */
    char *text;
} finding;

typedef struct diagnosis {
    finding *findings;
    size_t count;
    bool failed; /* out of memory */
    size_t problems;
} diagnosis;

static void find_out(diagnosis *d, const char *kind, const char *format, ...) SSM_PRINTF(3, 4);

static void find_out(diagnosis *d, const char *kind, const char *format, ...)
{
    finding *findings = realloc(d->findings, (d->count + 1) * sizeof *findings);
    if (findings == NULL) {
        d->failed = true;
        return;
    }
    d->findings = findings;
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0) {
        d->failed = true;
        return;
    }
    findings[d->count++] = (finding){.kind = kind, .text = text};
    d->problems += strcmp(kind, "problem") == 0;
}

/* ---- the machine ----------------------------------------------------------------------------- */

static void examine_machine(diagnosis *d)
{
    char isas[64] = "portable";
    size_t used = strlen(isas);
    static const ssm_isa more[] = {SSM_ISA_AVX2, SSM_ISA_AVX512};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        if (ssm_isa_supported(more[i])) {
            used +=
                (size_t)snprintf(isas + used, sizeof isas - used, ", %s", ssm_isa_name(more[i]));
        }
    }
    find_out(d, "ok", "ssmscope %s; kernels for %s; used: %s", ssm_version(), isas,
             ssm_isa_name(ssm_isa_best()));
    if (ssm_isa_best() == SSM_ISA_PORTABLE) {
        find_out(d, "note", "without AVX2 and FMA the results are the same, but many times slower");
    }
    char memory[32];
    cli_format_bytes((double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE), memory);
    find_out(d, "ok", "%ld processors, %s of memory", sysconf(_SC_NPROCESSORS_ONLN), memory);
    char path[PATH_MAX];
    if (cli_data_directory(path)) {
        find_out(d, "ok", "built-in model: %s/models/tiny", path);
    } else {
        find_out(d, "problem", "the built-in model tiny is not found");
    }
    struct stat info;
    if (!cli_cache_directory(path)) {
        find_out(d, "note", "no home directory, so no Hugging Face cache");
    } else if (stat(path, &info) != 0) {
        find_out(d, "note", "no Hugging Face cache at %s; models are then given by path", path);
    } else {
        find_out(d, "ok", "Hugging Face cache: %s", path);
    }
}

/* ---- the model ------------------------------------------------------------------------------- */

static void examine_weights(diagnosis *d, const cli_source *source)
{
    const ssm_config *config = source->config;
    int64_t bytes = 0;
    int64_t unused = 0;
    int64_t by_dtype[SSM_DTYPE_COUNT] = {0};
    const char *first_unused = "";
    for (int64_t i = 0; i < ssm_checkpoint_count(source->checkpoint); i++) {
        const ssm_tensor *tensor = ssm_checkpoint_at(source->checkpoint, i);
        if (ssm_checkpoint_used(source->checkpoint, i)) {
            bytes += (int64_t)tensor->bytes;
            by_dtype[tensor->dtype]++;
        } else if (unused++ == 0) {
            first_unused = tensor->name;
        }
    }
    char size[32];
    char state[32];
    cli_format_bytes((double)bytes, size);
    cli_format_bytes((double)cli_plan_state_bytes(config), state);
    find_out(
        d, "ok", "%s: %s, %lld layers, d_model %lld, d_inner %lld, d_state %lld, %s of weights",
        source->where.path, ssm_family_name(config->family), (long long)config->n_layers,
        (long long)config->d_model, (long long)config->d_inner, (long long)config->d_state, size);
    char dtypes[256] = "";
    size_t used = 0;
    for (int t = 0; t < SSM_DTYPE_COUNT; t++) {
        if (by_dtype[t] > 0 && used < sizeof dtypes) {
            used += (size_t)snprintf(dtypes + used, sizeof dtypes - used, "%s%lld tensors in %s",
                                     used == 0 ? "" : ", ", (long long)by_dtype[t],
                                     ssm_dtype_name((ssm_dtype)t));
        }
    }
    find_out(d, "ok", "%s; everything is computed in F32; a stream of text takes %s of state",
             dtypes, state);
    if (unused > 0) {
        find_out(d, "note", "%lld tensors of the files are not used, the first is %s",
                 (long long)unused, first_unused);
    }
    if ((double)bytes > (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE)) {
        find_out(d, "note", "the weights are larger than the memory: it will run at disk speed");
    }
    for (int64_t i = 0; i < ssm_checkpoint_note_count(source->checkpoint); i++) {
        find_out(d, "note", "%s", ssm_checkpoint_note(source->checkpoint, i));
    }
}

static void examine_tokenizer(diagnosis *d, const cli_source *source)
{
    char path[PATH_MAX];
    struct stat info;
    ssm_error err;
    ssm_tokenizer *tokenizer = NULL;
    int64_t rows = source->config->vocab_size;
    cli_tokenizer_path(source->where.path, path);
    if (stat(path, &info) != 0) {
        find_out(d, "note", "no %s: the model runs with --ids only%s", path,
                 rows >= 50277 && rows <= 50304
                     ? "; by its size the vocabulary is that of EleutherAI/gpt-neox-20b"
                     : "");
        return;
    }
    ssm_error_clear(&err);
    if (ssm_tokenizer_open(path, &tokenizer, &err) != SSM_STATUS_OK) {
        find_out(d, "problem", "%s: %s", path, err.message);
        return;
    }
    int64_t ids = ssm_tokenizer_vocab_size(tokenizer);
    if (ids > rows) {
        find_out(d, "problem",
                 "the tokenizer has %lld ids, the embedding %lld rows: it belongs to "
                 "another model",
                 (long long)ids, (long long)rows);
    } else if (rows - ids >= 1024) { /* vocabularies are padded to multiples of 8 to 512 */
        find_out(d, "note",
                 "the tokenizer has %lld ids, the embedding %lld rows: more than padding explains; "
                 "is it this model's tokenizer?",
                 (long long)ids, (long long)rows);
    } else if (ids < rows) {
        find_out(d, "ok",
                 "tokenizer with %lld ids for %lld rows: the last %lld rows are padding, "
                 "which is never sampled",
                 (long long)ids, (long long)rows, (long long)(rows - ids));
    } else {
        find_out(d, "ok", "tokenizer with %lld ids, one for each row of the embedding",
                 (long long)ids);
    }
    if (source->config->eos_id < 0) {
        find_out(d, "note", "config.json names no end-of-text token: generation stops at -n only");
    } else if (source->config->eos_id >= rows) {
        find_out(d, "problem", "the end-of-text token %lld is outside the vocabulary",
                 (long long)source->config->eos_id);
    }
    ssm_tokenizer_free(tokenizer);
}

/* Returns FILE when a weight is not finite. */
static ssm_status examine_model(cli_context *context, const doctor_arguments *args, diagnosis *d,
                                cli_source *source, ssm_error *err)
{
    unsigned wants = cli_load_wants(args->lenient, args->ignore_index) |
                     (context->globals.json ? CLI_WANT_DIGEST : 0U);
    ssm_status status = cli_source_open(context, args->model, wants, source, err);
    if (status == SSM_STATUS_OK) {
        examine_weights(d, source);
        ssm_error finite;
        ssm_error_clear(&finite);
        status = ssm_checkpoint_check_finite(source->checkpoint, &finite);
        if (status == SSM_STATUS_OK) {
            find_out(d, "ok", "every weight is finite");
        } else {
            find_out(d, "problem", "tensor %s: %s", finite.tensor, finite.message);
            *err = finite;
        }
        examine_tokenizer(d, source);
    }
    return status;
}

/* ---- results --------------------------------------------------------------------------------- */

static ssm_status print_findings(const cli_context *context, const diagnosis *d,
                                 const cli_source *source, ssm_error *err)
{
    if (context->globals.json) {
        cli_json json = cli_json_create(context, "doctor");
        if (source->checkpoint != NULL) {
            cli_json_source(&json, source);
        }
        json_t *findings = cli_json_array(&json, json.root, "findings");
        for (size_t i = 0; i < d->count; i++) {
            json_t *one = json_object();
            cli_json_text(&json, one, "kind", d->findings[i].kind);
            cli_json_text(&json, one, "text", d->findings[i].text);
            cli_json_push(&json, findings, one);
        }
        cli_json_integer(&json, json.root, "problems", (int64_t)d->problems);
        return cli_json_print(&json, err);
    }
    cli_table table = cli_table_create(NULL, "ll");
    for (size_t i = 0; i < d->count; i++) {
        cli_table_cell(&table, "%s", d->findings[i].kind);
        cli_table_cell(&table, "%s", d->findings[i].text);
    }
    return cli_table_print(&table, stdout, err);
}

static ssm_status run_doctor(cli_context *context, const void *arguments, ssm_error *err)
{
    const doctor_arguments *args = arguments;
    diagnosis d = {0};
    examine_machine(&d);
    cli_source source = {0};
    ssm_status status =
        args->model == NULL ? SSM_STATUS_OK : examine_model(context, args, &d, &source, err);
    /* What was found is shown also when the model is broken. */
    ssm_status printed = d.failed ? cli_no_memory(err) : print_findings(context, &d, &source, err);
    status = status == SSM_STATUS_OK ? printed : status;
    if (status == SSM_STATUS_OK && d.problems > 0) {
        status = cli_fail(err, SSM_STATUS_CHECK, NULL, "doctor: %zu problem%s", d.problems,
                          d.problems == 1 ? "" : "s");
    }
    for (size_t i = 0; i < d.count; i++) {
        free(d.findings[i].text);
    }
    free(d.findings);
    cli_source_close(&source);
    return status;
}

static const cli_positional doctor_positionals[] = {
    {.name = "MODEL",
     .into = offsetof(doctor_arguments, model),
     .help = "The model to examine; without it, the machine only."},
};

static const cli_option doctor_options[] = {CLI_LOAD_ENTRIES(doctor_arguments)};

static const char *const doctor_examples[] = {"ssmscope doctor", "What this machine can do.",
                                              "ssmscope doctor models/mine",
                                              "What is odd about a checkpoint.", NULL};

const cli_command cli_command_doctor = {
    .name = "doctor",
    .summary = "what is odd about a checkpoint or this machine, in plain words",
    .description = "Looks at the machine, and at a checkpoint: claims of config.json that its "
                   "tensors contradict, unused tensors, weights that are not finite, the tokenizer "
                   "and its vocabulary. Exit status 3 for a broken file, 5 for another problem.",
    .examples = doctor_examples,
    .positionals = doctor_positionals,
    .n_positionals = sizeof doctor_positionals / sizeof *doctor_positionals,
    .options = doctor_options,
    .n_options = sizeof doctor_options / sizeof *doctor_options,
    .arguments_size = sizeof(doctor_arguments),
    .run = run_doctor,
};
