#include <math.h>
#include <stdio.h>
#include <string.h>

#include <ssmscope/select.h>

#include "commands.h"
#include "load.h"
#include "masks.h"
#include "messages.h"
#include "output.h"
#include "rules.h"
#include "select_output.h"

typedef struct select_arguments {
    const char *recording, *rule, *mask, *output, *model;
    bool curve;
    int64_t budget, scope, seed, windows;
    double ridge;
    cli_load load;
} select_arguments;

/* One run. */
typedef struct select_run {
    cli_context *context;
    const select_arguments *args;
    ssm_select_options options;
    ssm_recording *recording;
    cli_source source; /* of ghost, which runs the model */
    ssm_mask mask;
    char digest[64]; /* of the mask file */
    /* Mean over the layers on the calibration windows; NaN where Grams do not tell. */
    double error, error_unweighted;
} select_run;

static ssm_status print_json(const select_run *run, cli_mask_sums sums, ssm_error *err)
{
    const select_arguments *args = run->args;
    const ssm_mask *mask = &run->mask;
    cli_json json = cli_json_create(run->context, "select");
    cli_json_integer(&json, json.root, "seed", args->seed);
    if (run->source.model != NULL) {
        cli_json_source(&json, &run->source);
    } else {
        json_t *model = cli_json_object(&json, json.root, "model");
        cli_json_text(&json, model, "digest", mask->model_digest);
    }
    json_t *recording = cli_json_object(&json, json.root, "recording");
    cli_json_text(&json, recording, "path", args->recording);
    cli_json_text(&json, recording, "digest", mask->recording_digest);
    json_t *written = cli_json_object(&json, json.root, "mask");
    cli_json_text(&json, written, "path", args->output);
    cli_json_text(&json, written, "digest", run->digest);
    cli_json_text(&json, written, "rule", mask->rule);
    cli_json_integer(&json, written, "budget", mask->budget);
    cli_json_text(&json, written, "scope", mask->scope);
    cli_json_integer(&json, written, "kept", sums.kept);
    cli_json_integer(&json, written, "modes", sums.modes);
    cli_json_real(&json, written, "calibration_error", run->error);
    if (mask->weight != NULL) {
        cli_json_real(&json, written, "ridge", args->ridge);
        cli_json_real(&json, written, "calibration_error_unweighted", run->error_unweighted);
    }
    return cli_json_print(&json, err);
}

/* What has a set of its own, as "384 channels of 8 layers": that many in every layer. */
static void print_sharers(const select_run *run, cli_mask_sums sums)
{
    const ssm_mask *mask = &run->mask;
    const int64_t groups = ssm_recording_get_info(run->recording)->n_groups;
    if (strcmp(mask->scope, "layer") == 0) {
        printf("%lld layers", (long long)sums.layers);
        return;
    }
    const int64_t sets = strcmp(mask->scope, "group") == 0 ? groups : mask->n_channels;
    printf("%lld %s%s of %lld layers", (long long)sets, mask->scope, sets == 1 ? "" : "s",
           (long long)sums.layers);
}

static void print_for_people(const select_run *run, cli_mask_sums sums)
{
    const ssm_mask *mask = &run->mask;
    printf("%s: rule %s\n%lld of %lld modes kept%s in each of ", run->args->output, mask->rule,
           (long long)mask->budget, (long long)mask->d_state,
           mask->mean_budget ? " on average" : "");
    print_sharers(run, sums);
    printf(" (%.1f %% of the state)\n", 100.0 * (double)sums.kept / (double)sums.modes);
    if (mask->weight != NULL) {
        printf("weights by least squares with ridge %g: error %.5f on the calibration windows, "
               "%.5f without them\n",
               run->args->ridge, run->error, run->error_unweighted);
    } else if (!isnan(run->error)) {
        printf("error %.5f on the calibration windows\n", run->error);
    }
}

