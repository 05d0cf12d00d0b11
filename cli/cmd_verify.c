#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ssmscope/instrument.h>

#include "commands.h"
#include "load.h"
#include "messages.h"

typedef struct verify_arguments {
    const char *model;
    cli_texts texts;
    cli_list budgets;
    int64_t windows, window, invalid_utf8;
    cli_load load;
} verify_arguments;

/* ---- what both say --------------------------------------------------------------------------- */

static double larger(double a, double b)
{
    return b > a || isnan(b) ? b : a;
}

/* Largest reconstruction after the norm, and median errors of pruning before and after it. */
typedef struct after_norm {
    double reconstruction, before, after;
    bool known;
} after_norm;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* NaN when out of memory or empty. */
static double median(const ssm_verify_result *result, bool after)
{
    const size_t n = (size_t)result->n_deployment;
    double *values = n > 0 ? malloc(n * sizeof *values) : NULL;
    for (size_t i = 0; values != NULL && i < n; i++) {
        values[i] = after ? result->deployment[i].error_after_norm : result->deployment[i].error;
    }
    double found = (double)NAN;
    if (values != NULL) {
        qsort(values, n, sizeof *values, by_value);
        found = (values[(n - 1) / 2] + values[n / 2]) / 2.0;
    }
    free(values);
    return found;
}

