/* Runs over several ranks, here threads with a connection through memory: the bytes of one process,
 * one error for all, and nobody who waits for ever. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/train.h>

#include "base/error.h"
#include "base/file.h"
#include "test_training.h"
#include "train/ranks.h"

enum { MOST = 12 };

#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        ssm_error err;                                                                             \
        ssm_error_clear(&err);                                                                     \
        if ((call) != SSM_STATUS_OK) {                                                             \
            fail_msg("%s: %s: %s", #call, err.file, err.message);                                  \
        }                                                                                          \
    } while (0)

static const char small[] =
    "{\"seed\": 2, \"model\": {\"d_model\": 16, \"n_layers\": 2, \"d_state\": 4, \"dropout\": 0.1},"
    " \"task\": {\"name\": \"copy\", \"min\": 2, \"max\": 4, \"letters\": 5, \"length\": 24,"
    " \"evaluate\": [3]},"
    " \"batch\": {\"rows\": 2, \"accumulate\": 12}, \"optimiser\": {\"lr\": 0.01},"
    " \"evaluate\": {\"rows\": 4, \"every\": 3}, \"checkpoint\": {\"every\": 2},"
    " \"schedule\": {\"steps\": 6, \"warmup\": 2}}";

static void check_run(const char *one, const char *other)
{
    training_same(one, other, "model.safetensors");
    training_same(one, other, "training/state.safetensors");
    training_same(one, other, "training/result.json");
}

/* ---- the connection -------------------------------------------------------------------------- */

typedef struct meeting {
    pthread_barrier_t barrier;
    int size;
    const void *out[MOST]; /* what everybody has brought */
} meeting;

typedef struct member {
    meeting *meeting;
    int rank;
    int calls_left; /* then the connection is lost; the same on all ranks */
    size_t most;    /* bytes in a call, of all ranks */
} member;

static bool lost(member *m, size_t bytes)
{
    m->most = bytes > m->most ? bytes : m->most;
    return m->calls_left-- <= 0;
}

static bool exchange(void *context, const void *out, void *in, size_t bytes)
{
    member *m = context;
    if (lost(m, bytes * (size_t)m->meeting->size)) {
        return false;
    }
    m->meeting->out[m->rank] = out;
    pthread_barrier_wait(&m->meeting->barrier);
    for (int k = 0; k < m->meeting->size; k++) {
        memcpy((char *)in + (size_t)k * bytes,
               (const char *)m->meeting->out[k] + (size_t)m->rank * bytes, bytes);
    }
    pthread_barrier_wait(&m->meeting->barrier);
    return true;
}

static bool gather(void *context, const void *own, void *all, size_t bytes)
{
    member *m = context;
    if (lost(m, bytes * (size_t)m->meeting->size)) {
        return false;
    }
    m->meeting->out[m->rank] = own;
    pthread_barrier_wait(&m->meeting->barrier);
    for (int k = 0; k < m->meeting->size; k++) {
        memcpy((char *)all + (size_t)k * bytes, m->meeting->out[k], bytes);
    }
    pthread_barrier_wait(&m->meeting->barrier);
    return true;
}

