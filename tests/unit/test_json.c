/* JSON under our rules: what is read, what is refused, and where the error points. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "test_paths.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *parse(const char *text, ssm__json_mode mode)
{
    ssm_error err = {0};
    json_t *value = NULL;
    if (ssm__json_parse("x.json", 0, text, strlen(text), mode, &value, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    return value;
}

static void expect_same(const char *text, ssm__json_mode mode, const char *expected)
{
    json_t *value = parse(text, mode);
    char *dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_non_null(dump);
    assert_string_equal(dump, expected);
    free(dump);
    json_decref(value);
}

static void reads_json(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "{}"},
        {" [1, -2.5,\ttrue,\r\nfalse , null]\n", "[1,-2.5,true,false,null]"},
        {"{\"b\": {\"a\": []}, \"a\": \"\\u00e9\\n\\ud83d\\ude00\"}",
         "{\"b\":{\"a\":[]},\"a\":\"\xC3\xA9\\n\xF0\x9F\x98\x80\"}"},
        {"9223372036854775807", "9223372036854775807"},
        {"\"text\"", "\"text\""},
        {"[[[[[[]]]]]]", "[[[[[[]]]]]]"},
        {"{\"\": 0}", "{\"\":0}"},
        {"\"Infinity [NaN, \\\"-Infinity\\\", \\\\\"",
         "\"Infinity [NaN, \\\"-Infinity\\\", \\\\\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_same(cases[i][0], SSM__JSON_STRICT, cases[i][1]);
        expect_same(cases[i][0], SSM__JSON_PYTHON, cases[i][1]);
    }
}

static void reads_python_constants(void **state)
{
    (void)state;
#define INF   "{\"__float__\":\"Infinity\"}"
#define MINUS "{\"__float__\":\"-Infinity\"}"
#define NOT   "{\"__float__\":\"NaN\"}"
    static const char *const cases[][2] = {
        {"Infinity", INF},
        {"-Infinity", MINUS},
        {"NaN", NOT},
        {"[0.0, Infinity]", "[0.0," INF "]"},
        {"[Infinity,-Infinity,NaN]", "[" INF "," MINUS "," NOT "]"},
        {"{\"a\":NaN,\"NaN\":[ -Infinity ],\"c\\\"NaN\": \"NaN\"}",
         "{\"a\":" NOT ",\"NaN\":[" MINUS "],\"c\\\"NaN\":\"NaN\"}"},
        {"{\"a\":\nInfinity\n}", "{\"a\":" INF "}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_same(cases[i][0], SSM__JSON_PYTHON, cases[i][1]);
        json_t *value = NULL;
        assert_int_equal(ssm__json_parse(NULL, 0, cases[i][0], strlen(cases[i][0]),
                                         SSM__JSON_STRICT, &value, NULL),
                         SSM_STATUS_FILE);
        assert_null(value);
    }
}

typedef struct bad {
    const char *text;
    int64_t offset; /* where reading stopped */
    const char *words;
} bad;

static void expect_bad(const char *text, size_t bytes, ssm__json_mode mode, int64_t offset,
                       const char *words)
{
    ssm_error err = {0};
    json_t *value = (json_t *)&err;
    ssm_status status = ssm__json_parse("dir/x.json", 1000, text, bytes, mode, &value, &err);
    assert_int_equal(status, SSM_STATUS_FILE);
    assert_null(value);
    assert_string_equal(err.file, "dir/x.json");
    if (err.offset != 1000 + offset || strstr(err.message, words) == NULL) {
        fail_msg("%s: \"%s\" at %ld; expected \"%s\" at %ld", text, err.message,
                 (long)(err.offset - 1000), words, (long)offset);
    }
}

