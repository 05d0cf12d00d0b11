/* tokenizer/load.c: tokenizer.json to a tokenizer. */
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/foreign.h"
#include "base/json.h"
#include "tokenizer/fields.h"
#include "tokenizer/tokenizer.h"

enum {
    FILE_MOST = 512 * 1024 * 1024, /* the largest published tokenizer.json has about 35 MB */
    TOKEN_MOST = 4096              /* bytes of an added token; bounds the search */
};

static ssm_status copy_text(const char *text, size_t bytes, char **out, size_t *out_bytes,
                            ssm_error *err)
{
    *out = malloc(bytes + 1);
    if (*out == NULL) {
        return ssm__fail_memory(err, "an added token", bytes);
    }
    memcpy(*out, text, bytes);
    (*out)[bytes] = '\0';
    *out_bytes = bytes;
    return SSM_STATUS_OK;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

static ssm_status parse_flags(const char *path, const json_t *spec, ssm__added_token *token,
                              ssm_error *err)
{
    static const char where[] = "added_tokens";
    static const char *const known[] = {"id",     "content",    "single_word", "lstrip",
                                        "rstrip", "normalized", "special",     NULL};
    SSM__TRY(ssm__fields_known(path, where, spec, known, err));
    SSM__TRY(ssm__field_bool(path, where, spec, "single_word", &token->single_word, err));
    SSM__TRY(ssm__field_bool(path, where, spec, "lstrip", &token->lstrip, err));
    SSM__TRY(ssm__field_bool(path, where, spec, "rstrip", &token->rstrip, err));
    SSM__TRY(ssm__field_bool(path, where, spec, "normalized", &token->normalized, err));
    return ssm__field_bool(path, where, spec, "special", &token->special, err);
}

static ssm_status set_pattern(const ssm_tokenizer *tokenizer, ssm__added_token *token,
                              ssm_error *err)
{
    ssm__normalizer_run run = {0};
    const char *pattern = token->content;
    size_t bytes = token->bytes;
    ssm_status status = SSM_STATUS_OK;
    if (token->normalized) {
        bool keeps_start;
        status = ssm__normalizer_run_create(&tokenizer->normalizer, &tokenizer->unicode, &run, err);
        if (status == SSM_STATUS_OK) {
            status = ssm__normalize(&run, token->content, token->bytes, &pattern, &bytes,
                                    &keeps_start, err);
        }
    }
    if (status == SSM_STATUS_OK) {
        status = copy_text(pattern, bytes, &token->pattern, &token->pattern_bytes, err);
    }
    ssm__normalizer_run_free(&run);
    return status;
}

static ssm_status parse_added_token(const char *path, const json_t *spec, ssm_tokenizer *tokenizer,
                                    int32_t *next_id, ssm_error *err)
{
    static const char where[] = "added_tokens";
    int64_t index = tokenizer->added.count;
    ssm__added_token *token = &tokenizer->added.tokens[tokenizer->added.count++];
    const json_t *content;
    SSM__TRY(ssm__field_string(path, where, spec, "content", &content, err));
    size_t bytes = json_string_length(content);
    if (bytes == 0 || bytes > TOKEN_MOST) {
        return ssm__fail_field(path, where, err, "[%lld] has %zu bytes, expected 1 to %d",
                               (long long)index, bytes, TOKEN_MOST);
    }
    SSM__TRY(copy_text(json_string_value(content), bytes, &token->content, &token->bytes, err));
    SSM__TRY(parse_flags(path, spec, token, err));
    SSM__TRY(set_pattern(tokenizer, token, err));
    if (token->pattern_bytes == 0) {
        return ssm__fail_field(path, where, err, "[%lld] \"%.100s\" is empty after normalisation",
                               (long long)index, token->content);
    }
    if (ssm__string_map_get(&tokenizer->added_ids, token->content, bytes) >= 0) {
        return ssm__fail_field(path, where, err, "has \"%.100s\" twice", token->content);
    }
    /* The id follows from the vocabulary; the file's own is a claim. */
    token->id = ssm__string_map_get(&tokenizer->model.vocab, token->content, bytes);
    if (token->id < 0) {
        token->id = (*next_id)++;
    }
    const json_t *id = json_object_get(spec, "id");
    if (!json_is_integer(id) || json_integer_value(id) != token->id) {
        return ssm__fail_field(path, where, err,
                               "[%lld] \"%.100s\" must have the id %d (%s), found %lld",
                               (long long)index, token->content, token->id,
                               token->id == *next_id - 1 ? "the next free one" : "the vocabulary's",
                               json_is_integer(id) ? (long long)json_integer_value(id) : -1LL);
    }
    return ssm__string_map_add(&tokenizer->added_ids, token->content, bytes, (int32_t)index, err);
}

static ssm_status parse_added_tokens(const char *path, const json_t *root, ssm_tokenizer *tokenizer,
                                     ssm_error *err)
{
    const json_t *list = json_object_get(root, "added_tokens");
    if (list == NULL || json_is_null(list)) {
        return SSM_STATUS_OK;
    }
    if (!json_is_array(list)) {
        return ssm__fail_field(path, "added_tokens", err, "must be a list");
    }
    size_t count = json_array_size(list);
    tokenizer->added.tokens = calloc(count + 1, sizeof *tokenizer->added.tokens);
    if (tokenizer->added.tokens == NULL) {
        return ssm__fail_memory(err, "the added tokens", count * sizeof *tokenizer->added.tokens);
    }
    int32_t next_id = (int32_t)tokenizer->model.vocab.count;
    for (size_t i = 0; i < count; i++) {
        SSM__TRY(parse_added_token(path, json_array_get(list, i), tokenizer, &next_id, err));
    }
    return ssm__added_tokens_index(path, &tokenizer->added, err);
}

/* ---- the whole file -------------------------------------------------------------------------- */

static ssm_status check_root(const char *path, const json_t *root, ssm_error *err)
{
    static const char where[] = "tokenizer.json";
    static const char *const known[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    if (!json_is_object(root)) {
        return ssm__fail_field(path, where, err, "must be an object");
    }
    SSM__TRY(ssm__fields_known(path, where, root, known, err));
    const json_t *version = json_object_get(root, "version");
    const char *text = json_string_value(version);
    if (version != NULL && (text == NULL || strcmp(text, "1.0") != 0)) {
        return ssm__fail_field(path, where, err, "has version \"%.100s\", expected \"1.0\"",
                               text == NULL ? "?" : text);
    }
    static const char *const absent[] = {"truncation", "padding", NULL};
    for (int i = 0; absent[i] != NULL; i++) {
        const json_t *value = json_object_get(root, absent[i]);
        if (value != NULL && !json_is_null(value)) {
            return ssm__fail_field(path, where, err,
                                   "%s is not supported: it changes what a text "
                                   "becomes; set it to null",
                                   absent[i]);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status check_template_ids(const char *path, const ssm_tokenizer *tokenizer,
                                     const ssm_ids *ids, ssm_error *err)
{
    for (int64_t i = 0; i < ids->count; i++) {
        if (ids->data[i] >= tokenizer->size || !tokenizer->tokens[ids->data[i]].present) {
            return ssm__fail_field(path, "post_processor", err,
                                   "adds the id %d, which is not in the vocabulary", ids->data[i]);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status parse_root(const char *path, const json_t *root, ssm_tokenizer *tokenizer,
                             ssm_error *err)
{
    SSM__TRY(check_root(path, root, err));
    SSM__TRY(ssm__normalizer_parse(path, json_object_get(root, "normalizer"),
                                   &tokenizer->normalizer, err));
    SSM__TRY(ssm__pretokenizer_parse(path, json_object_get(root, "pre_tokenizer"),
                                     &tokenizer->pretokenizer, err));
    SSM__TRY(ssm__postprocessor_parse(path, json_object_get(root, "post_processor"),
                                      &tokenizer->postprocessor, err));
    SSM__TRY(ssm__decoder_parse(path, json_object_get(root, "decoder"), &tokenizer->decoder, err));
    SSM__TRY(ssm__model_parse(path, json_object_get(root, "model"), &tokenizer->model, err));
    ssm__pretokenizer *pretokenizer = &tokenizer->pretokenizer;
    pretokenizer->bytes =
        pretokenizer->count > 0 && ssm__model_takes_bytes(&tokenizer->model) &&
        pretokenizer->stages[pretokenizer->count - 1].kind == SSM__PRETOKENIZER_BYTE_LEVEL;
    SSM__TRY(ssm__unicode_create(&tokenizer->unicode, err));
    SSM__TRY(parse_added_tokens(path, root, tokenizer, err));
    SSM__TRY(ssm__tokens_build(tokenizer, err));
    SSM__TRY(check_template_ids(path, tokenizer, &tokenizer->postprocessor.before, err));
    return check_template_ids(path, tokenizer, &tokenizer->postprocessor.after, err);
}

ssm_status ssm__tokenizer_from_memory(const char *name, const char *text, size_t bytes,
                                      ssm_tokenizer **out, ssm_error *err)
{
    if (bytes > FILE_MOST) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(name),
                         "the file has %zu bytes, a tokenizer.json has at most %d", bytes,
                         FILE_MOST);
    }
    SSM__TRY(ssm__refuse_foreign(name, (const unsigned char *)text, bytes, err));
    json_t *root = NULL;
    SSM__TRY(ssm__json_parse(name, 0, text, bytes, SSM__JSON_STRICT, &root, err));
    ssm_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (tokenizer == NULL) {
        json_decref(root);
        return ssm__fail_memory(err, "a tokenizer", sizeof *tokenizer);
    }
    ssm__digest_bytes(text, bytes, tokenizer->digest);
    ssm_status status = parse_root(name, root, tokenizer, err);
    json_decref(root);
    if (status != SSM_STATUS_OK) {
        ssm_tokenizer_free(tokenizer);
        return status;
    }
    *out = tokenizer;
    return SSM_STATUS_OK;
}

static ssm_status open_file(const char *path, ssm_tokenizer **out, ssm_error *err)
{
    ssm__map map;
    SSM__TRY(ssm__map_open(path, &map, err));
    ssm_status status = ssm__tokenizer_from_memory(
        path, map.data == NULL ? "" : (const char *)map.data, map.size, out, err);
    ssm__map_close(&map);
    return status;
}

ssm_status ssm_tokenizer_open(const char *path, ssm_tokenizer **out, ssm_error *err)
{
    *out = NULL;
    if (!ssm__is_directory(path)) {
        return open_file(path, out, err);
    }
    char *file = ssm__path_join(path, "tokenizer.json");
    if (file == NULL) {
        return ssm__fail_memory(err, "a path", strlen(path));
    }
    ssm_status status;
    if (ssm__is_file(file)) {
        status = open_file(file, out, err);
    } else {
        status = ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(file),
                           "there is no tokenizer.json in the directory; the state-spaces models "
                           "use that of EleutherAI/gpt-neox-20b, put it there");
    }
    free(file);
    return status;
}

void ssm_tokenizer_free(ssm_tokenizer *tokenizer)
{
    if (tokenizer == NULL) {
        return;
    }
    ssm__unicode_free(&tokenizer->unicode);
    ssm__added_tokens_free(&tokenizer->added);
    ssm__string_map_free(&tokenizer->added_ids);
    ssm__pretokenizer_free(&tokenizer->pretokenizer);
    ssm__normalizer_free(&tokenizer->normalizer);
    ssm__decoder_chain_free(&tokenizer->decoder);
    ssm__model_free(&tokenizer->model);
    ssm__postprocessor_free(&tokenizer->postprocessor);
    free(tokenizer->tokens);
    free(tokenizer->pool);
    free(tokenizer);
}
