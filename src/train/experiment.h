/* train/experiment.h: what an experiment says, and its runs. */
#ifndef SSM_TRAIN_EXPERIMENT_H
#define SSM_TRAIN_EXPERIMENT_H

#include <jansson.h>
#include <ssmscope/experiment.h>

#include "train/band.h"
#include "train/probe.h"
#include "train/recipe.h"

/* One run: a recipe, a directory, and what it came to. */
typedef struct ssm__experiment_run {
    int64_t arm, cell; /* numbers; the cell is a combination of the grid's values */
    int64_t tuned; /* of a run that tunes: the number of the value; −1: one of the experiment */
    int64_t seed;
    char *name;         /* "mimetic,model.mixer=mamba1,seed=2" */
    json_t *evaluation; /* {size: {measure: number}}, NULL: not done, failed, or not evaluated */
    double loss;
    int64_t steps, tokens, parameters;
    bool done;
    char *failure; /* why it failed; NULL: it did not */
} ssm__experiment_run;

/* Settings that are tried before the experiment, with seeds of their own. */
typedef struct ssm__tune {
    const char *key; /* NULL: nothing is tuned */
    const json_t *values;
    const char *measure;
    const char *size;
} ssm__tune;

typedef enum ssm__band_kind { SSM__BAND_BOOTSTRAP, SSM__BAND_RANGE } ssm__band_kind;

struct ssm_experiment {
    json_t *json; /* with all defaults written out; owns what the pointers below borrow */
    const char *name, *about;
    ssm_recipe *base;
    const json_t *arms;  /* {name: {key: value}} */
    const json_t *grid;  /* {key: [values]} */
    const json_t *seeds; /* [integers] */
    const json_t *measures;
    ssm__tune tune;
    ssm__probe_settings probe; /* rows 0: none */
    ssm__band_kind band;
    double level;
    int64_t resamples;
    const char *against; /* the arm that the others are compared with; NULL: none */
    int64_t n_arms, n_keys, n_cells, n_seeds;
    const char **arm_names; /* [n_arms] */
    const char **keys;      /* [n_keys] of the grid */
};

/* ---- what the file says (experiment_read.c, experiment_grid.c) ------------------------------- */

/* The value that key number k has in a cell; the last key's values change first. */
const json_t *ssm__cell_value(const ssm_experiment *e, int64_t cell, int64_t k);
/* As it stands in names and tables: texts bare, the rest as JSON; for free(). NULL: no memory. */
char *ssm__value_text(const json_t *value);
/* All runs: those that tune first, then seed by seed, arm by arm, cell by cell. Errors: USAGE
 * (names that are too long), MEMORY. Owner: the caller, ssm__runs_free. */
ssm_status ssm__runs_create(const ssm_experiment *e, ssm__experiment_run **out, int64_t *count,
                            ssm_error *err);
void ssm__runs_free(ssm__experiment_run *runs, int64_t count);
/* The recipe of a run; tuned: number of the tuned key's value, −1: as in the base. Errors: USAGE
 * (an unknown key, with the nearest; a value out of range), MEMORY. */
ssm_status ssm__run_recipe(const ssm_experiment *e, const ssm__experiment_run *run, int64_t tuned,
                           ssm_recipe **out, ssm_error *err);
/* The value that did best in the runs that tuned an arm in a cell: the highest mean over seeds
 * (the lowest of a loss), the first of equals; −1: nothing is tuned, or not all is done. */
int64_t ssm__tuned(const ssm_experiment *e, const ssm__experiment_run *runs, int64_t count,
                   int64_t arm, int64_t cell);

/* ---- a probe of what was trained (experiment_probe.c) ---------------------------------------- */

/* Probes the model of a run's directory and writes directory/probe.json. Errors: those of
 * ssm__probe_network, FILE (a model that is not the recipe's), FAILED. */
ssm_status ssm__probe_run(const ssm_experiment *e, const ssm_recipe *recipe, const char *directory,
                          const ssm_experiment_options *options, ssm_error *err);

/* ---- what came out (experiment_results.c) ---------------------------------------------------- */

/* A measure of a size of a run; NaN: it has none. Of a run that failed accuracies are 0 and all
 * else is NaN. "perplexity" is exp(loss). */
double ssm__measured(const ssm__experiment_run *run, const char *measure, const char *size);
/* results.json, results.csv, results.md in `directory`; text, table: the first and the last, for
 * free(), may be NULL. Errors: FAILED, MEMORY. */
ssm_status ssm__results_write(const ssm_experiment *e, const ssm__experiment_run *runs,
                              int64_t count, const char *directory, char **text, char **table,
                              ssm_error *err);

/* ---- how long it takes (experiment_time.c) --------------------------------------------------- */

typedef struct ssm__duration {
    double seconds, cpu_seconds;
} ssm__duration;

/* Both clocks now; durations are differences. */
ssm__duration ssm__duration_now(void);
/* Of each run, by a few steps of every size of network; kept in `directory`/timing.json. durations
 * [count]. Errors: those of ssm_train. */
ssm_status ssm__durations(const ssm_experiment *e, const ssm__experiment_run *runs, int64_t count,
                          const char *directory, const ssm_experiment_options *options,
                          ssm__duration *durations, ssm_error *err);

#endif
