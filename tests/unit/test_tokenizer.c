/* The public tokenizer calls: laws, special tokens, streaming, invalid text, handed cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <ssmscope/tokenizer.h>

#include "test_gguf.h"
#include "test_paths.h"
#include "test_text_generator.h"

static ssm_tokenizer *tiny;

static int open_tiny(void **state)
{
    (void)state;
    return ssm_tokenizer_open(SSM_SOURCE_DIR "/models/tiny", &tiny, NULL) == SSM_STATUS_OK ? 0 : -1;
}

static int close_tiny(void **state)
{
    (void)state;
    ssm_tokenizer_free(tiny);
    return 0;
}

static void encode(const ssm_tokenizer *tokenizer, const char *text, size_t bytes, ssm_ids *ids)
{
    ssm_error err = {0};
    ids->count = 0;
    if (ssm_tokenizer_encode(tokenizer, text, bytes, NULL, ids, &err) != SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
}

static void decode(const ssm_tokenizer *tokenizer, const ssm_ids *ids, bool skip, ssm_text *text)
{
    ssm_error err = {0};
    text->bytes = 0;
    if (ssm_tokenizer_decode(tokenizer, ids->data, ids->count, skip, text, &err) != SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
}

/* ---- laws ------------------------------------------------------------------------------------ */

/* The text of the ids is the text in normal form: its ids are the same, and it is a fixed point. */
static void decode_encode(void **state)
{
    (void)state;
    text_generator generator = text_generator_create();
    ssm_ids ids = {0};
    ssm_ids again = {0};
    ssm_text text = {0};
    ssm_text twice = {0};
    int verbatim = 0;
    for (int64_t i = 0; i < 2000; i++) {
        const ssm_text *from = text_generator_string(&generator, i);
        encode(tiny, from->data, from->bytes, &ids);
        decode(tiny, &ids, false, &text);
        verbatim += text.bytes == from->bytes && memcmp(text.data, from->data, text.bytes) == 0;
        encode(tiny, text.data, text.bytes, &again);
        assert_int_equal(again.count, ids.count);
        assert_memory_equal(again.data, ids.data, (size_t)ids.count * sizeof *ids.data);
        decode(tiny, &again, false, &twice);
        assert_int_equal(twice.bytes, text.bytes);
        assert_memory_equal(twice.data, text.data, text.bytes);
        assert_int_equal(text.data[text.bytes], '\0');
    }
    assert_true(verbatim > 1000); /* most strings are in normal form already */
    ssm_ids_free(&ids);
    ssm_ids_free(&again);
    ssm_text_free(&text);
    ssm_text_free(&twice);
    text_generator_free(&generator);
}

/* Pieces given as they come join to the whole, on ids that no text gives. */
static void streaming(void **state)
{
    (void)state;
    text_generator numbers = {.state = 11};
    ssm_ids ids = {0};
    ssm_text whole = {0};
    ssm_text joined = {0};
    for (int round = 0; round < 4000; round++) {
        bool skip = round % 2 == 1;
        int32_t list[24];
        int64_t count = (int64_t)(text_generator_next(&numbers) % 24);
        for (int64_t i = 0; i < count; i++) {
            /* Low ids are single bytes: broken characters are frequent. */
            uint64_t range = text_generator_next(&numbers) % 4 ? 257 : 4096;
            list[i] = (int32_t)(text_generator_next(&numbers) % range);
        }
        ids = (ssm_ids){list, count, 24};
        decode(tiny, &ids, skip, &whole);
        ssm_decoder *decoder = NULL;
        assert_int_equal(ssm_decoder_create(tiny, skip, &decoder, NULL), 0);
        joined.bytes = 0;
        for (int64_t i = 0; i < count; i++) {
            assert_int_equal(ssm_decoder_push(decoder, list[i], &joined, NULL), 0);
        }
        assert_true(whole.bytes - joined.bytes <= 3); /* at most one U+FFFD was waiting */
        assert_int_equal(ssm_decoder_finish(decoder, &joined, NULL), 0);
        assert_int_equal(joined.bytes, whole.bytes);
        assert_memory_equal(joined.data, whole.data, whole.bytes);
        ssm_decoder_free(decoder);
    }
    ssm_text_free(&whole);
    ssm_text_free(&joined);
}

