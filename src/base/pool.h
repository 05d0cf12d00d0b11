/* base/pool.h: running tasks on the threads of a pool.
 *
 * Thread law: work is cut into tasks whose number and borders do not depend on the number of
 * threads, and no task reads what another of the same run writes. So any pool gives the same bits.
 */
#ifndef SSM_BASE_POOL_H
#define SSM_BASE_POOL_H

#include <ssmscope/base.h>

/* thread: 0 … threads−1, for per-thread scratch only. */
typedef void ssm__task_fn(void *context, int64_t task, int thread);

/* Runs tasks 0 … count−1 (contiguous shares, thread by thread) and returns when all are done; what
 * they wrote is visible to the caller. pool NULL: in the calling thread. Does not allocate. A task
 * must not run tasks on the same pool, and two threads must not use one pool at a time. */
void ssm__pool_run(ssm_pool *pool, ssm__task_fn *fn, void *context, int64_t count);

#endif
