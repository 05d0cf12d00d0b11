/* tokenizer/tokens.c: the table of tokens by id: is it there, is it special, what is
 * given to the decoders. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/tokenizer.h"

/* Writes what `text` decodes to and returns its length; out has room for `bytes`. */
static size_t decode_text(const ssm__decoder_chain *decoder, const char *text, size_t bytes,
                          unsigned char *out)
{
    size_t written;
    if (ssm__decoder_takes_bytes(decoder) &&
        ssm__chars_to_bytes((const unsigned char *)text, bytes, out, &written)) {
        return written;
    }
    memcpy(out, text, bytes);
    return bytes;
}

static bool is_special_text(const ssm_tokenizer *tokenizer, const char *text, size_t bytes)
{
    int32_t index = ssm__string_map_get(&tokenizer->added_ids, text, bytes);
    return index >= 0 && tokenizer->added.tokens[index].special;
}

static void set_token(ssm_tokenizer *tokenizer, int32_t id, const char *text, size_t bytes,
                      size_t *used)
{
    ssm__token *token = &tokenizer->tokens[id];
    token->offset = *used;
    token->bytes = (uint32_t)decode_text(&tokenizer->decoder, text, bytes, tokenizer->pool + *used);
    token->present = true;
    token->special = is_special_text(tokenizer, text, bytes);
    *used += token->bytes;
}

ssm_status ssm__tokens_build(ssm_tokenizer *tokenizer, ssm_error *err)
{
    const ssm__string_map *vocab = &tokenizer->model.vocab;
    const ssm__added_tokens *added = &tokenizer->added;
    int32_t largest = 0;
    size_t pool = 1;
    bool fits = true;
    for (size_t i = 0; i < vocab->count; i++) {
        largest = vocab->entries[i].value > largest ? vocab->entries[i].value : largest;
        fits = fits && ssm__add_size(pool, vocab->entries[i].bytes, &pool);
    }
    for (int64_t i = 0; i < added->count; i++) {
        largest = added->tokens[i].id > largest ? added->tokens[i].id : largest;
        fits = fits && ssm__add_size(pool, added->tokens[i].pattern_bytes, &pool);
    }
    tokenizer->size = (int64_t)largest + 1;
    tokenizer->tokens = calloc((size_t)tokenizer->size, sizeof *tokenizer->tokens);
    tokenizer->pool = fits ? malloc(pool) : NULL;
    if (tokenizer->tokens == NULL || tokenizer->pool == NULL) {
        return ssm__fail_memory(err, "the token table", pool);
    }
    size_t used = 0;
    for (size_t i = 0; i < vocab->count; i++) {
        set_token(tokenizer, vocab->entries[i].value, ssm__string_map_text(vocab, i),
                  vocab->entries[i].bytes, &used);
    }
    for (int64_t i = 0; i < added->count; i++) {
        const ssm__added_token *token = &added->tokens[i];
        set_token(tokenizer, token->id, token->pattern, token->pattern_bytes, &used);
    }
    return SSM_STATUS_OK;
}

int64_t ssm_tokenizer_vocab_size(const ssm_tokenizer *tokenizer)
{
    return tokenizer->size;
}

int32_t ssm_tokenizer_id(const ssm_tokenizer *tokenizer, const char *token, size_t bytes)
{
    int32_t added = ssm__string_map_get(&tokenizer->added_ids, token, bytes);
    return added >= 0 ? tokenizer->added.tokens[added].id
                      : ssm__string_map_get(&tokenizer->model.vocab, token, bytes);
}

const char *ssm_tokenizer_digest(const ssm_tokenizer *tokenizer)
{
    return tokenizer->digest;
}
