/* train/experiment_run.c: going through the runs of an experiment. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "train/experiment.h"

enum { RESULT_BYTES = 1 << 22 };

typedef struct work {
    const ssm_experiment *e;
    const char *directory;
    const ssm_experiment_options *options;
    ssm__experiment_run *runs;
    int64_t count, current;
    ssm__duration *durations; /* [count] expected */
    double expected, took;    /* seconds of what this process has done: expected, and in fact */
    ssm__duration started;
    int lock;
    char *text, *table;
} work;

/* Half a second, unless the work is to stop. */
static ssm_status wait_a_little(const work *w, ssm_error *err)
{
    const ssm_progress *p = w->options->progress;
    const struct timespec half = {.tv_nsec = 500000000};
    if (p != NULL && p->report != NULL && !p->report(p->context, "wait", 0, 0, "runs")) {
        return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                         "interrupted while other processes were waited for");
    }
    nanosleep(&half, NULL);
    return SSM_STATUS_OK;
}

/* ---- the directory --------------------------------------------------------------------------- */

/* What the directory was begun with, with the defaults of keys that are newer than it. */
static ssm_status read_begun(const char *path, json_t **out, ssm_error *err)
{
    ssm_experiment *begun = NULL;
    SSM__TRY(ssm_experiment_read(path, &begun, err));
    char *text = ssm_experiment_text(begun);
    const ssm_status status =
        text == NULL ? ssm__fail_memory(err, "an experiment", 0)
                     : ssm__json_parse(path, -1, text, strlen(text), SSM__JSON_STRICT, out, err);
    free(text);
    ssm_experiment_free(begun);
    return status;
}

static ssm_status compare(const char *path, const char *text, ssm_error *err)
{
    json_t *was = NULL, *is = NULL;
    char differences[800];
    SSM__TRY(read_begun(path, &was, err));
    ssm_status status = ssm__json_parse(path, -1, text, strlen(text), SSM__JSON_STRICT, &is, err);
    const bool other =
        status == SSM_STATUS_OK && ssm__json_differs(was, is, differences, sizeof differences);
    json_decref(was);
    json_decref(is);
    if (other) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(path),
                         "the directory holds another experiment: %s; choose another directory",
                         differences);
    }
    return status;
}

/* A name that neither a stopped experiment nor the system leaves there. */
static bool is_foreign(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strstr(name, ".tmp") == NULL;
}

static ssm_status check_empty(const char *directory, ssm_error *err)
{
    char found[128] = "";
    DIR *stream = opendir(directory);
    if (stream == NULL) {
        return ssm__fail_errno(err, SSM_STATUS_FAILED, directory, "cannot be read", errno);
    }
    for (const struct dirent *entry = readdir(stream); entry != NULL; entry = readdir(stream)) {
        if (is_foreign(entry->d_name)) {
            snprintf(found, sizeof found, "%.100s", entry->d_name);
        }
    }
    closedir(stream);
    return found[0] == '\0'
               ? SSM_STATUS_OK
               : ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(directory),
                           "the directory is not empty (%s) and holds no experiment; choose "
                           "another",
                           found);
}

/* Makes the directory, or finds the same experiment in it. Locked until close_directory: processes
 * that share an experiment begin one after the other. A file system without locks is used without.
 */
