/* tokenizer/unicode_forms.c: decomposition, ordering of marks, composition.
 *
 * Almost all text is composed already. A character without SSM__CHAR_UNSAFE neither changes nor
 * joins what stands before it, so for NFC the text falls into independent stretches that begin at
 * safe characters; only stretches that hold an unsafe character are decomposed, ordered and
 * composed. The other forms only pass over ASCII. */
#include "tokenizer/unicode_forms.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/error.h"
#include "tokenizer/growable.h"

static int combining_class(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* Canonical ordering is a stable sort of each run of non-starters by combining class. Merge sort,
 * because a run may be as long as the text. */
static void order_run(int32_t *run, int32_t *scratch, size_t count)
{
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t from = 0; from + width < count; from += 2 * width) {
            size_t middle = from + width;
            size_t end = middle + width < count ? middle + width : count;
            if (combining_class(run[middle - 1]) <= combining_class(run[middle])) {
                continue;
            }
            memcpy(scratch, run + from, width * sizeof *run);
            size_t left = 0;
            size_t right = middle;
            size_t to = from;
            while (left < width) {
                bool take_right =
                    right < end && combining_class(run[right]) < combining_class(scratch[left]);
                run[to++] = take_right ? run[right++] : scratch[left++];
            }
        }
    }
}

static ssm_status order_marks(ssm__code_points *points, ssm_error *err)
{
    for (size_t i = 0; i < points->count;) {
        if (combining_class(points->data[i]) == 0) {
            i++;
            continue;
        }
        size_t end = i + 1;
        while (end < points->count && combining_class(points->data[end]) != 0) {
            end++;
        }
        if (end - i > 1) {
            void *merge = points->merge;
            SSM__TRY(ssm__grow(&merge, &points->merge_capacity, end - i, sizeof *points->merge,
                               "normalisation", err));
            points->merge = merge;
            order_run(points->data + i, points->merge, end - i);
        }
        i = end;
    }
    return SSM_STATUS_OK;
}

static ssm_status decompose(const unsigned char *text, size_t bytes, bool compatible,
                            ssm__code_points *points, ssm_error *err)
{
    enum { LONGEST = 32 }; /* no decomposition is longer than 18 characters */
    const int options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    points->count = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t c;
        at += ssm__utf8_read(text + at, &c);
        if (points->count + LONGEST > points->capacity) {
            void *data = points->data;
            SSM__TRY(ssm__grow(&data, &points->capacity, points->count + LONGEST,
                               sizeof *points->data, "normalisation", err));
            points->data = data;
        }
        int boundary = 0;
        utf8proc_ssize_t count =
            utf8proc_decompose_char((utf8proc_int32_t)c, points->data + points->count, LONGEST,
                                    (utf8proc_option_t)options, &boundary);
        points->count += (size_t)count;
    }
    return SSM_STATUS_OK;
}

/* Appends the form of text to *out. */
static ssm_status convert(ssm__unicode_form form, const unsigned char *text, size_t bytes,
                          ssm__code_points *points, ssm_text *out, ssm_error *err)
{
    bool compatible = form == SSM__FORM_NFKC || form == SSM__FORM_NFKD;
    SSM__TRY(decompose(text, bytes, compatible, points, err));
    SSM__TRY(order_marks(points, err));
    utf8proc_ssize_t count = (utf8proc_ssize_t)points->count;
    if (form == SSM__FORM_NFC || form == SSM__FORM_NFKC) {
        count = utf8proc_normalize_utf32(points->data, count,
                                         (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    }
    SSM__TRY(ssm__text_reserve(out, 4 * points->count, err));
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        unsigned char *to = (unsigned char *)out->data + out->bytes;
        out->bytes += ssm__utf8_write((uint32_t)points->data[i], to);
    }
    return SSM_STATUS_OK;
}

/* The first unsafe character at or behind `at`, or `bytes`; *safe: the start of the last character
 * before it, or its own start where there is none. */
static size_t next_unsafe(const ssm__unicode *unicode, const unsigned char *text, size_t bytes,
                          size_t at, size_t *safe)
{
    size_t before = at;
    while (at < bytes) {
        if (text[at] < 0x80) {
            before = at++;
            continue;
        }
        uint32_t c;
        size_t length = ssm__utf8_read(text + at, &c);
        if (ssm__char_class(unicode, c) & SSM__CHAR_UNSAFE) {
            *safe = before;
            return at;
        }
        before = at;
        at += length;
    }
    *safe = bytes;
    return bytes;
}

/* The first safe character at or behind `at`, or `bytes`. */
static size_t next_safe(const ssm__unicode *unicode, const unsigned char *text, size_t bytes,
                        size_t at)
{
    while (at < bytes) {
        uint32_t c;
        size_t length = ssm__utf8_read(text + at, &c);
        if (!(ssm__char_class(unicode, c) & SSM__CHAR_UNSAFE)) {
            break;
        }
        at += length;
    }
    return at;
}

static ssm_status nfc(const ssm__unicode *unicode, const unsigned char *text, size_t bytes,
                      size_t stretch, size_t unsafe, ssm__code_points *points, ssm_text *out,
                      ssm_error *err)
{
    size_t copied = 0;
    while (unsafe < bytes) {
        size_t end = next_safe(unicode, text, bytes, unsafe);
        SSM__TRY(ssm__text_append(out, text + copied, stretch - copied, err));
        SSM__TRY(convert(SSM__FORM_NFC, text + stretch, end - stretch, points, out, err));
        copied = end;
        unsafe = next_unsafe(unicode, text, bytes, end, &stretch);
    }
    return ssm__text_append(out, text + copied, bytes - copied, err);
}

static bool is_ascii(const unsigned char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] >= 0x80) {
            return false;
        }
    }
    return true;
}

ssm_status ssm__unicode_form_write(ssm__unicode_form form, const ssm__unicode *unicode,
                                   const unsigned char *text, size_t bytes,
                                   ssm__code_points *points, ssm_text *out, bool *same,
                                   ssm_error *err)
{
    out->bytes = 0;
    if (form != SSM__FORM_NFC) {
        *same = is_ascii(text, bytes);
        return *same ? SSM_STATUS_OK : convert(form, text, bytes, points, out, err);
    }
    size_t stretch;
    size_t unsafe = next_unsafe(unicode, text, bytes, 0, &stretch);
    *same = unsafe == bytes;
    return *same ? SSM_STATUS_OK : nfc(unicode, text, bytes, stretch, unsafe, points, out, err);
}

void ssm__code_points_free(ssm__code_points *points)
{
    free(points->data);
    free(points->merge);
    *points = (ssm__code_points){0};
}
