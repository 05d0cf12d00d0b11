/* tokenizer/unigram.h: the most probable cut of a text into tokens (Kudo 2018). */
#ifndef SSM_TOKENIZER_UNIGRAM_H
#define SSM_TOKENIZER_UNIGRAM_H

#include <jansson.h>
#include <ssmscope/tokenizer.h>

#include "tokenizer/prefix_tree.h"
#include "tokenizer/string_map.h"

typedef struct ssm__unigram {
    const ssm__string_map *vocab;
    ssm__prefix_tree tree;
    double *scores; /* log probabilities by id */
    double unk_score;
    int32_t unk;
    bool byte_fallback;
    int32_t fallback_ids[256]; /* of "<0x00>" … "<0xFF>"; -1 where there is none */
} ssm__unigram;

/* spec: the "model" of tokenizer.json; fills vocab, which out keeps but does not own. Errors: FILE,
 * MEMORY. out starts from {0} and is freed by ssm__unigram_free also after a failure. */
ssm_status ssm__unigram_parse(const char *path, const json_t *spec, ssm__string_map *vocab,
                              ssm__unigram *out, ssm_error *err);
void ssm__unigram_free(ssm__unigram *unigram);

/* The best way to reach a place in the text. */
typedef struct ssm__unigram_node {
    double score;
    uint32_t start; /* of the last token; NONE (UINT32_MAX) where nothing ends */
    int32_t id;
} ssm__unigram_node;

/* Scratch of one encode call. Start from {0}. */
typedef struct ssm__unigram_run {
    ssm__unigram_node *nodes;
    size_t capacity;
} ssm__unigram_run;
void ssm__unigram_run_free(ssm__unigram_run *run);
/* Appends the ids of one piece, bytes ≥ 1. Errors: MEMORY, FAILED (a piece of 4 GiB). */
ssm_status ssm__unigram_encode(const ssm__unigram *unigram, ssm__unigram_run *run,
                               const unsigned char *piece, size_t bytes, ssm_ids *ids,
                               ssm_error *err);

#endif
