/* evaluate/windows.c: negative log-likelihood of consecutive windows, each from the zero state. */
#include <ssmscope/evaluate.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "evaluate/journal.h"
#include "evaluate/windows.h"

/* Windows of a domain that `options` asks for; error when there are not that many. */
static ssm_status window_count(const ssm_domain *domain, const ssm_score_options *o, int64_t *out,
                               ssm_error *err)
{
    const int64_t whole = domain->ids.count / o->window - o->offset;
    const int64_t wanted = o->windows > 0 ? o->windows : whole;
    if (wanted < 1 || wanted > whole) {
        return ssm__fail(
            err, SSM_STATUS_USAGE, SSM__NOWHERE,
            "domain %s has %lld tokens: %lld windows of %lld after the first %lld, %lld "
            "are wanted; give more text, fewer windows or a shorter --window",
            domain->name, (long long)domain->ids.count, (long long)(whole > 0 ? whole : 0),
            (long long)o->window, (long long)o->offset,
            (long long)(o->windows > 0 ? o->windows : 1));
    }
    *out = wanted;
    return SSM_STATUS_OK;
}

static ssm_status check_options(const ssm_score_options *o, ssm_error *err)
{
    if (o->window < 2) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "a window of %lld tokens scores nothing; it needs at least 2",
                         (long long)o->window);
    }
    if (o->offset < 0 || o->windows < 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "offset %lld and windows %lld must not be negative", (long long)o->offset,
                         (long long)o->windows);
    }
    if (o->continuation != -1 && (o->continuation < 1 || o->continuation >= o->window)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "continuation:%lld does not lie inside a window of %lld tokens (1 … %lld)",
                         (long long)o->continuation, (long long)o->window,
                         (long long)o->window - 1);
    }
    return SSM_STATUS_OK;
}

int64_t ssm__windows_first(const ssm_score_options *options)
{
    return options->continuation == -1 ? 1 : options->continuation;
}

