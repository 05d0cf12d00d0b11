#include "messages.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ssm_status cli_fail(ssm_error *err, ssm_status status, const char *file, const char *format, ...)
{
    if (err == NULL || err->status != SSM_STATUS_OK) {
        return status;
    }
    ssm_error_clear(err);
    err->status = status;
    snprintf(err->file, sizeof err->file, "%s", file == NULL ? "" : file);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(err->message, sizeof err->message, format, arguments);
    va_end(arguments);
    return status;
}

ssm_status cli_no_memory(ssm_error *err)
{
    return cli_fail(err, SSM_STATUS_MEMORY, NULL, "out of memory");
}

/* In a JSON file the record names a field, elsewhere a tensor. */
static bool is_json(const char *path)
{
    size_t length = strlen(path);
    return length >= 5 && strcmp(path + length - 5, ".json") == 0;
}

void cli_print_error(const ssm_error *err, ssm_status status, const char *command)
{
    fprintf(stderr, "ssmscope: ");
    if (err->file[0] != '\0') {
        fprintf(stderr, "%s: ", err->file);
    }
    if (err->tensor[0] != '\0') {
        fprintf(stderr, "%s %s%s", is_json(err->file) ? "field" : "tensor", err->tensor,
                err->offset >= 0 ? ", " : ": ");
    }
    if (err->offset >= 0) {
        fprintf(stderr, "byte %lld: ", (long long)err->offset);
    }
    fprintf(stderr, "%s\n", err->message[0] != '\0' ? err->message : ssm_status_text(status));
    if (status == SSM_STATUS_USAGE) {
        fprintf(stderr, "See: ssmscope %s%s--help\n", command == NULL ? "" : command,
                command == NULL ? "" : " ");
    }
}

enum { NEAREST_MAX = 64 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Optimal string alignment distance; words longer than NEAREST_MAX are never near. */
static size_t distance(const char *a, const char *b)
{
    size_t length_a = strlen(a);
    size_t length_b = strlen(b);
    if (length_a > NEAREST_MAX || length_b > NEAREST_MAX) {
        return SIZE_MAX;
    }
    size_t rows[3][NEAREST_MAX + 1];
    size_t *before = rows[0];
    size_t *above = rows[1];
    size_t *current = rows[2];
    for (size_t j = 0; j <= length_b; j++) {
        before[j] = j;
        above[j] = j;
    }
    for (size_t i = 1; i <= length_a; i++) {
        current[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            size_t replaced = above[j - 1] + (a[i - 1] != b[j - 1]);
            current[j] = least(replaced, least(above[j], current[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                current[j] = least(current[j], before[j - 2] + 1);
            }
        }
        size_t *free_row = before;
        before = above;
        above = current;
        current = free_row;
    }
    return above[length_b];
}

const char *cli_nearest(const char *word, const char *const *names)
{
    size_t length = strlen(word);
    if (length < 2) {
        return NULL;
    }
    const char *best = NULL;
    size_t best_distance = 1 + length / 4 + 1;
    for (size_t i = 0; names[i] != NULL; i++) {
        size_t d = distance(word, names[i]);
        if (d < best_distance) {
            best = names[i];
            best_distance = d;
        }
    }
    for (size_t i = 0; best == NULL && names[i] != NULL; i++) {
        if (strncmp(names[i], word, length) == 0) {
            best = names[i];
        }
    }
    return best;
}
