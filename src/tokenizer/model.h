/* tokenizer/model.h: the model of tokenizer.json, one of four, behind one call. */
#ifndef SSM_TOKENIZER_MODEL_H
#define SSM_TOKENIZER_MODEL_H

#include "tokenizer/bpe.h"
#include "tokenizer/unigram.h"
#include "tokenizer/words.h"

typedef enum ssm__model_kind {
    SSM__MODEL_BPE,
    SSM__MODEL_UNIGRAM,
    SSM__MODEL_WORDS /* WordLevel, WordPiece */
} ssm__model_kind;

/* The parts point at vocab: a model must not move. */
typedef struct ssm__model {
    ssm__model_kind kind;
    ssm__string_map vocab; /* token → id */
    ssm__bpe bpe;
    ssm__unigram unigram;
    ssm__words words;
} ssm__model;

/* spec: the "model" of tokenizer.json. Errors: FILE, MEMORY. out starts from {0} and is freed by
 * ssm__model_free also after a failure. */
ssm_status ssm__model_parse(const char *path, const json_t *spec, ssm__model *out, ssm_error *err);
void ssm__model_free(ssm__model *model);
/* Can it take pieces of raw bytes for characters of the byte alphabet? */
bool ssm__model_takes_bytes(const ssm__model *model);

/* Scratch and word cache of one encode call; a tokenizer is shared, this is not. */
typedef struct ssm__model_run ssm__model_run;
/* Errors: MEMORY. */
ssm_status ssm__model_run_create(const ssm__model *model, ssm__piece_form form,
                                 ssm__model_run **out, ssm_error *err);
void ssm__model_run_free(ssm__model_run *run);
/* Appends the ids of one piece. *dropped grows by the bytes of text that have no token and no unk.
 * Errors: MEMORY, FAILED. */
ssm_status ssm__model_encode(ssm__model_run *run, const unsigned char *piece, size_t bytes,
                             ssm_ids *ids, int64_t *dropped, ssm_error *err);

#endif
