/* tokenizer/decoder_stages.c: what each decoder makes of a token or of a part of one. */
#include <string.h>

#include "base/error.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/decoder.h"
#include "tokenizer/growable.h"
#include "tokenizer/unicode.h"

ssm_status ssm__decoder_run_create(const ssm__decoder_chain *chain, ssm__decoder_run *run,
                                   ssm_error *err)
{
    run->chain = chain;
    for (int i = 0; i < chain->count; i++) {
        if (chain->stages[i].pattern != NULL) {
            SSM__TRY(
                ssm__pattern_run_create(chain->stages[i].pattern, &run->states[i].pattern, err));
        }
    }
    return SSM_STATUS_OK;
}

void ssm__decoder_run_free(ssm__decoder_run *run)
{
    for (int i = 0; i < SSM__DECODER_STAGES; i++) {
        ssm_text_free(&run->states[i].held);
        ssm_text_free(&run->states[i].scratch);
        ssm__pattern_run_free(run->states[i].pattern);
        run->states[i] = (ssm__decoder_state){0};
    }
}

/* Hands a token, or a part of the only one, to stage k; behind the last stage it is text. */
static ssm_status give(ssm__decoder_run *run, int k, const void *data, size_t bytes,
                       ssm_error *err);

/* ---- ByteLevel ------------------------------------------------------------------------------- */

static const char REPLACEMENT[] = "\xEF\xBF\xBD";

/* Completes the waiting character with bytes from *data, or gives it up. */
static ssm_status resume(ssm__decoder_run *run, int k, const unsigned char **data, size_t *bytes,
                         ssm_error *err)
{
    ssm__decoder_state *state = &run->states[k];
    while (state->n_waiting > 0 && *bytes > 0) {
        size_t length;
        state->waiting[state->n_waiting] = **data;
        ssm__utf8_kind kind = ssm__utf8_scan(state->waiting, state->n_waiting + 1, &length);
        if (kind == SSM__UTF8_INVALID) {
            /* What waited was a valid beginning, so exactly that is the bad part. */
            state->n_waiting = 0;
            return give(run, k + 1, REPLACEMENT, 3, err);
        }
        state->n_waiting++;
        (*data)++;
        (*bytes)--;
        if (kind == SSM__UTF8_VALID) {
            state->n_waiting = 0;
            return give(run, k + 1, state->waiting, length, err);
        }
    }
    return SSM_STATUS_OK;
}

/* The bytes of all tokens form one stream; each maximal part that is no UTF-8 becomes U+FFFD. */
static ssm_status stream(ssm__decoder_run *run, int k, const unsigned char *data, size_t bytes,
                         ssm_error *err)
{
    ssm__decoder_state *state = &run->states[k];
    SSM__TRY(resume(run, k, &data, &bytes, err));
    while (bytes > 0) {
        size_t valid = ssm__utf8_valid(data, bytes);
        if (valid > 0) {
            SSM__TRY(give(run, k + 1, data, valid, err));
        }
        data += valid;
        bytes -= valid;
        if (bytes == 0) {
            break;
        }
        size_t length;
        if (ssm__utf8_scan(data, bytes, &length) == SSM__UTF8_INCOMPLETE) {
            memcpy(state->waiting, data, bytes);
            state->n_waiting = bytes;
            break;
        }
        SSM__TRY(give(run, k + 1, REPLACEMENT, 3, err));
        data += length;
        bytes -= length;
    }
    return SSM_STATUS_OK;
}

static ssm_status byte_level(ssm__decoder_run *run, int k, const unsigned char *data, size_t bytes,
                             ssm_error *err)
{
    if (k == 0) {
        return stream(run, k, data, bytes, err); /* stored as bytes */
    }
    ssm_text *mapped = &run->states[k].scratch;
    mapped->bytes = 0;
    SSM__TRY(ssm__text_reserve(mapped, bytes, err));
    size_t written;
    if (!ssm__chars_to_bytes(data, bytes, (unsigned char *)mapped->data, &written)) {
        return stream(run, k, data, bytes, err);
    }
    return stream(run, k, (const unsigned char *)mapped->data, written, err);
}

/* ---- ByteFallback ---------------------------------------------------------------------------- */

