/* cli/eval_tasks.c: `eval --task`. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "eval_state.h"
#include "messages.h"

/* One model on the items. */
typedef struct judged {
    const cli_variant *variant;
    ssm_task_score *scores;
    ssm_task_result results[SSM_METRIC_COUNT]; /* those of the task */
} judged;

typedef struct task_run {
    cli_eval_state *state;
    const ssm_task *task;
    ssm_task_data data;
    cli_variant *variants;
    judged *models; /* [n] */
    int64_t n;
    struct timespec started;
} task_run;

static bool has(const task_run *run, int metric)
{
    return (run->task->metrics & 1u << metric) != 0;
}

static ssm_bootstrap_options bootstrap_of(const task_run *run)
{
    return (ssm_bootstrap_options){.resamples = run->state->args->bootstrap,
                                   .seed = (uint64_t)run->state->args->seed};
}

static ssm_status difference(const task_run *run, const judged *base, int metric,
                             ssm_task_difference *out, ssm_error *err)
{
    const ssm_bootstrap_options bootstrap = bootstrap_of(run);
    return ssm_task_difference_of(base->scores, run->models[0].scores, run->data.count,
                                  (ssm_task_metric)metric, &bootstrap, out, err);
}

/* ---- scoring --------------------------------------------------------------------------------- */

static ssm_status score(task_run *run, judged *model, ssm_error *err)
{
    cli_eval_state *state = run->state;
    ssm_pool *pool = NULL;
    const ssm_adapter *adapter = model->variant->adapter;
    ssm_status status = cli_pool(state->context, &pool, err);
    const ssm_task_options options = {
        .scorer = {.max_length = state->args->max_length,
                   .prefix_id = state->prefix_id,
                   .exact_chunks = state->args->load.exact_chunks,
                   .pool = pool,
                   .chooser = adapter != NULL ? ssm_adapt_chooser(adapter) : NULL},
        .progress = cli_progress_start(state->context),
        .journal = state->journal,
        .series = model->variant->name};
    if (status == SSM_STATUS_OK) {
        const bool masked = model->variant->masked && adapter == NULL;
        const ssm_mask *mask = masked ? &model->variant->mask : NULL;
        status = ssm_task_run(state->source.model, state->source.tokenizer, mask, &run->data,
                              &options, &model->scores, err);
    }
    cli_progress_clear(state->context);
    const ssm_bootstrap_options bootstrap = bootstrap_of(run);
    for (int metric = 0; metric < SSM_METRIC_COUNT && status == SSM_STATUS_OK; metric++) {
        if (has(run, metric)) {
            status = ssm_task_result_of(model->scores, run->data.count, (ssm_task_metric)metric,
                                        &bootstrap, state->args->harness_bootstrap,
                                        &model->results[metric], err);
        }
    }
    return status;
}

/* static, scheduled and unpruned, where all three are there. */
static bool find_recovered(const task_run *run, const judged *models[3])
{
    static const char *const names[3] = {"static", "scheduled", "unpruned"};
    for (int m = 0; m < 3; m++) {
        models[m] = NULL;
        for (int64_t i = 0; i < run->n; i++) {
            if (strcmp(run->models[i].variant->name, names[m]) == 0) {
                models[m] = &run->models[i];
            }
        }
    }
    return models[0] != NULL && models[1] != NULL && models[2] != NULL;
}

static ssm_status recovered(const task_run *run, const judged *const models[3], int metric,
                            double *share, ssm_interval *interval, ssm_error *err)
{
    const ssm_bootstrap_options bootstrap = bootstrap_of(run);
    return ssm_task_recovered_of(models[0]->scores, models[1]->scores, models[2]->scores,
                                 run->data.count, (ssm_task_metric)metric, &bootstrap, share,
                                 interval, err);
}

