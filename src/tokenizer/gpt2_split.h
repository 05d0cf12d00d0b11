/* tokenizer/gpt2_split.h: the pattern that cuts text for GPT-2 and its descendants,
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * (Radford et al. 2019, encoder.py of the GPT-2 release) as a state machine. Every character is a
 * letter, a number, white space or something else, so some alternative always matches and the
 * pieces cover the text. */
#ifndef SSM_TOKENIZER_GPT2_SPLIT_H
#define SSM_TOKENIZER_GPT2_SPLIT_H

#include "tokenizer/unicode.h"

/* The length of the match that begins at text; bytes ≥ 1, valid UTF-8. */
size_t ssm__gpt2_match(const ssm__unicode *unicode, const unsigned char *text, size_t bytes);

#endif
