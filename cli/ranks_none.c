/* cli/ranks_none.c: a build without MPI (cmake -DSSM_MPI=OFF). */
#include "messages.h"
#include "ranks.h"

ssm_status cli_ranks_join(cli_ranks *out, int64_t launched, const char *by, ssm_error *err)
{
    (void)out;
    if (launched == 1) {
        return SSM_STATUS_OK;
    }
    return cli_fail(
        err, SSM_STATUS_USAGE, NULL,
        "a launcher has started %lld processes (%s), but this program was built without "
        "MPI: each of them would train the whole model; build it with cmake "
        "-DSSM_MPI=ON, or start one process",
        (long long)launched, by);
}

void cli_ranks_leave(cli_ranks *ranks, ssm_status status)
{
    (void)ranks;
    (void)status;
}
