/* base/arena.h: one block of memory for one lifetime.
 *
 * A layout function takes everything it needs from the arena. Run on an arena without memory
 * (`ssm__arena a = {0}`) it only counts, so the same function is the size function:
 *     ssm__arena a = {0};  layout(&a, obj);           // a.used is the size
 *     SSM__TRY(ssm__arena_create(&a, a.used, err));   layout(&a, obj);
 */
#ifndef SSM_BASE_ARENA_H
#define SSM_BASE_ARENA_H

#include <ssmscope/base.h>

typedef struct ssm__arena {
    unsigned char *memory; /* NULL while counting */
    size_t size;
    size_t used;
    bool overflow; /* a size did not fit into size_t */
} ssm__arena;

/* Zeroed, 64-byte aligned memory of `size` bytes. Errors: MEMORY. */
ssm_status ssm__arena_create(ssm__arena *arena, size_t size, ssm_error *err);
void ssm__arena_free(ssm__arena *arena);
/* count × bytes at a multiple of 64; NULL while counting. Never fails after creation with the
 * counted size. */
void *ssm__arena_take(ssm__arena *arena, int64_t count, size_t bytes);
#define SSM__TAKE(arena, type, count) ((type *)ssm__arena_take((arena), (count), sizeof(type)))

#endif
