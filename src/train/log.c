/* train/log.c: the log of a run. A line that was cut short by a kill is dropped at resuming, and so
 * are lines behind the checkpoint, which the resumed run writes again. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "train/checkpointing.h"

struct ssm__log {
    int descriptor;
    char *path;
};

/* The number behind `"step":` at the line's front; −1: a line of another kind. */
static int64_t line_step(const char *line, size_t bytes)
{
    static const char start[] = "{\"step\":";
    if (bytes < sizeof start || memcmp(line, start, sizeof start - 1) != 0) {
        return -1;
    }
    int64_t step = 0;
    for (size_t i = sizeof start - 1; i < bytes && line[i] >= '0' && line[i] <= '9'; i++) {
        if (step > INT64_MAX / 10 - 10) {
            return INT64_MAX;
        }
        step = 10 * step + (line[i] - '0');
    }
    return step;
}

/* Bytes of the whole lines in front of the first one that is behind the step. */
static size_t kept_bytes(const char *text, size_t bytes, int64_t step)
{
    size_t at = 0;
    while (at < bytes) {
        const char *end = memchr(text + at, '\n', bytes - at);
        if (end == NULL || line_step(text + at, (size_t)(end - text) - at) > step) {
            break;
        }
        at = (size_t)(end - text) + 1;
    }
    return at;
}

static ssm_status cut(const char *path, int64_t step, ssm_error *err)
{
    ssm__map map = {0};
    size_t keep = 0;
    if (step >= 0 && ssm__is_file(path)) {
        SSM__TRY(ssm__map_open(path, &map, err));
        keep = map.data == NULL ? 0 : kept_bytes((const char *)map.data, map.size, step);
    }
    const ssm_status status =
        ssm__write_file(path, keep == 0 ? (const void *)"" : map.data, keep, err);
    ssm__map_close(&map);
    return status;
}

ssm_status ssm__log_open(const char *directory, int64_t step, ssm__log **out, ssm_error *err)
{
    ssm__log *log = calloc(1, sizeof *log);
    *out = NULL;
    if (log == NULL) {
        return ssm__fail_memory(err, "a log", sizeof *log);
    }
    log->descriptor = -1;
    log->path = ssm__path_join(directory, "training/log.jsonl");
    ssm_status status = log->path == NULL ? ssm__fail_memory(err, "a path", strlen(directory))
                                          : cut(log->path, step, err);
    if (status == SSM_STATUS_OK) {
        log->descriptor = open(log->path, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (log->descriptor < 0) {
            status = ssm__fail_errno(err, SSM_STATUS_FAILED, log->path, "cannot be opened", errno);
        }
    }
    if (status != SSM_STATUS_OK) {
        ssm__log_close(log);
        return status;
    }
    *out = log;
    return SSM_STATUS_OK;
}

ssm_status ssm__log_add(ssm__log *log, json_t *line, ssm_error *err)
{
    char *text = line == NULL ? NULL : ssm__json_print(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(line);
    if (text == NULL) {
        return ssm__fail_memory(err, "a line of the log", 0);
    }
    const size_t bytes = strlen(text) + 1;
    text[bytes - 1] = '\n';
    size_t done = 0;
    while (done < bytes) {
        const ssize_t wrote = write(log->descriptor, text + done, bytes - done);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            const int error = errno;
            free(text);
            return ssm__fail_errno(err, SSM_STATUS_FAILED, log->path, "cannot be written", error);
        }
        done += (size_t)wrote;
    }
    free(text);
    return SSM_STATUS_OK;
}

void ssm__log_close(ssm__log *log)
{
    if (log != NULL) {
        if (log->descriptor >= 0) {
            close(log->descriptor);
        }
        free(log->path);
        free(log);
    }
}