/* A character shows as soon as its last byte is there. */
static void streaming_is_prompt(void **state)
{
    (void)state;
    ssm_decoder *decoder = NULL;
    ssm_text text = {0};
    assert_int_equal(ssm_decoder_create(tiny, false, &decoder, NULL), 0);
    /* U+20AC is E2 82 AC; as characters of the byte alphabet U+00E2, U+0124, U+00AC. */
    static const char *const bytes[] = {"\xC3\xA2", "\xC4\xA4", "\xC2\xAC"};
    for (int i = 0; i < 3; i++) {
        int32_t id = ssm_tokenizer_id(tiny, bytes[i], 2);
        assert_true(id >= 0);
        assert_int_equal(text.bytes, 0);
        assert_int_equal(ssm_decoder_push(decoder, id, &text, NULL), 0);
    }
    assert_string_equal(text.data, "\xE2\x82\xAC");
    ssm_decoder_free(decoder);
    ssm_text_free(&text);
}

typedef struct shared_work {
    const ssm_text *text;
    ssm_ids ids;
    ssm_status status;
} shared_work;

static void *encode_in_thread(void *argument)
{
    shared_work *work = argument;
    for (int i = 0; i < 20 && work->status == SSM_STATUS_OK; i++) {
        work->ids.count = 0;
        work->status =
            ssm_tokenizer_encode(tiny, work->text->data, work->text->bytes, NULL, &work->ids, NULL);
    }
    return NULL;
}

