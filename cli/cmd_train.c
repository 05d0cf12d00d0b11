#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ssmscope/train.h>

#include "commands.h"
#include "context.h"
#include "messages.h"
#include "output.h"
#include "ranks.h"
#include "train_table.h"

enum { MOST_RUNS = 10000 };

typedef struct train_arguments {
    const char *recipe, *output;
    cli_texts sweep, set;
    bool resume;
} train_arguments;

/* ---- the live line --------------------------------------------------------------------------- */

typedef struct live {
    cli_context *context;
    double last; /* seconds of the run at which the line was drawn */
} live;

static void draw(cli_context *context, const ssm_train_line *line)
{
    const int64_t left = line->steps - line->step;
    char steps_left[48] = "";
    if (left > 0 && line->seconds > 1) {
        snprintf(steps_left, sizeof steps_left, ", %lld steps left", (long long)left);
    }
    cli_progress_line(context,
                      "step %lld of %lld: loss %.4f, learning rate %.3g, gradient %.3g, %.0f "
                      "tokens/s%s",
                      (long long)line->step, (long long)line->steps, line->loss,
                      line->learning_rate, line->gradient_norm, line->tokens_per_second,
                      steps_left);
}

/* At most five lines a second. */
static void on_line(void *context, const ssm_train_line *line)
{
    live *l = context;
    if (l->context->progress.live && (line->step == line->steps || line->seconds - l->last > 0.2)) {
        draw(l->context, line);
        l->last = line->seconds;
    }
}

/* ---- the grid -------------------------------------------------------------------------------- */

typedef struct grid {
    const char **keys; /* [n_keys], each in memory of its own with its values behind */
    const char ***values;
    int64_t *counts;
    int64_t n_keys, n_runs;
    cli_trained *runs;
} grid;

static void grid_free(grid *g)
{
    for (int64_t i = 0; g->runs != NULL && i < g->n_runs; i++) {
        free(g->runs[i].values);
        free(g->runs[i].directory);
        free(g->runs[i].result.evaluation);
    }
    for (int64_t k = 0; k < g->n_keys; k++) {
        free(g->values != NULL ? (void *)(uintptr_t)g->values[k] : NULL);
        free(g->keys != NULL ? (void *)(uintptr_t)g->keys[k] : NULL);
    }
    free(g->runs);
    free(g->keys);
    free(g->values);
    free(g->counts);
    *g = (grid){0};
}

/* "lr=1,2,seed=3": where the first key's values end, at the comma in front of a word with "=". */
static size_t key_length(const char *text)
{
    size_t length = strcspn(text, ",");
    while (text[length] == ',') {
        const size_t word = strcspn(text + length + 1, ",");
        if (memchr(text + length + 1, '=', word) != NULL) {
            break;
        }
        length += 1 + word;
    }
    return length;
}

static int64_t count_keys(const cli_texts *sweep)
{
    int64_t keys = 0;
    for (int64_t i = 0; i < sweep->count; i++) {
        for (const char *at = sweep->values[i]; at != NULL; keys++) {
            const size_t length = key_length(at);
            at = at[length] == ',' ? at + length + 1 : NULL;
        }
    }
    return keys;
}

/* "key=v1,v2": the key and its values, which point into one copy of the text. */
static ssm_status read_key(grid *g, int64_t k, const char *text, size_t length, ssm_error *err)
{
    char *copy = strndup(text, length);
    g->keys[k] = copy;
    if (copy == NULL) {
        return cli_no_memory(err);
    }
    char *equals = strchr(copy, '=');
    if (equals == NULL || equals == copy || equals[1] == '\0') {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--sweep: \"%.*s\"; expected KEY=VALUE,VALUE,…, such as lr=0.001,0.003",
                        (int)length, text);
    }
    *equals = '\0';
    int64_t count = 1;
    for (const char *c = equals + 1; *c != '\0'; c++) {
        count += *c == ',';
    }
    g->values[k] = calloc((size_t)count, sizeof *g->values[k]);
    if (g->values[k] == NULL) {
        return cli_no_memory(err);
    }
    char *value = equals + 1;
    for (int64_t i = 0; i < count; i++) {
        char *comma = strchr(value, ',');
        if (comma != NULL) {
            *comma = '\0';
        }
        if (*value == '\0') {
            return cli_fail(err, SSM_STATUS_USAGE, NULL, "--sweep: an empty value in \"%.*s\"",
                            (int)length, text);
        }
        g->values[k][i] = value;
        value = comma == NULL ? value : comma + 1;
    }
    g->counts[k] = count;
    return SSM_STATUS_OK;
}

