/* tokenizer/vocab.h: the "vocab" object of BPE, WordPiece and WordLevel. */
#ifndef SSM_TOKENIZER_VOCAB_H
#define SSM_TOKENIZER_VOCAB_H

#include <jansson.h>

#include "tokenizer/string_map.h"

enum { SSM__LARGEST_ID = (1 << 24) - 1 }; /* tables by id stay small whatever the file says */

/* Reads spec's "vocab", {token: id}, every id once. Errors: FILE, MEMORY. */
ssm_status ssm__vocab_parse(const char *path, const json_t *spec, ssm__string_map *out,
                            ssm_error *err);
/* The id of the token that the string field `name` holds. Errors: FILE. */
ssm_status ssm__vocab_field(const char *path, const json_t *spec, const char *name,
                            const ssm__string_map *vocab, int32_t *id, ssm_error *err);
/* The ids of "<0x00>" … "<0xFF>"; -1 where there is none. */
void ssm__vocab_byte_tokens(const ssm__string_map *vocab, int32_t ids[256]);

#endif
