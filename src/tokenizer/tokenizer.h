/* tokenizer/tokenizer.h: the whole pipeline, each stage in its own file.
 *
 *   text → added tokens (raw) → normalizer → added tokens (normalised) → pre-tokenizer
 *        → model → post-processor → ids → decoder → text */
#ifndef SSM_TOKENIZER_TOKENIZER_H
#define SSM_TOKENIZER_TOKENIZER_H

#include <ssmscope/tokenizer.h>

#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/postprocessor.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/unicode.h"

/* What an id is written as. */
typedef struct ssm__token {
    size_t offset; /* of its decoded bytes in the pool */
    uint32_t bytes;
    bool present;
    bool special;
} ssm__token;

struct ssm_tokenizer {
    char digest[64];
    ssm__unicode unicode;
    ssm__added_tokens added;
    ssm__string_map added_ids; /* content → index in added.tokens */
    ssm__normalizer normalizer;
    ssm__pretokenizer pretokenizer;
    ssm__model model;
    ssm__postprocessor postprocessor;
    ssm__decoder_chain decoder;
    ssm__token *tokens; /* by id */
    int64_t size;       /* one more than the largest id */
    unsigned char *pool;
};

/* A tokenizer out of tokenizer.json's text; `name` stands for the file in messages. Errors: FILE,
 * MEMORY. */
ssm_status ssm__tokenizer_from_memory(const char *name, const char *text, size_t bytes,
                                      ssm_tokenizer **out, ssm_error *err);

/* What encoding could not keep. */
typedef struct ssm__losses {
    int64_t replaced; /* invalid sequences that became U+FFFD */
    int64_t dropped;  /* bytes without a token */
} ssm__losses;

/* As ssm_tokenizer_encode; *losses grows. */
ssm_status ssm__tokenizer_encode(const ssm_tokenizer *tokenizer, const char *text, size_t bytes,
                                 const ssm_encode_options *options, const char *name, ssm_ids *ids,
                                 ssm__losses *losses, ssm_error *err);

/* Fills tokens and pool. Errors: MEMORY. */
ssm_status ssm__tokens_build(ssm_tokenizer *tokenizer, ssm_error *err);

#endif
