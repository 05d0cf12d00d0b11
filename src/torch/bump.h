/* torch/bump.h: memory that only grows, up to a limit, and is freed as a whole. */
#ifndef SSM_TORCH_BUMP_H
#define SSM_TORCH_BUMP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ssm__bump_block ssm__bump_block;

typedef struct ssm__bump {
    ssm__bump_block *blocks; /* newest first */
    size_t taken;            /* bytes asked for */
    size_t limit;            /* of taken */
    bool over_limit;         /* why the last take failed: the limit, not the allocator */
} ssm__bump;

/* Start from {.limit = …}. Zeroed memory at a multiple of 16; NULL: beyond the limit or none. */
void *ssm__bump_take(ssm__bump *bump, size_t bytes);
/* A copy that ends in a NUL byte. */
char *ssm__bump_text(ssm__bump *bump, const char *text, size_t bytes);
/* Makes room for one more item behind `count` ones of `size` bytes in *array (of *room items) by
 * moving them to twice the room. False: no memory. */
bool ssm__bump_room(ssm__bump *bump, void *array, size_t *room, size_t count, size_t size);
void ssm__bump_free(ssm__bump *bump);

#endif
