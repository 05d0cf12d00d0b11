#include "eval_output.h"

#include <string.h>

#include "protocol.h"

ssm_status cli_eval_difference(const cli_evaluation *evaluation, const cli_scored *base,
                               const cli_scored *other, int64_t domain, ssm_difference *out,
                               ssm_error *err)
{
    const ssm_bootstrap_options bootstrap = {.resamples = evaluation->resamples,
                                             .seed = (uint64_t)evaluation->seed};
    int64_t n_domains = evaluation->corpus->n_domains;
    return ssm_difference_of(base->scores, other->scores, base->count, n_domains,
                             domain == n_domains ? -1 : domain, &bootstrap, out, err);
}

/* ---- for programs ---------------------------------------------------------------------------- */

static ssm_status json_one_difference(cli_json *json, json_t *object,
                                      const cli_evaluation *evaluation, const cli_scored *base,
                                      int64_t domain, ssm_error *err)
{
    ssm_difference difference;
    ssm_status status =
        cli_eval_difference(evaluation, base, &evaluation->main, domain, &difference, err);
    if (status == SSM_STATUS_OK) {
        cli_json_difference(json, object, &difference);
    }
    return status;
}

static ssm_status json_difference(cli_json *json, json_t *object, const cli_evaluation *evaluation,
                                  const cli_scored *base, ssm_error *err)
{
    const ssm_corpus *corpus = evaluation->corpus;
    ssm_status status = json_one_difference(json, object, evaluation, base, corpus->n_domains, err);
    json_t *domains = cli_json_object(json, object, "domains");
    for (int64_t d = 0; status == SSM_STATUS_OK && d < corpus->n_domains; d++) {
        json_t *domain = cli_json_object(json, domains, corpus->domains[d].name);
        status = json_one_difference(json, domain, evaluation, base, d, err);
    }
    return status;
}

static void json_protocol(cli_json *json, const cli_evaluation *evaluation)
{
    char protocol[48];
    cli_protocol_name(evaluation->continuation, protocol);
    cli_json_text(json, json->root, "protocol", protocol);
    cli_json_integer(json, json->root, "window", evaluation->window);
    cli_json_integer(json, json->root, "offset", evaluation->offset);
    cli_json_integer(json, json->root, "bootstrap", evaluation->resamples);
    if (evaluation->baseline != NULL) {
        json_t *mask = cli_json_object(json, json->root, "mask");
        cli_json_text(json, mask, "path", evaluation->mask_path);
        cli_json_text(json, mask, "rule", evaluation->rule);
        cli_json_integer(json, mask, "budget", evaluation->budget);
    }
}

void cli_eval_json_scored(cli_json *json, json_t *object, const cli_evaluation *evaluation,
                          const cli_scored *scored)
{
    cli_json_scored(json, object, evaluation->corpus, scored);
    cli_json_windows(json, object, evaluation->corpus, scored);
}

ssm_status cli_eval_json(const cli_context *context, const cli_source *source,
                         const cli_evaluation *evaluation, ssm_error *err)
{
    cli_json json = cli_json_create(context, "eval");
    cli_json_integer(&json, json.root, "seed", evaluation->seed);
    cli_json_source(&json, source);
    cli_json_corpus(&json, evaluation->corpus);
    json_protocol(&json, evaluation);
    cli_eval_json_scored(&json, json.root, evaluation, &evaluation->main);
    ssm_status status = SSM_STATUS_OK;
    if (evaluation->baseline != NULL) {
        cli_eval_json_scored(&json, cli_json_object(&json, json.root, "baseline"), evaluation,
                             evaluation->baseline);
        status = json_difference(&json, cli_json_object(&json, json.root, "difference"), evaluation,
                                 evaluation->baseline, err);
        cli_json_divergence(&json, cli_json_object(&json, json.root, "divergence"),
                            &evaluation->main.divergence);
    }
    if (evaluation->n_others > 0) {
        json_t *differences = cli_json_object(&json, json.root, "differences");
        for (int64_t i = 0; status == SSM_STATUS_OK && i < evaluation->n_others; i++) {
            json_t *one = cli_json_object(&json, differences, evaluation->others[i].name);
            status = json_difference(&json, one, evaluation, &evaluation->others[i], err);
        }
        status = status == SSM_STATUS_OK ? cli_eval_json_models(&json, evaluation, err) : status;
    }
    if (status != SSM_STATUS_OK) {
        cli_json_free(&json);
        return status;
    }
    return cli_json_print(&json, err);
}

