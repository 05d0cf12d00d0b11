/* evaluate/journal.c: PATH.partial, one line appended for every finished piece of work. The first
 * line names the work; a line counts once its newline is written. */
#include "evaluate/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"

static const char schema[] = "ssmscope.journal/1";

struct ssm_journal {
    char *path;    /* of the finished file */
    char *partial; /* PATH.partial */
    int file;
    json_t *lines; /* series → index → line */
    int64_t resumed;
    bool bare; /* has nothing but the first line, which we wrote */
};

enum { KEY_BYTES = 24 };

static void make_key(int64_t index, char out[KEY_BYTES])
{
    snprintf(out, KEY_BYTES, "%lld", (long long)index);
}

const json_t *ssm__journal_find(const ssm_journal *journal, const char *series, int64_t index)
{
    char key[KEY_BYTES];
    make_key(index, key);
    return journal && series ? json_object_get(json_object_get(journal->lines, series), key) : NULL;
}

ssm_status ssm__journal_fail(const ssm_journal *journal, const char *series, int64_t index,
                             ssm_error *err)
{
    return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(journal->partial),
                     "the line of %s, number %lld, is not one that this command writes; delete the "
                     "file or run without --resume",
                     series, (long long)index);
}

static ssm_status write_all(ssm_journal *journal, const char *data, size_t bytes, ssm_error *err)
{
    while (bytes > 0) {
        const ssize_t wrote = write(journal->file, data, bytes);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            return ssm__fail_errno(err, SSM_STATUS_FAILED, journal->partial, "cannot be written",
                                   wrote < 0 ? errno : EIO);
        }
        data += wrote;
        bytes -= (size_t)wrote;
    }
    return SSM_STATUS_OK;
}

/* One line, in one write where the system allows it. */
static ssm_status write_line(ssm_journal *journal, const json_t *line, ssm_error *err)
{
    char *text = ssm__json_print(line, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!text) {
        return ssm__fail_memory(err, "a line of results", 0);
    }
    const size_t bytes = strlen(text);
    text[bytes] = '\n'; /* in place of the NUL: the length is known */
    const ssm_status status = write_all(journal, text, bytes + 1, err);
    free(text);
    return status;
}

ssm_status ssm__journal_add(ssm_journal *journal, const char *series, int64_t index, json_t *line,
                            ssm_error *err)
{
    if (!journal) {
        json_decref(line);
        return SSM_STATUS_OK;
    }
    json_t *whole = json_pack("{s:s, s:I}", "series", series, "index", (json_int_t)index);
    ssm_status status = SSM_STATUS_OK;
    if (!whole || !line || json_object_update(whole, line) != 0) {
        status = ssm__fail_memory(err, "a line of results", 0);
    }
    journal->bare = false;
    status = status == SSM_STATUS_OK ? write_line(journal, whole, err) : status;
    json_decref(whole);
    json_decref(line);
    return status;
}

/* ---- taking up an earlier run ---------------------------------------------------------------- */

/* The lines of a series; NULL: no memory. */
static json_t *lines_of(ssm_journal *journal, const char *series)
{
    json_t *lines = json_object_get(journal->lines, series);
    if (!lines) {
        lines = json_object();
        lines = json_object_set_new(journal->lines, series, lines) == 0 ? lines : NULL;
    }
    return lines;
}

static ssm_status take_line(ssm_journal *journal, json_t *line, int64_t number, ssm_error *err)
{
    char key[KEY_BYTES];
    const char *series = json_string_value(json_object_get(line, "series"));
    const json_t *index = json_object_get(line, "index");
    if (!series || !json_is_integer(index)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(journal->partial),
                         "line %lld has no series and index; delete the file or run without "
                         "--resume",
                         (long long)number);
    }
    make_key(json_integer_value(index), key);
    if (json_object_set(lines_of(journal, series), key, line) != 0) {
        return ssm__fail_memory(err, "the lines of an earlier run", 0);
    }
    journal->resumed++;
    return SSM_STATUS_OK;
}

static ssm_status check_first(const ssm_journal *journal, const json_t *line, const char *identity,
                              ssm_error *err)
{
    const char *of = json_string_value(json_object_get(line, "work"));
    const char *form = json_string_value(json_object_get(line, "schema"));
    if (!of || !form || strcmp(form, schema) != 0) {
        return ssm__fail(
            err, SSM_STATUS_FILE, SSM__IN_FILE(journal->partial),
            "line 1 does not say what work the others are of (schema %s, work); delete "
            "the file or run without --resume",
            schema);
    }
    if (strcmp(of, identity) != 0) {
        return ssm__fail(
            err, SSM_STATUS_FILE, SSM__IN_FILE(journal->partial),
            "holds the items of other work: %.300s; this is %.300s. Run that again, or "
            "without --resume to begin anew",
            of, identity);
    }
    return SSM_STATUS_OK;
}

/* The line of `length` bytes at `offset`. */
static ssm_status parse_line(const ssm_journal *journal, size_t offset, const char *text,
                             size_t length, int64_t number, json_t **out, ssm_error *err)
{
    ssm_error reason;
    ssm_error_clear(&reason);
    const ssm_status status = ssm__json_parse(journal->partial, (int64_t)offset, text, length,
                                              SSM__JSON_STRICT, out, &reason);
    if (status == SSM_STATUS_FILE) {
        /* The parser counts lines from the beginning of this one. */
        const char *what = strstr(reason.message, ": ");
        return ssm__fail(err, status, SSM__AT(journal->partial, reason.offset),
                         "line %lld: not valid JSON: %s; delete the file or run without --resume",
                         (long long)number, what ? what + 2 : reason.message);
    }
    return status == SSM_STATUS_OK ? status : ssm__fail_memory(err, "a line of JSON", length);
}