static bool broadcast(void *context, int from, void *data, size_t bytes)
{
    member *m = context;
    if (lost(m, bytes)) {
        return false;
    }
    m->meeting->out[m->rank] = data;
    pthread_barrier_wait(&m->meeting->barrier);
    if (m->rank != from) {
        memcpy(data, m->meeting->out[from], bytes);
    }
    pthread_barrier_wait(&m->meeting->barrier);
    return true;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

typedef struct rank {
    member member;
    ssm_train_ranks table;
    void (*work)(struct rank *rank);
    ssm_status status;
    ssm_error err;
    /* a run */
    const ssm_recipe *recipe;
    char path[TRAINING_PATH];
    bool resume;
    int64_t steps_left; /* until this rank wants to stop; below 0: never */
    ssm_train_result result;
    /* a sum */
    float *gradients, *sum;
    int64_t floats;
} rank;

static void *run_rank(void *context)
{
    rank *r = context;
    r->work(r);
    return NULL;
}

static void create_ranks(rank *ranks, meeting *m, int size, void (*work)(rank *rank))
{
    m->size = size;
    assert_int_equal(pthread_barrier_init(&m->barrier, NULL, (unsigned)size), 0);
    for (int k = 0; k < size; k++) {
        rank *r = &ranks[k];
        *r = (rank){.member = {m, k, INT32_MAX, 0}, .work = work, .steps_left = -1};
        r->table = (ssm_train_ranks){&r->member, k, size, exchange, gather, broadcast};
        ssm_error_clear(&r->err);
    }
}

static void run_ranks(rank *ranks, meeting *m)
{
    pthread_t threads[MOST];
    for (int k = 0; k < m->size; k++) {
        assert_int_equal(pthread_create(&threads[k], NULL, run_rank, &ranks[k]), 0);
    }
    for (int k = 0; k < m->size; k++) {
        pthread_join(threads[k], NULL);
    }
    pthread_barrier_destroy(&m->barrier);
}

static bool report(void *context, const char *what, int64_t done, int64_t total, const char *unit)
{
    rank *r = context;
    (void)what;
    (void)done;
    (void)total;
    (void)unit;
    return r->steps_left < 0 || r->steps_left-- > 0;
}

static void train_rank(rank *r)
{
    const ssm_progress progress = {.context = r, .report = report};
    const ssm_train_options options = {
        .resume = r->resume, .progress = &progress, .ranks = &r->table};
    r->status = ssm_train(r->recipe, r->path, &options, &r->result, &r->err);
    free(r->result.evaluation);
}

static void create_runs(rank *ranks, meeting *m, int size, const ssm_recipe *recipe,
                        const char *name)
{
    create_ranks(ranks, m, size, train_rank);
    for (int k = 0; k < size; k++) {
        ranks[k].recipe = recipe;
        training_path(name, ranks[k].path);
    }
}

static void train_alone(const ssm_recipe *recipe, const char *name)
{
    char path[TRAINING_PATH];
    const ssm_train_options options = {.isa = SSM_ISA_AUTO};
    ssm_train_result result;
    CHECK_OK(ssm_train(recipe, training_path(name, path), &options, &result, &err));
    free(result.evaluation);
}

/* All ranks came to the same end. */
static void check_end(const rank *ranks, int size, ssm_status wanted, const char *says)
{
    for (int k = 0; k < size; k++) {
        if (ranks[k].status != wanted || strstr(ranks[k].err.message, says) == NULL) {
            fail_msg("rank %d of %d: status %d, not %d: %s", k, size, (int)ranks[k].status,
                     (int)wanted, ranks[k].err.message);
        }
    }
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void test_any_number_of_ranks(void **state)
{
    static const int sizes[] = {1, 2, 3, 4, 12};
    (void)state;
    rank ranks[MOST];
    ssm_recipe *recipe = training_recipe(small);
    train_alone(recipe, "alone");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char name[24];
        meeting m;
        snprintf(name, sizeof name, "ranks%d", sizes[i]);
        create_runs(ranks, &m, sizes[i], recipe, name);
        run_ranks(ranks, &m);
        check_end(ranks, sizes[i], SSM_STATUS_OK, "");
        for (int k = 0; k < sizes[i]; k++) {
            assert_int_equal(ranks[k].result.steps, 6);
            assert_int_equal(ranks[k].result.tokens, 6 * 12 * 2 * 24);
            assert_true(ranks[k].member.most <= (size_t)1 << 22);
        }
        check_run("alone", name);
    }
    ssm_recipe_free(recipe);
}

/* What the last rank wants all do; then another number of ranks goes on, and one process. */
static void test_stop_and_resume(void **state)
{
    static const int sizes[] = {2, 4, 1, 3};
    (void)state;
    rank ranks[MOST];
    ssm_recipe *recipe = training_recipe(small);
    train_alone(recipe, "whole");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const bool last = i + 1 == sizeof sizes / sizeof sizes[0];
        meeting m;
        create_runs(ranks, &m, sizes[i], recipe, "stopped");
        for (int k = 0; k < sizes[i]; k++) {
            ranks[k].resume = i > 0;
        }
        ranks[sizes[i] - 1].steps_left = last ? -1 : 1;
        run_ranks(ranks, &m);
        check_end(ranks, sizes[i], last ? SSM_STATUS_OK : SSM_STATUS_INTERRUPTED,
                  last ? "" : "interrupted behind step");
        if (last) {
            assert_int_equal(ranks[2].result.first_step, 3);
        }
    }
    check_run("whole", "stopped");
    ssm_recipe_free(recipe);
}