/* ghost measures every layer behind the pruned ones before it: a forward pass, so a model. */
static ssm_status select_ghost(select_run *run, ssm_error *err)
{
    const select_arguments *args = run->args;
    ssm_status status = cli_source_open(run->context, args->model, &args->load,
                                        CLI_WANT_MODEL | CLI_WANT_DIGEST, &run->source, err);
    if (status == SSM_STATUS_OK) {
        status = cli_recording_check(args->recording, run->recording, &run->source, err);
    }
    if (status == SSM_STATUS_OK) {
        status = cli_mask_ghost(run->context, run->recording, &run->source, run->options.scope,
                                args->budget, &run->mask, err);
    }
    run->mask.seed = run->options.seed;
    return status;
}

static ssm_status write_mask(select_run *run, ssm_error *err)
{
    const select_arguments *args = run->args;
    ssm_status status = cli_is_ghost(args->rule)
                            ? select_ghost(run, err)
                            : ssm_select(run->recording, &run->options, &run->mask, err);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    ssm_mask unweighted = run->mask;
    unweighted.weight = NULL;
    unweighted.skip_weight = NULL;
    status = cli_mask_error(run->recording, &run->mask, SSM_ROLE_CALIBRATION, &run->error, err);
    if (status == SSM_STATUS_OK && run->mask.weight != NULL) {
        status = cli_mask_error(run->recording, &unweighted, SSM_ROLE_CALIBRATION,
                                &run->error_unweighted, err);
    }
    status = status == SSM_STATUS_OK
                 ? ssm_mask_write(&run->mask, args->output, run->context->canonical, err)
                 : status;
    status = status == SSM_STATUS_OK ? ssm_file_digest(args->output, run->digest, err) : status;
    if (status != SSM_STATUS_OK) {
        return status;
    }
    const cli_mask_sums sums = cli_mask_count(&run->mask, run->recording);
    if (run->context->globals.json) {
        return print_json(run, sums, err);
    }
    print_for_people(run, sums);
    return SSM_STATUS_OK;
}

/* A mask that names no model is measured by ssm_select_error. */
static ssm_status check_mask(const select_run *run, ssm_error *err)
{
    const char *digest = ssm_recording_get_info(run->recording)->model_digest;
    if (run->mask.model_digest[0] == '\0' || strcmp(run->mask.model_digest, digest) == 0) {
        return SSM_STATUS_OK;
    }
    return cli_fail(err, SSM_STATUS_FILE, run->args->mask,
                    "the mask is for model %s, but %s is a recording of model %s: select makes one "
                    "from it",
                    run->mask.model_digest, run->args->recording, digest);
}

static ssm_status print_curve(select_run *run, ssm_error *err)
{
    static const char *const roles[] = {"evaluation", "calibration"};
    const select_arguments *args = run->args;
    const ssm_role role = args->windows == 0 ? SSM_ROLE_EVALUATION : SSM_ROLE_CALIBRATION;
    const bool weighs = args->rule != NULL && strncmp(args->rule, "compensated", 11) == 0;
    cli_curve curve = {.recording = args->recording,
                       .digest = ssm_recording_get_info(run->recording)->digest,
                       .rule = args->rule,
                       .scope = run->options.scope,
                       .windows = roles[args->windows],
                       .seed = args->seed,
                       .ridge = weighs ? args->ridge : (double)NAN,
                       .mask = args->mask,
                       .mask_digest = run->digest};
    ssm_status status = SSM_STATUS_OK;
    if (args->mask != NULL) {
        status = ssm_mask_read(args->mask, &run->mask, err);
        status = status == SSM_STATUS_OK ? check_mask(run, err) : status;
        status = status == SSM_STATUS_OK ? ssm_file_digest(args->mask, run->digest, err) : status;
        status = status == SSM_STATUS_OK
                     ? ssm_select_error(run->recording, &run->mask, role, &curve.errors, err)
                     : status;
        curve.rule = run->mask.rule;
        curve.scope = run->mask.scope;
    } else {
        status = ssm_select_curve(run->recording, &run->options, role, &curve.errors, err);
    }
    status = status == SSM_STATUS_OK ? cli_curve_print(run->context, &curve, err) : status;
    ssm_error_curve_free(&curve.errors);
    return status;
}

