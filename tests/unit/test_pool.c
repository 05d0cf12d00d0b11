/* The thread pool: every task once, contiguous shares, nothing lost between runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/pool.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { TASKS_MAX = 300 };

typedef struct job {
    int runs[TASKS_MAX];    /* times that task i ran; plain: each task is one writer */
    int thread[TASKS_MAX];  /* the thread that ran it */
    _Atomic int inside[16]; /* tasks that thread i is in */
    _Atomic int overlaps;   /* times that a thread number was used twice at a time */
} job;

static void note(void *context, int64_t task, int thread)
{
    job *this = context;
    if (atomic_fetch_add(&this->inside[thread], 1) != 0) { /* cmocka must not fail off its thread */
        atomic_fetch_add(&this->overlaps, 1);
    }
    this->runs[task]++;
    this->thread[task] = thread;
    atomic_fetch_sub(&this->inside[thread], 1);
}

static void check_run(ssm_pool *pool, int threads, int64_t count)
{
    job this;
    memset(&this, 0, sizeof this);
    ssm__pool_run(pool, note, &this, count);
    assert_int_equal(atomic_load(&this.overlaps), 0);
    int sizes[16] = {0};
    for (int64_t i = 0; i < TASKS_MAX; i++) {
        assert_int_equal(this.runs[i], i < count);
        if (i < count) {
            assert_in_range(this.thread[i], 0, threads - 1);
            sizes[this.thread[i]]++;
        }
        if (i > 0 && i < count) { /* contiguous, thread by thread */
            assert_true(this.thread[i] >= this.thread[i - 1]);
        }
    }
    for (int i = 0; i < threads && count > 1; i++) {
        int64_t least = count / threads;
        assert_true(sizes[i] >= least && sizes[i] <= least + 1);
    }
}

static void every_task_runs_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 9; threads++) {
        ssm_pool *pool = NULL;
        assert_int_equal(ssm_pool_create(threads, &pool, NULL), SSM_STATUS_OK);
        assert_int_equal(ssm_pool_threads(pool), threads);
        for (int64_t count = 0; count <= 40; count++) {
            check_run(pool, threads, count);
        }
        check_run(pool, threads, TASKS_MAX);
        ssm_pool_free(pool);
    }
}

static void without_a_pool(void **state)
{
    (void)state;
    check_run(NULL, 1, 17);
    check_run(NULL, 1, 0);
    assert_int_equal(ssm_pool_threads(NULL), 1);
    ssm_pool_free(NULL);
}

/* Each run reads what the run before wrote on other threads: rotates an array, many times. */
typedef struct rotation {
    const int64_t *from;
    int64_t *to;
    int64_t count;
} rotation;

static void rotate(void *context, int64_t task, int thread)
{
    (void)thread;
    rotation *this = context;
    this->to[task] = this->from[(task + 1) % this->count] + 1;
}

static void results_are_visible_to_the_next_run(void **state)
{
    (void)state;
    enum { RUNS = 5000, COUNT = 13 };
    for (int threads = 2; threads <= 8; threads *= 2) {
        ssm_pool *pool = NULL;
        assert_int_equal(ssm_pool_create(threads, &pool, NULL), SSM_STATUS_OK);
        int64_t values[2][COUNT];
        for (int i = 0; i < COUNT; i++) {
            values[0][i] = 1000 * i;
        }
        for (int run = 0; run < RUNS; run++) {
            rotation this = {values[run % 2], values[(run + 1) % 2], COUNT};
            ssm__pool_run(pool, rotate, &this, COUNT);
        }
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(values[RUNS % 2][i], 1000 * ((i + RUNS) % COUNT) + RUNS);
        }
        ssm_pool_free(pool);
    }
}

static void add(void *context, int64_t task, int thread)
{
    (void)task;
    (void)thread;
    atomic_fetch_add((_Atomic int *)context, 1);
}

static void nap(void)
{
    struct timespec time = {0, 3000000}; /* 3 ms: far longer than a worker spins and yields */
    nanosleep(&time, NULL);
}

/* After a pause all workers sleep, and a run must wake those with a share; a slow task makes the
 * caller sleep. */
static void slow(void *context, int64_t task, int thread)
{
    if (task % 3 == 1) {
        nap();
    }
    add(context, task, thread);
}

static void sleepers_wake(void **state)
{
    (void)state;
    ssm_pool *pool = NULL;
    assert_int_equal(ssm_pool_create(4, &pool, NULL), SSM_STATUS_OK);
    _Atomic int sum = 0;
    int expected = 0;
    for (int i = 0; i < 40; i++) {
        nap();
        ssm__pool_run(pool, i % 2 == 0 ? slow : add, &sum, i % 7);
        expected += i % 7;
        assert_int_equal(atomic_load(&sum), expected);
    }
    ssm_pool_free(pool);
}

static void pools_come_and_go(void **state)
{
    (void)state;
    _Atomic int sum = 0;
    for (int i = 0; i < 200; i++) {
        ssm_pool *pool = NULL;
        assert_int_equal(ssm_pool_create(1 + i % 5, &pool, NULL), SSM_STATUS_OK);
        if (i % 3 != 0) { /* also pools that never ran anything */
            ssm__pool_run(pool, add, &sum, 3);
        }
        ssm_pool_free(pool);
    }
    assert_int_equal(atomic_load(&sum), 3 * 133);
}

static void two_pools_in_turn(void **state)
{
    (void)state;
    ssm_pool *pools[2] = {NULL, NULL};
    assert_int_equal(ssm_pool_create(2, &pools[0], NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_pool_create(3, &pools[1], NULL), SSM_STATUS_OK);
    _Atomic int sum = 0;
    for (int i = 0; i < 2000; i++) {
        ssm__pool_run(pools[i % 2], add, &sum, 5);
    }
    assert_int_equal(atomic_load(&sum), 10000);
    ssm_pool_free(pools[0]);
    ssm_pool_free(pools[1]);
}

static void number_of_threads(void **state)
{
    (void)state;
    ssm_pool *pool = NULL;
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(ssm_pool_create(0, &pool, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_pool_threads(pool), CPU_COUNT(&set));
    ssm_pool_free(pool);

    ssm_error err = {0};
    assert_int_equal(ssm_pool_create(-1, &pool, &err), SSM_STATUS_USAGE);
    assert_null(pool);
    assert_non_null(strstr(err.message, "-1"));
    assert_int_equal(ssm_pool_create(100000, &pool, NULL), SSM_STATUS_USAGE);
}

/* Without address space for its stack a thread cannot be started; those that were must end. */
static void threads_that_cannot_start(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
    print_message("skipped: a sanitizer needs the address space itself\n");
    skip();
#else
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    FILE *sizes = fopen("/proc/self/statm", "r");
    assert_non_null(sizes);
    long pages = 0;
    assert_int_equal(fscanf(sizes, "%ld", &pages), 1);
    fclose(sizes);
    rlim_t now = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
    struct rlimit limit = {now + (64 << 20), before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    ssm_error err = {0};
    ssm_pool *pool = NULL;
    ssm_status status = ssm_pool_create(500, &pool, &err);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(status, SSM_STATUS_MEMORY);
    assert_null(pool);
    assert_non_null(strstr(err.message, "of 500 cannot be started"));
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(without_a_pool),
        cmocka_unit_test(results_are_visible_to_the_next_run),
        cmocka_unit_test(sleepers_wake),
        cmocka_unit_test(pools_come_and_go),
        cmocka_unit_test(two_pools_in_turn),
        cmocka_unit_test(number_of_threads),
        cmocka_unit_test(threads_that_cannot_start),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
