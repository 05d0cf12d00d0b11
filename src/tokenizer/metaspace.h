/* tokenizer/metaspace.h: the fields of Metaspace, as a pre-tokenizer and as a decoder. */
#ifndef SSM_TOKENIZER_METASPACE_H
#define SSM_TOKENIZER_METASPACE_H

#include <jansson.h>

#include "tokenizer/pretokenizer.h"

typedef struct ssm__metaspace {
    uint32_t replacement;
    ssm__prepend_scheme prepend;
    bool split;
} ssm__metaspace;

/* Errors: FILE. */
ssm_status ssm__metaspace_parse(const char *path, const char *where, const json_t *spec,
                                ssm__metaspace *out, ssm_error *err);

#endif
