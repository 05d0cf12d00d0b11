/* train/experiment_results.c: what an experiment came to: JSON, CSV, and tables of Markdown.
 *
 * Nothing of it depends on the clock or on how often the experiment was stopped. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "train/experiment_tables.h"

/* ---- measures -------------------------------------------------------------------------------- */

static bool is_accuracy(const char *measure)
{
    return strcmp(measure, "strings") == 0 || strcmp(measure, "characters") == 0 ||
           strcmp(measure, "probe") == 0;
}

double ssm__measured(const ssm__experiment_run *run, const char *measure, const char *size)
{
    if (run->failure != NULL) {
        return is_accuracy(measure) ? 0 : (double)NAN;
    }
    const bool perplexity = strcmp(measure, "perplexity") == 0;
    const json_t *value =
        json_object_get(json_object_get(run->evaluation, size), perplexity ? "loss" : measure);
    if (!json_is_number(value)) {
        return (double)NAN;
    }
    return perplexity ? exp(json_number_value(value)) : json_number_value(value);
}

/* Values of one arm in one cell, minus those of another arm with the same seed where there is one;
 * values [n_seeds]. Only runs that have both. */
static int64_t collect(const ssm__tables *t, const ssm__cell *cell, double *values)
{
    const ssm_experiment *e = t->experiment;
    int64_t n = 0;
    for (int64_t s = 0; s < e->n_seeds; s++) {
        const ssm__experiment_run *run = ssm__table_run(t, cell->arm, cell->cell, s);
        double value = run->done ? ssm__measured(run, cell->measure, cell->size) : (double)NAN;
        if (cell->against >= 0) {
            const ssm__experiment_run *other = ssm__table_run(t, cell->against, cell->cell, s);
            value -= other->done ? ssm__measured(other, cell->measure, cell->size) : (double)NAN;
        }
        if (!isnan(value)) {
            values[n++] = value;
        }
    }
    return n;
}

ssm_status ssm__table_band(const ssm__tables *t, const ssm__cell *cell, ssm__band *out,
                           ssm_error *err)
{
    const ssm_experiment *e = t->experiment;
    const int64_t n = collect(t, cell, t->values);
    if (e->band == SSM__BAND_BOOTSTRAP) {
        return ssm__band_bootstrap(t->values, n, e->level, e->resamples, out, err);
    }
    *out = ssm__band_range(t->values, n);
    return SSM_STATUS_OK;
}

