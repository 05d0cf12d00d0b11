/* tokenizer/bpe.h: byte pair encoding (Sennrich et al. 2016) by rank. */
#ifndef SSM_TOKENIZER_BPE_H
#define SSM_TOKENIZER_BPE_H

#include <jansson.h>
#include <ssmscope/tokenizer.h>

#include "tokenizer/string_map.h"

/* Two neighbouring tokens that merge; an empty slot of the table has key UINT64_MAX. */
typedef struct ssm__merge {
    uint64_t key; /* left id << 32 | right id */
    uint32_t rank;
    int32_t id; /* of the merged token */
} ssm__merge;

typedef struct ssm__bpe {
    const ssm__string_map *vocab;
    ssm__merge *merges; /* open addressing */
    size_t n_slots;     /* a power of two */
    int64_t n_merges;
    int32_t byte_ids[256];     /* the token of each byte's character; -1 where there is none */
    int32_t fallback_ids[256]; /* of "<0x00>" … "<0xFF>"; -1 where there is none */
    int32_t unk;               /* -1: what the vocabulary lacks is dropped */
    bool fuse_unk;
    bool ignore_merges; /* a piece that is a token is not merged up to it */
    bool byte_fallback; /* a character without a token becomes the tokens of its bytes */
    ssm_text prefix;    /* continuing_subword_prefix: before every character but the first */
    ssm_text suffix;    /* end_of_word_suffix: behind the last character */
} ssm__bpe;

/* Can the model read raw bytes as characters of the byte alphabet? */
static inline bool ssm__bpe_takes_bytes(const ssm__bpe *bpe)
{
    return !bpe->byte_fallback && bpe->prefix.bytes == 0 && bpe->suffix.bytes == 0;
}

/* spec: the "model" of tokenizer.json, vocab its tokens (kept, not owned). Errors: FILE, MEMORY.
 * out starts from {0} and is freed by ssm__bpe_free also after a failure. */
ssm_status ssm__bpe_parse(const char *path, const json_t *spec, const ssm__string_map *vocab,
                          ssm__bpe *out, ssm_error *err);
void ssm__bpe_free(ssm__bpe *bpe);

/* Adds the merge of rank `rank`; a repeated pair keeps its last rank. The table must have room. */
void ssm__bpe_put(ssm__bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t id);
/* NULL where the pair does not merge. */
static inline const ssm__merge *ssm__bpe_find(const ssm__bpe *bpe, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t hash = key * UINT64_C(0x9E3779B97F4A7C15);
    size_t mask = bpe->n_slots - 1;
    for (size_t slot = (size_t)(hash >> 32) & mask;; slot = (slot + 1) & mask) {
        const ssm__merge *merge = &bpe->merges[slot];
        if (merge->key == key) {
            return merge;
        }
        if (merge->key == UINT64_MAX) {
            return NULL;
        }
    }
}

/* Scratch of one encode call; a tokenizer is shared, this is not. */
typedef struct ssm__bpe_run ssm__bpe_run;
typedef enum ssm__piece_form {
    SSM__PIECE_TEXT,  /* UTF-8 */
    SSM__PIECE_CHARS, /* UTF-8, each character stands for a byte */
    SSM__PIECE_BYTES  /* raw bytes, each stands for its character of the byte alphabet */
} ssm__piece_form;
/* Errors: MEMORY. */
ssm_status ssm__bpe_run_create(const ssm__bpe *bpe, ssm__piece_form form, ssm__bpe_run **out,
                               ssm_error *err);
void ssm__bpe_run_free(ssm__bpe_run *run);
/* Appends the ids of one piece, bytes ≥ 1. *dropped grows by the bytes of the text that have no
 * token, where the model has no unk. Errors: MEMORY, FAILED (a piece of 2^32 characters). */
ssm_status ssm__bpe_encode(ssm__bpe_run *run, const unsigned char *piece, size_t bytes,
                           ssm_ids *ids, int64_t *dropped, ssm_error *err);

#endif