static after_norm measure_after_norm(const ssm_verify_result *result)
{
    after_norm out = {.known = result->n_reconstruction > 0 &&
                               !isnan(result->reconstruction[0].rel_l2_after_norm)};
    for (int64_t i = 0; i < result->n_reconstruction; i++) {
        out.reconstruction =
            larger(out.reconstruction, result->reconstruction[i].rel_l2_after_norm);
    }
    if (out.known) {
        out.before = median(result, false);
        out.after = median(result, true);
    }
    return out;
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void json_reconstruction(cli_json *json, const ssm_verify_result *result)
{
    json_t *array = cli_json_array(json, json->root, "reconstruction");
    for (int64_t i = 0; i < result->n_reconstruction; i++) {
        const ssm_verify_reconstruction *one = &result->reconstruction[i];
        json_t *entry = json_object();
        cli_json_integer(json, entry, "layer", one->layer);
        cli_json_integer(json, entry, "window", one->window);
        cli_json_real(json, entry, "rel_l2", one->rel_l2);
        cli_json_real(json, entry, "rel_l2_reference", one->rel_l2_reference);
        cli_json_real(json, entry, "rel_l2_after_norm", one->rel_l2_after_norm);
        cli_json_push(json, array, entry);
    }
}

static void json_deployment(cli_json *json, const ssm_verify_result *result)
{
    json_t *array = cli_json_array(json, json->root, "deployment");
    for (int64_t i = 0; i < result->n_deployment; i++) {
        const ssm_verify_deployment *one = &result->deployment[i];
        json_t *entry = json_object();
        cli_json_integer(json, entry, "layer", one->layer);
        cli_json_integer(json, entry, "window", one->window);
        cli_json_integer(json, entry, "budget", one->budget);
        cli_json_text(json, entry, "scope", ssm_scope_name(one->scope));
        cli_json_real(json, entry, "predicted", one->predicted);
        cli_json_real(json, entry, "actual", one->actual);
        cli_json_real(json, entry, "relative_deviation", one->relative_deviation);
        cli_json_real(json, entry, "error", one->error);
        cli_json_real(json, entry, "error_after_norm", one->error_after_norm);
        cli_json_push(json, array, entry);
    }
}

static ssm_status print_json(const cli_context *context, const cli_source *source,
                             const ssm_corpus *corpus, const ssm_verify_result *result,
                             ssm_error *err)
{
    cli_json json = cli_json_create(context, "verify");
    cli_json_source(&json, source);
    cli_json_corpus(&json, corpus);
    json_reconstruction(&json, result);
    json_deployment(&json, result);
    json_t *summary = cli_json_object(&json, json.root, "summary");
    cli_json_real(&json, summary, "reconstruction_max", result->reconstruction_max);
    cli_json_real(&json, summary, "reconstruction_reference_max",
                  result->reconstruction_reference_max);
    cli_json_real(&json, summary, "deployment_median", result->deployment_median);
    cli_json_real(&json, summary, "deployment_max", result->deployment_max);
    const after_norm norm = measure_after_norm(result);
    if (norm.known) {
        cli_json_real(&json, summary, "reconstruction_after_norm_max", norm.reconstruction);
        cli_json_real(&json, summary, "error_before_norm_median", norm.before);
        cli_json_real(&json, summary, "error_after_norm_median", norm.after);
    }
    cli_json_bool(&json, summary, "passed", result->passed);
    json_t *bounds = cli_json_object(&json, json.root, "bounds");
    cli_json_real(&json, bounds, "reconstruction_max", result->bound_reconstruction);
    cli_json_real(&json, bounds, "reconstruction_reference_max", result->bound_reference);
    cli_json_real(&json, bounds, "deployment_median", result->bound_deployment_median);
    cli_json_real(&json, bounds, "deployment_max", result->bound_deployment_max);
    return cli_json_print(&json, err);
}

/* ---- for people ------------------------------------------------------------------------------ */

/* One line a layer: the largest of its windows. */
static ssm_status print_layers(const ssm_verify_result *result, int64_t n_layers, ssm_error *err)
{
    static const char *const headings[] = {"layer", "summands", "reference", "deployment", NULL};
    cli_table table = cli_table_create(headings, "rrrr");
    for (int64_t layer = 0; layer < n_layers; layer++) {
        double summands = 0;
        double reference = 0;
        double deployment = 0;
        bool found = false; /* layers of attention are not verified */
        for (int64_t i = 0; i < result->n_reconstruction; i++) {
            if (result->reconstruction[i].layer == layer) {
                found = true;
                summands = larger(summands, result->reconstruction[i].rel_l2);
                reference = larger(reference, result->reconstruction[i].rel_l2_reference);
            }
        }
        for (int64_t i = 0; i < result->n_deployment; i++) {
            if (result->deployment[i].layer == layer) {
                deployment = larger(deployment, result->deployment[i].relative_deviation);
            }
        }
        if (!found) {
            continue;
        }
        cli_table_cell(&table, "%lld", (long long)layer);
        cli_table_cell(&table, "%.1e", summands);
        cli_table_cell(&table, "%.1e", reference);
        cli_table_cell(&table, "%.1e", deployment);
    }
    return cli_table_print(&table, stdout, err);
}

static void add_bound(cli_table *table, const char *what, double value, double bound)
{
    cli_table_cell(table, "%s", what);
    cli_table_cell(table, "%.1e", value);
    cli_table_cell(table, "%.1e", bound);
    cli_table_cell(table, "%s", value <= bound ? "ok" : "FAILED");
}

static ssm_status print_summary(const ssm_verify_result *result, ssm_error *err)
{
    static const char *const headings[] = {"check", "found", "bound", "", NULL};
    cli_table table = cli_table_create(headings, "lrrl");
    add_bound(&table, "recorded summands add up to the layer's output, largest",
              result->reconstruction_max, result->bound_reconstruction);
    add_bound(&table, "layer's output against the float64 reference, largest",
              result->reconstruction_reference_max, result->bound_reference);
    add_bound(&table, "predicted error of pruning against a pruned run, median",
              result->deployment_median, result->bound_deployment_median);
    add_bound(&table, "predicted error of pruning against a pruned run, largest",
              result->deployment_max, result->bound_deployment_max);
    const ssm_status status = cli_table_print(&table, stdout, err);
    const after_norm norm = measure_after_norm(result);
    if (norm.known) {
        printf("  After the gated norm, which couples modes (measured, no bound): summands %.1e, "
               "largest;\n  error of pruning, median %.3g at the norm's input, %.3g behind it.\n",
               norm.reconstruction, norm.before, norm.after);
    }
    return status;
}

static ssm_status print_for_people(const cli_source *source, const verify_arguments *args,
                                   const ssm_verify_result *result, ssm_error *err)
{
    printf("%s: %lld windows of %lld tokens, %lld reconstructions and %lld prunings compared\n\n",
           source->argument, (long long)args->windows, (long long)args->window,
           (long long)result->n_reconstruction, (long long)result->n_deployment);
    ssm_status status = print_layers(result, source->config->n_layers, err);
    puts("  Relative differences, the largest over windows and budgets.\n");
    return status == SSM_STATUS_OK ? print_summary(result, err) : status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static ssm_status verify(cli_context *context, const verify_arguments *args,
                         const cli_source *source, const ssm_corpus *corpus,
                         ssm_verify_result *result, ssm_error *err)
{
    ssm_pool *pool = NULL;
    ssm_status status = cli_pool(context, &pool, err);
    const ssm_verify_options options = {.window = args->window,
                                        .windows = args->windows,
                                        .budgets = args->budgets.values,
                                        .n_budgets = args->budgets.count,
                                        .exact_chunks = args->load.exact_chunks,
                                        .pool = pool,
                                        .progress = cli_progress_start(context)};
    if (status == SSM_STATUS_OK) {
        status = ssm_verify(source->model, corpus, &options, result, err);
    }
    cli_progress_clear(context);
    return status;
}

static ssm_status run_verify(cli_context *context, const void *arguments, ssm_error *err)
{
    const verify_arguments *args = arguments;
    cli_source source = {0};
    ssm_corpus corpus = {0};
    ssm_verify_result result = {0};
    ssm_status status = cli_open_with_texts(context, args->model, &args->load, &args->texts,
                                            args->invalid_utf8, &source, &corpus, err);
    if (status == SSM_STATUS_OK) {
        status = verify(context, args, &source, &corpus, &result, err);
    }
    if (status == SSM_STATUS_OK) {
        status = context->globals.json ? print_json(context, &source, &corpus, &result, err)
                                       : print_for_people(&source, args, &result, err);
    }
    if (status == SSM_STATUS_OK && !result.passed) {
        status = cli_fail(err, SSM_STATUS_CHECK, NULL, "verify: a bound does not hold");
    }
    ssm_verify_result_free(&result);
    ssm_corpus_free(&corpus);
    cli_source_close(&source);
    return status;
}

static const cli_positional verify_positionals[] = {CLI_MODEL_ENTRY(verify_arguments),
                                                    CLI_TEXT_ENTRY(verify_arguments)};

static const cli_option verify_options[] = {
    {.name = "windows",
     .kind = CLI_INTEGER,
     .into = offsetof(verify_arguments, windows),
     .argument = "K",
     .fallback = "6",
     .min = 1,
     .max = INT32_MAX,
     .help = "Windows in all, taken from the domains in turn."},
    {.name = "window",
     .kind = CLI_INTEGER,
     .into = offsetof(verify_arguments, window),
     .argument = "T",
     .fallback = "1024",
     .min = 2,
     .max = 1 << 24,
     .help = "Tokens of a window."},
    {.name = "budgets",
     .kind = CLI_LIST,
     .into = offsetof(verify_arguments, budgets),
     .argument = "LIST",
     .min = 1,
     .max = 65536,
     .help = "Kept modes a channel to prune to. [default: a quarter, a half and three quarters of "
             "d_state]"},
    CLI_INVALID_UTF8_ENTRY(verify_arguments),
    CLI_LOAD_ENTRIES(verify_arguments),
    CLI_EXACT_CHUNKS_ENTRY(verify_arguments),
};

static const char *const verify_examples[] = {
    "ssmscope verify tiny prose=a.txt code=b.txt",
    "Six windows, three budgets; exit status 5 when a bound does not hold.", NULL};

const cli_command cli_command_verify = {
    .name = "verify",
    .summary = "show that the instrument is exact, on your model and text",
    .description =
        "Two checks in every layer. Reconstruction: the recorded summands add up to the output "
        "that the model used, and that output agrees with a float64 reference. Deployment: the "
        "error that the recorded Gram matrix predicts for a pruned layer is the error that a "
        "second, really pruned run has. Exit status 5 when a bound does not hold.",
    .examples = verify_examples,
    .positionals = verify_positionals,
    .n_positionals = sizeof verify_positionals / sizeof *verify_positionals,
    .options = verify_options,
    .n_options = sizeof verify_options / sizeof *verify_options,
    .arguments_size = sizeof(verify_arguments),
    .run = run_verify,
};