/* ---- for people ------------------------------------------------------------------------------ */

static ssm_status print_scored(const cli_evaluation *evaluation, const cli_scored *scored,
                               ssm_error *err)
{
    static const char *const headings[] = {"domain",     "windows",      "tokens",      "nats",
                                           "perplexity", "95 % windows", "95 % blocks", NULL};
    const ssm_corpus *corpus = evaluation->corpus;
    printf("\n%s\n", scored->name);
    cli_table table = cli_table_create(headings, "lrrrrrr");
    for (int64_t d = 0; d <= corpus->n_domains; d++) {
        const ssm_perplexity *result = &scored->results[d];
        bool all = d == corpus->n_domains;
        if (all && corpus->n_domains == 1) {
            break;
        }
        int64_t windows = 0;
        for (int64_t i = 0; i < scored->count; i++) {
            windows += all || scored->scores[i].domain == d;
        }
        cli_table_cell(&table, "%s", all ? "all" : corpus->domains[d].name);
        cli_table_cell(&table, "%lld", (long long)windows);
        cli_table_cell(&table, "%lld", (long long)result->tokens);
        cli_table_cell(&table, "%.4f", result->nll_sum / (double)result->tokens);
        cli_table_cell(&table, "%.3f", result->perplexity);
        cli_table_interval(&table, result->interval_window, 3, false);
        cli_table_interval(&table, result->interval_block, 3, false);
    }
    return cli_table_print(&table, stdout, err);
}

static ssm_status print_difference(const cli_evaluation *evaluation, const cli_scored *base,
                                   const cli_scored *other, ssm_error *err)
{
    static const char *const headings[] = {"domain", "difference", "95 % windows", "95 % blocks",
                                           NULL};
    const ssm_corpus *corpus = evaluation->corpus;
    printf("\n%s - %s, perplexity\n", other->name, base->name);
    cli_table table = cli_table_create(headings, "lrrr");
    ssm_status status = SSM_STATUS_OK;
    for (int64_t d = 0; status == SSM_STATUS_OK && d <= corpus->n_domains; d++) {
        bool all = d == corpus->n_domains;
        if (all && corpus->n_domains == 1) {
            break;
        }
        ssm_difference difference = {0};
        status = cli_eval_difference(evaluation, base, other, d, &difference, err);
        cli_table_cell(&table, "%s", all ? "all" : corpus->domains[d].name);
        cli_table_cell(&table, "%+.3f", difference.perplexity);
        cli_table_interval(&table, difference.interval_window, 3, true);
        cli_table_interval(&table, difference.interval_block, 3, true);
    }
    ssm_status printed = cli_table_print(&table, stdout, err);
    return status == SSM_STATUS_OK ? printed : status;
}

static ssm_status print_divergence(const cli_scored *scored, ssm_error *err)
{
    static const char *const headings[] = {"predictions", "value", "95 % windows", NULL};
    const ssm_divergence *d = &scored->divergence;
    printf("\n%s from unpruned, %lld tokens\n", scored->name, (long long)d->tokens);
    cli_table table = cli_table_create(headings, "lrr");
    cli_table_cell(&table, "same first choice, %%");
    cli_table_cell(&table, "%.2f", 100.0 * d->agreement);
    cli_table_interval(&table, cli_percent(d->agreement_interval), 2, false);
    cli_table_cell(&table, "KL divergence, mean");
    cli_table_cell(&table, "%.5f", d->kl);
    cli_table_interval(&table, d->kl_interval, 5, false);
    for (int i = 4; i < SSM_DIVERGENCE_QUANTILES; i += i == 4 ? 2 : 1) {
        cli_table_cell(&table, "  %.0f %% of tokens below", 100.0 * ssm_divergence_level(i));
        cli_table_cell(&table, "%.5f", d->kl_quantiles[i]);
        cli_table_cell(&table, "%s", "");
    }
    cli_table_cell(&table, "  largest");
    cli_table_cell(&table, "%.5f", d->kl_max);
    cli_table_cell(&table, "%s", "");
    cli_table_cell(&table, "change of p(token), mean, %%");
    cli_table_cell(&table, "%+.3f", 100.0 * d->probability_change);
    cli_table_cell(&table, "%s", "");
    cli_table_cell(&table, "  root mean square, %%");
    cli_table_cell(&table, "%.3f", 100.0 * d->probability_change_rms);
    cli_table_cell(&table, "%s", "");
    return cli_table_print(&table, stdout, err);
}

