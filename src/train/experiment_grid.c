/* train/experiment_grid.c: the runs of an experiment and their recipes. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "train/experiment.h"

enum { NAME_MOST = 200 };

const json_t *ssm__cell_value(const ssm_experiment *e, int64_t cell, int64_t k)
{
    for (int64_t i = e->n_keys - 1; i > k; i--) {
        cell /= (int64_t)json_array_size(json_object_get(e->grid, e->keys[i]));
    }
    const json_t *values = json_object_get(e->grid, e->keys[k]);
    return json_array_get(values, (size_t)cell % json_array_size(values));
}

char *ssm__value_text(const json_t *value)
{
    return json_is_string(value)
               ? strdup(json_string_value(value))
               : ssm__json_print(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
}

/* ---- names ----------------------------------------------------------------------------------- */

/* What a directory's name cannot hold, or would have to be quoted, becomes '-'. */
static void make_plain(char *text)
{
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || strchr(".+-_=,", c) != NULL || c >= 0x80;
        *text = plain ? *text : '-';
    }
}

static ssm_status add_setting(char *name, const char *key, const json_t *value, ssm_error *err)
{
    char *text = ssm__value_text(value);
    const size_t used = strlen(name);
    if (text == NULL) {
        return ssm__fail_memory(err, "a value", 0);
    }
    const int more = snprintf(name + used, NAME_MOST - used, ",%s=%s", key, text);
    free(text);
    if (more < 0 || (size_t)more >= NAME_MOST - used) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "grid: the name of a run is longer than %d bytes: %s…", NAME_MOST - 1,
                         name);
    }
    make_plain(name + used);
    return SSM_STATUS_OK;
}

static ssm_status name_run(const ssm_experiment *e, ssm__experiment_run *run, ssm_error *err)
{
    char name[NAME_MOST];
    json_t *seed = json_integer(run->seed);
    snprintf(name, sizeof name, "%s%s", run->tuned >= 0 ? "tune," : "", e->arm_names[run->arm]);
    ssm_status status = seed == NULL ? ssm__fail_memory(err, "a seed", 0) : SSM_STATUS_OK;
    for (int64_t k = 0; k < e->n_keys && status == SSM_STATUS_OK; k++) {
        status = add_setting(name, e->keys[k], ssm__cell_value(e, run->cell, k), err);
    }
    if (run->tuned >= 0 && status == SSM_STATUS_OK) {
        status =
            add_setting(name, e->tune.key, json_array_get(e->tune.values, (size_t)run->tuned), err);
    }
    status = status == SSM_STATUS_OK ? add_setting(name, "seed", seed, err) : status;
    json_decref(seed);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    run->name = strdup(name);
    return run->name == NULL ? ssm__fail_memory(err, "a name", strlen(name)) : SSM_STATUS_OK;
}

/* Two runs must not share a directory: values that differ only in what names cannot hold. */
static ssm_status check_names(const ssm__experiment_run *runs, int64_t count, ssm_error *err)
{
    const char **sorted = calloc((size_t)count + 1, sizeof *sorted);
    if (sorted == NULL) {
        return ssm__fail_memory(err, "names of runs", (size_t)count * sizeof *sorted);
    }
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; i < count && status == SSM_STATUS_OK; i++) {
        int64_t at = i;
        while (at > 0 && strcmp(sorted[at - 1], runs[i].name) > 0) {
            sorted[at] = sorted[at - 1];
            at--;
        }
        sorted[at] = runs[i].name;
        if (at > 0 && strcmp(sorted[at - 1], runs[i].name) == 0) {
            status = ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                               "two runs are both called %s; expected values with other letters or "
                               "digits",
                               runs[i].name);
        }
    }
    free(sorted);
    return status;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Those of one seed. */
static ssm_status add_runs(const ssm_experiment *e, int64_t seed, bool tunes,
                           ssm__experiment_run *runs, int64_t *count, ssm_error *err)
{
    const int64_t values = tunes ? (int64_t)json_array_size(e->tune.values) : 1;
    for (int64_t arm = 0; arm < e->n_arms; arm++) {
        for (int64_t cell = 0; cell < e->n_cells; cell++) {
            for (int64_t value = 0; value < values; value++) {
                ssm__experiment_run *run = &runs[(*count)++];
                run->arm = arm;
                run->cell = cell;
                run->tuned = tunes ? value : -1;
                run->seed = seed;
                run->loss = (double)NAN;
                SSM__TRY(name_run(e, run, err));
            }
        }
    }
    return SSM_STATUS_OK;
}

static const json_t *tune_seeds(const ssm_experiment *e)
{
    return e->tune.key == NULL ? NULL : json_object_get(json_object_get(e->json, "tune"), "seeds");
}

