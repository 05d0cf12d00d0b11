/* evaluate/divergence.c: a model and its pruned selves over the same windows, position by position.
 *
 * p and q are the softmax of the unpruned and of a pruned model's logits at a position, KL(p‖q) =
 * Σ p (log p − log q) in float64. All run in pieces of whole tiles (64 tokens), so that every
 * number is the one that a pass over the window gives, only a piece of the unpruned model's logits
 * is kept, and it runs once however many others are compared with it. */
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

typedef struct pass pass;

/* A pruned model. */
typedef struct other {
    const pass *pass;
    ssm_pruned *request;
    ssm_session *session;
    bool finished; /* its line of the window at hand is in the journal */
    /* [window]: of the window at hand, by position */
    double *kl, *change, *nll;
    bool *agrees;
    /* of all windows */
    ssm_window_score *scores, *kl_scores, *agreement_scores;
    double *all_kl;                    /* every scored token */
    double change_sum, change_squares; /* over them */
    int64_t tokens;
} other;

struct pass {
    const ssm_model *model;
    const ssm_score_options *options;
    ssm_session *base;
    int64_t vocab_size, piece; /* tokens of a piece */
    float *logits;             /* [piece][vocab_size] of the unpruned model */
    const int32_t *ids;        /* of the window at hand */
    int64_t at;                /* its piece begins here */
    double *norm, *nll; /* [window]: log Σ exp of the unpruned logits; −log p of the text */
    int64_t *choice;    /* [window]: most probable token */
    ssm_window_score *base_scores;
    other *others;
    int64_t n_others;
};

/* Sums over the scored tokens of a window; tokens of all_kl are written beside. */
typedef struct window_sums {
    double base, pruned, agree, change, change_squares;
} window_sums;

static int64_t argmax(const float *row, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return best;
}

/* Position t predicts token t + 1. */
static bool is_scored(const pass *p, int64_t t)
{
    return t + 1 < p->options->window && t + 1 >= ssm__windows_first(p->options);
}

/* ---- the unpruned model ---------------------------------------------------------------------- */

static void base_task(void *context, int64_t row, int thread)
{
    (void)thread;
    pass *p = context;
    const int64_t t = p->at + row;
    if (is_scored(p, t)) {
        const float *logits = p->logits + row * p->vocab_size;
        p->norm[t] = p->model->kernels->logsumexp(logits, p->vocab_size);
        p->choice[t] = argmax(logits, p->vocab_size);
        /* Through float32, as ssm_session_nll gives it. */
        p->nll[t] = (double)(float)(p->norm[t] - (double)logits[p->ids[t + 1]]);
    }
}

static void keep_rows(void *context, int64_t first, int64_t tokens, const float *logits)
{
    pass *p = context;
    memcpy(p->logits + first * p->vocab_size, logits,
           (size_t)(tokens * p->vocab_size) * sizeof *logits);
}

/* ---- a pruned one ---------------------------------------------------------------------------- */

static void compare_row(other *o, int64_t t, const float *base, const float *pruned)
{
    const pass *p = o->pass;
    const int64_t n = p->vocab_size;
    const double base_norm = p->norm[t];
    const double pruned_norm = p->model->kernels->logsumexp(pruned, n);
    double kl = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double log_p = (double)base[i] - base_norm;
        kl += exp(log_p) * (log_p - ((double)pruned[i] - pruned_norm));
    }
    const int32_t next = p->ids[t + 1];
    const double pruned_log = (double)pruned[next] - pruned_norm;
    o->kl[t] = kl > 0.0 ? (double)(float)kl : 0.0; /* rounding only can make it negative */
    o->agrees[t] = p->choice[t] == argmax(pruned, n);
    o->change[t] = exp(pruned_log) - exp((double)base[next] - base_norm);
    o->nll[t] = (double)(float)-pruned_log;
}

typedef struct rows {
    other *other;
    const float *logits;
    int64_t first; /* row of the piece */
} rows;

static void compare_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const rows *r = context;
    const pass *p = r->other->pass;
    const int64_t t = p->at + r->first + task;
    if (is_scored(p, t)) {
        compare_row(r->other, t, p->logits + (r->first + task) * p->vocab_size,
                    r->logits + task * p->vocab_size);
    }
}

static void compare_rows(void *context, int64_t first, int64_t tokens, const float *logits)
{
    other *o = context;
    rows r = {.other = o, .logits = logits, .first = first};
    ssm__pool_run(o->pass->options->pool, compare_task, &r, tokens);
}

