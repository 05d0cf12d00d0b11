/* test_messages.h: every broken rule has its own message. */
#ifndef TEST_MESSAGES_H
#define TEST_MESSAGES_H

#include <ssmscope/base.h>

#include "test_edit.h"

enum { MESSAGES_MAX = 160 };

/* Adds a line "test, rule, place, message" to the file that SSM_MALFORMED_INDEX names, when it is
 * set: tools/malformed_index.sh makes the index of all malformed input from them. Tests that use
 * message_expect need not call it. */
void message_log(const char *rule, const ssm_error *err);

/* Fails the test unless `doctor MODEL` says the message of err and gives its status. */
void message_from_doctor(const char *rule, const char *model, const ssm_error *err);

/* The messages seen so far. Start from {0}. */
typedef struct message_list {
    const char *rules[MESSAGES_MAX];
    char messages[MESSAGES_MAX][SSM_ERROR_PLACE_MAX + SSM_ERROR_MESSAGE_MAX + 2];
    int count;
} message_list;

/* Fails the test unless status is `expected`, err says so too, its message contains `part`, it
 * names a file, and no rule before had the same message. rule must stay valid. */
void message_expect(message_list *list, const char *rule, ssm_status status, ssm_status expected,
                    const ssm_error *err, const char *part);

/* Opens the edited checkpoint, or its file `name`: it must be refused as message_expect says, and
 * doctor must say the same. */
void message_refusal(message_list *list, const edit *e, const char *name, const char *rule,
                     const char *part);

#endif
