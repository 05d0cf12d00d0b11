/* tokenizer/byte_level.c: bytes to characters and back. */
#include "tokenizer/byte_level.h"

#include "tokenizer/unicode.h"

static bool is_printable(unsigned c)
{
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

uint32_t ssm__byte_to_char(unsigned char byte)
{
    uint32_t b = byte;
    if (is_printable(b)) {
        return b;
    }
    /* The n-th byte that is not printable: 00-20 are n = 0 … 32, 7F-A0 follow, then AD. */
    if (b <= 0x20) {
        return 0x100 + b;
    }
    if (b <= 0xA0) {
        return 0x100 + 33 + (b - 0x7F);
    }
    return 0x100 + 67;
}

int ssm__char_to_byte(uint32_t c)
{
    if (c < 0x100) {
        return is_printable(c) ? (int)c : -1;
    }
    if (c <= 0x120) {
        return (int)(c - 0x100);
    }
    if (c <= 0x142) {
        return (int)(c - 0x121 + 0x7F);
    }
    return c == 0x143 ? 0xAD : -1;
}

size_t ssm__bytes_to_chars(const unsigned char *text, size_t bytes, unsigned char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < bytes; i++) {
        written += ssm__utf8_write(ssm__byte_to_char(text[i]), out + written);
    }
    return written;
}

bool ssm__chars_to_bytes(const unsigned char *text, size_t bytes, unsigned char *out,
                         size_t *written)
{
    size_t count = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t code_point;
        at += ssm__utf8_read(text + at, &code_point);
        int byte = ssm__char_to_byte(code_point);
        if (byte < 0) {
            return false;
        }
        out[count++] = (unsigned char)byte;
    }
    *written = count;
    return true;
}
