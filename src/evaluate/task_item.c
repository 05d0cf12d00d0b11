/* evaluate/task_item.c: fields of a line, strings of an item. */
#include "evaluate/task.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "evaluate/python_text.h"

ssm_status ssm__doc_fail(const ssm__doc *doc, ssm_error *err, const char *format, ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(doc->path), "line %lld: %s",
                     (long long)doc->line, message);
}

ssm_status ssm__doc_text(const ssm__doc *doc, const char *name, const char **out, ssm_error *err)
{
    *out = json_string_value(json_object_get(doc->fields, name));
    return *out ? SSM_STATUS_OK
                : ssm__doc_fail(doc, err, "expected a string \"%s\"; an item of %s has %s", name,
                                doc->task->name, doc->task->fields);
}

ssm_status ssm__doc_array(const ssm__doc *doc, const json_t *parent, const char *name,
                          const json_t **out, ssm_error *err)
{
    *out = json_object_get(parent, name);
    if (!json_is_array(*out) || json_array_size(*out) == 0) {
        return ssm__doc_fail(doc, err, "expected a list of strings \"%s\"; an item of %s has %s",
                             name, doc->task->name, doc->task->fields);
    }
    for (size_t i = 0; i < json_array_size(*out); i++) {
        if (!json_is_string(json_array_get(*out, i))) {
            return ssm__doc_fail(doc, err, "number %zu of \"%s\" is not a string", i, name);
        }
    }
    return SSM_STATUS_OK;
}

/* −1 for what is no number of one or two digits. */
static int64_t small_number(const json_t *value)
{
    if (json_is_integer(value)) {
        return json_integer_value(value);
    }
    const char *text = json_string_value(value);
    if (!text || *text == '\0' || strlen(text) > 2 || strspn(text, "0123456789") != strlen(text)) {
        return -1;
    }
    return strtoll(text, NULL, 10);
}

ssm_status ssm__doc_gold(const ssm__doc *doc, const char *name, int64_t first, int64_t n_choices,
                         int64_t *out, ssm_error *err)
{
    const json_t *value = json_object_get(doc->fields, name);
    const int64_t number = small_number(value);
    if (!value || json_is_null(value) || number == -1) {
        return ssm__doc_fail(doc, err,
                             "the item has no gold: \"%s\" is %s; data published without answers "
                             "cannot be scored",
                             name, value ? "not an index" : "missing");
    }
    if (number < first || number >= first + n_choices) {
        return ssm__doc_fail(doc, err, "\"%s\" is %lld, but there are %lld choices from %lld on",
                             name, (long long)number, (long long)n_choices, (long long)first);
    }
    *out = number - first;
    return SSM_STATUS_OK;
}

ssm_status ssm__item_start(ssm_task_item *item, int64_t n_choices, bool own_contexts,
                           ssm_error *err)
{
    const size_t n = (size_t)n_choices;
    item->n_choices = n_choices;
    item->own_contexts = own_contexts;
    item->contexts = calloc(own_contexts ? n : 1, sizeof *item->contexts);
    item->continuations = calloc(n, sizeof *item->continuations);
    item->choices = calloc(n, sizeof *item->choices);
    return item->contexts && item->continuations && item->choices
               ? SSM_STATUS_OK
               : ssm__fail_memory(err, "an item", n * sizeof *item->choices);
}

ssm_status ssm__item_set(char **place, const char *text, size_t bytes, ssm_error *err)
{
    free(*place);
    *place = text ? strndup(text, bytes) : NULL;
    return !text || *place ? SSM_STATUS_OK : ssm__fail_memory(err, "the text of an item", bytes);
}

ssm_status ssm__item_choice(const ssm__doc *doc, ssm_task_item *item, int64_t i, const char *text,
                            ssm_error *err)
{
    const size_t bytes = strlen(text);
    if (bytes == 0) {
        return ssm__doc_fail(doc, err, "choice %lld has no characters: nothing can be scored",
                             (long long)i);
    }
    char *continuation = malloc(bytes + 2);
    if (!continuation) {
        return ssm__fail_memory(err, "the text of an item", bytes + 2);
    }
    continuation[0] = ' ';
    memcpy(continuation + 1, text, bytes + 1);
    item->continuations[i] = continuation;
    return ssm__item_set(&item->choices[i], text, bytes, err);
}

bool ssm__doc_is_general(const ssm__doc *doc)
{
    return json_object_get(doc->fields, "query") && !json_object_get(doc->fields, "endings") &&
           json_is_array(json_object_get(doc->fields, "choices"));
}

static bool ends_with(const char *text, size_t bytes, const char *ending)
{
    const size_t length = strlen(ending);
    return bytes >= length && memcmp(text + bytes - length, ending, length) == 0;
}

ssm_status ssm__item_general(const ssm__doc *doc, ssm_task_item *item, const char *ending,
                             ssm_error *err)
{
    const char *query = NULL;
    const json_t *choices = NULL;
    ssm_text context = {0};
    ssm_status status = ssm__doc_text(doc, "query", &query, err);
    status = status == SSM_STATUS_OK ? ssm__doc_array(doc, doc->fields, "choices", &choices, err)
                                     : status;
    if (status == SSM_STATUS_OK) {
        status = ssm__item_start(item, (int64_t)json_array_size(choices), false, err);
    }
    if (status == SSM_STATUS_OK) {
        query += ssm__space_before(query, strlen(query));
        status = ssm__text_join(&context, err, query, NULL);
    }
    if (status == SSM_STATUS_OK) {
        context.bytes -= ssm__space_after(context.data, context.bytes);
        context.data[context.bytes] = '\0';
        const bool has = ends_with(context.data, context.bytes, ending);
        status = ssm__text_join(&context, err, has ? "" : ending, NULL);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm__item_set(item->contexts, context.data, context.bytes, err);
    }
    ssm_text_free(&context);
    for (int64_t i = 0; i < item->n_choices && status == SSM_STATUS_OK; i++) {
        const char *choice = json_string_value(json_array_get(choices, (size_t)i));
        status = ssm__item_choice(doc, item, i, choice, err);
    }
    return status == SSM_STATUS_OK
               ? ssm__doc_gold(doc, "gold", 0, item->n_choices, &item->gold, err)
               : status;
}
