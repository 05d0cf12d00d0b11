/* A text that grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"

static void test_grows(void **state)
{
    (void)state;
    ssm__text text = {0};
    char *out;
    for (int i = 0; i < 1000; i++) {
        ssm__text_format(&text, "%03d", i);
        ssm__text_add(&text, ",");
    }
    assert_int_equal(ssm__text_take(&text, &out, NULL), SSM_STATUS_OK);
    assert_int_equal(strlen(out), 4000);
    assert_memory_equal(out + 4 * 734, "734,735,", 8);
    assert_null(text.data);
    free(out);
}

static void test_empty(void **state)
{
    (void)state;
    ssm__text text = {0};
    char *out;
    assert_int_equal(ssm__text_take(&text, &out, NULL), SSM_STATUS_OK);
    assert_string_equal(out, "");
    free(out);
}

static void test_failed(void **state)
{
    (void)state;
    ssm__text text = {0};
    char *out;
    ssm__text_add(&text, "some");
    text.failed = true;
    ssm__text_format(&text, "%d", 1); /* nothing */
    assert_int_equal(text.used, 4);
    assert_int_equal(ssm__text_take(&text, &out, NULL), SSM_STATUS_MEMORY);
    assert_null(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
