/* tokenizer/prefix_tree.c: a tree of bytes whose edges lie in a hash table. */
#include "tokenizer/prefix_tree.h"

#include <stdlib.h>

#include "base/error.h"

static size_t first_slot(const ssm__prefix_tree *tree, uint64_t key)
{
    return (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (tree->n_slots - 1);
}

static ssm__edge *find_slot(const ssm__prefix_tree *tree, uint64_t key)
{
    size_t slot = first_slot(tree, key);
    while (tree->edges[slot].key != 0 && tree->edges[slot].key != key) {
        slot = (slot + 1) & (tree->n_slots - 1);
    }
    return &tree->edges[slot];
}

static ssm_status enlarge(ssm__prefix_tree *tree, ssm_error *err)
{
    ssm__prefix_tree larger = {.n_slots = tree->n_slots == 0 ? 256 : 2 * tree->n_slots,
                               .count = tree->count};
    larger.edges = calloc(larger.n_slots, sizeof *larger.edges);
    if (larger.edges == NULL || larger.count >= UINT32_MAX) {
        free(larger.edges);
        return ssm__fail_memory(err, "a vocabulary", larger.n_slots * sizeof *larger.edges);
    }
    for (size_t i = 0; i < tree->n_slots; i++) {
        if (tree->edges[i].key != 0) {
            *find_slot(&larger, tree->edges[i].key) = tree->edges[i];
        }
    }
    free(tree->edges);
    *tree = larger;
    return SSM_STATUS_OK;
}

ssm_status ssm__prefix_tree_add(ssm__prefix_tree *tree, const char *text, size_t bytes,
                                int32_t value, ssm_error *err)
{
    uint32_t node = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (2 * (tree->count + 1) > tree->n_slots) {
            SSM__TRY(enlarge(tree, err));
        }
        uint64_t key = ((uint64_t)node << 8 | (unsigned char)text[i]) + 1;
        ssm__edge *edge = find_slot(tree, key);
        if (edge->key == 0) {
            *edge = (ssm__edge){key, (uint32_t)++tree->count, -1};
        }
        if (i + 1 == bytes) {
            edge->value = value;
        }
        node = edge->child;
    }
    return SSM_STATUS_OK;
}

const ssm__edge *ssm__prefix_tree_step(const ssm__prefix_tree *tree, uint32_t node,
                                       unsigned char byte)
{
    if (tree->n_slots == 0) {
        return NULL;
    }
    const ssm__edge *edge = find_slot(tree, ((uint64_t)node << 8 | byte) + 1);
    return edge->key == 0 ? NULL : edge;
}

void ssm__prefix_tree_free(ssm__prefix_tree *tree)
{
    free(tree->edges);
    *tree = (ssm__prefix_tree){0};
}