/* One tokenizer in four threads (the thread sanitizer watches in CI). */
static void shared_by_threads(void **state)
{
    (void)state;
    text_generator generator = text_generator_create();
    const ssm_text *text = text_generator_string(&generator, 5);
    ssm_ids expected = {0};
    encode(tiny, text->data, text->bytes, &expected);
    pthread_t threads[4];
    shared_work work[4];
    for (int i = 0; i < 4; i++) {
        work[i] = (shared_work){.text = text, .status = SSM_STATUS_OK};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_in_thread, &work[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(work[i].status, SSM_STATUS_OK);
        assert_int_equal(work[i].ids.count, expected.count);
        assert_memory_equal(work[i].ids.data, expected.data,
                            (size_t)expected.count * sizeof *expected.data);
        ssm_ids_free(&work[i].ids);
    }
    ssm_ids_free(&expected);
    text_generator_free(&generator);
}

/* ---- options --------------------------------------------------------------------------------- */

static void special_tokens(void **state)
{
    (void)state;
    const char text[] = "x<|endoftext|>y";
    ssm_ids ids = {0};
    ssm_text out = {0};
    encode(tiny, text, strlen(text), &ids);
    assert_int_equal(ids.count, 3);
    assert_int_equal(ids.data[1], 0);
    decode(tiny, &ids, false, &out);
    assert_string_equal(out.data, text);
    decode(tiny, &ids, true, &out);
    assert_string_equal(out.data, "xy");

    ssm_encode_options as_text = {.special_as_text = true};
    ids.count = 0;
    assert_int_equal(ssm_tokenizer_encode(tiny, text, strlen(text), &as_text, &ids, NULL), 0);
    for (int64_t i = 0; i < ids.count; i++) {
        assert_int_not_equal(ids.data[i], 0);
    }
    decode(tiny, &ids, true, &out);
    assert_string_equal(out.data, text);
    ssm_ids_free(&ids);
    ssm_text_free(&out);
}

static void invalid_utf8(void **state)
{
    (void)state;
    /* What CPython gives for bytes.decode("utf-8", "replace"). */
    static const struct {
        const char *bytes;
        int64_t offset;
        const char *replaced;
    } cases[] = {
        {"a\x80z", 1, "a\xEF\xBF\xBDz"},
        {"ab\xE2\x82", 2, "ab\xEF\xBF\xBD"},
        {"\xE2\x82z", 0, "\xEF\xBF\xBDz"},
        {"\xED\xA0\x80", 0, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"}, /* a surrogate */
        {"\xF0\x9F\x98", 0, "\xEF\xBF\xBD"},
        {"\xF0\x80\x80z", 0, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz"},
        {"\xC0\xAF", 0, "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"12345678\xFFz", 8, "12345678\xEF\xBF\xBDz"},
        {"\xF4\x90\x80\x80", 0, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
    };
    ssm_ids ids = {0};
    ssm_text out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ssm_error err = {0};
        ssm_encode_options options = {.invalid_utf8 = SSM_INVALID_UTF8_ERROR};
        size_t bytes = strlen(cases[i].bytes);
        ids.count = 0;
        assert_int_equal(ssm_tokenizer_encode(tiny, cases[i].bytes, bytes, &options, &ids, &err),
                         SSM_STATUS_FILE);
        assert_int_equal(err.offset, cases[i].offset);
        assert_int_equal(ids.count, 0);
        options.invalid_utf8 = SSM_INVALID_UTF8_REPLACE;
        assert_int_equal(ssm_tokenizer_encode(tiny, cases[i].bytes, bytes, &options, &ids, &err),
                         0);
        decode(tiny, &ids, false, &out);
        assert_string_equal(out.data, cases[i].replaced);
    }
    ssm_ids_free(&ids);
    ssm_text_free(&out);
}

static void nul_and_empty(void **state)
{
    (void)state;
    ssm_ids ids = {0};
    ssm_text out = {0};
    encode(tiny, "", 0, &ids);
    assert_int_equal(ids.count, 0);
    decode(tiny, &ids, false, &out);
    assert_int_equal(out.bytes, 0);
    assert_string_equal(out.data, "");
    encode(tiny, "a\0b\0", 4, &ids);
    decode(tiny, &ids, false, &out);
    assert_int_equal(out.bytes, 4);
    assert_memory_equal(out.data, "a\0b\0", 4);
    ssm_ids_free(&ids);
    ssm_text_free(&out);
}

/* Appending keeps what is there; a failure leaves the list as it was. */
static void appending(void **state)
{
    (void)state;
    ssm_ids ids = {0};
    ssm_text out = {0};
    assert_int_equal(ssm_tokenizer_encode(tiny, "one", 3, NULL, &ids, NULL), 0);
    int64_t count = ids.count;
    assert_int_equal(ssm_tokenizer_encode(tiny, "two\xFF", 4, NULL, &ids, NULL), SSM_STATUS_FILE);
    assert_int_equal(ids.count, count);
    assert_int_equal(ssm_tokenizer_encode(tiny, " two", 4, NULL, &ids, NULL), 0);
    assert_true(ids.count > count);
    assert_int_equal(ssm_tokenizer_decode(tiny, ids.data, count, false, &out, NULL), 0);
    assert_int_equal(
        ssm_tokenizer_decode(tiny, ids.data + count, ids.count - count, false, &out, NULL), 0);
    assert_string_equal(out.data, "one two");
    ssm_ids_free(&ids);
    ssm_text_free(&out);
}

static void ids_outside(void **state)
{
    (void)state;
    static const int32_t bad[] = {-1, 4096, INT32_MAX, INT32_MIN};
    ssm_text out = {0};
    for (int i = 0; i < 4; i++) {
        const int32_t ids[] = {5, 6, bad[i]};
        ssm_error err = {0};
        out.bytes = 0;
        assert_int_equal(ssm_tokenizer_decode(tiny, ids, 3, false, &out, &err), SSM_STATUS_USAGE);
        assert_non_null(strstr(err.message, "place 2"));
    }
    assert_int_equal(ssm_tokenizer_vocab_size(tiny), 4096);
    assert_int_equal(ssm_tokenizer_id(tiny, "<|endoftext|>", 13), 0);
    assert_int_equal(ssm_tokenizer_id(tiny, "no such token", 13), -1);
    assert_memory_equal(ssm_tokenizer_digest(tiny), "xxh3-128:", 9);
    assert_int_equal(strlen(ssm_tokenizer_digest(tiny)), 9 + 32);
    ssm_text_free(&out);
}

/* One piece of 1 MB, and one line of 1 MB: quadratic work would take minutes. */
static void long_texts(void **state)
{
    (void)state;
    enum { BYTES = 1000000 };
    char *text = malloc(BYTES);
    assert_non_null(text);
    ssm_ids ids = {0};
    ssm_text out = {0};
    text_generator numbers = {.state = 2};
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < BYTES; i++) {
            text[i] =
                kind == 0
                    ? 'a'
                    : "abcdefghijklm   "[text_generator_next(&numbers) % (kind == 1 ? 13 : 16)];
        }
        encode(tiny, text, BYTES, &ids);
        decode(tiny, &ids, false, &out);
        assert_int_equal(out.bytes, BYTES);
        assert_memory_equal(out.data, text, BYTES);
    }
    free(text);
    ssm_ids_free(&ids);
    ssm_text_free(&out);
}

/* ---- handed cases ---------------------------------------------------------------------------- */

static char *read_text(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = calloc(1 << 20, 1);
    assert_non_null(text);
    *bytes = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    return text;
}

static ssm_tokenizer *open_shared(const char *relative)
{
    char path[TEST_PATH_MAX];
    if (!test_shared_path(path, relative)) {
        return NULL;
    }
    ssm_tokenizer *tokenizer = NULL;
    ssm_error err = {0};
    if (ssm_tokenizer_open(path, &tokenizer, &err) != SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
    return tokenizer;
}

/* Texts between separator lines, a line of ids for each. Frees the tokenizer. */
static void check_separated(ssm_tokenizer *tokenizer, const char *directory)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char relative[TEST_PATH_MAX];
    char inputs[TEST_PATH_MAX];
    char outputs[TEST_PATH_MAX];
    snprintf(relative, sizeof relative, "%s/cases.inp", directory);
    bool found = tokenizer != NULL && test_shared_path(inputs, relative);
    snprintf(relative, sizeof relative, "%s/cases.out", directory);
    if (!found || !test_shared_path(outputs, relative)) {
        ssm_tokenizer_free(tokenizer);
        skip();
    }
    size_t bytes;
    size_t ids_bytes;
    char *texts = read_text(inputs, &bytes);
    char *lines = read_text(outputs, &ids_bytes);
    char *line = lines;
    ssm_ids ids = {0};
    int checked = 0;
    for (char *text = texts; text < texts + bytes;) {
        char *end = strstr(text, separator);
        if (end == NULL) {
            break;
        }
        encode(tokenizer, text, (size_t)(end - text), &ids);
        char *line_end = strchr(line, '\n');
        assert_non_null(line_end);
        *line_end = '\0';
        int64_t count = 0;
        for (char *rest = line;; count++) {
            char *after;
            long id = strtol(rest, &after, 10);
            if (after == rest) {
                break;
            }
            assert_true(count < ids.count);
            assert_int_equal(ids.data[count], id);
            rest = after;
        }
        assert_int_equal(ids.count, count);
        line = line_end + 1;
        text = end + sizeof separator - 1;
        checked++;
    }
    assert_true(checked > 35);
    free(texts);
    free(lines);
    ssm_ids_free(&ids);
    ssm_tokenizer_free(tokenizer);
}

static void neox_cases(void **state)
{
    (void)state;
    check_separated(open_shared("data/tokenizers/gpt-neox/tokenizer.json"),
                    "data/tokenizers/gpt-neox");
}

static void falcon_cases(void **state)
{
    (void)state;
    check_separated(test_falcon_tokenizer(), "data/tokenizers/falcon");
}

static void check_small(const char *section, const char *tokenizer_file)
{
    ssm_tokenizer *small = open_shared(tokenizer_file);
    char path[TEST_PATH_MAX];
    if (small == NULL || !test_shared_path(path, "data/tokenizers/small/hf_cases.json")) {
        ssm_tokenizer_free(small);
        skip();
    }
    json_t *root = json_load_file(path, 0, NULL);
    const json_t *cases = json_object_get(json_object_get(root, section), "cases");
    assert_true(json_array_size(cases) > 5);
    ssm_ids ids = {0};
    ssm_text out = {0};
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        const json_t *text = json_object_get(one, "text");
        const json_t *expected = json_object_get(one, "ids");
        encode(small, json_string_value(text), json_string_length(text), &ids);
        assert_int_equal(ids.count, json_array_size(expected));
        for (size_t k = 0; k < json_array_size(expected); k++) {
            assert_int_equal(ids.data[k], json_integer_value(json_array_get(expected, k)));
        }
        decode(small, &ids, true, &out);
        assert_string_equal(out.data, json_string_value(json_object_get(one, "decoded")));
    }
    json_decref(root);
    ssm_ids_free(&ids);
    ssm_text_free(&out);
    ssm_tokenizer_free(small);
}

static void small_cases(void **state)
{
    (void)state;
    check_small("byte_level", "data/tokenizers/small/tiny_bpe_bytelevel_tokenizer.json");
}

static void small_falcon_cases(void **state)
{
    (void)state;
    check_small("falcon_seq", "data/tokenizers/small/tiny_bpe_falcon_seq_tokenizer.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_encode),       cmocka_unit_test(streaming),
        cmocka_unit_test(streaming_is_prompt), cmocka_unit_test(shared_by_threads),
        cmocka_unit_test(special_tokens),      cmocka_unit_test(invalid_utf8),
        cmocka_unit_test(nul_and_empty),       cmocka_unit_test(appending),
        cmocka_unit_test(ids_outside),         cmocka_unit_test(long_texts),
        cmocka_unit_test(neox_cases),          cmocka_unit_test(falcon_cases),
        cmocka_unit_test(small_cases),         cmocka_unit_test(small_falcon_cases),
    };
    return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}
