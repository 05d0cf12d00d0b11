/* base/error.c: filling the error record, and the nearest name for a mistyped one. */
#include "base/error.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ssm_error_clear(ssm_error *err)
{
    if (err != NULL) {
        memset(err, 0, sizeof *err);
        err->status = SSM_STATUS_OK;
        err->offset = -1;
    }
}

/* Makes text valid UTF-8 in place: each byte that belongs to no sequence becomes '?'. A sequence
 * that truncation cut at the end is dropped where `cut` says that the text was cut there. */
static void make_valid(char *text, bool cut)
{
    size_t bytes = strlen(text);
    for (size_t at = 0; at < bytes;) {
        size_t length = ssm__utf8_length(text + at, bytes - at);
        if (length == 0 && cut && bytes - at < 4 && ((unsigned char)text[at] & 0xC0) == 0xC0) {
            text[at] = '\0';
            return;
        }
        if (length == 0) {
            text[at] = '?';
            length = 1;
        }
        at += length;
    }
}

/* Copies a place into out[size]; a longer one keeps its end, where the file name is, behind "...".
 */
static void copy_place(char *out, size_t size, const char *place)
{
    if (place == NULL) {
        out[0] = '\0';
        return;
    }
    size_t bytes = strlen(place);
    if (bytes < size) {
        memcpy(out, place, bytes + 1);
    } else {
        const char *end = place + bytes - (size - 1 - 3);
        while (((unsigned char)*end & 0xC0) == 0x80) {
            end++; /* begin at the start of a character */
        }
        memcpy(out, "...", 3);
        memcpy(out + 3, end, strlen(end) + 1);
    }
    make_valid(out, false);
}

ssm_status ssm__fail(ssm_error *err, ssm_status status, ssm__place place, const char *format, ...)
{
    if (err == NULL || err->status != SSM_STATUS_OK) {
        return status; /* the first failure wins */
    }
    err->status = status;
    err->offset = place.offset;
    copy_place(err->file, sizeof err->file, place.file);
    copy_place(err->tensor, sizeof err->tensor, place.tensor);
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(err->message, sizeof err->message, format, arguments);
    va_end(arguments);
    if (bytes < 0) {
        err->message[0] = '\0';
    }
    make_valid(err->message, bytes >= (int)sizeof err->message);
    return status;
}

ssm_status ssm__fail_memory(ssm_error *err, const char *what, size_t bytes)
{
    if (bytes == 0 || bytes == SIZE_MAX) {
        return ssm__fail(err, SSM_STATUS_MEMORY, SSM__NOWHERE, "out of memory for %s", what);
    }
    return ssm__fail(err, SSM_STATUS_MEMORY, SSM__NOWHERE, "out of memory for %s (%zu bytes)", what,
                     bytes);
}

ssm_status ssm__fail_errno(ssm_error *err, ssm_status status, const char *path, const char *doing,
                           int errno_value)
{
    char buffer[128];
    const char *reason = strerror_r(errno_value, buffer, sizeof buffer);
    if (errno_value == ENOMEM) {
        status = SSM_STATUS_MEMORY;
    }
    return ssm__fail(err, status, SSM__IN_FILE(path), "%s: %s", doing, reason);
}

enum { NEAREST_MAX = 64 }; /* longer words get no suggestion */

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Edit distance in which inserting, deleting, replacing a byte and swapping two neighbours cost 1
 * each (optimal string alignment). Both lengths ≤ NEAREST_MAX. */
static int edit_distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int rows[3][NEAREST_MAX + 1]; /* [i % 3][j]: distance of the first i and the first j bytes */
    for (size_t j = 0; j <= b_bytes; j++) {
        rows[0][j] = (int)j;
    }
    for (size_t i = 1; i <= a_bytes; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i - 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_bytes; j++) {
            int best =
                smaller(smaller(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                best = smaller(best, rows[(i - 2) % 3][j - 2] + 1);
            }
            row[j] = best;
        }
    }
    return rows[a_bytes % 3][b_bytes];
}

const char *ssm_nearest(const char *word, const char *const *names)
{
    const size_t word_bytes = strlen(word);
    if (word_bytes > NEAREST_MAX) {
        return NULL;
    }
    const char *nearest = NULL;
    const char *begins = NULL;
    int nearest_distance = (int)(word_bytes / 3) + 1;
    for (const char *const *name = names; *name != NULL; name++) {
        const size_t bytes = strlen(*name);
        if (bytes > NEAREST_MAX) {
            continue;
        }
        const int distance = edit_distance(word, word_bytes, *name, bytes);
        if (distance < nearest_distance) {
            nearest_distance = distance;
            nearest = *name;
        }
        if (begins == NULL && word_bytes >= 2 && strncmp(*name, word, word_bytes) == 0) {
            begins = *name;
        }
    }
    return nearest != NULL ? nearest : begins;
}
