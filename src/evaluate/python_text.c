#include "evaluate/python_text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "tokenizer/growable.h"
#include "tokenizer/unicode.h"

bool ssm__python_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

/* The character at `at`; its length. */
static size_t read_at(const char *text, size_t at, uint32_t *code_point)
{
    return ssm__utf8_read((const unsigned char *)text + at, code_point);
}

size_t ssm__space_before(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        uint32_t c = 0;
        const size_t length = read_at(text, at, &c);
        if (!ssm__python_space(c)) {
            break;
        }
        at += length;
    }
    return at;
}

size_t ssm__space_after(const char *text, size_t bytes)
{
    size_t end = bytes;
    while (end > 0) {
        uint32_t c = 0;
        const size_t start = ssm__utf8_back((const unsigned char *)text, end);
        read_at(text, start, &c);
        if (!ssm__python_space(c)) {
            break;
        }
        end = start;
    }
    return bytes - end;
}

int64_t ssm__count_words(const char *text, size_t bytes)
{
    int64_t runs = 0;
    bool inside = false;
    for (size_t at = 0; at < bytes;) {
        uint32_t c = 0;
        const size_t length = ssm__utf8_length(text + at, bytes - at);
        if (length > 0) {
            read_at(text, at, &c);
        }
        at += length > 0 ? length : 1;
        const bool space = length > 0 && ssm__python_space(c);
        runs += space && !inside;
        inside = space;
    }
    return runs + 1;
}

int64_t ssm__count_characters(const char *text)
{
    int64_t count = 0;
    for (; *text != '\0'; text++) {
        count += ((unsigned char)*text & 0xC0) != 0x80;
    }
    return count;
}

ssm_status ssm__text_replace(ssm_text *text, const char *from, const char *to, ssm_error *err)
{
    const size_t length = strlen(from);
    ssm_text out = {0};
    ssm_status status = ssm__text_append(&out, "", 0, err);
    size_t at = 0;
    while (status == SSM_STATUS_OK && at < text->bytes) {
        const char *found = memmem(text->data + at, text->bytes - at, from, length);
        const size_t end = found ? (size_t)(found - text->data) : text->bytes;
        status = ssm__text_append(&out, text->data + at, end - at, err);
        if (found && status == SSM_STATUS_OK) {
            status = ssm__text_append(&out, to, strlen(to), err);
        }
        at = end + (found ? length : 0);
    }
    if (status != SSM_STATUS_OK) {
        ssm_text_free(&out);
        return status;
    }
    ssm_text_free(text);
    *text = out;
    return SSM_STATUS_OK;
}

ssm_status ssm__text_capitalize(ssm_text *out, const char *text, ssm_error *err)
{
    const size_t bytes = strlen(text);
    ssm_status status = ssm__text_append(out, "", 0, err);
    for (size_t at = 0; at < bytes && status == SSM_STATUS_OK;) {
        uint32_t c = 0;
        const bool first = at == 0;
        at += read_at(text, at, &c);
        const utf8proc_int32_t changed =
            first ? utf8proc_totitle((utf8proc_int32_t)c) : utf8proc_tolower((utf8proc_int32_t)c);
        unsigned char buffer[4];
        const size_t length = ssm__utf8_write((uint32_t)changed, buffer);
        status = ssm__text_append(out, buffer, length, err);
    }
    return status;
}

ssm_status ssm__text_join(ssm_text *out, ssm_error *err, ...)
{
    va_list parts;
    va_start(parts, err);
    ssm_status status = ssm__text_append(out, "", 0, err);
    for (const char *part = va_arg(parts, const char *); part && status == SSM_STATUS_OK;
         part = va_arg(parts, const char *)) {
        status = ssm__text_append(out, part, strlen(part), err);
    }
    va_end(parts);
    return status;
}
