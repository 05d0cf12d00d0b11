/* evaluate/windows.c: negative log-likelihood of consecutive windows, each from the zero state. */
#include <ssmscope/evaluate.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "evaluate/journal.h"
#include "evaluate/windows.h"

/* −log p is not below 0, but for the rounding of the sum that p is divided by. */
static const double least_nll = -1e-3; /* a token */

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

static int64_t first_of(int64_t continuation)
{
    return continuation == -1 ? 1 : continuation;
}

int64_t ssm__windows_first(const ssm_score_options *options)
{
    return first_of(options->continuation);
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

/* One pass over the windows, counted in parts. */
typedef struct pass {
    const ssm_corpus *corpus;
    const ssm_score_options *options;
    ssm_score_part *parts;
    int64_t n_parts, total; /* total: windows */
    float *nll;             /* [window] */
} pass;

/* Adds up one window from the part's first token on; token t is scored from position t−1. */
static void add_up(const pass *p, const ssm_score_part *part, ssm_window_score *out)
{
    const int64_t first = first_of(part->continuation);
    out->nll = 0.0;
    out->tokens = p->options->window - first;
    for (int64_t t = first; t < p->options->window; t++) {
        out->nll += (double)p->nll[t - 1];
    }
}

/* *found: the journal has the window. */
static ssm_status take(const pass *p, const ssm_score_part *part, int64_t number, bool *found,
                       ssm_error *err)
{
    json_t *line = (json_t *)ssm__journal_find(p->options->journal, part->series, number);
    json_int_t tokens = 0;
    *found = line != NULL;
    const int64_t expected = p->options->window - first_of(part->continuation);
    if (line && (json_unpack(line, "{s:F, s:I}", "nll", &part->scores[number].nll, "tokens",
                             &tokens) != 0 ||
                 tokens != expected || part->scores[number].nll < least_nll * (double)tokens)) {
        return ssm__journal_fail(p->options->journal, part->series, number, err);
    }
    part->scores[number].tokens = tokens;
    return SSM_STATUS_OK;
}

static ssm_status write_down(const pass *p, const ssm_score_part *part, int64_t number,
                             ssm_error *err)
{
    const ssm_window_score *score = &part->scores[number];
    return p->options->journal ? ssm__journal_add(p->options->journal, part->series, number,
                                                  json_pack("{s:f, s:I}", "nll", score->nll,
                                                            "tokens", (json_int_t)score->tokens),
                                                  err)
                               : SSM_STATUS_OK;
}

/* From the journal where it has the window, else from the model, which runs once for all parts. */
static ssm_status score(const pass *p, ssm_session *session, int64_t domain, const int32_t *ids,
                        int64_t number, ssm_error *err)
{
    bool ran = false;
    for (int64_t i = 0; i < p->n_parts; i++) {
        bool found = false;
        p->parts[i].scores[number].domain = domain;
        SSM__TRY(take(p, &p->parts[i], number, &found, err));
        if (found) {
            continue;
        }
        if (!ran) {
            SSM__TRY(ssm__windows_choose(p->options, domain, ids, session, err));
            ssm_session_reset(session);
            SSM__TRY(ssm_session_nll(session, ids, p->options->window, p->nll, err));
            ran = true;
        }
        add_up(p, &p->parts[i], &p->parts[i].scores[number]);
        SSM__TRY(write_down(p, &p->parts[i], number, err));
    }
    return SSM_STATUS_OK;
}

static ssm_status score_all(const pass *p, ssm_session *session, const int64_t *windows,
                            ssm_error *err)
{
    const ssm_score_options *o = p->options;
    int64_t done = 0;
    for (int64_t d = 0; d < p->corpus->n_domains; d++) {
        for (int64_t w = 0; w < windows[d]; w++, done++) {
            const int32_t *ids = p->corpus->domains[d].ids.data + (o->offset + w) * o->window;
            SSM__TRY(score(p, session, d, ids, done, err));
            SSM__TRY(ssm__windows_report(o, p->parts[0].scores, done + 1, p->total, err));
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status run_session(const pass *p, const ssm_model *model, const ssm_mask *mask,
                              const int64_t *windows, ssm_error *err)
{
    ssm_session *session = NULL;
    const ssm_session_options options = {.pool = p->options->pool,
                                         .exact_chunks = p->options->exact_chunks};
    ssm_status status = ssm_session_create(model, &options, &session, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_session_set_mask(session, p->options->chooser ? NULL : mask, -1, err);
    }
    status = status == SSM_STATUS_OK ? score_all(p, session, windows, err) : status;
    ssm_session_free(session);
    return status;
}

static ssm_status run_parts(pass *p, const ssm_model *model, const ssm_mask *mask, int64_t *windows,
                            ssm_error *err)
{
    const size_t bytes = (size_t)p->options->window * sizeof *p->nll;
    for (int64_t i = 0; i < p->n_parts; i++) {
        ssm_score_options options = *p->options;
        options.continuation = p->parts[i].continuation;
        SSM__TRY(ssm__windows_count(p->corpus, &options, windows, &p->total, err));
        p->parts[i].scores = calloc((size_t)p->total + 1, sizeof *p->parts[i].scores);
        if (!p->parts[i].scores) {
            return ssm__fail_memory(err, "window scores",
                                    (size_t)p->total * sizeof *p->parts[i].scores);
        }
    }
    p->nll = malloc(bytes);
    return p->nll ? run_session(p, model, mask, windows, err)
                  : ssm__fail_memory(err, "window scores", bytes);
}

ssm_status ssm_score_parts(const ssm_model *model, const ssm_corpus *corpus, const ssm_mask *mask,
                           const ssm_score_options *options, ssm_score_part *parts, int64_t n_parts,
                           int64_t *count, ssm_error *err)
{
    pass p = {.corpus = corpus, .options = options, .parts = parts, .n_parts = n_parts};
    int64_t *windows = calloc((size_t)corpus->n_domains + 1, sizeof *windows);
    *count = 0;
    for (int64_t i = 0; i < n_parts; i++) {
        parts[i].scores = NULL;
    }
    const ssm_status status = windows ? run_parts(&p, model, mask, windows, err)
                                      : ssm__fail_memory(err, "window counts", 0);
    free(windows);
    free(p.nll);
    for (int64_t i = 0; i < n_parts && status != SSM_STATUS_OK; i++) {
        free(parts[i].scores);
        parts[i].scores = NULL;
    }
    *count = status == SSM_STATUS_OK ? p.total : 0;
    return status;
}

ssm_status ssm_score_windows(const ssm_model *model, const ssm_corpus *corpus, const ssm_mask *mask,
                             const ssm_score_options *options, ssm_window_score **scores,
                             int64_t *count, ssm_error *err)
{
    ssm_score_part whole = {.continuation = options->continuation, .series = options->series};
    const ssm_status status = ssm_score_parts(model, corpus, mask, options, &whole, 1, count, err);
    *scores = whole.scores;
    return status;
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
