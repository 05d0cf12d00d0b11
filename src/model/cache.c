/* model/cache.c: keys and values of the layers of attention.
 *
 * A block holds 64 positions of all layers: [layer][key or value][head][64][dh]. Blocks never move,
 * so that growing copies nothing, and a tile of the forward pass lies in one block. */
#include "model/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

int64_t ssm__cache_width(const ssm_model *model)
{
    const ssm_config *c = model->config;
    return model->n_attention * 2 * c->n_kv_heads * c->attention_head_dim;
}

/* Places for `count` blocks in the table. */
static ssm_status grow_table(ssm__kv_cache *cache, int64_t count, ssm_error *err)
{
    if (count <= cache->capacity) {
        return SSM_STATUS_OK;
    }
    int64_t capacity = cache->capacity > 0 ? cache->capacity : 16;
    while (capacity < count) {
        capacity *= 2;
    }
    float **blocks = realloc(cache->blocks, (size_t)capacity * sizeof(float *));
    if (!blocks) {
        return ssm__fail_memory(err, "the cache of keys and values",
                                (size_t)capacity * sizeof(float *));
    }
    cache->blocks = blocks;
    cache->capacity = capacity;
    return SSM_STATUS_OK;
}

ssm_status ssm__cache_reserve(ssm_session *session, int64_t positions, ssm_error *err)
{
    enum { MOST = 1 << 30 }; /* blocks: no text is longer */
    ssm__kv_cache *cache = &session->cache;
    const int64_t width = ssm__cache_width(session->model);
    const int64_t count = ssm__ceil_div(positions, SSM__TILE);
    size_t bytes;
    if (width == 0 || count <= cache->count) {
        return SSM_STATUS_OK;
    }
    if (count > MOST || !ssm__mul_size((size_t)width, SSM__TILE * sizeof(float), &bytes)) {
        return ssm__fail_memory(err, "the cache of keys and values", SIZE_MAX);
    }
    SSM__TRY(grow_table(cache, count, err));
    while (cache->count < count) {
        float *block = malloc(bytes);
        if (!block) {
            return ssm__fail_memory(err, "the cache of keys and values", bytes);
        }
        cache->blocks[cache->count++] = block;
    }
    return SSM_STATUS_OK;
}

void ssm__cache_free(ssm_session *session)
{
    ssm__kv_cache *cache = &session->cache;
    for (int64_t i = 0; i < cache->count; i++) {
        free(cache->blocks[i]);
    }
    free(cache->blocks);
    *cache = (ssm__kv_cache){0};
}

float *ssm__cache_keys(const ssm_session *session, int64_t block, int64_t layer, int64_t head)
{
    const ssm_config *c = session->model->config;
    const int64_t row = layer * 2 * c->n_kv_heads + head;
    return session->cache.blocks[block] + row * SSM__TILE * c->attention_head_dim;
}

float *ssm__cache_values(const ssm_session *session, int64_t block, int64_t layer, int64_t head)
{
    return ssm__cache_keys(session, block, layer, session->model->config->n_kv_heads + head);
}

void ssm__cache_copy(const ssm_session *session, int64_t positions, float *copy, bool in)
{
    const ssm_config *c = session->model->config;
    const int64_t dh = c->attention_head_dim;
    for (int64_t row = 0; row < session->model->n_attention * 2 * c->n_kv_heads; row++) {
        for (int64_t t = 0; t < positions; t += SSM__TILE) {
            float *block = ssm__cache_keys(session, t / SSM__TILE, 0, row);
            float *part = copy + (row * positions + t) * dh;
            const size_t bytes =
                (size_t)(ssm__smaller(SSM__TILE, positions - t) * dh) * sizeof(float);
            memcpy(in ? block : part, in ? part : block, bytes);
        }
    }
}
