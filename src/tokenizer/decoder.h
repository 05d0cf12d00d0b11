/* tokenizer/decoder.h: the chain of decoders.
 *
 * Tokens pass through the stages one after the other, and what the last one gives is joined. Some
 * stages make one token out of all (ByteLevel, Fuse); behind them a stage sees parts of that token
 * as they come. A stage that needs the whole token then holds it back until the end. */
#ifndef SSM_TOKENIZER_DECODER_H
#define SSM_TOKENIZER_DECODER_H

#include <jansson.h>
#include <ssmscope/tokenizer.h>

#include "tokenizer/split_pattern.h"

typedef enum ssm__decoder_kind {
    SSM__DECODER_BYTE_LEVEL,    /* the byte alphabet read back; one token */
    SSM__DECODER_METASPACE,     /* the replacement becomes a blank */
    SSM__DECODER_BYTE_FALLBACK, /* a run of "<0xE2>" "<0x82>" … becomes text */
    SSM__DECODER_FUSE,          /* one token */
    SSM__DECODER_STRIP,         /* takes a character off both ends of every token */
    SSM__DECODER_REPLACE,
    SSM__DECODER_WORD_PIECE, /* a blank before each token without the prefix */
    SSM__DECODER_BPE         /* the suffix becomes a blank, behind the last token nothing */
} ssm__decoder_kind;

typedef struct ssm__decoder_stage {
    ssm__decoder_kind kind;
    bool fused;            /* it sees parts of one token */
    bool hold;             /* it sees parts and needs the whole */
    uint32_t character;    /* Metaspace: the replacement; Strip: what is taken off */
    bool drop_first;       /* Metaspace: in the first token the replacement vanishes */
    int64_t start;         /* Strip: at most so many at the start */
    int64_t stop;          /* Strip: at the end */
    bool cleanup;          /* WordPiece: no blank before punctuation and contractions */
    ssm__pattern *pattern; /* Replace */
    ssm_text text;         /* Replace: content; WordPiece: prefix; BPEDecoder: suffix */
} ssm__decoder_stage;

enum { SSM__DECODER_STAGES = 16 };

typedef struct ssm__decoder_chain {
    ssm__decoder_stage stages[SSM__DECODER_STAGES];
    int count;
    bool separated; /* no decoder: tokens with a blank between, as tokenizers does */
} ssm__decoder_chain;

/* spec: the "decoder" of tokenizer.json; null is allowed. Errors: FILE, MEMORY. out starts from {0}
 * and is freed by ssm__decoder_chain_free also after a failure. */
ssm_status ssm__decoder_parse(const char *path, const json_t *spec, ssm__decoder_chain *out,
                              ssm_error *err);
void ssm__decoder_chain_free(ssm__decoder_chain *chain);
/* Tokens are stored as bytes already when the byte alphabet is the first thing to be read back. */
static inline bool ssm__decoder_takes_bytes(const ssm__decoder_chain *chain)
{
    return chain->count > 0 && chain->stages[0].kind == SSM__DECODER_BYTE_LEVEL;
}

/* What one stage remembers. */
typedef struct ssm__decoder_state {
    int64_t index;            /* tokens seen; Strip of parts: characters taken */
    bool passed;              /* Strip of parts: the start is over; BPEDecoder: a token is held */
    unsigned char waiting[4]; /* ByteLevel: the beginning of a character, at most 3 bytes */
    size_t n_waiting;
    ssm_text held;
    ssm_text scratch;
    ssm__pattern_run *pattern;
} ssm__decoder_state;

typedef struct ssm__decoder_run {
    const ssm__decoder_chain *chain;
    ssm__decoder_state states[SSM__DECODER_STAGES];
    ssm_text *out; /* of the call that runs */
} ssm__decoder_run;

/* Start from {0}. Errors: MEMORY. */
ssm_status ssm__decoder_run_create(const ssm__decoder_chain *chain, ssm__decoder_run *run,
                                   ssm_error *err);
void ssm__decoder_run_free(ssm__decoder_run *run);
/* One token: its bytes where the chain takes bytes, else its text. Errors: MEMORY, FAILED. */
ssm_status ssm__decoder_run_push(ssm__decoder_run *run, const void *data, size_t bytes,
                                 ssm_text *out, ssm_error *err);
/* Gives out what the stages hold back and starts again. Errors: MEMORY, FAILED. */
ssm_status ssm__decoder_run_finish(ssm__decoder_run *run, ssm_text *out, ssm_error *err);

#endif
