/* tokenizer/string_map.c: hash table of byte strings. */
#include "tokenizer/string_map.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/checked.h"
#include "base/error.h"
#include "tokenizer/growable.h"

static size_t first_slot(const ssm__string_map *map, const char *text, size_t bytes)
{
    return (size_t)XXH3_64bits(text, bytes) & (map->n_slots - 1);
}

static void place(ssm__string_map *map, size_t entry)
{
    const ssm__string_entry *added = &map->entries[entry];
    size_t slot = first_slot(map, map->pool + added->offset, added->bytes);
    while (map->slots[slot] != 0) {
        slot = (slot + 1) & (map->n_slots - 1);
    }
    map->slots[slot] = (uint32_t)entry + 1;
}

static ssm_status enlarge(ssm__string_map *map, ssm_error *err)
{
    size_t n_slots = map->n_slots == 0 ? 64 : map->n_slots * 2;
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (slots == NULL) {
        return ssm__fail_memory(err, "a vocabulary", n_slots * sizeof *slots);
    }
    free(map->slots);
    map->slots = slots;
    map->n_slots = n_slots;
    for (size_t entry = 0; entry < map->count; entry++) {
        place(map, entry);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__string_map_add(ssm__string_map *map, const char *text, size_t bytes, int32_t value,
                               ssm_error *err)
{
    size_t pool_wanted;
    if (bytes > UINT32_MAX || !ssm__add_size(map->pool_used, bytes + 1, &pool_wanted)) {
        return ssm__fail_memory(err, "a vocabulary", bytes);
    }
    void *pool = map->pool;
    SSM__TRY(ssm__grow(&pool, &map->pool_capacity, pool_wanted, 1, "a vocabulary", err));
    map->pool = pool;
    void *entries = map->entries;
    SSM__TRY(ssm__grow(&entries, &map->capacity, map->count + 1, sizeof *map->entries,
                       "a vocabulary", err));
    map->entries = entries;
    if (2 * (map->count + 1) > map->n_slots) {
        SSM__TRY(enlarge(map, err));
    }
    memcpy(map->pool + map->pool_used, text, bytes);
    map->pool[map->pool_used + bytes] = '\0';
    map->entries[map->count] = (ssm__string_entry){map->pool_used, (uint32_t)bytes, value};
    map->pool_used = pool_wanted;
    place(map, map->count);
    map->count++;
    return SSM_STATUS_OK;
}

int32_t ssm__string_map_get(const ssm__string_map *map, const char *text, size_t bytes)
{
    if (map->n_slots == 0) {
        return -1;
    }
    size_t slot = first_slot(map, text, bytes);
    while (map->slots[slot] != 0) {
        const ssm__string_entry *entry = &map->entries[map->slots[slot] - 1];
        if (entry->bytes == bytes && memcmp(map->pool + entry->offset, text, bytes) == 0) {
            return entry->value;
        }
        slot = (slot + 1) & (map->n_slots - 1);
    }
    return -1;
}

void ssm__string_map_free(ssm__string_map *map)
{
    free(map->pool);
    free(map->entries);
    free(map->slots);
    *map = (ssm__string_map){0};
}
