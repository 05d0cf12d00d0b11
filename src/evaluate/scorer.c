/* evaluate/scorer.c: log-likelihoods of continuations after a context.
 *
 * An input is context and continuation without its last id; the row of logits at position t scores
 * id t + 1. Every input is run in two pieces, the context and the rest, with the state saved in
 * between: continuations of one context then share the first piece, and one continuation alone is
 * cut in the same place, so that its bits are the same. */
#include <ssmscope/tasks.h>

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "evaluate/task.h"
#include "evaluate/python_text.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "tokenizer/growable.h"

struct ssm_scorer {
    const ssm_model *model;
    const ssm_tokenizer *tokenizer;
    ssm_scorer_options options;
    ssm_session *session;
    ssm_ids context; /* ids of the context alone */
    ssm_ids whole;   /* of context and continuation */
    ssm_ids ran;     /* the context that the saved state is of */
    ssm_text joined;
    void *state; /* after it */
    size_t state_bytes, state_capacity;
    float *last; /* [vocab_size] logits at its last position */
    bool saved;
};

void ssm_scorer_free(ssm_scorer *scorer)
{
    if (scorer) {
        ssm_session_free(scorer->session);
        ssm_ids_free(&scorer->context);
        ssm_ids_free(&scorer->whole);
        ssm_ids_free(&scorer->ran);
        ssm_text_free(&scorer->joined);
        free(scorer->state);
        free(scorer->last);
        free(scorer);
    }
}

ssm_status ssm__check_context(const ssm_model *model, int64_t max_length, int32_t prefix_id,
                              ssm_error *err)
{
    const int64_t rows = ssm_model_config(model)->vocab_size;
    if (max_length < 1 || prefix_id < -1 || prefix_id >= rows) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "expected a largest length of 1 or more and a prefix id below %lld, found "
                         "%lld and %d",
                         (long long)rows, (long long)max_length, (int)prefix_id);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm_scorer_create(const ssm_model *model, const ssm_tokenizer *tokenizer,
                             const ssm_mask *mask, const ssm_scorer_options *options,
                             ssm_scorer **out, ssm_error *err)
{
    *out = NULL;
    const int64_t rows = ssm_model_config(model)->vocab_size;
    SSM__TRY(ssm__check_context(model, options->max_length, options->prefix_id, err));
    ssm_scorer *scorer = calloc(1, sizeof *scorer);
    if (!scorer) {
        return ssm__fail_memory(err, "a scorer", sizeof *scorer);
    }
    *scorer = (ssm_scorer){.model = model, .tokenizer = tokenizer, .options = *options};
    const ssm_session_options session = {.pool = options->pool,
                                         .exact_chunks = options->exact_chunks};
    scorer->last = malloc((size_t)rows * sizeof *scorer->last);
    ssm_status status = scorer->last
                            ? SSM_STATUS_OK
                            : ssm__fail_memory(err, "logits", (size_t)rows * sizeof(float));
    if (status == SSM_STATUS_OK) {
        status = ssm_session_create(model, &session, &scorer->session, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm_session_set_mask(scorer->session, options->chooser ? NULL : mask, -1, err);
    }
    if (status != SSM_STATUS_OK) {
        ssm_scorer_free(scorer);
        return status;
    }
    *out = scorer;
    return SSM_STATUS_OK;
}

/* ---- rows of logits -------------------------------------------------------------------------- */

typedef struct row_sum {
    const ssm_model *model;
    const int32_t *targets; /* of row 0 of the call */
    ssm_continuation_score *out;
} row_sum;

static void add_row(const row_sum *sum, const float *row, int32_t target)
{
    const int64_t rows = ssm_model_config(sum->model)->vocab_size;
    sum->out->log_likelihood += (double)row[target] - sum->model->kernels->logsumexp(row, rows);
    sum->out->tokens++;
    for (int64_t i = 0; i < rows && sum->out->greedy; i++) {
        /* The first of equal maxima is the model's choice. */
        sum->out->greedy = row[i] < row[target] || (row[i] == row[target] && i >= target);
    }
}

static void add_rows(void *context, int64_t first, int64_t tokens, const float *logits)
{
    const row_sum *sum = context;
    const int64_t rows = ssm_model_config(sum->model)->vocab_size;
    for (int64_t t = 0; t < tokens; t++) {
        add_row(sum, logits + t * rows, sum->targets[first + t]);
    }
}

static void keep_row(void *context, int64_t first, int64_t tokens, const float *logits)
{
    (void)first;
    ssm_scorer *scorer = context;
    const size_t rows = (size_t)ssm_model_config(scorer->model)->vocab_size;
    memcpy(scorer->last, logits + ((size_t)tokens - 1) * rows, rows * sizeof *logits);
}

/* ---- one input ------------------------------------------------------------------------------- */

static ssm_status save_state(ssm_scorer *scorer, ssm_error *err)
{
    scorer->state_bytes = ssm_session_state_size(scorer->session);
    if (scorer->state_bytes > scorer->state_capacity) {
        free(scorer->state);
        scorer->state_capacity = 0;
        scorer->state = malloc(scorer->state_bytes);
        if (!scorer->state) {
            return ssm__fail_memory(err, "the state after a context", scorer->state_bytes);
        }
        scorer->state_capacity = scorer->state_bytes;
    }
    ssm_session_save(scorer->session, scorer->state);
    return SSM_STATUS_OK;
}

/* Runs `count` ≥ 1 ids from the zero state, unless the saved state is the one after them. */
static ssm_status run_context(ssm_scorer *scorer, const int32_t *ids, int64_t count, ssm_error *err)
{
    if (scorer->saved && scorer->ran.count == count &&
        memcmp(scorer->ran.data, ids, (size_t)count * sizeof *ids) == 0) {
        return ssm_session_restore(scorer->session, scorer->state, scorer->state_bytes, err);
    }
    scorer->saved = false;
    ssm_session_reset(scorer->session);
    SSM__TRY(
        ssm_session_forward(scorer->session, ids, count, SSM_LOGITS_LAST, keep_row, scorer, err));
    SSM__TRY(save_state(scorer, err));
    scorer->ran.count = 0;
    SSM__TRY(ssm__ids_append(&scorer->ran, ids, count, err));
    scorer->saved = true;
    return SSM_STATUS_OK;
}

/* The mask of an input is the chooser's, where there is one: no state of another input holds. */
static ssm_status choose(ssm_scorer *scorer, const int32_t *ids, int64_t count, ssm_error *err)
{
    const ssm_chooser *chooser = scorer->options.chooser;
    const ssm_mask *mask = NULL;
    if (!chooser) {
        return SSM_STATUS_OK;
    }
    scorer->saved = false;
    SSM__TRY(chooser->choose(chooser->context, -1, ids, count, &mask, err));
    ssm_session_reset(scorer->session); /* the input before had states of other modes */
    return ssm_session_set_mask(scorer->session, mask, -1, err);
}

/* ids: context, then `scored` ids to score. */
static ssm_status score_ids(ssm_scorer *scorer, const int32_t *ids, int64_t count, int64_t scored,
                            ssm_continuation_score *out, ssm_error *err)
{
    *out = (ssm_continuation_score){.greedy = true};
    const int64_t most = scorer->options.max_length;
    if (scored < 1) {
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                         "the continuation has no tokens of its own: nothing can be scored");
    }
    if (scored > most) {
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                         "the continuation has %lld tokens and an input at most %lld; raise "
                         "--max-length",
                         (long long)scored, (long long)most);
    }
    if (count > most + 1) {
        out->truncated = count - (most + 1);
        ids += out->truncated;
        count = most + 1;
    }
    const int64_t context = count - scored;
    SSM__TRY(choose(scorer, ids, count - 1, err));
    SSM__TRY(run_context(scorer, ids, context, err));
    row_sum sum = {.model = scorer->model, .targets = ids + context + 1, .out = out};
    add_row(&sum, scorer->last, ids[context]);
    return ssm_session_forward(scorer->session, ids + context, scored - 1, SSM_LOGITS_ALL, add_rows,
                               &sum, err);
}

