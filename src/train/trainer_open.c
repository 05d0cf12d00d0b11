/* train/trainer_open.c: opening a training run, and closing it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "train/first_weights.h"
#include "train/trainer.h"

static ssm_status open_network(ssm__trainer *t, ssm_error *err)
{
    const ssm_train_info *info = ssm_train_task_info(t->task);
    SSM__TRY(ssm__recipe_open(t->recipe, info, t->kernels, t->options->pool, &t->network, err));
    SSM__TRY(ssm__pass_create(t->network, info->length, true, &t->pass, err));
    return ssm__optimiser_create(t->network, t->kernels, t->options->pool, &t->optimiser, err);
}

static ssm_status open_batches(ssm__trainer *t, ssm_error *err)
{
    const int64_t accumulate = t->recipe->batch.accumulate;
    const ssm_train_info *info = ssm_train_task_info(t->task);
    if (accumulate % t->ranks.size != 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "batch.accumulate is %" PRId64 " and there are %d ranks: every rank "
                         "computes as many of a step's batches; expected a multiple of %d",
                         accumulate, t->ranks.size, t->ranks.size);
    }
    t->rounds = accumulate / t->ranks.size;
    t->batches = calloc((size_t)t->rounds, sizeof *t->batches);
    if (t->batches == NULL) {
        return ssm__fail_memory(err, "batches", (size_t)t->rounds * sizeof *t->batches);
    }
    for (int64_t i = 0; i < t->rounds; i++) {
        SSM__TRY(ssm_train_batch_create(t->task, t->recipe->batch.rows, info->length,
                                        &t->batches[i], err));
    }
    if (accumulate > 1) {
        const size_t floats = (size_t)ssm__network_floats(t->network);
        t->sum = calloc(floats, sizeof *t->sum);
        if (t->sum == NULL) {
            return ssm__fail_memory(err, "a sum of gradients", floats * sizeof *t->sum);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status open_text(ssm__trainer *t, ssm_error *err)
{
    t->json = ssm__recipe_json(t->recipe, t->task);
    if (t->json != NULL) {
        t->text = ssm__json_print(t->json,
                                  JSON_INDENT(2) | JSON_REAL_PRECISION(ssm__json_digits(t->json)));
    }
    return t->text == NULL ? ssm__fail_memory(err, "a recipe", 0) : SSM_STATUS_OK;
}

/* The first thing that a run makes: what stands beside it is the run's own, however early that was
 * killed. */
static bool holds_training(const char *directory)
{
    char *inner = ssm__path_join(directory, "training");
    const bool there = inner != NULL && ssm__is_directory(inner);
    free(inner);
    return there;
}

/* Makes the directory and locks it until the run ends: of two at once each would overwrite the
 * other's checkpoints. A file system without locks is used without. */
static ssm_status take_directory(ssm__trainer *t, ssm_error *err)
{
    char *inner = ssm__path_join(t->directory, "training");
    ssm_status status = inner == NULL ? ssm__fail_memory(err, "a path", strlen(t->directory))
                                      : ssm__make_directories(inner, err);
    if (status == SSM_STATUS_OK) {
        t->lock = open(inner, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (t->lock >= 0 && flock(t->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            status = ssm__fail(err, SSM_STATUS_FAILED, SSM__IN_FILE(t->directory),
                               "another process is training into this directory: wait until it is "
                               "done, or choose another");
        }
    }
    free(inner);
    return status;
}

static ssm_status log_head(ssm__trainer *t, ssm_error *err)
{
    json_t *line = json_pack("{s:s, s:s, s:s, s:I, s:O}", "schema", "ssmscope.train/1", "version",
                             ssm_version(), "data", ssm_train_task_digest(t->task), "parameters",
                             (json_int_t)ssm__count_parameters(t->network), "recipe", t->json);
    return ssm__log_add(t->log, line, err);
}

static ssm_status begin(ssm__trainer *t, ssm_error *err)
{
    SSM__TRY(ssm__write_recipe(t->json, t->directory, err));
    SSM__TRY(ssm__write_tokenizer(t->recipe, ssm_train_task_info(t->task), t->directory, err));
    SSM__TRY(ssm__log_open(t->directory, -1, &t->log, err));
    return log_head(t, err);
}

static ssm_status go_on(ssm__trainer *t, ssm_error *err)
{
    SSM__TRY(ssm__read_state(&t->optimiser, t->json, ssm_train_task_digest(t->task), t->directory,
                             &t->position, err));
    const ssm__recipe_batch *b = &t->recipe->batch;
    const int64_t length = ssm_train_task_info(t->task)->length;
    int64_t tokens = 0;
    if (!ssm__mul_dim(b->accumulate * b->rows, length, &tokens) ||
        !ssm__mul_dim(tokens, t->position.step, &tokens) || tokens != t->position.tokens) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(t->directory),
                         "training/state.safetensors has seen %" PRId64 " tokens in %" PRId64
                         " steps; expected %" PRId64 ": begin the run anew in another directory",
                         t->position.tokens, t->position.step, tokens);
    }
    return ssm__log_open(t->directory, t->position.step, &t->log, err);
}

