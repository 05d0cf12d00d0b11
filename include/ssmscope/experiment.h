/* ssmscope/experiment.h: many runs of training with one question: arms × settings × seeds, and what
 * they came to with a band over the seeds. docs/experiments.md has the keys of an experiment. */
#ifndef SSMSCOPE_EXPERIMENT_H
#define SSMSCOPE_EXPERIMENT_H

#include <ssmscope/train.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ssm_experiment ssm_experiment;

/* A JSON object. Every recipe of the grid is made and looked at: a mistyped key costs no hours.
 * Errors: FILE (not JSON; an unknown key, with the nearest; a recipe that contradicts itself, with
 * the run it is of), MEMORY. Owner: the caller, ssm_experiment_free. */
SSM_API ssm_status ssm_experiment_read(const char *path, ssm_experiment **out, ssm_error *err);
SSM_API void ssm_experiment_free(ssm_experiment *experiment);
/* The experiment with all defaults written out, for free(). NULL: out of memory. */
SSM_API char *ssm_experiment_text(const ssm_experiment *experiment);

/* What is left to do, as far as a few steps of every size of network can tell. */
typedef struct ssm_experiment_expected {
    int64_t runs, done;     /* in all, and those that are */
    double seconds;         /* left, if the machine stays as busy as it was */
    double cpu_seconds;     /* left, of all threads */
    double all_cpu_seconds; /* of all runs, also those that are done */
} ssm_experiment_expected;

/* A step of a run (train not NULL), or the end of one. */
typedef struct ssm_experiment_line {
    int64_t run, runs; /* its number from 1, and how many there are */
    const char *name;  /* "mimetic,seed=2" */
    const ssm_train_line *train;
    const char *failure;    /* NULL, or why its numbers were no longer finite */
    const char *evaluation; /* of one that is done: a JSON object, or NULL */
    double seconds_left;    /* of the experiment */
} ssm_experiment_line;

typedef struct ssm_experiment_options {
    ssm_pool *pool; /* NULL: the calling thread alone */
    ssm_isa isa;
    bool estimate; /* say what is expected and stop there */
    const ssm_progress *progress;
    void (*expected)(void *context, const ssm_experiment_expected *expected); /* may be NULL */
    void (*line)(void *context, const ssm_experiment_line *line);             /* may be NULL */
    void *context;
} ssm_experiment_options;

typedef struct ssm_experiment_result {
    int64_t runs, done, failed;  /* failed: not finite, among those that are done */
    double seconds, cpu_seconds; /* of this process */
    char *results;               /* results.json as text, for free(); NULL: an estimate only */
    char *table;                 /* results.md, for free() */
} ssm_experiment_result;

/* Goes through the runs; each has a directory of its own below `directory`/runs, trained as by
 * ssm_train. Behind every run results.json, results.csv and results.md are written, each whole or
 * not at all. A directory that holds the same experiment is gone on with, run by run and inside a
 * run, to the same bytes of the results. A run whose numbers stop being finite is a result; any
 * other failure ends the experiment.
 * Errors: USAGE (the directory holds another experiment, the differences listed, or something
 * else), FAILED (disk full), INTERRUPTED, and those of ssm_train. Processes that are given one
 * directory share the runs. */
SSM_API ssm_status ssm_experiment_run(const ssm_experiment *experiment, const char *directory,
                                      const ssm_experiment_options *options,
                                      ssm_experiment_result *out, ssm_error *err);
SSM_API void ssm_experiment_result_free(ssm_experiment_result *result);

#ifdef __cplusplus
}
#endif
#endif
