/* The error record, its truncation to valid UTF-8, and the nearest name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/utf8.h"

#include <errno.h>
#include <string.h>

static void assert_valid_utf8(const char *text)
{
    size_t bytes = strlen(text);
    for (size_t at = 0; at < bytes;) {
        size_t length = ssm__utf8_length(text + at, bytes - at);
        assert_int_not_equal(length, 0);
        at += length;
    }
}

static void record_is_filled_and_cleared(void **state)
{
    (void)state;
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(err.status, SSM_STATUS_OK);
    assert_int_equal(err.offset, -1);
    assert_string_equal(err.message, "");

    ssm__place place = {"dir/model.safetensors", "layers.0.A", 17};
    assert_int_equal(ssm__fail(&err, SSM_STATUS_FILE, place, "expected %d, found %d", 3, 4),
                     SSM_STATUS_FILE);
    assert_int_equal(err.status, SSM_STATUS_FILE);
    assert_string_equal(err.message, "expected 3, found 4");
    assert_string_equal(err.file, "dir/model.safetensors");
    assert_string_equal(err.tensor, "layers.0.A");
    assert_int_equal(err.offset, 17);

    ssm_error_clear(&err);
    assert_int_equal(err.status, SSM_STATUS_OK);
    assert_string_equal(err.file, "");
    assert_int_equal(err.offset, -1);
    ssm_error_clear(NULL);
}

static void first_failure_wins(void **state)
{
    (void)state;
    ssm_error err = {0};
    ssm__fail(&err, SSM_STATUS_MEMORY, SSM__NOWHERE, "first");
    assert_int_equal(ssm__fail(&err, SSM_STATUS_FILE, SSM__IN_FILE("x"), "second"),
                     SSM_STATUS_FILE);
    assert_int_equal(err.status, SSM_STATUS_MEMORY);
    assert_string_equal(err.message, "first");
    assert_string_equal(err.file, "");
}

static void record_may_be_absent(void **state)
{
    (void)state;
    assert_int_equal(ssm__fail(NULL, SSM_STATUS_CHECK, SSM__NOWHERE, "%s", "x"), SSM_STATUS_CHECK);
    assert_int_equal(ssm__fail_memory(NULL, "x", 1), SSM_STATUS_MEMORY);
    assert_int_equal(ssm__fail_errno(NULL, SSM_STATUS_FILE, "x", "y", ENOENT), SSM_STATUS_FILE);
}

/* Every cut position of a text of 1-, 2-, 3- and 4-byte characters leaves valid UTF-8. */
static void long_texts_stay_valid(void **state)
{
    (void)state;
    static const char pattern[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"; /* a é € 😀 */
    static char text[3 * SSM_ERROR_MESSAGE_MAX + 16];
    for (size_t shift = 0; shift < 10; shift++) {
        memset(text, 'x', shift);
        text[shift] = '\0';
        while (strlen(text) < 2 * SSM_ERROR_MESSAGE_MAX) {
            strcat(text, pattern);
        }
        strcat(text, "/the-end");
        ssm_error err = {0};
        ssm__fail(&err, SSM_STATUS_FILE, SSM__TENSOR(text, text), "%s", text);
        assert_valid_utf8(err.message);
        assert_valid_utf8(err.file);
        assert_true(strlen(err.message) >= SSM_ERROR_MESSAGE_MAX - 5);
        assert_int_equal(strncmp(err.message, text, strlen(err.message)), 0);
        assert_true(strlen(err.file) >= SSM_ERROR_PLACE_MAX - 5);
        assert_int_equal(strncmp(err.file, "...", 3), 0);
        assert_string_equal(err.file + strlen(err.file) - 8, "/the-end");
        assert_int_equal(strchr(err.tensor, '?') == NULL, 1);
    }
}

static void lengths_around_the_limit(void **state)
{
    (void)state;
    char text[SSM_ERROR_PLACE_MAX + 8];
    for (size_t bytes = SSM_ERROR_PLACE_MAX - 3; bytes <= SSM_ERROR_PLACE_MAX + 3; bytes++) {
        memset(text, 'p', bytes);
        text[bytes] = '\0';
        ssm_error err = {0};
        ssm__fail(&err, SSM_STATUS_FILE, SSM__IN_FILE(text), "x");
        if (bytes < SSM_ERROR_PLACE_MAX) {
            assert_string_equal(err.file, text);
        } else {
            assert_int_equal(strlen(err.file), SSM_ERROR_PLACE_MAX - 1);
            assert_int_equal(strncmp(err.file, "...p", 4), 0);
        }
    }
}

static void bytes_that_are_no_text_are_marked(void **state)
{
    (void)state;
    ssm_error err = {0};
    ssm__fail(&err, SSM_STATUS_FILE, SSM__IN_FILE("a\xFF\x80z"), "b%s",
              "\xC3(\xED\xA0\x80\xF0\x9F");
    assert_string_equal(err.file, "a??z");
    assert_string_equal(err.message, "b?(?????");
}

static void memory_and_errno(void **state)
{
    (void)state;
    ssm_error err = {0};
    assert_int_equal(ssm__fail_memory(&err, "a session", 4096), SSM_STATUS_MEMORY);
    assert_non_null(strstr(err.message, "a session"));
    assert_non_null(strstr(err.message, "4096"));
    ssm_error_clear(&err);
    assert_int_equal(ssm__fail_errno(&err, SSM_STATUS_FILE, "p/q", "cannot be opened", EACCES),
                     SSM_STATUS_FILE);
    assert_string_equal(err.message, "cannot be opened: Permission denied");
    assert_string_equal(err.file, "p/q");
    ssm_error_clear(&err);
    assert_int_equal(ssm__fail_errno(&err, SSM_STATUS_FILE, "p", "cannot be mapped", ENOMEM),
                     SSM_STATUS_MEMORY);
}

static void statuses_have_words_and_codes(void **state)
{
    (void)state;
    assert_int_equal(SSM_STATUS_USAGE, 2);
    assert_int_equal(SSM_STATUS_CHECK, 5);
    assert_int_equal(SSM_STATUS_INTERRUPTED, 130);
    assert_string_equal(ssm_status_text(SSM_STATUS_OK), "ok");
    assert_string_equal(ssm_status_text(SSM_STATUS_FILE), "bad file");
    assert_string_equal(ssm_status_text((ssm_status)77), "unknown status");
    assert_string_equal(ssm_version(), SSM_VERSION);
}

static void nearest_name(void **state)
{
    (void)state;
    const char *const names[] = {"record", "verify", "select", "run", "--budget", NULL};
    assert_string_equal(ssm_nearest("recrod", names), "record");
    assert_string_equal(ssm_nearest("verfy", names), "verify");
    assert_string_equal(ssm_nearest("selcet", names), "select");
    assert_string_equal(ssm_nearest("run", names), "run");
    assert_string_equal(ssm_nearest("runn", names), "run");
    assert_string_equal(ssm_nearest("--buget", names), "--budget");
    assert_null(ssm_nearest("zzzzzz", names));
    assert_null(ssm_nearest("", names));
    assert_null(ssm_nearest("rn", names)); /* one edit is more than a third of two bytes */
    assert_string_equal(ssm_nearest("sel", names), "select"); /* begins so */
    assert_null(ssm_nearest("s", names));
    const char *const none[] = {NULL};
    assert_null(ssm_nearest("record", none));
    char longer[200];
    memset(longer, 'r', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_null(ssm_nearest(longer, names));
    const char *const long_names[] = {longer, "record", NULL};
    assert_string_equal(ssm_nearest("recor", long_names), "record");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_is_filled_and_cleared),
        cmocka_unit_test(first_failure_wins),
        cmocka_unit_test(record_may_be_absent),
        cmocka_unit_test(long_texts_stay_valid),
        cmocka_unit_test(lengths_around_the_limit),
        cmocka_unit_test(bytes_that_are_no_text_are_marked),
        cmocka_unit_test(memory_and_errno),
        cmocka_unit_test(statuses_have_words_and_codes),
        cmocka_unit_test(nearest_name),
    };
    return cmocka_run_group_tests_name("fail", tests, NULL, NULL);
}
