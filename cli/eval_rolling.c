/* cli/eval_rolling.c: `eval --protocol rolling` and `stateful`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "eval_state.h"
#include "messages.h"

enum { DENOMINATORS = 3 };

static const char *const names[DENOMINATORS] = {"token_perplexity", "word_perplexity",
                                                "byte_perplexity"};

/* One model on the documents: perplexities of all, of every domain. */
typedef struct rolled {
    const cli_variant *variant;
    ssm_document_score *scores;
    ssm_window_score *windows[DENOMINATORS]; /* the scores over each denominator */
    ssm_perplexity (*results)[DENOMINATORS]; /* [n_domains + 1], the last all together */
} rolled;

typedef struct rolling_run {
    cli_eval_state *state;
    ssm_documents documents;
    cli_variant *variants;
    rolled *models;
    int64_t n;
    struct timespec started;
} rolling_run;

static ssm_bootstrap_options bootstrap_of(const rolling_run *run)
{
    return (ssm_bootstrap_options){.resamples = run->state->args->bootstrap,
                                   .seed = (uint64_t)run->state->args->seed};
}

static ssm_interval in_bits(ssm_interval interval)
{
    return (ssm_interval){log2(interval.lo), log2(interval.hi)};
}

/* ---- scoring --------------------------------------------------------------------------------- */

static ssm_status summarise(const rolling_run *run, rolled *model, ssm_error *err)
{
    const int64_t n_domains = run->state->corpus.n_domains;
    const int64_t count = run->documents.count;
    const ssm_bootstrap_options bootstrap = bootstrap_of(run);
    model->results = calloc((size_t)n_domains + 1, sizeof *model->results);
    ssm_status status = model->results == NULL ? cli_no_memory(err) : SSM_STATUS_OK;
    for (int k = 0; k < DENOMINATORS && status == SSM_STATUS_OK; k++) {
        model->windows[k] = calloc((size_t)count + 1, sizeof *model->windows[k]);
        if (model->windows[k] == NULL) {
            return cli_no_memory(err);
        }
        ssm_document_windows(model->scores, count, (ssm_denominator)k, model->windows[k]);
        for (int64_t d = 0; d <= n_domains && status == SSM_STATUS_OK; d++) {
            status = ssm_perplexity_of(model->windows[k], count, n_domains, d == n_domains ? -1 : d,
                                       &bootstrap, &model->results[d][k], err);
        }
    }
    return status;
}

static ssm_status score(rolling_run *run, rolled *model, ssm_error *err)
{
    cli_eval_state *state = run->state;
    ssm_pool *pool = NULL;
    ssm_status status = cli_pool(state->context, &pool, err);
    const ssm_rolling_options options = {.max_length = state->args->max_length,
                                         .prefix_id = state->prefix_id,
                                         .stateful = state->protocol == CLI_PROTOCOL_STATEFUL,
                                         .invalid_utf8 =
                                             (ssm_invalid_utf8)state->args->invalid_utf8,
                                         .exact_chunks = state->args->load.exact_chunks,
                                         .pool = pool,
                                         .progress = cli_progress_start(state->context),
                                         .journal = state->journal,
                                         .series = model->variant->name};
    if (status == SSM_STATUS_OK) {
        const ssm_mask *mask = model->variant->masked ? &model->variant->mask : NULL;
        status = ssm_score_documents(state->source.model, state->source.tokenizer, mask,
                                     &run->documents, &options, &model->scores, err);
    }
    cli_progress_clear(state->context);
    return status == SSM_STATUS_OK ? summarise(run, model, err) : status;
}

static ssm_status difference(const rolling_run *run, const rolled *base, int64_t domain,
                             int denominator, ssm_difference *out, ssm_error *err)
{
    const int64_t n_domains = run->state->corpus.n_domains;
    const ssm_bootstrap_options bootstrap = bootstrap_of(run);
    return ssm_difference_of(base->windows[denominator], run->models[0].windows[denominator],
                             run->documents.count, n_domains, domain == n_domains ? -1 : domain,
                             &bootstrap, out, err);
}

static int64_t documents_of(const rolling_run *run, int64_t domain)
{
    int64_t count = 0;
    for (int64_t i = 0; i < run->documents.count; i++) {
        count += domain == run->state->corpus.n_domains || run->documents.items[i].domain == domain;
    }
    return count;
}

/* ---- for programs ---------------------------------------------------------------------------- */

/* The names of windows (perplexity, nll_sum, tokens) stay, per token; intervals are over
 * documents. */
