/* train/experiment_read.c: the file of an experiment. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "train/experiment.h"
#include "train/task.h"

enum { EXPERIMENT_BYTES = 1 << 22, MOST_RUNS = 10000, MOST_CELLS = 1000 };

static const char *const top_keys[] = {"name",     "about", "recipe", "arms",    "grid", "seeds",
                                       "measures", "tune",  "probe",  "summary", NULL};
static const char *const tune_keys[] = {"key", "values", "seeds", "measure", "size", NULL};
static const char *const summary_keys[] = {"band", "level", "resamples", "against", NULL};
static const char *const band_names[] = {"bootstrap", "range", NULL};
static const char *const measure_names[] = {"loss",
                                            "perplexity",
                                            "strings",
                                            "characters",
                                            "probe",
                                            "probe_shuffled",
                                            "churn_within",
                                            "churn_cross",
                                            "churn_margin",
                                            "churn_margin_shuffled",
                                            NULL};
static const char *const probe_keys[] = {"rows", "window", "budget", NULL};

/* ---- kinds of values ------------------------------------------------------------------------- */

static ssm_status expected(const char *what, const char *is, ssm_error *err)
{
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "%s: expected %s", what, is);
}

/* Letters, digits and ".+-_=": what may stand in the name of a directory and in a table. */
static bool is_name(const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+-_";
    return text != NULL && text[0] != '\0' && text[0] != '.' && strlen(text) <= 60 &&
           strspn(text, letters) == strlen(text);
}

/* The text of a list of names, one of which is asked for. */
static ssm_status check_word(const char *what, const char *word, const char *const *allowed,
                             ssm_error *err)
{
    for (int i = 0; allowed[i] != NULL; i++) {
        if (word != NULL && strcmp(word, allowed[i]) == 0) {
            return SSM_STATUS_OK;
        }
    }
    char all[200];
    ssm__list_names(allowed, all, sizeof all);
    const char *nearest = word == NULL ? NULL : ssm_nearest(word, allowed);
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "%s: no \"%.60s\"%s%s%s; expected %s",
                     what, word == NULL ? "" : word, nearest == NULL ? "" : ", did you mean \"",
                     nearest == NULL ? "" : nearest, nearest == NULL ? "" : "\"?", all);
}

/* A list that has at least one value, none of them twice. */
static ssm_status check_list(const char *what, const json_t *list, const char *of, ssm_error *err)
{
    const size_t count = json_array_size(list);
    if (!json_is_array(list) || count == 0) {
        return expected(what, of, err);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < i; k++) {
            if (json_equal(json_array_get(list, i), json_array_get(list, k))) {
                return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                                 "%s: value number %zu stands there twice", what, i + 1);
            }
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status check_seeds(const char *what, const json_t *seeds, ssm_error *err)
{
    static const char words[] = "a list of whole numbers of 0 or more, such as [1, 2, 3]";
    if (json_array_size(seeds) > MOST_RUNS) {
        return expected(what, "at most 10000 of them", err);
    }
    SSM__TRY(check_list(what, seeds, words, err));
    for (size_t i = 0; i < json_array_size(seeds); i++) {
        const json_t *seed = json_array_get(seeds, i);
        if (!json_is_integer(seed) || json_integer_value(seed) < 0) {
            return expected(what, words, err);
        }
    }
    return SSM_STATUS_OK;
}

/* ---- sections -------------------------------------------------------------------------------- */

static ssm_status read_name(ssm_experiment *e, const json_t *given, ssm_error *err)
{
    const json_t *about = json_object_get(given, "about");
    e->name = json_string_value(json_object_get(given, "name"));
    if (!is_name(e->name)) {
        return expected("name", "a name of letters, digits and .+-_, such as \"copy\"", err);
    }
    if (about != NULL && !json_is_string(about)) {
        return expected("about", "a text", err);
    }
    e->about = about == NULL ? "" : json_string_value(about);
    return SSM_STATUS_OK;
}

static ssm_status read_arms(ssm_experiment *e, const json_t *given, ssm_error *err)
{
    const char *name;
    json_t *settings;
    e->arms = json_object_get(given, "arms");
    if (!json_is_object(e->arms) || json_object_size(e->arms) == 0) {
        return expected("arms", "{\"NAME\": {\"KEY\": VALUE, …}, …}", err);
    }
    e->n_arms = (int64_t)json_object_size(e->arms);
    e->arm_names = calloc((size_t)e->n_arms, sizeof *e->arm_names);
    if (e->arm_names == NULL) {
        return ssm__fail_memory(err, "names of arms", (size_t)e->n_arms * sizeof *e->arm_names);
    }
    int64_t i = 0;
    json_object_foreach((json_t *)(uintptr_t)e->arms, name, settings)
    {
        if (!is_name(name)) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "arms: \"%.60s\" is no name; expected letters, digits and .+-_", name);
        }
        if (!json_is_object(settings)) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "arms: %s is not an object; expected {\"KEY\": VALUE, …}, or {}",
                             name);
        }
        e->arm_names[i++] = name;
    }
    return SSM_STATUS_OK;
}

