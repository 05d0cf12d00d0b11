/* tokenizer/unicode.c: class table, UTF-8 reading and checking. */
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/error.h"

/* Unicode property White_Space (PropList.txt), which is what \s means to Oniguruma and to Rust. */
static bool is_white_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

/* Other_Alphabetic outside the categories L, M, N: the circled and squared Latin letters. */
static bool is_alphabetic_symbol(uint32_t c)
{
    return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

/* Punctuation since Unicode 9, which the tables of tokenizers (Unicode 8) do not have. */
static const uint32_t new_punctuation[][2] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},
    {0xC84, 0xC84},     {0x1B7D, 0x1B7E},   {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},
    {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59}, {0x10F86, 0x10F89}, {0x1144B, 0x1144F},
    {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9},
    {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
    {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11C41, 0x11C45},
    {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF},
    {0x12FF1, 0x12FF2}, {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2}, {0x1E95E, 0x1E95F}};

static bool is_new_punctuation(uint32_t c)
{
    size_t low = 0;
    size_t high = sizeof new_punctuation / sizeof new_punctuation[0];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (new_punctuation[middle][1] < c) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < sizeof new_punctuation / sizeof new_punctuation[0] && new_punctuation[low][0] <= c;
}

/* The ASCII symbols ($ + < = > ^ ` | ~) count as punctuation, as in Rust's is_ascii_punctuation. */
static uint8_t punctuation_class(uint32_t c)
{
    if (c < 0x80) {
        bool other = (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) ||
                     (c >= 0x5B && c <= 0x60) || (c >= 0x7B && c <= 0x7E);
        return other ? SSM__CHAR_PUNCTUATION : 0;
    }
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    bool punctuation = category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
    /* U+166D and U+111C9 were punctuation until Unicode 12 and 11. */
    return c == 0x166D || c == 0x111C9 || (punctuation && !is_new_punctuation(c))
               ? SSM__CHAR_PUNCTUATION
               : 0;
}

static uint8_t category_class(uint32_t c)
{
    uint8_t bits = (uint8_t)((is_white_space(c) ? SSM__CHAR_SPACE : 0) | punctuation_class(c));
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return (uint8_t)(bits | SSM__CHAR_LETTER | SSM__CHAR_WORD);
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
        return (uint8_t)(bits | SSM__CHAR_NUMBER | SSM__CHAR_WORD);
    case UTF8PROC_CATEGORY_NO:
        return (uint8_t)(bits | SSM__CHAR_NUMBER);
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_PC:
        return (uint8_t)(bits | SSM__CHAR_WORD);
    default:
        if (c == 0x200C || c == 0x200D || is_alphabetic_symbol(c)) {
            bits |= SSM__CHAR_WORD;
        }
        return bits;
    }
}

/* A character is safe for NFC when it is a starter, decomposes to itself and never is the second
 * half of a composition. The latter are the last characters of full canonical decompositions, which
 * unicode_create marks, and the vowel and final jamo. */
static uint8_t normalization_class(uint32_t c)
{
    const utf8proc_property_t *property = utf8proc_get_property((utf8proc_int32_t)c);
    if (property->combining_class != 0) {
        return SSM__CHAR_UNSAFE;
    }
    if ((c >= 0x1161 && c <= 0x1175) || (c >= 0x11A8 && c <= 0x11C2)) {
        return SSM__CHAR_UNSAFE;
    }
    bool canonical = property->decomp_seqindex != UINT16_MAX && property->decomp_type == 0;
    return canonical ? SSM__CHAR_UNSAFE : 0;
}

uint8_t ssm__char_class_far(uint32_t code_point)
{
    return (uint8_t)(category_class(code_point) | normalization_class(code_point));
}

enum { SECOND_HALF = 32, LONGEST = 8 };

/* The full canonical decomposition of c, in no more than LONGEST characters (four suffice). */
static size_t decompose(uint32_t c, utf8proc_int32_t parts[LONGEST])
{
    int boundary = 0;
    utf8proc_ssize_t count =
        utf8proc_decompose_char((utf8proc_int32_t)c, parts, LONGEST, UTF8PROC_DECOMPOSE, &boundary);
    return count >= 1 && count <= LONGEST ? (size_t)count : 0;
}