static int64_t scored_tokens(const pass *p)
{
    return p->options->window - ssm__windows_first(p->options);
}

/* Of the window at hand; its KLs go to the end of all_kl. */
static window_sums sum_window(other *o)
{
    window_sums sums = {0};
    const int64_t first = ssm__windows_first(o->pass->options) - 1;
    for (int64_t t = first; t < first + scored_tokens(o->pass); t++) {
        sums.base += o->pass->nll[t];
        sums.pruned += o->nll[t];
        sums.agree += o->agrees[t] ? 1.0 : 0.0;
        sums.change += o->change[t];
        sums.change_squares += o->change[t] * o->change[t];
        o->all_kl[o->tokens + t - first] = o->kl[t];
    }
    return sums;
}

static void add_window(other *o, int64_t window, int64_t domain, const window_sums *sums)
{
    const int64_t tokens = scored_tokens(o->pass);
    double kl = 0.0;
    for (int64_t t = 0; t < tokens; t++) {
        kl += o->all_kl[o->tokens++];
    }
    o->change_sum += sums->change;
    o->change_squares += sums->change_squares;
    o->scores[window] = (ssm_window_score){domain, sums->pruned, tokens};
    o->kl_scores[window] = (ssm_window_score){domain, kl, tokens};
    o->agreement_scores[window] = (ssm_window_score){domain, sums->agree, tokens};
}

/* ---- the journal ----------------------------------------------------------------------------- */

/* NULL: no memory. */
static json_t *to_line(const other *o, const window_sums *sums)
{
    json_t *line = json_pack("{s:f, s:f, s:f, s:f, s:f, s:[]}", "nll", sums->base, "nll_pruned",
                             sums->pruned, "agree", sums->agree, "change", sums->change,
                             "change_squares", sums->change_squares, "kl");
    json_t *kl = json_object_get(line, "kl");
    for (int64_t t = 0; t < scored_tokens(o->pass) && line; t++) {
        json_t *value = json_real(o->all_kl[o->tokens + t]);
        if (!value || json_array_append_new(kl, value) != 0) {
            json_decref(line);
            line = NULL;
        }
    }
    return line;
}

/* False: not the form of to_line. */
static bool from_line(other *o, json_t *line, window_sums *sums)
{
    json_t *kl = json_object_get(line, "kl");
    if (json_array_size(kl) != (size_t)scored_tokens(o->pass) ||
        json_unpack(line, "{s:F, s:F, s:F, s:F, s:F}", "nll", &sums->base, "nll_pruned",
                    &sums->pruned, "agree", &sums->agree, "change", &sums->change, "change_squares",
                    &sums->change_squares) != 0) {
        return false;
    }
    for (int64_t t = 0; t < scored_tokens(o->pass); t++) {
        o->all_kl[o->tokens + t] = json_number_value(json_array_get(kl, (size_t)t));
    }
    return true;
}

/* ---- windows --------------------------------------------------------------------------------- */

/* The unpruned model, and those that have not finished this window. */
static ssm_status run_window(pass *p, ssm_error *err)
{
    int64_t tokens;
    ssm_session_reset(p->base);
    for (p->at = 0; p->at < p->options->window; p->at += tokens) {
        const int64_t left = p->options->window - p->at;
        const int32_t *ids = p->ids + p->at;
        tokens = left < p->piece ? left : p->piece;
        SSM__TRY(ssm_session_forward(p->base, ids, tokens, SSM_LOGITS_ALL, keep_rows, p, err));
        ssm__pool_run(p->options->pool, base_task, p, tokens);
        for (int64_t i = 0; i < p->n_others; i++) {
            other *o = &p->others[i];
            if (!o->finished) {
                SSM__TRY(ssm_session_forward(o->session, ids, tokens, SSM_LOGITS_ALL, compare_rows,
                                             o, err));
            }
        }
    }
    return SSM_STATUS_OK;
}

/* Sets of the window for those that are to run it; *any: there are such. */
static ssm_status begin_window(pass *p, int64_t domain, int64_t number, bool *any, ssm_error *err)
{
    *any = false;
    for (int64_t i = 0; i < p->n_others; i++) {
        other *o = &p->others[i];
        o->finished = ssm__journal_find(p->options->journal, o->request->series, number) != NULL;
        if (!o->finished) {
            ssm_score_options choose = *p->options;
            choose.chooser = o->request->chooser;
            *any = true;
            SSM__TRY(ssm__windows_choose(&choose, domain, p->ids, o->session, err));
            ssm_session_reset(o->session);
        }
    }
    return SSM_STATUS_OK;
}

