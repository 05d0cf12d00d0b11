#include "ranks.h"

#include <stdlib.h>

#include "messages.h"

/* What launchers tell the processes that they start: Open MPI, MPICH and its relatives, PMIx (there
 * the number of a process alone: above 0 there are at least so many before it). */
static int64_t launched(const char **by)
{
    static const struct {
        const char *name;
        int64_t more;
    } variables[] = {{"OMPI_COMM_WORLD_SIZE", 0}, {"PMI_SIZE", 0}, {"PMIX_RANK", 1}};
    int64_t most = 0;
    *by = "";
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i].name);
        char *end = NULL;
        const long long number = value == NULL ? -1 : strtoll(value, &end, 10);
        if (number >= 0 && end != value && *end == '\0' && number + variables[i].more > most) {
            most = number + variables[i].more;
            *by = variables[i].name;
        }
    }
    return most;
}

ssm_status cli_ranks_open(cli_ranks *out, ssm_error *err)
{
    const char *by;
    const int64_t count = launched(&by);
    *out = (cli_ranks){.table = {.size = 1}};
    return count == 0 ? SSM_STATUS_OK : cli_ranks_join(out, count, by, err);
}

ssm_status cli_ranks_close(cli_ranks *ranks, ssm_status status, const ssm_error *err)
{
    if (ranks->joined) {
        if (ranks->lost) {
            cli_print_error(err, status, "train");
        }
        cli_ranks_leave(ranks, status);
    }
    return ranks->table.rank == 0 ? status : SSM_STATUS_OK;
}

ssm_status cli_ranks_refuse(const char *what, ssm_error *err)
{
    const char *by;
    const int64_t count = launched(&by);
    if (count <= 1) {
        return SSM_STATUS_OK;
    }
    return cli_fail(err, SSM_STATUS_USAGE, NULL,
                    "a launcher has started %lld processes (%s), and %s is the work of one: start "
                    "it without mpirun",
                    (long long)count, by, what);
}
