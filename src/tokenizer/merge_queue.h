/* tokenizer/merge_queue.h: which merge comes next: the lowest rank, the leftmost among equals. */
#ifndef SSM_TOKENIZER_MERGE_QUEUE_H
#define SSM_TOKENIZER_MERGE_QUEUE_H

#include <ssmscope/base.h>

/* A priority queue of (rank << 32 | position). Entries that were there at a refill lie sorted and
 * are taken from the front; only later ones pass through a heap. So a piece of millions of equal
 * characters costs a scan a generation, and any piece n log n. Start from {0}. */
typedef struct ssm__merge_queue {
    uint64_t *sorted;
    size_t taken;
    size_t n_sorted;
    size_t sorted_capacity;
    uint64_t *heap;
    size_t n_heap;
    size_t heap_capacity;
} ssm__merge_queue;

static inline uint64_t ssm__merge_key(uint32_t rank, uint32_t position)
{
    return (uint64_t)rank << 32 | position;
}

/* Errors: MEMORY. */
ssm_status ssm__merge_queue_push(ssm__merge_queue *queue, uint64_t key, ssm_error *err);
/* The smallest key; false when the queue is empty. */
bool ssm__merge_queue_pop(ssm__merge_queue *queue, uint64_t *key);
void ssm__merge_queue_clear(ssm__merge_queue *queue);
void ssm__merge_queue_free(ssm__merge_queue *queue);

#endif
