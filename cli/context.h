/* cli/context.h: what the running command shares with its helpers. */
#ifndef SSM_CLI_CONTEXT_H
#define SSM_CLI_CONTEXT_H

#include <time.h>

#include "options.h"

/* A live line on a terminal, with an estimate of the time left; silent elsewhere. */
typedef struct cli_progress {
    ssm_progress progress; /* what long calls are given */
    bool live;             /* draws on stderr */
    bool drawn;            /* a line stands there now */
    char what[64];
    struct timespec started, last;
} cli_progress;

struct cli_context {
    const cli_command *command;
    cli_globals globals;
    char *canonical; /* the command line as results name it */
    ssm_pool *pool;  /* made on first use */
    cli_progress progress;
};

/* The pool of --threads, made on first use; owned by the context. */
ssm_status cli_pool(cli_context *context, ssm_pool **out, ssm_error *err);
/* Words on stderr, unless --quiet. One line, without the newline. */
void cli_note(cli_context *context, const char *format, ...) SSM_PRINTF(2, 3);

/* Catches SIGINT, SIGTERM and SIGHUP from now on (the second one ends the program at once), and
 * gives the object for long calls. */
const ssm_progress *cli_progress_start(cli_context *context);
/* For a command with a live line of its own: the same signals, and nothing drawn. */
ssm_progress cli_progress_signals(void);
/* Puts that line in the place of the live one. Only where context->progress.live. */
void cli_progress_line(cli_context *context, const char *format, ...) SSM_PRINTF(2, 3);
/* Removes the live line. */
void cli_progress_clear(cli_context *context);
/* True after SIGINT, SIGTERM or SIGHUP. */
bool cli_interrupted(void);

#endif
