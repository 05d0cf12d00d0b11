/* tokenizer/character_filters.h: normalizers that look at one character at a time. */
#ifndef SSM_TOKENIZER_CHARACTER_FILTERS_H
#define SSM_TOKENIZER_CHARACTER_FILTERS_H

#include "tokenizer/normalizer.h"

enum { SSM__FILTER_MOST = 3 }; /* characters that one becomes */

/* Writes what c becomes and returns how many characters that is. */
typedef size_t ssm__character_filter(const ssm__unicode *unicode, uint32_t c,
                                     uint32_t out[SSM__FILTER_MOST]);

/* The filter of Lowercase, StripAccents, Nmt and the stages of BertNormalizer. */
ssm__character_filter *ssm__character_filter_of(ssm__normalizer_kind kind);

#endif
