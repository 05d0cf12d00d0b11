/* evaluate/results.c: a directory of results that belongs to one piece of work. plan.json says
 * which: two runs with the same plan give the same results, so that one can take up what the other
 * left, and results of different work are never mixed. */
#include <ssmscope/evaluate.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

enum { PLAN_LIMIT = 1 << 24, SHOWN_MAX = 120 };

static const char plan_name[] = "plan.json";

struct ssm_results {
    char *directory;
    int lock; /* the directory, locked; −1 */
};

/* ---- the plan -------------------------------------------------------------------------------- */

/* Where two texts begin to differ, less a few bytes to tell where that is; 0 for short ones, and
 * the start of a character always. */
static size_t first_shown(const char *a, const char *b)
{
    enum { BEFORE = 24 };
    size_t at = 0;
    while (a[at] != '\0' && a[at] == b[at]) {
        at++;
    }
    if (at <= BEFORE || (strlen(a) < SHOWN_MAX - 8 && strlen(b) < SHOWN_MAX - 8)) {
        return 0;
    }
    at -= BEFORE;
    while (at > 0 && ((unsigned char)a[at] & 0xC0) == 0x80) {
        at--;
    }
    return at;
}

static void cut(const char *text, size_t from, char out[SHOWN_MAX])
{
    const bool long_one = strlen(text + from) > SHOWN_MAX - 9;
    snprintf(out, SHOWN_MAX, "%s%.*s%s", from > 0 ? "… " : "", SHOWN_MAX - 9, text + from,
             long_one ? " …" : "");
}

/* Two values that differ as an error shows them: short, from where they differ, "nothing" where
 * there is none. False: no memory. */
static bool show(const json_t *there, const json_t *here, char old_text[SHOWN_MAX],
                 char new_text[SHOWN_MAX])
{
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY;
    char *a = there ? ssm__json_print(there, flags) : strdup("nothing");
    char *b = here ? ssm__json_print(here, flags) : strdup("nothing");
    if (a && b) {
        const size_t from = first_shown(a, b);
        cut(a, from, old_text);
        cut(b, from, new_text);
    }
    const bool shown = a && b;
    free(a);
    free(b);
    return shown;
}

/* "name: there OLD, here NEW; …" of all members that differ, at out, which is empty when none does.
 */
static ssm_status list_differences(const json_t *there, const json_t *here, char *out, size_t size,
                                   ssm_error *err)
{
    size_t at = 0;
    const char *key;
    json_t *value;
    const json_t *const sides[] = {here, there};
    out[0] = '\0';
    for (int side = 0; side < 2; side++) {
        json_object_foreach((json_t *)sides[side], key, value)
        {
            const json_t *other = json_object_get(sides[1 - side], key);
            char old_text[SHOWN_MAX], new_text[SHOWN_MAX];
            if ((side == 1 && other) || (other && json_equal(value, other))) {
                continue; /* seen from the first side, or the same */
            }
            if (!show(side == 0 ? other : value, side == 0 ? value : NULL, old_text, new_text)) {
                return ssm__fail_memory(err, "the differences of two plans", 0);
            }
            const int length = at < size ? snprintf(out + at, size - at, "%s%s: there %s, here %s",
                                                    at == 0 ? "" : "; ", key, old_text, new_text)
                                         : 0;
            at += length > 0 ? (size_t)length : 0;
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status compare_plan(const char *path, const json_t *plan, ssm_error *err)
{
    json_t *there = NULL;
    char differences[800];
    SSM__TRY(ssm__json_read(path, PLAN_LIMIT, SSM__JSON_STRICT, &there, err));
    ssm_status status = json_is_object(there)
                            ? list_differences(there, plan, differences, sizeof differences, err)
                            : ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                                        "is not a plan: an object is expected");
    if (status == SSM_STATUS_OK && differences[0] != '\0') {
        status = ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(path),
                           "the results there are of other work: %s; give another directory, or "
                           "the same work",
                           differences);
    }
    json_decref(there);
    return status;
}

/* ---- the directory --------------------------------------------------------------------------- */

/* ".name.<16 hex digits>.tmp", as base/writer.c names what is not whole yet. */
static bool is_temporary(const char *name)
{
    const size_t length = strlen(name);
    return name[0] == '.' && length > 22 && strcmp(name + length - 4, ".tmp") == 0 &&
           strspn(name + length - 20, "0123456789abcdef") == 16;
}

/* Removes what a stop left of files that were being written; counts the other entries. */
static ssm_status clean(const char *path, int64_t *others, ssm_error *err)
{
    DIR *directory = opendir(path);
    *others = 0;
    if (!directory) {
        return errno == ENOMEM
                   ? ssm__fail_memory(err, "a list of files", 0)
                   : ssm__fail_errno(err, SSM_STATUS_FAILED, path, "cannot be listed", errno);
    }
    for (const struct dirent *entry; (entry = readdir(directory));) {
        if (is_temporary(entry->d_name)) {
            unlinkat(dirfd(directory), entry->d_name, 0);
        } else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (*others)++;
        }
    }
    closedir(directory);
    return SSM_STATUS_OK;
}

