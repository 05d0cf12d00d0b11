#include <stdio.h>
#include <string.h>

#include <ssmscope/select.h>

#include "commands.h"
#include "messages.h"
#include "output.h"

typedef struct select_arguments {
    const char *recording, *rule, *output;
    int64_t budget, scope, seed;
} select_arguments;

/* What the mask says about layers that have states: those of attention stand whole in it. */
typedef struct mask_sums {
    int64_t layers, modes, kept;
} mask_sums;

static mask_sums sums_of(const ssm_mask *mask, const ssm_recording *recording)
{
    const int64_t attention = ssm_recording_get_info(recording)->n_attention;
    const int64_t per_layer = mask->n_channels * mask->d_state;
    mask_sums sums = {.layers = mask->n_layers - attention, .kept = -attention * per_layer};
    sums.modes = sums.layers * per_layer;
    for (int64_t i = 0; i < mask->n_layers * per_layer; i++) {
        sums.kept += mask->keep[i] != 0;
    }
    return sums;
}

static ssm_status print_json(const cli_context *context, const select_arguments *args,
                             const ssm_mask *mask, mask_sums sums, const char *digest,
                             ssm_error *err)
{
    cli_json json = cli_json_create(context, "select");
    cli_json_integer(&json, json.root, "seed", args->seed);
    json_t *model = cli_json_object(&json, json.root, "model");
    cli_json_text(&json, model, "digest", mask->model_digest);
    json_t *recording = cli_json_object(&json, json.root, "recording");
    cli_json_text(&json, recording, "path", args->recording);
    cli_json_text(&json, recording, "digest", mask->recording_digest);
    json_t *written = cli_json_object(&json, json.root, "mask");
    cli_json_text(&json, written, "path", args->output);
    cli_json_text(&json, written, "digest", digest);
    cli_json_text(&json, written, "rule", mask->rule);
    cli_json_integer(&json, written, "budget", mask->budget);
    cli_json_text(&json, written, "scope", mask->scope);
    cli_json_integer(&json, written, "kept", sums.kept);
    cli_json_integer(&json, written, "modes", sums.modes);
    return cli_json_print(&json, err);
}

static void print_for_people(const select_arguments *args, const ssm_mask *mask, mask_sums sums)
{
    printf("%s: rule %s\n%lld of %lld modes kept in each of %lld %ss of %lld layers (%.1f %% of "
           "the state)\n",
           args->output, mask->rule, (long long)mask->budget, (long long)mask->d_state,
           (long long)mask->n_channels, mask->scope, (long long)sums.layers,
           100.0 * (double)sums.kept / (double)sums.modes);
}

static ssm_status run_select(cli_context *context, const void *arguments, ssm_error *err)
{
    static const char *const scopes[] = {"channel", "head", "layer"};
    const select_arguments *args = arguments;
    const ssm_select_options options = {.rule = args->rule,
                                        .budget = args->budget,
                                        .scope = scopes[args->scope],
                                        .seed = (uint64_t)args->seed};
    ssm_recording *recording = NULL;
    ssm_mask mask = {0};
    char digest[64];
    ssm_status status = ssm_recording_open(args->recording, &recording, err);
    status = status == SSM_STATUS_OK ? ssm_select(recording, &options, &mask, err) : status;
    if (status == SSM_STATUS_OK) {
        status = ssm_mask_write(&mask, args->output, context->canonical, err);
    }
    status = status == SSM_STATUS_OK ? ssm_file_digest(args->output, digest, err) : status;
    if (status == SSM_STATUS_OK) {
        if (context->globals.json) {
            status = print_json(context, args, &mask, sums_of(&mask, recording), digest, err);
        } else {
            print_for_people(args, &mask, sums_of(&mask, recording));
        }
    }
    ssm_mask_free(&mask);
    ssm_recording_close(recording);
    return status;
}

static const cli_positional select_positionals[] = {
    {.name = "REC",
     .into = offsetof(select_arguments, recording),
     .flags = CLI_REQUIRED,
     .help = "A recording: the directory that record wrote."},
};

static const cli_option select_options[] = {
    {.name = "rule",
     .kind = CLI_TEXT,
     .into = offsetof(select_arguments, rule),
     .argument = "RULE",
     .words = ssm_select_rules,
     .flags = CLI_REQUIRED,
     .help = "static: the modes with the largest mean energy over the calibration windows."},
    {.name = "budget",
     .kind = CLI_INTEGER,
     .into = offsetof(select_arguments, budget),
     .argument = "R",
     .min = 1,
     .max = 65536,
     .flags = CLI_REQUIRED,
     .help = "Modes to keep in every channel (or head), 1 to d_state."},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_TEXT,
     .into = offsetof(select_arguments, output),
     .argument = "MASK",
     .flags = CLI_REQUIRED | CLI_OUTPUT,
     .help = "Mask file to write (safetensors)."},
    {.name = "scope",
     .kind = CLI_CHOICE,
     .into = offsetof(select_arguments, scope),
     .choices = "channel|head|layer",
     .fallback = "channel",
     .help =
         "channel: every channel has its own set; head (Mamba-2): one set for all channels of a "
         "head; layer: one set for all channels of a layer."},
    {.name = "seed",
     .kind = CLI_INTEGER,
     .into = offsetof(select_arguments, seed),
     .argument = "S",
     .fallback = "0",
     .min = 0,
     .max = INT64_MAX,
     .help = "Seed of rules that draw."},
};

static const char *const select_examples[] = {
    "ssmscope select rec --rule static --budget 8 -o mask.safetensors",
    "Keep the 8 modes of every channel that have the most energy.", NULL};

const cli_command cli_command_select = {
    .name = "select",
    .summary = "choose which modes to keep, by a rule, and write a mask",
    .description = "Chooses from a recording's calibration windows which modes of every channel to "
                   "keep. The mask runs with run --mask and is judged by eval --mask.",
    .examples = select_examples,
    .positionals = select_positionals,
    .n_positionals = sizeof select_positionals / sizeof *select_positionals,
    .options = select_options,
    .n_options = sizeof select_options / sizeof *select_options,
    .arguments_size = sizeof(select_arguments),
    .run = run_select,
};
