/* cli/ranks.h: the processes that a launcher such as mpirun has started together. */
#ifndef SSM_CLI_RANKS_H
#define SSM_CLI_RANKS_H

#include <ssmscope/train.h>

typedef struct cli_ranks {
    ssm_train_ranks table; /* size 1: this process alone */
    bool joined;           /* to be left again */
    bool lost;             /* a call has failed: nobody can be waited for */
} cli_ranks;

/* Joins the others; without a launcher there are none. Errors: USAGE (there are others, but the
 * program was built without MPI, or with another than the launcher's: each process would do all of
 * the work). */
ssm_status cli_ranks_open(cli_ranks *out, ssm_error *err);
/* Leaves them, with the status that the process ends with. Rank 0 speaks for all: what all agreed
 * upon is OK on the others. When the connection is lost, says so and ends all processes. */
ssm_status cli_ranks_close(cli_ranks *ranks, ssm_status status, const ssm_error *err);
/* USAGE where a launcher has started several processes: `what` is done by one. */
ssm_status cli_ranks_refuse(const char *what, ssm_error *err);

/* ranks_mpi.c, or ranks_none.c in a build without MPI. `launched`: processes that the launcher says
 * there are, more than 0; `by`: the variable that says so. */
ssm_status cli_ranks_join(cli_ranks *out, int64_t launched, const char *by, ssm_error *err);
void cli_ranks_leave(cli_ranks *ranks, ssm_status status);

#endif
