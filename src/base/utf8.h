/* base/utf8.h: telling well-formed UTF-8 from the rest. */
#ifndef SSM_BASE_UTF8_H
#define SSM_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* The length (1 … 4) of the well-formed UTF-8 sequence at text[0], or 0 when there is none: a stray
 * or missing continuation byte, an overlong form, a surrogate, a value above U+10FFFF (Unicode
 * 15.0, table 3-7). bytes ≥ 1: how much may be read. A NUL byte is a sequence of length 1. */
size_t ssm__utf8_length(const char *text, size_t bytes);
/* Is all of a terminated text well-formed? */
bool ssm__is_utf8(const char *text);
/* A copy, for free(), in which bytes that are not UTF-8, as paths may have, are \xNN: what JSON can
 * hold. NULL: no memory. */
char *ssm__utf8_printable(const char *text);

#endif
