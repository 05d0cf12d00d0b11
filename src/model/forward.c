/* model/forward.c: embedding, blocks, head; logits and negative log-likelihoods. */
#include "model/session.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/pool.h"

enum { NORM_TOKENS = 8, HEAD_ROWS = 96 };

/* ---- parallel pieces ------------------------------------------------------------------------- */

typedef struct tile_run {
    const ssm_model *model;
    const float *weight, *bias; /* of the norm */
    float *in, *out;
    int64_t tokens;
} tile_run;

static void norm_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const tile_run *run = context;
    const ssm_config *c = run->model->config;
    const int64_t first = task * NORM_TOKENS;
    const int64_t tokens = ssm__smaller(NORM_TOKENS, run->tokens - first);
    const float *in = run->in + first * c->d_model;
    float *out = run->out + first * c->d_model;
    const float eps = (float)c->norm_eps;
    if (c->layer_norm) {
        run->model->kernels->layernorm(in, run->weight, run->bias, out, tokens, c->d_model, eps);
    } else {
        run->model->kernels->rmsnorm(in, run->weight, out, tokens, c->d_model, eps);
    }
}

/* in [tokens][D], tokens ≤ 64 → session->normed. */
static void norm(const ssm_session *s, float *in, const float *weight, const float *bias,
                 int64_t tokens)
{
    tile_run run = {.model = s->model,
                    .weight = weight,
                    .bias = bias,
                    .in = in,
                    .out = s->normed,
                    .tokens = tokens};
    ssm__pool_run(s->pool, norm_task, &run, ssm__ceil_div(tokens, NORM_TOKENS));
}

static void head_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const tile_run *run = context;
    const ssm__matrix *w = &run->model->lm_head;
    run->model->kernels->linear(w, NULL, ssm__dense(run->in, w->cols),
                                ssm__dense(run->out, w->rows), run->tokens, task * HEAD_ROWS,
                                ssm__smaller((task + 1) * HEAD_ROWS, w->rows));
}

/* ---- overflow -------------------------------------------------------------------------------- */

/* Finite weights can still overflow float32; from then on every number would be made up. True when
 * all magnitudes are below `limit`. As bits they have the order of the numbers, and infinities and
 * NaNs are above all. */
static bool all_below(const float *values, int64_t count, float limit)
{
    int32_t top = 0;
    int32_t most;
    memcpy(&most, &limit, sizeof most);
    for (int64_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        bits &= INT32_MAX;
        top = bits > top ? bits : top;
    }
    return top < most;
}

/* `what` names the place of rows [tokens][width], for example "block 3". */
static ssm_status check_rows(const float *rows, int64_t position, int64_t tokens, int64_t width,
                             const char *what, ssm_error *err)
{
    if (all_below(rows, tokens * width, INFINITY)) {
        return SSM_STATUS_OK;
    }
    int64_t at = 0;
    while (isfinite(rows[at])) {
        at++;
    }
    return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                     "%s gives %s at token %lld (coordinate %lld): expected a finite number; the "
                     "weights are finite but overflow float32 here: the checkpoint is damaged or "
                     "was badly converted",
                     what,
                     isnan(rows[at]) ? "nan"
                     : rows[at] > 0  ? "inf"
                                     : "-inf",
                     (long long)(position + at / width), (long long)(at % width));
}

/* What block `layer` leaves in the stream. The norm behind it sums squares in float32: where they
 * overflow it makes 0 of every coordinate, and the logits would be those of no text at all. A
 * layernorm takes the mean off first, which doubles a magnitude at most. */
static ssm_status check_stream(const ssm_config *config, const float *rows, int64_t layer,
                               int64_t position, int64_t tokens, ssm_error *err)
{
    const int64_t D = config->d_model;
    const float safe = sqrtf(FLT_MAX / (float)D) / 4.0F;
    if (all_below(rows, tokens * D, safe)) {
        return SSM_STATUS_OK;
    }
    char what[48];
    snprintf(what, sizeof what, "block %lld", (long long)layer);
    SSM__TRY(check_rows(rows, position, tokens, D, what, err));
    for (int64_t t = 0; t < tokens; t++) {
        double sum = 0.0;
        int64_t top = t * D;
        for (int64_t i = t * D; i < (t + 1) * D; i++) {
            sum += (double)rows[i] * (double)rows[i];
            top = fabsf(rows[i]) > fabsf(rows[top]) ? i : top;
        }
        if (sum >= (double)FLT_MAX) {
            return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                             "%s gives %g at token %lld (coordinate %lld): its square overflows "
                             "float32 in the norm behind the block; the weights are finite but too "
                             "large: the checkpoint is damaged or was badly converted",
                             what, (double)rows[top], (long long)(position + t),
                             (long long)(top - t * D));
        }
    }
    return SSM_STATUS_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

