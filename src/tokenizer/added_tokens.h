/* tokenizer/added_tokens.h: tokens that are cut out of the text before the model sees it. */
#ifndef SSM_TOKENIZER_ADDED_TOKENS_H
#define SSM_TOKENIZER_ADDED_TOKENS_H

#include <ssmscope/tokenizer.h>

#include "tokenizer/unicode.h"

typedef struct ssm__added_token {
    char *content; /* as written in the file, owned */
    size_t bytes;
    char *pattern; /* what is searched: content, normalised where `normalized`; owned */
    size_t pattern_bytes;
    int32_t id;
    bool single_word; /* only between non-word characters */
    bool lstrip;      /* takes the white space before it */
    bool rstrip;      /* takes the white space behind it */
    bool normalized;  /* searched in the normalised text */
    bool special;
} ssm__added_token;

/* Searches a set of patterns, leftmost and longest first. The patterns lie sorted; a prefix of the
 * text narrows a range of them, a byte at a time. */
typedef struct ssm__matcher {
    const ssm__added_token **tokens; /* sorted by pattern */
    int64_t count;
    int64_t first[257]; /* patterns that begin with byte b: first[b] … first[b+1]-1 */
    bool second[65536]; /* some pattern begins with these two bytes, or is the first alone */
} ssm__matcher;

typedef struct ssm__added_tokens {
    ssm__added_token *tokens;
    int64_t count;
    ssm__matcher *raw;        /* searched before normalisation; NULL when there are none */
    ssm__matcher *normalized; /* searched in the normalised text; NULL when there are none */
} ssm__added_tokens;

/* Builds both matchers over added->tokens. Errors: MEMORY, FILE (two tokens with one pattern). */
ssm_status ssm__added_tokens_index(const char *path, ssm__added_tokens *added, ssm_error *err);
void ssm__added_tokens_free(ssm__added_tokens *added);

/* A cut of the text: what lies before the match (may be empty), and the match. */
typedef struct ssm__cut {
    size_t before_start;
    size_t before_end;
    const ssm__added_token *token; /* NULL: no further match, before_end is the end of the text */
} ssm__cut;

/* The state of one pass over one text. */
typedef struct ssm__cutter {
    const ssm__matcher *matcher; /* NULL: the whole text in one cut */
    const ssm__unicode *unicode;
    const unsigned char *text;
    size_t bytes;
    size_t search;  /* where the next search begins */
    size_t covered; /* end of the last match with its white space */
    bool special_as_text;
} ssm__cutter;

/* The next cut, in the order of the text. */
ssm__cut ssm__cutter_next(ssm__cutter *cutter);

#endif
