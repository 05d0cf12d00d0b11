#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "load.h"
#include "messages.h"
#include "info_config.h"
#include "plan.h"

typedef struct info_arguments {
    const char *model;
    bool tensors;
    cli_load load;
} info_arguments;

/* Sums over the tensors of one dtype. */
typedef struct dtype_sum {
    int64_t tensors, parameters, bytes;
} dtype_sum;

typedef struct weight_sums {
    dtype_sum by_dtype[SSM_DTYPE_COUNT], used, unused;
} weight_sums;

static void add_to(dtype_sum *sum, const ssm_tensor *tensor)
{
    sum->tensors++;
    sum->parameters += ssm_tensor_count(tensor);
    sum->bytes += (int64_t)tensor->bytes;
}

static weight_sums sum_weights(const ssm_checkpoint *checkpoint)
{
    weight_sums sums = {0};
    for (int64_t i = 0; i < ssm_checkpoint_count(checkpoint); i++) {
        const ssm_tensor *tensor = ssm_checkpoint_at(checkpoint, i);
        if (ssm_checkpoint_used(checkpoint, i)) {
            add_to(&sums.by_dtype[tensor->dtype], tensor);
            add_to(&sums.used, tensor);
        } else {
            add_to(&sums.unused, tensor);
        }
    }
    return sums;
}

static void format_shape(const ssm_tensor *tensor, char out[128])
{
    int used = snprintf(out, 128, "[");
    for (int d = 0; d < tensor->n_dims && used < 100; d++) {
        used += snprintf(out + used, 128 - (size_t)used, "%s%lld", d == 0 ? "" : ", ",
                         (long long)tensor->dims[d]);
    }
    snprintf(out + used, 128 - (size_t)used, "]");
}

/* ---- for people ------------------------------------------------------------------------------ */

static ssm_status print_identity(const cli_source *source, const weight_sums *sums, ssm_error *err)
{
    cli_table table = cli_table_create(NULL, "ll");
    char count[32];
    char bytes[32];
    cli_table_cell(&table, "model");
    cli_table_cell(&table, "%s", source->argument);
    cli_table_cell(&table, "path");
    cli_table_cell(&table, "%s", source->where.path);
    if (source->where.commit[0] != '\0') {
        cli_table_cell(&table, "commit");
        cli_table_cell(&table, "%s", source->where.commit);
    }
    cli_table_cell(&table, "family");
    cli_table_cell(&table, "%s", ssm_family_name(source->config->family));
    cli_table_cell(&table, "digest");
    cli_table_cell(&table, "%s", source->digest);
    cli_format_count(sums->used.parameters, count);
    cli_format_bytes((double)sums->used.bytes, bytes);
    cli_table_cell(&table, "parameters");
    cli_table_cell(&table, "%s in %lld tensors, %s", count, (long long)sums->used.tensors, bytes);
    for (int d = 0; d < SSM_DTYPE_COUNT; d++) {
        const dtype_sum *sum = &sums->by_dtype[d];
        if (sum->tensors > 0) {
            cli_format_count(sum->parameters, count);
            cli_format_bytes((double)sum->bytes, bytes);
            cli_table_cell(&table, "  stored as %s", ssm_dtype_name((ssm_dtype)d));
            cli_table_cell(&table, "%s in %lld tensors, %s", count, (long long)sum->tensors, bytes);
        }
    }
    cli_table_cell(&table, "computed in");
    cli_table_cell(&table, "F32 (sums of log-probabilities in F64)");
    cli_table_cell(&table, "tokenizer");
    if (source->tokenizer == NULL) {
        cli_table_cell(&table, "none beside the model (text needs one; --ids does not)");
    } else {
        cli_table_cell(&table, "%lld ids, %s",
                       (long long)ssm_tokenizer_vocab_size(source->tokenizer),
                       ssm_tokenizer_digest(source->tokenizer));
    }
    return cli_table_print(&table, stdout, err);
}

