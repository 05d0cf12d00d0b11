/* tokenizer/normalizer.c: running the stages, each over what the last one made. */
#include "tokenizer/normalizer.h"

#include <string.h>
#include <utf8proc.h>

#include "base/error.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/character_filters.h"
#include "tokenizer/growable.h"

ssm_status ssm__normalizer_run_create(const ssm__normalizer *normalizer,
                                      const ssm__unicode *unicode, ssm__normalizer_run *run,
                                      ssm_error *err)
{
    run->normalizer = normalizer;
    run->unicode = unicode;
    for (int i = 0; i < normalizer->count; i++) {
        if (normalizer->stages[i].pattern != NULL) {
            SSM__TRY(
                ssm__pattern_run_create(normalizer->stages[i].pattern, &run->patterns[i], err));
        }
    }
    return SSM_STATUS_OK;
}

void ssm__normalizer_run_free(ssm__normalizer_run *run)
{
    for (int i = 0; i < SSM__NORMALIZER_STAGES; i++) {
        ssm__pattern_run_free(run->patterns[i]);
    }
    ssm_text_free(&run->buffers[0]);
    ssm_text_free(&run->buffers[1]);
    ssm__code_points_free(&run->points);
    *run = (ssm__normalizer_run){0};
}

/* Stages that put in more than they take out multiply; no tokenizer's reach this. The most that
 * text of one byte becomes in Unicode's forms is 11, and 3 more for bytes as characters. */
enum { GROWTH_MOST = 256, GROWTH_FREE = 1024 * 1024 };

static ssm_status check_growth(const ssm_text *out, size_t most, ssm_error *err)
{
    if (out->bytes <= most) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(
        err, SSM_STATUS_FAILED, SSM__NOWHERE,
        "the normalizer of tokenizer.json makes more than %zu bytes of a piece of text "
        "(%d times its own, and 1 MiB): look at its Replace and Prepend stages",
        most, GROWTH_MOST);
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* A text between two stages. */
typedef struct view {
    const unsigned char *text;
    size_t bytes;
    bool keeps_start;
} view;

static void strip(const ssm__unicode *unicode, const ssm__normalizer_stage *stage, view *v)
{
    uint32_t c;
    while (stage->strip_left && v->bytes > 0) {
        size_t length = ssm__utf8_read(v->text, &c);
        if (!(ssm__char_class(unicode, c) & SSM__CHAR_SPACE)) {
            break;
        }
        v->text += length;
        v->bytes -= length;
        v->keeps_start = false;
    }
    while (stage->strip_right && v->bytes > 0) {
        size_t last = ssm__utf8_back(v->text, v->bytes);
        ssm__utf8_read(v->text + last, &c);
        if (!(ssm__char_class(unicode, c) & SSM__CHAR_SPACE)) {
            break;
        }
        v->bytes = last;
    }
}

static ssm_status replace(ssm__pattern_run *pattern, const ssm_text *content, size_t most, view *v,
                          ssm_text *out, ssm_error *err)
{
    size_t done = 0;
    size_t last_end = SIZE_MAX;
    for (;;) {
        bool found;
        size_t start;
        size_t end;
        SSM__TRY(ssm__pattern_find(pattern, v->text, v->bytes, done, last_end, &found, &start, &end,
                                   err));
        if (!found) {
            break;
        }
        SSM__TRY(ssm__text_append(out, v->text + done, start - done, err));
        SSM__TRY(ssm__text_append(out, content->data, content->bytes, err));
        SSM__TRY(check_growth(out, most, err)); /* here: the whole may not fit into memory */
        v->keeps_start = v->keeps_start && (out->bytes > 0 || end == start);
        done = end;
        last_end = end;
    }
    return ssm__text_append(out, v->text + done, v->bytes - done, err);
}

/* Each character becomes what the filter gives for it. */
static ssm_status filter(const ssm__unicode *unicode, ssm__character_filter *fn, view *v,
                         ssm_text *out, ssm_error *err)
{
    for (size_t at = 0; at < v->bytes;) {
        uint32_t c;
        uint32_t to[SSM__FILTER_MOST];
        at += ssm__utf8_read(v->text + at, &c);
        size_t count = fn(unicode, c, to);
        SSM__TRY(ssm__text_reserve(out, 4 * SSM__FILTER_MOST, err));
        v->keeps_start = v->keeps_start && (out->bytes > 0 || count > 0);
        for (size_t i = 0; i < count; i++) {
            out->bytes += ssm__utf8_write(to[i], (unsigned char *)out->data + out->bytes);
        }
    }
    return ssm__text_append(out, "", 0, err);
}

static ssm_status map_bytes(const view *v, ssm_text *out, ssm_error *err)
{
    SSM__TRY(ssm__text_reserve(out, 2 * v->bytes, err));
    out->bytes = ssm__bytes_to_chars(v->text, v->bytes, (unsigned char *)out->data);
    return SSM_STATUS_OK;
}

static ssm_status prepend(const ssm_text *content, const view *v, ssm_text *out, ssm_error *err)
{
    SSM__TRY(ssm__text_append(out, content->data, content->bytes, err));
    return ssm__text_append(out, v->text, v->bytes, err);
}

/* Writes what the stage makes of *v into *out; *same: it stays as it is. most: bytes of out. */
static ssm_status rewrite(ssm__normalizer_run *run, int index, size_t most, view *v, ssm_text *out,
                          bool *same, ssm_error *err)
{
    const ssm__normalizer_stage *stage = &run->normalizer->stages[index];
    switch (stage->kind) {
    case SSM__NORMALIZER_FORM:
        return ssm__unicode_form_write(stage->form, run->unicode, v->text, v->bytes, &run->points,
                                       out, same, err);
    case SSM__NORMALIZER_REPLACE:
        return replace(run->patterns[index], &stage->content, most, v, out, err);
    case SSM__NORMALIZER_PREPEND:
        return prepend(&stage->content, v, out, err);
    case SSM__NORMALIZER_BYTE_LEVEL:
        return map_bytes(v, out, err);
    case SSM__NORMALIZER_STRIP:
        strip(run->unicode, stage, v);
        *same = true;
        return SSM_STATUS_OK;
    default:
        return filter(run->unicode, ssm__character_filter_of(stage->kind), v, out, err);
    }
}

ssm_status ssm__normalize(ssm__normalizer_run *run, const char *text, size_t bytes,
                          const char **out, size_t *out_bytes, bool *keeps_start, ssm_error *err)
{
    view v = {(const unsigned char *)text, bytes, true};
    const size_t most = bytes > (SIZE_MAX - GROWTH_FREE) / GROWTH_MOST
                            ? SIZE_MAX
                            : bytes * GROWTH_MOST + GROWTH_FREE;
    for (int i = 0; i < run->normalizer->count && v.bytes > 0; i++) {
        ssm_text *buffer = &run->buffers[run->next_buffer];
        bool same = false;
        buffer->bytes = 0;
        SSM__TRY(rewrite(run, i, most, &v, buffer, &same, err));
        SSM__TRY(same ? SSM_STATUS_OK : check_growth(buffer, most, err));
        if (!same) {
            v.text = (const unsigned char *)buffer->data;
            v.bytes = buffer->bytes;
            run->next_buffer = 1 - run->next_buffer;
        }
    }
    *out = (const char *)v.text;
    *out_bytes = v.bytes;
    *keeps_start = v.keeps_start;
    return SSM_STATUS_OK;
}
