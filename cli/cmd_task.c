#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ssmscope/train_task.h>

#include "commands.h"
#include "context.h"
#include "messages.h"
#include "output.h"
#include "task_output.h"

typedef struct task_arguments {
    const char *name;
    cli_texts settings;
    int64_t show, jsonl, seed, first, size;
} task_arguments;

/* ---- key=value ------------------------------------------------------------------------------- */

/* The words of the command line, cut at their first "=". names holds the keys, for free(). */
static ssm_status cut_settings(const task_arguments *args, ssm_train_setting **settings,
                               char **names, ssm_error *err)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < args->settings.count; i++) {
        bytes += strlen(args->settings.values[i]) + 1;
    }
    *settings = calloc((size_t)args->settings.count + 1, sizeof **settings);
    *names = calloc(bytes + 1, 1);
    if (*settings == NULL || *names == NULL) {
        return cli_no_memory(err);
    }
    char *to = *names;
    for (int64_t i = 0; i < args->settings.count; i++) {
        const char *word = args->settings.values[i];
        const char *equals = strchr(word, '=');
        if (equals == NULL || equals == word) {
            return cli_fail(err, SSM_STATUS_USAGE, NULL,
                            "'%s' is no setting: expected key=value; `ssmscope task %s` lists them",
                            word, args->name);
        }
        memcpy(to, word, (size_t)(equals - word));
        (*settings)[i] = (ssm_train_setting){to, equals + 1};
        to += equals - word + 1;
    }
    return SSM_STATUS_OK;
}

static ssm_status create_task(const task_arguments *args, ssm_train_task **out, ssm_error *err)
{
    ssm_train_setting *settings = NULL;
    char *names = NULL;
    ssm_status status = cut_settings(args, &settings, &names, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_train_task_create(args->name, settings, args->settings.count,
                                       (uint64_t)args->seed, out, err);
    }
    free(settings);
    free(names);
    return status;
}

/* ---- what the task is ------------------------------------------------------------------------ */

static ssm_status print_keys(const char *name, ssm_error *err)
{
    static const char *const headings[] = {"setting", "default", "allowed", "what it is"};
    cli_table table = cli_table_create(headings, "llll");
    ssm_train_key key;
    for (int64_t i = 0; ssm_train_task_key(name, i, &key); i++) {
        cli_table_cell(&table, "%s", key.key);
        cli_table_cell(&table, "%s", key.fallback == NULL ? "-" : key.fallback);
        cli_table_cell(&table, "%s", key.allowed);
        cli_table_cell(&table, "%s", key.help);
    }
    return cli_table_print(&table, stdout, err);
}

static ssm_status print_task(const ssm_train_task *task, ssm_error *err)
{
    const ssm_train_info *info = ssm_train_task_info(task);
    char *settings = ssm_train_task_settings(task);
    if (settings == NULL) {
        return cli_no_memory(err);
    }
    printf("%s: %s\nloss %s", info->name, info->summary, ssm_train_loss_name(info->loss));
    if (info->vocab_size > 0) {
        printf(", vocabulary %" PRId64, info->vocab_size);
    }
    if (info->input_width > 0) {
        printf(", vectors of %" PRId64, info->input_width);
    }
    if (info->loss == SSM_TRAIN_CLASSES) {
        printf(", %" PRId64 " classes", info->output_width);
    }
    printf(", rows of %" PRId64 "; evaluated at", info->length);
    for (int64_t i = 0; i < info->n_sizes; i++) {
        printf("%s %" PRId64, i == 0 ? "" : ",", info->sizes[i]);
    }
    printf(" %s\nsettings %s\ndigest %s\n\n", info->size, settings, ssm_train_task_digest(task));
    free(settings);
    return print_keys(info->name, err);
}

