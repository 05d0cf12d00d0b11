/* Ids and texts against Hugging Face tokenizers (tools/make_tokenizer_goldens.py; version in
 * tests/golden/tokenizer/MANIFEST.json). Exact: no tolerance. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_gguf.h"
#include "test_paths.h"
#include "test_text_generator.h"
#include "tokenizer/tokenizer.h"

typedef struct digest_pair {
    uint64_t ids;
    uint64_t decoded;
} digest_pair;

typedef struct run {
    ssm_tokenizer *tokenizer;
    ssm_encode_options options;
    ssm_ids ids;
    ssm_text text;
} run;

static void run_free(run *r)
{
    ssm_ids_free(&r->ids);
    ssm_text_free(&r->text);
    ssm_tokenizer_free(r->tokenizer);
}

static void encode(run *r, const char *text, size_t bytes)
{
    ssm_error err = {0};
    r->ids.count = 0;
    if (ssm_tokenizer_encode(r->tokenizer, text, bytes, &r->options, &r->ids, &err) !=
        SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
}

static void decode(run *r, bool skip_special)
{
    ssm_error err = {0};
    r->text.bytes = 0;
    if (ssm_tokenizer_decode(r->tokenizer, r->ids.data, r->ids.count, skip_special, &r->text,
                             &err) != SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
}

/* Digests of `count` generated strings from `first` on. */
static digest_pair digest(run *r, text_generator *generator, int64_t first, int64_t count)
{
    digest_pair state = {FNV_START, FNV_START};
    for (int64_t i = first; i < first + count; i++) {
        const ssm_text *text = text_generator_string(generator, i);
        encode(r, text->data, text->bytes);
        decode(r, false);
        state.ids = fnv_add_u32(state.ids, (uint32_t)r->ids.count);
        for (int64_t k = 0; k < r->ids.count; k++) {
            state.ids = fnv_add_u32(state.ids, (uint32_t)r->ids.data[k]);
        }
        state.decoded = fnv_add_u32(state.decoded, (uint32_t)r->text.bytes);
        state.decoded = fnv_add(state.decoded, r->text.data, r->text.bytes);
    }
    return state;
}

static void check_text(const ssm_text *got, const json_t *expected, const char *name, size_t index)
{
    if (got->bytes != json_string_length(expected) ||
        memcmp(got->data, json_string_value(expected), got->bytes) != 0) {
        fail_msg("%s case %zu decodes to \"%s\"", name, index, got->data);
    }
}

static void check_case(run *r, const json_t *spec, const char *name, size_t index)
{
    const json_t *text = json_object_get(spec, "text");
    const json_t *ids = json_object_get(spec, "ids");
    encode(r, json_string_value(text), json_string_length(text));
    if ((size_t)r->ids.count != json_array_size(ids)) {
        fail_msg("%s case %zu \"%s\": %lld ids, expected %zu", name, index, json_string_value(text),
                 (long long)r->ids.count, json_array_size(ids));
    }
    for (int64_t k = 0; k < r->ids.count; k++) {
        if (r->ids.data[k] != json_integer_value(json_array_get(ids, (size_t)k))) {
            fail_msg("%s case %zu \"%s\": id %lld is %d, expected %lld", name, index,
                     json_string_value(text), (long long)k, r->ids.data[k],
                     (long long)json_integer_value(json_array_get(ids, (size_t)k)));
        }
    }
    decode(r, false);
    check_text(&r->text, json_object_get(spec, "decoded"), name, index);
    decode(r, true);
    check_text(&r->text, json_object_get(spec, "skipped"), name, index);
}

/* The cases and digests of `name`; frees the tokenizer. */
static void check_tokenizer(ssm_tokenizer *tokenizer, const char *name)
{
    run r = {.tokenizer = tokenizer};
    char file[64];
    snprintf(file, sizeof file, "%s.cases.jsonl", name);
    json_t *cases = read_json_lines(file);
    assert_true(json_array_size(cases) > 100);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        check_case(&r, json_array_get(cases, i), name, i);
    }
    json_decref(cases);

    char relative[64];
    char digests_path[TEST_PATH_MAX];
    snprintf(relative, sizeof relative, "tokenizer/%s.digests", name);
    FILE *digests = fopen(test_golden_path(digests_path, relative), "r");
    assert_non_null(digests);
    text_generator generator = text_generator_create();
    assert_true(generator.strings >= 20000);
    for (int64_t first = 0; first < generator.strings; first += generator.block) {
        unsigned long long ids;
        unsigned long long decoded;
        assert_int_equal(fscanf(digests, "%llx %llx", &ids, &decoded), 2);
        digest_pair got = digest(&r, &generator, first, generator.block);
        if (got.ids != ids || got.decoded != decoded) {
            fail_msg("%s: strings %lld to %lld differ in their %s", name, (long long)first,
                     (long long)(first + generator.block - 1),
                     got.ids != ids ? "ids" : "decoded texts");
        }
    }
    fclose(digests);
    text_generator_free(&generator);
    run_free(&r);
}

