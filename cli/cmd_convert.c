#include <stdio.h>
#include <string.h>

#include <ssmscope/convert.h>

#include "commands.h"
#include "load.h"
#include "messages.h"
#include "written.h"

typedef struct convert_arguments {
    const char *model, *output;
    int64_t to, dtype, format, shard_size;
    cli_load load;
} convert_arguments;

enum { FORMAT_AUTO, FORMAT_SAFETENSORS, FORMAT_BIN };

static ssm_convert_options options_of(const convert_arguments *args)
{
    static const ssm_dtype dtypes[] = {SSM_DTYPE_COUNT, SSM_DTYPE_F32, SSM_DTYPE_F16,
                                       SSM_DTYPE_BF16};
    const ssm_layout layout = args->to == 0 ? SSM_LAYOUT_HF : SSM_LAYOUT_ORIGINAL;
    /* What the software of each layout looks for first. */
    bool torch = args->format == FORMAT_BIN ||
                 (args->format == FORMAT_AUTO && layout == SSM_LAYOUT_ORIGINAL);
    return (ssm_convert_options){
        .layout = layout,
        .container = torch ? SSM_CONTAINER_TORCH : SSM_CONTAINER_SAFETENSORS,
        .dtype = dtypes[args->dtype],
        .shard_bytes = args->shard_size == CLI_UNSET ? 0 : args->shard_size};
}

static ssm_status print_json(const cli_context *context, const cli_source *source,
                             const convert_arguments *args, const char *digest, ssm_error *err)
{
    cli_json json = cli_json_create(context, "convert");
    cli_json_source(&json, source);
    json_t *written = cli_json_object(&json, json.root, "written");
    cli_json_text(&json, written, "path", args->output);
    cli_json_text(&json, written, "digest", digest);
    cli_json_bool(&json, written, "same_digest", strcmp(digest, source->digest) == 0);
    return cli_json_print(&json, err);
}

static ssm_status convert(cli_context *context, const cli_source *source,
                          const convert_arguments *args, ssm_error *err)
{
    const ssm_convert_options options = options_of(args);
    char digest[64];
    ssm_status status =
        ssm_convert(source->checkpoint, &options, args->output, cli_progress_start(context), err);
    cli_progress_clear(context);
    /* The digest is that of the source when nothing but the layout changed. */
    status = status == SSM_STATUS_OK ? cli_check_written(args->output, digest, err) : status;
    if (status != SSM_STATUS_OK) {
        return status;
    }
    cli_note_losses(context, source->config, options.layout);
    if (context->globals.json) {
        return print_json(context, source, args, digest, err);
    }
    printf("%s: %s layout, %s\ndigest %s%s\n", args->output, cli_layout_name(options.layout),
           cli_container_name(options.container), digest,
           strcmp(digest, source->digest) == 0 ? ", as before" : "");
    return SSM_STATUS_OK;
}

static ssm_status run_convert(cli_context *context, const void *arguments, ssm_error *err)
{
    const convert_arguments *args = arguments;
    cli_source source;
    unsigned wants = CLI_WANT_DIGEST;
    ssm_status status = cli_source_open(context, args->model, &args->load, wants, &source, err);
    if (status == SSM_STATUS_OK) {
        status = convert(context, &source, args, err);
    }
    cli_source_close(&source);
    return status;
}

static const cli_positional convert_positionals[] = {CLI_MODEL_ENTRY(convert_arguments)};

static const cli_option convert_options[] = {
    {.name = "to",
     .kind = CLI_CHOICE,
     .into = offsetof(convert_arguments, to),
     .choices = "hf|original",
     .flags = CLI_REQUIRED,
     .help = "The layout: of Hugging Face transformers, or of the original state-spaces code."},
    {.name = "dtype",
     .kind = CLI_CHOICE,
     .into = offsetof(convert_arguments, dtype),
     .choices = "keep|f32|f16|bf16",
     .fallback = "keep",
     .help = "How weights are stored. f16 and bf16 narrow the matrices; vectors, convolutions and "
             "A_log keep their type."},
    {.name = "shard-size",
     .kind = CLI_INTEGER,
     .into = offsetof(convert_arguments, shard_size),
     .argument = "BYTES",
     .min = 1,
     .max = INT64_MAX,
     .help = "Begin a new file, named by an index, before this many bytes of weights are passed."},
    {.name = "format",
     .kind = CLI_CHOICE,
     .into = offsetof(convert_arguments, format),
     .choices = "auto|safetensors|bin",
     .fallback = "auto",
     .help = "auto is safetensors for hf and bin (a torch file) for original."},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_TEXT,
     .into = offsetof(convert_arguments, output),
     .argument = "OUTDIR",
     .flags = CLI_REQUIRED | CLI_OUTPUT,
     .help = "Directory to write; it must not exist, or be empty."},
    CLI_LOAD_ENTRIES(convert_arguments),
};

static const char *const convert_examples[] = {
    "ssmscope convert state-spaces/mamba-130m --to hf -o mamba-130m-hf",
    "An original checkpoint for transformers.",
    "ssmscope convert ./model --to hf --dtype bf16 --shard-size 5000000000 -o ./smaller",
    "Half the size, in shards.", NULL};

const cli_command cli_command_convert = {
    .name = "convert",
    .summary = "write a checkpoint in another layout, container or dtype",
    .description =
        "Writes config.json, the weights and a copy of the tokenizer's files. Without --dtype the "
        "weights keep every bit. The directory appears when all of it is written; an interrupted "
        "or failed conversion leaves nothing. What the layout has no word for is refused by name.",
    .examples = convert_examples,
    .positionals = convert_positionals,
    .n_positionals = sizeof convert_positionals / sizeof *convert_positionals,
    .options = convert_options,
    .n_options = sizeof convert_options / sizeof *convert_options,
    .arguments_size = sizeof(convert_arguments),
    .run = run_convert,
};
