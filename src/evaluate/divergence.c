/* evaluate/divergence.c: a model and its pruned self over the same windows, position by position.
 *
 * p and q are the softmax of both models' logits at a position, KL(p‖q) = Σ p (log p − log q) in
 * float64. Both run in pieces of whole tiles (64 tokens), so that every number is the one that a
 * pass over the window gives, and only a piece of the unpruned model's logits is kept. */
#include <ssmscope/evaluate.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/pool.h"
#include "base/quantile.h"
#include "evaluate/journal.h"
#include "evaluate/windows.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "model/session.h"

enum { PIECE_BYTES = 32 << 20 };

double ssm_divergence_level(int i)
{
    static const double levels[SSM_DIVERGENCE_QUANTILES] = {0.01, 0.05, 0.1,  0.25, 0.5,
                                                            0.75, 0.9,  0.95, 0.99};
    return levels[i];
}

typedef struct pass {
    const ssm_model *model;
    const ssm_score_options *options;
    ssm_session *base, *pruned;
    int64_t vocab_size, piece; /* tokens of a piece */
    float *logits;             /* [piece][vocab_size] of the unpruned model */
    const int32_t *ids;        /* of the window at hand */
    int64_t at;                /* its piece begins here */
    /* [window]: of the window at hand, by position of the scored token */
    double *kl, *change;
    bool *agrees;
    double *base_nll, *pruned_nll;
    /* of all windows */
    ssm_window_score *base_scores, *pruned_scores, *kl_scores, *agreement_scores;
    double *all_kl;                    /* every scored token */
    double change_sum, change_squares; /* over them */
    int64_t tokens;
} pass;

/* Sums over the scored tokens of a window; tokens of all_kl are written beside. */
typedef struct window_sums {
    double base, pruned, agree, change, change_squares;
} window_sums;

static void keep_rows(void *context, int64_t first, int64_t tokens, const float *logits)
{
    pass *p = context;
    memcpy(p->logits + first * p->vocab_size, logits,
           (size_t)(tokens * p->vocab_size) * sizeof *logits);
}

static int64_t argmax(const float *row, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return best;
}

/* Position t of the window: both rows predict token t + 1. */
static void compare_row(pass *p, int64_t t, const float *base, const float *pruned)
{
    const int64_t n = p->vocab_size;
    const double base_norm = p->model->kernels->logsumexp(base, n);
    const double pruned_norm = p->model->kernels->logsumexp(pruned, n);
    double kl = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double log_p = (double)base[i] - base_norm;
        kl += exp(log_p) * (log_p - ((double)pruned[i] - pruned_norm));
    }
    const int32_t next = p->ids[t + 1];
    const double base_log = (double)base[next] - base_norm;
    const double pruned_log = (double)pruned[next] - pruned_norm;
    p->kl[t] = kl > 0.0 ? (double)(float)kl : 0.0; /* rounding only can make it negative */
    p->agrees[t] = argmax(base, n) == argmax(pruned, n);
    p->change[t] = exp(pruned_log) - exp(base_log);
    /* Through float32, as ssm_session_nll gives them. */
    p->base_nll[t] = (double)(float)-base_log;
    p->pruned_nll[t] = (double)(float)-pruned_log;
}

typedef struct rows {
    pass *pass;
    const float *logits;
    int64_t first, begin; /* row of the piece; first position that is scored */
} rows;

static void compare_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const rows *r = context;
    pass *p = r->pass;
    const int64_t t = p->at + r->first + task;
    if (t + 1 < p->options->window && t >= r->begin) {
        compare_row(p, t, p->logits + (r->first + task) * p->vocab_size,
                    r->logits + task * p->vocab_size);
    }
}

static void compare_rows(void *context, int64_t first, int64_t tokens, const float *logits)
{
    pass *p = context;
    rows r = {
        .pass = p, .logits = logits, .first = first, .begin = ssm__windows_first(p->options) - 1};
    ssm__pool_run(p->options->pool, compare_task, &r, tokens);
}

static int64_t scored_tokens(const pass *p)
{
    return p->options->window - ssm__windows_first(p->options);
}

/* Of the window at hand; its KLs go to the end of all_kl. */
static window_sums sum_window(pass *p)
{
    window_sums sums = {0};
    const int64_t first = ssm__windows_first(p->options) - 1;
    for (int64_t t = first; t < first + scored_tokens(p); t++) {
        sums.base += p->base_nll[t];
        sums.pruned += p->pruned_nll[t];
        sums.agree += p->agrees[t] ? 1.0 : 0.0;
        sums.change += p->change[t];
        sums.change_squares += p->change[t] * p->change[t];
        p->all_kl[p->tokens + t - first] = p->kl[t];
    }
    return sums;
}

