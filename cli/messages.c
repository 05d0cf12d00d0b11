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

/* What comes from files and arguments may hold control characters, which terminals obey. */
static void print_plain(const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7F) {
            fprintf(stderr, "\\x%02x", (unsigned)(unsigned char)*c);
        } else {
            fputc(*c, stderr);
        }
    }
}

void cli_print_error(const ssm_error *err, ssm_status status, const char *command)
{
    fprintf(stderr, "ssmscope: ");
    if (err->file[0] != '\0') {
        print_plain(err->file);
        fputs(": ", stderr);
    }
    if (err->tensor[0] != '\0') {
        fprintf(stderr, "%s %s%s", is_json(err->file) ? "field" : "tensor", err->tensor,
                err->offset >= 0 ? ", " : ": ");
    }
    if (err->offset >= 0) {
        fprintf(stderr, "byte %lld: ", (long long)err->offset);
    }
    print_plain(err->message[0] != '\0' ? err->message : ssm_status_text(status));
    fputc('\n', stderr);
    if (status == SSM_STATUS_USAGE) {
        fprintf(stderr, "See: ssmscope %s%s--help\n", command == NULL ? "" : command,
                command == NULL ? "" : " ");
    }
}
