/* The tokenizer and the corpus when memory runs out: MEMORY, and never other ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failalloc.h"

#include <ssmscope/tokenizer.h>

#include "base/error.h"
#include "base/file.h"
#include "test_paths.h"
#include "toy_tokenizer.h"

static char directory[TEST_PATH_MAX];
static char path[TEST_PATH_MAX + 32];
static ssm_ids first_ids;   /* of the first run */
static ssm_text first_text; /* of the first run */

static int set_up(void **state)
{
    (void)state;
    test_make_directory(directory);
    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_directory(directory);
    ssm_ids_free(&first_ids);
    ssm_text_free(&first_text);
    return 0;
}

static void check(failalloc_case this)
{
    assert_true(failalloc_check(&this));
}

static ssm_status expect(bool right)
{
    return right ? SSM_STATUS_OK : SSM_STATUS_CHECK;
}

/* Right when they are those of the first run; frees them. */
static ssm_status expect_ids(ssm_ids *ids)
{
    if (first_ids.data == NULL) {
        first_ids = *ids;
        return SSM_STATUS_OK;
    }
    bool equal = ids->count == first_ids.count &&
                 memcmp(ids->data, first_ids.data, (size_t)ids->count * sizeof *ids->data) == 0;
    ssm_ids_free(ids);
    return expect(equal);
}

static ssm_status expect_text(ssm_text *text)
{
    if (first_text.data == NULL) {
        first_text = *text;
        return SSM_STATUS_OK;
    }
    bool equal =
        text->bytes == first_text.bytes && memcmp(text->data, first_text.data, text->bytes) == 0;
    ssm_text_free(text);
    return expect(equal);
}

/* Opens, and encodes a text with every step of the pipeline in it: added tokens, normalisation,
 * long pieces, merges. */
static ssm_status run_open(void *context, ssm_error *err)
{
    (void)context;
    ssm_tokenizer *tokenizer = NULL;
    SSM__TRY(ssm_tokenizer_open(path, &tokenizer, err));
    ssm_ids ids = {0};
    ssm_encode_options options = {.add_special_tokens = true};
    static const char text[] = "ab <|end|>abab  ba <pad> e\xCC\x81 aaaaaaaaaaaaaaaaabbbbbbbbb b";
    ssm_status status = ssm_tokenizer_encode(tokenizer, text, sizeof text - 1, &options, &ids, err);
    if (status == SSM_STATUS_OK) {
        status = expect_ids(&ids);
    } else {
        ssm_ids_free(&ids);
    }
    ssm_tokenizer_free(tokenizer);
    return status;
}

static void opening(void **state)
{
    (void)state;
    for (int kind = 0; kind < TOY_TOKENIZERS; kind++) {
        toy_tokenizer_write(path, kind);
        char name[64];
        snprintf(name, sizeof name, "ssm_tokenizer_open and encode, kind %d", kind);
        /* Patterns also work without the machine code of PCRE2 JIT, and queues without shrinking.
         */
        check((failalloc_case){.name = name, .run = run_open, .may_succeed = true});
        ssm_ids_free(&first_ids);
    }
}

/* The whole way there and back. */
static ssm_status run_component(void *context, ssm_error *err)
{
    const char *file = context;
    static const char text[] = "the-final  caf\xC3\xA9 12 \xE4\xB8\x96 the, aaaa";
    ssm_tokenizer *tokenizer = NULL;
    SSM__TRY(ssm_tokenizer_open(file, &tokenizer, err));
    ssm_ids ids = {0};
    ssm_text out = {0};
    ssm_encode_options options = {.add_special_tokens = true};
    ssm_status status = ssm_tokenizer_encode(tokenizer, text, sizeof text - 1, &options, &ids, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_tokenizer_decode(tokenizer, ids.data, ids.count, false, &out, err);
    }
    if (status == SSM_STATUS_OK) {
        status = expect_text(&out);
        out = (ssm_text){0};
    }
    ssm_ids_free(&ids);
    ssm_text_free(&out);
    ssm_tokenizer_free(tokenizer);
    return status;
}

/* The seeds of the fuzzer: every normalizer, pre-tokenizer, model, post-processor and decoder. */
static void components(void **state)
{
    (void)state;
    static const char *const seeds[] = {"bytes_normalizer", "falcon", "gpt",     "llama",
                                        "metaspace",        "prefix", "unigram", "wordlevel",
                                        "wordpiece"};
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        char file[TEST_PATH_MAX];
        snprintf(file, sizeof file, SSM_SOURCE_DIR "/tests/fuzz/corpus/fuzz_tokenizer_json/%s.json",
                 seeds[i]);
        check((failalloc_case){
            .name = seeds[i], .run = run_component, .context = file, .may_succeed = true});
        ssm_text_free(&first_text);
    }
}

typedef struct long_text {
    const ssm_tokenizer *tokenizer;
    char *text;
    size_t bytes;
} long_text;

