/* tokenizer/word_cache.c: a bounded hash table of encoded pieces. */
#include "tokenizer/word_cache.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/error.h"
#include "tokenizer/growable.h"

enum { FIRST_SLOTS = 1 << 8, MOST_SLOTS = 1 << 17 };

const ssm__cached_word *ssm__word_cache_get(const ssm__word_cache *cache,
                                            const unsigned char *piece, size_t bytes,
                                            uint32_t *hash)
{
    *hash = (uint32_t)XXH3_64bits(piece, bytes) | 1;
    if (cache->n_slots == 0) {
        return NULL;
    }
    uint32_t mask = cache->n_slots - 1;
    for (uint32_t slot = *hash >> 1 & mask;; slot = (slot + 1) & mask) {
        const ssm__cached_word *word = &cache->slots[slot];
        if (word->hash == 0) {
            return NULL;
        }
        if (word->hash == *hash && word->bytes == bytes &&
            memcmp(cache->keys.data + word->key, piece, bytes) == 0) {
            return word;
        }
    }
}

static void place(ssm__word_cache *cache, ssm__cached_word word)
{
    uint32_t mask = cache->n_slots - 1;
    uint32_t slot = word.hash >> 1 & mask;
    while (cache->slots[slot].hash != 0) {
        slot = (slot + 1) & mask;
    }
    cache->slots[slot] = word;
}

/* Makes room for one more word: a larger table, or an empty one at the bound. */
static ssm_status make_room(ssm__word_cache *cache, ssm_error *err)
{
    if (2 * (cache->count + 1) <= cache->n_slots) {
        return SSM_STATUS_OK;
    }
    if (cache->n_slots == MOST_SLOTS) {
        memset(cache->slots, 0, cache->n_slots * sizeof *cache->slots);
        cache->count = 0;
        cache->keys.bytes = 0;
        cache->ids.count = 0;
        return SSM_STATUS_OK;
    }
    uint32_t n_slots = cache->n_slots == 0 ? FIRST_SLOTS : 4 * cache->n_slots;
    n_slots = n_slots > MOST_SLOTS ? MOST_SLOTS : n_slots;
    ssm__cached_word *old = cache->slots;
    uint32_t n_old = cache->n_slots;
    ssm__cached_word *slots = calloc(n_slots, sizeof *slots);
    if (slots == NULL) {
        return ssm__fail_memory(err, "the word cache", n_slots * sizeof *slots);
    }
    cache->slots = slots;
    cache->n_slots = n_slots;
    for (uint32_t i = 0; i < n_old; i++) {
        if (old[i].hash != 0) {
            place(cache, old[i]);
        }
    }
    free(old);
    return SSM_STATUS_OK;
}

ssm_status ssm__word_cache_put(ssm__word_cache *cache, const unsigned char *piece, size_t bytes,
                               uint32_t hash, ssm__word_ids ids, ssm_error *err)
{
    SSM__TRY(make_room(cache, err));
    ssm__cached_word word = {
        hash,           (uint32_t)cache->keys.bytes, (uint32_t)cache->ids.count,
        (uint8_t)bytes, (uint8_t)ids.dropped,        (uint16_t)ids.count};
    SSM__TRY(ssm__text_append(&cache->keys, piece, bytes, err));
    SSM__TRY(ssm__ids_append(&cache->ids, ids.data, ids.count, err));
    place(cache, word);
    cache->count++;
    return SSM_STATUS_OK;
}

void ssm__word_cache_free(ssm__word_cache *cache)
{
    free(cache->slots);
    ssm_text_free(&cache->keys);
    ssm_ids_free(&cache->ids);
    *cache = (ssm__word_cache){0};
}