static ssm_status open_directory(work *w, ssm_error *err)
{
    SSM__TRY(ssm__make_directories(w->directory, err));
    w->lock = open(w->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (w->lock >= 0 && flock(w->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        SSM__TRY(wait_a_little(w, err));
    }
    char *path = ssm__path_join(w->directory, "experiment.json");
    char *text = ssm_experiment_text(w->e);
    ssm_status status =
        path == NULL || text == NULL ? ssm__fail_memory(err, "an experiment", 0) : SSM_STATUS_OK;
    if (status == SSM_STATUS_OK && ssm__is_file(path)) {
        status = compare(path, text, err);
    } else if (status == SSM_STATUS_OK) {
        status = check_empty(w->directory, err);
        status = status == SSM_STATUS_OK ? ssm__write_file(path, text, strlen(text), err) : status;
    }
    free(path);
    free(text);
    return status;
}

/* "directory/runs/NAME[/file]" for free(); NULL: no memory. */
static char *run_path(const work *w, const ssm__experiment_run *run, const char *file)
{
    char *runs = ssm__path_join(w->directory, "runs");
    char *inner = runs == NULL ? NULL : ssm__path_join(runs, run->name);
    free(runs);
    if (inner == NULL || file == NULL) {
        return inner;
    }
    char *path = ssm__path_join(inner, file);
    free(inner);
    return path;
}

/* ---- what a run left ------------------------------------------------------------------------- */

/* A file of a run, or *out NULL where there is none. */
static ssm_status read_json(const work *w, const ssm__experiment_run *run, const char *file,
                            json_t **out, ssm_error *err)
{
    char *path = run_path(w, run, file);
    ssm_status status = path == NULL ? ssm__fail_memory(err, "a path", 0) : SSM_STATUS_OK;
    *out = NULL;
    if (status == SSM_STATUS_OK && ssm__is_file(path)) {
        status = ssm__json_read(path, RESULT_BYTES, SSM__JSON_STRICT, out, err);
    }
    free(path);
    return status;
}

/* The log's first line has the number of parameters. */
static ssm_status read_parameters(const work *w, ssm__experiment_run *run, ssm_error *err)
{
    char *path = run_path(w, run, "training/log.jsonl");
    ssm__map map = {0};
    json_t *head = NULL;
    ssm_status status =
        path == NULL ? ssm__fail_memory(err, "a path", 0) : ssm__map_open(path, &map, err);
    const char *end = map.data == NULL ? NULL : memchr(map.data, '\n', map.size);
    if (status == SSM_STATUS_OK && end != NULL) {
        status =
            ssm__json_parse(path, 0, (const char *)map.data, (size_t)(end - (const char *)map.data),
                            SSM__JSON_STRICT, &head, err);
    }
    run->parameters = json_integer_value(json_object_get(head, "parameters"));
    json_decref(head);
    ssm__map_close(&map);
    free(path);
    return status;
}

/* What the probe found is a further part of the evaluation; *there false: it has not been made. */
static ssm_status add_probe(const work *w, ssm__experiment_run *run, bool *there, ssm_error *err)
{
    json_t *probe = NULL;
    *there = w->e->probe.rows == 0;
    if (*there) {
        return SSM_STATUS_OK;
    }
    SSM__TRY(read_json(w, run, "probe.json", &probe, err));
    *there = probe != NULL;
    json_t *whole = run->evaluation == NULL ? json_object() : json_deep_copy(run->evaluation);
    const bool good = whole != NULL && (probe == NULL || json_object_update(whole, probe) == 0);
    json_decref(probe);
    json_decref(run->evaluation);
    run->evaluation = whole;
    return good ? SSM_STATUS_OK : ssm__fail_memory(err, "an evaluation", 0);
}

/* run->done: it has come to its end, or failed. */
static ssm_status look_at(const work *w, ssm__experiment_run *run, ssm_error *err)
{
    json_t *failure = NULL, *result = NULL;
    SSM__TRY(read_json(w, run, "failure.json", &failure, err));
    if (failure != NULL) {
        const char *words = json_string_value(json_object_get(failure, "failure"));
        run->failure = strdup(words == NULL ? "not finite" : words);
        run->done = true;
        json_decref(failure);
        return run->failure == NULL ? ssm__fail_memory(err, "a message", 0) : SSM_STATUS_OK;
    }
    SSM__TRY(read_json(w, run, "training/result.json", &result, err));
    if (result == NULL) {
        return SSM_STATUS_OK;
    }
    run->steps = json_integer_value(json_object_get(result, "steps"));
    run->tokens = json_integer_value(json_object_get(result, "tokens"));
    run->loss = json_is_number(json_object_get(result, "loss"))
                    ? json_number_value(json_object_get(result, "loss"))
                    : (double)NAN;
    const json_t *evaluation = json_object_get(result, "evaluation");
    json_decref(run->evaluation); /* of an earlier look, before its probe */
    run->evaluation =
        json_is_object(evaluation) ? json_incref((json_t *)(uintptr_t)evaluation) : NULL;
    json_decref(result);
    SSM__TRY(add_probe(w, run, &run->done, err));
    return read_parameters(w, run, err);
}

static ssm_status write_failure(const work *w, ssm__experiment_run *run, const char *message,
                                ssm_error *err)
{
    char words[256];
    snprintf(words, sizeof words, "%.250s", message);
    words[strcspn(words, ";")] = '\0'; /* which checkpoint was the last depends on stops */
    char *path = run_path(w, run, NULL);
    if (path == NULL) {
        return ssm__fail_memory(err, "a path", 0);
    }
    const ssm_status status = ssm__json_write(
        json_pack("{s:s, s:s}", "schema", "ssmscope.experiment_failure/1", "failure", words),
        JSON_INDENT(2), path, "failure.json", err);
    free(path);
    return status;
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Seconds left, as long as this process goes on as it went; share: done of the current run. */
static double seconds_left(const work *w, double share)
{
    double left = 0;
    const double now_expected = share * w->durations[w->current].seconds;
    const double expected = w->expected + now_expected;
    const double took = ssm__duration_now().seconds - w->started.seconds;
    for (int64_t i = 0; i < w->count; i++) {
        left += w->runs[i].done ? 0 : w->durations[i].seconds;
    }
    left = fmax(left - now_expected, 0);
    return expected > 1 && took > 1 ? left * took / expected : left;
}

static void on_line(void *context, const ssm_train_line *line)
{
    work *w = context;
    const ssm__experiment_run *run = &w->runs[w->current];
    const ssm_experiment_line out = {.run = w->current + 1,
                                     .runs = w->count,
                                     .name = run->name,
                                     .train = line,
                                     .seconds_left =
                                         seconds_left(w, (double)line->step / (double)line->steps)};
    w->options->line(w->options->context, &out);
}

/* log.jsonl has what a run took: the only file that the clock has a part in. */
static ssm_status log_run(const work *w, const ssm__experiment_run *run, ssm__duration from,
                          ssm_error *err)
{
    const ssm__duration to = ssm__duration_now();
    char line[512];
    char *path = ssm__path_join(w->directory, "log.jsonl");
    if (path == NULL) {
        return ssm__fail_memory(err, "a path", 0);
    }
    const int bytes =
        snprintf(line, sizeof line, "{\"run\":\"%s\",\"seconds\":%.3f,\"cpu_seconds\":%.3f}\n",
                 run->name, to.seconds - from.seconds, to.cpu_seconds - from.cpu_seconds);
    const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    ssm_status status = SSM_STATUS_OK;
    if (file < 0 || write(file, line, (size_t)bytes) != bytes) {
        status = ssm__fail_errno(err, SSM_STATUS_FAILED, path, "cannot be written", errno);
    }
    if (file >= 0) {
        close(file);
    }
    free(path);
    return status;
}

static ssm_status train(work *w, ssm__experiment_run *run, const ssm_recipe *recipe, ssm_error *err)
{
    const ssm_train_options options = {.pool = w->options->pool,
                                       .isa = w->options->isa,
                                       .resume = true,
                                       .progress = w->options->progress,
                                       .line = w->options->line == NULL ? NULL : on_line,
                                       .context = w};
    ssm_train_result result = {0};
    ssm_error own;
    ssm_error_clear(&own);
    char *path = run_path(w, run, NULL);
    ssm_status status = path == NULL ? ssm__fail_memory(&own, "a path", 0)
                                     : ssm_train(recipe, path, &options, &result, &own);
    if (status == SSM_STATUS_OK && w->e->probe.rows > 0) {
        status = ssm__probe_run(w->e, recipe, path, w->options, &own);
    }
    free(path);
    free(result.evaluation);
    if (result.not_finite) {
        return write_failure(w, run, own.message, err);
    }
    if (status != SSM_STATUS_OK) {
        return ssm__fail(err, status, SSM__IN_FILE(own.file), "run %s: %s", run->name, own.message);
    }
    return status;
}

static ssm_status run_one(work *w, ssm__experiment_run *run, ssm_error *err)
{
    ssm_recipe *recipe = NULL;
    const ssm__duration from = ssm__duration_now();
    const int64_t tuned =
        run->tuned >= 0 ? run->tuned : ssm__tuned(w->e, w->runs, w->count, run->arm, run->cell);
    SSM__TRY(ssm__run_recipe(w->e, run, tuned, &recipe, err));
    ssm_status status = train(w, run, recipe, err);
    ssm_recipe_free(recipe);
    status = status == SSM_STATUS_OK ? look_at(w, run, err) : status;
    status = status == SSM_STATUS_OK ? log_run(w, run, from, err) : status;
    w->expected += w->durations[w->current].seconds;
    return status;
}

/* Tells what the run that has just been done came to. */
static ssm_status report(const work *w, const ssm__experiment_run *run, ssm_error *err)
{
    char *evaluation = NULL;
    if (run->evaluation != NULL) {
        evaluation = ssm__json_print(run->evaluation, JSON_COMPACT | JSON_REAL_PRECISION(9));
        if (evaluation == NULL) {
            return ssm__fail_memory(err, "an evaluation", 0);
        }
    }
    const ssm_experiment_line line = {.run = w->current + 1,
                                      .runs = w->count,
                                      .name = run->name,
                                      .failure = run->failure,
                                      .evaluation = evaluation,
                                      .seconds_left = seconds_left(w, 0)};
    if (w->options->line != NULL) {
        w->options->line(w->options->context, &line);
    }
    free(evaluation);
    return SSM_STATUS_OK;
}

static ssm_status write_results(work *w, ssm_error *err)
{
    free(w->text);
    free(w->table);
    w->text = w->table = NULL;
    return ssm__results_write(w->e, w->runs, w->count, w->directory, &w->text, &w->table, err);
}

/* ---- all runs -------------------------------------------------------------------------------- */

static void tell_expected(const work *w)
{
    ssm_experiment_expected expected = {.runs = w->count};
    for (int64_t i = 0; i < w->count; i++) {
        expected.all_cpu_seconds += w->durations[i].cpu_seconds;
        expected.done += w->runs[i].done;
        expected.seconds += w->runs[i].done ? 0 : w->durations[i].seconds;
        expected.cpu_seconds += w->runs[i].done ? 0 : w->durations[i].cpu_seconds;
    }
    if (w->options->expected != NULL) {
        w->options->expected(w->options->context, &expected);
    }
}

static void close_directory(work *w)
{
    if (w->lock >= 0) {
        close(w->lock);
    }
    w->lock = -1;
}

static ssm_status begin(work *w, ssm_error *err)
{
    SSM__TRY(open_directory(w, err));
    SSM__TRY(ssm__runs_create(w->e, &w->runs, &w->count, err));
    w->durations = calloc((size_t)w->count + 1, sizeof *w->durations);
    if (w->durations == NULL) {
        return ssm__fail_memory(err, "durations", 0);
    }
    for (int64_t i = 0; i < w->count; i++) {
        SSM__TRY(look_at(w, &w->runs[i], err));
    }
    SSM__TRY(ssm__durations(w->e, w->runs, w->count, w->directory, w->options, w->durations, err));
    close_directory(w);
    tell_expected(w);
    w->started = ssm__duration_now();
    return SSM_STATUS_OK;
}

/* Runs that other processes have done meanwhile. */
static ssm_status look_again(work *w, int64_t *left, ssm_error *err)
{
    *left = 0;
    for (int64_t i = 0; i < w->count; i++) {
        if (!w->runs[i].done) {
            SSM__TRY(look_at(w, &w->runs[i], err));
            w->expected += w->runs[i].done ? w->durations[i].seconds : 0;
            *left += !w->runs[i].done;
        }
    }
    return SSM_STATUS_OK;
}

/* *lock: the run is this process's; −1: another one has it. */
static ssm_status claim(const work *w, const ssm__experiment_run *run, int *lock, ssm_error *err)
{
    char *path = run_path(w, run, NULL);
    ssm_status status =
        path == NULL ? ssm__fail_memory(err, "a path", 0) : ssm__make_directories(path, err);
    *lock = -1;
    if (status == SSM_STATUS_OK) {
        *lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (*lock < 0) {
            status = ssm__fail_errno(err, SSM_STATUS_FAILED, path, "cannot be opened", errno);
        } else if (flock(*lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            close(*lock);
            *lock = -1;
        }
    }
    free(path);
    return status;
}

static ssm_status claim_and_run(work *w, int64_t i, bool *did, ssm_error *err)
{
    ssm__experiment_run *run = &w->runs[i];
    int lock;
    int64_t left;
    SSM__TRY(claim(w, run, &lock, err));
    if (lock < 0) {
        return SSM_STATUS_OK;
    }
    w->current = i;
    ssm_status status = look_at(w, run, err); /* done between the last look and the lock? */
    if (status == SSM_STATUS_OK && !run->done) {
        status = run_one(w, run, err);
        *did = true;
    }
    close(lock);
    status = status == SSM_STATUS_OK && *did ? look_again(w, &left, err) : status;
    status = status == SSM_STATUS_OK && *did ? write_results(w, err) : status;
    return status == SSM_STATUS_OK && *did ? report(w, run, err) : status;
}

/* The first run that is neither done nor another process's; those behind what tunes wait for it. */
static ssm_status run_next(work *w, bool *did, ssm_error *err)
{
    *did = false;
    for (int64_t i = 0; i < w->count && !*did; i++) {
        const ssm__experiment_run *run = &w->runs[i];
        const bool ready = w->e->tune.key == NULL || run->tuned >= 0 ||
                           ssm__tuned(w->e, w->runs, w->count, run->arm, run->cell) >= 0;
        if (!run->done && ready) {
            SSM__TRY(claim_and_run(w, i, did, err));
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status run_all(work *w, ssm_error *err)
{
    int64_t left;
    SSM__TRY(begin(w, err));
    if (w->options->estimate) {
        return SSM_STATUS_OK;
    }
    SSM__TRY(look_again(w, &left, err));
    while (left > 0) {
        bool did;
        SSM__TRY(run_next(w, &did, err));
        if (!did) {
            SSM__TRY(wait_a_little(w, err));
        }
        SSM__TRY(look_again(w, &left, err));
    }
    return write_results(w, err);
}

ssm_status ssm_experiment_run(const ssm_experiment *experiment, const char *directory,
                              const ssm_experiment_options *options, ssm_experiment_result *out,
                              ssm_error *err)
{
    work w = {.e = experiment, .directory = directory, .options = options, .lock = -1};
    const ssm__duration from = ssm__duration_now();
    const ssm_status status = run_all(&w, err);
    const ssm__duration to = ssm__duration_now();
    *out = (ssm_experiment_result){.runs = w.count,
                                   .seconds = to.seconds - from.seconds,
                                   .cpu_seconds = to.cpu_seconds - from.cpu_seconds};
    for (int64_t i = 0; i < w.count; i++) {
        out->done += w.runs[i].done;
        out->failed += w.runs[i].failure != NULL;
    }
    if (status == SSM_STATUS_OK) {
        out->results = w.text;
        out->table = w.table;
        w.text = w.table = NULL;
    }
    free(w.text);
    free(w.table);
    free(w.durations);
    ssm__runs_free(w.runs, w.count);
    close_directory(&w);
    return status;
}

void ssm_experiment_result_free(ssm_experiment_result *result)
{
    free(result->results);
    free(result->table);
    *result = (ssm_experiment_result){0};
}
