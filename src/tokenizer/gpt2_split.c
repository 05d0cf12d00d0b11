/* tokenizer/gpt2_split.c: the GPT-2 pattern, one alternative after the other. */
#include "tokenizer/gpt2_split.h"

#include <string.h>

enum { KIND = SSM__CHAR_LETTER | SSM__CHAR_NUMBER | SSM__CHAR_SPACE }; /* none of them: other */

/* The kind of the character at text, and its length. */
static inline unsigned kind_at(const ssm__unicode *unicode, const unsigned char *text,
                               size_t *length)
{
    uint32_t c;
    *length = ssm__utf8_read(text, &c);
    return ssm__char_class(unicode, c) & KIND;
}

/* The end of the run of characters of one kind that holds at `at`. */
static size_t run_end(const ssm__unicode *unicode, const unsigned char *text, size_t bytes,
                      size_t at, unsigned kind)
{
    const uint8_t *classes = unicode->classes;
    while (at < bytes) {
        if (text[at] < 0x80) {
            if ((classes[text[at]] & KIND) != kind) {
                break;
            }
            at++;
            continue;
        }
        size_t length;
        if (kind_at(unicode, text + at, &length) != kind) {
            break;
        }
        at += length;
    }
    return at;
}

/* 's|'t|'re|'ve|'m|'ll|'d, or 0. text begins with an apostrophe. */
static size_t contraction(const unsigned char *text, size_t bytes)
{
    if (bytes >= 2 && memchr("stmd", text[1], 4) != NULL) {
        return 2;
    }
    if (bytes >= 3 && ((text[1] == 'r' && text[2] == 'e') || (text[1] == 'v' && text[2] == 'e') ||
                       (text[1] == 'l' && text[2] == 'l'))) {
        return 3;
    }
    return 0;
}

/* \s+(?!\S)|\s+ : a run of white space leaves its last character to what follows, unless it is the
 * only one or nothing follows. */
static size_t white_space(const ssm__unicode *unicode, const unsigned char *text, size_t bytes)
{
    size_t end = run_end(unicode, text, bytes, 0, SSM__CHAR_SPACE);
    if (end == bytes) {
        return end;
    }
    size_t last = ssm__utf8_back(text, end);
    return last > 0 ? last : end;
}

size_t ssm__gpt2_match(const ssm__unicode *unicode, const unsigned char *text, size_t bytes)
{
    if (text[0] == '\'') {
        size_t length = contraction(text, bytes);
        if (length > 0) {
            return length;
        }
    }
    size_t first;
    unsigned kind = kind_at(unicode, text, &first);
    if (text[0] == ' ' && bytes > 1) {
        size_t second;
        unsigned next = kind_at(unicode, text + 1, &second);
        if (next != SSM__CHAR_SPACE) {
            return run_end(unicode, text, bytes, 1 + second, next);
        }
    }
    if (kind == SSM__CHAR_SPACE) {
        return white_space(unicode, text, bytes);
    }
    return run_end(unicode, text, bytes, first, kind);
}
