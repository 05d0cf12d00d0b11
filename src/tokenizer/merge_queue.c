/* tokenizer/merge_queue.c: a sorted list and a four-way heap. */
#include "tokenizer/merge_queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/growable.h"

enum { ARITY = 4 }; /* four children share a cache line, and the heap is half as deep */

ssm_status ssm__merge_queue_push(ssm__merge_queue *queue, uint64_t key, ssm_error *err)
{
    if (queue->n_heap == queue->heap_capacity) {
        void *heap = queue->heap;
        SSM__TRY(ssm__grow(&heap, &queue->heap_capacity, queue->n_heap + 1, sizeof *queue->heap,
                           "a merge queue", err));
        queue->heap = heap;
    }
    size_t at = queue->n_heap++;
    while (at > 0 && key < queue->heap[(at - 1) / ARITY]) {
        queue->heap[at] = queue->heap[(at - 1) / ARITY];
        at = (at - 1) / ARITY;
    }
    queue->heap[at] = key;
    return SSM_STATUS_OK;
}

static uint64_t heap_pop(ssm__merge_queue *queue)
{
    uint64_t *heap = queue->heap;
    uint64_t smallest = heap[0];
    uint64_t key = heap[--queue->n_heap];
    size_t at = 0;
    for (;;) {
        size_t child = ARITY * at + 1;
        if (child >= queue->n_heap) {
            break;
        }
        size_t end = child + ARITY < queue->n_heap ? child + ARITY : queue->n_heap;
        size_t least = child;
        for (size_t other = child + 1; other < end; other++) {
            least = heap[other] < heap[least] ? other : least;
        }
        if (heap[least] >= key) {
            break;
        }
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = key;
    return smallest;
}

static int compare_keys(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Turns the heap into the sorted list. Pushes in rising order leave the heap sorted already. */
static void refill(ssm__merge_queue *queue)
{
    uint64_t *keys = queue->heap;
    size_t capacity = queue->heap_capacity;
    size_t count = queue->n_heap;
    queue->heap = queue->sorted;
    queue->heap_capacity = queue->sorted_capacity;
    queue->n_heap = 0;
    queue->sorted = keys;
    queue->sorted_capacity = capacity;
    queue->n_sorted = count;
    queue->taken = 0;
    for (size_t i = 1; i < count; i++) {
        if (keys[i - 1] > keys[i]) {
            qsort(keys, count, sizeof *keys, compare_keys);
            return;
        }
    }
}

bool ssm__merge_queue_pop(ssm__merge_queue *queue, uint64_t *key)
{
    if (queue->taken == queue->n_sorted) {
        if (queue->n_heap == 0) {
            return false;
        }
        refill(queue);
    }
    if (queue->n_heap > 0 && queue->heap[0] < queue->sorted[queue->taken]) {
        *key = heap_pop(queue);
    } else {
        *key = queue->sorted[queue->taken++];
    }
    return true;
}

void ssm__merge_queue_clear(ssm__merge_queue *queue)
{
    queue->taken = 0;
    queue->n_sorted = 0;
    queue->n_heap = 0;
}

void ssm__merge_queue_free(ssm__merge_queue *queue)
{
    free(queue->sorted);
    free(queue->heap);
    *queue = (ssm__merge_queue){0};
}
