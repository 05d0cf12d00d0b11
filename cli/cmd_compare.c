#include <stdlib.h>
#include <string.h>

#include <ssmscope/compare.h>

#include "commands.h"
#include "compare_output.h"
#include "input.h"
#include "load.h"
#include "messages.h"

enum { BUILT_IN_TOKENS = 32 };

typedef struct compare_arguments {
    const char *a, *b, *hidden, *logits, *sequence, *ids, *prompt;
    double tolerance;
    bool reference;
    cli_load load;
} compare_arguments;

static const cli_source *other(const cli_comparison *c)
{
    return c->b.model != NULL ? &c->b : &c->a;
}

/* ---- the text -------------------------------------------------------------------------------- */

/* Ids that both models know, drawn from a stream of its own: the same for every pair of models of
 * one vocabulary. */
static ssm_status built_in_ids(cli_comparison *c, ssm_error *err)
{
    int64_t rows = c->a.config->vocab_size;
    if (other(c)->config->vocab_size < rows) {
        rows = other(c)->config->vocab_size;
    }
    ssm_rng rng = ssm_rng_create(0, "compare");
    ssm_status status = SSM_STATUS_OK;
    for (int i = 0; status == SSM_STATUS_OK && i < BUILT_IN_TOKENS; i++) {
        status = cli_ids_push(&c->ids, (int32_t)ssm_rng_below(&rng, (uint64_t)rows), err);
    }
    return status;
}

static ssm_status ids_of_file(cli_comparison *c, const char *path, ssm_error *err)
{
    if (c->file.ids == NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, path,
                        "the file does not hold the ids of its text: give them with --ids or "
                        "--prompt");
    }
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; status == SSM_STATUS_OK && i < c->file.tokens; i++) {
        status = cli_ids_push(&c->ids, c->file.ids[i], err);
    }
    return status;
}

static ssm_status read_ids(cli_comparison *c, const compare_arguments *args, ssm_error *err)
{
    if (args->ids != NULL) {
        return cli_read_ids(args->ids, &c->ids, err);
    }
    if (args->prompt != NULL) {
        const ssm_encode_options options = {0};
        return ssm_tokenizer_encode(c->a.tokenizer, args->prompt, strlen(args->prompt), &options,
                                    &c->ids, err);
    }
    return args->hidden != NULL ? ids_of_file(c, args->hidden, err) : built_in_ids(c, err);
}

/* ---- both sides ------------------------------------------------------------------------------ */

/* Forward passes of the two can be laid side by side. */
static bool comparable(const cli_comparison *c)
{
    const ssm_config *a = c->a.config;
    const ssm_config *b = other(c)->config;
    return a->n_layers == b->n_layers && a->d_model == b->d_model;
}

static ssm_status run_passes(cli_comparison *c, const compare_arguments *args, ssm_error *err)
{
    ssm_pool *pool = NULL;
    ssm_trace a = {0};
    ssm_trace b = {0};
    const ssm_progress *progress = cli_progress_start(c->context);
    ssm_status status = cli_pool(c->context, &pool, err);
    if (status == SSM_STATUS_OK) {
        status =
            args->reference
                ? ssm_trace_reference(c->a.model, c->ids.data, c->ids.count, &a, err)
                : ssm_trace_run(c->a.model, c->ids.data, c->ids.count, pool, progress, &a, err);
    }
    const bool second = args->hidden == NULL;
    if (status == SSM_STATUS_OK && second) {
        status = ssm_trace_run(other(c)->model, c->ids.data, c->ids.count, pool, progress, &b, err);
    }
    cli_progress_clear(c->context);
    if (status == SSM_STATUS_OK) {
        const ssm_trace *beside = second ? &b : &c->file;
        c->tolerance = args->tolerance > 0
                           ? args->tolerance
                           : ssm_compare_tolerance(c->weights, c->n_weights, &a, beside);
        status = ssm_compare_traces(&a, beside, c->tolerance, &c->traces, err);
        c->ran = status == SSM_STATUS_OK;
    }
    ssm_trace_free(&a);
    ssm_trace_free(&b);
    return status;
}

