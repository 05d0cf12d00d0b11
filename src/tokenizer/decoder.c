/* tokenizer/decoder.c: ids to text, whole or as they come.
 *
 * Tokens are byte strings and a character may be spread over several of them. The bytes of all
 * tokens form one stream; each maximal part of it that is no UTF-8 becomes U+FFFD. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/fields.h"
#include "tokenizer/growable.h"
#include "tokenizer/tokenizer.h"

struct ssm_decoder {
    const ssm_tokenizer *tokenizer;
    bool skip_special;
    bool begun;    /* some token was written */
    int64_t count; /* ids pushed, for messages */
    unsigned char waiting[4];
    size_t n_waiting; /* the beginning of a character, at most 3 bytes */
};

/* ---- loading --------------------------------------------------------------------------------- */

static ssm_status parse_sequence(const char *path, const json_t *spec, int depth,
                                 ssm__decoder_kind *out, ssm_error *err);

static ssm_status parse_at(const char *path, const json_t *spec, int depth, ssm__decoder_kind *out,
                           ssm_error *err)
{
    const char *type;
    SSM__TRY(ssm__field_type(path, "decoder", spec, &type, err));
    if (strcmp(type, "Sequence") == 0) {
        return parse_sequence(path, spec, depth, out, err);
    }
    if (strcmp(type, "ByteLevel") != 0) {
        return ssm__fail_unsupported(path, "decoder", type, err);
    }
    static const char *const known[] = {"type", "add_prefix_space", "trim_offsets", "use_regex",
                                        NULL};
    *out = SSM__DECODER_BYTE_LEVEL;
    return ssm__fields_known(path, "decoder", spec, known, err);
}

static ssm_status parse_sequence(const char *path, const json_t *spec, int depth,
                                 ssm__decoder_kind *out, ssm_error *err)
{
    static const char *const known[] = {"type", "decoders", NULL};
    SSM__TRY(ssm__fields_known(path, "decoder", spec, known, err));
    const json_t *stages;
    SSM__TRY(ssm__field_stages(path, "decoder", spec, "decoders", depth, &stages, err));
    if (json_array_size(stages) != 1) {
        return ssm__fail_field(path, "decoder", err, "Sequence of %zu stages is not supported yet",
                               json_array_size(stages));
    }
    return parse_at(path, json_array_get(stages, 0), depth + 1, out, err);
}

ssm_status ssm__decoder_parse(const char *path, const json_t *spec, ssm__decoder_kind *out,
                              ssm_error *err)
{
    *out = SSM__DECODER_NONE;
    if (spec == NULL || json_is_null(spec)) {
        return SSM_STATUS_OK;
    }
    return parse_at(path, spec, 0, out, err);
}

/* ---- the byte stream ------------------------------------------------------------------------- */

static ssm_status append_replacement(ssm_text *text, ssm_error *err)
{
    return ssm__text_append(text, "\xEF\xBF\xBD", 3, err);
}

/* Completes the waiting character with bytes from *data, or gives it up. */
static ssm_status resume(ssm_decoder *decoder, const unsigned char **data, size_t *bytes,
                         ssm_text *text, ssm_error *err)
{
    while (decoder->n_waiting > 0 && *bytes > 0) {
        size_t length;
        decoder->waiting[decoder->n_waiting] = **data;
        ssm__utf8_kind kind = ssm__utf8_scan(decoder->waiting, decoder->n_waiting + 1, &length);
        if (kind == SSM__UTF8_INVALID) {
            /* What waited was a valid beginning, so exactly that is the bad part. */
            decoder->n_waiting = 0;
            return append_replacement(text, err);
        }
        decoder->n_waiting++;
        (*data)++;
        (*bytes)--;
        if (kind == SSM__UTF8_VALID) {
            decoder->n_waiting = 0;
            return ssm__text_append(text, decoder->waiting, length, err);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status stream(ssm_decoder *decoder, const unsigned char *data, size_t bytes,
                         ssm_text *text, ssm_error *err)
{
    SSM__TRY(resume(decoder, &data, &bytes, text, err));
    while (bytes > 0) {
        size_t valid = ssm__utf8_valid(data, bytes);
        SSM__TRY(ssm__text_append(text, data, valid, err));
        data += valid;
        bytes -= valid;
        if (bytes == 0) {
            break;
        }
        size_t length;
        if (ssm__utf8_scan(data, bytes, &length) == SSM__UTF8_INCOMPLETE) {
            memcpy(decoder->waiting, data, bytes);
            decoder->n_waiting = bytes;
            break;
        }
        SSM__TRY(append_replacement(text, err));
        data += length;
        bytes -= length;
    }
    return SSM_STATUS_OK;
}

/* ---- public calls ---------------------------------------------------------------------------- */

ssm_status ssm_decoder_create(const ssm_tokenizer *tokenizer, bool skip_special, ssm_decoder **out,
                              ssm_error *err)
{
    *out = NULL;
    ssm_decoder *decoder = calloc(1, sizeof *decoder);
    if (decoder == NULL) {
        return ssm__fail_memory(err, "a decoder", sizeof *decoder);
    }
    decoder->tokenizer = tokenizer;
    decoder->skip_special = skip_special;
    *out = decoder;
    return SSM_STATUS_OK;
}

void ssm_decoder_free(ssm_decoder *decoder)
{
    free(decoder);
}

ssm_status ssm_decoder_push(ssm_decoder *decoder, int32_t id, ssm_text *text, ssm_error *err)
{
    const ssm_tokenizer *tokenizer = decoder->tokenizer;
    if (id < 0 || id >= tokenizer->size || !tokenizer->tokens[id].present) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "id %d at place %lld is not in the vocabulary (ids 0 to %lld)", id,
                         (long long)decoder->count, (long long)tokenizer->size - 1);
    }
    decoder->count++;
    const ssm__token *token = &tokenizer->tokens[id];
    if (decoder->skip_special && token->special) {
        return ssm__text_append(text, "", 0, err);
    }
    if (decoder->begun && tokenizer->decoder == SSM__DECODER_NONE) {
        SSM__TRY(ssm__text_append(text, " ", 1, err));
    }
    decoder->begun = true;
    SSM__TRY(ssm__text_append(text, "", 0, err));
    return stream(decoder, tokenizer->pool + token->offset, token->bytes, text, err);
}

ssm_status ssm_decoder_finish(ssm_decoder *decoder, ssm_text *text, ssm_error *err)
{
    bool incomplete = decoder->n_waiting > 0;
    decoder->n_waiting = 0;
    decoder->begun = false;
    decoder->count = 0;
    return incomplete ? append_replacement(text, err) : ssm__text_append(text, "", 0, err);
}

ssm_status ssm_tokenizer_decode(const ssm_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                                bool skip_special, ssm_text *text, ssm_error *err)
{
    ssm_decoder decoder = {.tokenizer = tokenizer, .skip_special = skip_special};
    for (int64_t i = 0; i < count; i++) {
        SSM__TRY(ssm_decoder_push(&decoder, ids[i], text, err));
    }
    return ssm_decoder_finish(&decoder, text, err);
}
