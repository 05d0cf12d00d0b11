/* evaluate/rolling.c: log-likelihood of whole documents, in windows with one token of context or
 * with the state carried through. */
#include <ssmscope/tasks.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "evaluate/task.h"
#include "evaluate/journal.h"
#include "tokenizer/growable.h"

typedef struct rolling {
    ssm_session *session;
    const ssm_tokenizer *tokenizer;
    const ssm_rolling_options *options;
    ssm_ids ids; /* of a document, after the prefix */
    float *nll;
    int64_t nll_capacity;
} rolling;

/* Σ over ids[from + 1 … end − 1] after ids[from … end − 2], of which the last `scored`. */
static ssm_status score_window(rolling *r, int64_t from, int64_t end, int64_t scored, double *sum,
                               ssm_error *err)
{
    const int64_t count = end - from;
    if (count > r->nll_capacity) {
        float *grown = realloc(r->nll, (size_t)count * sizeof *grown);
        if (!grown) {
            return ssm__fail_memory(err, "log-likelihoods", (size_t)count * sizeof *grown);
        }
        r->nll = grown;
        r->nll_capacity = count;
    }
    ssm_session_reset(r->session);
    SSM__TRY(ssm_session_nll(r->session, r->ids.data + from, count, r->nll, err));
    for (int64_t t = count - 1 - scored; t < count - 1; t++) {
        *sum -= (double)r->nll[t];
    }
    return SSM_STATUS_OK;
}

/* ids[0] is context only: the prefix, or the first token where there is none. Window k predicts the
 * next max_length ids at most, from as many inputs; the last one begins max_length inputs before
 * its end, so that its first predictions have context too. */
static ssm_status score_windows(rolling *r, double *sum, ssm_error *err)
{
    const int64_t total = r->ids.count;
    const int64_t most = r->options->stateful ? total : r->options->max_length;
    for (int64_t done = 1; done < total;) {
        const int64_t scored = total - done < most ? total - done : most;
        const int64_t end = done + scored;
        const int64_t from = end - most - 1 > 0 ? end - most - 1 : 0;
        SSM__TRY(score_window(r, from, end, scored, sum, err));
        done = end;
    }
    return SSM_STATUS_OK;
}

static ssm_status score_document(rolling *r, const ssm_document *document, ssm_document_score *out,
                                 ssm_error *err)
{
    const ssm_encode_options encode = {.invalid_utf8 = r->options->invalid_utf8};
    r->ids.count = 0;
    if (r->options->prefix_id >= 0) {
        SSM__TRY(ssm__ids_push(&r->ids, r->options->prefix_id, err));
    }
    SSM__TRY(ssm_tokenizer_encode(r->tokenizer, document->text, document->text_bytes, &encode,
                                  &r->ids, err));
    out->tokens = r->ids.count > 1 ? r->ids.count - 1 : 0;
    return score_windows(r, &out->log_likelihood, err);
}

/* ---- the journal and the progress ------------------------------------------------------------ */

static ssm_status take_or_score(rolling *r, const ssm_document *document, int64_t i,
                                ssm_document_score *out, ssm_error *err)
{
    *out = (ssm_document_score){
        .domain = document->domain, .words = document->words, .bytes = document->bytes};
    ssm_journal *journal = r->options->journal;
    json_t *line = (json_t *)ssm__journal_find(journal, r->options->series, i);
    if (line) {
        json_int_t tokens = 0;
        if (json_unpack(line, "{s:F, s:I}", "log_likelihood", &out->log_likelihood, "tokens",
                        &tokens) != 0) {
            return ssm__journal_fail(journal, r->options->series, i, err);
        }
        out->tokens = tokens;
        return SSM_STATUS_OK;
    }
    SSM__TRY(score_document(r, document, out, err));
    return journal ? ssm__journal_add(journal, r->options->series, i,
                                      json_pack("{s:f, s:I}", "log_likelihood", out->log_likelihood,
                                                "tokens", (json_int_t)out->tokens),
                                      err)
                   : SSM_STATUS_OK;
}

static ssm_status report(const rolling *r, int64_t done, int64_t count, double sum, int64_t tokens,
                         ssm_error *err)
{
    const ssm_progress *progress = r->options->progress;
    char unit[64];
    snprintf(unit, sizeof unit, "documents, token perplexity %.4g", exp(-sum / (double)tokens));
    if (progress && !progress->report(progress->context, "scoring", done, count, unit)) {
        return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                         "stopped after %lld of %lld documents", (long long)done, (long long)count);
    }
    return SSM_STATUS_OK;
}

static ssm_status score_all(rolling *r, const ssm_documents *documents, ssm_document_score *scores,
                            ssm_error *err)
{
    double sum = 0.0;
    int64_t tokens = 0;
    for (int64_t i = 0; i < documents->count; i++) {
        SSM__TRY(take_or_score(r, &documents->items[i], i, &scores[i], err));
        sum += scores[i].log_likelihood;
        tokens += scores[i].tokens;
        SSM__TRY(report(r, i + 1, documents->count, sum, tokens, err));
    }
    return tokens > 0
               ? SSM_STATUS_OK
               : ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                           "the text has no tokens to score: without a prefix the first token of a "
                           "document is context only; give more text or a --prefix-token");
}

ssm_status ssm_score_documents(const ssm_model *model, const ssm_tokenizer *tokenizer,
                               const ssm_mask *mask, const ssm_documents *documents,
                               const ssm_rolling_options *options, ssm_document_score **scores,
                               ssm_error *err)
{
    *scores = NULL;
    SSM__TRY(ssm__check_context(model, options->max_length, options->prefix_id, err));
    rolling r = {.tokenizer = tokenizer, .options = options};
    const ssm_session_options session = {.pool = options->pool,
                                         .exact_chunks = options->exact_chunks};
    ssm_document_score *result = calloc((size_t)documents->count + 1, sizeof *result);
    ssm_status status = result ? ssm_session_create(model, &session, &r.session, err)
                               : ssm__fail_memory(err, "scores", (size_t)documents->count);
    if (status == SSM_STATUS_OK) {
        status = ssm_session_set_mask(r.session, mask, -1, err);
    }
    status = status == SSM_STATUS_OK ? score_all(&r, documents, result, err) : status;
    ssm_session_free(r.session);
    ssm_ids_free(&r.ids);
    free(r.nll);
    if (status != SSM_STATUS_OK) {
        free(result);
        return status;
    }
    *scores = result;
    return SSM_STATUS_OK;
}

void ssm_document_scores_free(ssm_document_score *scores)
{
    free(scores);
}

void ssm_document_windows(const ssm_document_score *scores, int64_t count,
                          ssm_denominator denominator, ssm_window_score *out)
{
    for (int64_t i = 0; i < count; i++) {
        const ssm_document_score *s = &scores[i];
        const int64_t divisors[] = {s->tokens, s->words, s->bytes};
        out[i] = (ssm_window_score){
            .domain = s->domain, .nll = -s->log_likelihood, .tokens = divisors[denominator]};
    }
}