static void add_window(pass *p, int64_t window, int64_t domain, const window_sums *sums)
{
    const int64_t tokens = scored_tokens(p);
    double kl = 0.0;
    for (int64_t t = 0; t < tokens; t++) {
        kl += p->all_kl[p->tokens++];
    }
    p->change_sum += sums->change;
    p->change_squares += sums->change_squares;
    p->base_scores[window] = (ssm_window_score){domain, sums->base, tokens};
    p->pruned_scores[window] = (ssm_window_score){domain, sums->pruned, tokens};
    p->kl_scores[window] = (ssm_window_score){domain, kl, tokens};
    p->agreement_scores[window] = (ssm_window_score){domain, sums->agree, tokens};
}

/* ---- the journal ----------------------------------------------------------------------------- */

/* NULL: no memory. */
static json_t *to_line(const pass *p, const window_sums *sums)
{
    json_t *line = json_pack("{s:f, s:f, s:f, s:f, s:f, s:[]}", "nll", sums->base, "nll_pruned",
                             sums->pruned, "agree", sums->agree, "change", sums->change,
                             "change_squares", sums->change_squares, "kl");
    json_t *kl = json_object_get(line, "kl");
    for (int64_t t = 0; t < scored_tokens(p) && line; t++) {
        json_t *value = json_real(p->all_kl[p->tokens + t]);
        if (!value || json_array_append_new(kl, value) != 0) {
            json_decref(line);
            line = NULL;
        }
    }
    return line;
}

/* False: not the form of to_line. */
static bool from_line(pass *p, json_t *line, window_sums *sums)
{
    json_t *kl = json_object_get(line, "kl");
    if (json_array_size(kl) != (size_t)scored_tokens(p) ||
        json_unpack(line, "{s:F, s:F, s:F, s:F, s:F}", "nll", &sums->base, "nll_pruned",
                    &sums->pruned, "agree", &sums->agree, "change", &sums->change, "change_squares",
                    &sums->change_squares) != 0) {
        return false;
    }
    for (int64_t t = 0; t < scored_tokens(p); t++) {
        p->all_kl[p->tokens + t] = json_number_value(json_array_get(kl, (size_t)t));
    }
    return true;
}

/* ---- windows --------------------------------------------------------------------------------- */

static ssm_status run_window(pass *p, const int32_t *ids, ssm_error *err)
{
    p->ids = ids;
    ssm_session_reset(p->base);
    ssm_session_reset(p->pruned);
    int64_t tokens;
    for (p->at = 0; p->at < p->options->window; p->at += tokens) {
        const int64_t left = p->options->window - p->at;
        tokens = left < p->piece ? left : p->piece;
        SSM__TRY(
            ssm_session_forward(p->base, ids + p->at, tokens, SSM_LOGITS_ALL, keep_rows, p, err));
        SSM__TRY(ssm_session_forward(p->pruned, ids + p->at, tokens, SSM_LOGITS_ALL, compare_rows,
                                     p, err));
    }
    return SSM_STATUS_OK;
}

/* From the journal where it has the window, else from the models. */
static ssm_status take_or_run(pass *p, int64_t domain, const int32_t *ids, int64_t number,
                              window_sums *sums, ssm_error *err)
{
    const ssm_score_options *o = p->options;
    json_t *line = (json_t *)ssm__journal_find(o->journal, o->series, number);
    if (line) {
        return from_line(p, line, sums) ? SSM_STATUS_OK
                                        : ssm__journal_fail(o->journal, o->series, number, err);
    }
    SSM__TRY(ssm__windows_choose(o, domain, ids, p->pruned, err));
    SSM__TRY(run_window(p, ids, err));
    *sums = sum_window(p);
    return o->journal ? ssm__journal_add(o->journal, o->series, number, to_line(p, sums), err)
                      : SSM_STATUS_OK;
}

