/* tokenizer/pretokenizer.h: cutting the normalised text into the pieces that the model encodes. */
#ifndef SSM_TOKENIZER_PRETOKENIZER_H
#define SSM_TOKENIZER_PRETOKENIZER_H

#include <jansson.h>
#include <ssmscope/tokenizer.h>

#include "tokenizer/pieces.h"
#include "tokenizer/split_pattern.h"
#include "tokenizer/unicode.h"

typedef enum ssm__pretokenizer_kind {
    SSM__PRETOKENIZER_BYTE_LEVEL,
    SSM__PRETOKENIZER_SPLIT,      /* at the matches of a pattern */
    SSM__PRETOKENIZER_CHARACTERS, /* at the characters of a class, or at one character */
    SSM__PRETOKENIZER_WORDS,      /* \w+|[^\w\s]+, white space removed */
    SSM__PRETOKENIZER_METASPACE   /* blanks written as another character */
} ssm__pretokenizer_kind;

typedef enum ssm__prepend_scheme {
    SSM__PREPEND_ALWAYS,
    SSM__PREPEND_FIRST, /* only to a piece that begins where the whole text begins */
    SSM__PREPEND_NEVER
} ssm__prepend_scheme;

/* One stage; a Sequence is flattened. */
typedef struct ssm__pretokenizer_stage {
    ssm__pretokenizer_kind kind;
    bool add_prefix_space; /* ByteLevel: a blank before a piece that begins without one */
    bool use_regex;        /* ByteLevel: the GPT-2 pattern */
    ssm__pattern *pattern; /* Split */
    ssm__split_behavior behavior;
    bool invert;                 /* Split: the pattern matches what is no delimiter */
    uint8_t class_bits;          /* Characters: SSM__CHAR_…, 0 for `character` alone */
    uint32_t character;          /* Characters: the delimiter; Metaspace: what stands for a blank */
    ssm__prepend_scheme prepend; /* Metaspace */
} ssm__pretokenizer_stage;

enum { SSM__PRETOKENIZER_STAGES = 16 };

typedef struct ssm__pretokenizer {
    ssm__pretokenizer_stage stages[SSM__PRETOKENIZER_STAGES];
    int count;
    /* The last stage is ByteLevel and the model takes bytes (the loader decides): its pieces stay
     * raw bytes, and the model reads each byte as its character of the byte alphabet. */
    bool bytes;
    bool maps_bytes; /* some stage is ByteLevel: a character of a piece stands for one byte */
} ssm__pretokenizer;

/* spec: the "pre_tokenizer" of tokenizer.json; null is allowed. Errors: FILE, MEMORY. out starts
 * from {0} and is freed by ssm__pretokenizer_free also after a failure. */
ssm_status ssm__pretokenizer_parse(const char *path, const json_t *spec, ssm__pretokenizer *out,
                                   ssm_error *err);
void ssm__pretokenizer_free(ssm__pretokenizer *pretokenizer);

/* The state of one encode call. */
typedef struct ssm__pretokenizer_run ssm__pretokenizer_run;
ssm_status ssm__pretokenizer_run_create(const ssm__pretokenizer *pretokenizer,
                                        const ssm__unicode *unicode, ssm__pretokenizer_run **out,
                                        ssm_error *err);
void ssm__pretokenizer_run_free(ssm__pretokenizer_run *run);

/* Runs every stage on a text (valid UTF-8, bytes ≥ 1; at_start: it begins where the whole text
 * begins), except that the GPT-2 pattern of a last
 * ByteLevel is left to the caller: *split_last says so, and ssm__gpt2_match cuts each piece.
 * *text and *pieces belong to the run and hold until the next call. Errors: MEMORY, FAILED. */
ssm_status ssm__pretokenize(ssm__pretokenizer_run *run, const char *input, size_t bytes,
                            bool at_start, const unsigned char **text, const ssm__pieces **pieces,
                            bool *split_last, ssm_error *err);

#endif