static void check_file(const char *path, const char *name)
{
    ssm_error err = {0};
    ssm_tokenizer *tokenizer = NULL;
    if (ssm_tokenizer_open(path, &tokenizer, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", err.file, err.message);
    }
    check_tokenizer(tokenizer, name);
}

static void check_shared(const char *relative, const char *name)
{
    char path[TEST_PATH_MAX];
    if (!test_shared_path(path, relative)) {
        skip();
    }
    check_file(path, name);
}

static void tiny(void **state)
{
    (void)state;
    check_file(SSM_SOURCE_DIR "/models/tiny/tokenizer.json", "tiny");
}

static void neox(void **state)
{
    (void)state;
    check_shared("data/tokenizers/gpt-neox/tokenizer.json", "neox");
}

static void small_bytelevel(void **state)
{
    (void)state;
    check_shared("data/tokenizers/small/tiny_bpe_bytelevel_tokenizer.json", "small_bytelevel");
}

static void small_falcon(void **state)
{
    (void)state;
    check_shared("data/tokenizers/small/tiny_bpe_falcon_seq_tokenizer.json", "small_falcon");
}

static void falcon(void **state)
{
    (void)state;
    ssm_tokenizer *tokenizer = test_falcon_tokenizer();
    if (tokenizer == NULL) {
        skip();
    }
    check_tokenizer(tokenizer, "falcon");
}

/* ---- variants: one stage replaced ------------------------------------------------------------ */

static void remove_tokens(json_t *model, const json_t *gone)
{
    json_t *merges = json_object_get(model, "merges");
    for (size_t g = 0; g < json_array_size(gone); g++) {
        const char *token = json_string_value(json_array_get(gone, g));
        json_object_del(json_object_get(model, "vocab"), token);
        for (size_t i = json_array_size(merges); i-- > 0;) {
            const json_t *pair = json_array_get(merges, i);
            if (strcmp(json_string_value(json_array_get(pair, 0)), token) == 0 ||
                strcmp(json_string_value(json_array_get(pair, 1)), token) == 0) {
                json_array_remove(merges, i);
            }
        }
    }
}

static char *apply(const json_t *base, const json_t *change)
{
    json_t *spec = json_deep_copy(base);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)change, key, value)
    {
        if (strcmp(key, "model_options") == 0) {
            json_object_update(json_object_get(spec, "model"), value);
        } else if (strcmp(key, "model_remove") == 0) {
            remove_tokens(json_object_get(spec, "model"), value);
        } else if (strcmp(key, "special_as_text") != 0 && strcmp(key, "add_special_tokens") != 0) {
            json_object_set(spec, key, value);
        }
    }
    char *text = json_dumps(spec, JSON_COMPACT);
    assert_non_null(text);
    json_decref(spec);
    return text;
}

static void check_variant(const json_t *base, const json_t *row, text_generator *generator,
                          int64_t strings)
{
    const char *name = json_string_value(json_object_get(row, "name"));
    const json_t *change = json_object_get(row, "change");
    char *text = apply(base, change);
    ssm_error err = {0};
    run r = {0};
    r.options.special_as_text = json_is_true(json_object_get(change, "special_as_text"));
    r.options.add_special_tokens = json_is_true(json_object_get(change, "add_special_tokens"));
    if (ssm__tokenizer_from_memory(name, text, strlen(text), &r.tokenizer, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", name, err.message);
    }
    free(text);
    const json_t *cases = json_object_get(row, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        check_case(&r, json_array_get(cases, i), name, i);
    }
    digest_pair got = digest(&r, generator, 0, strings);
    char hex[40];
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)got.ids);
    if (strcmp(hex, json_string_value(json_object_get(row, "ids"))) != 0) {
        fail_msg("%s: ids of generated strings differ", name);
    }
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)got.decoded);
    if (strcmp(hex, json_string_value(json_object_get(row, "decoded"))) != 0) {
        fail_msg("%s: decoded texts of generated strings differ", name);
    }
    run_free(&r);
}

static void variants(void **state)
{
    (void)state;
    json_t *lines = read_json_lines("variants.json");
    const json_t *head = json_array_get(lines, 0);
    text_generator generator = text_generator_create();
    assert_true(json_array_size(lines) > 40);
    for (size_t i = 1; i < json_array_size(lines); i++) {
        check_variant(json_object_get(head, "base"), json_array_get(lines, i), &generator,
                      json_integer_value(json_object_get(head, "strings")));
    }
    text_generator_free(&generator);
    json_decref(lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny),         cmocka_unit_test(neox),
        cmocka_unit_test(falcon),       cmocka_unit_test(small_bytelevel),
        cmocka_unit_test(small_falcon), cmocka_unit_test(variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
