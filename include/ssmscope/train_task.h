/* ssmscope/train_task.h: seeded tasks to train on, and how answers to them are scored.
 *
 * A task is a name, settings and a seed. Row i of its training data is a pure function of (name,
 * settings, seed, i): a run that resumes needs no more than the number of rows it has seen, and a
 * batch may be split over accumulation steps, threads or machines in any way. Evaluation examples
 * come from other streams and are as numbered. docs/tasks.md states every format.
 */
#ifndef SSMSCOPE_TRAIN_TASK_H
#define SSMSCOPE_TRAIN_TASK_H

#include <ssmscope/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a task is -------------------------------------------------------------------------- */

typedef enum ssm_train_loss {
    SSM_TRAIN_TOKENS,  /* ids in; cross-entropy of the logits at each labelled position */
    SSM_TRAIN_CLASSES, /* ids in; one label a row, logits from the mean over the row's positions */
    SSM_TRAIN_VECTORS  /* real vectors in and out; mean squared error at every position */
} ssm_train_loss;

SSM_API const char *ssm_train_loss_name(ssm_train_loss loss); /* "tokens", "classes", "vectors" */

/* One key=value. A key that takes a list may be repeated, or its value be "50,100". */
typedef struct ssm_train_setting {
    const char *key, *value;
} ssm_train_setting;

typedef struct ssm_train_task ssm_train_task;

typedef struct ssm_train_info {
    const char *name;    /* "copy" */
    const char *summary; /* one line */
    ssm_train_loss loss;
    int64_t vocab_size;   /* ids are 0 … vocab_size − 1; 0 for vectors */
    int64_t input_width;  /* of a vector; 0 for ids */
    int64_t output_width; /* of the head: vocab_size, classes, or the width of a target */
    int64_t length;       /* L of a training row */
    const char *size;     /* what an evaluation size counts: "letters", "pairs", "tokens" */
    const int64_t *sizes; /* [n_sizes] of the setting `evaluate`, rising */
    int64_t n_sizes;
    bool regimes; /* batches have the hidden regime of every position */
} ssm_train_info;

/* NULL-terminated. */
SSM_API const char *const *ssm_train_task_names(void);
/* One key of a task: what may stand behind it and what it is. */
typedef struct ssm_train_key {
    const char *key;
    const char *fallback; /* the default; NULL: none, or one that the other settings give */
    const char *help;
    char allowed[128]; /* "a whole number in 1 … 26" */
} ssm_train_key;
/* Key i of the task, from 0; false beyond the last one and for an unknown task. */
SSM_API bool ssm_train_task_key(const char *name, int64_t i, ssm_train_key *out);

/* Settings that are not given have their defaults. Errors: USAGE (unknown name or key, with the
 * nearest; a value outside its range, which is named; settings that contradict each other), FILE (a
 * text, with its place), MEMORY. Owner: the caller, ssm_train_task_free. A const task may be shared
 * by threads. */
SSM_API ssm_status ssm_train_task_create(const char *name, const ssm_train_setting *settings,
                                         int64_t count, uint64_t seed, ssm_train_task **out,
                                         ssm_error *err);
SSM_API void ssm_train_task_free(ssm_train_task *task);
/* Valid until the task is freed. */
SSM_API const ssm_train_info *ssm_train_task_info(const ssm_train_task *task);
/* All settings as they hold, defaults included, in the order of the table, as a JSON object, for
 * free(); NULL: out of memory. The same task from the same text: what a log should keep. */
SSM_API char *ssm_train_task_settings(const ssm_train_task *task);
/* "xxh3-128:…" over name, settings, seed and the contents of files. Equal digests, equal data. */
SSM_API const char *ssm_train_task_digest(const ssm_train_task *task);
/* Writes how a person reads an id ("a", "|", "\\n"), or a label (the name of a class), terminated,
 * cut to size bytes. */
SSM_API void ssm_train_task_token(const ssm_train_task *task, int32_t id, char *out, size_t size);
SSM_API void ssm_train_task_label(const ssm_train_task *task, int32_t label, char *out,
                                  size_t size);

/* ---- rows ------------------------------------------------------------------------------------ */

/* Arrays that a task does not use are NULL. Positions behind a row's end have a padding id, zero
 * vectors and the label −1. */
typedef struct ssm_train_batch {
    int64_t rows, length; /* B, L */
    int32_t *ids;         /* [B][L] */
    /* TOKENS: [B][L], the id that the output at that position must give (already shifted); −1: no
     * loss there. CLASSES: [B]. */
    int32_t *labels;
    int32_t *used;    /* [B] positions before the padding */
    float *inputs;    /* [B][L][input_width] */
    float *targets;   /* [B][L][output_width] */
    int32_t *regimes; /* [B][L] hidden state of the generator, for probes */
    void *scratch;
} ssm_train_batch;

/* length: info's L for training rows, or ssm_train_task_length(task, size). Errors: USAGE (rows or
 * length below 1), MEMORY. Owner: the caller, ssm_train_batch_free. */
SSM_API ssm_status ssm_train_batch_create(const ssm_train_task *task, int64_t rows, int64_t length,
                                          ssm_train_batch *out, ssm_error *err);
SSM_API void ssm_train_batch_free(ssm_train_batch *batch);

/* Training rows first … first + B − 1 into a batch of info's L; batch number k begins at row k·B.
 * 0 ≤ first. */
SSM_API void ssm_train_task_rows(const ssm_train_task *task, int64_t first, ssm_train_batch *batch);

/* L of an evaluation row of a size (any size the task can make, not only those of `evaluate`).
 * Errors: USAGE (a size that the task cannot make, with the range). */
SSM_API ssm_status ssm_train_task_length(const ssm_train_task *task, int64_t size, int64_t *length,
                                         ssm_error *err);
/* Examples that there are of a size: a text has an end. −1: as many as are asked for. */
SSM_API int64_t ssm_train_task_example_count(const ssm_train_task *task, int64_t size);
/* Evaluation examples first … first + B − 1 of a size, one a row, into a batch of at least that
 * length. Beyond their count rows are empty: labels −1, used 0. */
SSM_API void ssm_train_task_examples(const ssm_train_task *task, int64_t size, int64_t first,
                                     ssm_train_batch *batch);

/* ---- scores ---------------------------------------------------------------------------------- */

/* Sums over examples of one size; start from {0}. */
typedef struct ssm_train_score {
    int64_t strings, strings_right;       /* rows with a label; those with every label right */
    int64_t characters, characters_right; /* labels */
    double squared_error;                 /* VECTORS: Σ over positions and components */
    int64_t components;
} ssm_train_score;

/* Adds a batch of TOKENS or CLASSES. predictions: the argmax of the logits under teacher forcing,
 * laid out as the labels; looked at only where there is a label. */
SSM_API void ssm_train_score_add(ssm_train_score *score, const ssm_train_task *task,
                                 const ssm_train_batch *batch, const int32_t *predictions);
/* Adds a batch of VECTORS; outputs [B][L][output_width]. */
SSM_API void ssm_train_score_add_vectors(ssm_train_score *score, const ssm_train_task *task,
                                         const ssm_train_batch *batch, const float *outputs);
/* Shares; NaN without any example. */
SSM_API double ssm_train_string_accuracy(const ssm_train_score *score);
SSM_API double ssm_train_character_accuracy(const ssm_train_score *score);
SSM_API double ssm_train_mean_squared_error(const ssm_train_score *score);

#ifdef __cplusplus
}
#endif
#endif
