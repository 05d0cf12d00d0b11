/* model/session.c: creation, state, mask, observers. The forward pass is in forward.c. */
#include "model/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

enum { DEFAULT_MAX_CHUNK = 1024 };

/* −1 on overflow, which the arena takes for one. */
static int64_t product(int64_t a, int64_t b)
{
    int64_t out;
    return ssm__mul_dim(a, b, &out) ? out : -1;
}

/* in_proj's rows are the widest tap. */
static int64_t widest_tap(const ssm_config *c)
{
    return 2 * c->d_inner + 2 * c->n_groups * c->d_state + c->n_heads;
}

/* Everything a session owns; run twice (see base/arena.h). */
static void layout(ssm__arena *arena, const ssm_model *model, ssm_session *s)
{
    const ssm_config *c = model->config;
    const int64_t tile = model->n_groups16 * SSM__TILE_ROWS * SSM__LANES;
    s->conv_history = SSM__TAKE(arena, float, model->conv_count);
    s->ssm_state = SSM__TAKE(arena, float, model->state_count);
    s->keep = SSM__TAKE(arena, float, model->state_count);
    s->skip = SSM__TAKE(arena, float, c->d_state > 0 ? model->state_count / c->d_state : 0);
    s->masked = SSM__TAKE(arena, bool, c->n_layers);
    s->stream = SSM__TAKE(arena, float, product(s->max_chunk, c->d_model));
    s->normed = SSM__TAKE(arena, float, SSM__TILE * c->d_model);
    s->x_tile = SSM__TAKE(arena, float, tile);
    s->z_tile = SSM__TAKE(arena, float, tile);
    s->u_tile = SSM__TAKE(arena, float, tile);
    s->x_proj = SSM__TAKE(arena, float, SSM__TILE *(c->dt_rank + 2 * c->d_state));
    s->mixed = SSM__TAKE(arena, float, SSM__TILE * c->d_model);
    s->raw_tile = SSM__TAKE(arena, float, tile);
    s->tap = SSM__TAKE(arena, float, SSM__TILE *widest_tap(c));
    s->logits = SSM__TAKE(arena, float, SSM__TILE * c->vocab_size);
    ssm__mamba2_take_scratch(arena, model, &s->mamba2);
    ssm__attention_take_scratch(arena, model, &s->attention);
    ssm__mlp_take_scratch(arena, model, &s->mlp);
}

static void apply_options(ssm_session *s, const ssm_session_options *options)
{
    const bool given = options && options->max_chunk > 0;
    s->max_chunk = given ? options->max_chunk : DEFAULT_MAX_CHUNK;
    s->exact_chunks = options && options->exact_chunks;
    s->pool = options ? options->pool : NULL;
}

size_t ssm_session_size(const ssm_model *model, const ssm_session_options *options)
{
    ssm_session session = {0};
    ssm__arena arena = {0};
    apply_options(&session, options);
    layout(&arena, model, &session);
    return arena.overflow ? SIZE_MAX : arena.used + sizeof session;
}

size_t ssm_session_token_size(const ssm_model *model)
{
    return (size_t)ssm__cache_width(model) * sizeof(float);
}

ssm_status ssm_session_create(const ssm_model *model, const ssm_session_options *options,
                              ssm_session **out, ssm_error *err)
{
    *out = NULL;
    ssm_session *session = calloc(1, sizeof *session);
    if (!session) {
        return ssm__fail_memory(err, "a session", sizeof *session);
    }
    apply_options(session, options);
    session->model = model;
    const size_t size = ssm_session_size(model, options);
    const ssm_status status = size == SIZE_MAX ? ssm__fail_memory(err, "a session", size)
                                               : ssm__arena_create(&session->arena, size, err);
    if (status != SSM_STATUS_OK) {
        free(session);
        return status;
    }
    layout(&session->arena, model, session);
    *out = session;
    return SSM_STATUS_OK;
}

void ssm_session_free(ssm_session *session)
{
    if (session) {
        ssm__cache_free(session);
        ssm__arena_free(&session->arena);
        free(session);
    }
}

