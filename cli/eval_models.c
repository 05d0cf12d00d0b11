/* cli/eval_models.c: several models side by side: perplexities, differences between any two of
 * them, and what each has of the gain of `scheduled` over `static`, all from the same resamples. */
#include <stdlib.h>
#include <string.h>

#include "eval_output.h"
#include "messages.h"

/* The models, each once: the unpruned one first where it is the baseline. */
typedef struct model_list {
    const cli_scored **models;
    int64_t count;
    const cli_scored *fixed, *best; /* static and scheduled; NULL */
} model_list;

static void add_model(model_list *list, const cli_scored *scored)
{
    list->models[list->count++] = scored;
    list->fixed = strcmp(scored->name, "static") == 0 ? scored : list->fixed;
    list->best = strcmp(scored->name, "scheduled") == 0 ? scored : list->best;
}

static ssm_status list_models(const cli_evaluation *evaluation, model_list *out, ssm_error *err)
{
    *out = (model_list){0};
    out->models = calloc((size_t)evaluation->n_others + 2, sizeof *out->models);
    if (out->models == NULL) {
        return cli_no_memory(err);
    }
    if (evaluation->baseline != NULL) {
        add_model(out, evaluation->baseline);
    }
    add_model(out, &evaluation->main);
    for (int64_t i = 0; i < evaluation->n_others; i++) {
        if (!evaluation->others[i].shared) {
            add_model(out, &evaluation->others[i]);
        }
    }
    return SSM_STATUS_OK;
}

/* Of a domain; n_domains: all together. */
static ssm_status capture_of(const cli_evaluation *evaluation, const model_list *list,
                             const cli_scored *model, int64_t domain, ssm_capture *out,
                             ssm_error *err)
{
    const ssm_bootstrap_options bootstrap = {.resamples = evaluation->resamples,
                                             .seed = (uint64_t)evaluation->seed};
    const int64_t n_domains = evaluation->corpus->n_domains;
    return ssm_capture_of(list->fixed->scores, model->scores, list->best->scores, model->count,
                          n_domains, domain == n_domains ? -1 : domain, &bootstrap, out, err);
}

static bool has_capture(const model_list *list, const cli_scored *model)
{
    return list->fixed != NULL && list->best != NULL && model != list->fixed &&
           model != list->best && strcmp(model->name, "unpruned") != 0;
}

/* ---- for programs ---------------------------------------------------------------------------- */

static ssm_status json_captures(cli_json *json, const cli_evaluation *evaluation,
                                const model_list *list, ssm_error *err)
{
    const ssm_corpus *corpus = evaluation->corpus;
    json_t *captures = cli_json_object(json, json->root, "captures");
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; i < list->count; i++) {
        if (!has_capture(list, list->models[i])) {
            continue;
        }
        json_t *object = cli_json_object(json, captures, list->models[i]->name);
        json_t *domains = cli_json_object(json, object, "domains");
        for (int64_t d = 0; d <= corpus->n_domains && status == SSM_STATUS_OK; d++) {
            ssm_capture capture;
            status = capture_of(evaluation, list, list->models[i], d, &capture, err);
            if (status == SSM_STATUS_OK) {
                cli_json_capture(json,
                                 d == corpus->n_domains
                                     ? object
                                     : cli_json_object(json, domains, corpus->domains[d].name),
                                 &capture);
            }
        }
    }
    return status;
}

static ssm_status json_gaps(cli_json *json, const cli_evaluation *evaluation,
                            const model_list *list, ssm_error *err)
{
    json_t *gaps = cli_json_array(json, json->root, "gaps");
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; i < list->count; i++) {
        for (int64_t k = 0; k < i && status == SSM_STATUS_OK; k++) {
            ssm_difference gap;
            status = cli_eval_difference(evaluation, list->models[k], list->models[i],
                                         evaluation->corpus->n_domains, &gap, err);
            if (status != SSM_STATUS_OK) {
                break;
            }
            json_t *object = json_object();
            cli_json_text(json, object, "model", list->models[i]->name);
            cli_json_text(json, object, "base", list->models[k]->name);
            cli_json_difference(json, object, &gap);
            cli_json_push(json, gaps, object);
        }
    }
    return status;
}

/* `difference` and `divergence` from the unpruned model, which is the first of the list. */
static ssm_status json_from_unpruned(cli_json *json, json_t *object,
                                     const cli_evaluation *evaluation, const model_list *list,
                                     int64_t model, ssm_error *err)
{
    ssm_difference difference;
    ssm_status status = cli_eval_difference(evaluation, list->models[0], list->models[model],
                                            evaluation->corpus->n_domains, &difference, err);
    if (status == SSM_STATUS_OK) {
        cli_json_difference(json, cli_json_object(json, object, "difference"), &difference);
        cli_json_divergence(json, cli_json_object(json, object, "divergence"),
                            &list->models[model]->divergence);
    }
    return status;
}

