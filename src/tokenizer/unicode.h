/* tokenizer/unicode.h: UTF-8 and the character classes that the pipeline asks for.
 *
 * The classes come from utf8proc's tables (one Unicode version for categories and for NFC) and are
 * laid out as one byte a code point, because the pre-tokenizer asks once for every character. */
#ifndef SSM_TOKENIZER_UNICODE_H
#define SSM_TOKENIZER_UNICODE_H

#include <ssmscope/base.h>

enum {
    SSM__CHAR_LETTER = 1,       /* general category L*, \p{L} */
    SSM__CHAR_NUMBER = 2,       /* general category N*, \p{N} */
    SSM__CHAR_SPACE = 4,        /* property White_Space, \s */
    SSM__CHAR_WORD = 8,         /* Alphabetic, M*, Nd, Pc, Join_Control: \w of UTS 18 */
    SSM__CHAR_PUNCTUATION = 64, /* general category P*, or ASCII that is no letter or digit */
    SSM__CHAR_UNSAFE = 16,      /* NFC may change it, or join it to what stands before it */

    SSM__CLASS_TABLE = 0x30000, /* code points with a table entry; the rest is computed */
    SSM__REPLACEMENT = 0xFFFD
};

typedef struct ssm__unicode {
    uint8_t *classes; /* SSM__CLASS_TABLE entries */
} ssm__unicode;

/* Builds the table (a millisecond). Errors: MEMORY. Owner: the caller, ssm__unicode_free. */
ssm_status ssm__unicode_create(ssm__unicode *unicode, ssm_error *err);
void ssm__unicode_free(ssm__unicode *unicode);
/* The class of a code point outside the table. */
uint8_t ssm__char_class_far(uint32_t code_point);

static inline uint8_t ssm__char_class(const ssm__unicode *unicode, uint32_t code_point)
{
    return code_point < SSM__CLASS_TABLE ? unicode->classes[code_point]
                                         : ssm__char_class_far(code_point);
}

/* Reads one character of valid UTF-8; returns its length in bytes. */
static inline size_t ssm__utf8_read(const unsigned char *text, uint32_t *code_point)
{
    uint32_t lead = text[0];
    if (lead < 0x80) {
        *code_point = lead;
        return 1;
    }
    if (lead < 0xE0) {
        *code_point = (lead & 0x1F) << 6 | (text[1] & 0x3Fu);
        return 2;
    }
    if (lead < 0xF0) {
        *code_point = (lead & 0x0F) << 12 | (text[1] & 0x3Fu) << 6 | (text[2] & 0x3Fu);
        return 3;
    }
    *code_point =
        (lead & 0x07) << 18 | (text[1] & 0x3Fu) << 12 | (text[2] & 0x3Fu) << 6 | (text[3] & 0x3Fu);
    return 4;
}

/* Writes a scalar value; returns its length, 1 to 4. */
size_t ssm__utf8_write(uint32_t code_point, unsigned char out[4]);

/* The start of the character that ends before `end`, in valid UTF-8; end ≥ 1. */
static inline size_t ssm__utf8_back(const unsigned char *text, size_t end)
{
    size_t start = end - 1;
    while (start > 0 && (text[start] & 0xC0) == 0x80) {
        start--;
    }
    return start;
}

typedef enum ssm__utf8_kind {
    SSM__UTF8_VALID,     /* a whole character */
    SSM__UTF8_INVALID,   /* a maximal subpart that begins no character: one U+FFFD */
    SSM__UTF8_INCOMPLETE /* the beginning of a character, cut off by the end of the text */
} ssm__utf8_kind;

/* Classifies what begins at text (bytes ≥ 1) after table 3-7 of the Unicode Standard. *length: the
 * bytes that belong together, as in Python's errors="replace" and Rust's from_utf8_lossy. */
ssm__utf8_kind ssm__utf8_scan(const unsigned char *text, size_t bytes, size_t *length);

/* The length of the longest valid prefix; `bytes` when all is valid. */
size_t ssm__utf8_valid(const unsigned char *text, size_t bytes);

#endif
