/* cli/ranks_mpi.c: the connection over MPI (cmake -DSSM_MPI=ON). */
#include <mpi.h>
#include <sched.h>
#include <time.h>

#include "messages.h"
#include "ranks.h"

enum { BUSY_NANOSECONDS = 2 * 1000 * 1000, SLEEP_NANOSECONDS = 200 * 1000 };

static int64_t nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* MPI itself would wait with a busy processor: while rank 0 evaluates, or where there are more
 * ranks than processors, that is another's. */
static bool finish(cli_ranks *ranks, int started, MPI_Request *request)
{
    const int64_t begin = nanoseconds();
    const struct timespec pause = {.tv_nsec = SLEEP_NANOSECONDS};
    int done = 0;
    bool fine = started == MPI_SUCCESS;
    while (fine && !done) {
        fine = MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS;
        if (fine && !done && nanoseconds() - begin < BUSY_NANOSECONDS) {
            sched_yield();
        } else if (fine && !done) {
            nanosleep(&pause, NULL);
        }
    }
    ranks->lost = ranks->lost || !fine;
    return fine;
}

static bool exchange(void *context, const void *out, void *in, size_t bytes)
{
    MPI_Request request;
    const int started = MPI_Ialltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE,
                                      MPI_COMM_WORLD, &request);
    return finish(context, started, &request);
}

static bool gather(void *context, const void *own, void *all, size_t bytes)
{
    MPI_Request request;
    const int started = MPI_Iallgather(own, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                                       MPI_COMM_WORLD, &request);
    return finish(context, started, &request);
}

static bool broadcast(void *context, int from, void *data, size_t bytes)
{
    MPI_Request request;
    const int started = MPI_Ibcast(data, (int)bytes, MPI_BYTE, from, MPI_COMM_WORLD, &request);
    return finish(context, started, &request);
}

ssm_status cli_ranks_join(cli_ranks *out, int64_t launched, const char *by, ssm_error *err)
{
    int provided = MPI_THREAD_SINGLE;
    int rank = 0;
    int size = 0;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS ||
        provided < MPI_THREAD_FUNNELED ||
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN) != MPI_SUCCESS ||
        MPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS ||
        MPI_Comm_size(MPI_COMM_WORLD, &size) != MPI_SUCCESS) {
        return cli_fail(err, SSM_STATUS_FAILED, NULL, "MPI cannot be used beside threads");
    }
    out->joined = true;
    if (size == 1 && launched > 1) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "a launcher has started %lld processes (%s), but each of them is alone for "
                        "the MPI that this program was built with: use the launcher of that MPI",
                        (long long)launched, by);
    }
    out->table = (ssm_train_ranks){.context = out,
                                   .rank = rank,
                                   .size = size,
                                   .exchange = exchange,
                                   .gather = gather,
                                   .broadcast = broadcast};
    return SSM_STATUS_OK;
}

void cli_ranks_leave(cli_ranks *ranks, ssm_status status)
{
    if (ranks->lost) {
        MPI_Abort(MPI_COMM_WORLD, (int)status);
    } else {
        MPI_Finalize();
    }
}