/* ---- ids of a pair --------------------------------------------------------------------------- */

static ssm_status encode(const ssm_scorer *scorer, const char *text, size_t bytes, ssm_ids *ids,
                         ssm_error *err)
{
    const ssm_encode_options options = {.invalid_utf8 = SSM_INVALID_UTF8_ERROR};
    ids->count = 0;
    return ssm_tokenizer_encode(scorer->tokenizer, text, bytes, &options, ids, err);
}

/* No context: the prefix stands for it, unless the continuation begins with that very id, whose
 * first id then is the context and is not scored. */
static ssm_status score_alone(ssm_scorer *scorer, ssm_continuation_score *out, ssm_error *err)
{
    const int32_t prefix = scorer->options.prefix_id;
    ssm_ids *whole = &scorer->whole;
    if (whole->count > 0 && whole->data[0] == prefix) {
        return score_ids(scorer, whole->data, whole->count, whole->count - 1, out, err);
    }
    if (prefix < 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "there is no context, and no token to stand for it; give --prefix-token");
    }
    SSM__TRY(ssm__ids_reserve(whole, 1, err));
    memmove(whole->data + 1, whole->data, (size_t)whole->count * sizeof *whole->data);
    whole->data[0] = prefix;
    whole->count++;
    return score_ids(scorer, whole->data, whole->count, whole->count - 1, out, err);
}

static ssm_status score_one(ssm_scorer *scorer, const char *context, size_t context_bytes,
                            const char *continuation, ssm_continuation_score *out, ssm_error *err)
{
    scorer->joined.bytes = 0;
    SSM__TRY(ssm__text_join(&scorer->joined, err, context, continuation, NULL));
    SSM__TRY(encode(scorer, scorer->joined.data, scorer->joined.bytes, &scorer->whole, err));
    if (context_bytes == 0) {
        return score_alone(scorer, out, err);
    }
    /* The context's ids stand even where the whole begins with others. */
    const int64_t cut = scorer->context.count;
    ssm_ids *whole = &scorer->whole;
    if (whole->count <= cut || cut == 0) {
        *out = (ssm_continuation_score){0};
        return cut == 0 ? score_alone(scorer, out, err)
                        : score_ids(scorer, whole->data, whole->count, 0, out, err);
    }
    memcpy(whole->data, scorer->context.data, (size_t)cut * sizeof *whole->data);
    return score_ids(scorer, whole->data, whole->count, whole->count - cut, out, err);
}

ssm_status ssm_scorer_score(ssm_scorer *scorer, const char *context,
                            const char *const *continuations, int64_t count,
                            ssm_continuation_score *out, ssm_error *err)
{
    const size_t bytes = strlen(context);
    SSM__TRY(encode(scorer, context, bytes, &scorer->context, err)); /* valid UTF-8 from here on */
    const size_t kept = bytes - ssm__space_after(context, bytes);
    if (kept < bytes) {
        SSM__TRY(encode(scorer, context, kept, &scorer->context, err));
    }
    for (int64_t i = 0; i < count; i++) {
        SSM__TRY(score_one(scorer, context, kept, continuations[i], &out[i], err));
    }
    return SSM_STATUS_OK;
}
