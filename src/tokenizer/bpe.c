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

enum { SHORT = 64 };

typedef struct symbol {
    int32_t id; /* -1: merged into its left neighbour */
    uint32_t previous;
    uint32_t next; /* NONE at the end */
} symbol;

#define NONE UINT32_MAX

struct ssm__bpe_run {
    const ssm__bpe *bpe;
    ssm__piece_form form;
    ssm_ids start; /* symbols before merging */
    symbol *symbols;
    size_t symbols_capacity;
    ssm__merge_queue queue;
    ssm_text mapped;
    ssm_text key; /* a character with its affixes */
};

ssm_status ssm__bpe_run_create(const ssm__bpe *bpe, ssm__piece_form form, ssm__bpe_run **out,
                               ssm_error *err)
{
    ssm__bpe_run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        return ssm__fail_memory(err, "an encoder", sizeof *run);
    }
    run->bpe = bpe;
    run->form = form;
    *out = run;
    return SSM_STATUS_OK;
}

void ssm__bpe_run_free(ssm__bpe_run *run)
{
    if (run != NULL) {
        ssm_ids_free(&run->start);
        free(run->symbols);
        ssm__merge_queue_free(&run->queue);
        ssm_text_free(&run->mapped);
        ssm_text_free(&run->key);
        free(run);
    }
}

/* ---- the first symbols ----------------------------------------------------------------------- */

/* A character on its way to its id. */
typedef struct character {
    const unsigned char *text;
    size_t bytes;
    bool first;
    bool last;
} character;

/* The id of a character with its affixes, which are then in run->key; -1 where there is none. */
static ssm_status find_with_affixes(ssm__bpe_run *run, character c, int32_t *id, ssm_error *err)
{
    const ssm__bpe *bpe = run->bpe;
    run->key.bytes = 0;
    if (!c.first) {
        SSM__TRY(ssm__text_append(&run->key, bpe->prefix.data, bpe->prefix.bytes, err));
    }
    SSM__TRY(ssm__text_append(&run->key, c.text, c.bytes, err));
    if (c.last) {
        SSM__TRY(ssm__text_append(&run->key, bpe->suffix.data, bpe->suffix.bytes, err));
    }
    *id = ssm__string_map_get(bpe->vocab, run->key.data, run->key.bytes);
    return SSM_STATUS_OK;
}

/* The tokens of the bytes of a character, when all of them are there. */
static ssm_status fall_back(ssm__bpe_run *run, const unsigned char *text, size_t bytes, bool *done,
                            ssm_error *err)
{
    for (size_t i = 0; i < bytes; i++) {
        if (run->bpe->fallback_ids[text[i]] < 0) {
            return SSM_STATUS_OK;
        }
    }
    *done = true;
    for (size_t i = 0; i < bytes; i++) {
        SSM__TRY(ssm__ids_push(&run->start, run->bpe->fallback_ids[text[i]], err));
    }
    return SSM_STATUS_OK;
}

/* Fills run->start with one id a character. What the vocabulary lacks becomes its bytes with
 * byte_fallback, else unk (neighbours one unk with fuse_unk), or nothing where the model has no
 * unk. An unk waits until the next character that has an id of its own, so the bytes of a
 * character that falls back come before it, as in tokenizers. */
static ssm_status split_text(ssm__bpe_run *run, const unsigned char *piece, size_t bytes,
                             int64_t *dropped, ssm_error *err)
{
    const ssm__bpe *bpe = run->bpe;
    const bool affixes = bpe->prefix.bytes > 0 || bpe->suffix.bytes > 0;
    bool waiting = false;
    for (size_t at = 0; at < bytes;) {
        uint32_t code_point;
        size_t length = ssm__utf8_read(piece + at, &code_point);
        const unsigned char *text = piece + at;
        size_t text_bytes = length;
        int32_t id;
        if (affixes) {
            SSM__TRY(find_with_affixes(
                run, (character){text, length, at == 0, at + length == bytes}, &id, err));
            text = (const unsigned char *)run->key.data;
            text_bytes = run->key.bytes;
        } else {
            id = ssm__string_map_get(bpe->vocab, (const char *)text, length);
        }
        at += length;
        bool done = false;
        if (id < 0 && bpe->byte_fallback) {
            SSM__TRY(fall_back(run, text, text_bytes, &done, err));
        }
        if (done) {
            continue;
        }
        if (id < 0 && bpe->unk < 0) {
            *dropped += run->form == SSM__PIECE_CHARS ? 1 : (int64_t)length;
            continue;
        }
        if (waiting && (id >= 0 || !bpe->fuse_unk)) {
            SSM__TRY(ssm__ids_push(&run->start, bpe->unk, err));
        }
        waiting = id < 0;
        if (id >= 0) {
            SSM__TRY(ssm__ids_push(&run->start, id, err));
        }
    }
    return waiting ? ssm__ids_push(&run->start, bpe->unk, err) : SSM_STATUS_OK;
}

/* The same for raw bytes: a byte always is one character. */
static ssm_status split_bytes(ssm__bpe_run *run, const unsigned char *piece, size_t bytes,
                              int64_t *dropped, ssm_error *err)
{
    const ssm__bpe *bpe = run->bpe;
    bool after_unk = false;
    SSM__TRY(ssm__ids_reserve(&run->start, (int64_t)bytes, err));
    for (size_t i = 0; i < bytes; i++) {
        int32_t id = bpe->byte_ids[piece[i]];
        bool unk = id < 0;
        *dropped += unk && bpe->unk < 0;
        if (unk && (bpe->unk < 0 || (after_unk && bpe->fuse_unk))) {
            continue;
        }
        after_unk = unk;
        run->start.data[run->start.count++] = unk ? bpe->unk : id;
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
    if (run->form != SSM__PIECE_BYTES) {
        *id = ssm__string_map_get(run->bpe->vocab, (const char *)piece, bytes);
        return SSM_STATUS_OK;
    }
    run->mapped.bytes = 0;
    SSM__TRY(ssm__text_reserve(&run->mapped, 2 * bytes, err));
    size_t mapped = ssm__bytes_to_chars(piece, bytes, (unsigned char *)run->mapped.data);
    *id = ssm__string_map_get(run->bpe->vocab, run->mapped.data, mapped);
    return SSM_STATUS_OK;
}

ssm_status ssm__bpe_encode(ssm__bpe_run *run, const unsigned char *piece, size_t bytes,
                           ssm_ids *ids, int64_t *dropped, ssm_error *err)
{
    if (run->bpe->ignore_merges) {
        int32_t whole;
        SSM__TRY(find_whole(run, piece, bytes, &whole, err));
        if (whole >= 0) {
            return ssm__ids_push(ids, whole, err);
        }
    }
    run->start.count = 0;
    if (run->form == SSM__PIECE_BYTES) {
        SSM__TRY(split_bytes(run, piece, bytes, dropped, err));
    } else {
        SSM__TRY(split_text(run, piece, bytes, dropped, err));
    }
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