void ssm__session_reset_layer(ssm_session *session, int64_t layer)
{
    const ssm__block *block = &session->model->blocks[layer];
    memset(session->conv_history + block->conv_at, 0, (size_t)block->conv_count * sizeof(float));
    memset(session->ssm_state + block->state_at, 0, (size_t)block->state_count * sizeof(float));
}

void ssm_session_reset(ssm_session *session)
{
    for (int64_t layer = 0; layer < session->model->config->n_layers; layer++) {
        ssm__session_reset_layer(session, layer);
    }
    session->position = 0;
}

int64_t ssm_session_position(const ssm_session *session)
{
    return session->position;
}

/* The mask of one layer → factors [G][N][16] and D [G][16]; padding channels are kept. A row of the
 * mask is a channel, or a head with all its channels. */
static void set_layer_mask(ssm_session *session, int64_t layer, const ssm_mask *mask)
{
    const ssm_config *c = session->model->config;
    const ssm__block *block = &session->model->blocks[layer];
    const int64_t N = c->d_state;
    const int64_t per_row = ssm__scan_channels(c) / mask->n_channels;
    const float *D = block->kind == SSM_LAYER_MAMBA2 ? block->mamba2.D : block->mamba.D;
    float *factors = session->keep + block->state_at;
    float *skip = session->skip + block->state_at / N;
    for (int64_t i = 0; i < block->state_count; i++) {
        factors[i] = 1.0f;
    }
    memcpy(skip, D, (size_t)(block->state_count / N) * sizeof *skip);
    for (int64_t h = 0; h < ssm__scan_channels(c); h++) {
        const int64_t row = layer * mask->n_channels + h / per_row;
        const int64_t lane = ssm__lane_of(c, h);
        float *to = factors + lane / SSM__LANES * N * SSM__LANES + lane % SSM__LANES;
        for (int64_t n = 0; n < N; n++) {
            const float kept = mask->keep[row * N + n] ? 1.0f : 0.0f;
            to[n * SSM__LANES] = mask->weight ? mask->weight[row * N + n] * kept : kept;
        }
        skip[lane] *= mask->skip_weight ? mask->skip_weight[row] : 1.0f;
    }
    session->masked[layer] = true;
}

static ssm_status check_mask(const ssm_config *c, const ssm_mask *mask, ssm_error *err)
{
    const int64_t channels = ssm__scan_channels(c);
    const bool by_head = c->n_heads > 0 && mask->n_channels == c->n_heads;
    if (mask->n_layers == c->n_layers && mask->d_state == c->d_state &&
        (mask->n_channels == channels || by_head)) {
        return SSM_STATUS_OK;
    }
    char heads[48] = "";
    if (c->n_heads > 0) {
        snprintf(heads, sizeof heads, " (or %lld heads)", (long long)c->n_heads);
    }
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                     "the mask is for %lld layers of %lld channels with %lld modes, the model has "
                     "%lld of %lld%s with %lld; make a mask from a recording of this model",
                     (long long)mask->n_layers, (long long)mask->n_channels,
                     (long long)mask->d_state, (long long)c->n_layers, (long long)channels, heads,
                     (long long)c->d_state);
}

ssm_status ssm_session_set_mask(ssm_session *session, const ssm_mask *mask, int64_t layer,
                                ssm_error *err)
{
    const ssm_config *c = session->model->config;
    if (mask) {
        SSM__TRY(check_mask(c, mask, err));
    }
    if (layer < -1 || layer >= c->n_layers) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "layer %lld is not one of 0 … %lld",
                         (long long)layer, (long long)c->n_layers - 1);
    }
    for (int64_t i = 0; i < c->n_layers; i++) {
        session->masked[i] = false;
        const bool has_modes = session->model->blocks[i].kind != SSM_LAYER_ATTENTION;
        if (mask && has_modes && (layer == -1 || layer == i)) {
            set_layer_mask(session, i, mask);
        }
    }
    return SSM_STATUS_OK;
}

void ssm_session_set_observer(ssm_session *session, const ssm_observer *observer)
{
    session->observer = observer;
}

void ssm__session_set_sink(ssm_session *session, const ssm__mode_sink *sink)
{
    session->sink = sink;
}