/* From the journal where it has the window, else of the pass that was just made. A line is written
 * for every model, so that a run that is killed between two of them resumes there. */
static ssm_status take_sums(other *o, int64_t number, window_sums *sums, ssm_error *err)
{
    ssm_journal *journal = o->pass->options->journal;
    const char *series = o->request->series;
    if (o->finished) {
        json_t *line = (json_t *)ssm__journal_find(journal, series, number);
        return from_line(o, line, sums) ? SSM_STATUS_OK
                                        : ssm__journal_fail(journal, series, number, err);
    }
    *sums = sum_window(o);
    return journal ? ssm__journal_add(journal, series, number, to_line(o, sums), err)
                   : SSM_STATUS_OK;
}

static ssm_status run_all(pass *p, const ssm_corpus *corpus, const int64_t *windows, int64_t total,
                          ssm_error *err)
{
    int64_t done = 0;
    const ssm_score_options *o = p->options;
    for (int64_t d = 0; d < corpus->n_domains; d++) {
        for (int64_t w = 0; w < windows[d]; w++, done++) {
            bool any;
            p->ids = corpus->domains[d].ids.data + (o->offset + w) * o->window;
            SSM__TRY(begin_window(p, d, done, &any, err));
            if (any) {
                SSM__TRY(run_window(p, err));
            }
            for (int64_t i = 0; i < p->n_others; i++) {
                window_sums sums;
                SSM__TRY(take_sums(&p->others[i], done, &sums, err));
                add_window(&p->others[i], done, d, &sums);
                p->base_scores[done] = (ssm_window_score){d, sums.base, scored_tokens(p)};
            }
            SSM__TRY(ssm__windows_report(o, p->others[0].scores, done + 1, total, err));
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status summarise(other *o, int64_t n_domains, int64_t count,
                            const ssm_bootstrap_options *bootstrap, ssm_error *err)
{
    ssm_divergence *out = &o->request->divergence;
    SSM__TRY(
        ssm__mean_of(o->kl_scores, count, n_domains, bootstrap, &out->kl, &out->kl_interval, err));
    SSM__TRY(ssm__mean_of(o->agreement_scores, count, n_domains, bootstrap, &out->agreement,
                          &out->agreement_interval, err));
    ssm__sort(o->all_kl, o->tokens);
    for (int i = 0; i < SSM_DIVERGENCE_QUANTILES; i++) {
        out->kl_quantiles[i] = ssm__quantile(o->all_kl, o->tokens, ssm_divergence_level(i));
    }
    out->kl_max = o->all_kl[o->tokens - 1];
    out->probability_change = o->change_sum / (double)o->tokens;
    out->probability_change_rms = sqrt(o->change_squares / (double)o->tokens);
    out->tokens = o->tokens;
    return SSM_STATUS_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static ssm_status create_other(pass *p, other *o, ssm_pruned *request, size_t windows, size_t bytes,
                               ssm_error *err)
{
    const ssm_session_options session = {.pool = p->options->pool,
                                         .exact_chunks = p->options->exact_chunks};
    const size_t window = (size_t)p->options->window;
    o->pass = p;
    o->request = request;
    o->kl = malloc(window * sizeof *o->kl);
    o->change = malloc(window * sizeof *o->change);
    o->nll = malloc(window * sizeof *o->nll);
    o->agrees = malloc(window * sizeof *o->agrees);
    o->scores = calloc(windows, sizeof *o->scores);
    o->kl_scores = calloc(windows, sizeof *o->kl_scores);
    o->agreement_scores = calloc(windows, sizeof *o->agreement_scores);
    o->all_kl = malloc(bytes);
    if (!o->kl || !o->change || !o->nll || !o->agrees || !o->scores || !o->kl_scores ||
        !o->agreement_scores || !o->all_kl) {
        return ssm__fail_memory(err, "divergences", bytes);
    }
    SSM__TRY(ssm_session_create(p->model, &session, &o->session, err));
    return ssm_session_set_mask(o->session, request->chooser ? NULL : request->mask, -1, err);
}

static ssm_status create(pass *p, ssm_pruned *models, int64_t total, ssm_error *err)
{
    const ssm_session_options session = {.pool = p->options->pool,
                                         .exact_chunks = p->options->exact_chunks};
    const size_t window = (size_t)p->options->window;
    size_t bytes;
    if (!ssm__mul_size((size_t)total, window, &bytes) ||
        !ssm__mul_size(bytes, sizeof(double), &bytes)) {
        return ssm__fail_memory(err, "divergences", SIZE_MAX);
    }
    const int64_t fits = PIECE_BYTES / (p->vocab_size * (int64_t)sizeof(float)) / SSM__TILE;
    p->piece = fits < 1 ? SSM__TILE : fits * SSM__TILE;
    p->logits = malloc((size_t)(p->piece * p->vocab_size) * sizeof *p->logits);
    p->norm = malloc(window * sizeof *p->norm);
    p->nll = malloc(window * sizeof *p->nll);
    p->choice = malloc(window * sizeof *p->choice);
    p->base_scores = calloc((size_t)total, sizeof *p->base_scores);
    p->others = calloc((size_t)p->n_others, sizeof *p->others);
    if (!p->logits || !p->norm || !p->nll || !p->choice || !p->base_scores || !p->others) {
        return ssm__fail_memory(err, "divergences", bytes);
    }
    SSM__TRY(ssm_session_create(p->model, &session, &p->base, err));
    for (int64_t i = 0; i < p->n_others; i++) {
        SSM__TRY(create_other(p, &p->others[i], &models[i], (size_t)total, bytes, err));
    }
    return SSM_STATUS_OK;
}

static void release(pass *p)
{
    for (int64_t i = 0; p->others && i < p->n_others; i++) {
        other *o = &p->others[i];
        ssm_session_free(o->session);
        free(o->kl);
        free(o->change);
        free(o->nll);
        free(o->agrees);
        free(o->scores);
        free(o->kl_scores);
        free(o->agreement_scores);
        free(o->all_kl);
    }
    ssm_session_free(p->base);
    free(p->logits);
    free(p->norm);
    free(p->nll);
    free(p->choice);
    free(p->base_scores);
    free(p->others);
}

/* What the caller keeps is taken out of the pass, or all of it stays to be freed. */
static ssm_status finish(pass *p, int64_t n_domains, int64_t total,
                         const ssm_bootstrap_options *bootstrap, ssm_error *err)
{
    for (int64_t i = 0; i < p->n_others; i++) {
        SSM__TRY(summarise(&p->others[i], n_domains, total, bootstrap, err));
    }
    for (int64_t i = 0; i < p->n_others; i++) {
        p->others[i].request->scores = p->others[i].scores;
        p->others[i].scores = NULL;
    }
    return SSM_STATUS_OK;
}

ssm_status ssm_score_divergences(const ssm_model *model, const ssm_corpus *corpus,
                                 ssm_pruned *models, int64_t n_models,
                                 const ssm_score_options *options,
                                 const ssm_bootstrap_options *bootstrap, ssm_window_score **base,
                                 int64_t *count, ssm_error *err)
{
    *base = NULL;
    *count = 0;
    for (int64_t i = 0; i < n_models; i++) {
        models[i].scores = NULL;
        models[i].divergence = (ssm_divergence){0};
    }
    if (n_models < 1) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "divergence: expected a pruned model or more, found %lld",
                         (long long)n_models);
    }
    pass p = {.model = model,
              .options = options,
              .vocab_size = ssm_model_config(model)->vocab_size,
              .n_others = n_models};
    int64_t total = 0;
    int64_t *windows = calloc((size_t)corpus->n_domains + 1, sizeof *windows);
    ssm_status status = windows ? ssm__windows_count(corpus, options, windows, &total, err)
                                : ssm__fail_memory(err, "window counts", 0);
    status = status == SSM_STATUS_OK ? create(&p, models, total, err) : status;
    status = status == SSM_STATUS_OK ? run_all(&p, corpus, windows, total, err) : status;
    status =
        status == SSM_STATUS_OK ? finish(&p, corpus->n_domains, total, bootstrap, err) : status;
    if (status == SSM_STATUS_OK) {
        *base = p.base_scores;
        *count = total;
        p.base_scores = NULL;
    }
    release(&p);
    free(windows);
    return status;
}

ssm_status ssm_score_divergence(const ssm_model *model, const ssm_corpus *corpus,
                                const ssm_mask *mask, const ssm_score_options *options,
                                const ssm_bootstrap_options *bootstrap, ssm_window_score **base,
                                ssm_window_score **pruned, int64_t *count, ssm_divergence *out,
                                ssm_error *err)
{
    ssm_pruned one = {.mask = mask, .chooser = options->chooser, .series = options->series};
    const ssm_status status =
        ssm_score_divergences(model, corpus, &one, 1, options, bootstrap, base, count, err);
    *pruned = one.scores;
    *out = one.divergence;
    return status;
}
