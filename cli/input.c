#include "input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "messages.h"

const char *cli_input_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

ssm_status cli_open_input(const char *path, FILE **out, ssm_error *err)
{
    if (strcmp(path, "-") == 0) {
        *out = stdin;
        return SSM_STATUS_OK;
    }
    *out = fopen(path, "re");
    if (*out == NULL) {
        return cli_fail(err, SSM_STATUS_FILE, path, "cannot be opened: %s", strerror(errno));
    }
    struct stat info;
    if (fstat(fileno(*out), &info) != 0) {
        return SSM_STATUS_OK;
    }
    if (S_ISDIR(info.st_mode)) {
        cli_close_input(*out);
        *out = NULL;
        return cli_fail(err, SSM_STATUS_FILE, path, "is a directory; a file is expected");
    }
    /* A device may have no end (/dev/zero); a terminal has one, and /dev/null is empty. */
    struct stat null;
    bool empty = stat("/dev/null", &null) == 0 && info.st_rdev == null.st_rdev;
    if ((S_ISCHR(info.st_mode) && !empty && isatty(fileno(*out)) == 0) || S_ISBLK(info.st_mode)) {
        cli_close_input(*out);
        *out = NULL;
        return cli_fail(err, SSM_STATUS_FILE, path, "is a device; a file or a pipe is expected");
    }
    return SSM_STATUS_OK;
}

void cli_close_input(FILE *file)
{
    if (file != NULL && file != stdin) {
        fclose(file);
    }
}

/* Room for `more` bytes and a NUL. */
static bool reserve(ssm_text *text, size_t more)
{
    if (text->capacity - text->bytes > more) {
        return true;
    }
    if (text->capacity > SIZE_MAX / 4) {
        return false;
    }
    size_t capacity = text->capacity < 65536 ? 131072 : text->capacity * 2;
    char *data = realloc(text->data, capacity);
    if (data == NULL) {
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

ssm_status cli_read_input(const char *path, ssm_text *text, ssm_error *err)
{
    FILE *file = NULL;
    ssm_status status = cli_open_input(path, &file, err);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    for (;;) {
        if (!reserve(text, 65536)) {
            status = cli_fail(err, SSM_STATUS_MEMORY, cli_input_name(path),
                              "out of memory after %zu bytes; give less text at once", text->bytes);
            break;
        }
        size_t got = fread(text->data + text->bytes, 1, 65536, file);
        text->bytes += got;
        text->data[text->bytes] = '\0';
        if (got == 0) {
            break;
        }
    }
    if (status == SSM_STATUS_OK && ferror(file) != 0) {
        status = cli_fail(err, SSM_STATUS_FILE, cli_input_name(path), "cannot be read: %s",
                          strerror(errno));
    }
    cli_close_input(file);
    return status;
}

ssm_status cli_ids_push(ssm_ids *ids, int32_t id, ssm_error *err)
{
    if (ids->count == ids->capacity) {
        int64_t capacity = ids->capacity < 256 ? 256 : ids->capacity * 2;
        int32_t *data = realloc(ids->data, (size_t)capacity * sizeof *data);
        if (data == NULL) {
            return cli_no_memory(err);
        }
        ids->data = data;
        ids->capacity = capacity;
    }
    ids->data[ids->count++] = id;
    return SSM_STATUS_OK;
}

static ssm_status parse_ids(const char *path, const ssm_text *text, ssm_ids *ids, ssm_error *err)
{
    static const char space[] = " \t\r\n\f\v";
    ssm_status status = SSM_STATUS_OK;
    size_t at = 0;
    while (status == SSM_STATUS_OK && (at += strspn(text->data + at, space)) < text->bytes) {
        size_t length = strcspn(text->data + at, space);
        int64_t id = 0;
        size_t digits = 0;
        while (digits < length && text->data[at + digits] >= '0' &&
               text->data[at + digits] <= '9' && id <= INT32_MAX) {
            id = id * 10 + (text->data[at + digits] - '0');
            digits++;
        }
        if (length == 0 || digits < length || id > INT32_MAX) {
            status = cli_fail(err, SSM_STATUS_FILE, cli_input_name(path),
                              "expected a token id (decimal digits), found '%.*s'",
                              length > 40 ? 40 : (int)length, text->data + at);
            if (err != NULL) {
                err->offset = (int64_t)at;
            }
            break;
        }
        status = cli_ids_push(ids, (int32_t)id, err);
        at += length;
    }
    return status;
}

ssm_status cli_read_ids(const char *path, ssm_ids *ids, ssm_error *err)
{
    ssm_text text = {0};
    ssm_status status = cli_read_input(path, &text, err);
    status = status == SSM_STATUS_OK ? parse_ids(path, &text, ids, err) : status;
    ssm_text_free(&text);
    return status;
}
