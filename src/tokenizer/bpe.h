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
    ssm__string_map vocab;
    ssm__merge *merges; /* open addressing */
    size_t n_slots;     /* a power of two */
    int64_t n_merges;
    int32_t byte_ids[256]; /* the token of each byte's character; -1 where there is none */
    int32_t unk;           /* -1: what the vocabulary lacks is dropped */
    bool fuse_unk;
    bool ignore_merges; /* a piece that is a token is not merged up to it */
} ssm__bpe;

/* spec: the "model" of tokenizer.json. Errors: FILE, MEMORY. out starts from {0} and is freed by
 * ssm__bpe_free also after a failure. */
ssm_status ssm__bpe_parse(const char *path, const json_t *spec, ssm__bpe *out, ssm_error *err);
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

/* Scratch and word cache of one encode call; a tokenizer is shared, this is not. */
typedef struct ssm__bpe_run ssm__bpe_run;
/* bytes: pieces are raw bytes, each standing for its character of the byte alphabet; otherwise
 * pieces are UTF-8 text. Errors: MEMORY. */
ssm_status ssm__bpe_run_create(const ssm__bpe *bpe, bool bytes, ssm__bpe_run **out, ssm_error *err);
void ssm__bpe_run_free(ssm__bpe_run *run);
/* Appends the ids of one piece. Errors: MEMORY. */
ssm_status ssm__bpe_encode(ssm__bpe_run *run, const unsigned char *piece, size_t bytes,
                           ssm_ids *ids, ssm_error *err);

#endif