/* Taps need the fast pass of two models. */
static ssm_status look_inside(cli_comparison *c, const compare_arguments *args, ssm_error *err)
{
    const int64_t layer = c->traces.first - 1;
    if (args->hidden != NULL || args->reference || layer < 0 || layer >= c->a.config->n_layers) {
        return SSM_STATUS_OK;
    }
    ssm_pool *pool = NULL;
    ssm_status status = cli_pool(c->context, &pool, err);
    return status == SSM_STATUS_OK
               ? ssm_compare_taps(c->a.model, c->b.model, c->ids.data, c->ids.count, layer, pool,
                                  c->taps, &c->n_taps, err)
               : status;
}

static ssm_status compare_weights(cli_comparison *c, ssm_error *err)
{
    ssm_pool *pool = NULL;
    ssm_status status = cli_pool(c->context, &pool, err);
    if (status == SSM_STATUS_OK) {
        status =
            ssm_compare_weights(c->a.checkpoint, c->b.checkpoint, pool,
                                cli_progress_start(c->context), &c->weights, &c->n_weights, err);
        cli_progress_clear(c->context);
    }
    return status;
}

static ssm_status open_sides(cli_comparison *c, const compare_arguments *args, ssm_error *err)
{
    const unsigned wants = CLI_WANT_MODEL | CLI_WANT_DIGEST;
    ssm_status status = cli_source_open(
        c->context, args->a, &args->load,
        wants | (args->prompt != NULL ? (unsigned)CLI_WANT_TOKENIZER : 0U), &c->a, err);
    if (status == SSM_STATUS_OK && args->b != NULL) {
        status = cli_source_open(c->context, args->b, &args->load, wants, &c->b, err);
    }
    if (status == SSM_STATUS_OK && args->hidden != NULL) {
        status = ssm_trace_read(args->hidden, args->logits, args->sequence, &c->file, err);
    }
    return status;
}

static ssm_status compare_all(cli_comparison *c, const compare_arguments *args, ssm_error *err)
{
    ssm_status status = open_sides(c, args, err);
    if (status == SSM_STATUS_OK && args->b != NULL) {
        status = compare_weights(c, err);
    }
    if (status == SSM_STATUS_OK && comparable(c)) {
        status = read_ids(c, args, err);
        status = status == SSM_STATUS_OK ? run_passes(c, args, err) : status;
        status = status == SSM_STATUS_OK ? look_inside(c, args, err) : status;
    } else if (status == SSM_STATUS_OK) {
        c->tolerance = args->tolerance > 0
                           ? args->tolerance
                           : ssm_compare_tolerance(c->weights, c->n_weights, NULL, NULL);
    }
    return status;
}

static ssm_status check_arguments(const compare_arguments *args, ssm_error *err)
{
    if (args->b != NULL && args->hidden != NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "give a second model or --hidden FILE, not both");
    }
    if (args->b == NULL && args->hidden == NULL && !args->reference) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "nothing to compare with: give a second model, --hidden FILE, or "
                        "--reference to compare this program's two ways to run the model");
    }
    if (args->hidden == NULL && (args->logits != NULL || args->sequence != NULL)) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--%s belongs to --hidden",
                        args->logits != NULL ? "logits" : "sequence");
    }
    return SSM_STATUS_OK;
}

