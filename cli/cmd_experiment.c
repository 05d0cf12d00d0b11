#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ssmscope/experiment.h>

#include "commands.h"
#include "context.h"
#include "messages.h"
#include "output.h"
#include "ranks.h"

typedef struct experiment_arguments {
    const char *action, *file, *output;
} experiment_arguments;

typedef struct live {
    cli_context *context;
    double last; /* seconds of the run at which the line was drawn */
} live;

static void on_expected(void *context, const ssm_experiment_expected *expected)
{
    live *l = context;
    char left[32];
    cli_format_seconds(expected->seconds, left);
    cli_note(l->context,
             "%lld runs, %lld of them done; expected: %.3g CPU-hours left of %.3g, about %s",
             (long long)expected->runs, (long long)expected->done, expected->cpu_seconds / 3600,
             expected->all_cpu_seconds / 3600, left);
}

/* Measures of the sizes, as "20: strings 0.97, characters 0.99". */
static void note_done(live *l, const ssm_experiment_line *line, const char *left)
{
    json_error_t error;
    json_t *sizes = line->evaluation == NULL ? NULL : json_loads(line->evaluation, 0, &error);
    char text[400] = "";
    const char *size, *measure;
    json_t *measures, *value;
    json_object_foreach(sizes, size, measures)
    {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "; %s:", size);
        json_object_foreach(measures, measure, value)
        {
            used = strlen(text);
            if (json_is_real(value)) {
                snprintf(text + used, sizeof text - used, " %s %.3f", measure,
                         json_real_value(value));
            }
        }
    }
    json_decref(sizes);
    cli_note(l->context, "%lld of %lld, %s%s%s; about %s left", (long long)line->run,
             (long long)line->runs, line->name, line->failure == NULL ? "" : ": ",
             line->failure == NULL ? text : line->failure, left);
}

/* At most five lines a second while a run goes on. */
static void on_line(void *context, const ssm_experiment_line *line)
{
    live *l = context;
    const ssm_train_line *t = line->train;
    char left[32];
    cli_format_seconds(line->seconds_left, left);
    if (t == NULL) {
        l->last = 0;
        note_done(l, line, left);
        return;
    }
    if (l->context->progress.live && (t->step == t->steps || t->seconds - l->last > 0.2)) {
        cli_progress_line(l->context,
                          "%lld of %lld, %.40s: step %lld of %lld, loss %.4f; about %s left",
                          (long long)line->run, (long long)line->runs, line->name,
                          (long long)t->step, (long long)t->steps, t->loss, left);
        l->last = t->seconds;
    }
}

static ssm_status print(const cli_context *context, const ssm_experiment_result *result,
                        ssm_error *err)
{
    json_error_t error;
    if (!context->globals.json) {
        printf("%s", result->table);
        return SSM_STATUS_OK;
    }
    cli_json json = cli_json_create(context, "experiment");
    json_t *results = json_loads(result->results, 0, &error);
    cli_json_put(&json, json.root, "results", results);
    cli_json_real(&json, json.root, "seconds", result->seconds);
    cli_json_real(&json, json.root, "cpu_seconds", result->cpu_seconds);
    return cli_json_print(&json, err);
}

static ssm_status run_file(cli_context *context, const experiment_arguments *args, bool estimate,
                           const ssm_experiment *experiment, ssm_error *err)
{
    live l = {.context = context};
    const ssm_progress progress = cli_progress_signals();
    ssm_experiment_options options = {.isa = (ssm_isa)context->globals.isa,
                                      .estimate = estimate,
                                      .progress = &progress,
                                      .expected = on_expected,
                                      .line = on_line,
                                      .context = &l};
    ssm_experiment_result result = {0};
    ssm_status status = cli_pool(context, &options.pool, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_experiment_run(experiment, args->output, &options, &result, err);
    }
    cli_progress_clear(context);
    if (status == SSM_STATUS_OK && !estimate) {
        status = print(context, &result, err);
    }
    ssm_experiment_result_free(&result);
    return status;
}

static ssm_status run_experiment(cli_context *context, const void *arguments, ssm_error *err)
{
    static const char *const actions[] = {"run", "estimate", NULL};
    const experiment_arguments *args = arguments;
    const bool estimate = strcmp(args->action, "estimate") == 0;
    if (!estimate && strcmp(args->action, "run") != 0) {
        const char *nearest = ssm_nearest(args->action, actions);
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "\"%s\" is nothing to do with an experiment%s%s%s; expected run or "
                        "estimate",
                        args->action, nearest == NULL ? "" : ", did you mean \"",
                        nearest == NULL ? "" : nearest, nearest == NULL ? "" : "\"?");
    }
    ssm_experiment *experiment = NULL;
    (void)cli_progress_start(context); /* for its signals */
    ssm_status status = cli_ranks_refuse("an experiment", err);
    if (status == SSM_STATUS_OK) {
        status = ssm_experiment_read(args->file, &experiment, err);
    }
    if (status == SSM_STATUS_OK) {
        status = run_file(context, args, estimate, experiment, err);
    }
    ssm_experiment_free(experiment);
    return status;
}

static const cli_positional experiment_positionals[] = {
    {.name = "ACTION",
     .into = offsetof(experiment_arguments, action),
     .flags = CLI_REQUIRED,
     .help = "run, or estimate: say what it would take and stop there."},
    {.name = "FILE",
     .into = offsetof(experiment_arguments, file),
     .flags = CLI_REQUIRED,
     .help = "JSON file with a recipe, arms, a grid, seeds and measures."},
};

static const cli_option experiment_options[] = {
    {.name = "output",
     .letter = 'o',
     .kind = CLI_TEXT,
     .into = offsetof(experiment_arguments, output),
     .argument = "DIR",
     .flags = CLI_REQUIRED | CLI_OUTPUT,
     .help = "Directory of the runs and of results.json, results.csv and results.md. One that "
             "holds the same experiment is gone on with."},
};

static const char *const experiment_examples[] = {
    "ssmscope experiment estimate experiments/copy.json -o copy",
    "Time a few steps of every size, and say what all runs will take.",
    "ssmscope experiment run experiments/copy.json -o copy",
    "Go through the runs, or on with them where they were stopped.", NULL};

const cli_command cli_command_experiment = {
    .name = "experiment",
    .summary = "train every run of an experiment and compare its arms",
    .description =
        "An experiment is one recipe, changed by named arms, a grid of settings and seeds. Every "
        "run is trained as by `train`; the results have the mean of every measure with a band over "
        "the seeds, and the difference of every arm to one of them, seed by seed. What is expected "
        "to take how long is said before the first run, by steps that are made for it.\n\n"
        "A killed or stopped experiment goes on where it was, inside a run too, and comes to the "
        "same bytes of results.",
    .examples = experiment_examples,
    .positionals = experiment_positionals,
    .n_positionals = sizeof experiment_positionals / sizeof *experiment_positionals,
    .options = experiment_options,
    .n_options = sizeof experiment_options / sizeof *experiment_options,
    .arguments_size = sizeof(experiment_arguments),
    .run = run_experiment,
};