/* More than one piece, blocks that end early, blocks of nobody. */
static void sum_rank(rank *r)
{
    const ssm__kernels *kernels = ssm__kernels_for(SSM_ISA_AUTO);
    ssm__ranks ranks;
    r->status = ssm__ranks_open(&r->table, &ranks, &r->err);
    for (int round = 0; round < 2 && r->status == SSM_STATUS_OK; round++) {
        r->status =
            ssm__ranks_add(&ranks, kernels, r->gradients, round == 0, r->sum, r->floats, &r->err);
    }
    if (r->status == SSM_STATUS_OK) {
        r->status = ssm__ranks_gather(&ranks, r->sum, r->floats, &r->err);
    }
    ssm__ranks_close(&ranks);
}

static void check_sum(int size, int64_t floats)
{
    rank ranks[MOST];
    meeting m;
    ssm_rng rng = ssm_rng_create(5, "gradients");
    float *all = malloc((size_t)((2 * size + 1) * floats) * sizeof *all);
    assert_non_null(all);
    create_ranks(ranks, &m, size, sum_rank);
    for (int k = 0; k < size; k++) {
        ranks[k].floats = floats;
        ranks[k].gradients = all + k * floats;
        ranks[k].sum = all + (size + k) * floats;
        for (int64_t i = 0; i < floats; i++) {
            ranks[k].gradients[i] = (float)ssm_rng_u32(&rng) * 1e-9f - 2.0f;
        }
    }
    run_ranks(ranks, &m);
    check_end(ranks, size, SSM_STATUS_OK, "");
    float *expected = all + 2 * size * floats;
    for (int64_t i = 0; i < floats; i++) {
        expected[i] = all[i];
        for (int k = 1; k < 2 * size; k++) {
            expected[i] += ranks[k % size].gradients[i];
        }
    }
    for (int k = 0; k < size; k++) {
        if (memcmp(ranks[k].sum, expected, (size_t)floats * sizeof *expected) != 0) {
            fail_msg("rank %d of %d, %lld floats: another sum", k, size, (long long)floats);
        }
    }
    free(all);
}

static void test_sums(void **state)
{
    (void)state;
    for (int size = 2; size <= 7; size++) {
        check_sum(size, 16);
        check_sum(size, 16 * (2 * size + 1));
    }
    check_sum(3, (2 << 20) + 48);
}

/* ---- what stops a run ------------------------------------------------------------------------ */

static void test_ranks_must_divide_the_batches(void **state)
{
    (void)state;
    rank ranks[MOST];
    meeting m;
    ssm_recipe *recipe = training_recipe(small);
    create_runs(ranks, &m, 5, recipe, "five");
    run_ranks(ranks, &m);
    check_end(ranks, 5, SSM_STATUS_USAGE, "batch.accumulate is 12 and there are 5 ranks");
    ssm_recipe_free(recipe);
}

static void test_another_recipe(void **state)
{
    (void)state;
    rank ranks[MOST];
    meeting m;
    ssm_recipe *recipe = training_recipe(small), *other = training_recipe(small);
    CHECK_OK(ssm_recipe_set(other, "lr", "0.02", &err));
    create_runs(ranks, &m, 3, recipe, "other");
    ranks[2].recipe = other;
    run_ranks(ranks, &m);
    check_end(ranks, 3, SSM_STATUS_FAILED, "rank 2: the recipe is not that of rank 0: xxh3-128:");
    ssm_recipe_free(recipe);
    ssm_recipe_free(other);
}

/* Two fail, each with its own words: the lower one's are everybody's. */
static void test_one_rank_cannot_begin(void **state)
{
    (void)state;
    rank ranks[MOST];
    meeting m;
    ssm_recipe *recipe = training_recipe(small), *wrong = training_recipe(small),
               *none = training_recipe("{}");
    CHECK_OK(ssm_recipe_set(wrong, "vocab_size", "5", &err));
    create_runs(ranks, &m, 4, recipe, "none");
    ranks[1].recipe = none;
    ranks[3].recipe = wrong;
    run_ranks(ranks, &m);
    check_end(ranks, 4, SSM_STATUS_FILE, "rank 1: the recipe has no task");
    for (int k = 0; k < 4; k++) {
        assert_non_null(strstr(ranks[k].err.file, "recipe.json"));
    }
    ssm_recipe_free(recipe);
    ssm_recipe_free(wrong);
    ssm_recipe_free(none);
}