/* While the results are open. A file system without locks is used without. */
static ssm_status lock_directory(ssm_results *results, ssm_error *err)
{
    SSM__TRY(ssm__make_directories(results->directory, err));
    results->lock = open(results->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (results->lock >= 0 && flock(results->lock, LOCK_EX | LOCK_NB) != 0 &&
        errno == EWOULDBLOCK) {
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__IN_FILE(results->directory),
                         "another process is writing into this directory: wait until it is done, "
                         "or give another one");
    }
    return SSM_STATUS_OK;
}

static ssm_status take(ssm_results *results, const char *path, json_t *plan, bool resume,
                       ssm_error *err)
{
    int64_t others = 0;
    SSM__TRY(lock_directory(results, err));
    if (ssm__is_file(path)) {
        if (!resume) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(results->directory),
                             "the directory holds results already: give another one, or --resume");
        }
        SSM__TRY(compare_plan(path, plan, err)); /* before anything there is touched */
        return clean(results->directory, &others, err);
    }
    SSM__TRY(clean(results->directory, &others, err));
    if (others > 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(results->directory),
                         "the directory is not empty and holds no results of this kind: give "
                         "another one");
    }
    return ssm__json_write(json_incref(plan), JSON_INDENT(2) | JSON_REAL_PRECISION(17),
                           results->directory, plan_name, err);
}

ssm_status ssm_results_open(const char *directory, const char *plan, bool resume, ssm_results **out,
                            ssm_error *err)
{
    json_t *parsed = NULL;
    *out = NULL;
    SSM__TRY(ssm__json_parse(plan_name, 0, plan, strlen(plan), SSM__JSON_STRICT, &parsed, err));
    ssm_results *results = calloc(1, sizeof *results);
    char *path = ssm__path_join(directory, plan_name);
    ssm_status status = ssm__fail_memory(NULL, "results", 0);
    if (results) {
        results->lock = -1;
    }
    if (results && path) {
        results->directory = strdup(directory);
        status = results->directory ? take(results, path, parsed, resume, err) : status;
    }
    if (status == SSM_STATUS_MEMORY) {
        ssm__fail_memory(err, "a directory of results", 0);
    }
    free(path);
    json_decref(parsed);
    if (status != SSM_STATUS_OK) {
        ssm_results_close(results);
        return status;
    }
    *out = results;
    return SSM_STATUS_OK;
}

ssm_status ssm_results_folder(ssm_results *results, const char *name, ssm_error *err)
{
    int64_t others = 0;
    char *path = ssm__path_join(results->directory, name);
    if (!path) {
        return ssm__fail_memory(err, "a path", 0);
    }
    ssm_status status = ssm__make_directories(path, err);
    status = status == SSM_STATUS_OK ? clean(path, &others, err) : status;
    free(path);
    return status;
}

ssm_status ssm_results_write(ssm_results *results, const char *name, const void *data, size_t bytes,
                             ssm_error *err)
{
    char *path = ssm__path_join(results->directory, name);
    if (!path) {
        return ssm__fail_memory(err, "a path", 0);
    }
    const ssm_status status = ssm__write_file(path, data, bytes, err);
    free(path);
    return status;
}

void ssm_results_close(ssm_results *results)
{
    if (results) {
        if (results->lock >= 0) {
            close(results->lock);
        }
        free(results->directory);
        free(results);
    }
}