void ssm__session_embed(ssm_session *session, const int32_t *ids, int64_t count)
{
    const int64_t D = session->model->config->d_model;
    for (int64_t t = 0; t < count; t++) {
        ssm__embed(session->model, ids[t], session->stream + t * D);
    }
    ssm__session_tap(session, SSM_TAP_EMBED, -1, session->position, count, D,
                     ssm__dense(session->stream, D));
}

typedef void mixer_fn(ssm_session *session, int64_t layer, int64_t position, int64_t tokens);

static mixer_fn *const mixers[SSM_LAYER_KINDS] = {[SSM_LAYER_MAMBA] = ssm__mamba_mixer,
                                                  [SSM_LAYER_MAMBA2] = ssm__mamba2_mixer,
                                                  [SSM_LAYER_ATTENTION] = ssm__attention_mixer};

/* One tile of a block: stream += mixer(norm(stream)), then stream += mlp(norm2(stream)). */
static void run_tile(ssm_session *session, int64_t layer, int64_t position, int64_t tokens,
                     float *stream)
{
    const ssm_model *model = session->model;
    const ssm__block *block = &model->blocks[layer];
    const int64_t D = model->config->d_model;
    const ssm__view rows = ssm__dense(stream, D);
    ssm__session_tap(session, SSM_TAP_RESID_PRE, layer, position, tokens, D, rows);
    norm(session, stream, block->norm, block->norm_bias, tokens);
    ssm__session_tap(session, SSM_TAP_MIXER_IN, layer, position, tokens, D,
                     ssm__dense(session->normed, D));
    mixers[block->kind](session, layer, position, tokens);
    model->kernels->add(session->mixed, stream, tokens * D);
    if (model->config->d_mlp > 0) {
        ssm__session_tap(session, SSM_TAP_RESID_MID, layer, position, tokens, D, rows);
        norm(session, stream, block->mlp.norm, block->mlp.norm_bias, tokens);
        ssm__mlp_run(session, layer, position, tokens);
        model->kernels->add(session->mixed, stream, tokens * D);
    }
    ssm__session_tap(session, SSM_TAP_RESID_POST, layer, position, tokens, D, rows);
}

/* The instrument looks at all modes. */
static ssm_status check_sink(const ssm_session *session, int64_t layer, ssm_error *err)
{
    const ssm__mode_sink *sink = session->sink;
    if (!sink || !sink->layers[layer] || !session->packing || !session->packing->packed[layer]) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                     "layer %lld is to be recorded under a mask: create the session with "
                     "full_state, so that the dropped modes are there",
                     (long long)layer);
}

ssm_status ssm__session_layer(ssm_session *session, int64_t layer, int64_t count, ssm_error *err)
{
    const int64_t D = session->model->config->d_model;
    SSM__TRY(check_sink(session, layer, err));
    SSM__TRY(ssm__cache_reserve(session, session->position + count, err));
    int64_t tokens;
    for (int64_t t = 0; t < count; t += tokens) {
        const int64_t position = session->position + t;
        tokens = ssm__smaller(SSM__TILE - position % SSM__TILE, count - t);
        float *stream = session->stream + t * D;
        run_tile(session, layer, position, tokens, stream);
        SSM__TRY(check_stream(session->model->config, stream, layer, position, tokens, err));
    }
    return SSM_STATUS_OK;
}

/* norm_f of rows [first, first + tokens) of the stream, tokens ≤ 64 → session->normed. */
static void final_norm(ssm_session *session, int64_t first, int64_t tokens)
{
    const ssm_model *model = session->model;
    const int64_t D = model->config->d_model;
    norm(session, session->stream + first * D, model->norm_f, model->norm_f_bias, tokens);
    ssm__session_tap(session, SSM_TAP_LN_FINAL, -1, session->position + first, tokens, D,
                     ssm__dense(session->normed, D));
}

