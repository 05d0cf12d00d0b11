/* tokenizer/words.h: WordLevel and WordPiece, the models that look words up. */
#ifndef SSM_TOKENIZER_WORDS_H
#define SSM_TOKENIZER_WORDS_H

#include <jansson.h>
#include <ssmscope/tokenizer.h>

#include "tokenizer/string_map.h"

typedef struct ssm__words {
    const ssm__string_map *vocab;
    int32_t unk;
    bool pieces;          /* WordPiece: a word is cut into the longest tokens from its left */
    ssm_text prefix;      /* before every token but the first of a word */
    int64_t most_chars;   /* a longer word is unk */
    size_t longest_token; /* bytes */
} ssm__words;

/* spec: the "model" of tokenizer.json, vocab its tokens (kept, not owned). Errors: FILE, MEMORY.
 * out starts from {0} and is freed by ssm__words_free also after a failure. */
ssm_status ssm__words_parse(const char *path, const json_t *spec, const ssm__string_map *vocab,
                            bool pieces, ssm__words *out, ssm_error *err);
void ssm__words_free(ssm__words *words);

/* Appends the ids of one piece, bytes ≥ 1. key is scratch. Errors: MEMORY. */
ssm_status ssm__words_encode(const ssm__words *words, const unsigned char *piece, size_t bytes,
                             ssm_text *key, ssm_ids *ids, ssm_error *err);

#endif