/* A rule that chooses anew for every window, with whatever stands behind its name. */
static bool chooses_anew(const char *rule)
{
    char name[32];
    const size_t length = strcspn(rule, ":");
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : 0), rule);
    return ssm_adapt_is_rule(name);
}

/* A mask file needs its budget and its name; a curve has neither. */
static ssm_status check_arguments(const select_arguments *args, ssm_error *err)
{
    if (args->rule != NULL && chooses_anew(args->rule)) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "rule %.64s chooses anew for every window or domain of a text, so it has "
                        "no mask to write: eval --rule and sweep judge it",
                        args->rule);
    }
    const bool prints = args->curve || args->mask != NULL;
    if (!prints && args->budget == CLI_UNSET) {
        return cli_fail(
            err, SSM_STATUS_USAGE, NULL,
            "select: --budget R is missing (or give --curve for the errors of all budgets)");
    }
    if (!prints && args->output == NULL) {
        return cli_fail(
            err, SSM_STATUS_USAGE, NULL,
            "select: --output MASK is missing (or give --curve for the errors of all budgets)");
    }
    if (prints && (args->budget != CLI_UNSET || args->output != NULL)) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "%s prints errors and writes no mask: --budget and --output do not go "
                        "with it",
                        args->mask != NULL ? "--mask" : "--curve");
    }
    if (args->mask != NULL && args->scope != 0) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--scope is of the sets that a rule chooses: a mask has its own");
    }
    if (!prints && args->windows != 0) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--on is for the errors of --curve and --mask; sets are always chosen on "
                        "the calibration windows");
    }
    return SSM_STATUS_OK;
}

/* What needs a model says so, and nothing else takes one. */
static ssm_status check_model(const select_arguments *args, ssm_error *err)
{
    const bool ghost = args->rule != NULL && cli_is_ghost(args->rule);
    if (ghost && args->curve) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--curve is of rules that need no forward pass: rule ghost runs the model "
                        "for one budget; write its mask, and select --mask prints what it costs");
    }
    if (ghost && args->model == NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "rule ghost measures every layer behind the pruned ones before it: give "
                        "--model MODEL, the one that was recorded");
    }
    if (!ghost && args->model != NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--model is for rule ghost: all else needs the recording only");
    }
    if (!ghost && (args->load.lenient || args->load.ignore_index || args->load.norm_groups != 0)) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--lenient, --ignore-index and --norm-groups say how --model is read: they "
                        "are for rule ghost");
    }
    return SSM_STATUS_OK;
}

