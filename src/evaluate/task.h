/* evaluate/task.h: from a line of JSON to an item of a task. One file a task fills in the item. */
#ifndef SSM_EVALUATE_TASK_H
#define SSM_EVALUATE_TASK_H

#include <jansson.h>
#include <ssmscope/tasks.h>

/* A line of the file. */
typedef struct ssm__doc {
    const char *path;
    const ssm_task *task;
    const json_t *fields; /* an object */
    int64_t line;
} ssm__doc;

/* FILE, with path and line in front of the message. */
ssm_status ssm__doc_fail(const ssm__doc *doc, ssm_error *err, const char *format, ...)
    SSM_PRINTF(3, 4);
/* A member that must be there and a string. */
ssm_status ssm__doc_text(const ssm__doc *doc, const char *name, const char **out, ssm_error *err);
/* A member of `parent` that must be there and an array of one string or more. */
ssm_status ssm__doc_array(const ssm__doc *doc, const json_t *parent, const char *name,
                          const json_t **out, ssm_error *err);
/* An index below n_choices, as a number or its decimal digits; first: what stands for the first
 * choice (0 or 1). −1 and "" are how data sets without answers are published: no gold. */
ssm_status ssm__doc_gold(const ssm__doc *doc, const char *name, int64_t first, int64_t n_choices,
                         int64_t *out, ssm_error *err);

/* Room for choices; own_contexts: a context each. */
ssm_status ssm__item_start(ssm_task_item *item, int64_t n_choices, bool own_contexts,
                           ssm_error *err);
/* Copies a string of `bytes` bytes to a place of the item. */
ssm_status ssm__item_set(char **place, const char *text, size_t bytes, ssm_error *err);
/* Choice i is `text`, and the continuation a blank and it. FILE when it has no characters. */
ssm_status ssm__item_choice(const ssm__doc *doc, ssm_task_item *item, int64_t i, const char *text,
                            ssm_error *err);
/* True for an item in the general form: query, choices, gold. */
bool ssm__doc_is_general(const ssm__doc *doc);
/* That item. ending: what the context ends with where the query does not have it ("\nAnswer:"). */
ssm_status ssm__item_general(const ssm__doc *doc, ssm_task_item *item, const char *ending,
                             ssm_error *err);

typedef ssm_status ssm__task_reader(const ssm__doc *doc, ssm_task_item *item, ssm_error *err);
ssm__task_reader ssm__read_lambada;
ssm__task_reader ssm__read_piqa;
ssm__task_reader ssm__read_arc;
ssm__task_reader ssm__read_winogrande;
ssm__task_reader ssm__read_hellaswag;

/* scorer.c: of the options of scorer and rolling windows. USAGE: a length below 1, a prefix id that
 * is neither −1 nor in the vocabulary. */
ssm_status ssm__check_context(const ssm_model *model, int64_t max_length, int32_t prefix_id,
                              ssm_error *err);

#endif