/* Items whose context did not fit whole. */
static int64_t truncated_items(const task_run *run)
{
    int64_t count = 0;
    for (int64_t i = 0; i < run->data.count; i++) {
        const ssm_task_score *score_of = &run->models[0].scores[i];
        bool any = false;
        for (int64_t k = 0; k < score_of->n_choices; k++) {
            any = any || score_of->choices[k].truncated > 0;
        }
        count += any;
    }
    return count;
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void json_results(cli_json *json, json_t *parent, const void *context, int64_t i)
{
    const task_run *run = context;
    const judged *model = &run->models[i];
    json_t *results = cli_json_object(json, parent, "results");
    json_t *task = cli_json_object(json, results, run->task->name);
    json_t *intervals = json_object();
    for (int metric = 0; metric < SSM_METRIC_COUNT; metric++) {
        if (has(run, metric)) {
            char key[64];
            const char *name = ssm_task_metric_name((ssm_task_metric)metric);
            cli_json_real(json, task, name, model->results[metric].value);
            snprintf(key, sizeof key, "%s_stderr", name);
            cli_json_real(json, task, key, model->results[metric].stderr_);
            cli_json_interval(json, intervals, name, model->results[metric].interval);
        }
    }
    cli_json_integer(json, task, "n", run->data.count);
    cli_json_interval(json, task, "interval", model->results[SSM_METRIC_ACC].interval);
    cli_json_put(json, task, "intervals", intervals);
}

static ssm_status json_difference(cli_json *json, json_t *object, const void *context, int64_t i,
                                  ssm_error *err)
{
    const task_run *run = context;
    ssm_status status = SSM_STATUS_OK;
    for (int metric = 0; metric < SSM_METRIC_COUNT && status == SSM_STATUS_OK; metric++) {
        if (!has(run, metric)) {
            continue;
        }
        ssm_task_difference d;
        status = difference(run, &run->models[i], metric, &d, err);
        json_t *one = cli_json_object(json, object, ssm_task_metric_name((ssm_task_metric)metric));
        cli_json_real(json, one, "value", d.value);
        cli_json_real(json, one, "stderr", d.stderr_);
        cli_json_interval(json, one, "interval", d.interval);
        if (metric != SSM_METRIC_PERPLEXITY) {
            cli_json_integer(json, one, "both_right", d.both_right);
            cli_json_integer(json, one, "only_base", d.only_base);
            cli_json_integer(json, one, "only_this", d.only_other);
            cli_json_integer(json, one, "both_wrong", d.both_wrong);
        }
    }
    return status;
}

static ssm_status json_recovered(cli_json *json, const task_run *run, ssm_error *err)
{
    const judged *models[3];
    ssm_status status = SSM_STATUS_OK;
    if (!find_recovered(run, models)) {
        return status;
    }
    json_t *object = cli_json_object(json, json->root, "recovered");
    for (int metric = 0; metric < SSM_METRIC_COUNT && status == SSM_STATUS_OK; metric++) {
        double share = 0.0;
        ssm_interval interval = {0};
        if (has(run, metric)) {
            status = recovered(run, models, metric, &share, &interval, err);
            json_t *one =
                cli_json_object(json, object, ssm_task_metric_name((ssm_task_metric)metric));
            cli_json_real(json, one, "share", share);
            cli_json_interval(json, one, "interval", interval);
        }
    }
    return status;
}

static ssm_status print_json(const task_run *run, ssm_error *err)
{
    const cli_eval_state *state = run->state;
    cli_json json = cli_json_create(state->context, "eval");
    cli_json_integer(&json, json.root, "seed", state->args->seed);
    cli_json_source(&json, &state->source);
    json_t *data = cli_json_object(&json, json.root, "data");
    cli_json_text(&json, data, "path", state->args->data);
    cli_json_text(&json, data, "digest", run->data.digest);
    cli_json_integer(&json, data, "items", run->data.total);
    cli_json_integer(&json, json.root, "max_length", state->args->max_length);
    cli_json_integer(&json, json.root, "prefix_id", state->prefix_id);
    cli_json_text(&json, json.root, "prefix", state->prefix_source);
    cli_json_integer(&json, json.root, "truncated_items", truncated_items(run));
    cli_json_integer(&json, json.root, "bootstrap", state->args->bootstrap);
    const cli_variant_json put = {run, json_results, json_difference};
    ssm_status status = cli_variants_json(&json, run->variants, run->n, &put, err);
    status = status == SSM_STATUS_OK ? json_recovered(&json, run, err) : status;
    if (status != SSM_STATUS_OK) {
        cli_json_free(&json);
        return status;
    }
    return cli_json_print(&json, err);
}

/* ---- for people ------------------------------------------------------------------------------ */

static ssm_status print_results(const task_run *run, ssm_error *err)
{
    static const char *const headings[] = {"model", "metric", "value", "stderr", "95 %", NULL};
    cli_table table = cli_table_create(headings, "llrrr");
    for (int64_t i = 0; i < run->n; i++) {
        const judged *model = &run->models[i];
        for (int metric = 0; metric < SSM_METRIC_COUNT; metric++) {
            if (has(run, metric)) {
                const ssm_task_result *result = &model->results[metric];
                cli_table_cell(&table, "%s", model->variant->name);
                cli_table_cell(&table, "%s", ssm_task_metric_name((ssm_task_metric)metric));
                cli_table_number(&table, result->value, 4);
                cli_table_number(&table, result->stderr_, 4);
                cli_table_interval(&table, result->interval, 4, false);
            }
        }
    }
    return cli_table_print(&table, stdout, err);
}

static ssm_status print_difference(const task_run *run, const judged *base, ssm_error *err)
{
    static const char *const headings[] = {"metric",    "difference", "stderr", "95 %",
                                           "only this", "only base",  NULL};
    printf("\n%s - %s, the same items\n", run->models[0].variant->name, base->variant->name);
    cli_table table = cli_table_create(headings, "lrrrrr");
    ssm_status status = SSM_STATUS_OK;
    for (int metric = 0; metric < SSM_METRIC_COUNT && status == SSM_STATUS_OK; metric++) {
        if (!has(run, metric)) {
            continue;
        }
        ssm_task_difference d = {0};
        status = difference(run, base, metric, &d, err);
        cli_table_cell(&table, "%s", ssm_task_metric_name((ssm_task_metric)metric));
        cli_table_cell(&table, "%+.4f", d.value);
        cli_table_number(&table, d.stderr_, 4);
        cli_table_interval(&table, d.interval, 4, true);
        if (metric == SSM_METRIC_PERPLEXITY) {
            cli_table_cell(&table, "-");
            cli_table_cell(&table, "-");
        } else {
            cli_table_cell(&table, "%lld", (long long)d.only_other);
            cli_table_cell(&table, "%lld", (long long)d.only_base);
        }
    }
    ssm_status printed = cli_table_print(&table, stdout, err);
    return status == SSM_STATUS_OK ? printed : status;
}

static ssm_status print_recovered(const task_run *run, ssm_error *err)
{
    static const char *const headings[] = {"metric", "recovered, %", "95 %", NULL};
    const judged *models[3];
    ssm_status status = SSM_STATUS_OK;
    if (!find_recovered(run, models)) {
        return status;
    }
    printf("\n(scheduled - static) / (unpruned - static)\n");
    cli_table table = cli_table_create(headings, "lrr");
    for (int metric = 0; metric < SSM_METRIC_COUNT && status == SSM_STATUS_OK; metric++) {
        double share = 0.0;
        ssm_interval interval = {0};
        if (has(run, metric)) {
            status = recovered(run, models, metric, &share, &interval, err);
            cli_table_cell(&table, "%s", ssm_task_metric_name((ssm_task_metric)metric));
            cli_table_number(&table, 100.0 * share, 1);
            cli_table_interval(&table, cli_percent(interval), 1, false);
        }
    }
    ssm_status printed = cli_table_print(&table, stdout, err);
    return status == SSM_STATUS_OK ? printed : status;
}

static ssm_status print_text(const task_run *run, ssm_error *err)
{
    const cli_eval_arguments *args = run->state->args;
    printf("%s: %s, %lld of %lld items, at most %lld tokens each\n\n", run->state->source.argument,
           run->task->harness_name, (long long)run->data.count, (long long)run->data.total,
           (long long)args->max_length);
    ssm_status status = print_results(run, err);
    for (int64_t i = 1; i < run->n && status == SSM_STATUS_OK; i++) {
        status = print_difference(run, &run->models[i], err);
    }
    status = status == SSM_STATUS_OK ? print_recovered(run, err) : status;
    const int64_t truncated = truncated_items(run);
    if (truncated > 0) {
        printf("\n%lld items lost the beginning of their context: it is longer than --max-length "
               "%lld\n",
               (long long)truncated, (long long)args->max_length);
    }
    cli_footnote("acc: share of items whose likeliest choice is right (LAMBADA: whose word is what "
                 "the model says); acc_norm, acc_bytes: likeliest per character, per byte. stderr: "
                 "as lm-evaluation-harness computes it. 95 %: percentiles over resampled items.");
    if (run->n > 1) {
        cli_footnote("only this, only base: items that only one of the two models has right.");
    }
    const judged *models[3];
    if (find_recovered(run, models)) {
        cli_footnote("recovered: - where unpruned is no better than static, on the items or in "
                     "more than 2.5 % of the resamples.");
    }
    return status;
}

/* ---- the harness's file ---------------------------------------------------------------------- */

static ssm_status write_harness(const task_run *run, ssm_error *err)
{
    const cli_eval_state *state = run->state;
    ssm_harness_metric metrics[SSM_METRIC_COUNT];
    int64_t count = 0;
    for (int metric = 0; metric < SSM_METRIC_COUNT; metric++) {
        if ((run->task->harness_metrics & 1u << metric) != 0) {
            metrics[count++] = (ssm_harness_metric){
                .name = ssm_task_metric_name((ssm_task_metric)metric),
                .value = run->models[0].results[metric].value,
                .stderr_ = run->models[0].results[metric].stderr_,
                .higher_is_better = ssm_task_metric_higher((ssm_task_metric)metric)};
        }
    }
    ssm_harness_run result = {.task = run->task->harness_name,
                              .dataset = run->task->dataset,
                              .output_type = has(run, SSM_METRIC_PERPLEXITY) ? "loglikelihood"
                                                                             : "multiple_choice",
                              .version = run->task->version,
                              .metrics = metrics,
                              .n_metrics = count,
                              .items = run->data.count,
                              .total = run->data.total,
                              .limit = state->args->limit};
    return cli_eval_write_harness(state, &result, &run->started, err);
}

/* ---- the command ----------------------------------------------------------------------------- */

static ssm_status run_models(task_run *run, ssm_error *err)
{
    ssm_status status = cli_variants_open(run->state, &run->variants, &run->n, err);
    run->models = calloc((size_t)run->n + 1, sizeof *run->models);
    if (run->models == NULL) {
        return cli_no_memory(err);
    }
    for (int64_t i = 0; i < run->n && status == SSM_STATUS_OK; i++) {
        run->models[i].variant = &run->variants[i];
        status = score(run, &run->models[i], err);
    }
    return status;
}

ssm_status cli_eval_task(cli_eval_state *state, ssm_error *err)
{
    const cli_eval_arguments *args = state->args;
    task_run run = {.state = state};
    clock_gettime(CLOCK_REALTIME, &run.started);
    ssm_status status = ssm_task_find(args->task, &run.task, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_task_read(run.task, args->data, args->limit, &run.data, err);
    }
    if (status == SSM_STATUS_OK) {
        status = cli_source_open(state->context, args->model, &args->load,
                                 CLI_WANT_MODEL | CLI_WANT_DIGEST | CLI_WANT_TOKENIZER,
                                 &state->source, err);
    }
    status = status == SSM_STATUS_OK ? cli_eval_prefix(state, err) : status;
    status = status == SSM_STATUS_OK ? cli_eval_journal(state, run.data.digest, err) : status;
    status = status == SSM_STATUS_OK ? run_models(&run, err) : status;
    if (status == SSM_STATUS_OK && args->harness_json != NULL) {
        status = write_harness(&run, err);
    }
    if (status == SSM_STATUS_OK) {
        status = state->context->globals.json ? print_json(&run, err) : print_text(&run, err);
    }
    for (int64_t i = 0; run.models != NULL && i < run.n; i++) {
        ssm_task_scores_free(run.models[i].scores, run.data.count);
    }
    free(run.models);
    cli_variants_free(run.variants, run.n);
    ssm_task_data_free(&run.data);
    return status;
}
