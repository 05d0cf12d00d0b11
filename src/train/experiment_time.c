/* train/experiment_time.c: how long runs take: a few steps of every size of network are made in a
 * directory of their own, and the rest is arithmetic. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "train/experiment.h"

enum { STEPS = 5 };

/* Of a step and of an evaluation of all its examples, with what a checkpoint costs. */
typedef struct timing {
    ssm__duration step, rest;
} timing;

/* Clocks behind the first and the last but one step of a trial: behind the last one it is
 * evaluated. */
typedef struct marks {
    ssm__duration first, last;
} marks;

static double read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

ssm__duration ssm__duration_now(void)
{
    return (ssm__duration){read_clock(CLOCK_MONOTONIC), read_clock(CLOCK_PROCESS_CPUTIME_ID)};
}

/* (to − from)/parts */
static ssm__duration between(ssm__duration from, ssm__duration to, double parts)
{
    return (ssm__duration){(to.seconds - from.seconds) / parts,
                           (to.cpu_seconds - from.cpu_seconds) / parts};
}

static void on_line(void *context, const ssm_train_line *line)
{
    marks *m = context;
    if (line->step == 1) {
        m->first = ssm__duration_now();
    } else if (line->step == STEPS - 1) {
        m->last = ssm__duration_now();
    }
}

/* ---- a trial --------------------------------------------------------------------------------- */

static ssm_status trial_recipe(const ssm_recipe *of, ssm_recipe **out, ssm_error *err)
{
    const int64_t rows = of->evaluate.rows < of->batch.rows ? of->evaluate.rows : of->batch.rows;
    char steps[24], examples[24];
    snprintf(steps, sizeof steps, "%d", STEPS);
    snprintf(examples, sizeof examples, "%" PRId64, rows);
    const char *const settings[][2] = {{"schedule.warmup", "0"},   {"schedule.steps", steps},
                                       {"evaluate.every", "0"},    {"evaluate.rows", examples},
                                       {"checkpoint.every", "0"},  {"checkpoint.log", "1"},
                                       {"optimiser.lr", "0.0001"}, {"init.mimetic", "none"}};
    ssm_status status = ssm_recipe_copy(of, out, err);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0] && status == SSM_STATUS_OK; i++) {
        status = ssm_recipe_set(*out, settings[i][0], settings[i][1], err);
    }
    return status;
}

/* What a run leaves in its directory, and the directory. */
static void remove_run(const char *directory)
{
    static const char *const names[] = {"training/log.jsonl",   "training/state.safetensors",
                                        "training/result.json", "training",
                                        "model.safetensors",    "config.json",
                                        "recipe.json",          "tokenizer.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = ssm__path_join(directory, names[i]);
        if (path != NULL) {
            (void)(strcmp(names[i], "training") == 0 ? rmdir(path) : unlink(path));
        }
        free(path);
    }
    (void)rmdir(directory);
}

static ssm_status time_recipe(const ssm_recipe *of, const char *directory,
                              const ssm_experiment_options *options, timing *out, ssm_error *err)
{
    marks m = {0};
    ssm_recipe *recipe = NULL;
    ssm_train_result result = {0};
    const ssm_train_options train = {.pool = options->pool,
                                     .isa = options->isa,
                                     .progress = options->progress,
                                     .line = on_line,
                                     .context = &m};
    char *inner = ssm__path_join(directory, "timing");
    ssm_status status =
        inner == NULL ? ssm__fail_memory(err, "a path", strlen(directory)) : SSM_STATUS_OK;
    status = status == SSM_STATUS_OK ? trial_recipe(of, &recipe, err) : status;
    if (status == SSM_STATUS_OK) {
        remove_run(inner); /* of a trial that was killed */
        status = ssm_train(recipe, inner, &train, &result, err);
    }
    const ssm__duration end = ssm__duration_now();
    if (status == SSM_STATUS_OK) {
        const double share =
            of->evaluate.rows == 0 ? 1 : (double)of->evaluate.rows / (double)recipe->evaluate.rows;
        out->step = between(m.first, m.last, STEPS - 2);
        out->rest = between(m.last, end, 1 / share);
    }
    if (inner != NULL) {
        remove_run(inner);
    }
    free(result.evaluation);
    ssm_recipe_free(recipe);
    free(inner);
    return status;
}

/* ---- what was measured before ---------------------------------------------------------------- */