static ssm_status fill_runs(const ssm_experiment *e, ssm__experiment_run *runs, int64_t *count,
                            ssm_error *err)
{
    const json_t *seeds[] = {tune_seeds(e), e->seeds};
    for (int phase = 0; phase < 2; phase++) {
        for (size_t i = 0; i < json_array_size(seeds[phase]); i++) {
            const int64_t seed = json_integer_value(json_array_get(seeds[phase], i));
            SSM__TRY(add_runs(e, seed, phase == 0, runs, count, err));
        }
    }
    return check_names(runs, *count, err);
}

ssm_status ssm__runs_create(const ssm_experiment *e, ssm__experiment_run **out, int64_t *count,
                            ssm_error *err)
{
    const size_t tuning = json_array_size(tune_seeds(e)) * json_array_size(e->tune.values);
    const size_t most = (size_t)e->n_arms * (size_t)e->n_cells * ((size_t)e->n_seeds + tuning);
    *count = 0;
    *out = calloc(most + 1, sizeof **out);
    if (*out == NULL) {
        return ssm__fail_memory(err, "a list of runs", most * sizeof **out);
    }
    const ssm_status status = fill_runs(e, *out, count, err);
    if (status != SSM_STATUS_OK) {
        ssm__runs_free(*out, *count);
        *out = NULL;
        *count = 0;
    }
    return status;
}

void ssm__runs_free(ssm__experiment_run *runs, int64_t count)
{
    for (int64_t i = 0; runs != NULL && i < count; i++) {
        free(runs[i].name);
        json_decref(runs[i].evaluation);
        free(runs[i].failure);
    }
    free(runs);
}

/* ---- recipes --------------------------------------------------------------------------------- */

static ssm_status set(ssm_recipe *recipe, const char *key, const json_t *value, ssm_error *err)
{
    char *text = ssm__json_print(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (text == NULL) {
        return ssm__fail_memory(err, "a value", 0);
    }
    const ssm_status status = ssm_recipe_set(recipe, key, text, err);
    free(text);
    return status;
}

static ssm_status set_all(const ssm_experiment *e, const ssm__experiment_run *run, int64_t tuned,
                          ssm_recipe *recipe, ssm_error *err)
{
    const char *key;
    json_t *value;
    json_t *seed = json_integer(run->seed);
    ssm_status status = seed == NULL ? ssm__fail_memory(err, "a seed", 0) : SSM_STATUS_OK;
    for (int64_t k = 0; k < e->n_keys && status == SSM_STATUS_OK; k++) {
        status = set(recipe, e->keys[k], ssm__cell_value(e, run->cell, k), err);
    }
    json_object_foreach(json_object_get(e->arms, e->arm_names[run->arm]), key, value)
    {
        status = status == SSM_STATUS_OK ? set(recipe, key, value, err) : status;
    }
    if (tuned >= 0 && status == SSM_STATUS_OK) {
        status = set(recipe, e->tune.key, json_array_get(e->tune.values, (size_t)tuned), err);
    }
    status = status == SSM_STATUS_OK ? set(recipe, "seed", seed, err) : status;
    json_decref(seed);
    return status;
}

ssm_status ssm__run_recipe(const ssm_experiment *e, const ssm__experiment_run *run, int64_t tuned,
                           ssm_recipe **out, ssm_error *err)
{
    SSM__TRY(ssm_recipe_copy(e->base, out, err));
    const ssm_status status = set_all(e, run, tuned, *out, err);
    if (status != SSM_STATUS_OK) {
        ssm_recipe_free(*out);
        *out = NULL;
    }
    return status;
}

/* ---- tuning ---------------------------------------------------------------------------------- */

static bool lower_is_better(const char *measure)
{
    return strcmp(measure, "loss") == 0 || strcmp(measure, "perplexity") == 0;
}

/* Mean over the seeds of one value, so that more is better; NaN: a run is missing or failed. */
static double score_of(const ssm_experiment *e, const ssm__experiment_run *runs, int64_t count,
                       int64_t arm, int64_t cell, int64_t value, bool *all_done)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++) {
        const ssm__experiment_run *run = &runs[i];
        if (run->tuned == value && run->arm == arm && run->cell == cell) {
            *all_done = *all_done && run->done;
            sum += ssm__measured(run, e->tune.measure, e->tune.size);
            n++;
        }
    }
    return (lower_is_better(e->tune.measure) ? -sum : sum) / (double)n;
}

int64_t ssm__tuned(const ssm_experiment *e, const ssm__experiment_run *runs, int64_t count,
                   int64_t arm, int64_t cell)
{
    int64_t best = -1;
    double best_score = (double)NAN;
    bool all_done = true;
    for (int64_t v = 0; e->tune.key != NULL && v < (int64_t)json_array_size(e->tune.values); v++) {
        const double score = score_of(e, runs, count, arm, cell, v, &all_done);
        if (best < 0 || score > best_score || (isnan(best_score) && !isnan(score))) {
            best = v;
            best_score = score;
        }
    }
    return all_done ? best : -1;
}