/* Logits of rows [first, first + tokens) of the stream, tokens ≤ 64 → session->logits. */
static void head(ssm_session *session, int64_t first, int64_t tokens)
{
    const ssm_model *model = session->model;
    final_norm(session, first, tokens);
    tile_run run = {
        .model = model, .in = session->normed, .out = session->logits, .tokens = tokens};
    ssm__pool_run(session->pool, head_task, &run, ssm__ceil_div(model->lm_head.rows, HEAD_ROWS));
}

static ssm_status check_ids(const ssm_config *config, const int32_t *ids, int64_t count,
                            ssm_error *err)
{
    for (int64_t t = 0; t < count; t++) {
        if (ids[t] < 0 || ids[t] >= config->vocab_size) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "id %d (number %lld of the input) is outside the vocabulary 0 … %lld",
                             (int)ids[t], (long long)t, (long long)config->vocab_size - 1);
        }
    }
    return SSM_STATUS_OK;
}

/* All layers over the chunk in the stream; the sink hears of each. */
static ssm_status run_layers(ssm_session *session, int64_t chunk, ssm_error *err)
{
    const ssm__mode_sink *sink = session->sink;
    for (int64_t layer = 0; layer < session->model->config->n_layers; layer++) {
        SSM__TRY(ssm__session_layer(session, layer, chunk, err));
        if (sink && sink->finished && sink->layers[layer]) {
            SSM__TRY(sink->finished(sink->context, layer, session->position + chunk, err));
        }
    }
    return SSM_STATUS_OK;
}

ssm_status ssm_session_forward(ssm_session *session, const int32_t *ids, int64_t count,
                               ssm_logits_want want, ssm_logits_fn *fn, void *context,
                               ssm_error *err)
{
    const ssm_config *config = session->model->config;
    SSM__TRY(check_ids(config, ids, count, err));
    SSM__TRY(ssm__cache_reserve(session, session->position + count, err));
    int64_t chunk;
    for (int64_t done = 0; done < count; done += chunk) {
        chunk = ssm__smaller(session->max_chunk, count - done);
        ssm__session_embed(session, ids + done, chunk);
        SSM__TRY(run_layers(session, chunk, err));
        const bool last = want == SSM_LOGITS_LAST && done + chunk == count;
        const int64_t first = want == SSM_LOGITS_ALL ? 0 : last ? chunk - 1 : chunk;
        /* The tap fires for every token, also where no logits are wanted. */
        const int64_t only_norm = ssm__session_wants(session, SSM_TAP_LN_FINAL) ? first : 0;
        for (int64_t t = 0; t < only_norm; t += SSM__TILE) {
            final_norm(session, t, ssm__smaller(SSM__TILE, only_norm - t));
        }
        for (int64_t t = first; t < chunk; t += SSM__TILE) {
            const int64_t tokens = ssm__smaller(SSM__TILE, chunk - t);
            head(session, t, tokens);
            SSM__TRY(check_rows(session->logits, session->position + t, tokens, config->vocab_size,
                                "the head", err));
            fn(context, done + t, tokens, session->logits);
        }
        session->position += chunk;
    }
    return SSM_STATUS_OK;
}

/* ---- negative log-likelihood ----------------------------------------------------------------- */

typedef struct nll_run {
    ssm_session *session;
    const int32_t *ids;
    int64_t scored;
    float *out;
    const float *logits;
    int64_t first;
} nll_run;

static void nll_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const nll_run *run = context;
    const ssm_model *model = run->session->model;
    const int64_t V = model->config->vocab_size;
    const float *row = run->logits + task * V;
    const int64_t t = run->first + task;
    run->out[t] = (float)(model->kernels->logsumexp(row, V) - (double)row[run->ids[t + 1]]);
}

static void nll_rows(void *context, int64_t first, int64_t tokens, const float *logits)
{
    nll_run *run = context;
    run->logits = logits;
    run->first = first;
    ssm__pool_run(run->session->pool, nll_task, run, ssm__smaller(tokens, run->scored - first));
}

ssm_status ssm__session_nll(ssm_session *session, const int32_t *ids, int64_t count, int64_t scored,
                            float *out, ssm_error *err)
{
    nll_run run = {.session = session, .ids = ids, .scored = scored, .out = out};
    return ssm_session_forward(session, ids, count, SSM_LOGITS_ALL, nll_rows, &run, err);
}

ssm_status ssm_session_nll(ssm_session *session, const int32_t *ids, int64_t count, float *out,
                           ssm_error *err)
{
    return ssm__session_nll(session, ids, count, count - 1, out, err);
}
