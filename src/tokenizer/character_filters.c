/* tokenizer/character_filters.c: what becomes of each character. */
#include "tokenizer/character_filters.h"

#include <utf8proc.h>

static size_t keep(uint32_t c, uint32_t *out)
{
    out[0] = c;
    return 1;
}

/* The full lower case mapping (SpecialCasing.txt) without context: one character, but for İ. */
static size_t lowercase(const ssm__unicode *unicode, uint32_t c, uint32_t *out)
{
    (void)unicode;
    if (c == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    return keep((uint32_t)utf8proc_tolower((utf8proc_int32_t)c), out);
}

static size_t strip_marks(const ssm__unicode *unicode, uint32_t c, uint32_t *out)
{
    (void)unicode;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    bool mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                category == UTF8PROC_CATEGORY_ME;
    return mark ? 0 : keep(c, out);
}

static size_t strip_nonspacing(const ssm__unicode *unicode, uint32_t c, uint32_t *out)
{
    (void)unicode;
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_MN ? 0 : keep(c, out);
}

/* The normalisation rules of neural machine translation in SentencePiece, without its NFKC. */
static size_t nmt(const ssm__unicode *unicode, uint32_t c, uint32_t *out)
{
    (void)unicode;
    if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
        c == 0x8F || c == 0x9F) {
        return 0;
    }
    bool blank = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                 (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                 c == 0xFEFF || c == 0xFFFD;
    return keep(blank ? ' ' : c, out);
}

/* clean_text: controls, formats and private use go, white space becomes a blank. Unassigned
 * characters stay, as in tokenizers, whatever its comment says. */
static size_t clean(const ssm__unicode *unicode, uint32_t c, uint32_t *out)
{
    if (c == 0 || c == 0xFFFD) {
        return 0;
    }
    if (c == '\t' || c == '\n' || c == '\r') {
        return keep(' ', out);
    }
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
        return 0;
    default:
        return keep(ssm__char_class(unicode, c) & SSM__CHAR_SPACE ? ' ' : c, out);
    }
}

/* The blocks of BERT's tokenization.py; one of them begins at 2B920 there where the block begins
 * at 2B820, and tokenizers keeps it. */
static size_t space_cjk(const ssm__unicode *unicode, uint32_t c, uint32_t *out)
{
    (void)unicode;
    bool ideograph = (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
                     (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
                     (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
                     (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
    if (!ideograph) {
        return keep(c, out);
    }
    out[0] = ' ';
    out[1] = c;
    out[2] = ' ';
    return 3;
}

ssm__character_filter *ssm__character_filter_of(ssm__normalizer_kind kind)
{
    switch (kind) {
    case SSM__NORMALIZER_LOWERCASE:
        return lowercase;
    case SSM__NORMALIZER_STRIP_MARKS:
        return strip_marks;
    case SSM__NORMALIZER_STRIP_NONSPACING:
        return strip_nonspacing;
    case SSM__NORMALIZER_NMT:
        return nmt;
    case SSM__NORMALIZER_CLEAN:
        return clean;
    default:
        return space_cjk;
    }
}
