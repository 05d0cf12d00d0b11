/* test_messages.c: every broken rule has its own message. */
#include "test_messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

void message_expect(message_list *list, const char *rule, ssm_status status, ssm_status expected,
                    const ssm_error *err, const char *part)
{
    if (status != expected || err->status != expected) {
        fail_msg("%s: status %d, expected %d; message: %s", rule, (int)status, (int)expected,
                 err->message);
    }
    if (strstr(err->message, part) == NULL) {
        fail_msg("%s: the message \"%s\" lacks \"%s\"", rule, err->message, part);
    }
    if (err->file[0] == '\0') {
        fail_msg("%s: no file is named", rule);
    }
    assert_true(list->count < MESSAGES_MAX);
    char *full = list->messages[list->count];
    snprintf(full, sizeof list->messages[0], "%s: %s", err->tensor, err->message);
    for (int i = 0; i < list->count; i++) {
        if (strcmp(list->messages[i], full) == 0) {
            fail_msg("%s and %s have the same message: %s", rule, list->rules[i], err->message);
        }
    }
    list->rules[list->count++] = rule;
}
