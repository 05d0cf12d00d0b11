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

/* Part `part` of the cache: positions of one block, layer, and key or value head. Returns where it
 * is and how much of it holds the first `positions` positions; parts follow as in a copy. */
static float *part_of(const ssm_session *session, int64_t positions, int64_t part, size_t *bytes)
{
    const int64_t blocks = ssm__ceil_div(positions, SSM__TILE), block = part % blocks;
    const int64_t tokens = ssm__smaller(SSM__TILE, positions - block * SSM__TILE);
    *bytes = (size_t)(tokens * session->model->config->attention_head_dim) * sizeof(float);
    return ssm__cache_keys(session, block, 0, part / blocks);
}

static int64_t count_parts(const ssm_session *session, int64_t positions)
{
    return session->model->n_attention * 2 * session->model->config->n_kv_heads *
           ssm__ceil_div(positions, SSM__TILE);
}

void ssm__cache_copy_out(const ssm_session *session, int64_t positions, unsigned char *copy)
{
    for (int64_t part = 0; part < count_parts(session, positions); part++) {
        size_t bytes;
        const float *from = part_of(session, positions, part, &bytes);
        memcpy(copy, from, bytes);
        copy += bytes;
    }
}

void ssm__cache_copy_in(const ssm_session *session, int64_t positions, const unsigned char *copy)
{
    for (int64_t part = 0; part < count_parts(session, positions); part++) {
        size_t bytes;
        float *to = part_of(session, positions, part, &bytes);
        memcpy(to, copy, bytes);
        copy += bytes;
    }
}
