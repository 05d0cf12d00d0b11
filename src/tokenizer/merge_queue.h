/* tokenizer/merge_queue.h: which merge comes next: the lowest rank, the leftmost among equals. */
#ifndef SSM_TOKENIZER_MERGE_QUEUE_H
#define SSM_TOKENIZER_MERGE_QUEUE_H

#include <ssmscope/base.h>

typedef struct ssm__key_list {
    uint64_t *data;
    size_t count;
    size_t capacity;
} ssm__key_list;

/* A priority queue of (rank << 32 | position). Entries that were there at a refill lie sorted and
 * are taken from the front; only later ones pass through a heap. So a piece of millions of equal
 * characters costs a scan a generation, and any piece n log n. Start from {0}. */
typedef struct ssm__merge_queue {
    ssm__key_list sorted;
    size_t taken; /* of the sorted keys */
    ssm__key_list heap;
} ssm__merge_queue;

static inline uint64_t ssm__merge_key(uint32_t rank, uint32_t position)
{
    return (uint64_t)rank << 32 | position;
}

/* Errors: MEMORY. */
ssm_status ssm__merge_queue_push(ssm__merge_queue *queue, uint64_t key, ssm_error *err);
/* Takes the smallest key; *found false when the queue is empty. Errors: MEMORY. */
ssm_status ssm__merge_queue_pop(ssm__merge_queue *queue, uint64_t *key, bool *found,
                                ssm_error *err);
/* The position of a key that is likely to come soon, for prefetching. */
static inline uint32_t ssm__merge_queue_ahead(const ssm__merge_queue *queue)
{
    enum { DISTANCE = 8 };
    return queue->taken + DISTANCE < queue->sorted.count
               ? (uint32_t)queue->sorted.data[queue->taken + DISTANCE]
               : 0;
}
void ssm__merge_queue_clear(ssm__merge_queue *queue);
void ssm__merge_queue_free(ssm__merge_queue *queue);

#endif