static ssm_status run_encode(void *context, ssm_error *err)
{
    const long_text *this = context;
    ssm_ids ids = {0};
    ssm_status status =
        ssm_tokenizer_encode(this->tokenizer, this->text, this->bytes, NULL, &ids, err);
    if (status == SSM_STATUS_OK) {
        return expect_ids(&ids);
    }
    ssm_ids_free(&ids);
    return status;
}

static ssm_status run_decode(void *context, ssm_error *err)
{
    const long_text *this = context;
    ssm_text text = {0};
    ssm_status status =
        ssm_tokenizer_decode(this->tokenizer, first_ids.data, first_ids.count, false, &text, err);
    if (status == SSM_STATUS_OK) {
        return expect_text(&text);
    }
    ssm_text_free(&text);
    return status;
}

static ssm_status push_all(ssm_decoder *decoder, ssm_text *text, ssm_error *err)
{
    for (int64_t i = 0; i < first_ids.count; i++) {
        SSM__TRY(ssm_decoder_push(decoder, first_ids.data[i], text, err));
    }
    return ssm_decoder_finish(decoder, text, err);
}

static ssm_status run_decoder(void *context, ssm_error *err)
{
    const long_text *this = context;
    ssm_decoder *decoder = NULL;
    SSM__TRY(ssm_decoder_create(this->tokenizer, false, &decoder, err));
    ssm_text text = {0};
    ssm_status status = push_all(decoder, &text, err);
    ssm_decoder_free(decoder);
    if (status == SSM_STATUS_OK) {
        return expect_text(&text);
    }
    ssm_text_free(&text);
    return status;
}

static void coding(void **state)
{
    (void)state;
    toy_tokenizer_write(path, 0);
    ssm_tokenizer *tokenizer = NULL;
    assert_int_equal(ssm_tokenizer_open(path, &tokenizer, NULL), SSM_STATUS_OK);
    enum { BYTES = 20000 };
    long_text this = {tokenizer, malloc(BYTES), BYTES};
    assert_non_null(this.text);
    for (size_t i = 0; i < BYTES; i++) { /* one piece of 2000 letters, then short ones */
        this.text[i] = i > 2000 && i % 7 == 0 ? ' ' : "abba"[(i * i >> 4) % 4];
    }
    check((failalloc_case){
        .name = "ssm_tokenizer_encode", .run = run_encode, .context = &this, .may_succeed = true});
    check((failalloc_case){.name = "ssm_tokenizer_decode", .run = run_decode, .context = &this});
    check((failalloc_case){.name = "ssm_decoder", .run = run_decoder, .context = &this});
    assert_int_equal(first_text.bytes, BYTES);
    assert_memory_equal(first_text.data, this.text, BYTES);
    free(this.text);
    ssm_tokenizer_free(tokenizer);
}

static ssm_status run_corpus(void *context, ssm_error *err)
{
    const ssm_tokenizer *tokenizer = context;
    char arguments[3][TEST_PATH_MAX + 64];
    const char *list[3] = {arguments[0], arguments[1], arguments[2]};
    snprintf(arguments[0], sizeof arguments[0], "%s/prose.txt", directory);
    snprintf(arguments[1], sizeof arguments[1], "code=%s/other.txt", directory);
    snprintf(arguments[2], sizeof arguments[2], "prose=%s/other.txt", directory);
    ssm_corpus corpus = {0};
    SSM__TRY(ssm_corpus_open(tokenizer, list, 3, SSM_INVALID_UTF8_REPLACE, &corpus, err));
    bool right = corpus.n_files == 3 && corpus.n_domains == 2 && corpus.domains[0].ids.count > 0 &&
                 corpus.files[1].tokens == corpus.files[2].tokens &&
                 strcmp(corpus.domains[1].name, "code") == 0;
    ssm_corpus_free(&corpus);
    return expect(right);
}

static void corpora(void **state)
{
    (void)state;
    toy_tokenizer_write(path, 0);
    ssm_tokenizer *tokenizer = NULL;
    assert_int_equal(ssm_tokenizer_open(path, &tokenizer, NULL), SSM_STATUS_OK);
    char file[TEST_PATH_MAX + 32];
    snprintf(file, sizeof file, "%s/prose.txt", directory);
    assert_int_equal(ssm__write_file(file, "ab ba ab", 8, NULL), SSM_STATUS_OK);
    snprintf(file, sizeof file, "%s/other.txt", directory);
    assert_int_equal(ssm__write_file(file, "bbb aaa", 7, NULL), SSM_STATUS_OK);
    check((failalloc_case){
        .name = "ssm_corpus_open", .run = run_corpus, .context = tokenizer, .may_succeed = true});
    ssm_tokenizer_free(tokenizer);
}

int main(void)
{
#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(opening),
        IN_DIRECTORY(components),
        IN_DIRECTORY(coding),
        IN_DIRECTORY(corpora),
    };
    return cmocka_run_group_tests_name("failalloc_tokenizer", tests, NULL, NULL);
}
