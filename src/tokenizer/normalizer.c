/* tokenizer/normalizer.c: NFC (Unicode Standard Annex 15).
 *
 * Almost all text is composed already. A character without SSM__CHAR_UNSAFE neither changes nor
 * joins what stands before it, so the text falls into independent stretches that begin at safe
 * characters; only stretches that hold an unsafe character are decomposed, ordered and composed. */
#include "tokenizer/normalizer.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/error.h"
#include "tokenizer/fields.h"
#include "tokenizer/growable.h"

typedef struct code_points {
    utf8proc_int32_t *data;
    size_t count;
    size_t capacity;
    utf8proc_int32_t *merge; /* scratch of the ordering */
    size_t merge_capacity;
} code_points;

static int combining_class(utf8proc_int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* Canonical ordering is a stable sort of each run of non-starters by combining class. Merge sort,
 * because a run may be as long as the text. */
static void order_run(utf8proc_int32_t *run, utf8proc_int32_t *scratch, size_t count)
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

static ssm_status order_marks(code_points *points, ssm_error *err)
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

static ssm_status decompose(const unsigned char *text, size_t bytes, code_points *points,
                            ssm_error *err)
{
    enum { LONGEST = 8 }; /* no canonical decomposition is longer than four characters */
    points->count = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t c;
        at += ssm__utf8_read(text + at, &c);
        void *data = points->data;
        SSM__TRY(ssm__grow(&data, &points->capacity, points->count + LONGEST, sizeof *points->data,
                           "normalisation", err));
        points->data = data;
        int boundary = 0;
        utf8proc_ssize_t count =
            utf8proc_decompose_char((utf8proc_int32_t)c, points->data + points->count, LONGEST,
                                    UTF8PROC_DECOMPOSE, &boundary);
        points->count += (size_t)count;
    }
    return SSM_STATUS_OK;
}

/* Appends NFC(text) to *out. */
static ssm_status compose(const unsigned char *text, size_t bytes, code_points *points,
                          ssm_text *out, ssm_error *err)
{
    SSM__TRY(decompose(text, bytes, points, err));
    SSM__TRY(order_marks(points, err));
    utf8proc_ssize_t count =
        utf8proc_normalize_utf32(points->data, (utf8proc_ssize_t)points->count,
                                 (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
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
                      size_t stretch, size_t unsafe, code_points *points, ssm_text *out,
                      ssm_error *err)
{
    size_t copied = 0;
    while (unsafe < bytes) {
        size_t end = next_safe(unicode, text, bytes, unsafe);
        SSM__TRY(ssm__text_append(out, text + copied, stretch - copied, err));
        SSM__TRY(compose(text + stretch, end - stretch, points, out, err));
        copied = end;
        unsafe = next_unsafe(unicode, text, bytes, end, &stretch);
    }
    return ssm__text_append(out, text + copied, bytes - copied, err);
}

ssm_status ssm__normalize(const ssm__normalizer *normalizer, const ssm__unicode *unicode,
                          const char *text, size_t bytes, ssm_text *buffer, const char **out,
                          size_t *out_bytes, ssm_error *err)
{
    const unsigned char *raw = (const unsigned char *)text;
    size_t stretch;
    size_t unsafe = bytes;
    if (normalizer->nfc) {
        unsafe = next_unsafe(unicode, raw, bytes, 0, &stretch);
    }
    if (unsafe == bytes) {
        *out = text;
        *out_bytes = bytes;
        return SSM_STATUS_OK;
    }
    code_points points = {0};
    buffer->bytes = 0;
    ssm_status status = nfc(unicode, raw, bytes, stretch, unsafe, &points, buffer, err);
    free(points.data);
    free(points.merge);
    *out = buffer->data;
    *out_bytes = buffer->bytes;
    return status;
}

static ssm_status parse_at(const char *path, const char *where, const json_t *spec, int depth,
                           ssm__normalizer *out, ssm_error *err)
{
    const char *type;
    SSM__TRY(ssm__field_type(path, where, spec, &type, err));
    if (strcmp(type, "NFC") == 0) {
        out->nfc = true;
        return ssm__fields_known(path, where, spec, (const char *const[]){"type", NULL}, err);
    }
    if (strcmp(type, "Sequence") != 0) {
        return ssm__fail_unsupported(path, where, type, err);
    }
    SSM__TRY(ssm__fields_known(path, where, spec,
                               (const char *const[]){"type", "normalizers", NULL}, err));
    const json_t *stages;
    SSM__TRY(ssm__field_stages(path, where, spec, "normalizers", depth, &stages, err));
    for (size_t i = 0; i < json_array_size(stages); i++) {
        SSM__TRY(parse_at(path, where, json_array_get(stages, i), depth + 1, out, err));
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__normalizer_parse(const char *path, const json_t *spec, ssm__normalizer *out,
                                 ssm_error *err)
{
    out->nfc = false;
    if (spec == NULL || json_is_null(spec)) {
        return SSM_STATUS_OK;
    }
    return parse_at(path, "normalizer", spec, 0, out, err);
}
