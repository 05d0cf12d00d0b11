/* tokenizer/encode.c: text to ids, stage after stage. */
#include <string.h>

#include "base/error.h"
#include "tokenizer/gpt2_split.h"
#include "tokenizer/growable.h"
#include "tokenizer/tokenizer.h"

/* What one call keeps to itself, so that threads can share the tokenizer. */
typedef struct encoder {
    const ssm_tokenizer *tokenizer;
    bool special_as_text;
    bool at_start; /* what is encoded begins where the whole text begins */
    ssm__pretokenizer_run *pretokenizer;
    ssm__model_run *model;
    ssm__normalizer_run normalizer;
    ssm_ids *ids;
    int64_t dropped;
} encoder;

static ssm_status encode_piece(encoder *e, const unsigned char *piece, size_t bytes, bool split,
                               ssm_error *err)
{
    if (!split) {
        return ssm__model_encode(e->model, piece, bytes, e->ids, &e->dropped, err);
    }
    while (bytes > 0) {
        size_t length = ssm__gpt2_match(&e->tokenizer->unicode, piece, bytes);
        SSM__TRY(ssm__model_encode(e->model, piece, length, e->ids, &e->dropped, err));
        piece += length;
        bytes -= length;
    }
    return SSM_STATUS_OK;
}

/* Text without added tokens, already normalised. */
static ssm_status encode_plain(encoder *e, const char *text, size_t bytes, ssm_error *err)
{
    if (bytes == 0) {
        return SSM_STATUS_OK;
    }
    const unsigned char *cut;
    const ssm__pieces *pieces;
    bool split;
    SSM__TRY(
        ssm__pretokenize(e->pretokenizer, text, bytes, e->at_start, &cut, &pieces, &split, err));
    for (size_t i = 0; i < pieces->count; i++) {
        ssm__piece piece = pieces->data[i];
        SSM__TRY(encode_piece(e, cut + piece.start, piece.end - piece.start, split, err));
    }
    return SSM_STATUS_OK;
}

typedef ssm_status encode_fn(encoder *e, const char *text, size_t bytes, ssm_error *err);

/* Cuts the matcher's tokens out of the text and gives what lies between them to fn. */
static ssm_status cut_tokens(encoder *e, const ssm__matcher *matcher, const char *text,
                             size_t bytes, encode_fn *fn, ssm_error *err)
{
    ssm__cutter cutter = {.matcher = matcher,
                          .unicode = &e->tokenizer->unicode,
                          .text = (const unsigned char *)text,
                          .bytes = bytes,
                          .special_as_text = e->special_as_text};
    const bool at_start = e->at_start;
    for (;;) {
        ssm__cut cut = ssm__cutter_next(&cutter);
        if (cut.before_start < cut.before_end) {
            e->at_start = at_start && cut.before_start == 0;
            SSM__TRY(fn(e, text + cut.before_start, cut.before_end - cut.before_start, err));
        }
        if (cut.token == NULL) {
            e->at_start = at_start;
            return SSM_STATUS_OK;
        }
        SSM__TRY(ssm__ids_push(e->ids, cut.token->id, err));
    }
}

/* Text without raw added tokens. */
static ssm_status encode_segment(encoder *e, const char *text, size_t bytes, ssm_error *err)
{
    const char *normalized;
    size_t normalized_bytes;
    bool keeps_start;
    SSM__TRY(ssm__normalize(&e->normalizer, text, bytes, &normalized, &normalized_bytes,
                            &keeps_start, err));
    e->at_start = e->at_start && keeps_start;
    return cut_tokens(e, e->tokenizer->added.normalized, normalized, normalized_bytes, encode_plain,
                      err);
}

/* How the model reads its pieces. */
static ssm__piece_form piece_form(const ssm_tokenizer *tokenizer)
{
    if (tokenizer->pretokenizer.bytes) {
        return SSM__PIECE_BYTES;
    }
    bool mapped = tokenizer->pretokenizer.maps_bytes || tokenizer->normalizer.maps_bytes;
    return mapped ? SSM__PIECE_CHARS : SSM__PIECE_TEXT;
}