const ssm__experiment_run *ssm__table_run(const ssm__tables *t, int64_t arm, int64_t cell,
                                          int64_t s)
{
    const ssm_experiment *e = t->experiment;
    return &t->runs[(s * e->n_arms + arm) * e->n_cells + cell];
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Every size that a run has, in the order in which they come. */
static ssm_status list_sizes(ssm__tables *t, ssm_error *err)
{
    for (int64_t i = 0; i < t->n_runs; i++) {
        const char *size;
        json_t *value;
        json_object_foreach(t->runs[i].evaluation, size, value)
        {
            int64_t k = 0;
            while (k < t->n_sizes && strcmp(t->sizes[k], size) != 0) {
                k++;
            }
            if (k < t->n_sizes) {
                continue;
            }
            const char **more = realloc(t->sizes, (size_t)(k + 1) * sizeof *more);
            if (more == NULL) {
                return ssm__fail_memory(err, "a list of sizes", (size_t)k * sizeof *more);
            }
            t->sizes = more;
            t->sizes[t->n_sizes++] = size;
        }
    }
    return SSM_STATUS_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* A new member, borrowed; a failed allocation is remembered and gives NULL, on which no further
 * members are put. */
static json_t *put(ssm__tables *t, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0) { /* has let go of the value */
        t->failed = true;
        return NULL;
    }
    return value;
}

static void put_number(ssm__tables *t, json_t *object, const char *key, double value)
{
    put(t, object, key, isfinite(value) ? json_real(value) : json_null());
}

static json_t *push(ssm__tables *t, json_t *array)
{
    json_t *object = json_object();
    if (json_array_append_new(array, object) != 0) {
        t->failed = true;
        return NULL;
    }
    return object;
}

static void put_settings(ssm__tables *t, json_t *object, int64_t arm, int64_t cell)
{
    const ssm_experiment *e = t->experiment;
    put(t, object, "arm", json_string(e->arm_names[arm]));
    json_t *settings = put(t, object, "settings", json_object());
    for (int64_t k = 0; k < e->n_keys; k++) {
        put(t, settings, e->keys[k], json_deep_copy(ssm__cell_value(e, cell, k)));
    }
}

static void put_run(ssm__tables *t, json_t *array, const ssm__experiment_run *run, int64_t tuned)
{
    const ssm_experiment *e = t->experiment;
    json_t *object = push(t, array);
    put(t, object, "name", json_string(run->name));
    put_settings(t, object, run->arm, run->cell);
    if (tuned >= 0) {
        put(t, object, e->tune.key, json_deep_copy(json_array_get(e->tune.values, (size_t)tuned)));
    }
    put(t, object, "seed", json_integer(run->seed));
    if (run->failure != NULL) {
        put(t, object, "failure", json_string(run->failure));
        return;
    }
    put(t, object, "parameters", json_integer(run->parameters));
    put(t, object, "steps", json_integer(run->steps));
    put(t, object, "tokens", json_integer(run->tokens));
    put_number(t, object, "loss", run->loss);
    put(t, object, "evaluation",
        run->evaluation == NULL ? json_null() : json_deep_copy(run->evaluation));
}

/* The runs that are done: those that tune, or the others. */
static void put_runs(ssm__tables *t, json_t *array, bool tunes)
{
    const ssm__experiment_run *first = tunes ? t->all : t->runs;
    const int64_t count = tunes ? t->n_all - t->n_runs : t->n_runs;
    for (int64_t i = 0; i < count; i++) {
        const ssm__experiment_run *run = &first[i];
        if (run->done) {
            put_run(t, array, run,
                    tunes ? run->tuned
                          : ssm__tuned(t->experiment, t->all, t->n_all, run->arm, run->cell));
        }
    }
}

static void put_band(ssm__tables *t, json_t *array, const ssm__cell *cell, const ssm__band *band)
{
    json_t *object = push(t, array);
    put_settings(t, object, cell->arm, cell->cell);
    if (cell->against >= 0) {
        put(t, object, "against", json_string(t->experiment->arm_names[cell->against]));
    }
    put(t, object, "measure", json_string(cell->measure));
    put(t, object, "size", json_string(cell->size));
    put(t, object, "n", json_integer(band->n));
    put_number(t, object, "mean", band->mean);
    put_number(t, object, "low", band->low);
    put_number(t, object, "high", band->high);
}

/* Every arm, cell, measure and size that a run has. */
static ssm_status put_bands(ssm__tables *t, json_t *array, int64_t against, ssm_error *err)
{
    const ssm_experiment *e = t->experiment;
    const int64_t measures = (int64_t)json_array_size(e->measures);
    for (int64_t i = 0; i < e->n_arms * e->n_cells * measures * t->n_sizes; i++) {
        const int64_t row = i / t->n_sizes / measures;
        const int64_t measure = i / t->n_sizes % measures;
        const ssm__cell cell = {.arm = row / e->n_cells,
                                .cell = row % e->n_cells,
                                .against = against,
                                .measure =
                                    json_string_value(json_array_get(e->measures, (size_t)measure)),
                                .size = t->sizes[i % t->n_sizes]};
        ssm__band band;
        SSM__TRY(ssm__table_band(t, &cell, &band, err));
        if (band.n > 0 && cell.arm != against) {
            put_band(t, array, &cell, &band);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status make_json(ssm__tables *t, json_t **out, ssm_error *err)
{
    const ssm_experiment *e = t->experiment;
    json_t *root = *out = json_object();
    put(t, root, "schema", json_string("ssmscope.experiment/1"));
    put(t, root, "program_version", json_string(ssm_version()));
    put(t, root, "experiment", json_deep_copy(e->json));
    put(t, root, "expected_runs", json_integer(t->n_all));
    put(t, root, "done", json_integer(t->done));
    put(t, root, "failed", json_integer(t->n_failed));
    json_t *tuning = put(t, root, "tuning", json_array());
    json_t *runs = put(t, root, "runs", json_array());
    json_t *bands = put(t, root, "summary", json_array());
    json_t *differences = put(t, root, "differences", json_array());
    if (t->failed) {
        return ssm__fail_memory(err, "results", 0);
    }
    put_runs(t, tuning, true);
    put_runs(t, runs, false);
    SSM__TRY(put_bands(t, bands, -1, err));
    if (t->against >= 0) {
        SSM__TRY(put_bands(t, differences, t->against, err));
    }
    return t->failed ? ssm__fail_memory(err, "results", 0) : SSM_STATUS_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

static ssm_status write_text(const char *directory, const char *name, const char *text,
                             ssm_error *err)
{
    char *path = ssm__path_join(directory, name);
    const ssm_status status = path == NULL ? ssm__fail_memory(err, "a path", strlen(name))
                                           : ssm__write_file(path, text, strlen(text), err);
    free(path);
    return status;
}

static ssm_status write_json(ssm__tables *t, const char *directory, char **text, ssm_error *err)
{
    json_t *root = NULL;
    ssm_status status = make_json(t, &root, err);
    char *own = NULL;
    if (status == SSM_STATUS_OK) {
        own = ssm__json_print(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
        status = own == NULL ? ssm__fail_memory(err, "results", 0)
                             : write_text(directory, "results.json", own, err);
    }
    json_decref(root);
    if (status == SSM_STATUS_OK && text != NULL) {
        *text = own;
        return status;
    }
    free(own);
    return status;
}

static ssm_status write_tables(ssm__tables *t, const char *directory, char **table, ssm_error *err)
{
    char *csv = NULL, *markdown = NULL;
    ssm_status status = ssm__table_csv(t, &csv, err);
    status = status == SSM_STATUS_OK ? write_text(directory, "results.csv", csv, err) : status;
    status = status == SSM_STATUS_OK ? ssm__table_markdown(t, &markdown, err) : status;
    status = status == SSM_STATUS_OK ? write_text(directory, "results.md", markdown, err) : status;
    free(csv);
    if (status == SSM_STATUS_OK && table != NULL) {
        *table = markdown;
        return status;
    }
    free(markdown);
    return status;
}

ssm_status ssm__results_write(const ssm_experiment *e, const ssm__experiment_run *runs,
                              int64_t count, const char *directory, char **text, char **table,
                              ssm_error *err)
{
    const int64_t n_runs = e->n_arms * e->n_cells * e->n_seeds;
    ssm__tables t = {.experiment = e,
                     .all = runs,
                     .n_all = count,
                     .runs = runs + (count - n_runs),
                     .n_runs = n_runs,
                     .against = -1,
                     .values = calloc((size_t)e->n_seeds, sizeof(double))};
    for (int64_t i = 0; i < e->n_arms; i++) {
        if (e->against != NULL && strcmp(e->arm_names[i], e->against) == 0) {
            t.against = i;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        t.done += runs[i].done;
        t.n_failed += runs[i].failure != NULL;
    }
    ssm_status status = t.values == NULL ? ssm__fail_memory(err, "results", 0) : SSM_STATUS_OK;
    status = status == SSM_STATUS_OK ? list_sizes(&t, err) : status;
    status = status == SSM_STATUS_OK ? write_json(&t, directory, text, err) : status;
    status = status == SSM_STATUS_OK ? write_tables(&t, directory, table, err) : status;
    if (status != SSM_STATUS_OK && text != NULL) {
        free(*text);
        *text = NULL;
    }
    free(t.sizes);
    free(t.values);
    return status;
}