static ssm_status print_plan(const cli_source *source, const weight_sums *sums, ssm_error *err)
{
    static const char *const headings[] = {"plan", "bytes", "for"};
    const int64_t with_states = cli_plan_layers_with_states(source->checkpoint);
    cli_plan_recording recording = cli_plan_record(source->config, with_states, 1024);
    const struct {
        const char *name;
        int64_t bytes;
        const char *what;
    } rows[] = {
        {"weights", sums->used.bytes, "mapped from the files, in their stored dtype"},
        {"state", cli_plan_state_bytes(source->checkpoint),
         "one stream of text, whatever its length"},
        {"mode", cli_plan_mode_bytes(source->checkpoint),
         "of the state, a mode of every channel; dropped ones take none"},
        {"cache", cli_plan_token_bytes(source->checkpoint),
         "and with every token, keys and values of attention"},
        {"record", recording.window_bytes, "on disk, a window of 1024 tokens"},
        {"record", recording.window_gram_bytes,
         "more for the Grams of an evaluation window or a domain's sum"},
    };
    cli_table table = cli_table_create(headings, "lrl");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char bytes[32];
        if (rows[i].bytes == 0) {
            continue;
        }
        cli_format_bytes((double)rows[i].bytes, bytes);
        cli_table_cell(&table, "%s", rows[i].name);
        cli_table_cell(&table, "%s", bytes);
        cli_table_cell(&table, "%s", rows[i].what);
    }
    return cli_table_print(&table, stdout, err);
}

static ssm_status print_tensors(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    static const char *const headings[] = {"tensor", "dtype", "shape", "bytes", "used"};
    cli_table table = cli_table_create(headings, "lllrl");
    for (int64_t i = 0; i < ssm_checkpoint_count(checkpoint); i++) {
        const ssm_tensor *tensor = ssm_checkpoint_at(checkpoint, i);
        char shape[128];
        format_shape(tensor, shape);
        cli_table_cell(&table, "%s", tensor->name);
        cli_table_cell(&table, "%s", ssm_dtype_name(tensor->dtype));
        cli_table_cell(&table, "%s", shape);
        cli_table_cell(&table, "%zu", tensor->bytes);
        cli_table_cell(&table, "%s", ssm_checkpoint_used(checkpoint, i) ? "yes" : "no");
    }
    putchar('\n');
    return cli_table_print(&table, stdout, err);
}

