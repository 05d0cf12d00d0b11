/* cli/messages.h: errors and notes for people. Data goes to stdout, words to stderr. */
#ifndef SSM_CLI_MESSAGES_H
#define SSM_CLI_MESSAGES_H

#include <ssmscope/base.h>

/* Records a failure unless one is recorded already, and returns `status`. file may be NULL. */
ssm_status cli_fail(ssm_error *err, ssm_status status, const char *file, const char *format, ...)
    SSM_PRINTF(4, 5);
/* MEMORY with the usual words. */
ssm_status cli_no_memory(ssm_error *err);

/* "ssmscope: FILE: tensor X, byte N: message" on stderr; for wrong usage also where help is.
 * command may be NULL. */
void cli_print_error(const ssm_error *err, ssm_status status, const char *command);

#endif
