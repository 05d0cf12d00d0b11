/* train/tasks/kind.h: what a task is made of. A file a task: its settings, its checks, its rows. */
#ifndef SSM_TRAIN_TASKS_KIND_H
#define SSM_TRAIN_TASKS_KIND_H

#include "train/settings.h"

/* One row to fill. It arrives empty: ids are the task's padding, labels −1, *used 0, vectors 0. */
typedef struct ssm__row {
    int64_t length;
    int32_t *ids, *labels; /* CLASSES: labels has one element */
    int32_t *used;
    float *inputs, *targets;
    int32_t *regimes;
    void *scratch;
    int64_t number; /* of the row or of the example */
    ssm_rng rng;    /* the row's own stream */
} ssm__row;

typedef struct ssm__task_kind {
    const char *name, *summary;
    const char *size; /* what an evaluation size counts */
    const ssm__setting *settings;
    int64_t n_settings;
    size_t bytes; /* of the task's object, which begins with ssm_train_task */
    /* Checks what one setting says about another, reads files, fills info and the list of sizes. */
    ssm_status (*open)(ssm_train_task *task, ssm_error *err);
    void (*close)(ssm_train_task *task); /* what open made; also after its failure; NULL: nothing */
    /* Sizes that can be evaluated, both included. */
    void (*range)(const ssm_train_task *task, int64_t *low, int64_t *high);
    int64_t (*length)(const ssm_train_task *task, int64_t size);   /* L of a size in range */
    size_t (*scratch)(const ssm_train_task *task, int64_t length); /* bytes; NULL: none */
    int64_t (*examples)(const ssm_train_task *task, int64_t size); /* NULL: without end */
    void (*row)(const ssm_train_task *task, ssm__row *row);
    void (*example)(const ssm_train_task *task, int64_t size, ssm__row *row);
    /* NULL: the number in decimal. */
    void (*token)(const ssm_train_task *task, int32_t id, char *out, size_t size);
    /* A label for people; NULL: as token. */
    void (*label)(const ssm_train_task *task, int32_t label, char *out, size_t size);
} ssm__task_kind;

struct ssm_train_task {
    const ssm__task_kind *kind;
    ssm_train_info info; /* name and summary are set before open */
    uint64_t seed;
    char digest[64];
    char *files_digest; /* what open read, for the digest; NULL: nothing */
    int32_t padding;    /* id behind a row's end */
    int32_t uncounted;  /* a label that scores leave out (EOS); −1: none */
    ssm__integers sizes;
};

/* The field of every task's table that info.sizes comes from. */
#define SSM__EVALUATE(low, high, words)                                                            \
    {                                                                                              \
        .key = "evaluate", .kind = SSM__SETTING_INTEGERS, .into = offsetof(ssm_train_task, sizes), \
        .min = (low), .max = (high), .help = (words)                                               \
    }

/* `length` of the tasks whose sizes are numbers of positions. */
int64_t ssm__task_size_is_length(const ssm_train_task *task, int64_t size);
/* What open fills in of a task that gives ids for ids, in rows of `length`. */
void ssm__task_gives_ids(ssm_train_task *task, int64_t vocab_size, int64_t length);
/* Where nothing else was asked for: the sizes factor · base of `factors`. Errors: MEMORY. */
ssm_status ssm__task_default_sizes(ssm_train_task *task, int64_t base, const int64_t *factors,
                                   int64_t count, ssm_error *err);
/* The stream "task.<name>.<what>" of the task's seed: what is drawn once a task. */
ssm_rng ssm__task_stream(const ssm_train_task *task, const char *what);
/* Writes `tokens` ids as inputs and shifted labels: position t has ids[t] in and is to give
 * ids[t + 1] where learned[t + 1], else there is no loss. At most row->length positions. */
void ssm__row_shift(ssm__row *row, const int32_t *ids, const bool *learned, int64_t tokens);
/* Uniform in low … high, both included. */
int64_t ssm__row_between(ssm_rng *rng, int64_t low, int64_t high);

extern const ssm__task_kind ssm__task_copy;
extern const ssm__task_kind ssm__task_stack_copy;
extern const ssm__task_kind ssm__task_sort;
extern const ssm__task_kind ssm__task_prefix_ngram;
extern const ssm__task_kind ssm__task_suffix_ngram;
extern const ssm__task_kind ssm__task_mqar;
extern const ssm__task_kind ssm__task_induction_heads;
extern const ssm__task_kind ssm__task_selective_copying;
extern const ssm__task_kind ssm__task_switched_linear;
extern const ssm__task_kind ssm__task_language;
extern const ssm__task_kind ssm__task_classification;

#endif