/* Marks the last character of c's decomposition: it can join what stands before it. */
static void mark_second_half(uint8_t *classes, uint32_t c)
{
    utf8proc_int32_t parts[LONGEST];
    size_t count = decompose(c, parts);
    if (count >= 2 && parts[count - 1] < SSM__CLASS_TABLE) {
        classes[parts[count - 1]] |= SSM__CHAR_UNSAFE | SECOND_HALF;
    }
}

/* A composed character that NFC keeps, and that does not begin with a second half, is safe too. */
static void clear_composed(uint8_t *classes, uint32_t c)
{
    utf8proc_int32_t parts[LONGEST];
    size_t count = decompose(c, parts);
    bool joins = (classes[c] & SECOND_HALF) ||
                 utf8proc_get_property((utf8proc_int32_t)c)->combining_class != 0;
    if (count < 2 || joins || parts[0] >= SSM__CLASS_TABLE ||
        (classes[parts[0]] & SSM__CHAR_UNSAFE)) {
        return;
    }
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(
        parts, (utf8proc_ssize_t)count, (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    if (composed == 1 && parts[0] == (utf8proc_int32_t)c) {
        classes[c] &= (uint8_t)~SSM__CHAR_UNSAFE;
    }
}

/* Hangul syllables decompose by arithmetic and are safe; their jamo are marked above. */
static bool has_decomposition(const uint8_t *classes, uint32_t c)
{
    return (classes[c] & SSM__CHAR_UNSAFE) && !(c >= 0xAC00 && c <= 0xD7A3);
}

ssm_status ssm__unicode_create(ssm__unicode *unicode, ssm_error *err)
{
    uint8_t *classes = malloc(SSM__CLASS_TABLE);
    if (classes == NULL) {
        return ssm__fail_memory(err, "the table of character classes", SSM__CLASS_TABLE);
    }
    for (uint32_t c = 0; c < SSM__CLASS_TABLE; c++) {
        classes[c] = ssm__char_class_far(c);
    }
    for (uint32_t c = 0x80; c < SSM__CLASS_TABLE; c++) {
        if (has_decomposition(classes, c)) {
            mark_second_half(classes, c);
        }
    }
    for (uint32_t c = 0x80; c < SSM__CLASS_TABLE; c++) {
        if (has_decomposition(classes, c)) {
            clear_composed(classes, c);
        }
    }
    unicode->classes = classes;
    return SSM_STATUS_OK;
}

void ssm__unicode_free(ssm__unicode *unicode)
{
    free(unicode->classes);
    unicode->classes = NULL;
}

size_t ssm__utf8_write(uint32_t c, unsigned char out[4])
{
    if (c < 0x80) {
        out[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (unsigned char)(0xC0 | c >> 6);
        out[1] = (unsigned char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (unsigned char)(0xE0 | c >> 12);
        out[1] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (unsigned char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (unsigned char)(0xF0 | c >> 18);
    out[1] = (unsigned char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (unsigned char)(0x80 | (c & 0x3F));
    return 4;
}

ssm__utf8_kind ssm__utf8_scan(const unsigned char *text, size_t bytes, size_t *length)
{
    unsigned lead = text[0];
    *length = 1;
    if (lead < 0x80) {
        return SSM__UTF8_VALID;
    }
    if (lead < 0xC2 || lead > 0xF4) {
        return SSM__UTF8_INVALID;
    }
    size_t wanted = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    /* Only the second byte has a narrower range: no overlong forms, surrogates, or > U+10FFFF. */
    unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (size_t k = 1; k < wanted; k++) {
        if (k == bytes) {
            return SSM__UTF8_INCOMPLETE;
        }
        if (text[k] < low || text[k] > high) {
            return SSM__UTF8_INVALID;
        }
        low = 0x80;
        high = 0xBF;
        *length = k + 1;
    }
    return SSM__UTF8_VALID;
}

size_t ssm__utf8_valid(const unsigned char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        uint64_t eight;
        if (bytes - at >= sizeof eight) {
            memcpy(&eight, text + at, sizeof eight);
            if ((eight & UINT64_C(0x8080808080808080)) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        size_t length;
        if (ssm__utf8_scan(text + at, bytes - at, &length) != SSM__UTF8_VALID) {
            return at;
        }
        at += length;
    }
    return at;
}
