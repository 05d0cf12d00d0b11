/* UTF-8: every code point, and every way to be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/utf8.h"

#include <stdbool.h>
#include <stdlib.h>

static size_t encode(uint32_t point, char out[4])
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const unsigned lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (point & 0x3F));
        point >>= 6;
    }
    out[0] = (char)(lead[length] | point);
    return length;
}

static void every_code_point(void **state)
{
    (void)state;
    for (uint32_t point = 0; point < 0x120000; point++) {
        char text[4];
        size_t length = encode(point, text);
        bool surrogate = point >= 0xD800 && point < 0xE000;
        size_t expected = surrogate || point > 0x10FFFF ? 0 : length;
        assert_int_equal(ssm__utf8_length(text, length), expected);
        if (length > 1) {
            assert_int_equal(ssm__utf8_length(text, length - 1), 0); /* cut off */
        }
    }
}

/* The number of well-formed sequences among all two-byte and three-byte strings is known: 30 × 64
 * two-byte characters; 63,488 − 2,048 three-byte ones (U+0800 … U+FFFF without surrogates). */
static void every_short_string(void **state)
{
    (void)state;
    int twos = 0;
    int threes = 0;
    for (uint32_t bits = 0; bits < 1u << 24; bits++) {
        char text[3] = {(char)(bits >> 16), (char)(bits >> 8), (char)bits};
        size_t length = ssm__utf8_length(text, 3);
        assert_true(length <= 3);
        twos += length == 2 && (bits & 0xFF) == 0;
        threes += length == 3;
    }
    assert_int_equal(twos, 30 * 64);
    assert_int_equal(threes, 0x10000 - 0x800 - 0x800);
}

static void wrong_bytes(void **state)
{
    (void)state;
    static const char *const wrong[] = {"\x80",
                                        "\xBF",
                                        "\xC0\x80",
                                        "\xC1\xBF",
                                        "\xE0\x9F\xBF",
                                        "\xED\xA0\x80",
                                        "\xF0\x8F\xBF\xBF",
                                        "\xF4\x90\x80\x80",
                                        "\xF5\x80\x80\x80",
                                        "\xFE",
                                        "\xFF",
                                        "\xC3(",
                                        "\xE2\x82(",
                                        "\xE2(\xAC",
                                        "\xF0\x9F\x98("};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        size_t bytes = 0;
        while (wrong[i][bytes] != '\0') {
            bytes++;
        }
        assert_int_equal(ssm__utf8_length(wrong[i], bytes), 0);
    }
}

static void what_json_can_hold(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"", ""},
                                           {"plain/a.txt", "plain/a.txt"},
                                           {"\xC3\xA9 \xE2\x82\xAC", "\xC3\xA9 \xE2\x82\xAC"},
                                           {"m\xFF.st", "m\\xff.st"},
                                           {"\xC3(\xE2\x82", "\\xc3(\\xe2\\x82"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char *printable = ssm__utf8_printable(pairs[i][0]);
        assert_string_equal(printable, pairs[i][1]);
        free(printable);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(every_short_string),
        cmocka_unit_test(wrong_bytes),
        cmocka_unit_test(what_json_can_hold),
    };
    return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
