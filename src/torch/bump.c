#include "torch/bump.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

enum { BLOCK_FIRST = 4096, BLOCK_LARGEST = 1 << 20, ALIGNMENT = 16 };

struct ssm__bump_block {
    ssm__bump_block *older;
    size_t size;
    size_t used;
    alignas(ALIGNMENT) unsigned char memory[];
};

static ssm__bump_block *add_block(ssm__bump *bump, size_t bytes)
{
    size_t size = bump->blocks == NULL ? BLOCK_FIRST : 2 * bump->blocks->size;
    size = size > BLOCK_LARGEST ? BLOCK_LARGEST : size;
    size = size < bytes ? bytes : size;
    size_t whole;
    if (!ssm__add_size(size, sizeof(ssm__bump_block), &whole)) {
        return NULL;
    }
    ssm__bump_block *block = calloc(1, whole);
    if (block == NULL) {
        return NULL;
    }
    block->size = size;
    block->older = bump->blocks;
    bump->blocks = block;
    return block;
}

void *ssm__bump_take(ssm__bump *bump, size_t bytes)
{
    bump->over_limit = bytes > bump->limit - bump->taken;
    if (bump->over_limit || bytes > SIZE_MAX / 2) {
        return NULL;
    }
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    ssm__bump_block *block = bump->blocks;
    if (block == NULL || block->size - block->used < rounded) {
        block = add_block(bump, rounded);
        if (block == NULL) {
            return NULL;
        }
    }
    void *memory = block->memory + block->used;
    block->used += rounded;
    bump->taken += bytes;
    return memory;
}

char *ssm__bump_text(ssm__bump *bump, const char *text, size_t bytes)
{
    char *copy = bytes < SIZE_MAX ? ssm__bump_take(bump, bytes + 1) : NULL;
    if (copy != NULL && bytes > 0) {
        memcpy(copy, text, bytes);
    }
    return copy;
}

bool ssm__bump_room(ssm__bump *bump, void *array, size_t *room, size_t count, size_t size)
{
    if (count < *room) {
        return true;
    }
    size_t wanted = *room < 8 ? 8 : 2 * *room;
    size_t bytes;
    void *old;
    memcpy(&old, array, sizeof old); /* a pointer of any type, read without aliasing it */
    void *moved = ssm__mul_size(wanted, size, &bytes) ? ssm__bump_take(bump, bytes) : NULL;
    if (moved == NULL) {
        return false;
    }
    if (count > 0) {
        memcpy(moved, old, count * size);
    }
    memcpy(array, &moved, sizeof moved);
    *room = wanted;
    return true;
}

void ssm__bump_free(ssm__bump *bump)
{
    while (bump->blocks != NULL) {
        ssm__bump_block *older = bump->blocks->older;
        free(bump->blocks);
        bump->blocks = older;
    }
    bump->taken = 0;
}
