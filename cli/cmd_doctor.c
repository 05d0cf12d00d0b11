#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "doctor.h"
#include "input.h"
#include "messages.h"

typedef struct doctor_arguments {
    const char *model, *prompt, *ids;
    cli_load load;
} doctor_arguments;

typedef struct doctor_state {
    cli_context *context;
    const doctor_arguments *args;
    ssm_findings findings;
    cli_source source;
    ssm_tokenizer *tokenizer;
    ssm_ids ids;
    ssm_status status; /* FILE when the model cannot be used */
    ssm_error broken;  /* why */
} doctor_state;

/* What makes the model unusable is a finding, and the exit status. */
static ssm_status keep_broken(doctor_state *d, ssm_status status, const ssm_error *found,
                              ssm_error *err)
{
    if (status != SSM_STATUS_FILE && status != SSM_STATUS_FAILED) {
        *err = *found;
        return status;
    }
    d->status = status;
    d->broken = *found;
    char place[SSM_ERROR_PLACE_MAX + 16] = "";
    if (found->tensor[0] != '\0') {
        snprintf(place, sizeof place, "%s: ", found->tensor);
    }
    return ssm_findings_add(&d->findings, SSM_FINDING_PROBLEM, "load", found->tensor, err,
                            "%s%s%s%s", found->file, found->file[0] == '\0' ? "" : ": ", place,
                            found->message);
}

static ssm_status read_ids(doctor_state *d, ssm_error *err)
{
    if (d->args->ids != NULL) {
        return cli_read_ids(d->args->ids, &d->ids, err);
    }
    if (d->tokenizer == NULL) {
        return cli_fail(err, SSM_STATUS_FILE, d->source.where.path,
                        "--prompt needs the model's tokenizer.json; --ids does not");
    }
    const ssm_encode_options options = {0};
    return ssm_tokenizer_encode(d->tokenizer, d->args->prompt, strlen(d->args->prompt), &options,
                                &d->ids, err);
}

/* Plan and run need a model, which refuses some checkpoints that could be opened. */
static ssm_status examine_model(doctor_state *d, ssm_error *err)
{
    ssm_error found;
    ssm_error_clear(&found);
    cli_source *source = &d->source;
    ssm_checkpoint *checkpoint = source->owned;
    source->owned = NULL; /* the model takes it, also when it fails */
    ssm_status status =
        ssm_model_create(checkpoint, (ssm_isa)d->context->globals.isa, &source->model, &found);
    if (status != SSM_STATUS_OK) {
        source->checkpoint = NULL;
        return keep_broken(d, status, &found, err);
    }
    status = cli_doctor_plan(source->model, &d->findings, err);
    if (status == SSM_STATUS_OK && (d->args->prompt != NULL || d->args->ids != NULL)) {
        status = read_ids(d, err);
        status =
            status == SSM_STATUS_OK
                ? cli_doctor_run(d->context, source->model, &d->ids,
                                 cli_valid_ids(source->checkpoint, d->tokenizer), &d->findings, err)
                : status;
    }
    return status;
}

static ssm_status examine_checkpoint(doctor_state *d, ssm_error *err)
{
    const doctor_arguments *args = d->args;
    ssm_error found;
    ssm_error_clear(&found);
    unsigned wants = d->context->globals.json ? CLI_WANT_DIGEST : 0U;
    ssm_status status =
        cli_source_open(d->context, args->model, &args->load, wants, &d->source, &found);
    if (status != SSM_STATUS_OK) {
        status = keep_broken(d, status, &found, err);
        return status == SSM_STATUS_OK && d->source.where.path[0] != '\0'
                   ? cli_doctor_directory(d->source.where.path, &d->findings, err)
                   : status;
    }
    ssm_pool *pool = NULL;
    status = cli_doctor_identity(&d->source, &d->findings, err);
    status = status == SSM_STATUS_OK ? cli_pool(d->context, &pool, err) : status;
    if (status == SSM_STATUS_OK) {
        status = ssm_examine(d->source.checkpoint, pool, cli_progress_start(d->context),
                             &d->findings, err);
        cli_progress_clear(d->context);
    }
    if (status == SSM_STATUS_OK) {
        status = cli_doctor_tokenizer(&d->source, &d->tokenizer, &d->findings, err);
    }
    return status == SSM_STATUS_OK ? examine_model(d, err) : status;
}

/* ---- results --------------------------------------------------------------------------------- */