static ssm_status read_grid(ssm_experiment *e, const json_t *given, ssm_error *err)
{
    const char *key;
    json_t *values;
    e->grid = json_object_get(given, "grid");
    e->n_cells = 1;
    if (!json_is_object(e->grid)) {
        return expected("grid", "{\"KEY\": [VALUE, …], …}", err);
    }
    e->n_keys = (int64_t)json_object_size(e->grid);
    e->keys = calloc((size_t)e->n_keys + 1, sizeof *e->keys);
    if (e->keys == NULL) {
        return ssm__fail_memory(err, "keys of a grid", (size_t)e->n_keys * sizeof *e->keys);
    }
    int64_t i = 0;
    json_object_foreach((json_t *)(uintptr_t)e->grid, key, values)
    {
        char what[128];
        snprintf(what, sizeof what, "grid: %.100s", key);
        SSM__TRY(check_list(what, values, "a list of values", err));
        e->n_cells *= (int64_t)json_array_size(values);
        if (e->n_cells > MOST_CELLS) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "grid: more than %d combinations",
                             MOST_CELLS);
        }
        e->keys[i++] = key;
    }
    return SSM_STATUS_OK;
}

/* A key that two places set would have the value of one of them. */
static ssm_status check_twice(const ssm_experiment *e, const char *key, const char *where,
                              ssm_error *err)
{
    if (strcmp(key, "seed") == 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "%s: seed is not a setting; expected it in \"seeds\"", where);
    }
    if (json_object_get(e->grid, key) != NULL) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "%s: %.100s is also a key of the grid; expected it in one place", where,
                         key);
    }
    return SSM_STATUS_OK;
}

static ssm_status check_arms(const ssm_experiment *e, ssm_error *err)
{
    for (int64_t i = 0; i < e->n_arms; i++) {
        const char *key;
        json_t *value;
        json_object_foreach(json_object_get(e->arms, e->arm_names[i]), key, value)
        {
            char where[80];
            snprintf(where, sizeof where, "arms: %s", e->arm_names[i]);
            SSM__TRY(check_twice(e, key, where, err));
        }
    }
    return json_object_get(e->grid, "seed") == NULL
               ? SSM_STATUS_OK
               : expected("grid", "settings other than seed, which stands in \"seeds\"", err);
}

/* Of a probe and not of an evaluation. */
static bool is_probed(const char *measure)
{
    return strncmp(measure, "probe", 5) == 0 || strncmp(measure, "churn", 5) == 0;
}

static ssm_status read_measures(ssm_experiment *e, const json_t *given, ssm_error *err)
{
    static const char words[] = "a list, such as [\"strings\", \"characters\"]";
    e->measures = json_object_get(given, "measures");
    SSM__TRY(check_list("measures", e->measures, words, err));
    for (size_t i = 0; i < json_array_size(e->measures); i++) {
        SSM__TRY(check_word("measures", json_string_value(json_array_get(e->measures, i)),
                            measure_names, err));
    }
    return SSM_STATUS_OK;
}