static void refuses_what_is_no_json(void **state)
{
    (void)state;
    static const bad cases[] = {
        {"", 0, "the file is empty"},
        {"   ", 3, "near end of file"},
        {"{", 1, "string or '}' expected"},
        {"{\"a\":1}}", 8, "end of file expected near '}'"},
        {"[1 2]", 4, "']' expected near '2'"},
        {"[1,\n 2\n oops]", 12, "line 3, column 6: ']' expected near 'oops'"},
        {"[1,]", 4, "unexpected token near ']'"},
        {"{'a':1}", 2, "string or '}' expected near '''"},
        {"{\"a\" 1}", 6, "':' expected"},
        {"{1:1}", 2, "string or '}' expected"},
        {"[01]", 2, "invalid token near '0'"},
        {"[.5]", 2, "invalid token near '.'"},
        {"[+1]", 2, "invalid token near '+'"},
        {"[1e]", 3, "invalid token near '1e'"},
        {"1,2", 2, "end of file expected near ','"},
        {"1],[2", 2, "end of file expected near ']'"},
        {"{\"a\":1,\"b\":{\"a\":1,\"a\":2}}", 21, "duplicate object key near '\"a\"'"},
        {"[1e999]", 6, "real number overflow"},
        {"[9223372036854775808]", 20, "too big integer"},
        {"\"\\u0000\"", 8, "\\u0000 is not accepted in a string"},
        {"{\"k\\u0000\":1}", 10, "\\u0000 is not accepted in a key"},
        {"\"\\ud800\"", 8, "invalid Unicode"},
        {"\"\\x41\"", 3, "invalid escape"},
        {"\"a\nb\"", 2, "unexpected newline"},
        {"\"a\tb\"", 2, "control character 0x9"},
        {"\"abc", 4, "premature end of input"},
        {"\"abc\\", 5, "invalid escape"},
        {"// no\n1", 1, "invalid token"},
        {"\xEF\xBB\xBF{}", 3, "invalid token"},
        {"nan", 3, "invalid token near 'nan'"},
        {"[-NaN]", 2, "invalid token near '-'"},
        {"[xInfinity]", 10, "invalid token near 'xInfinity'"},
        {"[Infinityx]", 10, "invalid token near 'Infinityx'"},
        {"[NaN1]", 4, "invalid token near 'NaN'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bad *this = &cases[i];
        expect_bad(this->text, strlen(this->text), SSM__JSON_STRICT, this->offset, this->words);
        expect_bad(this->text, strlen(this->text), SSM__JSON_PYTHON, this->offset, this->words);
    }
}

/* Replaced constants before the error must not shift its place. */
static void places_are_those_of_the_file(void **state)
{
    (void)state;
    static const bad cases[] = {
        {"[NaN, Infinity,\n-Infinity, ?]", 28, "line 2, column 13: invalid token near '?'"},
        {"{\"a\": NaN, \"a\": NaN}", 14, "line 1, column 15: duplicate object key"},
        {"[NaN, NaN", 9, "']' expected"},
        {"NaN NaN", 4, "line 1, column 5: end of file expected"},
        {"{NaN: 1}", 1, "string or '}' expected"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bad *this = &cases[i];
        expect_bad(this->text, strlen(this->text), SSM__JSON_PYTHON, this->offset, this->words);
    }
}

static void refuses_bytes_that_are_no_text(void **state)
{
    (void)state;
    expect_bad("{\"a\":1}\0", 8, SSM__JSON_STRICT, 7, "NUL byte");
    expect_bad("[1,\0 2, 3, 4, 5]", 16, SSM__JSON_STRICT, 3, "NUL byte");
    expect_bad("[\"0123456789\0\"]", 15, SSM__JSON_PYTHON, 12, "NUL byte");
    expect_bad("[\"\xFF\"]", 5, SSM__JSON_STRICT, 2, "not valid UTF-8");
    expect_bad("[\"0123456789\xE2\x82\"]", 16, SSM__JSON_STRICT, 12, "not valid UTF-8");
    expect_bad("[\"\n\xED\xA0\x80\"]", 8, SSM__JSON_PYTHON, 3, "line 2, column 1");
    expect_bad("[\"\xC0\x80\"]", 6, SSM__JSON_STRICT, 2, "not valid UTF-8");
    expect_bad("[\"abcdef\xF0\x9F\x98", 11, SSM__JSON_STRICT, 8, "not valid UTF-8");
}

/* count × open, middle, count × close */
static json_t *parse_nested(const char *open, const char *middle, const char *close, size_t count,
                            ssm_status expected)
{
    size_t bytes = count * (strlen(open) + strlen(close)) + strlen(middle);
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    char *at = text;
    for (size_t i = 0; i < count; i++) {
        at = stpcpy(at, open);
    }
    at = stpcpy(at, middle);
    for (size_t i = 0; i < count; i++) {
        at = stpcpy(at, close);
    }
    ssm_error err = {0};
    json_t *value = NULL;
    assert_int_equal(ssm__json_parse("x", 0, text, bytes, SSM__JSON_PYTHON, &value, &err),
                     expected);
    if (expected != SSM_STATUS_OK) {
        assert_non_null(strstr(err.message, "too deep"));
        assert_true(err.offset >= 2000);
    }
    free(text);
    return value;
}

static void depth_has_a_limit(void **state)
{
    (void)state;
    json_decref(parse_nested("[", "NaN", "]", 1999, SSM_STATUS_OK));
    json_decref(parse_nested("{\"a\":", "1", "}", 2000, SSM_STATUS_OK));
    json_decref(parse_nested("[", "1", "]", 2000, SSM_STATUS_OK));
    json_decref(parse_nested("[", "NaN", "]", 2000, SSM_STATUS_OK));
    parse_nested("[", "1", "]", 2001, SSM_STATUS_FILE);
    parse_nested("{\"a\":", "1", "}", 2001, SSM_STATUS_FILE);
    parse_nested("[{\"a\":", "1", "}]", 1001, SSM_STATUS_FILE);
    expect_same("[[1],[2],\"[[[\"]", SSM__JSON_STRICT, "[[1],[2],\"[[[\"]"); /* breadth has none */
    parse_nested("[", "", "", 1000000, SSM_STATUS_FILE);
    parse_nested("{\"a\":[", "", "", 1000000, SSM_STATUS_FILE);
}

/* Tokens around the sizes at which jansson's buffer grows, also where the text comes in chunks. */
static void long_tokens(void **state)
{
    (void)state;
    for (size_t length = 0; length < 5000; length += length < 70 ? 1 : 61) {
        char *text = malloc(length + 32);
        assert_non_null(text);
        char *at = stpcpy(text, "[\"");
        for (size_t i = 0; i < length; i++) {
            *at++ = (char)('a' + i % 26);
        }
        stpcpy(at, "\", NaN, 1]");
        json_t *value = parse(text, SSM__JSON_PYTHON);
        assert_int_equal(json_array_size(value), 3);
        const json_t *string = json_array_get(value, 0);
        assert_int_equal(json_string_length(string), length);
        assert_memory_equal(json_string_value(string), text + 2, length);
        json_decref(value);
        free(text);
    }
    /* A long number without a string beside it. */
    char number[400] = "0.";
    memset(number + 2, '1', sizeof number - 3);
    number[sizeof number - 1] = '\0';
    json_t *value = parse(number, SSM__JSON_STRICT);
    assert_true(json_real_value(value) == 0.11111111111111111);
    json_decref(value);
}

static void numbers(void **state)
{
    (void)state;
    json_t *value = parse(
        "[1, -2.5, Infinity, -Infinity, NaN, {\"__float__\": \"Infinity\"}, \"1\", null,"
        " {\"__float__\": \"inf\"}, {\"__float__\": 1}, {\"__float__\": \"NaN\", \"a\": 1}, [1]]",
        SSM__JSON_PYTHON);
    double number = 0;
    const double expected[] = {1, -2.5, HUGE_VAL, -HUGE_VAL, 0, HUGE_VAL};
    for (size_t i = 0; i < 6; i++) {
        assert_true(ssm__json_number(json_array_get(value, i), &number));
        assert_true(i == 4 ? isnan(number) : number == expected[i]);
    }
    for (size_t i = 6; i < json_array_size(value); i++) {
        number = 7;
        assert_false(ssm__json_number(json_array_get(value, i), &number));
        assert_true(number == 7);
    }
    assert_false(ssm__json_number(NULL, &number));
    json_decref(value);
}

static void prints(void **state)
{
    (void)state;
    json_t *value = parse("{\"b\": [1, 0.1, {}], \"a\": \"\u00e9\"}", SSM__JSON_STRICT);
    char *text = ssm__json_print(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    assert_string_equal(text, "{\"b\":[1,0.10000000000000001,{}],\"a\":\"\xC3\xA9\"}");
    free(text);
    text = ssm__json_print(json_object_get(value, "a"), JSON_ENCODE_ANY);
    assert_string_equal(text, "\"\xC3\xA9\"");
    free(text);
    json_decref(value);
    assert_null(ssm__json_print(NULL, 0));
}

static void whole_files(void **state)
{
    (void)state;
    char directory[TEST_PATH_MAX];
    char path[TEST_PATH_MAX + 16];
    test_make_directory(directory);
    snprintf(path, sizeof path, "%s/x.json", directory);
    ssm_error err = {0};
    json_t *value = NULL;
    assert_int_equal(ssm__json_read(path, 100, SSM__JSON_STRICT, &value, &err), SSM_STATUS_FILE);
    assert_non_null(strstr(err.message, "does not exist"));

    assert_int_equal(ssm__write_file(path, "{\"a\": 12}", 9, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__json_read(path, 9, SSM__JSON_STRICT, &value, NULL), SSM_STATUS_OK);
    assert_int_equal(json_integer_value(json_object_get(value, "a")), 12);
    json_decref(value);

    ssm_error_clear(&err);
    assert_int_equal(ssm__json_read(path, 8, SSM__JSON_STRICT, &value, &err), SSM_STATUS_FILE);
    assert_non_null(strstr(err.message, "has 9 bytes"));
    assert_null(value);

    assert_int_equal(ssm__write_file(path, "", 0, NULL), SSM_STATUS_OK);
    ssm_error_clear(&err);
    assert_int_equal(ssm__json_read(path, 8, SSM__JSON_STRICT, &value, &err), SSM_STATUS_FILE);
    assert_non_null(strstr(err.message, "is empty"));
    test_remove_directory(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_json),
        cmocka_unit_test(reads_python_constants),
        cmocka_unit_test(refuses_what_is_no_json),
        cmocka_unit_test(places_are_those_of_the_file),
        cmocka_unit_test(refuses_bytes_that_are_no_text),
        cmocka_unit_test(depth_has_a_limit),
        cmocka_unit_test(long_tokens),
        cmocka_unit_test(numbers),
        cmocka_unit_test(prints),
        cmocka_unit_test(whole_files),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
