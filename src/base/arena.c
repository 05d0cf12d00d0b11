/* base/arena.c: one block of memory for one lifetime. */
#include "base/arena.h"

#include "base/checked.h"
#include "base/error.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Under AddressSanitizer memory that was not taken may not be touched, nor the gaps between. */
#if defined(__SANITIZE_ADDRESS__)
#define ARENA_GUARDED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_GUARDED 1
#endif
#endif
#ifdef ARENA_GUARDED
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, size)   ((void)(memory), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(memory, size) ((void)(memory), (void)(size))
#endif

enum { ARENA_ALIGNMENT = 64 }; /* a cache line, and the widest vector */

/* calloc rather than an aligned allocation and memset: pages that are never used are then never
 * touched. The pointer that calloc gave lies in front of the memory. */
ssm_status ssm__arena_create(ssm__arena *arena, size_t size, ssm_error *err)
{
    *arena = (ssm__arena){0};
    size_t padding = ARENA_ALIGNMENT + sizeof(void *);
    size_t whole;
    if (!ssm__add_size(size, padding, &whole)) {
        return ssm__fail_memory(err, "an arena: its size does not fit into size_t", SIZE_MAX);
    }
    unsigned char *block = calloc(1, whole);
    if (block == NULL) {
        return ssm__fail_memory(err, "an arena", whole);
    }
    uintptr_t first = (uintptr_t)block + sizeof(void *);
    size_t shift = (ARENA_ALIGNMENT - first % ARENA_ALIGNMENT) % ARENA_ALIGNMENT;
    arena->memory = block + sizeof(void *) + shift;
    arena->size = size;
    memcpy(arena->memory - sizeof(void *), &block, sizeof(void *));
    ASAN_POISON_MEMORY_REGION(arena->memory, size);
    return SSM_STATUS_OK;
}

void ssm__arena_free(ssm__arena *arena)
{
    if (arena != NULL && arena->memory != NULL) {
        void *block;
        memcpy(&block, arena->memory - sizeof(void *), sizeof(void *));
        ASAN_UNPOISON_MEMORY_REGION(arena->memory, arena->size);
        free(block);
        *arena = (ssm__arena){0};
    }
}

/* After an overflow `used` stays at SIZE_MAX, so that creating an arena of that size fails. */
void *ssm__arena_take(ssm__arena *arena, int64_t count, size_t bytes)
{
    size_t wanted;
    size_t begin;
    size_t end;
    if (arena->overflow || count < 0 || (uint64_t)count > SIZE_MAX ||
        !ssm__mul_size((size_t)count, bytes, &wanted) ||
        !ssm__add_size(arena->used, ARENA_ALIGNMENT - 1, &begin)) {
        arena->overflow = true;
        arena->used = SIZE_MAX;
        return NULL;
    }
    begin -= begin % ARENA_ALIGNMENT;
    bool fits = ssm__add_size(begin, wanted, &end);
    if (!fits || (arena->memory != NULL && end > arena->size)) {
        arena->overflow = true;
        arena->used = SIZE_MAX;
        return NULL;
    }
    arena->used = end;
    if (arena->memory == NULL) {
        return NULL;
    }
    ASAN_UNPOISON_MEMORY_REGION(arena->memory + begin, wanted);
    return arena->memory + begin;
}