/* Run number i: the last key's values change first. */
static ssm_status name_run(grid *g, int64_t i, const char *output, ssm_error *err)
{
    cli_trained *run = &g->runs[i];
    char path[PATH_MAX];
    int used = snprintf(path, sizeof path, "%s", output);
    int64_t rest = i;
    run->values = calloc((size_t)g->n_keys + 1, sizeof *run->values);
    if (run->values == NULL) {
        return cli_no_memory(err);
    }
    for (int64_t k = g->n_keys - 1; k >= 0; k--) {
        run->values[k] = (char *)(uintptr_t)g->values[k][rest % g->counts[k]];
        rest /= g->counts[k];
    }
    for (int64_t k = 0; k < g->n_keys && used > 0 && used < PATH_MAX; k++) {
        const int begin = used + 1;
        used += snprintf(path + used, sizeof path - (size_t)used, "%c%s=%s", k == 0 ? '/' : ',',
                         g->keys[k], run->values[k]);
        for (int c = begin; c < used && c < PATH_MAX; c++) {
            path[c] = path[c] == '/' ? '_' : path[c];
        }
    }
    if (used < 0 || used >= PATH_MAX) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--sweep: the name of a run is too long");
    }
    run->directory = strdup(path);
    return run->directory == NULL ? cli_no_memory(err) : SSM_STATUS_OK;
}