static int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of "<0xE2>", or -1. Rust's number parser takes "<0x+F>" too. */
static int fallback_byte(const unsigned char *token, size_t bytes)
{
    if (bytes != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>') {
        return -1;
    }
    int high = token[3] == '+' ? 0 : hex_digit(token[3]);
    int low = hex_digit(token[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* A run of byte tokens is text as a whole, or one U+FFFD a byte. */
static ssm_status end_bytes(ssm__decoder_run *run, int k, ssm_error *err)
{
    ssm_text *held = &run->states[k].held;
    size_t bytes = held->bytes;
    held->bytes = 0;
    if (bytes == 0) {
        return SSM_STATUS_OK;
    }
    if (ssm__utf8_valid((const unsigned char *)held->data, bytes) == bytes) {
        return give(run, k + 1, held->data, bytes, err);
    }
    for (size_t i = 0; i < bytes; i++) {
        SSM__TRY(give(run, k + 1, REPLACEMENT, 3, err));
    }
    return SSM_STATUS_OK;
}

static ssm_status byte_fallback(ssm__decoder_run *run, int k, const unsigned char *data,
                                size_t bytes, ssm_error *err)
{
    int byte = fallback_byte(data, bytes);
    if (byte >= 0) {
        unsigned char value = (unsigned char)byte;
        return ssm__text_append(&run->states[k].held, &value, 1, err);
    }
    SSM__TRY(end_bytes(run, k, err));
    return give(run, k + 1, data, bytes, err);
}

/* ---- Metaspace, Strip, Replace --------------------------------------------------------------- */

static ssm_status metaspace(ssm__decoder_run *run, int k, const unsigned char *data, size_t bytes,
                            ssm_error *err)
{
    const ssm__decoder_stage *stage = &run->chain->stages[k];
    ssm__decoder_state *state = &run->states[k];
    bool drop = stage->drop_first && (stage->fused || state->index == 0);
    state->index++;
    state->scratch.bytes = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t c;
        size_t length = ssm__utf8_read(data + at, &c);
        if (c != stage->character) {
            SSM__TRY(ssm__text_append(&state->scratch, data + at, length, err));
        } else if (!drop) {
            SSM__TRY(ssm__text_append(&state->scratch, " ", 1, err));
        }
        at += length;
    }
    return give(run, k + 1, state->scratch.data, state->scratch.bytes, err);
}

/* Takes characters off the start until the count is reached or another one comes. */
static void strip_start(const ssm__decoder_stage *stage, int64_t *taken, bool *passed,
                        const unsigned char **data, size_t *bytes)
{
    while (!*passed && *bytes > 0) {
        uint32_t c;
        size_t length = ssm__utf8_read(*data, &c);
        if (*taken == stage->start || c != stage->character) {
            *passed = true;
            break;
        }
        (*taken)++;
        *data += length;
        *bytes -= length;
    }
}

static ssm_status strip(ssm__decoder_run *run, int k, const unsigned char *data, size_t bytes,
                        bool whole, ssm_error *err)
{
    const ssm__decoder_stage *stage = &run->chain->stages[k];
    if (!whole) {
        strip_start(stage, &run->states[k].index, &run->states[k].passed, &data, &bytes);
        return give(run, k + 1, data, bytes, err);
    }
    int64_t taken = 0;
    bool passed = false;
    strip_start(stage, &taken, &passed, &data, &bytes);
    for (int64_t i = 0; i < stage->stop && bytes > 0; i++) {
        uint32_t c;
        size_t last = ssm__utf8_back(data, bytes);
        ssm__utf8_read(data + last, &c);
        if (c != stage->character) {
            break;
        }
        bytes = last;
    }
    return give(run, k + 1, data, bytes, err);
}

static ssm_status replace(ssm__decoder_run *run, int k, const unsigned char *data, size_t bytes,
                          ssm_error *err)
{
    const ssm_text *content = &run->chain->stages[k].text;
    ssm_text *out = &run->states[k].scratch;
    size_t done = 0;
    size_t last_end = SIZE_MAX;
    out->bytes = 0;
    for (;;) {
        bool found;
        size_t start;
        size_t end;
        SSM__TRY(ssm__pattern_find(run->states[k].pattern, data, bytes, done, last_end, &found,
                                   &start, &end, err));
        if (!found) {
            break;
        }
        SSM__TRY(ssm__text_append(out, data + done, start - done, err));
        SSM__TRY(ssm__text_append(out, content->data, content->bytes, err));
        done = end;
        last_end = end;
    }
    SSM__TRY(ssm__text_append(out, data + done, bytes - done, err));
    return give(run, k + 1, out->data, out->bytes, err);
}

/* ---- WordPiece, BPEDecoder ------------------------------------------------------------------- */

/* Replaces every `from` by `to`, which is not longer, in place. */
static void substitute(ssm_text *text, const char *from, size_t from_bytes, const char *to)
{
    size_t to_bytes = strlen(to);
    size_t written = 0;
    for (size_t at = 0; at < text->bytes;) {
        if (text->bytes - at >= from_bytes && memcmp(text->data + at, from, from_bytes) == 0) {
            memcpy(text->data + written, to, to_bytes);
            written += to_bytes;
            at += from_bytes;
        } else {
            text->data[written++] = text->data[at++];
        }
    }
    text->bytes = written;
}

static ssm_status word_piece(ssm__decoder_run *run, int k, const unsigned char *data, size_t bytes,
                             ssm_error *err)
{
    static const char *const artifacts[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    const ssm__decoder_stage *stage = &run->chain->stages[k];
    ssm__decoder_state *state = &run->states[k];
    ssm_text *out = &state->scratch;
    size_t prefix = stage->text.bytes;
    bool first = stage->fused || state->index == 0;
    state->index++;
    out->bytes = 0;
    if (!first && bytes >= prefix && memcmp(data, stage->text.data, prefix) == 0) {
        data += prefix;
        bytes -= prefix;
    } else if (!first) {
        SSM__TRY(ssm__text_append(out, " ", 1, err));
    }
    SSM__TRY(ssm__text_append(out, data, bytes, err));
    for (size_t i = 0; stage->cleanup && i < sizeof artifacts / sizeof artifacts[0]; i++) {
        substitute(out, artifacts[i][0], strlen(artifacts[i][0]), artifacts[i][1]);
    }
    return give(run, k + 1, out->data, out->bytes, err);
}

/* Gives out the held token with `content` for every suffix. */
static ssm_status end_token(ssm__decoder_run *run, int k, const char *content, ssm_error *err)
{
    ssm__decoder_state *state = &run->states[k];
    if (!state->passed) {
        return SSM_STATUS_OK;
    }
    const ssm_text *suffix = &run->chain->stages[k].text;
    substitute(&state->held, suffix->data, suffix->bytes, content);
    state->passed = false;
    return give(run, k + 1, state->held.data, state->held.bytes, err);
}

static ssm_status bpe(ssm__decoder_run *run, int k, const unsigned char *data, size_t bytes,
                      ssm_error *err)
{
    ssm__decoder_state *state = &run->states[k];
    SSM__TRY(end_token(run, k, " ", err));
    state->held.bytes = 0;
    state->passed = true;
    return ssm__text_append(&state->held, data, bytes, err);
}

/* ---- the chain ------------------------------------------------------------------------------- */

/* whole: data is a token; otherwise it is a part of one. */
static ssm_status decode(ssm__decoder_run *run, int k, const unsigned char *data, size_t bytes,
                         bool whole, ssm_error *err)
{
    switch (run->chain->stages[k].kind) {
    case SSM__DECODER_BYTE_LEVEL:
        return byte_level(run, k, data, bytes, err);
    case SSM__DECODER_METASPACE:
        return metaspace(run, k, data, bytes, err);
    case SSM__DECODER_BYTE_FALLBACK:
        return byte_fallback(run, k, data, bytes, err);
    case SSM__DECODER_FUSE:
        return give(run, k + 1, data, bytes, err);
    case SSM__DECODER_STRIP:
        return strip(run, k, data, bytes, whole, err);
    case SSM__DECODER_REPLACE:
        return replace(run, k, data, bytes, err);
    case SSM__DECODER_WORD_PIECE:
        return word_piece(run, k, data, bytes, err);
    case SSM__DECODER_BPE:
        return bpe(run, k, data, bytes, err);
    }
    return SSM_STATUS_OK;
}

static ssm_status give(ssm__decoder_run *run, int k, const void *data, size_t bytes, ssm_error *err)
{
    const ssm__decoder_chain *chain = run->chain;
    data = bytes == 0 ? "" : data;
    if (k == chain->count) {
        return ssm__text_append(run->out, data, bytes, err);
    }
    if (chain->stages[k].hold) {
        return ssm__text_append(&run->states[k].held, data, bytes, err);
    }
    return decode(run, k, data, bytes, !chain->stages[k].fused, err);
}

ssm_status ssm__decoder_run_push(ssm__decoder_run *run, const void *data, size_t bytes,
                                 ssm_text *out, ssm_error *err)
{
    run->out = out;
    SSM__TRY(ssm__text_append(out, "", 0, err));
    return give(run, 0, data, bytes, err);
}

/* What stage k holds back. */
static ssm_status end_stage(ssm__decoder_run *run, int k, ssm_error *err)
{
    const ssm__decoder_stage *stage = &run->chain->stages[k];
    ssm__decoder_state *state = &run->states[k];
    if (stage->hold) {
        ssm_text whole = state->held;
        state->held = (ssm_text){0};
        ssm_status status =
            decode(run, k, (const unsigned char *)(whole.bytes == 0 ? "" : whole.data), whole.bytes,
                   true, err);
        ssm_text_free(&whole);
        SSM__TRY(status);
    }
    switch (stage->kind) {
    case SSM__DECODER_BYTE_LEVEL:
        if (state->n_waiting > 0) {
            state->n_waiting = 0;
            return give(run, k + 1, REPLACEMENT, 3, err);
        }
        return SSM_STATUS_OK;
    case SSM__DECODER_BYTE_FALLBACK:
        return end_bytes(run, k, err);
    case SSM__DECODER_BPE:
        return end_token(run, k, "", err);
    default:
        return SSM_STATUS_OK;
    }
}

ssm_status ssm__decoder_run_finish(ssm__decoder_run *run, ssm_text *out, ssm_error *err)
{
    run->out = out;
    SSM__TRY(ssm__text_append(out, "", 0, err));
    for (int k = 0; k < run->chain->count; k++) {
        SSM__TRY(end_stage(run, k, err));
        run->states[k].index = 0;
        run->states[k].passed = false;
    }
    return SSM_STATUS_OK;
}