/* Lines that end; *whole: their bytes. */
static ssm_status take_lines(ssm_journal *journal, const char *text, size_t bytes,
                             const char *identity, size_t *whole, ssm_error *err)
{
    *whole = 0;
    const char *end;
    for (int64_t number = 1; *whole < bytes && (end = memchr(text + *whole, '\n', bytes - *whole));
         number++) {
        const size_t length = (size_t)(end - text) - *whole;
        json_t *line = NULL;
        SSM__TRY(parse_line(journal, *whole, text + *whole, length, number, &line, err));
        const ssm_status status = number == 1 ? check_first(journal, line, identity, err)
                                              : take_line(journal, line, number, err);
        json_decref(line);
        SSM__TRY(status);
        *whole += length + 1;
    }
    return SSM_STATUS_OK;
}

static ssm_status take_up(ssm_journal *journal, const char *identity, size_t *whole, ssm_error *err)
{
    *whole = 0;
    if (!ssm__is_file(journal->partial)) {
        return SSM_STATUS_OK;
    }
    ssm__map map;
    SSM__TRY(ssm__map_open(journal->partial, &map, err));
    const ssm_status status =
        take_lines(journal, (const char *)map.data, map.size, identity, whole, err);
    ssm__map_close(&map);
    return status;
}

/* Until the file is closed, or the process ends: two writers would cut off each other's lines. The
 * one that it was opened beside may just have given it its final name. A file system without locks
 * is used without. */
static ssm_status lock(const ssm_journal *journal, ssm_error *err)
{
    struct stat opened, named;
    const bool taken = flock(journal->file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (taken || fstat(journal->file, &opened) != 0 || stat(journal->partial, &named) != 0 ||
        opened.st_ino != named.st_ino || opened.st_dev != named.st_dev) {
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__IN_FILE(journal->partial),
                         "another process is writing this file: wait until it is done, or give "
                         "another one");
    }
    return SSM_STATUS_OK;
}

static ssm_status start(ssm_journal *journal, const char *identity, bool resume, ssm_error *err)
{
    size_t whole = 0;
    if (ssm__is_directory(journal->path)) { /* said before the work, not behind it */
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__IN_FILE(journal->path),
                         "cannot be written: it names a directory, not a file");
    }
    journal->file = open(journal->partial, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (journal->file < 0) {
        return ssm__fail_errno(err, SSM_STATUS_FAILED, journal->partial,
                               "cannot be opened for writing", errno);
    }
    SSM__TRY(lock(journal, err));
    if (resume) {
        SSM__TRY(take_up(journal, identity, &whole, err));
    }
    if (ftruncate(journal->file, (off_t)whole) != 0) {
        return ssm__fail_errno(err, SSM_STATUS_FAILED, journal->partial, "cannot be written",
                               errno);
    }
    if (whole > 0) {
        return SSM_STATUS_OK;
    }
    json_t *first = json_pack("{s:s, s:s}", "schema", schema, "work", identity);
    const ssm_status status =
        first ? write_line(journal, first, err) : ssm__fail_memory(err, "the first line", 0);
    journal->bare = true;
    json_decref(first);
    return status;
}

ssm_status ssm_journal_open(const char *path, const char *identity, bool resume, ssm_journal **out,
                            ssm_error *err)
{
    *out = NULL;
    ssm_journal *journal = calloc(1, sizeof *journal);
    if (!journal) {
        return ssm__fail_memory(err, "a journal", sizeof *journal);
    }
    const size_t room = strlen(path) + sizeof ".partial";
    char *work = ssm__utf8_printable(identity); /* it may have paths in it */
    journal->file = -1;
    journal->path = strdup(path);
    journal->partial = malloc(room);
    journal->lines = json_object();
    ssm_status status = SSM_STATUS_OK;
    if (!journal->path || !journal->partial || !journal->lines || !work) {
        status = ssm__fail_memory(err, "a journal", room);
    } else {
        snprintf(journal->partial, room, "%s.partial", path);
        status = start(journal, work, resume, err);
    }
    free(work);
    if (status != SSM_STATUS_OK) {
        ssm_journal_close(journal, false, NULL);
        return status;
    }
    *out = journal;
    return SSM_STATUS_OK;
}

int64_t ssm_journal_resumed(const ssm_journal *journal)
{
    return journal->resumed;
}

ssm_status ssm_journal_close(ssm_journal *journal, bool finished, ssm_error *err)
{
    if (!journal) {
        return SSM_STATUS_OK;
    }
    ssm_status status = SSM_STATUS_OK;
    if (!finished && journal->bare) {
        unlink(journal->partial); /* nothing in it to go on from; before the lock goes */
    }
    if (finished && fsync(journal->file) != 0 && errno != EINVAL && errno != EROFS) {
        status =
            ssm__fail_errno(err, SSM_STATUS_FAILED, journal->partial, "cannot be written", errno);
    }
    if (journal->file >= 0 && close(journal->file) != 0 && status == SSM_STATUS_OK && finished) {
        status =
            ssm__fail_errno(err, SSM_STATUS_FAILED, journal->partial, "cannot be written", errno);
    }
    if (finished && status == SSM_STATUS_OK && rename(journal->partial, journal->path) != 0) {
        status = ssm__fail_errno(err, SSM_STATUS_FAILED, journal->path,
                                 "cannot be put in its place", errno);
    }
    json_decref(journal->lines);
    free(journal->partial);
    free(journal->path);
    free(journal);
    return status;
}
