/* tokenizer/prefix_tree.h: all tokens that begin a text, shortest first. */
#ifndef SSM_TOKENIZER_PREFIX_TREE_H
#define SSM_TOKENIZER_PREFIX_TREE_H

#include <ssmscope/base.h>

/* An edge: (node << 8 | byte) + 1 → child; key 0 is an empty slot. */
typedef struct ssm__edge {
    uint64_t key;
    uint32_t child;
    int32_t value; /* of the string that ends here; -1 */
} ssm__edge;

/* Edges in one hash table; the root is node 0. Start from {0}. */
typedef struct ssm__prefix_tree {
    ssm__edge *edges;
    size_t n_slots; /* a power of two, at most half full */
    size_t count;
} ssm__prefix_tree;

/* Adds a string, bytes ≥ 1, value ≥ 0; a repeated string keeps its last value. Errors: MEMORY. */
ssm_status ssm__prefix_tree_add(ssm__prefix_tree *tree, const char *text, size_t bytes,
                                int32_t value, ssm_error *err);
/* The edge of `byte` at `node`, NULL where there is none. */
const ssm__edge *ssm__prefix_tree_step(const ssm__prefix_tree *tree, uint32_t node,
                                       unsigned char byte);
void ssm__prefix_tree_free(ssm__prefix_tree *tree);

#endif
