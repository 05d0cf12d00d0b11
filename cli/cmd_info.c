#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "load.h"
#include "messages.h"
#include "plan.h"

typedef struct info_arguments {
    const char *model;
    bool tensors, lenient, ignore_index;
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

static void add_size(cli_table *table, const char *name, int64_t value, const char *meaning)
{
    cli_table_cell(table, "%s", name);
    cli_table_cell(table, "%lld", (long long)value);
    cli_table_cell(table, "%s", meaning);
}

static ssm_status print_shape(const ssm_config *config, ssm_error *err)
{
    static const char *const headings[] = {"shape", "value", "meaning"};
    cli_table table = cli_table_create(headings, "lrl");
    add_size(&table, "n_layers", config->n_layers, "blocks");
    add_size(&table, "d_model", config->d_model, "width of the residual stream");
    add_size(&table, "d_inner", config->d_inner, "channels of a layer");
    add_size(&table, "d_state", config->d_state, "modes (state coordinates) of a channel");
    add_size(&table, "d_conv", config->d_conv, "taps of the causal convolution");
    if (config->dt_rank > 0) {
        add_size(&table, "dt_rank", config->dt_rank, "rank of the step size projection");
    }
    if (config->n_heads > 0) {
        add_size(&table, "n_heads", config->n_heads, "heads of a layer");
        add_size(&table, "head_dim", config->head_dim, "channels of a head");
        add_size(&table, "n_groups", config->n_groups, "groups that share B and C");
    }
    add_size(&table, "vocab_size", config->vocab_size, "rows of the embedding");
    cli_table_cell(&table, "norm_eps");
    cli_table_cell(&table, "%g", config->norm_eps);
    cli_table_cell(&table, "added to the mean square in RMSNorm");
    cli_table_cell(&table, "dt limits");
    cli_table_cell(&table, "0, inf");
    cli_table_cell(&table, "the step size is not clamped when the model runs");
    cli_table_cell(&table, "head");
    cli_table_cell(&table, "%s", config->tied ? "tied" : "untied");
    cli_table_cell(&table, "%s", config->tied ? "lm_head is the embedding" : "lm_head is its own");
    return cli_table_print(&table, stdout, err);
}

static ssm_status print_plan(const cli_source *source, const weight_sums *sums, ssm_error *err)
{
    static const char *const headings[] = {"plan", "bytes", "for"};
    cli_plan_recording recording = cli_plan_record(source->config, source->config->n_layers, 1024);
    const struct {
        const char *name;
        int64_t bytes;
        const char *what;
    } rows[] = {
        {"weights", sums->used.bytes, "mapped from the files, in their stored dtype"},
        {"state", cli_plan_state_bytes(source->config), "one stream of text, whatever its length"},
        {"record", recording.window_bytes, "on disk, a window of 1024 tokens"},
        {"record", recording.window_gram_bytes,
         "more on disk for the Grams of an evaluation window, and of a domain's calibration"},
    };
    cli_table table = cli_table_create(headings, "lrl");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char bytes[32];
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
    status = status == SSM_STATUS_OK ? print_shape(source->config, err) : status;
    putchar('\n');
    status = status == SSM_STATUS_OK ? print_plan(source, sums, err) : status;
    int64_t notes = ssm_checkpoint_note_count(source->checkpoint);
    for (int64_t i = 0; i < notes; i++) {
        printf("%s- %s\n", i == 0 ? "\nnotes of the load\n" : "",
               ssm_checkpoint_note(source->checkpoint, i));
    }
    return status == SSM_STATUS_OK && tensors ? print_tensors(source->checkpoint, err) : status;
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void json_config(cli_json *json, const ssm_config *config)
{
    json_t *object = cli_json_object(json, json->root, "config");
    cli_json_text(json, object, "family", ssm_family_name(config->family));
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"vocab_size", config->vocab_size}, {"d_model", config->d_model},
                 {"n_layers", config->n_layers},     {"d_inner", config->d_inner},
                 {"d_state", config->d_state},       {"d_conv", config->d_conv},
                 {"dt_rank", config->dt_rank},       {"n_heads", config->n_heads},
                 {"head_dim", config->head_dim},     {"n_groups", config->n_groups},
                 {"bos_id", config->bos_id},         {"eos_id", config->eos_id},
                 {"pad_id", config->pad_id}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cli_json_integer(json, object, sizes[i].name, sizes[i].value);
    }
    cli_json_real(json, object, "norm_eps", config->norm_eps);
    cli_json_bool(json, object, "tied", config->tied);
    json_t *limits = cli_json_array(json, object, "dt_limits");
    cli_json_push(json, limits, json_real(0.0));
    cli_json_push(json, limits, json_null()); /* no upper limit */
}

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
    json_config(&json, source->config);
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
    cli_plan_recording recording = cli_plan_record(source->config, source->config->n_layers, 1024);
    json_t *plan = cli_json_object(&json, json.root, "plan");
    cli_json_integer(&json, plan, "weights_bytes", sums->used.bytes);
    cli_json_integer(&json, plan, "state_bytes", cli_plan_state_bytes(source->config));
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
    unsigned wants =
        CLI_TRY_TOKENIZER | CLI_WANT_DIGEST | cli_load_wants(args->lenient, args->ignore_index);
    ssm_status status = cli_source_open(context, args->model, wants, &source, err);
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
     .help = "Directory, file, name in the Hugging Face cache, or tiny."},
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