static ssm_status print_json(const cli_context *context, const task_arguments *args,
                             const ssm_train_task *task, ssm_error *err)
{
    const ssm_train_info *info = ssm_train_task_info(task);
    char *settings = ssm_train_task_settings(task);
    cli_json json = cli_json_create(context, "task");
    cli_json_integer(&json, json.root, "seed", args->seed);
    cli_json_text(&json, json.root, "name", info->name);
    cli_json_text(&json, json.root, "loss", ssm_train_loss_name(info->loss));
    cli_json_integer(&json, json.root, "vocab_size", info->vocab_size);
    cli_json_integer(&json, json.root, "input_width", info->input_width);
    cli_json_integer(&json, json.root, "output_width", info->output_width);
    cli_json_integer(&json, json.root, "length", info->length);
    json_t *sizes = cli_json_array(&json, json.root, "sizes");
    for (int64_t i = 0; i < info->n_sizes; i++) {
        cli_json_push(&json, sizes, json_integer(info->sizes[i]));
    }
    cli_json_put(&json, json.root, "settings",
                 settings == NULL ? NULL : json_loads(settings, 0, NULL));
    cli_json_text(&json, json.root, "digest", ssm_train_task_digest(task));
    free(settings);
    return cli_json_print(&json, err);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static ssm_status print_row(const task_arguments *args, const ssm_train_task *task, int64_t number,
                            const ssm_train_batch *batch, ssm_error *err)
{
    if (args->jsonl != CLI_UNSET) {
        return cli_task_line(task, batch, 0, err);
    }
    if (args->size == CLI_UNSET) {
        printf("row %" PRId64 "\n", number);
    } else {
        printf("example %" PRId64 ", %" PRId64 " %s\n", number, args->size,
               ssm_train_task_info(task)->size);
    }
    cli_task_show(task, batch, 0);
    return SSM_STATUS_OK;
}

/* One row at a time, so that any number of them takes the memory of one. */
static ssm_status print_rows(const task_arguments *args, const ssm_train_task *task, int64_t count,
                             ssm_error *err)
{
    const bool example = args->size != CLI_UNSET;
    int64_t length = ssm_train_task_info(task)->length;
    ssm_status status =
        example ? ssm_train_task_length(task, args->size, &length, err) : SSM_STATUS_OK;
    const int64_t available =
        example && status == SSM_STATUS_OK ? ssm_train_task_example_count(task, args->size) : -1;
    if (status == SSM_STATUS_OK && available >= 0 && args->first + count > available) {
        status = cli_fail(err, SSM_STATUS_USAGE, NULL,
                          "the texts have %" PRId64 " examples of %" PRId64 " %s; examples %" PRId64
                          " … %" PRId64 " were asked for",
                          available, args->size, ssm_train_task_info(task)->size, args->first,
                          args->first + count - 1);
    }
    ssm_train_batch batch = {0};
    status =
        status == SSM_STATUS_OK ? ssm_train_batch_create(task, 1, length, &batch, err) : status;
    for (int64_t i = 0; status == SSM_STATUS_OK && i < count; i++) {
        if (example) {
            ssm_train_task_examples(task, args->size, args->first + i, &batch);
        } else {
            ssm_train_task_rows(task, args->first + i, &batch);
        }
        status = print_row(args, task, args->first + i, &batch, err);
    }
    ssm_train_batch_free(&batch);
    return status;
}

static ssm_status run_task(cli_context *context, const void *arguments, ssm_error *err)
{
    const task_arguments *args = arguments;
    const int64_t count = args->jsonl != CLI_UNSET ? args->jsonl : args->show;
    ssm_train_task *task = NULL;
    ssm_status status = create_task(args, &task, err);
    if (status == SSM_STATUS_OK && count != CLI_UNSET) {
        status = print_rows(args, task, count, err);
    } else if (status == SSM_STATUS_OK) {
        status =
            context->globals.json ? print_json(context, args, task, err) : print_task(task, err);
    }
    ssm_train_task_free(task);
    return status;
}

static const cli_positional task_positionals[] = {
    {.name = "NAME",
     .into = offsetof(task_arguments, name),
     .flags = CLI_REQUIRED,
     .help = "copy, stack-copy, sort, prefix-ngram, suffix-ngram, mqar, induction-heads, "
             "selective-copying, switched-linear, language or classification."},
    {.name = "key=value",
     .into = offsetof(task_arguments, settings),
     .flags = CLI_REPEATED,
     .help = "Settings of the task; `ssmscope task NAME` lists them."},
};

static const cli_option task_options[] = {
    {.name = "show",
     .kind = CLI_INTEGER,
     .into = offsetof(task_arguments, show),
     .argument = "K",
     .min = 1,
     .max = 1000000,
     .conflicts = "jsonl",
     .help = "Print K rows for reading: ids, and under them the labels; - is a position without "
             "loss."},
    {.name = "jsonl",
     .kind = CLI_INTEGER,
     .into = offsetof(task_arguments, jsonl),
     .argument = "K",
     .min = 1,
     .max = INT64_C(1) << 40,
     .help = "Print K rows as JSON lines {\"ids\": …, \"labels\": …}, with -1 where there is no "
             "loss; vectors as {\"inputs\": …, \"targets\": …, \"regimes\": …}."},
    {.name = "seed",
     .kind = CLI_INTEGER,
     .into = offsetof(task_arguments, seed),
     .argument = "S",
     .fallback = "0",
     .min = 0,
     .max = INT64_MAX,
     .help = "Seed of the rows; the same seed gives the same rows."},
    {.name = "first",
     .kind = CLI_INTEGER,
     .into = offsetof(task_arguments, first),
     .argument = "I",
     .fallback = "0",
     .min = 0,
     .max = INT64_C(1) << 40,
     .help = "Number of the first row. A row does not depend on those before it."},
    {.name = "size",
     .kind = CLI_INTEGER,
     .into = offsetof(task_arguments, size),
     .argument = "N",
     .min = 1,
     .max = INT64_C(1) << 40,
     .help =
         "Evaluation examples of this size (letters, pairs, tokens) in place of training rows."},
};

static const char *const task_examples[] = {
    "ssmscope task copy --show 2 --size 12",
    "Two evaluation examples of twelve letters.",
    "ssmscope task mqar --jsonl 100 pairs=16 length=128 > rows.jsonl",
    "The first hundred training rows of that task, for another program.",
    "ssmscope task mqar",
    "Its settings with what they allow.",
    NULL};

const cli_command cli_command_task = {
    .name = "task",
    .summary = "print the rows of a training task, or its settings",
    .description =
        "The tasks that models are trained on. Row i is a function of the task, its settings, the "
        "seed and i: training and this command see the same rows. Without --show and --jsonl the "
        "settings are listed.",
    .examples = task_examples,
    .positionals = task_positionals,
    .n_positionals = sizeof task_positionals / sizeof *task_positionals,
    .options = task_options,
    .n_options = sizeof task_options / sizeof *task_options,
    .arguments_size = sizeof(task_arguments),
    .run = run_task,
};
