/* tokenizer/pattern_translate.c: Oniguruma (Ruby syntax) to PCRE2.
 *
 * tokenizer.json is written for Oniguruma. The two agree on most of what tokenizers use; they
 * differ silently on \s (PCRE2 counts U+180E as white space), \w, \h, \v, {,n}, x{n}+, set
 * intersection and options in the middle. The first three are spelled out, the others refused.
 * Outside of what is listed here nothing passes. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/fields.h"
#include "tokenizer/growable.h"
#include "tokenizer/split_pattern.h"

#define SPACE_SET                                                                                  \
    "\\t-\\r "                                                                                     \
    "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define WORD_SET                                                                                   \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-"         \
    "\\x{1F169}\\x{1F170}-\\x{1F189}"

typedef struct translator {
    ssm__pattern_place place;
    const char *text;
    size_t bytes;
    size_t at;
    ssm_text *out;
    ssm_error *err;
} translator;

static ssm_status refuse(const translator *t, const char *what)
{
    return ssm__fail_field(t->place.path, t->place.where, t->err,
                           "%s: %s at byte %zu of the pattern is not supported", t->place.type,
                           what, t->at);
}

static ssm_status put(const translator *t, const char *text)
{
    return ssm__text_append(t->out, text, strlen(text), t->err);
}

static bool has(const translator *t, const char *text)
{
    size_t length = strlen(text);
    return t->bytes - t->at >= length && memcmp(t->text + t->at, text, length) == 0;
}

/* Copies `count` bytes of the expression. */
static ssm_status copy(translator *t, size_t count)
{
    SSM__TRY(ssm__text_append(t->out, t->text + t->at, count, t->err));
    t->at += count;
    return SSM_STATUS_OK;
}

/* \p{Name}, \P{Name}, \x{hex}: copied with their braces. */
static ssm_status braced(translator *t)
{
    const char *close = memchr(t->text + t->at, '}', t->bytes - t->at);
    if (t->bytes - t->at < 3 || t->text[t->at + 2] != '{' || close == NULL) {
        return refuse(t, "an escape without {…}");
    }
    return copy(t, (size_t)(close - t->text) + 1 - t->at);
}

static ssm_status class_escape(translator *t, const char *set, bool negated, bool in_set)
{
    if (in_set && t->text[t->at - 1] == '-' && t->text[t->at - 2] != '\\') {
        return refuse(t, "a class behind a hyphen");
    }
    if (in_set && negated) {
        /* \S in a set: PCRE2's own, and the one character it leaves out. */
        if (t->text[t->at + 1] != 'S') {
            return refuse(t, "\\W in a set");
        }
        SSM__TRY(put(t, "\\S\\x{180E}"));
    } else {
        SSM__TRY(put(t, in_set ? "" : negated ? "[^" : "["));
        SSM__TRY(put(t, set));
        SSM__TRY(put(t, in_set ? "" : "]"));
    }
    t->at += 2;
    if (in_set && has(t, "-")) {
        t->at++;
        return put(t, "\\-"); /* behind a class a hyphen is itself, behind its spelling a range */
    }
    return SSM_STATUS_OK;
}

static ssm_status escape(translator *t, bool in_set)
{
    if (t->at + 1 >= t->bytes) {
        return refuse(t, "a backslash at the end");
    }
    char c = t->text[t->at + 1];
    switch (c) {
    case 's':
    case 'S':
        return class_escape(t, SPACE_SET, c == 'S', in_set);
    case 'w':
    case 'W':
        return class_escape(t, WORD_SET, c == 'W', in_set);
    case 'p':
    case 'P':
    case 'x':
        return braced(t);
    case 'd':
    case 'D':
    case 't':
    case 'r':
    case 'n':
    case 'f':
        return copy(t, 2);
    case 'v': /* Oniguruma: U+000B alone */
        t->at += 2;
        return put(t, "\\x{0B}");
    case 'A':
    case 'z':
        return in_set ? refuse(t, "an anchor in a set") : copy(t, 2);
    default:
        break;
    }
    bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (alphanumeric || (c & 0x80)) {
        char name[] = {'t', 'h', 'e', ' ', 'e', 's', 'c', 'a', 'p', 'e', ' ', '\\', c, '\0'};
        return refuse(t, (c & 0x80) ? "an escaped character outside ASCII" : name);
    }
    return copy(t, 2);
}

/* A set [...]; t->at is at its bracket. */
static ssm_status set(translator *t)
{
    SSM__TRY(copy(t, 1));
    if (has(t, "^")) {
        SSM__TRY(copy(t, 1));
    }
    if (has(t, "]")) {
        return refuse(t, "an empty set");
    }
    while (t->at < t->bytes && t->text[t->at] != ']') {
        if (t->text[t->at] == '\\') {
            SSM__TRY(escape(t, true));
        } else if (t->text[t->at] == '[') {
            return refuse(t, "a set in a set");
        } else if (has(t, "&&")) {
            return refuse(t, "the intersection of sets");
        } else {
            SSM__TRY(copy(t, 1));
        }
    }
    return t->at < t->bytes ? copy(t, 1) : refuse(t, "a set without its end");
}

/* What follows "(": nothing, or one of the groups that both read alike. */
static ssm_status group(translator *t)
{
    static const char *const known[] = {"(?:", "(?=",  "(?!",   "(?<=", "(?<!",
                                        "(?>", "(?i:", "(?-i:", NULL};
    if (t->at == 0 && has(t, "(?i)")) {
        return copy(t, 4); /* further in, Ruby lets it reach over "|" */
    }
    for (int i = 0; known[i] != NULL; i++) {
        if (has(t, known[i])) {
            return copy(t, strlen(known[i]));
        }
    }
    if (has(t, "(?") || has(t, "(*")) {
        return refuse(t, "this kind of group");
    }
    return copy(t, 1);
}

/* {n}, {n,}, {n,m}: Oniguruma reads {,m} as {0,m} and a plus behind the brace as a repetition. */
static ssm_status interval(translator *t)
{
    size_t end = t->at + 1;
    size_t digits = 0;
    size_t commas = 0;
    while (end < t->bytes &&
           (t->text[end] == ',' || (t->text[end] >= '0' && t->text[end] <= '9'))) {
        commas += t->text[end] == ',';
        digits += t->text[end] != ',' && commas == 0;
        end++;
    }
    if (end == t->bytes || t->text[end] != '}' || digits == 0 || commas > 1) {
        return refuse(t, "a brace that is no {n}, {n,} or {n,m}");
    }
    SSM__TRY(copy(t, end + 1 - t->at));
    if (has(t, "+") || (has(t, "?") && commas == 0)) {
        return refuse(t, "a second quantifier behind {…}");
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__pattern_translate(ssm__pattern_place place, const char *text, size_t bytes,
                                  ssm_text *out, ssm_error *err)
{
    translator t = {place, text, bytes, 0, out, err};
    SSM__TRY(put(&t, ""));
    while (t.at < bytes) {
        switch (text[t.at]) {
        case '\\':
            SSM__TRY(escape(&t, false));
            break;
        case '[':
            SSM__TRY(set(&t));
            break;
        case '(':
            SSM__TRY(group(&t));
            break;
        case '{':
            SSM__TRY(interval(&t));
            break;
        default:
            SSM__TRY(copy(&t, 1));
            break;
        }
    }
    return SSM_STATUS_OK;
}
