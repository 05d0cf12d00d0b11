/* tokenizer/bpe.c: from a piece of text to token ids.
 *
 * A piece starts as one symbol a character. The pair of neighbours with the lowest rank merges, the
 * leftmost among equals, until no pair is in the table. A short piece looks over its pairs each
 * time; a long one keeps them in a queue and its symbols in a linked list. */
#include "tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/growable.h"
#include "tokenizer/merge_queue.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_cache.h"

enum { SHORT = SSM__CACHED_BYTES };

typedef struct symbol {
    int32_t id; /* -1: merged into its left neighbour */
    uint32_t previous;
    uint32_t next; /* NONE at the end */
} symbol;

#define NONE UINT32_MAX

struct ssm__bpe_run {
    const ssm__bpe *bpe;
    bool bytes;
    ssm__word_cache cache;
    ssm_ids start; /* symbols before merging */
    symbol *symbols;
    size_t symbols_capacity;
    ssm__merge_queue queue;
    ssm_text mapped;
};

ssm_status ssm__bpe_run_create(const ssm__bpe *bpe, bool bytes, ssm__bpe_run **out, ssm_error *err)
{
    ssm__bpe_run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        return ssm__fail_memory(err, "an encoder", sizeof *run);
    }
    run->bpe = bpe;
    run->bytes = bytes;
    *out = run;
    return SSM_STATUS_OK;
}

void ssm__bpe_run_free(ssm__bpe_run *run)
{
    if (run != NULL) {
        ssm__word_cache_free(&run->cache);
        ssm_ids_free(&run->start);
        free(run->symbols);
        ssm__merge_queue_free(&run->queue);
        ssm_text_free(&run->mapped);
        free(run);
    }
}

/* ---- the first symbols ----------------------------------------------------------------------- */

/* Fills run->start with one id a character. A character that the vocabulary lacks becomes unk
 * (neighbours one unk with fuse_unk), or nothing where the model has no unk. */
static ssm_status split_characters(ssm__bpe_run *run, const unsigned char *piece, size_t bytes,
                                   ssm_error *err)
{
    const ssm__bpe *bpe = run->bpe;
    run->start.count = 0;
    bool after_unk = false;
    for (size_t at = 0; at < bytes;) {
        int32_t id;
        if (run->bytes) {
            id = bpe->byte_ids[piece[at++]];
        } else {
            uint32_t code_point;
            size_t length = ssm__utf8_read(piece + at, &code_point);
            id = ssm__string_map_get(&bpe->vocab, (const char *)piece + at, length);
            at += length;
        }
        bool unk = id < 0;
        if (unk && (bpe->unk < 0 || (after_unk && bpe->fuse_unk))) {
            continue;
        }
        after_unk = unk;
        SSM__TRY(ssm__ids_push(&run->start, unk ? bpe->unk : id, err));
    }
    return SSM_STATUS_OK;
}

/* ---- merging --------------------------------------------------------------------------------- */

/* Merges ids[0 … count-1] in place, count ≤ SHORT; returns how many are left. */
static size_t merge_short(const ssm__bpe *bpe, int32_t *ids, size_t count)
{
    const ssm__merge *pairs[SHORT];
    for (size_t i = 0; i + 1 < count; i++) {
        pairs[i] = ssm__bpe_find(bpe, ids[i], ids[i + 1]);
    }
    for (;;) {
        size_t best = count;
        uint32_t best_rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < count; i++) {
            if (pairs[i] != NULL && pairs[i]->rank < best_rank) {
                best = i;
                best_rank = pairs[i]->rank;
            }
        }
        if (best == count) {
            return count;
        }
        ids[best] = pairs[best]->id;
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof *ids);
        memmove(pairs + best, pairs + best + 1, (count - best - 2) * sizeof(*pairs));
        count--;
        if (best > 0) {
            pairs[best - 1] = ssm__bpe_find(bpe, ids[best - 1], ids[best]);
        }
        if (best + 1 < count) {
            pairs[best] = ssm__bpe_find(bpe, ids[best], ids[best + 1]);
        }
    }
}

/* Queues the pair that begins at `left`, if it merges. */
static ssm_status queue_pair(ssm__bpe_run *run, uint32_t left, ssm_error *err)
{
    uint32_t right = run->symbols[left].next;
    if (right == NONE) {
        return SSM_STATUS_OK;
    }
    const ssm__merge *merge =
        ssm__bpe_find(run->bpe, run->symbols[left].id, run->symbols[right].id);
    return merge == NULL
               ? SSM_STATUS_OK
               : ssm__merge_queue_push(&run->queue, ssm__merge_key(merge->rank, left), err);
}