/* What every rank has of its own. */
static ssm_status open_parts(ssm__trainer *t, ssm_error *err)
{
    SSM__TRY(ssm__recipe_task(t->recipe, &t->task, err));
    SSM__TRY(open_network(t, err));
    SSM__TRY(open_batches(t, err));
    return open_text(t, err);
}

static ssm_status open_directory(ssm__trainer *t, ssm_error *err)
{
    const bool resume = t->options->resume;
    if (!resume || !ssm__has_state(t->directory)) {
        if (!resume || !holds_training(t->directory)) {
            SSM__TRY(ssm__check_no_model(t->directory, err));
        }
        /* What is wrong with the first weights leaves nothing behind. */
        SSM__TRY(ssm__first_weights(t->network, t->recipe, err));
    }
    SSM__TRY(take_directory(t, err));
    if (!resume) { /* another may have trained there in between */
        SSM__TRY(ssm__check_no_model(t->directory, err));
    }
    return resume && ssm__has_state(t->directory) ? go_on(t, err) : begin(t, err);
}

/* That the ranks are about to train the same model. */
static ssm_status check_alike(ssm__trainer *t, ssm_error *err)
{
    char digest[64];
    snprintf(digest, sizeof digest, "%.63s", ssm_version());
    SSM__TRY(ssm__ranks_alike(&t->ranks, "the version of ssmscope", digest, err));
    ssm__digest_bytes(t->text, strlen(t->text), digest);
    SSM__TRY(ssm__ranks_alike(&t->ranks, "the recipe", digest, err));
    snprintf(digest, sizeof digest, "%.63s", ssm_train_task_digest(t->task));
    return ssm__ranks_alike(&t->ranks, "the data", digest, err);
}

/* Every rank goes on from what rank 0 has drawn or read. */
static ssm_status copy_state(ssm__trainer *t, ssm_error *err)
{
    const size_t bytes = (size_t)ssm__network_floats(t->network) * sizeof(float);
    SSM__TRY(ssm__ranks_copy(&t->ranks, ssm__network_values(t->network), bytes, err));
    SSM__TRY(ssm__ranks_copy(&t->ranks, t->optimiser.first, bytes, err));
    SSM__TRY(ssm__ranks_copy(&t->ranks, t->optimiser.second, bytes, err));
    SSM__TRY(ssm__ranks_copy(&t->ranks, &t->position, sizeof t->position, err));
    t->first_step = t->written = t->position.step;
    return SSM_STATUS_OK;
}

ssm_status ssm__open_run(ssm__trainer *t, ssm_error *err)
{
    ssm_status status = ssm__ranks_open(t->options->ranks, &t->ranks, err);
    status = status == SSM_STATUS_OK ? open_parts(t, err) : status;
    SSM__TRY(ssm__train_meet(t, status, err));
    SSM__TRY(check_alike(t, err));
    SSM__TRY(
        ssm__train_meet(t, ssm__train_writes(t) ? open_directory(t, err) : SSM_STATUS_OK, err));
    return copy_state(t, err);
}

void ssm__close_run(ssm__trainer *t)
{
    for (int64_t i = 0; t->batches != NULL && i < t->rounds; i++) {
        ssm_train_batch_free(&t->batches[i]);
    }
    free(t->batches);
    free(t->sum);
    ssm__ranks_close(&t->ranks);
    ssm__optimiser_free(&t->optimiser);
    ssm__pass_free(t->pass);
    ssm__network_free(t->network);
    ssm_train_task_free(t->task);
    ssm__log_close(t->log);
    json_decref(t->json);
    json_decref(t->evaluation);
    free(t->text);
    if (t->lock >= 0) {
        close(t->lock);
    }
}