static void json_domain(cli_json *json, json_t *object, const rolling_run *run, const rolled *model,
                        int64_t domain)
{
    const ssm_perplexity *results = model->results[domain];
    cli_json_real(json, object, "perplexity", results[SSM_PER_TOKEN].perplexity);
    cli_json_real(json, object, "nll_sum", results[SSM_PER_TOKEN].nll_sum);
    cli_json_integer(json, object, "tokens", results[SSM_PER_TOKEN].tokens);
    cli_json_integer(json, object, "words", results[SSM_PER_WORD].tokens);
    cli_json_integer(json, object, "bytes", results[SSM_PER_BYTE].tokens);
    cli_json_integer(json, object, "documents", documents_of(run, domain));
    for (int k = 0; k < DENOMINATORS; k++) {
        char key[64];
        cli_json_real(json, object, names[k], results[k].perplexity);
        snprintf(key, sizeof key, "%s_interval", names[k]);
        cli_json_interval(json, object, key, results[k].interval_window);
    }
    cli_json_real(json, object, "bits_per_byte",
                  results[SSM_PER_BYTE].nll_sum /
                      ((double)results[SSM_PER_BYTE].tokens * log(2.0)));
    cli_json_interval(json, object, "bits_per_byte_interval",
                      in_bits(results[SSM_PER_BYTE].interval_window));
    cli_json_interval(json, object, "interval_window", results[SSM_PER_TOKEN].interval_window);
    cli_json_interval(json, object, "interval_block", results[SSM_PER_TOKEN].interval_block);
}

static void json_model(cli_json *json, json_t *object, const void *context, int64_t i)
{
    const rolling_run *run = context;
    const rolled *model = &run->models[i];
    const ssm_corpus *corpus = &run->state->corpus;
    json_domain(json, object, run, model, corpus->n_domains);
    json_t *domains = cli_json_object(json, object, "domains");
    for (int64_t d = 0; d < corpus->n_domains; d++) {
        json_domain(json, cli_json_object(json, domains, corpus->domains[d].name), run, model, d);
    }
}

static ssm_status json_difference(cli_json *json, json_t *object, const void *context, int64_t i,
                                  ssm_error *err)
{
    const rolling_run *run = context;
    ssm_status status = SSM_STATUS_OK;
    for (int k = 0; k < DENOMINATORS && status == SSM_STATUS_OK; k++) {
        ssm_difference d = {0};
        status = difference(run, &run->models[i], run->state->corpus.n_domains, k, &d, err);
        cli_json_difference(json, k == 0 ? object : cli_json_object(json, object, names[k]), &d);
    }
    return status;
}

static ssm_status print_json(const rolling_run *run, ssm_error *err)
{
    const cli_eval_state *state = run->state;
    cli_json json = cli_json_create(state->context, "eval");
    cli_json_integer(&json, json.root, "seed", state->args->seed);
    cli_json_source(&json, &state->source);
    cli_json_corpus(&json, &state->corpus);
    cli_json_text(&json, json.root, "protocol", state->args->protocol);
    if (state->protocol == CLI_PROTOCOL_ROLLING) {
        cli_json_integer(&json, json.root, "max_length", state->args->max_length);
    }
    cli_json_integer(&json, json.root, "prefix_id", state->prefix_id);
    cli_json_text(&json, json.root, "prefix", state->prefix_source);
    cli_json_text(&json, json.root, "form", state->args->documents == 0 ? "file" : "wikitext");
    cli_json_integer(&json, json.root, "bootstrap", state->args->bootstrap);
    const cli_variant_json put = {run, json_model, json_difference};
    ssm_status status = cli_variants_json(&json, run->variants, run->n, &put, err);
    if (status != SSM_STATUS_OK) {
        cli_json_free(&json);
        return status;
    }
    return cli_json_print(&json, err);
}

/* ---- for people ------------------------------------------------------------------------------ */

static void add_line(cli_table *table, const char *metric, double value, int64_t count,
                     const char *of, ssm_interval interval)
{
    cli_table_cell(table, "%s", metric);
    cli_table_cell(table, "%.4f", value);
    cli_table_interval(table, interval, 4, false);
    cli_table_cell(table, "%lld %s", (long long)count, of);
}

static ssm_status print_model(const rolling_run *run, const rolled *model, ssm_error *err)
{
    static const char *const headings[] = {"metric", "value", "95 % documents", "of", NULL};
    static const char *const units[DENOMINATORS] = {"tokens", "words", "bytes"};
    const ssm_corpus *corpus = &run->state->corpus;
    ssm_status status = SSM_STATUS_OK;
    for (int64_t d = 0; d <= corpus->n_domains && status == SSM_STATUS_OK; d++) {
        if (d == corpus->n_domains && corpus->n_domains == 1) {
            break;
        }
        printf("\n%s, %s, %lld documents\n", model->variant->name,
               d == corpus->n_domains ? "all" : corpus->domains[d].name,
               (long long)documents_of(run, d));
        cli_table table = cli_table_create(headings, "lrrr");
        const ssm_perplexity *results = model->results[d];
        for (int k = 0; k < DENOMINATORS; k++) {
            add_line(&table, names[k], results[k].perplexity, results[k].tokens, units[k],
                     results[k].interval_window);
        }
        const ssm_perplexity *bytes = &results[SSM_PER_BYTE];
        add_line(&table, "bits_per_byte", bytes->nll_sum / ((double)bytes->tokens * log(2.0)),
                 bytes->tokens, "bytes", in_bits(bytes->interval_window));
        status = cli_table_print(&table, stdout, err);
    }
    return status;
}

