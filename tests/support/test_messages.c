/* test_messages.c: every broken rule has its own message. */
#include "test_messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>

#include <cmocka.h>
#include <jansson.h>

/* One field of a line: no tabs and newlines in it. */
static void put_field(FILE *file, const char *text, char end)
{
    for (; *text != '\0'; text++) {
        fputc(*text == '\t' || *text == '\n' ? ' ' : *text, file);
    }
    fputc(end, file);
}

void message_log(const char *rule, const ssm_error *err)
{
    const char *path = getenv("SSM_MALFORMED_INDEX");
    FILE *file = path == NULL ? NULL : fopen(path, "a");
    if (file != NULL) {
        put_field(file, program_invocation_short_name, '\t');
        put_field(file, rule, '\t');
        /* Where no tensor or field is named, the file is: its name, not that of a scratch folder.
         */
        const char *slash = strrchr(err->file, '/');
        put_field(file,
                  err->tensor[0] != '\0' ? err->tensor
                  : slash != NULL        ? slash + 1
                                         : err->file,
                  '\t');
        put_field(file, err->message, '\n');
        fclose(file);
    }
}

/* What a finding of the JSON object says has the message in it. */
static bool has_message(const json_t *root, const char *message)
{
    size_t i;
    json_t *finding;
    json_array_foreach(json_object_get(root, "findings"), i, finding)
    {
        const char *kind = json_string_value(json_object_get(finding, "kind"));
        const char *text = json_string_value(json_object_get(finding, "text"));
        if (kind != NULL && text != NULL && strcmp(kind, "problem") == 0 &&
            strstr(text, message) != NULL) {
            return true;
        }
    }
    return false;
}

void message_from_doctor(const char *rule, const char *model, const ssm_error *err)
{
    char command[2048];
    snprintf(command, sizeof command, "'%s' doctor '%s' --json 2>/dev/null </dev/null", SSM_PROGRAM,
             model);
    FILE *program = popen(command, "r");
    assert_non_null(program);
    json_error_t problem;
    json_t *root = json_loadf(program, 0, &problem);
    const int code = pclose(program);
    if (root == NULL || !WIFEXITED(code) || WEXITSTATUS(code) != (int)err->status) {
        fail_msg("%s: doctor ends with %d (%s), not with status %d: %s", rule, code, problem.text,
                 (int)err->status, err->message);
    }
    if (!has_message(root, err->message)) {
        fail_msg("%s: doctor does not say: %s", rule, err->message);
    }
    json_decref(root);
}

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
    message_log(rule, err);
}

void message_refusal(message_list *list, const edit *e, const char *name, const char *rule,
                     const char *part)
{
    char path[TEST_PATH_MAX];
    ssm_checkpoint *checkpoint = (ssm_checkpoint *)(uintptr_t)8;
    ssm_error err;
    ssm_error_clear(&err);
    if (name != NULL) {
        edit_path(e, name, path);
    } else {
        strcpy(path, e->directory);
    }
    ssm_status status = ssm_checkpoint_open(path, NULL, &checkpoint, &err);
    message_expect(list, rule, status, SSM_STATUS_FILE, &err, part);
    assert_null(checkpoint);
    if (access(path, F_OK) == 0) { /* what is not there, the program looks for in the cache too */
        message_from_doctor(rule, path, &err);
    }
}
