#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ssmscope/metrics.h>

#include "commands.h"
#include "messages.h"
#include "metrics_output.h"
#include "output.h"

typedef struct metrics_arguments {
    const char *recording;
    cli_list budgets;
    int64_t scope;
} metrics_arguments;

static ssm_status run_metrics(cli_context *context, const void *arguments, ssm_error *err)
{
    const metrics_arguments *args = arguments;
    ssm_recording *recording = NULL;
    ssm_metrics metrics = {0};
    ssm_status status = ssm_recording_open(args->recording, &recording, err);
    const ssm_scope scope = args->scope == 1 ? SSM_SCOPE_HEAD : SSM_SCOPE_CHANNEL;
    if (status == SSM_STATUS_OK && scope == SSM_SCOPE_HEAD &&
        ssm_recording_get_info(recording)->family != SSM_FAMILY_MAMBA2) {
        status = cli_fail(err, SSM_STATUS_USAGE, NULL,
                          "--scope head is for recordings of Mamba-2 models; this one is of a %s "
                          "model: --scope channel",
                          ssm_family_name(ssm_recording_get_info(recording)->family));
    }
    if (status == SSM_STATUS_OK) {
        status = ssm_metrics_compute(recording, scope, args->budgets.values, args->budgets.count,
                                     cli_progress_start(context), &metrics, err);
        cli_progress_clear(context);
    }
    if (status == SSM_STATUS_OK) {
        status = context->globals.json
                     ? cli_metrics_json(context, args->recording, recording, &metrics, err)
                     : cli_metrics_print(args->recording, recording, &metrics, err);
    }
    if (status == SSM_STATUS_OK && metrics.diagonal_identity_max_violation > cli_identity_bound) {
        status = cli_fail(err, SSM_STATUS_CHECK, args->recording,
                          "the diagonal identity is violated by %.2g, at most %.0e is allowed",
                          metrics.diagonal_identity_max_violation, cli_identity_bound);
    }
    ssm_metrics_free(&metrics);
    ssm_recording_close(recording);
    return status;
}

static const cli_positional metrics_positionals[] = {
    {.name = "REC",
     .into = offsetof(metrics_arguments, recording),
     .flags = CLI_REQUIRED,
     .help = "A recording: the directory that record wrote."},
};

static const cli_option metrics_options[] = {
    {.name = "budgets",
     .kind = CLI_LIST,
     .into = offsetof(metrics_arguments, budgets),
     .argument = "LIST",
     .min = 1,
     .max = 65536,
     .help = "Kept modes a channel to report on, such as 4,8,12. [default: a quarter, a half and "
             "three quarters of d_state; Mamba-2: what record measured]"},
    {.name = "scope",
     .kind = CLI_CHOICE,
     .into = offsetof(metrics_arguments, scope),
     .choices = "channel|head",
     .fallback = "channel",
     .help = "Sets of modes of every channel, or (Mamba-2) one set for all channels of a head, "
             "with exact errors at every budget."},
};

static const char *const metrics_examples[] = {
    "ssmscope metrics rec", "Which layers' important states move with the input.",
    "ssmscope metrics rec --budgets 2,4,8 --json", "Every number, for a program.", NULL};

const cli_command cli_command_metrics = {
    .name = "metrics",
    .summary = "how the use of the state moves with the input, layer by layer",
    .description =
        "Computes from a recording the migration gap ρ, churn, effective order and time "
        "constants of every layer. Static sets are chosen on the calibration windows; "
        "everything is measured on the evaluation windows. No model is needed. Exit status 5 when "
        "the diagonal identity, which must hold in every channel, does not.",
    .examples = metrics_examples,
    .positionals = metrics_positionals,
    .n_positionals = sizeof metrics_positionals / sizeof *metrics_positionals,
    .options = metrics_options,
    .n_options = sizeof metrics_options / sizeof *metrics_options,
    .arguments_size = sizeof(metrics_arguments),
    .run = run_metrics,
};