static ssm_status read_tune(ssm_experiment *e, const json_t *given, ssm_error *err)
{
    const json_t *tune = json_object_get(given, "tune");
    if (json_is_null(tune)) {
        return SSM_STATUS_OK;
    }
    if (!json_is_object(tune)) {
        return expected(
            "tune", "{\"key\": …, \"values\": […], \"seeds\": […], \"measure\": …, \"size\": …}",
            err);
    }
    SSM__TRY(ssm__check_keys(tune, "tune", tune_keys, err));
    const json_t *seeds = json_object_get(tune, "seeds");
    e->tune = (ssm__tune){.key = json_string_value(json_object_get(tune, "key")),
                          .values = json_object_get(tune, "values"),
                          .measure = json_string_value(json_object_get(tune, "measure")),
                          .size = json_string_value(json_object_get(tune, "size"))};
    if (e->tune.key == NULL) {
        return expected("tune: key", "a key of the recipe, such as \"optimiser.lr\"", err);
    }
    SSM__TRY(check_twice(e, e->tune.key, "tune: key", err));
    for (int64_t i = 0; i < e->n_arms; i++) {
        if (json_object_get(json_object_get(e->arms, e->arm_names[i]), e->tune.key) != NULL) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "tune: key: %.100s is also set by the arm %s; expected it in one "
                             "place",
                             e->tune.key, e->arm_names[i]);
        }
    }
    if (json_array_size(e->tune.values) > MOST_CELLS) {
        return expected("tune: values", "at most 1000 of them", err);
    }
    SSM__TRY(check_list("tune: values", e->tune.values, "a list of values", err));
    SSM__TRY(check_seeds("tune: seeds", seeds, err));
    SSM__TRY(check_word("tune: measure", e->tune.measure, measure_names, err));
    if (is_probed(e->tune.measure)) {
        return expected("tune: measure", "loss, perplexity, strings or characters", err);
    }
    if (e->tune.size == NULL) {
        return expected("tune: size", "the size of an evaluation as a text, such as \"20\"", err);
    }
    for (size_t i = 0; i < json_array_size(seeds); i++) { /* else what was chosen by is measured */
        for (size_t k = 0; k < json_array_size(e->seeds); k++) {
            if (json_equal(json_array_get(seeds, i), json_array_get(e->seeds, k))) {
                return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                                 "tune: seed %" JSON_INTEGER_FORMAT
                                 " is also one of the experiment; expected others",
                                 json_integer_value(json_array_get(seeds, i)));
            }
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status read_count(const json_t *object, const char *key, int64_t most, int64_t *out,
                             ssm_error *err)
{
    const json_t *value = json_object_get(object, key);
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= 1 && *out <= most
               ? SSM_STATUS_OK
               : ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                           "probe: %s: expected a whole number in 1 … %" PRId64, key, most);
}

static ssm_status read_probe(ssm_experiment *e, const json_t *given, ssm_error *err)
{
    const json_t *probe = json_object_get(given, "probe");
    for (size_t i = 0; json_is_null(probe) && i < json_array_size(e->measures); i++) {
        const char *measure = json_string_value(json_array_get(e->measures, i));
        if (is_probed(measure)) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "measures: %s needs a probe; expected \"probe\": {\"rows\": …, "
                             "\"window\": …, \"budget\": …}",
                             measure);
        }
    }
    if (json_is_null(probe)) {
        return SSM_STATUS_OK;
    }
    if (!json_is_object(probe)) {
        return expected("probe", "{\"rows\": …, \"window\": …, \"budget\": …}", err);
    }
    SSM__TRY(ssm__check_keys(probe, "probe", probe_keys, err));
    SSM__TRY(read_count(probe, "rows", 1 << 20, &e->probe.rows, err));
    SSM__TRY(read_count(probe, "window", 1 << 20, &e->probe.window, err));
    return read_count(probe, "budget", 4096, &e->probe.budget, err);
}

