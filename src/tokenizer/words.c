/* tokenizer/words.c: a word is a token, or the longest tokens from its left (Wu et al. 2016), or
 * unk as a whole. */
#include "tokenizer/words.h"

#include "base/error.h"
#include "tokenizer/fields.h"
#include "tokenizer/growable.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocab.h"

static const char WHERE[] = "model";

static ssm_status parse_pieces(const char *path, const json_t *spec, ssm__words *out,
                               ssm_error *err)
{
    enum { MOST_CHARS = 1 << 20 };
    const json_t *prefix;
    SSM__TRY(ssm__field_string(path, WHERE, spec, "continuing_subword_prefix", &prefix, err));
    SSM__TRY(
        ssm__text_append(&out->prefix, json_string_value(prefix), json_string_length(prefix), err));
    const json_t *most = json_object_get(spec, "max_input_chars_per_word");
    out->most_chars = json_is_integer(most) ? (int64_t)json_integer_value(most) : -1;
    if (out->most_chars < 0 || out->most_chars > MOST_CHARS) {
        return ssm__fail_field(path, WHERE, err, "needs \"max_input_chars_per_word\" from 0 to %d",
                               MOST_CHARS);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__words_parse(const char *path, const json_t *spec, const ssm__string_map *vocab,
                            bool pieces, ssm__words *out, ssm_error *err)
{
    static const char *const level_known[] = {"type", "vocab", "unk_token", NULL};
    static const char *const piece_known[] = {
        "type", "vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word",
        NULL};
    out->vocab = vocab;
    out->pieces = pieces;
    SSM__TRY(ssm__fields_known(path, WHERE, spec, pieces ? piece_known : level_known, err));
    SSM__TRY(ssm__vocab_field(path, spec, "unk_token", vocab, &out->unk, err));
    for (size_t i = 0; i < vocab->count; i++) {
        size_t bytes = vocab->entries[i].bytes;
        out->longest_token = bytes > out->longest_token ? bytes : out->longest_token;
    }
    return pieces ? parse_pieces(path, spec, out, err) : SSM_STATUS_OK;
}

void ssm__words_free(ssm__words *words)
{
    ssm_text_free(&words->prefix);
}

/* The longest token that begins the word's rest; *length 0 when there is none. */
static ssm_status longest(const ssm__words *words, const unsigned char *rest, size_t bytes,
                          bool first, ssm_text *key, int32_t *id, size_t *length, ssm_error *err)
{
    size_t prefix = first ? 0 : words->prefix.bytes;
    *length = 0;
    if (prefix >= words->longest_token) {
        return SSM_STATUS_OK;
    }
    size_t end = words->longest_token - prefix < bytes ? words->longest_token - prefix : bytes;
    while (end < bytes && end > 0 && (rest[end] & 0xC0) == 0x80) {
        end--; /* not inside a character */
    }
    key->bytes = 0;
    SSM__TRY(ssm__text_append(key, words->prefix.data, prefix, err));
    SSM__TRY(ssm__text_append(key, rest, end, err));
    while (end > 0) {
        *id = ssm__string_map_get(words->vocab, key->data, prefix + end);
        if (*id >= 0) {
            *length = end;
            return SSM_STATUS_OK;
        }
        end = ssm__utf8_back(rest, end);
    }
    return SSM_STATUS_OK;
}

static bool too_long(const ssm__words *words, const unsigned char *piece, size_t bytes)
{
    int64_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        count += (piece[i] & 0xC0) != 0x80;
    }
    return count > words->most_chars;
}

ssm_status ssm__words_encode(const ssm__words *words, const unsigned char *piece, size_t bytes,
                             ssm_text *key, ssm_ids *ids, ssm_error *err)
{
    if (!words->pieces) {
        int32_t id = ssm__string_map_get(words->vocab, (const char *)piece, bytes);
        return ssm__ids_push(ids, id >= 0 ? id : words->unk, err);
    }
    if (too_long(words, piece, bytes)) {
        return ssm__ids_push(ids, words->unk, err);
    }
    int64_t before = ids->count;
    for (size_t at = 0; at < bytes;) {
        int32_t id;
        size_t length;
        SSM__TRY(longest(words, piece + at, bytes - at, at == 0, key, &id, &length, err));
        if (length == 0) {
            ids->count = before;
            return ssm__ids_push(ids, words->unk, err);
        }
        SSM__TRY(ssm__ids_push(ids, id, err));
        at += length;
    }
    return SSM_STATUS_OK;
}
