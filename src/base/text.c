#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

/* Room for so many bytes more and the end. */
static bool reserve(ssm__text *text, size_t bytes)
{
    size_t needed, doubled;
    text->failed = text->failed || !ssm__add_size(text->used, bytes, &needed) ||
                   !ssm__add_size(needed, 1, &needed) || !ssm__mul_size(needed, 2, &doubled);
    if (text->failed || needed <= text->size) {
        return !text->failed;
    }
    char *grown = realloc(text->data, doubled);
    text->failed = grown == NULL;
    if (!text->failed) {
        text->data = grown;
        text->size = doubled;
    }
    return !text->failed;
}

void ssm__text_add(ssm__text *text, const char *more)
{
    const size_t bytes = strlen(more);
    if (reserve(text, bytes)) {
        memcpy(text->data + text->used, more, bytes + 1);
        text->used += bytes;
    }
}

void ssm__text_format(ssm__text *text, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int bytes = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    text->failed = text->failed || bytes < 0;
    if (!text->failed && reserve(text, (size_t)bytes)) {
        vsnprintf(text->data + text->used, (size_t)bytes + 1, format, again);
        text->used += (size_t)bytes;
    }
    va_end(again);
}

ssm_status ssm__text_take(ssm__text *text, char **out, ssm_error *err)
{
    ssm__text_add(text, ""); /* an empty one is "" */
    const bool failed = text->failed;
    *out = failed ? NULL : text->data;
    if (failed) {
        free(text->data);
    }
    *text = (ssm__text){0};
    return failed ? ssm__fail_memory(err, "a text", 0) : SSM_STATUS_OK;
}