static ssm_status run_all(pass *p, const ssm_corpus *corpus, const int64_t *windows, int64_t total,
                          ssm_error *err)
{
    int64_t done = 0;
    const ssm_score_options *o = p->options;
    for (int64_t d = 0; d < corpus->n_domains; d++) {
        for (int64_t w = 0; w < windows[d]; w++, done++) {
            window_sums sums;
            const int32_t *ids = corpus->domains[d].ids.data + (o->offset + w) * o->window;
            SSM__TRY(take_or_run(p, d, ids, done, &sums, err));
            add_window(p, done, d, &sums);
            SSM__TRY(ssm__windows_report(o, p->pruned_scores, done + 1, total, err));
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status summarise(pass *p, int64_t n_domains, int64_t count,
                            const ssm_bootstrap_options *bootstrap, ssm_divergence *out,
                            ssm_error *err)
{
    SSM__TRY(
        ssm__mean_of(p->kl_scores, count, n_domains, bootstrap, &out->kl, &out->kl_interval, err));
    SSM__TRY(ssm__mean_of(p->agreement_scores, count, n_domains, bootstrap, &out->agreement,
                          &out->agreement_interval, err));
    ssm__sort(p->all_kl, p->tokens);
    for (int i = 0; i < SSM_DIVERGENCE_QUANTILES; i++) {
        out->kl_quantiles[i] = ssm__quantile(p->all_kl, p->tokens, ssm_divergence_level(i));
    }
    out->kl_max = p->all_kl[p->tokens - 1];
    out->probability_change = p->change_sum / (double)p->tokens;
    out->probability_change_rms = sqrt(p->change_squares / (double)p->tokens);
    out->tokens = p->tokens;
    return SSM_STATUS_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static ssm_status allocate(pass *p, int64_t total, ssm_error *err)
{
    const size_t window = (size_t)p->options->window;
    const size_t n = (size_t)total;
    size_t tokens;
    if (!ssm__mul_size(n, window, &tokens) || !ssm__mul_size(tokens, sizeof(double), &tokens)) {
        return ssm__fail_memory(err, "divergences", SIZE_MAX);
    }
    const int64_t fits = PIECE_BYTES / (p->vocab_size * (int64_t)sizeof(float)) / SSM__TILE;
    p->piece = fits < 1 ? SSM__TILE : fits * SSM__TILE;
    p->logits = malloc((size_t)(p->piece * p->vocab_size) * sizeof *p->logits);
    p->kl = malloc(window * sizeof *p->kl);
    p->change = malloc(window * sizeof *p->change);
    p->agrees = malloc(window * sizeof *p->agrees);
    p->base_nll = malloc(window * sizeof *p->base_nll);
    p->pruned_nll = malloc(window * sizeof *p->pruned_nll);
    p->base_scores = calloc(n, sizeof *p->base_scores);
    p->pruned_scores = calloc(n, sizeof *p->pruned_scores);
    p->kl_scores = calloc(n, sizeof *p->kl_scores);
    p->agreement_scores = calloc(n, sizeof *p->agreement_scores);
    p->all_kl = malloc(tokens);
    return p->logits && p->kl && p->change && p->agrees && p->base_nll && p->pruned_nll &&
                   p->base_scores && p->pruned_scores && p->kl_scores && p->agreement_scores &&
                   p->all_kl
               ? SSM_STATUS_OK
               : ssm__fail_memory(err, "divergences", tokens);
}

static void release(pass *p)
{
    ssm_session_free(p->base);
    ssm_session_free(p->pruned);
    free(p->logits);
    free(p->kl);
    free(p->change);
    free(p->agrees);
    free(p->base_nll);
    free(p->pruned_nll);
    free(p->base_scores);
    free(p->pruned_scores);
    free(p->kl_scores);
    free(p->agreement_scores);
    free(p->all_kl);
}

ssm_status ssm_score_divergence(const ssm_model *model, const ssm_corpus *corpus,
                                const ssm_mask *mask, const ssm_score_options *options,
                                const ssm_bootstrap_options *bootstrap, ssm_window_score **base,
                                ssm_window_score **pruned, int64_t *count, ssm_divergence *out,
                                ssm_error *err)
{
    *base = NULL;
    *pruned = NULL;
    *count = 0;
    *out = (ssm_divergence){0};
    pass p = {
        .model = model, .options = options, .vocab_size = ssm_model_config(model)->vocab_size};
    const ssm_session_options session = {.pool = options->pool,
                                         .exact_chunks = options->exact_chunks};
    int64_t total = 0;
    int64_t *windows = calloc((size_t)corpus->n_domains + 1, sizeof *windows);
    ssm_status status = windows ? ssm__windows_count(corpus, options, windows, &total, err)
                                : ssm__fail_memory(err, "window counts", 0);
    status = status == SSM_STATUS_OK ? allocate(&p, total, err) : status;
    status = status == SSM_STATUS_OK ? ssm_session_create(model, &session, &p.base, err) : status;
    status = status == SSM_STATUS_OK ? ssm_session_create(model, &session, &p.pruned, err) : status;
    status = status == SSM_STATUS_OK
                 ? ssm_session_set_mask(p.pruned, options->chooser ? NULL : mask, -1, err)
                 : status;
    status = status == SSM_STATUS_OK ? run_all(&p, corpus, windows, total, err) : status;
    if (status == SSM_STATUS_OK) {
        status = summarise(&p, corpus->n_domains, total, bootstrap, out, err);
    }
    if (status == SSM_STATUS_OK) {
        *base = p.base_scores;
        *pruned = p.pruned_scores;
        *count = total;
        p.base_scores = NULL;
        p.pruned_scores = NULL;
    }
    release(&p);
    free(windows);
    return status;
}
