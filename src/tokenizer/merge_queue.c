/* tokenizer/merge_queue.c: a sorted list and a four-way heap. */
#include "tokenizer/merge_queue.h"

#include <stdlib.h>

#include "base/error.h"
#include "tokenizer/growable.h"

enum {
    ARITY = 4, /* four children share a cache line, and the heap is half as deep */
    DIGIT_BITS = 8,
    DIGIT_VALUES = 1 << DIGIT_BITS,
    SMALL = 64 /* sorted by insertion */
};

static ssm_status reserve(ssm__key_list *list, size_t count, ssm_error *err)
{
    void *data = list->data;
    SSM__TRY(ssm__grow(&data, &list->capacity, count, sizeof *list->data, "a merge queue", err));
    list->data = data;
    return SSM_STATUS_OK;
}

static void swap_lists(ssm__key_list *left, ssm__key_list *right)
{
    ssm__key_list list = *left;
    *left = *right;
    *right = list;
}

/* ---- heap ------------------------------------------------------------------------------------ */

ssm_status ssm__merge_queue_push(ssm__merge_queue *queue, uint64_t key, ssm_error *err)
{
    ssm__key_list *heap = &queue->heap;
    if (heap->count == heap->capacity) {
        SSM__TRY(reserve(heap, heap->count + 1, err));
    }
    size_t at = heap->count++;
    while (at > 0 && key < heap->data[(at - 1) / ARITY]) {
        heap->data[at] = heap->data[(at - 1) / ARITY];
        at = (at - 1) / ARITY;
    }
    heap->data[at] = key;
    return SSM_STATUS_OK;
}

static uint64_t heap_pop(ssm__key_list *list)
{
    uint64_t *heap = list->data;
    uint64_t smallest = heap[0];
    size_t count = --list->count;
    uint64_t key = heap[count];
    size_t at = 0;
    for (;;) {
        size_t child = ARITY * at + 1;
        if (child >= count) {
            break;
        }
        size_t end = child + ARITY < count ? child + ARITY : count;
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

/* ---- sorted list ----------------------------------------------------------------------------- */

static bool is_sorted(const ssm__key_list *list)
{
    for (size_t i = 1; i < list->count; i++) {
        if (list->data[i - 1] > list->data[i]) {
            return false;
        }
    }
    return true;
}

static void sort_small(ssm__key_list *list)
{
    for (size_t i = 1; i < list->count; i++) {
        uint64_t key = list->data[i];
        size_t at = i;
        for (; at > 0 && list->data[at - 1] > key; at--) {
            list->data[at] = list->data[at - 1];
        }
        list->data[at] = key;
    }
}

/* One pass of a radix sort: from → to, stable, by the digit at `shift`. */
static void sort_digit(const ssm__key_list *from, ssm__key_list *to, unsigned shift)
{
    size_t starts[DIGIT_VALUES] = {0};
    for (size_t i = 0; i < from->count; i++) {
        starts[from->data[i] >> shift & (DIGIT_VALUES - 1)]++;
    }
    size_t start = 0;
    for (size_t digit = 0; digit < DIGIT_VALUES; digit++) {
        size_t here = starts[digit];
        starts[digit] = start;
        start += here;
    }
    for (size_t i = 0; i < from->count; i++) {
        to->data[starts[from->data[i] >> shift & (DIGIT_VALUES - 1)]++] = from->data[i];
    }
    to->count = from->count;
}

/* Radix sort over the digits that differ anywhere; scratch is overwritten. */
static ssm_status sort_large(ssm__key_list *list, ssm__key_list *scratch, ssm_error *err)
{
    SSM__TRY(reserve(scratch, list->count, err));
    uint64_t differing = 0;
    for (size_t i = 1; i < list->count; i++) {
        differing |= list->data[i] ^ list->data[0];
    }
    for (unsigned shift = 0; shift < 64; shift += DIGIT_BITS) {
        if ((differing >> shift & (DIGIT_VALUES - 1)) != 0) {
            sort_digit(list, scratch, shift);
            swap_lists(list, scratch);
        }
    }
    return SSM_STATUS_OK;
}

/* Turns the heap into the sorted list. Pushes in rising order leave the heap sorted already. */
static ssm_status refill(ssm__merge_queue *queue, ssm_error *err)
{
    if (!is_sorted(&queue->heap)) {
        if (queue->heap.count <= SMALL) {
            sort_small(&queue->heap);
        } else {
            SSM__TRY(sort_large(&queue->heap, &queue->sorted, err));
        }
    }
    swap_lists(&queue->heap, &queue->sorted);
    queue->heap.count = 0;
    queue->taken = 0;
    return SSM_STATUS_OK;
}

ssm_status ssm__merge_queue_pop(ssm__merge_queue *queue, uint64_t *key, bool *found, ssm_error *err)
{
    *found = queue->taken < queue->sorted.count || queue->heap.count > 0;
    if (!*found) {
        return SSM_STATUS_OK;
    }
    if (queue->taken == queue->sorted.count) {
        SSM__TRY(refill(queue, err));
    }
    if (queue->heap.count > 0 && queue->heap.data[0] < queue->sorted.data[queue->taken]) {
        *key = heap_pop(&queue->heap);
    } else {
        *key = queue->sorted.data[queue->taken++];
    }
    return SSM_STATUS_OK;
}

void ssm__merge_queue_clear(ssm__merge_queue *queue)
{
    queue->taken = 0;
    queue->sorted.count = 0;
    queue->heap.count = 0;
}

void ssm__merge_queue_free(ssm__merge_queue *queue)
{
    free(queue->sorted.data);
    free(queue->heap.data);
    *queue = (ssm__merge_queue){0};
}