static ssm_status read_summary(ssm_experiment *e, const json_t *given, ssm_error *err)
{
    const json_t *summary = json_object_get(given, "summary");
    const json_t *level = json_object_get(summary, "level");
    const json_t *resamples = json_object_get(summary, "resamples");
    const json_t *against = json_object_get(summary, "against");
    const char *band = json_string_value(json_object_get(summary, "band"));
    SSM__TRY(check_word("summary: band", band, band_names, err));
    e->band = strcmp(band, "range") == 0 ? SSM__BAND_RANGE : SSM__BAND_BOOTSTRAP;
    e->level = json_number_value(level);
    if (!json_is_number(level) || !(e->level > 0 && e->level < 1)) {
        return expected("summary: level", "a number between 0 and 1, such as 0.95", err);
    }
    e->resamples = json_integer_value(resamples);
    if (!json_is_integer(resamples) || e->resamples < 100 || e->resamples > 1000000) {
        return expected("summary: resamples", "a whole number in 100 … 1000000", err);
    }
    e->against = json_string_value(against);
    if (!json_is_null(against) &&
        (e->against == NULL || json_object_get(e->arms, e->against) == NULL)) {
        const char **names = calloc((size_t)e->n_arms + 1, sizeof *names);
        if (names == NULL) {
            return ssm__fail_memory(err, "names of arms", (size_t)e->n_arms * sizeof *names);
        }
        memcpy(names, e->arm_names, (size_t)e->n_arms * sizeof *names);
        const ssm_status status = check_word("summary: against", e->against, names, err);
        free(names);
        return status;
    }
    return SSM_STATUS_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Fallbacks of what was not given, in the order of the documentation. New reference. */
static json_t *with_defaults(const json_t *given)
{
    json_t *whole = json_pack("{s:n, s:s, s:n, s:n, s:{}, s:n, s:n, s:n, s:n}", "name", "about", "",
                              "recipe", "arms", "grid", "seeds", "measures", "tune", "probe");
    json_t *summary = json_pack("{s:s, s:f, s:i, s:n}", "band", "bootstrap", "level", 0.95,
                                "resamples", 10000, "against");
    json_t *own = json_object_get(given, "summary");
    json_t *copy = json_deep_copy(given);
    bool good = whole != NULL && summary != NULL && copy != NULL &&
                (own == NULL || json_object_update(summary, own) == 0) &&
                json_object_update(whole, copy) == 0 &&
                json_object_set(whole, "summary", summary) == 0;
    json_decref(summary);
    json_decref(copy);
    if (!good) {
        json_decref(whole);
        return NULL;
    }
    return whole;
}

static ssm_status read_recipe(ssm_experiment *e, ssm_error *err)
{
    json_t *given = json_object_get(e->json, "recipe");
    if (!json_is_object(given)) {
        return expected("recipe", "a recipe, as of `train`: {\"model\": …, \"task\": …}", err);
    }
    SSM__TRY(ssm__recipe_from_json(given, NULL, &e->base, err));
    json_t *whole = ssm__recipe_json(e->base, NULL);
    if (whole == NULL || json_object_set_new(e->json, "recipe", whole) != 0) {
        return ssm__fail_memory(err, "a recipe", 0);
    }
    return SSM_STATUS_OK;
}

static ssm_status read_all(ssm_experiment *e, const json_t *given, ssm_error *err)
{
    if (!json_is_object(given)) {
        return ssm__fail(
            err, SSM_STATUS_USAGE, SSM__NOWHERE,
            "an experiment is a JSON object, {\"name\": …, \"recipe\": …, \"arms\": …}");
    }
    SSM__TRY(ssm__check_keys(given, "an experiment", top_keys, err));
    const json_t *summary = json_object_get(given, "summary");
    if (summary != NULL && !json_is_object(summary)) {
        return expected("summary", "{\"band\": …, \"against\": …}", err);
    }
    SSM__TRY(ssm__check_keys(summary, "summary", summary_keys, err));
    e->json = with_defaults(given);
    if (e->json == NULL) {
        return ssm__fail_memory(err, "an experiment", 0);
    }
    SSM__TRY(read_name(e, e->json, err));
    SSM__TRY(read_recipe(e, err));
    SSM__TRY(read_arms(e, e->json, err));
    SSM__TRY(read_grid(e, e->json, err));
    SSM__TRY(check_arms(e, err));
    e->seeds = json_object_get(e->json, "seeds");
    e->n_seeds = (int64_t)json_array_size(e->seeds);
    SSM__TRY(check_seeds("seeds", e->seeds, err));
    SSM__TRY(read_measures(e, e->json, err));
    SSM__TRY(read_tune(e, e->json, err));
    SSM__TRY(read_probe(e, e->json, err));
    SSM__TRY(read_summary(e, e->json, err));
    const int64_t runs = e->n_arms * e->n_cells * e->n_seeds;
    if (e->n_arms > MOST_RUNS || e->n_seeds > MOST_RUNS || runs > MOST_RUNS) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "more than %d runs", MOST_RUNS);
    }
    return SSM_STATUS_OK;
}

static ssm_status check_measure(const ssm_recipe *recipe, const ssm_train_info *task,
                                const char *measure, const char *what, ssm_error *err)
{
    const bool accuracy = strcmp(measure, "strings") == 0 || strcmp(measure, "characters") == 0;
    if (is_probed(measure)) {
        return SSM_STATUS_OK;
    }
    if (recipe->evaluate.rows == 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "evaluate: rows is 0; expected 1 or more, because %s names %s", what,
                         measure);
    }
    if (accuracy && task->loss == SSM_TRAIN_VECTORS) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "%s: the task %s has no %s; expected loss", what, task->name, measure);
    }
    return SSM_STATUS_OK;
}