static ssm_status link_symbols(ssm__bpe_run *run, size_t count, ssm_error *err)
{
    void *symbols = run->symbols;
    SSM__TRY(ssm__grow(&symbols, &run->symbols_capacity, count, sizeof *run->symbols,
                       "the symbols of a piece", err));
    run->symbols = symbols;
    for (size_t i = 0; i < count; i++) {
        run->symbols[i] = (symbol){run->start.data[i], i == 0 ? NONE : (uint32_t)i - 1,
                                   i + 1 == count ? NONE : (uint32_t)i + 1};
    }
    return SSM_STATUS_OK;
}

/* Merges run->start through the linked list and appends the result to *ids. */
static ssm_status merge_long(ssm__bpe_run *run, ssm_ids *ids, ssm_error *err)
{
    size_t count = (size_t)run->start.count;
    SSM__TRY(link_symbols(run, count, err));
    symbol *symbols = run->symbols;
    ssm__merge_queue_clear(&run->queue);
    for (size_t i = 0; i + 1 < count; i++) {
        SSM__TRY(queue_pair(run, (uint32_t)i, err));
    }
    for (;;) {
        uint64_t key;
        bool found;
        SSM__TRY(ssm__merge_queue_pop(&run->queue, &key, &found, err));
        if (!found) {
            break;
        }
        __builtin_prefetch(&symbols[ssm__merge_queue_ahead(&run->queue)]);
        uint32_t left = (uint32_t)key;
        uint32_t right = symbols[left].next;
        if (symbols[left].id < 0 || right == NONE) {
            continue;
        }
        /* Symbols only grow, so a pair that changed since it was queued has another rank. */
        const ssm__merge *merge = ssm__bpe_find(run->bpe, symbols[left].id, symbols[right].id);
        if (merge == NULL || merge->rank != (uint32_t)(key >> 32)) {
            continue;
        }
        symbols[left].id = merge->id;
        symbols[left].next = symbols[right].next;
        symbols[right].id = -1;
        if (symbols[right].next != NONE) {
            symbols[symbols[right].next].previous = left;
        }
        if (symbols[left].previous != NONE) {
            SSM__TRY(queue_pair(run, symbols[left].previous, err));
        }
        SSM__TRY(queue_pair(run, left, err));
    }
    for (uint32_t i = 0; i != NONE; i = symbols[i].next) {
        SSM__TRY(ssm__ids_push(ids, symbols[i].id, err));
    }
    return SSM_STATUS_OK;
}

/* ---- one piece ------------------------------------------------------------------------------- */

/* *id: the token that the whole piece is, or -1. */
static ssm_status find_whole(ssm__bpe_run *run, const unsigned char *piece, size_t bytes,
                             int32_t *id, ssm_error *err)
{
    if (!run->bytes) {
        *id = ssm__string_map_get(&run->bpe->vocab, (const char *)piece, bytes);
        return SSM_STATUS_OK;
    }
    run->mapped.bytes = 0;
    SSM__TRY(ssm__text_reserve(&run->mapped, 2 * bytes, err));
    size_t mapped = ssm__bytes_to_chars(piece, bytes, (unsigned char *)run->mapped.data);
    *id = ssm__string_map_get(&run->bpe->vocab, run->mapped.data, mapped);
    return SSM_STATUS_OK;
}

static ssm_status encode_new(ssm__bpe_run *run, const unsigned char *piece, size_t bytes,
                             ssm_ids *ids, ssm_error *err)
{
    if (run->bpe->ignore_merges) {
        int32_t whole;
        SSM__TRY(find_whole(run, piece, bytes, &whole, err));
        if (whole >= 0) {
            return ssm__ids_push(ids, whole, err);
        }
    }
    SSM__TRY(split_characters(run, piece, bytes, err));
    if (run->start.count == 0) {
        return SSM_STATUS_OK;
    }
    if (run->start.count > SHORT) {
        if (run->start.count >= (int64_t)NONE) {
            return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                             "a piece of %lld characters without a cut is too long to encode",
                             (long long)run->start.count);
        }
        return merge_long(run, ids, err);
    }
    size_t count = merge_short(run->bpe, run->start.data, (size_t)run->start.count);
    return ssm__ids_append(ids, run->start.data, (int64_t)count, err);
}

ssm_status ssm__bpe_encode(ssm__bpe_run *run, const unsigned char *piece, size_t bytes,
                           ssm_ids *ids, ssm_error *err)
{
    if (bytes == 0) {
        return SSM_STATUS_OK;
    }
    if (bytes > SSM__CACHED_BYTES) {
        return encode_new(run, piece, bytes, ids, err);
    }
    uint32_t hash;
    const ssm__cached_word *word = ssm__word_cache_get(&run->cache, piece, bytes, &hash);
    if (word != NULL) {
        return word->count == 0
                   ? SSM_STATUS_OK
                   : ssm__ids_append(ids, run->cache.ids.data + word->ids, word->count, err);
    }
    int64_t before = ids->count;
    SSM__TRY(encode_new(run, piece, bytes, ids, err));
    return ssm__word_cache_put(&run->cache, piece, bytes, hash, ids->data + before,
                               ids->count - before, err);
}
