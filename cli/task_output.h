/* cli/task_output.h: rows of a task, for people and as JSON lines. */
#ifndef SSM_CLI_TASK_OUTPUT_H
#define SSM_CLI_TASK_OUTPUT_H

#include <ssmscope/train_task.h>

#include "context.h"

/* Row b of the batch: ids over labels, wrapped; vectors as numbers. */
void cli_task_show(const ssm_train_task *task, const ssm_train_batch *batch, int64_t b);
/* One line {"ids": …, "labels": …} or {"inputs": …, "targets": …}, without the padding. null stands
 * nowhere: a position without loss has the label −1. Errors: FAILED. */
ssm_status cli_task_line(const ssm_train_task *task, const ssm_train_batch *batch, int64_t b,
                         ssm_error *err);

#endif