/* What is to be measured is measured: a table without numbers would come hours later. */
static ssm_status check_measured(const ssm_experiment *e, const ssm_recipe *recipe,
                                 const ssm_train_info *task, ssm_error *err)
{
    char size[32];
    bool evaluated = e->tune.key == NULL;
    for (size_t i = 0; i < json_array_size(e->measures); i++) {
        const char *measure = json_string_value(json_array_get(e->measures, i));
        SSM__TRY(check_measure(recipe, task, measure, "measures", err));
    }
    if (e->tune.key != NULL) {
        SSM__TRY(check_measure(recipe, task, e->tune.measure, "tune: measure", err));
    }
    for (int64_t i = 0; i < task->n_sizes && !evaluated; i++) {
        snprintf(size, sizeof size, "%" PRId64, task->sizes[i]);
        evaluated = strcmp(size, e->tune.size) == 0;
    }
    return evaluated ? SSM_STATUS_OK
                     : ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                                 "tune: size \"%.40s\" is none that the task is evaluated at; "
                                 "expected one of its evaluate",
                                 e->tune.size);
}

/* Makes task and network of a recipe, as the run will. */
static ssm_status check_recipe(const ssm_experiment *e, const ssm_recipe *recipe, ssm_error *err)
{
    ssm_train_task *task = NULL;
    ssm__network_config config;
    SSM__TRY(ssm__recipe_task(recipe, &task, err));
    ssm__mixer_kind *mixers = calloc((size_t)recipe->model.n_layers, sizeof *mixers);
    ssm_status status = mixers == NULL ? ssm__fail_memory(err, "a list of layers", 0)
                                       : ssm__recipe_network(recipe, ssm_train_task_info(task),
                                                             mixers, &config, err);
    status = status == SSM_STATUS_OK ? ssm__network_check(&config, err) : status;
    if (status == SSM_STATUS_OK) {
        status = check_measured(e, recipe, ssm_train_task_info(task), err);
    }
    ssm_train_task_free(task);
    free(mixers);
    return status;
}

/* One run of every arm and cell, and of every value that is tried. */
static ssm_status check_runs(const ssm_experiment *e, ssm_error *err)
{
    ssm__experiment_run *runs = NULL;
    int64_t count = 0;
    SSM__TRY(ssm__runs_create(e, &runs, &count, err));
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; i < count && status == SSM_STATUS_OK; i++) {
        if (i > 0 && runs[i].seed != runs[i - 1].seed && runs[i].tuned == runs[0].tuned) {
            continue;
        }
        ssm_recipe *recipe = NULL;
        ssm_error own;
        ssm_error_clear(&own);
        status = ssm__run_recipe(e, &runs[i], runs[i].tuned, &recipe, &own);
        status = status == SSM_STATUS_OK ? check_recipe(e, recipe, &own) : status;
        ssm_recipe_free(recipe);
        if (status != SSM_STATUS_OK) {
            ssm__fail(err, status, SSM__IN_FILE(own.file), "run %s: %s", runs[i].name, own.message);
        }
    }
    ssm__runs_free(runs, count);
    return status;
}

ssm_status ssm_experiment_read(const char *path, ssm_experiment **out, ssm_error *err)
{
    json_t *given = NULL;
    *out = NULL;
    SSM__TRY(ssm__json_read(path, EXPERIMENT_BYTES, SSM__JSON_STRICT, &given, err));
    ssm_experiment *e = calloc(1, sizeof *e);
    ssm_error own;
    ssm_error_clear(&own);
    ssm_status status =
        e == NULL ? ssm__fail_memory(&own, "an experiment", sizeof *e) : read_all(e, given, &own);
    json_decref(given);
    status = status == SSM_STATUS_OK ? check_runs(e, &own) : status;
    if (status != SSM_STATUS_OK) {
        ssm_experiment_free(e);
        status = status == SSM_STATUS_USAGE ? SSM_STATUS_FILE : status;
        return ssm__fail(err, status, SSM__IN_FILE(own.file[0] == '\0' ? path : own.file), "%s",
                         own.message);
    }
    *out = e;
    return SSM_STATUS_OK;
}

void ssm_experiment_free(ssm_experiment *e)
{
    if (e != NULL) {
        ssm_recipe_free(e->base);
        json_decref(e->json);
        free(e->arm_names);
        free(e->keys);
        free(e);
    }
}

char *ssm_experiment_text(const ssm_experiment *e)
{
    return ssm__json_print(e->json, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
}
