#include "test_gguf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "test_paths.h"
#include "tokenizer/tokenizer.h"

typedef struct reader {
    unsigned char *data;
    size_t bytes;
    size_t at;
} reader;

enum { KIND_STRING = 8, KIND_ARRAY = 9 };

static const unsigned char *take(reader *r, size_t bytes)
{
    assert_true(bytes <= r->bytes - r->at);
    r->at += bytes;
    return r->data + r->at - bytes;
}

static uint64_t number(reader *r, size_t bytes)
{
    const unsigned char *from = take(r, bytes);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= (uint64_t)from[i] << 8 * i;
    }
    return value;
}

static json_t *text(reader *r)
{
    size_t bytes = (size_t)number(r, 8);
    json_t *value = json_stringn((const char *)take(r, bytes), bytes);
    assert_non_null(value);
    return value;
}

/* Strings, lists of them and lists of numbers as JSON; a single number as the number of its bits.
 */
static json_t *value(reader *r, uint64_t kind)
{
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (kind == KIND_STRING) {
        return text(r);
    }
    if (kind != KIND_ARRAY) {
        assert_true(kind < sizeof sizes / sizeof sizes[0]);
        return json_integer((json_int_t)number(r, sizes[kind]));
    }
    uint64_t inner = number(r, 4);
    uint64_t count = number(r, 8);
    json_t *list = json_array();
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(json_array_append_new(list, value(r, inner)), 0);
    }
    return list;
}

static json_t *read_metadata(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    enum { MOST = 16 << 20 };
    reader r = {.data = malloc(MOST)};
    assert_non_null(r.data);
    r.bytes = fread(r.data, 1, MOST, file);
    fclose(file);
    assert_memory_equal(take(&r, 4), "GGUF", 4);
    take(&r, 4 + 8); /* version, tensors */
    uint64_t count = number(&r, 8);
    json_t *metadata = json_object();
    for (uint64_t i = 0; i < count; i++) {
        json_t *key = text(&r);
        uint64_t kind = number(&r, 4);
        json_object_set_new(metadata, json_string_value(key), value(&r, kind));
        json_decref(key);
    }
    free(r.data);
    return metadata;
}

#define BYTE_LEVEL                                                                                 \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"

static json_t *build(json_t *metadata)
{
    static const char frame[] =
        "{\"version\":\"1.0\",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}," BYTE_LEVEL
        ",{\"type\":\"Digits\",\"individual_digits\":false},{\"type\":\"Split\",\"pattern\":"
        "{\"Regex\":\"[0-9][0-9][0-9]\"},\"behavior\":\"Isolated\",\"invert\":false}]},"
        "\"decoder\":" BYTE_LEVEL "}";
    json_t *root = json_loads(frame, 0, NULL);
    assert_non_null(root);
    const json_t *tokens = json_object_get(metadata, "tokenizer.ggml.tokens");
    const json_t *kinds = json_object_get(metadata, "tokenizer.ggml.token_type");
    json_t *vocab = json_object();
    json_t *added = json_array();
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const char *token = json_string_value(json_array_get(tokens, i));
        json_object_set_new(vocab, token, json_integer((json_int_t)i));
        if (json_integer_value(json_array_get(kinds, i)) == 3) {
            json_array_append_new(added,
                                  json_pack("{s:I,s:s,s:b,s:b,s:b,s:b,s:b}", "id", (json_int_t)i,
                                            "content", token, "single_word", 0, "lstrip", 0,
                                            "rstrip", 0, "normalized", 0, "special", 1));
        }
    }
    json_object_set_new(root, "added_tokens", added);
    json_object_set_new(root, "model",
                        json_pack("{s:s,s:o,s:O}", "type", "BPE", "vocab", vocab, "merges",
                                  json_object_get(metadata, "tokenizer.ggml.merges")));
    return root;
}

ssm_tokenizer *test_falcon_tokenizer(void)
{
    char path[TEST_PATH_MAX];
    if (!test_shared_path(path, "data/tokenizers/falcon/vocab.gguf")) {
        return NULL;
    }
    json_t *metadata = read_metadata(path);
    json_t *root = build(metadata);
    char *json = json_dumps(root, JSON_COMPACT);
    assert_non_null(json);
    json_decref(root);
    json_decref(metadata);
    ssm_error err = {0};
    ssm_tokenizer *tokenizer = NULL;
    if (ssm__tokenizer_from_memory("falcon", json, strlen(json), &tokenizer, &err) !=
        SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
    free(json);
    return tokenizer;
}