ssm_status ssm__windows_count(const ssm_corpus *corpus, const ssm_score_options *options,
                              int64_t *windows, int64_t *total, ssm_error *err)
{
    *total = 0;
    SSM__TRY(check_options(options, err));
    for (int64_t d = 0; d < corpus->n_domains; d++) {
        SSM__TRY(window_count(&corpus->domains[d], options, &windows[d], err));
        *total += windows[d];
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__windows_report(const ssm_score_options *options, const ssm_window_score *scores,
                               int64_t done, int64_t total, ssm_error *err)
{
    const ssm_progress *progress = options->progress;
    if (!progress) {
        return SSM_STATUS_OK;
    }
    double nll = 0.0;
    double tokens = 0.0;
    for (int64_t i = 0; i < done; i++) {
        nll += scores[i].nll;
        tokens += (double)scores[i].tokens;
    }
    char unit[64];
    snprintf(unit, sizeof unit, "windows, perplexity %.4g", exp(nll / tokens));
    if (!progress->report(progress->context, "scoring", done, total, unit)) {
        return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                         "stopped after %lld of %lld windows", (long long)done, (long long)total);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__windows_choose(const ssm_score_options *options, int64_t domain, const int32_t *ids,
                               ssm_session *session, ssm_error *err)
{
    const ssm_chooser *chooser = options->chooser;
    const ssm_mask *mask = NULL;
    if (!chooser) {
        return SSM_STATUS_OK;
    }
    SSM__TRY(chooser->choose(chooser->context, domain, ids, options->window, &mask, err));
    ssm_session_reset(session); /* the window before had states of other modes */
    return ssm_session_set_mask(session, mask, -1, err);
}

/* Scores one window; token t is scored from position t−1. */
static ssm_status score(ssm_session *session, const int32_t *ids, const ssm_score_options *o,
                        float *nll, ssm_window_score *out, ssm_error *err)
{
    ssm_session_reset(session);
    SSM__TRY(ssm_session_nll(session, ids, o->window, nll, err));
    const int64_t first = ssm__windows_first(o);
    out->nll = 0.0;
    out->tokens = o->window - first;
    for (int64_t t = first; t < o->window; t++) {
        out->nll += (double)nll[t - 1];
    }
    return SSM_STATUS_OK;
}

/* From the journal where it has the window, else from the model. */
static ssm_status take_or_score(ssm_session *session, const int32_t *ids,
                                const ssm_score_options *o, int64_t number, float *nll,
                                ssm_window_score *out, ssm_error *err)
{
    json_t *line = (json_t *)ssm__journal_find(o->journal, o->series, number);
    if (line) {
        json_int_t tokens = 0;
        if (json_unpack(line, "{s:F, s:I}", "nll", &out->nll, "tokens", &tokens) != 0) {
            return ssm__journal_fail(o->journal, o->series, number, err);
        }
        out->tokens = tokens;
        return SSM_STATUS_OK;
    }
    SSM__TRY(ssm__windows_choose(o, out->domain, ids, session, err));
    SSM__TRY(score(session, ids, o, nll, out, err));
    return o->journal ? ssm__journal_add(o->journal, o->series, number,
                                         json_pack("{s:f, s:I}", "nll", out->nll, "tokens",
                                                   (json_int_t)out->tokens),
                                         err)
                      : SSM_STATUS_OK;
}

static ssm_status score_all(ssm_session *session, const ssm_corpus *corpus,
                            const ssm_score_options *o, const int64_t *windows,
                            ssm_window_score *scores, int64_t count, float *nll, ssm_error *err)
{
    int64_t done = 0;
    for (int64_t d = 0; d < corpus->n_domains; d++) {
        for (int64_t w = 0; w < windows[d]; w++, done++) {
            const int32_t *ids = corpus->domains[d].ids.data + (o->offset + w) * o->window;
            scores[done].domain = d;
            SSM__TRY(take_or_score(session, ids, o, done, nll, &scores[done], err));
            SSM__TRY(ssm__windows_report(o, scores, done + 1, count, err));
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status score_windows(const ssm_model *model, const ssm_corpus *corpus,
                                const ssm_mask *mask, const ssm_score_options *options,
                                const int64_t *windows, ssm_window_score *scores, int64_t total,
                                ssm_error *err)
{
    float *nll = malloc((size_t)options->window * sizeof *nll);
    if (!nll) {
        return ssm__fail_memory(err, "window scores", (size_t)options->window * sizeof *nll);
    }
    ssm_session *session = NULL;
    const ssm_session_options session_options = {.pool = options->pool,
                                                 .exact_chunks = options->exact_chunks};
    ssm_status status = ssm_session_create(model, &session_options, &session, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_session_set_mask(session, options->chooser ? NULL : mask, -1, err);
    }
    if (status == SSM_STATUS_OK) {
        status = score_all(session, corpus, options, windows, scores, total, nll, err);
    }
    ssm_session_free(session);
    free(nll);
    return status;
}

ssm_status ssm_score_windows(const ssm_model *model, const ssm_corpus *corpus, const ssm_mask *mask,
                             const ssm_score_options *options, ssm_window_score **scores,
                             int64_t *count, ssm_error *err)
{
    *scores = NULL;
    *count = 0;
    int64_t total = 0;
    int64_t *windows = calloc((size_t)corpus->n_domains + 1, sizeof *windows);
    ssm_window_score *result = NULL;
    ssm_status status = windows ? ssm__windows_count(corpus, options, windows, &total, err)
                                : ssm__fail_memory(err, "window counts", 0);
    if (status == SSM_STATUS_OK) {
        result = calloc((size_t)total + 1, sizeof *result);
        status = result ? score_windows(model, corpus, mask, options, windows, result, total, err)
                        : ssm__fail_memory(err, "window scores", (size_t)total * sizeof *result);
    }
    free(windows);
    if (status != SSM_STATUS_OK) {
        free(result);
        return status;
    }
    *scores = result;
    *count = total;
    return SSM_STATUS_OK;
}

ssm_status ssm_score_count(const ssm_corpus *corpus, const ssm_score_options *options,
                           int64_t *count, ssm_error *err)
{
    int64_t *windows = calloc((size_t)corpus->n_domains + 1, sizeof *windows);
    const ssm_status status = windows ? ssm__windows_count(corpus, options, windows, count, err)
                                      : ssm__fail_memory(err, "window counts", 0);
    free(windows);
    return status;
}

void ssm_scores_free(ssm_window_score *scores)
{
    free(scores);
}
