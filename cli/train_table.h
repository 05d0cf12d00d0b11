/* cli/train_table.h: what runs of training came to, one row a run. */
#ifndef SSM_CLI_TRAIN_TABLE_H
#define SSM_CLI_TRAIN_TABLE_H

#include <ssmscope/train.h>

#include "output.h"

/* One run of a grid. */
typedef struct cli_trained {
    char **values; /* [n_keys] of the keys of the grid, as they were given */
    char *directory;
    bool failed; /* its numbers were no longer finite */
    char message[SSM_ERROR_MESSAGE_MAX];
    ssm_train_result result;
} cli_trained;

/* keys [n_keys]. The measures are those of the first run that has any. Errors: MEMORY. */
ssm_status cli_trained_print(const char *const *keys, int64_t n_keys, const cli_trained *runs,
                             int64_t n_runs, ssm_error *err);
/* Appends {directory, <key>: value …, loss, evaluation, …} to `array`. */
void cli_trained_json(cli_json *json, json_t *array, const char *const *keys, int64_t n_keys,
                      const cli_trained *run);
/* "size 20, 64 examples: loss 3.21, strings right 0.97, …" of every size, a line each, on stdout.
 */
void cli_evaluation_print(const char *evaluation);

#endif