/* What the time of a step depends on; for free(). NULL: no memory. */
static char *size_key(const ssm_recipe *recipe)
{
    json_t *json = ssm__recipe_json(recipe, NULL);
    json_t *rows = json_incref(json_object_get(json_object_get(json, "evaluate"), "rows"));
    json_t *size = json_pack("{s:O, s:O, s:O, s:O}", "model", json_object_get(json, "model"),
                             "task", json_object_get(json, "task"), "batch",
                             json_object_get(json, "batch"), "rows", rows);
    char *text = size == NULL ? NULL : ssm__json_print(size, JSON_COMPACT);
    json_decref(size);
    json_decref(rows);
    json_decref(json);
    return text;
}

static bool read_timing(const json_t *known, const char *key, timing *out)
{
    const json_t *four = json_object_get(known, key);
    double numbers[4];
    for (size_t i = 0; i < 4; i++) {
        if (!json_is_number(json_array_get(four, i))) {
            return false;
        }
        numbers[i] = json_number_value(json_array_get(four, i));
    }
    *out = (timing){{numbers[0], numbers[1]}, {numbers[2], numbers[3]}};
    return true;
}

static ssm_status find_timing(const ssm_recipe *recipe, const char *directory,
                              const ssm_experiment_options *options, json_t *known, timing *out,
                              ssm_error *err)
{
    char *key = size_key(recipe);
    ssm_status status = key == NULL ? ssm__fail_memory(err, "a recipe", 0) : SSM_STATUS_OK;
    if (status == SSM_STATUS_OK && !read_timing(known, key, out)) {
        status = time_recipe(recipe, directory, options, out, err);
        if (status == SSM_STATUS_OK &&
            json_object_set_new(known, key,
                                json_pack("[f, f, f, f]", out->step.seconds, out->step.cpu_seconds,
                                          out->rest.seconds, out->rest.cpu_seconds)) != 0) {
            status = ssm__fail_memory(err, "timings", 0);
        }
    }
    free(key);
    return status;
}

/* A file of another number of threads, or one that cannot be read, says nothing. */
static ssm_status read_known(const char *directory, int64_t threads, json_t **out, ssm_error *err)
{
    char *path = ssm__path_join(directory, "timing.json");
    json_t *known = NULL;
    ssm_error own;
    ssm_error_clear(&own);
    ssm_status status =
        path == NULL ? ssm__fail_memory(&own, "a path", strlen(directory)) : SSM_STATUS_OK;
    if (status == SSM_STATUS_OK && ssm__is_file(path)) {
        status = ssm__json_read(path, 1 << 24, SSM__JSON_STRICT, &known, &own);
    }
    free(path);
    if (status == SSM_STATUS_MEMORY) {
        return ssm__fail(err, status, SSM__NOWHERE, "%s", own.message);
    }
    if (json_integer_value(json_object_get(known, "threads")) != threads) {
        json_decref(known);
        known = json_pack("{s:I}", "threads", (json_int_t)threads);
    }
    *out = known;
    return known == NULL ? ssm__fail_memory(err, "timings", 0) : SSM_STATUS_OK;
}

static void scale(const ssm_recipe *recipe, const timing *t, ssm__duration *out)
{
    const int64_t steps = recipe->schedule.steps, every = recipe->evaluate.every;
    const double evaluations =
        (double)(every == 0 ? 1 : steps / every + (steps % every == 0 ? 0 : 1));
    out->seconds = (double)steps * t->step.seconds + evaluations * t->rest.seconds;
    out->cpu_seconds = (double)steps * t->step.cpu_seconds + evaluations * t->rest.cpu_seconds;
}

ssm_status ssm__durations(const ssm_experiment *e, const ssm__experiment_run *runs, int64_t count,
                          const char *directory, const ssm_experiment_options *options,
                          ssm__duration *durations, ssm_error *err)
{
    const int64_t threads = options->pool == NULL ? 1 : ssm_pool_threads(options->pool);
    json_t *known = NULL;
    ssm_status status = read_known(directory, threads, &known, err);
    for (int64_t i = 0; i < count && status == SSM_STATUS_OK; i++) {
        ssm_recipe *recipe = NULL;
        timing t = {0};
        status = ssm__run_recipe(e, &runs[i], runs[i].tuned, &recipe, err);
        status = status == SSM_STATUS_OK ? find_timing(recipe, directory, options, known, &t, err)
                                         : status;
        if (status == SSM_STATUS_OK) {
            scale(recipe, &t, &durations[i]);
        }
        ssm_recipe_free(recipe);
    }
    if (status == SSM_STATUS_OK) {
        return ssm__json_write(known, JSON_INDENT(1) | JSON_REAL_PRECISION(4), directory,
                               "timing.json", err);
    }
    json_decref(known);
    return status;
}