static ssm_status encode_valid(encoder *e, const char *text, size_t bytes, bool add_special,
                               ssm_error *err)
{
    const ssm_tokenizer *tokenizer = e->tokenizer;
    const ssm__postprocessor *post = &tokenizer->postprocessor;
    SSM__TRY(ssm__model_run_create(&tokenizer->model, piece_form(tokenizer), &e->model, err));
    SSM__TRY(ssm__normalizer_run_create(&tokenizer->normalizer, &tokenizer->unicode, &e->normalizer,
                                        err));
    SSM__TRY(ssm__pretokenizer_run_create(&tokenizer->pretokenizer, &tokenizer->unicode,
                                          &e->pretokenizer, err));
    if (add_special) {
        SSM__TRY(ssm__ids_append(e->ids, post->before.data, post->before.count, err));
    }
    SSM__TRY(cut_tokens(e, tokenizer->added.raw, text, bytes, encode_segment, err));
    return add_special ? ssm__ids_append(e->ids, post->after.data, post->after.count, err)
                       : SSM_STATUS_OK;
}

/* A copy of the text with U+FFFD for each invalid sequence from `at` on. */
static ssm_status replace_invalid(const char *text, size_t bytes, size_t at, ssm_text *out,
                                  int64_t *replaced, ssm_error *err)
{
    const unsigned char *raw = (const unsigned char *)text;
    size_t copied = 0;
    while (at < bytes) {
        size_t length;
        (void)ssm__utf8_scan(raw + at, bytes - at, &length);
        SSM__TRY(ssm__text_append(out, text + copied, at - copied, err));
        SSM__TRY(ssm__text_append(out, "\xEF\xBF\xBD", 3, err));
        (*replaced)++;
        copied = at + length;
        at = copied + ssm__utf8_valid(raw + copied, bytes - copied);
    }
    return ssm__text_append(out, text + copied, bytes - copied, err);
}

ssm_status ssm__tokenizer_encode(const ssm_tokenizer *tokenizer, const char *text, size_t bytes,
                                 const ssm_encode_options *options, const char *name, ssm_ids *ids,
                                 ssm__losses *losses, ssm_error *err)
{
    ssm_text repaired = {0};
    size_t valid = ssm__utf8_valid((const unsigned char *)text, bytes);
    if (valid < bytes) {
        if (options->invalid_utf8 == SSM_INVALID_UTF8_ERROR) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(name, (int64_t)valid),
                             "byte 0x%02X at offset %zu is not UTF-8; convert the text, or replace "
                             "invalid bytes by U+FFFD (--invalid-utf8=replace)",
                             (unsigned)(unsigned char)text[valid], valid);
        }
        ssm_status status = replace_invalid(text, bytes, valid, &repaired, &losses->replaced, err);
        if (status != SSM_STATUS_OK) {
            ssm_text_free(&repaired);
            return status;
        }
        text = repaired.data;
        bytes = repaired.bytes;
    }
    encoder e = {.tokenizer = tokenizer,
                 .special_as_text = options->special_as_text,
                 .at_start = true,
                 .ids = ids};
    int64_t before = ids->count;
    ssm_status status = ssm__ids_reserve(ids, (int64_t)(bytes / 4) + 8, err);
    if (status == SSM_STATUS_OK) {
        status = encode_valid(&e, text, bytes, options->add_special_tokens, err);
    }
    if (status != SSM_STATUS_OK) {
        ids->count = before;
    } else {
        losses->dropped += e.dropped;
    }
    ssm__model_run_free(e.model);
    ssm__normalizer_run_free(&e.normalizer);
    ssm__pretokenizer_run_free(e.pretokenizer);
    ssm_text_free(&repaired);
    return status;
}

ssm_status ssm_tokenizer_encode(const ssm_tokenizer *tokenizer, const char *text, size_t bytes,
                                const ssm_encode_options *options, ssm_ids *ids, ssm_error *err)
{
    static const ssm_encode_options defaults = {0};
    ssm__losses losses = {0};
    options = options == NULL ? &defaults : options;
    ssm_status status =
        ssm__tokenizer_encode(tokenizer, text, bytes, options, NULL, ids, &losses, err);
    if (options->dropped_bytes != NULL) {
        *options->dropped_bytes += losses.dropped;
    }
    return status;
}
