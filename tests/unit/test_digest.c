/* Digests against values of the Python package xxhash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/digest.h"

#include <stdlib.h>
#include <string.h>

static void known_values(void **state)
{
    (void)state;
    char text[64];
    ssm__digest_bytes("", 0, text);
    assert_string_equal(text, "xxh3-128:99aa06d3014798d86001c324468d497f");
    ssm__digest_bytes(NULL, 0, text);
    assert_string_equal(text, "xxh3-128:99aa06d3014798d86001c324468d497f");
    ssm__digest_bytes("abc", 3, text);
    assert_string_equal(text, "xxh3-128:06b05ab6733a618578af5f94892f3950");
}

/* Any way to cut the data gives the digest of the whole. */
static void pieces_equal_the_whole(void **state)
{
    (void)state;
    enum { BYTES = 5000 };
    unsigned char *data = malloc(BYTES);
    assert_non_null(data);
    for (int i = 0; i < BYTES; i++) {
        data[i] = (unsigned char)(i * 37 >> 3);
    }
    char whole[64];
    ssm__digest_bytes(data, BYTES, whole);
    for (size_t piece = 1; piece < BYTES; piece = piece * 3 + 1) {
        ssm__digest *digest = NULL;
        assert_int_equal(ssm__digest_create(&digest, NULL), SSM_STATUS_OK);
        for (size_t at = 0; at < BYTES; at += piece) {
            ssm__digest_add(digest, data + at, piece < BYTES - at ? piece : BYTES - at);
        }
        ssm__digest_add(digest, NULL, 0);
        char text[64];
        ssm__digest_finish(digest, text);
        assert_string_equal(text, whole);
    }
    free(data);
}

static void strings_keep_their_borders(void **state)
{
    (void)state;
    const char *const pairs[3][2] = {{"ab", "c"}, {"a", "bc"}, {"abc", ""}};
    char texts[3][64];
    for (int i = 0; i < 3; i++) {
        ssm__digest *digest = NULL;
        assert_int_equal(ssm__digest_create(&digest, NULL), SSM_STATUS_OK);
        ssm__digest_add_string(digest, pairs[i][0]);
        ssm__digest_add_string(digest, pairs[i][1]);
        ssm__digest_finish(digest, texts[i]);
    }
    assert_string_not_equal(texts[0], texts[1]);
    assert_string_not_equal(texts[0], texts[2]);
    assert_string_not_equal(texts[1], texts[2]);

    /* The length follows as eight little-endian bytes: part of the format. */
    ssm__digest *digest = NULL;
    assert_int_equal(ssm__digest_create(&digest, NULL), SSM_STATUS_OK);
    ssm__digest_add_string(digest, "abc");
    char text[64];
    ssm__digest_finish(digest, text);
    char expected[64];
    ssm__digest_bytes("abc\3\0\0\0\0\0\0\0", 11, expected);
    assert_string_equal(text, expected);
}

static void finish_without_text(void **state)
{
    (void)state;
    ssm__digest *digest = NULL;
    assert_int_equal(ssm__digest_create(&digest, NULL), SSM_STATUS_OK);
    ssm__digest_finish(digest, NULL);
    ssm__digest_finish(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(pieces_equal_the_whole),
        cmocka_unit_test(strings_keep_their_borders),
        cmocka_unit_test(finish_without_text),
    };
    return cmocka_run_group_tests_name("digest", tests, NULL, NULL);
}
