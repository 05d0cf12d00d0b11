/* evaluate/journal.h: lines of finished work, by series and index. */
#ifndef SSM_EVALUATE_JOURNAL_H
#define SSM_EVALUATE_JOURNAL_H

#include <jansson.h>
#include <ssmscope/evaluate.h>

/* The line of an earlier run, borrowed, or NULL. A NULL journal has none. */
const json_t *ssm__journal_find(const ssm_journal *journal, const char *series, int64_t index);
/* Writes a line {"series", "index", members of `line`}; takes `line`, which may be NULL (no
 * memory). A NULL journal takes it and does nothing. Errors: FAILED, MEMORY. */
ssm_status ssm__journal_add(ssm_journal *journal, const char *series, int64_t index, json_t *line,
                            ssm_error *err);
/* FILE: the line of that series and index does not have the form that this version writes. */
ssm_status ssm__journal_fail(const ssm_journal *journal, const char *series, int64_t index,
                             ssm_error *err);

#endif