static ssm_status run_compare(cli_context *context, const void *arguments, ssm_error *err)
{
    const compare_arguments *args = arguments;
    cli_comparison *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return cli_no_memory(err);
    }
    c->context = context;
    c->hidden_path = args->hidden;
    c->reference = args->reference;
    ssm_status status = check_arguments(args, err);
    status = status == SSM_STATUS_OK ? compare_all(c, args, err) : status;
    if (status == SSM_STATUS_OK) {
        status = cli_compare_print(c, err);
    }
    ssm_weight_comparisons_free(c->weights);
    ssm_trace_comparison_free(&c->traces);
    ssm_trace_free(&c->file);
    ssm_ids_free(&c->ids);
    cli_source_close(&c->a);
    cli_source_close(&c->b);
    free(c);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const cli_positional compare_positionals[] = {
    {.name = "A",
     .into = offsetof(compare_arguments, a),
     .flags = CLI_REQUIRED,
     .help = "A model: directory, file, name in the Hugging Face cache, tiny or tiny2."},
    {.name = "B", .into = offsetof(compare_arguments, b), .help = "The model to compare it with."},
};

static const cli_option compare_options[] = {
    {.name = "hidden",
     .kind = CLI_TEXT,
     .into = offsetof(compare_arguments, hidden),
     .argument = "FILE",
     .help = "Compare with the hidden states and logits of a safetensors file, as run --hidden "
             "writes: hidden.0 to hidden.n_layers [L, d_model], or one tensor hidden "
             "[n_layers + 1, L, d_model]; logits [L, vocab_size]; ids [L]."},
    {.name = "logits",
     .kind = CLI_TEXT,
     .into = offsetof(compare_arguments, logits),
     .argument = "FILE",
     .help = "The logits are in this file instead, as run --logits writes."},
    {.name = "sequence",
     .kind = CLI_TEXT,
     .into = offsetof(compare_arguments, sequence),
     .argument = "S",
     .help = "Take hidden_float64.S (or hidden.S), logits_float64.S (or logits.S) and ids.S of a "
             "file that holds several texts."},
    {.name = "ids",
     .kind = CLI_TEXT,
     .into = offsetof(compare_arguments, ids),
     .argument = "FILE",
     .conflicts = "prompt",
     .help = "Run these token ids; - is standard input. Without a text, those of --hidden, or 32 "
             "ids drawn once and for all."},
    {.name = "prompt",
     .letter = 'p',
     .kind = CLI_TEXT,
     .into = offsetof(compare_arguments, prompt),
     .argument = "TEXT",
     .help = "Run this text, in the tokens of A."},
    {.name = "tolerance",
     .kind = CLI_REAL,
     .into = offsetof(compare_arguments, tolerance),
     .argument = "X",
     .fallback = "0",
     .low = 0,
     .high = 1e9,
     .help =
         "The largest difference, as a part of the largest number, that counts as the same; 0: "
         "1e-5, or 8 unit roundoffs of a narrower dtype that one side went through (F16 0.0039, "
         "BF16 0.031)."},
    {.name = "reference",
     .kind = CLI_FLAG,
     .into = offsetof(compare_arguments, reference),
     .help = "Run A by the float64 reference; without B or --hidden, against A as it runs "
             "otherwise."},
    CLI_LOAD_ENTRIES(compare_arguments),
};

static const char *const compare_examples[] = {
    "ssmscope compare models/before models/after",
    "What a conversion or a fine-tuning changed, and where it is first felt.",
    "ssmscope compare mine --hidden theirs.safetensors",
    "Does this program compute what another one did?",
    "ssmscope compare mine --reference",
    "This program against its own float64 reference.",
    NULL};

const cli_command cli_command_compare = {
    .name = "compare",
    .summary = "two models, or a model and a file of hidden states",
    .description = "Compares the weights of two models slot by slot, then runs both on one text "
                   "and compares the residual stream after every block, and the logits. The first "
                   "layer that is apart by more than the tolerance is named and, with two models, "
                   "the first tap inside it. Exit status 5 when they diverge.",
    .examples = compare_examples,
    .positionals = compare_positionals,
    .n_positionals = sizeof compare_positionals / sizeof *compare_positionals,
    .options = compare_options,
    .n_options = sizeof compare_options / sizeof *compare_options,
    .arguments_size = sizeof(compare_arguments),
    .run = run_compare,
};