static ssm_status read_keys(const cli_texts *sweep, grid *g, ssm_error *err)
{
    int64_t k = 0;
    for (int64_t i = 0; i < sweep->count; i++) {
        for (const char *at = sweep->values[i]; at != NULL; k++) {
            const size_t length = key_length(at);
            const ssm_status status = read_key(g, k, at, length, err);
            if (status != SSM_STATUS_OK) {
                return status;
            }
            if (g->n_runs > MOST_RUNS / g->counts[k]) {
                return cli_fail(err, SSM_STATUS_USAGE, NULL, "--sweep: more than %d runs",
                                MOST_RUNS);
            }
            g->n_runs *= g->counts[k];
            at = at[length] == ',' ? at + length + 1 : NULL;
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status make_grid(const train_arguments *args, grid *g, ssm_error *err)
{
    g->n_keys = count_keys(&args->sweep);
    const size_t keys = (size_t)g->n_keys;
    g->keys = calloc(keys + 1, sizeof *g->keys);
    g->values = calloc(keys + 1, sizeof *g->values);
    g->counts = calloc(keys + 1, sizeof *g->counts);
    if (g->keys == NULL || g->values == NULL || g->counts == NULL) {
        return cli_no_memory(err);
    }
    g->n_runs = 1;
    ssm_status status = read_keys(&args->sweep, g, err);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    g->runs = calloc((size_t)g->n_runs, sizeof *g->runs);
    if (g->runs == NULL) {
        return cli_no_memory(err);
    }
    for (int64_t i = 0; i < g->n_runs && status == SSM_STATUS_OK; i++) {
        status = name_run(g, i, args->output, err);
    }
    return status;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static ssm_status run_recipe(const grid *g, const ssm_recipe *base, int64_t i, ssm_recipe **out,
                             ssm_error *err)
{
    ssm_status status = ssm_recipe_copy(base, out, err);
    for (int64_t k = 0; k < g->n_keys && status == SSM_STATUS_OK; k++) {
        status = ssm_recipe_set(*out, g->keys[k], g->runs[i].values[k], err);
    }
    return status;
}

static ssm_status train_one(cli_context *context, const train_arguments *args, const grid *g,
                            const ssm_recipe *base, const ssm_train_ranks *ranks, int64_t i,
                            ssm_error *err)
{
    cli_trained *run = &g->runs[i];
    const bool sweep = g->n_keys > 0;
    live l = {.context = context};
    const ssm_progress progress = cli_progress_signals();
    ssm_train_options options = {.isa = (ssm_isa)context->globals.isa,
                                 .resume = args->resume,
                                 .progress = &progress,
                                 .line = on_line,
                                 .context = &l,
                                 .ranks = ranks};
    ssm_recipe *recipe = NULL;
    ssm_error own;
    ssm_error_clear(&own);
    ssm_status status = run_recipe(g, base, i, &recipe, &own);
    if (status == SSM_STATUS_OK) {
        status = cli_pool(context, &options.pool, &own);
    }
    status = ssm_train_agree(ranks, status, &own);
    if (status == SSM_STATUS_OK && sweep) {
        cli_note(context, "run %lld of %lld: %s", (long long)i + 1, (long long)g->n_runs,
                 run->directory);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm_train(recipe, run->directory, &options, &run->result, &own);
    }
    cli_progress_clear(context);
    ssm_recipe_free(recipe);
    if (status != SSM_STATUS_OK && sweep && run->result.not_finite) {
        run->failed = true; /* a learning rate that is too high is a result */
        snprintf(run->message, sizeof run->message, "%s", own.message);
        cli_note(context, "%s: %s", run->directory, own.message);
        return SSM_STATUS_OK;
    }
    if (status != SSM_STATUS_OK && err != NULL) {
        *err = own;
    }
    return status;
}

static ssm_status print_one(const cli_trained *run)
{
    const ssm_train_result *r = &run->result;
    char parameters[32], tokens[32], bytes[32];
    cli_format_count(r->parameters, parameters);
    cli_format_count(r->tokens, tokens);
    cli_format_bytes((double)r->bytes, bytes);
    printf("%s: %s parameters, %lld steps, %s tokens, loss %.4f (mean of the last tenth)\n",
           run->directory, parameters, (long long)r->steps, tokens, r->loss);
    cli_evaluation_print(r->evaluation);
    printf("%lld steps in %.1f s, %s of memory\n", (long long)(r->steps - r->first_step),
           r->seconds, bytes);
    return SSM_STATUS_OK;
}

static ssm_status print(const cli_context *context, const train_arguments *args, const grid *g,
                        ssm_error *err)
{
    if (!context->globals.json) {
        return g->n_keys == 0 ? print_one(&g->runs[0])
                              : cli_trained_print(g->keys, g->n_keys, g->runs, g->n_runs, err);
    }
    cli_json json = cli_json_create(context, "train");
    cli_json_text(&json, json.root, "recipe", args->recipe);
    json_t *runs = cli_json_array(&json, json.root, "runs");
    for (int64_t i = 0; i < g->n_runs; i++) {
        cli_trained_json(&json, runs, g->keys, g->n_keys, &g->runs[i]);
    }
    return cli_json_print(&json, err);
}

/* Every recipe of the grid is read before the first run: a mistyped key costs no hours. */
static ssm_status check_recipes(const grid *g, const ssm_recipe *base, ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; i < g->n_runs && status == SSM_STATUS_OK; i++) {
        ssm_recipe *recipe = NULL;
        status = run_recipe(g, base, i, &recipe, err);
        ssm_recipe_free(recipe);
    }
    return status;
}

static ssm_status apply_settings(const train_arguments *args, ssm_recipe *recipe, ssm_error *err)
{
    for (int64_t i = 0; i < args->set.count; i++) {
        const char *text = args->set.values[i];
        const char *equals = strchr(text, '=');
        char key[128];
        if (equals == NULL || equals == text || (size_t)(equals - text) >= sizeof key) {
            return cli_fail(err, SSM_STATUS_USAGE, NULL, "--set: \"%s\"; expected KEY=VALUE", text);
        }
        snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
        const ssm_status status = ssm_recipe_set(recipe, key, equals + 1, err);
        if (status != SSM_STATUS_OK) {
            return status;
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status train_all(cli_context *context, const train_arguments *args,
                            const ssm_train_ranks *ranks, ssm_error *err)
{
    ssm_recipe *recipe = NULL;
    grid g = {0};
    ssm_status status = ssm_recipe_read(args->recipe, &recipe, err);
    if (status == SSM_STATUS_OK) {
        status = apply_settings(args, recipe, err);
    }
    if (status == SSM_STATUS_OK) {
        status = make_grid(args, &g, err);
    }
    if (status == SSM_STATUS_OK) {
        status = check_recipes(&g, recipe, err);
    }
    status = ssm_train_agree(ranks, status, err);
    for (int64_t i = 0; i < g.n_runs && status == SSM_STATUS_OK; i++) {
        status = train_one(context, args, &g, recipe, ranks, i, err);
    }
    if (status == SSM_STATUS_OK && ranks->rank == 0) {
        status = print(context, args, &g, err);
    }
    grid_free(&g);
    ssm_recipe_free(recipe);
    return status;
}

static ssm_status run_train(cli_context *context, const void *arguments, ssm_error *err)
{
    cli_ranks ranks;
    ssm_status status = cli_ranks_open(&ranks, err);
    if (status == SSM_STATUS_OK) {
        context->globals.quiet = context->globals.quiet || ranks.table.rank > 0;
        (void)cli_progress_start(context); /* for its signals */
        status = train_all(context, arguments, &ranks.table, err);
    }
    return cli_ranks_close(&ranks, status, err);
}

static const cli_positional train_positionals[] = {
    {.name = "RECIPE",
     .into = offsetof(train_arguments, recipe),
     .flags = CLI_REQUIRED,
     .help = "JSON file with model, task, optimiser and schedule."},
};

static const cli_option train_options[] = {
    {.name = "output",
     .letter = 'o',
     .kind = CLI_TEXT,
     .into = offsetof(train_arguments, output),
     .argument = "DIR",
     .flags = CLI_REQUIRED | CLI_OUTPUT,
     .help = "Directory to write the model to; with --sweep, of one directory a run."},
    {.name = "resume",
     .kind = CLI_FLAG,
     .into = offsetof(train_arguments, resume),
     .flags = CLI_NEUTRAL,
     .help = "Go on from the directory's checkpoint, to the same bits as without a stop; runs that "
             "are done stay as they are."},
    {.name = "set",
     .kind = CLI_TEXTS,
     .into = offsetof(train_arguments, set),
     .argument = "KEY=VALUE",
     .help = "Change a key of the recipe: SECTION.KEY, or KEY where one section alone has it."},
    {.name = "sweep",
     .kind = CLI_TEXTS,
     .into = offsetof(train_arguments, sweep),
     .argument = "KEY=V1,V2,…",
     .help = "Train once for every value, and for every combination of several keys "
             "(lr=0.001,0.003,seed=1,2, or another --sweep); prints one table. A run whose numbers "
             "stop being finite is a row that says so."},
};

static const char *const train_examples[] = {
    "ssmscope train recipes/bytes.json -o bytes", "Train the recipe.",
    "ssmscope train recipes/copy.json -o copy --sweep lr=0.001,0.003,seed=0,1,2",
    "Six runs and one table.", NULL};

const cli_command cli_command_train = {
    .name = "train",
    .summary = "train a model by a recipe",
    .description =
        "Trains a model from scratch, or from the weights of another, and writes a model directory "
        "with its recipe and, below training/, a log and what resuming needs. A killed run that is "
        "resumed gives the same bits as one that never stopped, for any number of threads.\n\n"
        "Built with MPI and started by mpirun, the processes share the batches of every step "
        "(batch.accumulate is a multiple of their number), to the same bits as one process.",
    .examples = train_examples,
    .positionals = train_positionals,
    .n_positionals = sizeof train_positionals / sizeof *train_positionals,
    .options = train_options,
    .n_options = sizeof train_options / sizeof *train_options,
    .arguments_size = sizeof(train_arguments),
    .run = run_train,
};
