#include <stdio.h>

#include <ssmscope/prune.h>

#include "commands.h"
#include "load.h"
#include "masks.h"
#include "messages.h"
#include "written.h"

typedef struct prune_arguments {
    const char *model, *mask, *output;
    bool renormalised;
    cli_load load;
} prune_arguments;

/* What was made of what. */
typedef struct prune_run {
    cli_context *context;
    const prune_arguments *args;
    cli_source source;
    ssm_mask mask;
    char mask_digest[64], digest[64]; /* of the mask's file; of the new model */
    ssm_prune_result result;
} prune_run;

static ssm_status print_json(const prune_run *run, ssm_error *err)
{
    cli_json json = cli_json_create(run->context, "prune");
    cli_json_source(&json, &run->source);
    json_t *mask = cli_json_object(&json, json.root, "mask");
    cli_json_text(&json, mask, "path", run->args->mask);
    cli_json_text(&json, mask, "digest", run->mask_digest);
    cli_json_text(&json, mask, "rule", run->mask.rule);
    json_t *written = cli_json_object(&json, json.root, "written");
    cli_json_text(&json, written, "path", run->args->output);
    cli_json_text(&json, written, "digest", run->digest);
    cli_json_integer(&json, written, "d_state", run->result.d_state);
    cli_json_integer(&json, written, "d_state_before", run->source.config->d_state);
    cli_json_bool(&json, written, "weights_folded", run->result.folded);
    cli_json_bool(&json, written, "renormalised", run->args->renormalised);
    return cli_json_print(&json, err);
}

static void print_for_people(const prune_run *run)
{
    printf("%s: %s layout, %s\n%lld of %lld modes in every layer%s\ndigest %s\n", run->args->output,
           cli_layout_name(run->result.layout), cli_container_name(run->result.container),
           (long long)run->result.d_state, (long long)run->source.config->d_state,
           run->result.folded ? ", with the mask's weights folded in" : "", run->digest);
    if (run->args->renormalised) {
        printf("a different model: its norms of B and C run over the kept modes only, which the "
               "masked run's do not; measure it by itself\n");
    }
}

static ssm_status prune(prune_run *run, ssm_error *err)
{
    const prune_arguments *args = run->args;
    const ssm_prune_options options = {.renormalised = args->renormalised,
                                       .model_digest = run->source.digest,
                                       .mask_digest = run->mask_digest,
                                       .command = run->context->canonical,
                                       .mask_path = args->mask};
    ssm_status status = ssm_prune(run->source.checkpoint, &run->mask, &options, args->output,
                                  cli_progress_start(run->context), &run->result, err);
    cli_progress_clear(run->context);
    status = status == SSM_STATUS_OK ? cli_check_written(args->output, run->digest, err) : status;
    if (status != SSM_STATUS_OK) {
        return status;
    }
    cli_note_losses(run->context, run->source.config, run->result.layout);
    if (run->context->globals.json) {
        return print_json(run, err);
    }
    print_for_people(run);
    return SSM_STATUS_OK;
}

static ssm_status run_prune(cli_context *context, const void *arguments, ssm_error *err)
{
    const prune_arguments *args = arguments;
    prune_run run = {.context = context, .args = args};
    ssm_status status =
        cli_source_open(context, args->model, &args->load, CLI_WANT_DIGEST, &run.source, err);
    status =
        status == SSM_STATUS_OK ? cli_mask_read(args->mask, &run.source, &run.mask, err) : status;
    status = status == SSM_STATUS_OK ? ssm_file_digest(args->mask, run.mask_digest, err) : status;
    status = status == SSM_STATUS_OK ? prune(&run, err) : status;
    ssm_mask_free(&run.mask);
    cli_source_close(&run.source);
    return status;
}

static const cli_positional prune_positionals[] = {CLI_MODEL_ENTRY(prune_arguments)};

static const cli_option prune_options[] = {
    {.name = "mask",
     .kind = CLI_TEXT,
     .into = offsetof(prune_arguments, mask),
     .argument = "MASK",
     .flags = CLI_REQUIRED,
     .help = "Which modes to keep: a mask of select --scope layer (Mamba-2 also --scope group), by "
             "any rule that gives every layer the same budget."},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_TEXT,
     .into = offsetof(prune_arguments, output),
     .argument = "OUTDIR",
     .flags = CLI_REQUIRED | CLI_OUTPUT,
     .help = "Directory to write; it must not exist, or be empty."},
    {.name = "renormalised",
     .kind = CLI_FLAG,
     .into = offsetof(prune_arguments, renormalised),
     .help = "Falcon-Mamba only: write the model although its norms of B and C then run over the "
             "kept modes, which makes it a different one from the masked."},
    CLI_LOAD_ENTRIES(prune_arguments),
};

static const char *const prune_examples[] = {
    "ssmscope select rec --rule static --budget 8 --scope layer -o mask.safetensors",
    "The same 8 modes for all channels of a layer.",
    "ssmscope prune tiny --mask mask.safetensors -o tiny-8", "A checkpoint with half the state.",
    NULL};

const cli_command cli_command_prune = {
    .name = "prune",
    .summary = "write a smaller checkpoint that keeps a mask's modes",
    .description =
        "Writes a checkpoint with a smaller state size, in the layout of the source, that other "
        "software loads unchanged and that gives the logits of the masked run. A checkpoint has "
        "one state size, and one B and C for all channels of a layer (Mamba-2: of a group of "
        "heads): a mask that keeps other modes in other channels, or another number of them in "
        "other layers, is refused and runs with run --mask. The directory appears when all of it "
        "is written; pruned.json there says what it came from.",
    .examples = prune_examples,
    .positionals = prune_positionals,
    .n_positionals = sizeof prune_positionals / sizeof *prune_positionals,
    .options = prune_options,
    .n_options = sizeof prune_options / sizeof *prune_options,
    .arguments_size = sizeof(prune_arguments),
    .run = run_prune,
};
