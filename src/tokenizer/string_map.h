/* tokenizer/string_map.h: byte strings (NUL is a byte like any other) to ids. */
#ifndef SSM_TOKENIZER_STRING_MAP_H
#define SSM_TOKENIZER_STRING_MAP_H

#include <ssmscope/base.h>

typedef struct ssm__string_entry {
    size_t offset; /* in the pool */
    uint32_t bytes;
    int32_t value;
} ssm__string_entry;

/* Open addressing over entries in insertion order. Start from {0}. */
typedef struct ssm__string_map {
    char *pool;
    size_t pool_used;
    size_t pool_capacity;
    ssm__string_entry *entries;
    size_t count;
    size_t capacity;
    uint32_t *slots; /* entry index + 1, 0 = empty; at most half full */
    size_t n_slots;  /* a power of two */
} ssm__string_map;

/* Adds a string that is not there yet (the caller looks first). value ≥ 0, bytes < 2^32.
 * Errors: MEMORY. */
ssm_status ssm__string_map_add(ssm__string_map *map, const char *text, size_t bytes, int32_t value,
                               ssm_error *err);
/* The value, or -1 where the string is missing. */
int32_t ssm__string_map_get(const ssm__string_map *map, const char *text, size_t bytes);
void ssm__string_map_free(ssm__string_map *map);

static inline const char *ssm__string_map_text(const ssm__string_map *map, size_t entry)
{
    return map->pool + map->entries[entry].offset;
}

#endif
