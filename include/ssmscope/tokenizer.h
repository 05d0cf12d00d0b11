/* ssmscope/tokenizer.h: the tokenizer.json pipeline of Hugging Face tokenizers. */
#ifndef SSMSCOPE_TOKENIZER_H
#define SSMSCOPE_TOKENIZER_H

#include <ssmscope/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ssm_tokenizer ssm_tokenizer;

typedef enum ssm_invalid_utf8 {
    SSM_INVALID_UTF8_ERROR,  /* FILE error with the byte offset */
    SSM_INVALID_UTF8_REPLACE /* U+FFFD, counted */
} ssm_invalid_utf8;

typedef struct ssm_encode_options {
    bool special_as_text;    /* --special=text: special tokens in the text stay text */
    bool add_special_tokens; /* run the post-processor's additions */
    ssm_invalid_utf8 invalid_utf8;
    /* NULL, or grows by the bytes of text that became no id: a BPE without unk drops what its
     * vocabulary has no token for, and so do we, but not in silence. */
    int64_t *dropped_bytes;
} ssm_encode_options;

/* A growable list of ids. Start from {0}; ssm_ids_free releases it. */
typedef struct ssm_ids {
    int32_t *data;
    int64_t count;
    int64_t capacity;
} ssm_ids;
SSM_API void ssm_ids_free(ssm_ids *ids);

/* A growable byte string, NUL-terminated beyond `bytes`. Start from {0}. */
typedef struct ssm_text {
    char *data;
    size_t bytes;
    size_t capacity;
} ssm_text;
SSM_API void ssm_text_free(ssm_text *text);

/* path: a tokenizer.json or a directory that holds one. Unknown pipeline components are refused by
 * name. Errors: FILE, MEMORY. Owner: the caller. A const tokenizer may be shared by threads. */
SSM_API ssm_status ssm_tokenizer_open(const char *path, ssm_tokenizer **out, ssm_error *err);
SSM_API void ssm_tokenizer_free(ssm_tokenizer *tokenizer);
/* One more than the largest id. */
SSM_API int64_t ssm_tokenizer_vocab_size(const ssm_tokenizer *tokenizer);
/* "xxh3-128:…" of tokenizer.json's bytes. */
SSM_API const char *ssm_tokenizer_digest(const ssm_tokenizer *tokenizer);
/* -1 when the vocabulary has no such token. */
SSM_API int32_t ssm_tokenizer_id(const ssm_tokenizer *tokenizer, const char *token, size_t bytes);

/* Appends the ids of text (NUL bytes are text) to *ids. Cost n log n in the longest piece.
 * Errors: FILE (invalid UTF-8 under ERROR, err->offset set), MEMORY. */
SSM_API ssm_status ssm_tokenizer_encode(const ssm_tokenizer *tokenizer, const char *text,
                                        size_t bytes, const ssm_encode_options *options,
                                        ssm_ids *ids, ssm_error *err);
/* Appends the text of ids. Errors: USAGE (an id outside the vocabulary, with its place), FAILED (a
 * pattern past its limit), MEMORY. */
SSM_API ssm_status ssm_tokenizer_decode(const ssm_tokenizer *tokenizer, const int32_t *ids,
                                        int64_t count, bool skip_special, ssm_text *text,
                                        ssm_error *err);

/* Streaming decode. Joined pieces equal ssm_tokenizer_decode of all ids, so text waits while later
 * ids can still change it: the beginning of a character (at most 3 bytes) after ByteLevel; a run of
 * byte tokens under ByteFallback, where one bad byte makes all of the run U+FFFD; one token under
 * BPEDecoder; everything under a stage that rewrites the fused text by more than a character. */
typedef struct ssm_decoder ssm_decoder;
SSM_API ssm_status ssm_decoder_create(const ssm_tokenizer *tokenizer, bool skip_special,
                                      ssm_decoder **out, ssm_error *err);
SSM_API void ssm_decoder_free(ssm_decoder *decoder);
SSM_API ssm_status ssm_decoder_push(ssm_decoder *decoder, int32_t id, ssm_text *text,
                                    ssm_error *err);
/* Flushes what waits (as U+FFFD where incomplete). */
SSM_API ssm_status ssm_decoder_finish(ssm_decoder *decoder, ssm_text *text, ssm_error *err);

/* ---- text by domain, cut into windows -------------------------------------------------------- */

typedef struct ssm_text_file {
    char *domain;
    char *path;
    char digest[64];
    int64_t tokens;
} ssm_text_file;

typedef struct ssm_domain {
    char *name;
    ssm_ids ids; /* its files' ids joined in the order given, no special tokens added */
} ssm_domain;

/* Files grouped by domain, in order of first appearance. */
typedef struct ssm_corpus {
    ssm_text_file *files;
    int64_t n_files;
    ssm_domain *domains;
    int64_t n_domains;
    int64_t replaced; /* invalid UTF-8 sequences replaced by U+FFFD */
    int64_t dropped;  /* bytes that the vocabulary has no token for */
} ssm_corpus;

/* arguments: "domain=path" or "path" (its domain is the file's name without extension).
 * tokenizer NULL: every byte is an id, 0 … 255, whatever the text's encoding.
 * Errors: FILE (missing, unreadable, a directory, invalid UTF-8 with offset), USAGE, MEMORY.
 * Owner: the caller, ssm_corpus_free. */
SSM_API ssm_status ssm_corpus_open(const ssm_tokenizer *tokenizer, const char *const *arguments,
                                   int64_t count, ssm_invalid_utf8 invalid_utf8, ssm_corpus *out,
                                   ssm_error *err);
SSM_API void ssm_corpus_free(ssm_corpus *corpus);

#ifdef __cplusplus
}
#endif
#endif