static void test_directory_is_taken(void **state)
{
    (void)state;
    rank ranks[MOST];
    meeting m;
    ssm_recipe *recipe = training_recipe(small);
    train_alone(recipe, "taken");
    create_runs(ranks, &m, 2, recipe, "taken");
    run_ranks(ranks, &m);
    check_end(ranks, 2, SSM_STATUS_USAGE, "already holds a model or a run");
    ssm_recipe_free(recipe);
}

static void test_not_finite(void **state)
{
    (void)state;
    rank ranks[MOST];
    meeting m;
    char path[TRAINING_PATH];
    ssm_train_result result;
    ssm_error record;
    ssm_recipe *recipe = training_recipe(small);
    CHECK_OK(ssm_recipe_set(recipe, "lr", "1000", &err));
    CHECK_OK(ssm_recipe_set(recipe, "clip", "0", &err));
    CHECK_OK(ssm_recipe_set(recipe, "steps", "200", &err));
    const ssm_train_options options = {.isa = SSM_ISA_AUTO};
    ssm_error_clear(&record);
    assert_int_equal(ssm_train(recipe, training_path("wild1", path), &options, &result, &record),
                     SSM_STATUS_FAILED);
    create_runs(ranks, &m, 3, recipe, "wild3");
    run_ranks(ranks, &m);
    const char *batch =
        strstr(record.message, "step "); /* the same one; its rank is said in front */
    assert_non_null(batch);
    check_end(ranks, 3, SSM_STATUS_FAILED, batch);
    for (int k = 0; k < 3; k++) {
        assert_true(ranks[k].result.not_finite);
    }
    ssm_recipe_free(recipe);
}

/* Wherever the connection breaks, nobody waits, and the run can be gone on with. */
static void test_lost_connection(void **state)
{
    static const int calls[] = {0, 1, 3, 8, 11, 13, 15, 19, 27, 43, 67};
    (void)state;
    rank ranks[MOST];
    ssm_recipe *recipe = training_recipe(small);
    train_alone(recipe, "connected");
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        meeting m;
        create_runs(ranks, &m, 2, recipe, "lost");
        for (int k = 0; k < 2; k++) {
            ranks[k].member.calls_left = calls[i];
            ranks[k].resume = true;
        }
        run_ranks(ranks, &m);
        check_end(ranks, 2, SSM_STATUS_FAILED, "has lost the connection to the other 1");
    }
    meeting m;
    create_runs(ranks, &m, 2, recipe, "lost");
    ranks[0].resume = ranks[1].resume = true;
    run_ranks(ranks, &m);
    check_end(ranks, 2, SSM_STATUS_OK, "");
    check_run("connected", "lost");
    ssm_recipe_free(recipe);
}

static void agree_rank(rank *r)
{
    if (r->table.rank == 2) {
        ssm__fail(&r->err, SSM_STATUS_FILE, SSM__IN_FILE("text"), "is not there");
        r->status = SSM_STATUS_FILE;
    }
    r->status = ssm_train_agree(&r->table, r->status, &r->err);
}

static void test_agree(void **state)
{
    (void)state;
    rank ranks[MOST];
    meeting m;
    ssm_error err;
    create_ranks(ranks, &m, 4, agree_rank);
    run_ranks(ranks, &m);
    check_end(ranks, 4, SSM_STATUS_FILE, "rank 2: is not there");
    assert_string_equal(ranks[0].err.file, "text");
    assert_int_equal(ssm_train_agree(NULL, SSM_STATUS_USAGE, NULL), SSM_STATUS_USAGE);
    const ssm_train_ranks nobody = {.rank = 3, .size = 3};
    ssm__ranks opened;
    ssm_error_clear(&err);
    assert_int_equal(ssm__ranks_open(&nobody, &opened, &err), SSM_STATUS_USAGE);
    ssm__ranks_close(&opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_ranks),
        cmocka_unit_test(test_stop_and_resume),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_ranks_must_divide_the_batches),
        cmocka_unit_test(test_another_recipe),
        cmocka_unit_test(test_one_rank_cannot_begin),
        cmocka_unit_test(test_directory_is_taken),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_lost_connection),
        cmocka_unit_test(test_agree),
    };
    return cmocka_run_group_tests(tests, training_set_up, training_tear_down);
}
