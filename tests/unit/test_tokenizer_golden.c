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
#include "test_tokenizer_run.h"
#include "tokenizer/tokenizer.h"

/* The cases and digests of `name`; frees the tokenizer. */
static void check_tokenizer(ssm_tokenizer *tokenizer, const char *name)
{
    golden_run r = {.tokenizer = tokenizer};
    char file[64];
    snprintf(file, sizeof file, "%s.cases.jsonl", name);
    json_t *cases = read_json_lines(file);
    assert_true(json_array_size(cases) > 100);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        golden_check_case(&r, json_array_get(cases, i), name, i);
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
        golden_digests got = golden_digest(&r, &generator, first, generator.block);
        if (got.ids != ids || got.decoded != decoded) {
            fail_msg("%s: strings %lld to %lld differ in their %s", name, (long long)first,
                     (long long)(first + generator.block - 1),
                     got.ids != ids ? "ids" : "decoded texts");
        }
    }
    fclose(digests);
    text_generator_free(&generator);
    golden_run_free(&r);
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

/* The cases and digests of one line. */
static void check_row(golden_run *r, const json_t *row, text_generator *generator, int64_t strings)
{
    const char *name = json_string_value(json_object_get(row, "name"));
    const json_t *cases = json_object_get(row, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        golden_check_case(r, json_array_get(cases, i), name, i);
    }
    golden_digests got = golden_digest(r, generator, 0, strings);
    golden_check_random(r, name, json_string_value(json_object_get(row, "random")));
    char hex[40];
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)got.ids);
    if (strcmp(hex, json_string_value(json_object_get(row, "ids"))) != 0) {
        fail_msg("%s: ids of generated strings differ", name);
    }
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)got.decoded);
    if (strcmp(hex, json_string_value(json_object_get(row, "decoded"))) != 0) {
        fail_msg("%s: decoded texts of generated strings differ", name);
    }
}

static void check_variant(const json_t *base, const json_t *row, text_generator *generator,
                          int64_t strings)
{
    const char *name = json_string_value(json_object_get(row, "name"));
    const json_t *change = json_object_get(row, "change");
    char *text = apply(base, change);
    ssm_error err = {0};
    golden_run r = {0};
    r.options.special_as_text = json_is_true(json_object_get(change, "special_as_text"));
    r.options.add_special_tokens = json_is_true(json_object_get(change, "add_special_tokens"));
    if (ssm__tokenizer_from_memory(name, text, strlen(text), &r.tokenizer, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", name, err.message);
    }
    free(text);
    check_row(&r, row, generator, strings);
    golden_run_free(&r);
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

/* ---- whole small tokenizers ------------------------------------------------------------------ */

static void components(void **state)
{
    (void)state;
    json_t *lines = read_json_lines("../tokenizers/components.jsonl");
    text_generator generator = text_generator_create();
    assert_true(json_array_size(lines) >= 17);
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const json_t *row = json_array_get(lines, i);
        char relative[128];
        char path[TEST_PATH_MAX];
        snprintf(relative, sizeof relative, "tokenizers/%s.json",
                 json_string_value(json_object_get(row, "name")));
        golden_run r = {.options = {.add_special_tokens = true}};
        ssm_error err = {0};
        if (ssm_tokenizer_open(test_golden_path(path, relative), &r.tokenizer, &err) !=
            SSM_STATUS_OK) {
            fail_msg("%s: %s", err.file, err.message);
        }
        check_row(&r, row, &generator, json_integer_value(json_object_get(row, "strings")));
        golden_run_free(&r);
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
        cmocka_unit_test(components),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
