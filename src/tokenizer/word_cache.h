/* tokenizer/word_cache.h: pieces already encoded in this call. */
#ifndef SSM_TOKENIZER_WORD_CACHE_H
#define SSM_TOKENIZER_WORD_CACHE_H

#include <ssmscope/tokenizer.h>

enum { SSM__CACHED_BYTES = 64 }; /* longer pieces hardly ever come back */

typedef struct ssm__cached_word {
    uint32_t hash; /* 0 = empty slot */
    uint32_t key;  /* offset in keys */
    uint32_t ids;  /* offset in ids */
    uint8_t bytes;
    uint8_t dropped; /* bytes without a token */
    uint16_t count;
} ssm__cached_word;

/* What a piece became. */
typedef struct ssm__word_ids {
    const int32_t *data;
    int64_t count;
    int64_t dropped;
} ssm__word_ids;

/* Bounded: when it is full it starts again, so memory does not grow with the text. What it holds
 * never changes a result. Start from {0}. */
typedef struct ssm__word_cache {
    ssm__cached_word *slots;
    uint32_t n_slots; /* a power of two */
    uint32_t count;
    ssm_text keys;
    ssm_ids ids;
} ssm__word_cache;

/* The entry of a piece (1 to SSM__CACHED_BYTES bytes) or NULL; *hash serves the put that follows.
 */
const ssm__cached_word *ssm__word_cache_get(const ssm__word_cache *cache,
                                            const unsigned char *piece, size_t bytes,
                                            uint32_t *hash);
/* Adds a piece that is not there. Errors: MEMORY. */
ssm_status ssm__word_cache_put(ssm__word_cache *cache, const unsigned char *piece, size_t bytes,
                               uint32_t hash, ssm__word_ids ids, ssm_error *err);
void ssm__word_cache_free(ssm__word_cache *cache);

#endif
