/* tokenizer/byte_level.h: the byte alphabet of GPT-2.
 *
 * Every byte is written as one printable character, so that byte strings are UTF-8 text: the bytes
 * 21-7E, A1-AC and AE-FF stand for themselves, the other 68 become U+0100, U+0101, … in rising
 * order (the blank is U+0120 "Ġ"). */
#ifndef SSM_TOKENIZER_BYTE_LEVEL_H
#define SSM_TOKENIZER_BYTE_LEVEL_H

#include <ssmscope/base.h>

enum { SSM__BYTE_ALPHABET_END = 0x144 }; /* one more than the largest character */

/* The character of a byte. */
uint32_t ssm__byte_to_char(unsigned char byte);
/* The byte of a character, or -1 where it is not in the alphabet. */
int ssm__char_to_byte(uint32_t code_point);
/* Writes the characters of `bytes` bytes as UTF-8 (room for 2 · bytes); returns the length. */
size_t ssm__bytes_to_chars(const unsigned char *text, size_t bytes, unsigned char *out);
/* The inverse over a whole token: true and the bytes (room for `bytes`) when every character is in
 * the alphabet. text is valid UTF-8. */
bool ssm__chars_to_bytes(const unsigned char *text, size_t bytes, unsigned char *out,
                         size_t *written);

#endif
