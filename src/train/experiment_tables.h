/* train/experiment_tables.h: numbers of an experiment by arm, cell, measure and size. */
#ifndef SSM_TRAIN_EXPERIMENT_TABLES_H
#define SSM_TRAIN_EXPERIMENT_TABLES_H

#include "train/experiment.h"

typedef struct ssm__tables {
    const ssm_experiment *experiment;
    const ssm__experiment_run *all; /* [n_all] with those that tune */
    const ssm__experiment_run
        *runs; /* [n_runs] the experiment's own: seed by seed, arm by arm, cell by cell */
    int64_t n_all, n_runs, done, n_failed;
    int64_t against; /* number of the arm that the others are compared with; −1: none */
    const char **sizes;
    int64_t n_sizes;
    double *values; /* [n_seeds] scratch */
    bool failed;    /* an allocation did */
} ssm__tables;

/* One number of a table. */
typedef struct ssm__cell {
    int64_t arm, cell;
    int64_t against; /* −1: the measure itself; else its difference to this arm, seed by seed */
    const char *measure, *size;
} ssm__cell;

const ssm__experiment_run *ssm__table_run(const ssm__tables *t, int64_t arm, int64_t cell,
                                          int64_t s);
/* Mean and band over the seeds that have the measure; n 0: none has. Errors: MEMORY. */
ssm_status ssm__table_band(const ssm__tables *t, const ssm__cell *cell, ssm__band *out,
                           ssm_error *err);
/* Texts for free(). Errors: MEMORY. */
ssm_status ssm__table_csv(const ssm__tables *t, char **out, ssm_error *err);
ssm_status ssm__table_markdown(const ssm__tables *t, char **out, ssm_error *err);

#endif
