#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ssmscope/init.h>

#include "commands.h"
#include "messages.h"
#include "output.h"

typedef struct init_arguments {
    const char *shape, *output;
    int64_t seed, dtype;
} init_arguments;

static ssm_status print_json(const cli_context *context, const init_arguments *args,
                             const ssm_config *config, const char *digest, ssm_error *err)
{
    cli_json json = cli_json_create(context, "init");
    cli_json_integer(&json, json.root, "seed", args->seed);
    json_t *model = cli_json_object(&json, json.root, "model");
    cli_json_text(&json, model, "path", args->output);
    cli_json_text(&json, model, "digest", digest);
    cli_json_text(&json, json.root, "shape", args->shape);
    json_t *sizes = cli_json_object(&json, json.root, "config");
    cli_json_integer(&json, sizes, "vocab_size", config->vocab_size);
    cli_json_integer(&json, sizes, "d_model", config->d_model);
    cli_json_integer(&json, sizes, "n_layers", config->n_layers);
    cli_json_integer(&json, sizes, "d_inner", config->d_inner);
    cli_json_integer(&json, sizes, "d_state", config->d_state);
    return cli_json_print(&json, err);
}

/* Digest of what was written, read back from the disk. */
static ssm_status written_digest(const char *path, char digest[64], ssm_error *err)
{
    ssm_checkpoint *checkpoint = NULL;
    ssm_status status = ssm_checkpoint_open(path, NULL, &checkpoint, err);
    status = status == SSM_STATUS_OK ? ssm_checkpoint_digest(checkpoint, digest, err) : status;
    ssm_checkpoint_close(checkpoint);
    return status;
}

static ssm_status run_init(cli_context *context, const void *arguments, ssm_error *err)
{
    static const ssm_dtype dtypes[] = {SSM_DTYPE_F32, SSM_DTYPE_F16, SSM_DTYPE_BF16};
    const init_arguments *args = arguments;
    ssm_config config;
    char digest[64];
    ssm_layer_kind *kinds = NULL;
    ssm_status status = ssm_shape_config(args->shape, &config, err);
    if (status == SSM_STATUS_OK) {
        kinds = calloc((size_t)config.n_layers, sizeof *kinds);
        status = kinds == NULL ? cli_fail(err, SSM_STATUS_MEMORY, NULL, "out of memory")
                               : ssm_shape_layers(args->shape, kinds, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm_init_write_layers(&config, kinds, dtypes[args->dtype], (uint64_t)args->seed,
                                       args->output, cli_progress_start(context), err);
    }
    free(kinds);
    cli_progress_clear(context);
    status = status == SSM_STATUS_OK ? written_digest(args->output, digest, err) : status;
    if (status != SSM_STATUS_OK) {
        return status;
    }
    if (context->globals.json) {
        return print_json(context, args, &config, digest, err);
    }
    printf("%s: %s, %lld layers, d_model %lld, %s, seed %lld\ndigest %s\n", args->output,
           args->shape, (long long)config.n_layers, (long long)config.d_model,
           ssm_dtype_name(dtypes[args->dtype]), (long long)args->seed, digest);
    return SSM_STATUS_OK;
}

static const cli_option init_options[] = {
    {.name = "shape",
     .kind = CLI_TEXT,
     .into = offsetof(init_arguments, shape),
     .argument = "NAME",
     .words = ssm_shape_names,
     .flags = CLI_REQUIRED,
     .help = "One of tiny, mamba-130m, -370m, -790m, -1.4b, -2.8b, falcon-mamba-7b, mamba2-130m, "
             "-370m, -780m, -1.3b, -2.7b, mamba-codestral-7b, mamba2attn-2.7b; for tests "
             "tiny-falcon-mamba, "
             "tiny-mamba2, tiny-mamba2attn."},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_TEXT,
     .into = offsetof(init_arguments, output),
     .argument = "DIR",
     .flags = CLI_REQUIRED | CLI_OUTPUT,
     .help = "Directory to write; it must not hold a model yet."},
    {.name = "seed",
     .kind = CLI_INTEGER,
     .into = offsetof(init_arguments, seed),
     .argument = "S",
     .fallback = "0",
     .min = 0,
     .max = INT64_MAX,
     .help = "Seed of the weights; the same seed gives the same bytes."},
    {.name = "dtype",
     .kind = CLI_CHOICE,
     .into = offsetof(init_arguments, dtype),
     .choices = "f32|f16|bf16",
     .fallback = "f32",
     .help = "How the matrices are stored."},
};

static const char *const init_examples[] = {"ssmscope init --shape mamba-130m -o mamba-130m",
                                            "An untrained model of that shape, to measure speed.",
                                            NULL};

const cli_command cli_command_init = {
    .name = "init",
    .summary = "write a new, untrained checkpoint of a published shape",
    .description = "Writes config.json and model.safetensors with the published default "
                   "initialisation. The model is not trained: it is for benchmarks and tests.",
    .examples = init_examples,
    .options = init_options,
    .n_options = sizeof init_options / sizeof *init_options,
    .arguments_size = sizeof(init_arguments),
    .run = run_init,
};
