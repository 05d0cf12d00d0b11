#include "checkpoint/notes.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static ssm_status make_room(ssm__notes *notes, ssm_error *err)
{
    if (notes->count < notes->capacity) {
        return SSM_STATUS_OK;
    }
    int64_t capacity = notes->capacity == 0 ? 16 : 2 * notes->capacity;
    char **items = realloc(notes->items, (size_t)capacity * sizeof *items);
    if (items == NULL) {
        return ssm__fail_memory(err, "notes", (size_t)capacity * sizeof *items);
    }
    notes->items = items;
    notes->capacity = capacity;
    return SSM_STATUS_OK;
}

ssm_status ssm__note(ssm__notes *notes, ssm_error *err, const char *format, ...)
{
    SSM__TRY(make_room(notes, err));
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : malloc((size_t)length + 1);
    if (text == NULL) {
        return ssm__fail_memory(err, "a note", length < 0 ? 0 : (size_t)length + 1);
    }
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    notes->items[notes->count++] = text;
    return SSM_STATUS_OK;
}

void ssm__notes_free(ssm__notes *notes)
{
    for (int64_t i = 0; i < notes->count; i++) {
        free(notes->items[i]);
    }
    free(notes->items);
    *notes = (ssm__notes){0};
}

void ssm__list_add(ssm__list_text *list, const char *format, ...)
{
    enum { KEPT = 32 }; /* room for " and K more" */
    list->total++;
    if (list->shown + 1 < list->total) {
        return; /* an earlier one did not fit */
    }
    char item[256];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(item, sizeof item, format, args);
    va_end(args);
    size_t bytes = length < 0 ? 0 : (size_t)length;
    if (bytes >= sizeof item) {
        bytes = sizeof item - 2;
        while (bytes > 0 && ((unsigned char)item[bytes] & 0xc0) == 0x80) {
            bytes--; /* do not cut a character */
        }
        item[bytes] = '\0';
    }
    const char *separator = list->shown == 0 ? "" : ", ";
    if (list->used + strlen(separator) + bytes + KEPT > sizeof list->text) {
        return;
    }
    list->used += (size_t)snprintf(list->text + list->used, sizeof list->text - list->used, "%s%s",
                                   separator, item);
    list->shown++;
}

const char *ssm__list_end(ssm__list_text *list)
{
    if (list->shown < list->total) {
        snprintf(list->text + list->used, sizeof list->text - list->used, " and %" PRId64 " more",
                 list->total - list->shown);
        list->shown = list->total;
    }
    return list->text;
}
