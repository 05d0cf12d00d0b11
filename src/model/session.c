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
    s->full_state = options && options->full_state;
    s->pool = options ? options->pool : NULL;
}

size_t ssm_session_size(const ssm_model *model, const ssm_session_options *options)
{
    ssm_session session = {0};
    ssm__arena arena = {0};
    apply_options(&session, options);
    layout(&arena, model, &session);
    (void)SSM__TAKE(&arena, float, model->state_count);
    return arena.overflow ? SIZE_MAX : arena.used + sizeof session;
}

size_t ssm_session_token_size(const ssm_model *model)
{
    return (size_t)ssm__cache_width(model) * sizeof(float);
}

/* Zero states for a packing, in memory of their own. */
static ssm_status create_states(const ssm_model *model, const ssm__packing *packing,
                                ssm__arena *memory, float **states, ssm_error *err)
{
    const int64_t count = ssm__packing_rows(model, packing) * SSM__LANES;
    SSM__TRY(ssm__arena_create(memory, (size_t)count * sizeof **states, err));
    *states = SSM__TAKE(memory, float, count);
    return SSM_STATUS_OK;
}

static ssm_status allocate(ssm_session *session, const ssm_session_options *options, ssm_error *err)
{
    const ssm_model *model = session->model;
    const size_t size = ssm_session_size(model, options);
    if (size == SIZE_MAX) {
        return ssm__fail_memory(err, "a session", size);
    }
    ssm__arena count = {0};
    layout(&count, model, session);
    SSM__TRY(ssm__arena_create(&session->arena, count.used, err));
    layout(&session->arena, model, session);
    return create_states(model, NULL, &session->state_memory, &session->ssm_state, err);
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
    const ssm_status status = allocate(session, options, err);
    if (status != SSM_STATUS_OK) {
        ssm_session_free(session);
        return status;
    }
    *out = session;
    return SSM_STATUS_OK;
}

void ssm_session_free(ssm_session *session)
{
    if (session) {
        ssm__cache_free(session);
        ssm__packing_free(session->packing);
        ssm__arena_free(&session->state_memory);
        ssm__arena_free(&session->arena);
        free(session);
    }
}

void ssm__session_reset_layer(ssm_session *session, int64_t layer)
{
    const ssm__block *block = &session->model->blocks[layer];
    memset(session->conv_history + block->conv_at, 0, (size_t)block->conv_count * sizeof(float));
    const int64_t groups = block->state_count > 0 ? session->model->n_groups16 : 0;
    for (int64_t g = 0; g < groups; g++) {
        const ssm__packed_group *group = ssm__session_group(session, layer, g);
        const int64_t rows = group ? group->rows : session->model->config->d_state;
        memset(ssm__packing_state(session->model, session->packing, session->ssm_state, layer, g),
               0, (size_t)(rows * SSM__LANES) * sizeof(float));
    }
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

const ssm__packed_group *ssm__session_group(const ssm_session *session, int64_t layer,
                                            int64_t group)
{
    return ssm__session_masked(session, layer)
               ? ssm__packing_group(session->model, session->packing, layer, group)
               : NULL;
}

const float *ssm__session_skip(const ssm_session *session, int64_t layer, int64_t group,
                               const float *D)
{
    return ssm__session_masked(session, layer)
               ? ssm__packing_skip(session->model, session->packing, layer, group)
               : D + group * SSM__LANES;
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

static bool same_states(const ssm__packing *a, const ssm__packing *b)
{
    return strcmp(a ? a->digest : "", b ? b->digest : "") == 0;
}

/* Takes the packing (NULL: none) when it is OK. Behind the first token the states go along. */
static ssm_status change_packing(ssm_session *session, ssm__packing *packing, ssm_error *err)
{
    if (!same_states(session->packing, packing)) {
        ssm__arena memory;
        float *states;
        SSM__TRY(create_states(session->model, packing, &memory, &states, err));
        const ssm_status status =
            session->position > 0 ? ssm__packing_convert(session->model, session->packing,
                                                         session->ssm_state, packing, states, err)
                                  : SSM_STATUS_OK;
        if (status != SSM_STATUS_OK) {
            ssm__arena_free(&memory);
            return status;
        }
        ssm__arena_free(&session->state_memory);
        session->state_memory = memory;
        session->ssm_state = states;
    }
    ssm__packing_free(session->packing);
    session->packing = packing;
    return SSM_STATUS_OK;
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
    ssm__packing *packing = NULL;
    if (mask) {
        SSM__TRY(
            ssm__packing_create(session->model, mask, layer, session->full_state, &packing, err));
    }
    const ssm_status status = change_packing(session, packing, err);
    if (status != SSM_STATUS_OK) {
        ssm__packing_free(packing);
    }
    return status;
}

void ssm_session_set_observer(ssm_session *session, const ssm_observer *observer)
{
    session->observer = observer;
}

void ssm__session_set_sink(ssm_session *session, const ssm__mode_sink *sink)
{
    session->sink = sink;
}