ssm_status cli_eval_json_models(cli_json *json, const cli_evaluation *evaluation, ssm_error *err)
{
    model_list list;
    ssm_status status = list_models(evaluation, &list, err);
    if (status == SSM_STATUS_OK) {
        json_t *models = cli_json_object(json, json->root, "models");
        for (int64_t i = 0; i < list.count; i++) {
            json_t *object = cli_json_object(json, models, list.models[i]->name);
            cli_eval_json_scored(json, object, evaluation, list.models[i]);
            if (status == SSM_STATUS_OK && list.models[i]->diverges) {
                status = json_from_unpruned(json, object, evaluation, &list, i, err);
            }
        }
        status = status == SSM_STATUS_OK ? json_gaps(json, evaluation, &list, err) : status;
    }
    if (status == SSM_STATUS_OK && list.fixed != NULL && list.best != NULL) {
        status = json_captures(json, evaluation, &list, err);
    }
    free((void *)list.models);
    return status;
}

/* ---- for people ------------------------------------------------------------------------------ */

/* Perplexity of every model in every domain, and all together with its intervals. */
static ssm_status print_perplexities(const cli_evaluation *evaluation, const model_list *list,
                                     ssm_error *err)
{
    const ssm_corpus *corpus = evaluation->corpus;
    const int64_t n = corpus->n_domains;
    const int64_t columns = (n > 1 ? n : 0) + 4;
    const char **headings = calloc((size_t)columns + 1, sizeof *headings);
    char *alignment = calloc((size_t)columns + 1, 1);
    if (headings == NULL || alignment == NULL) {
        free((void *)headings);
        free(alignment);
        return cli_no_memory(err);
    }
    memset(alignment, 'r', (size_t)columns);
    alignment[0] = 'l';
    headings[0] = "perplexity";
    for (int64_t d = 0; n > 1 && d < n; d++) {
        headings[1 + d] = corpus->domains[d].name;
    }
    headings[columns - 3] = n > 1 ? "all" : corpus->domains[0].name;
    headings[columns - 2] = "95 % windows";
    headings[columns - 1] = "95 % blocks";
    cli_table table = cli_table_create(headings, alignment);
    for (int64_t i = 0; i < list->count; i++) {
        const ssm_perplexity *results = list->models[i]->results;
        cli_table_cell(&table, "%s", list->models[i]->name);
        for (int64_t d = n > 1 ? 0 : n; d <= n; d++) {
            cli_table_cell(&table, "%.3f", results[d].perplexity);
        }
        cli_table_interval(&table, results[n].interval_window, 3, false);
        cli_table_interval(&table, results[n].interval_block, 3, false);
    }
    ssm_status status = cli_table_print(&table, stdout, err);
    free((void *)headings);
    free(alignment);
    return status;
}

static ssm_status print_gaps(const cli_evaluation *evaluation, const model_list *list,
                             ssm_error *err)
{
    static const char *const headings[] = {"perplexity, all", "difference", "95 % windows",
                                           "95 % blocks", NULL};
    cli_table table = cli_table_create(headings, "lrrr");
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; i < list->count; i++) {
        for (int64_t k = 0; k < i && status == SSM_STATUS_OK; k++) {
            ssm_difference gap = {0};
            status = cli_eval_difference(evaluation, list->models[k], list->models[i],
                                         evaluation->corpus->n_domains, &gap, err);
            cli_table_cell(&table, "%s - %s", list->models[i]->name, list->models[k]->name);
            cli_table_cell(&table, "%+.3f", gap.perplexity);
            cli_table_interval(&table, gap.interval_window, 3, true);
            cli_table_interval(&table, gap.interval_block, 3, true);
        }
    }
    ssm_status printed = cli_table_print(&table, stdout, err);
    return status == SSM_STATUS_OK ? printed : status;
}

static ssm_status print_captures(const cli_evaluation *evaluation, const model_list *list,
                                 ssm_error *err)
{
    static const char *const headings[] = {"of static - scheduled", "captured, %", "95 % windows",
                                           "95 % blocks", NULL};
    cli_table table = cli_table_create(headings, "lrrr");
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; i < list->count && status == SSM_STATUS_OK; i++) {
        ssm_capture capture = {0};
        if (!has_capture(list, list->models[i])) {
            continue;
        }
        status = capture_of(evaluation, list, list->models[i], evaluation->corpus->n_domains,
                            &capture, err);
        cli_table_cell(&table, "%s", list->models[i]->name);
        cli_table_number(&table, 100.0 * capture.fraction, 1);
        cli_table_interval(&table, cli_percent(capture.interval_window), 1, false);
        cli_table_interval(&table, cli_percent(capture.interval_block), 1, false);
    }
    ssm_status printed = cli_table_print(&table, stdout, err);
    return status == SSM_STATUS_OK ? printed : status;
}

static bool any_capture(const model_list *list)
{
    bool any = false;
    for (int64_t i = 0; i < list->count; i++) {
        any = any || has_capture(list, list->models[i]);
    }
    return any;
}

ssm_status cli_eval_print_models(const cli_evaluation *evaluation, ssm_error *err)
{
    model_list list;
    ssm_status status = list_models(evaluation, &list, err);
    printf("\n");
    status = status == SSM_STATUS_OK ? print_perplexities(evaluation, &list, err) : status;
    printf("\n");
    status = status == SSM_STATUS_OK ? print_gaps(evaluation, &list, err) : status;
    if (status == SSM_STATUS_OK && any_capture(&list)) {
        printf("\n");
        status = print_captures(evaluation, &list, err);
        cli_footnote_captures();
    }
    free((void *)list.models);
    return status;
}
