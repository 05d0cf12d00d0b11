/* tokenizer/normalizer.h: rewriting of the text before it is cut. */
#ifndef SSM_TOKENIZER_NORMALIZER_H
#define SSM_TOKENIZER_NORMALIZER_H

#include <jansson.h>
#include <ssmscope/tokenizer.h>

#include "tokenizer/unicode.h"

/* Canonical composition is idempotent, so a Sequence of NFC stages is one flag. */
typedef struct ssm__normalizer {
    bool nfc;
} ssm__normalizer;

/* spec: the "normalizer" of tokenizer.json; null is allowed. Errors: FILE. */
ssm_status ssm__normalizer_parse(const char *path, const json_t *spec, ssm__normalizer *out,
                                 ssm_error *err);
/* Writes the normalised text into *buffer (its old content is lost) and points *out there, or
 * points *out at the text itself where nothing changes. text is valid UTF-8. Errors: MEMORY. */
ssm_status ssm__normalize(const ssm__normalizer *normalizer, const ssm__unicode *unicode,
                          const char *text, size_t bytes, ssm_text *buffer, const char **out,
                          size_t *out_bytes, ssm_error *err);

#endif