static ssm_status print_for_people(const cli_source *source, const weight_sums *sums, bool tensors,
                                   ssm_error *err)
{
    ssm_status status = print_identity(source, sums, err);
    putchar('\n');
    status = status == SSM_STATUS_OK ? cli_info_shape(source->checkpoint, err) : status;
    putchar('\n');
    status = status == SSM_STATUS_OK ? print_plan(source, sums, err) : status;
    int64_t notes = ssm_checkpoint_note_count(source->checkpoint);
    for (int64_t i = 0; i < notes; i++) {
        fputs(i == 0 ? "\nnotes of the load\n- " : "- ", stdout);
        cli_print_wrapped(stdout, ssm_checkpoint_note(source->checkpoint, i), 2, 2);
    }
    return status == SSM_STATUS_OK && tensors ? print_tensors(source->checkpoint, err) : status;
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void json_sum(cli_json *json, json_t *object, const char *key, const dtype_sum *sum)
{
    json_t *member = cli_json_object(json, object, key);
    cli_json_integer(json, member, "tensors", sum->tensors);
    cli_json_integer(json, member, "parameters", sum->parameters);
    cli_json_integer(json, member, "bytes", sum->bytes);
}

static void json_tensors(cli_json *json, const ssm_checkpoint *checkpoint)
{
    json_t *tensors = cli_json_array(json, json->root, "tensors");
    for (int64_t i = 0; i < ssm_checkpoint_count(checkpoint); i++) {
        const ssm_tensor *tensor = ssm_checkpoint_at(checkpoint, i);
        json_t *object = json_object();
        cli_json_text(json, object, "name", tensor->name);
        cli_json_text(json, object, "dtype", ssm_dtype_name(tensor->dtype));
        json_t *shape = cli_json_array(json, object, "shape");
        for (int d = 0; d < tensor->n_dims; d++) {
            cli_json_push(json, shape, json_integer(tensor->dims[d]));
        }
        cli_json_integer(json, object, "bytes", (int64_t)tensor->bytes);
        cli_json_bool(json, object, "used", ssm_checkpoint_used(checkpoint, i));
        cli_json_push(json, tensors, object);
    }
}

static ssm_status print_json(const cli_context *context, const cli_source *source,
                             const weight_sums *sums, bool tensors, ssm_error *err)
{
    cli_json json = cli_json_create(context, "info");
    cli_json_source(&json, source);
    cli_info_config(&json, source->checkpoint);
    json_t *weights = cli_json_object(&json, json.root, "weights");
    json_sum(&json, weights, "used", &sums->used);
    json_sum(&json, weights, "unused", &sums->unused);
    json_t *dtypes = cli_json_object(&json, weights, "dtypes");
    for (int d = 0; d < SSM_DTYPE_COUNT; d++) {
        if (sums->by_dtype[d].tensors > 0) {
            json_sum(&json, dtypes, ssm_dtype_name((ssm_dtype)d), &sums->by_dtype[d]);
        }
    }
    if (source->tokenizer == NULL) {
        cli_json_put(&json, json.root, "tokenizer", json_null());
    } else {
        json_t *tokenizer = cli_json_object(&json, json.root, "tokenizer");
        cli_json_integer(&json, tokenizer, "vocab_size",
                         ssm_tokenizer_vocab_size(source->tokenizer));
        cli_json_text(&json, tokenizer, "digest", ssm_tokenizer_digest(source->tokenizer));
    }
    const int64_t with_states = cli_plan_layers_with_states(source->checkpoint);
    cli_plan_recording recording = cli_plan_record(source->config, with_states, 1024);
    json_t *plan = cli_json_object(&json, json.root, "plan");
    cli_json_integer(&json, plan, "weights_bytes", sums->used.bytes);
    cli_json_integer(&json, plan, "state_bytes", cli_plan_state_bytes(source->checkpoint));
    cli_json_integer(&json, plan, "mode_bytes", cli_plan_mode_bytes(source->checkpoint));
    cli_json_integer(&json, plan, "token_bytes", cli_plan_token_bytes(source->checkpoint));
    cli_json_integer(&json, plan, "record_window_1024_bytes", recording.window_bytes);
    cli_json_integer(&json, plan, "record_gram_bytes", recording.window_gram_bytes);
    json_t *notes = cli_json_array(&json, json.root, "notes");
    for (int64_t i = 0; i < ssm_checkpoint_note_count(source->checkpoint); i++) {
        cli_json_push(&json, notes, json_string(ssm_checkpoint_note(source->checkpoint, i)));
    }
    if (tensors) {
        json_tensors(&json, source->checkpoint);
    }
    return cli_json_print(&json, err);
}

static ssm_status run_info(cli_context *context, const void *arguments, ssm_error *err)
{
    const info_arguments *args = arguments;
    cli_source source;
    unsigned wants = CLI_TRY_TOKENIZER | CLI_WANT_DIGEST;
    ssm_status status = cli_source_open(context, args->model, &args->load, wants, &source, err);
    if (status == SSM_STATUS_OK) {
        weight_sums sums = sum_weights(source.checkpoint);
        status = context->globals.json ? print_json(context, &source, &sums, args->tensors, err)
                                       : print_for_people(&source, &sums, args->tensors, err);
    }
    cli_source_close(&source);
    return status;
}

static const cli_positional info_positionals[] = {
    {.name = "MODEL",
     .into = offsetof(info_arguments, model),
     .flags = CLI_REQUIRED,
     .help = "Directory, file, name in the Hugging Face cache, tiny or tiny2."},
};

static const cli_option info_options[] = {
    {.name = "tensors",
     .kind = CLI_FLAG,
     .into = offsetof(info_arguments, tensors),
     .help = "List every tensor of the files too."},
    CLI_LOAD_ENTRIES(info_arguments),
};

static const char *const info_examples[] = {
    "ssmscope info tiny", "The built-in model.", "ssmscope info state-spaces/mamba-130m-hf --json",
    "A model from the Hugging Face cache, for a program.", NULL};

const cli_command cli_command_info = {
    .name = "info",
    .summary = "shapes, dtypes, decisions of the load, and a plan of bytes",
    .description = "Opens a checkpoint, compares its tensors with its config.json, and prints what "
                   "it is: shapes, dtypes, whether the head is tied, how the step size is limited, "
                   "a digest of the weights, and the bytes that running and recording it will "
                   "take. Nothing is run.",
    .examples = info_examples,
    .positionals = info_positionals,
    .n_positionals = sizeof info_positionals / sizeof *info_positionals,
    .options = info_options,
    .n_options = sizeof info_options / sizeof *info_options,
    .arguments_size = sizeof(info_arguments),
    .run = run_info,
};