static ssm_status run_select(cli_context *context, const void *arguments, ssm_error *err)
{
    static const char *const scopes[] = {"channel", "head", "group", "layer"};
    const select_arguments *args = arguments;
    select_run run = {.context = context,
                      .args = args,
                      .options = {.rule = args->rule,
                                  .budget = args->budget,
                                  .scope = scopes[args->scope],
                                  .seed = (uint64_t)args->seed,
                                  .ridge = args->ridge,
                                  .isa = (ssm_isa)context->globals.isa}};
    ssm_status status = check_arguments(args, err);
    status = status == SSM_STATUS_OK ? check_model(args, err) : status;
    status = status == SSM_STATUS_OK ? cli_pool(context, &run.options.pool, err) : status;
    status =
        status == SSM_STATUS_OK ? ssm_recording_open(args->recording, &run.recording, err) : status;
    if (status == SSM_STATUS_OK) {
        status = args->curve || args->mask != NULL ? print_curve(&run, err) : write_mask(&run, err);
    }
    ssm_mask_free(&run.mask);
    ssm_recording_close(run.recording);
    cli_source_close(&run.source);
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
     .words = cli_mask_rule_names,
     .help =
         "What ranks the modes, on the calibration windows: static (mean energy), hankel, "
         "hankel-adjoint, last (one threshold for all layers; last:squared), activity, random, "
         "optimal (the best of all sets, up to 20 modes), greedy-swap (the same without looking "
         "everywhere), compensated (static with weights that make up for what is dropped; "
         "compensated:RULE for other sets), compensated-shared (the same with weights that prune "
         "can fold into a smaller checkpoint). ghost (Mamba-2, --scope group) runs --model layer "
         "after layer."},
    {.name = "model",
     .kind = CLI_TEXT,
     .into = offsetof(select_arguments, model),
     .argument = "MODEL",
     .help = "The model that was recorded, for ghost, which measures every layer behind the pruned "
             "ones before it: directory, file, name in the Hugging Face cache, tiny or tiny2."},
    {.name = "mask",
     .kind = CLI_TEXT,
     .into = offsetof(select_arguments, mask),
     .argument = "MASK",
     .help = "Write nothing; print the exact error of this mask, your own for example."},
    {.name = "curve",
     .kind = CLI_FLAG,
     .into = offsetof(select_arguments, curve),
     .help = "Write nothing; print the error of the rule at every budget."},
    {.name = "on",
     .kind = CLI_CHOICE,
     .into = offsetof(select_arguments, windows),
     .choices = "evaluation|calibration",
     .fallback = "evaluation",
     .help = "Which windows the errors of --curve and --mask are of."},
    {.name = "budget",
     .kind = CLI_INTEGER,
     .into = offsetof(select_arguments, budget),
     .argument = "R",
     .min = 1,
     .max = 65536,
     .help = "Modes to keep in every channel (or head), 1 to d_state; by last, in the mean."},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_TEXT,
     .into = offsetof(select_arguments, output),
     .argument = "MASK",
     .flags = CLI_OUTPUT,
     .help = "Mask file to write (safetensors)."},
    {.name = "scope",
     .kind = CLI_CHOICE,
     .into = offsetof(select_arguments, scope),
     .choices = "channel|head|group|layer",
     .fallback = "channel",
     .help =
         "channel: every channel has its own set; head, group (Mamba-2): one set for all channels "
         "of a head, or of the heads that share B and C; layer: one set for all channels of a "
         "layer."},
    {.name = "seed",
     .kind = CLI_INTEGER,
     .into = offsetof(select_arguments, seed),
     .argument = "S",
     .fallback = "0",
     .min = 0,
     .max = INT64_MAX,
     .help = "Seed of rules that draw."},
    CLI_RIDGE_ENTRY(select_arguments),
    CLI_LOAD_ENTRIES(select_arguments),
};

static const char *const select_examples[] = {
    "ssmscope select rec --rule static --budget 8 -o mask.safetensors",
    "Keep the 8 modes of every channel that have the most energy.",
    "ssmscope select rec --rule optimal --curve",
    "What every budget costs when the best sets are kept, without a forward pass.",
    "ssmscope select rec --mask mine.safetensors",
    "What a mask of your own costs, layer by layer.",
    "ssmscope select rec --rule ghost --scope group --budget 64 --model DIR -o mask.safetensors",
    "GHOST's mask of a Mamba-2 model: layers pruned one after the other.",
    NULL};

const cli_command cli_command_select = {
    .name = "select",
    .summary = "choose which modes to keep, by a rule, and write a mask",
    .description =
        "Chooses from a recording's calibration windows which modes of every channel to keep. The "
        "mask runs with run --mask and is judged by eval --mask.\n\nWith --curve or --mask it "
        "prints what sets cost: the exact relative error of every layer's output, from the "
        "recording's Grams.",
    .examples = select_examples,
    .positionals = select_positionals,
    .n_positionals = sizeof select_positionals / sizeof *select_positionals,
    .options = select_options,
    .n_options = sizeof select_options / sizeof *select_options,
    .one_of = "rule,mask",
    .arguments_size = sizeof(select_arguments),
    .run = run_select,
};