static ssm_status print_json(const doctor_state *d, ssm_error *err)
{
    cli_json json = cli_json_create(d->context, "doctor");
    if (d->args->model != NULL && d->source.where.path[0] != '\0') {
        cli_json_source(&json, &d->source);
    }
    json_t *findings = cli_json_array(&json, json.root, "findings");
    for (int64_t i = 0; i < d->findings.count; i++) {
        const ssm_finding *finding = &d->findings.items[i];
        json_t *one = json_object();
        cli_json_text(&json, one, "kind", ssm_finding_kind_name(finding->kind));
        cli_json_text(&json, one, "topic", finding->topic);
        cli_json_text(&json, one, "tensor", finding->tensor[0] == '\0' ? NULL : finding->tensor);
        cli_json_text(&json, one, "text", finding->text);
        cli_json_push(&json, findings, one);
    }
    cli_json_integer(&json, json.root, "notes", ssm_findings_of(&d->findings, SSM_FINDING_NOTE));
    cli_json_integer(&json, json.root, "problems",
                     ssm_findings_of(&d->findings, SSM_FINDING_PROBLEM));
    cli_json_bool(&json, json.root, "usable", d->status == SSM_STATUS_OK);
    return cli_json_print(&json, err);
}

static void print_findings(const doctor_state *d)
{
    enum { INDENT = 9 };
    for (int64_t i = 0; i < d->findings.count; i++) {
        const ssm_finding *finding = &d->findings.items[i];
        printf("%-*s", INDENT, ssm_finding_kind_name(finding->kind));
        cli_print_wrapped(stdout, finding->text, INDENT, INDENT);
    }
}

static ssm_status conclude(const doctor_state *d, ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    if (d->context->globals.json) {
        status = print_json(d, err);
    } else {
        print_findings(d);
    }
    const int64_t problems = ssm_findings_of(&d->findings, SSM_FINDING_PROBLEM);
    if (status == SSM_STATUS_OK && d->status != SSM_STATUS_OK) {
        *err = d->broken;
        return d->status;
    }
    return status == SSM_STATUS_OK && problems > 0
               ? cli_fail(err, SSM_STATUS_CHECK, NULL, "doctor: %lld problem%s",
                          (long long)problems, problems == 1 ? "" : "s")
               : status;
}

static ssm_status run_doctor(cli_context *context, const void *arguments, ssm_error *err)
{
    const doctor_arguments *args = arguments;
    if (args->model == NULL && (args->prompt != NULL || args->ids != NULL)) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--%s needs a MODEL to run it",
                        args->prompt != NULL ? "prompt" : "ids");
    }
    doctor_state *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return cli_no_memory(err);
    }
    d->context = context;
    d->args = args;
    ssm_status status = cli_doctor_machine(&d->findings, err);
    if (status == SSM_STATUS_OK && args->model != NULL) {
        status = examine_checkpoint(d, err);
    }
    status = status == SSM_STATUS_OK ? conclude(d, err) : status;
    ssm_findings_free(&d->findings);
    ssm_tokenizer_free(d->tokenizer);
    ssm_ids_free(&d->ids);
    cli_source_close(&d->source);
    free(d);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const cli_positional doctor_positionals[] = {
    {.name = "MODEL",
     .into = offsetof(doctor_arguments, model),
     .help = "The model to examine; without it, the machine only."},
};

static const cli_option doctor_options[] = {
    {.name = "prompt",
     .letter = 'p',
     .kind = CLI_TEXT,
     .into = offsetof(doctor_arguments, prompt),
     .argument = "TEXT",
     .help = "Run this text too: is everything finite, how well is it predicted, how much "
             "probability goes to rows of padding."},
    {.name = "ids",
     .kind = CLI_TEXT,
     .into = offsetof(doctor_arguments, ids),
     .argument = "FILE",
     .conflicts = "prompt",
     .help = "The same with token ids; - is standard input."},
    CLI_LOAD_ENTRIES(doctor_arguments),
};

static const char *const doctor_examples[] = {
    "ssmscope doctor", "What this machine can do.",
    "ssmscope doctor models/mine --prompt \"Once upon a time\"", "What is odd about a checkpoint.",
    NULL};

const cli_command cli_command_doctor = {
    .name = "doctor",
    .summary = "what is odd about a checkpoint or this machine, in plain words",
    .description = "Looks at the machine, and at a checkpoint: claims of config.json that its "
                   "tensors contradict, how the files were read, unused tensors, dtypes, numbers "
                   "that are not finite, step sizes and decay rates, norms, rows of the embedding, "
                   "layers that are the same or were never trained, the tokenizer and its "
                   "vocabulary, the bytes that running takes. Exit status 0 when there are only "
                   "notes, 3 when the model cannot be used, 5 for another problem.",
    .examples = doctor_examples,
    .positionals = doctor_positionals,
    .n_positionals = sizeof doctor_positionals / sizeof *doctor_positionals,
    .options = doctor_options,
    .n_options = sizeof doctor_options / sizeof *doctor_options,
    .arguments_size = sizeof(doctor_arguments),
    .run = run_doctor,
};
