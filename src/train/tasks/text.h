/* train/tasks/text.h: texts as ids, for the tasks that read files; and shuffles without memory. */
#ifndef SSM_TRAIN_TASKS_TEXT_H
#define SSM_TRAIN_TASKS_TEXT_H

#include <ssmscope/tokenizer.h>

#include "train/tasks/kind.h"

/* A tokenizer, or bytes. Start from {0}. */
typedef struct ssm__alphabet {
    ssm_tokenizer *tokenizer; /* NULL: bytes */
    int64_t vocab_size;
} ssm__alphabet;

/* name: "bytes", a tokenizer.json or a directory that holds one, which then counts among the files
 * that the task has read. Errors: FILE, MEMORY. */
ssm_status ssm__alphabet_open(ssm_train_task *task, const char *name, ssm__alphabet *out,
                              ssm_error *err);
void ssm__alphabet_close(ssm__alphabet *alphabet);
/* Appends the ids of a text. Errors: FILE (not UTF-8), MEMORY. */
ssm_status ssm__alphabet_encode(const ssm__alphabet *alphabet, const char *text, size_t bytes,
                                ssm_ids *ids, ssm_error *err);
/* The text of an id as a person reads it: control characters and bytes that are no character are
 * written as \n, \t, \x1f, a space as ␣. */
void ssm__alphabet_token(const ssm__alphabet *alphabet, int32_t id, char *out, size_t size);

/* Adds a line to the task's files_digest. Errors: MEMORY. */
ssm_status ssm__task_add_digest(ssm_train_task *task, const char *digest, ssm_error *err);

/* Where number i of 0 … n − 1 goes in the shuffle called `what` of the task: a bijection, a Feistel
 * network of four rounds whose functions are Philox blocks, walked until it stays below n. It needs
 * no memory, so that any row can be made without those before it. */
int64_t ssm__task_shuffle(const ssm_train_task *task, const char *what, uint64_t epoch, int64_t n,
                          int64_t i);

#define SSM__TEXT_SETTINGS(type, text_words, evaluation_words, held_out_words)                     \
    {.key = "text",                                                                                \
     .kind = SSM__SETTING_TEXTS,                                                                   \
     .into = offsetof(type, text),                                                                 \
     .help = (text_words)},                                                                        \
        {.key = "evaluation",                                                                      \
         .kind = SSM__SETTING_TEXTS,                                                               \
         .into = offsetof(type, evaluation),                                                       \
         .help = (evaluation_words)},                                                              \
        {.key = "held_out",                                                                        \
         .kind = SSM__SETTING_REAL,                                                                \
         .into = offsetof(type, held_out),                                                         \
         .fallback = "5",                                                                          \
         .low = 0,                                                                                 \
         .high = 90,                                                                               \
         .help = (held_out_words)},                                                                \
    {                                                                                              \
        .key = "tokenizer", .kind = SSM__SETTING_TEXT, .into = offsetof(type, tokenizer),          \
        .fallback = "bytes", .help = "bytes, or a tokenizer.json or a directory that holds one"    \
    }

#endif
