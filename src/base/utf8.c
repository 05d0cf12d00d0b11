/* base/utf8.c: telling well-formed UTF-8 from the rest. */
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_between(const unsigned char byte, unsigned low, unsigned high)
{
    return byte >= low && byte <= high;
}

size_t ssm__utf8_length(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80) {
        return 1;
    }
    size_t length = is_between(at[0], 0xC2, 0xDF)   ? 2
                    : is_between(at[0], 0xE0, 0xEF) ? 3
                    : is_between(at[0], 0xF0, 0xF4) ? 4
                                                    : 0;
    if (length == 0 || bytes < length) {
        return 0;
    }
    /* Only the second byte has a range of its own: it excludes overlong forms, surrogates and what
     * lies above U+10FFFF. */
    unsigned low = at[0] == 0xE0 ? 0xA0 : at[0] == 0xF0 ? 0x90 : 0x80;
    unsigned high = at[0] == 0xED ? 0x9F : at[0] == 0xF4 ? 0x8F : 0xBF;
    if (!is_between(at[1], low, high)) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if (!is_between(at[i], 0x80, 0xBF)) {
            return 0;
        }
    }
    return length;
}

bool ssm__is_utf8(const char *text)
{
    size_t bytes = strlen(text);
    for (size_t at = 0; at < bytes;) {
        size_t length = ssm__utf8_length(text + at, bytes - at);
        if (length == 0) {
            return false;
        }
        at += length;
    }
    return true;
}

char *ssm__utf8_printable(const char *text)
{
    const size_t bytes = strlen(text);
    char *out = malloc(4 * bytes + 1);
    size_t to = 0;
    for (size_t at = 0; out && at < bytes;) {
        const size_t length = ssm__utf8_length(text + at, bytes - at);
        if (length > 0) {
            memcpy(out + to, text + at, length);
        } else {
            snprintf(out + to, 5, "\\x%02x", (unsigned)(unsigned char)text[at]);
        }
        to += length > 0 ? length : 4;
        at += length > 0 ? length : 1;
    }
    if (out) {
        out[to] = '\0';
    }
    return out;
}