/* The k-th pruned model, the one to judge first; NULL behind the last. */
static const cli_scored *diverging(const cli_evaluation *evaluation, int64_t k)
{
    if (evaluation->main.diverges && k-- == 0) {
        return &evaluation->main;
    }
    for (int64_t i = 0; i < evaluation->n_others; i++) {
        if (evaluation->others[i].diverges && !evaluation->others[i].shared && k-- == 0) {
            return &evaluation->others[i];
        }
    }
    return NULL;
}

/* Of several pruned models a line each; of the one to judge, or the only one, all. */
static ssm_status print_divergences(const cli_evaluation *evaluation, ssm_error *err)
{
    static const char *const headings[] = {"from unpruned",  "KL, mean",     "95 % windows",
                                           "same choice, %", "95 % windows", NULL};
    const cli_scored *first = diverging(evaluation, 0);
    const bool several = first != NULL && diverging(evaluation, 1) != NULL;
    ssm_status status = SSM_STATUS_OK;
    if (first != NULL && (!several || evaluation->main.diverges)) {
        status = print_divergence(first, err);
    }
    if (status != SSM_STATUS_OK || !several) {
        return status;
    }
    printf("\n");
    cli_table table = cli_table_create(headings, "lrrrr");
    const cli_scored *scored;
    for (int64_t k = 0; (scored = diverging(evaluation, k)) != NULL; k++) {
        const ssm_divergence *d = &scored->divergence;
        cli_table_cell(&table, "%s", scored->name);
        cli_table_cell(&table, "%.5f", d->kl);
        cli_table_interval(&table, d->kl_interval, 5, false);
        cli_table_cell(&table, "%.2f", 100.0 * d->agreement);
        cli_table_interval(&table, cli_percent(d->agreement_interval), 2, false);
    }
    return cli_table_print(&table, stdout, err);
}

/* Each model, and what lies between it, the one to judge and the unpruned one. */
static ssm_status print_one_by_one(const cli_evaluation *evaluation, ssm_error *err)
{
    const cli_scored *main = &evaluation->main;
    const cli_scored *base = evaluation->baseline;
    ssm_status status = base != NULL ? print_scored(evaluation, base, err) : SSM_STATUS_OK;
    status = status == SSM_STATUS_OK ? print_scored(evaluation, main, err) : status;
    if (status == SSM_STATUS_OK && base != NULL) {
        status = print_difference(evaluation, base, main, err);
    }
    for (int64_t i = 0; status == SSM_STATUS_OK && i < evaluation->n_others; i++) {
        const cli_scored *other = &evaluation->others[i];
        if (base != NULL && other->shared) {
            continue; /* the unpruned model again: it stands above */
        }
        status = print_scored(evaluation, other, err);
        status = status == SSM_STATUS_OK ? print_difference(evaluation, other, main, err) : status;
        if (status == SSM_STATUS_OK && base != NULL) {
            status = print_difference(evaluation, base, other, err);
        }
    }
    return status;
}

ssm_status cli_eval_print(const cli_source *source, const cli_evaluation *evaluation,
                          ssm_error *err)
{
    printf("%s: windows of %lld tokens", source->argument, (long long)evaluation->window);
    if (evaluation->continuation >= 0) {
        printf(", scored from token %lld on", (long long)evaluation->continuation);
    }
    printf("; %lld resamples, seed %lld\n", (long long)evaluation->resamples,
           (long long)evaluation->seed);
    ssm_status status = evaluation->adapts ? cli_eval_print_models(evaluation, err)
                                           : print_one_by_one(evaluation, err);
    status = status == SSM_STATUS_OK ? print_divergences(evaluation, err) : status;
    if (status != SSM_STATUS_OK) {
        return status;
    }
    cli_footnote(
        "nats: mean negative log-likelihood of a token; perplexity: its exponential. 95 %: "
        "percentile intervals from resampled windows and from resampled runs of four "
        "windows, within each domain.");
    if (!cli_scored_has_blocks(&evaluation->main, evaluation->corpus)) {
        cli_footnote_blocks();
    }
    if (evaluation->baseline != NULL || evaluation->n_others > 0) {
        cli_footnote("Differences are paired: both models on the same windows and resamples.");
    }
    return status;
}