static ssm_status print_difference(const rolling_run *run, const rolled *base, ssm_error *err)
{
    static const char *const headings[] = {"metric", "difference", "95 % documents", NULL};
    printf("\n%s - %s, the same documents\n", run->models[0].variant->name, base->variant->name);
    cli_table table = cli_table_create(headings, "lrr");
    ssm_status status = SSM_STATUS_OK;
    for (int k = 0; k < DENOMINATORS && status == SSM_STATUS_OK; k++) {
        ssm_difference d = {0};
        status = difference(run, base, run->state->corpus.n_domains, k, &d, err);
        cli_table_cell(&table, "%s", names[k]);
        cli_table_cell(&table, "%+.4f", d.perplexity);
        cli_table_interval(&table, d.interval_window, 4, true);
    }
    ssm_status printed = cli_table_print(&table, stdout, err);
    return status == SSM_STATUS_OK ? printed : status;
}

static ssm_status print_text(const rolling_run *run, ssm_error *err)
{
    const cli_eval_state *state = run->state;
    printf("%s: protocol %s", state->source.argument, state->args->protocol);
    if (state->protocol == CLI_PROTOCOL_ROLLING) {
        printf(", windows of %lld tokens", (long long)state->args->max_length);
    }
    printf(", prefix %s", state->prefix_source);
    if (state->prefix_id >= 0) {
        printf(" (id %d)", (int)state->prefix_id);
    }
    printf("\n");
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; i < run->n && status == SSM_STATUS_OK; i++) {
        status = print_model(run, &run->models[i], err);
        if (i > 0 && status == SSM_STATUS_OK) {
            status = print_difference(run, &run->models[i], err);
        }
    }
    cli_footnote(state->protocol == CLI_PROTOCOL_ROLLING
                     ? "Every token is scored once, in windows that begin from the zero state with "
                       "one token of context. 95 %: percentiles over resampled documents."
                     : "One stream a document, the state carried through: not to be compared with "
                       "rolling windows. 95 %: percentiles over resampled documents.");
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static ssm_status write_harness(const rolling_run *run, ssm_error *err)
{
    const cli_eval_state *state = run->state;
    const ssm_perplexity *all = run->models[0].results[state->corpus.n_domains];
    const ssm_perplexity *bytes = &all[SSM_PER_BYTE];
    const double none = (double)NAN; /* the harness has no standard errors of these */
    const ssm_harness_metric metrics[] = {
        {"word_perplexity", all[SSM_PER_WORD].perplexity, none, false},
        {"byte_perplexity", bytes->perplexity, none, false},
        {"bits_per_byte", bytes->nll_sum / ((double)bytes->tokens * log(2.0)), none, false}};
    ssm_harness_run result = {.task = "wikitext",
                              .dataset = "EleutherAI/wikitext_document_level wikitext-2-raw-v1",
                              .output_type = "loglikelihood_rolling",
                              .version = 2,
                              .metrics = metrics,
                              .n_metrics = sizeof metrics / sizeof *metrics,
                              .items = run->documents.count,
                              .total = run->documents.count};
    return cli_eval_write_harness(state, &result, &run->started, err);
}

static ssm_status run_models(rolling_run *run, ssm_error *err)
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

static void free_run(rolling_run *run)
{
    for (int64_t i = 0; run->models != NULL && i < run->n; i++) {
        ssm_document_scores_free(run->models[i].scores);
        for (int k = 0; k < DENOMINATORS; k++) {
            free(run->models[i].windows[k]);
        }
        free(run->models[i].results);
    }
    free(run->models);
    cli_variants_free(run->variants, run->n);
    ssm_documents_free(&run->documents);
}

ssm_status cli_eval_rolling(cli_eval_state *state, ssm_error *err)
{
    rolling_run run = {.state = state};
    clock_gettime(CLOCK_REALTIME, &run.started);
    ssm_status status = cli_eval_prefix(state, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_documents_open(&state->corpus, (ssm_documents_form)state->args->documents,
                                    &run.documents, err);
    }
    status = status == SSM_STATUS_OK ? cli_eval_journal(state, NULL, err) : status;
    status = status == SSM_STATUS_OK ? run_models(&run, err) : status;
    if (status == SSM_STATUS_OK && state->args->harness_json != NULL) {
        status = write_harness(&run, err);
    }
    if (status == SSM_STATUS_OK) {
        status = state->context->globals.json ? print_json(&run, err) : print_text(&run, err);
    }
    free_run(&run);
    return status;
}
