/* train/tasks/letters.h: what the five tasks on strings of letters have in common: the alphabet,
 * packing of examples into a training row, one example a row in evaluation. */
#ifndef SSM_TRAIN_TASKS_LETTERS_H
#define SSM_TRAIN_TASKS_LETTERS_H

#include "train/tasks/kind.h"

typedef struct ssm__letters_task ssm__letters_task;
typedef struct ssm__letters_text ssm__letters_text;

/* What distinguishes the tasks: appends the example of `count` letters; string [count] is room. */
typedef void ssm__letters_example(const ssm__letters_task *task, ssm_rng *rng, int64_t count,
                                  int32_t *string, ssm__letters_text *text);

struct ssm__letters_task {
    ssm_train_task base;
    ssm__letters_example *example;
    int64_t letters, min, max, length;
    int64_t ngram, answer; /* of the n-gram tasks; else 0 */
};

/* Ids behind the letters 0 … letters − 1. */
enum {
    SSM__LETTERS_BOS,       /* $ */
    SSM__LETTERS_SEPARATOR, /* | */
    SSM__LETTERS_EOS,       /* . */
    SSM__LETTERS_PAD,       /* * */
    SSM__LETTERS_SYMBOLS
};

/* An example under construction; learned says which ids are to be given by the model. */
struct ssm__letters_text {
    int32_t *ids;
    bool *learned;
    int64_t count;
};

void ssm__letters_add(ssm__letters_text *text, int32_t id, bool learned);
/* $, |, . or * of the task. */
int32_t ssm__letters_symbol(const ssm__letters_task *task, int symbol);
/* `count` uniform letters. */
void ssm__letters_draw(const ssm__letters_task *task, ssm_rng *rng, int64_t count, int32_t *out);

/* Appends `count` ids, then the symbol. */
void ssm__letters_put(const ssm__letters_task *task, ssm__letters_text *text, const int32_t *ids,
                      int64_t count, bool learned, int symbol);

/* The functions of ssm__task_kind. */
ssm_status ssm__letters_open(ssm_train_task *task, ssm__letters_example *example, ssm_error *err);
void ssm__letters_range(const ssm_train_task *task, int64_t *low, int64_t *high);
size_t ssm__letters_scratch(const ssm_train_task *task, int64_t length);
void ssm__letters_token(const ssm_train_task *task, int32_t id, char *out, size_t size);
void ssm__letters_row(const ssm_train_task *task, ssm__row *row);
void ssm__letters_one(const ssm_train_task *task, int64_t size, ssm__row *row);
/* L of "$ s | s' .", s' as long as s: 2n + 3 tokens, of which the last is only to be given. */
int64_t ssm__letters_twice(const ssm_train_task *task, int64_t size);

/* The fields that all five have alike. */
#define SSM__LETTERS_KIND                                                                          \
    .size = "letters", .settings = settings, .n_settings = sizeof settings / sizeof settings[0],   \
    .bytes = sizeof(ssm__letters_task), .open = open, .range = ssm__letters_range,                 \
    .scratch = ssm__letters_scratch, .row = ssm__letters_row, .example = ssm__letters_one,         \
    .token = ssm__letters_token

enum { SSM__LETTERS_MAX = 1 << 20 };

#define SSM__LETTERS_SETTINGS(shortest)                                                            \
    {.key = "letters",                                                                             \
     .kind = SSM__SETTING_INTEGER,                                                                 \
     .into = offsetof(ssm__letters_task, letters),                                                 \
     .fallback = "26",                                                                             \
     .min = 1,                                                                                     \
     .max = 26,                                                                                    \
     .help = "letters of the alphabet, from a on"},                                                \
        {.key = "min",                                                                             \
         .kind = SSM__SETTING_INTEGER,                                                             \
         .into = offsetof(ssm__letters_task, min),                                                 \
         .fallback = (shortest),                                                                   \
         .min = 1,                                                                                 \
         .max = 100000,                                                                            \
         .help = "shortest string of a training row"},                                             \
        {.key = "max",                                                                             \
         .kind = SSM__SETTING_INTEGER,                                                             \
         .into = offsetof(ssm__letters_task, max),                                                 \
         .fallback = "50",                                                                         \
         .min = 1,                                                                                 \
         .max = 100000,                                                                            \
         .help = "longest string of a training row"},                                              \
        {.key = "length",                                                                          \
         .kind = SSM__SETTING_INTEGER,                                                             \
         .into = offsetof(ssm__letters_task, length),                                              \
         .fallback = "256",                                                                        \
         .min = 2,                                                                                 \
         .max = 1 << 22,                                                                           \
         .help = "positions of a training row, which examples are packed into"},                   \
        SSM__EVALUATE(1, SSM__LETTERS_MAX,                                                         \
                      "lengths of strings at evaluation; 1, 2, 4, 6 times "                        \
                      "max when not given")

#define SSM__LETTERS_NGRAM_SETTINGS                                                                \
    {.key = "ngram",                                                                               \
     .kind = SSM__SETTING_INTEGER,                                                                 \
     .into = offsetof(ssm__letters_task, ngram),                                                   \
     .fallback = "3",                                                                              \
     .min = 1,                                                                                     \
     .max = 64,                                                                                    \
     .help = "letters of the n-gram that is looked up"},                                           \
    {                                                                                              \
        .key = "answer", .kind = SSM__SETTING_INTEGER,                                             \
        .into = offsetof(ssm__letters_task, answer), .fallback = "0", .min = 0, .max = 1 << 16,    \
        .help = "letters of the answer; 0: all that follow"                                        \
    }

#endif
