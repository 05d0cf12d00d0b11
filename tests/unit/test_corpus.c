/* Texts by domain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <ssmscope/tokenizer.h>

#include "test_paths.h"

static ssm_tokenizer *tiny;
static char directory[TEST_PATH_MAX];

static void write_text(const char *name, const char *text, size_t bytes)
{
    char path[2 * TEST_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

static int set_up(void **state)
{
    (void)state;
    test_make_directory(directory);
    write_text("prose.txt", "Once upon a time", 16);
    write_text("more.tar.txt", " there was", 10);
    write_text(".hidden", "x", 1);
    write_text("empty", "", 0);
    write_text("broken.txt", "ok \xFF\xFE rest\xE2\x82", 12);
    return ssm_tokenizer_open(SSM_SOURCE_DIR "/models/tiny", &tiny, NULL) == SSM_STATUS_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    ssm_tokenizer_free(tiny);
    test_remove_directory(directory);
    return 0;
}

/* "PREFIXdirectory/NAME" in one of four buffers. */
static const char *argument(const char *prefix, const char *name)
{
    static char buffers[4][2 * TEST_PATH_MAX];
    static int next;
    char *out = buffers[next];
    next = (next + 1) % 4;
    snprintf(out, sizeof buffers[0], "%s%s/%s", prefix, directory, name);
    return out;
}

static void domains(void **state)
{
    (void)state;
    const char *arguments[] = {argument("", "prose.txt"), argument("", ".hidden"),
                               argument("prose=", "more.tar.txt"), argument("nothing=", "empty")};
    ssm_corpus corpus;
    assert_int_equal(ssm_corpus_open(tiny, arguments, 4, SSM_INVALID_UTF8_ERROR, &corpus, NULL), 0);
    assert_int_equal(corpus.n_files, 4);
    assert_int_equal(corpus.n_domains, 3);
    assert_string_equal(corpus.domains[0].name, "prose");
    assert_string_equal(corpus.domains[1].name, ".hidden");
    assert_string_equal(corpus.domains[2].name, "nothing");
    assert_string_equal(corpus.files[2].domain, "prose");
    assert_string_equal(corpus.files[2].path, strchr(arguments[2], '=') + 1);
    assert_int_equal(corpus.domains[0].ids.count, corpus.files[0].tokens + corpus.files[2].tokens);
    assert_int_equal(corpus.domains[2].ids.count, 0);
    assert_int_equal(corpus.replaced, 0);
    ssm_text text = {0};
    assert_int_equal(ssm_tokenizer_decode(tiny, corpus.domains[0].ids.data,
                                          corpus.domains[0].ids.count, false, &text, NULL),
                     0);
    assert_string_equal(text.data, "Once upon a time there was");
    assert_memory_equal(corpus.files[0].digest, "xxh3-128:", 9);
    assert_string_not_equal(corpus.files[0].digest, corpus.files[1].digest);
    ssm_text_free(&text);
    ssm_corpus_free(&corpus);
    ssm_corpus_free(NULL);
}

static void name_without_extension(void **state)
{
    (void)state;
    const char *arguments[] = {argument("", "more.tar.txt")};
    ssm_corpus corpus;
    assert_int_equal(ssm_corpus_open(tiny, arguments, 1, SSM_INVALID_UTF8_ERROR, &corpus, NULL), 0);
    assert_string_equal(corpus.domains[0].name, "more.tar");
    ssm_corpus_free(&corpus);
}

static void invalid_text(void **state)
{
    (void)state;
    const char *arguments[] = {argument("bad=", "broken.txt")};
    ssm_corpus corpus;
    ssm_error err = {0};
    assert_int_equal(ssm_corpus_open(tiny, arguments, 1, SSM_INVALID_UTF8_ERROR, &corpus, &err),
                     SSM_STATUS_FILE);
    assert_int_equal(err.offset, 3);
    assert_non_null(strstr(err.file, "broken.txt"));
    assert_null(corpus.files);
    assert_int_equal(ssm_corpus_open(tiny, arguments, 1, SSM_INVALID_UTF8_REPLACE, &corpus, NULL),
                     0);
    assert_int_equal(corpus.replaced, 3);
    ssm_corpus_free(&corpus);
}

static void check_refused(const char *text, ssm_status status)
{
    ssm_corpus corpus;
    ssm_error err = {0};
    assert_int_equal(ssm_corpus_open(tiny, &text, 1, SSM_INVALID_UTF8_ERROR, &corpus, &err),
                     status);
    assert_true(err.message[0] != '\0');
    assert_null(corpus.domains);
}

static void refused(void **state)
{
    (void)state;
    check_refused("", SSM_STATUS_USAGE);
    check_refused("=", SSM_STATUS_USAGE);
    check_refused("prose=", SSM_STATUS_USAGE);
    check_refused("=prose.txt", SSM_STATUS_USAGE);
    check_refused("a\nb=prose.txt", SSM_STATUS_USAGE);
    check_refused("folder/", SSM_STATUS_USAGE);
    check_refused(argument("", "missing.txt"), SSM_STATUS_FILE);
    check_refused(argument("x=", "missing.txt"), SSM_STATUS_FILE);
    check_refused(directory, SSM_STATUS_FILE);
    ssm_corpus corpus;
    assert_int_equal(ssm_corpus_open(tiny, NULL, 0, SSM_INVALID_UTF8_ERROR, &corpus, NULL),
                     SSM_STATUS_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(domains),
                                       cmocka_unit_test(name_without_extension),
                                       cmocka_unit_test(invalid_text), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
