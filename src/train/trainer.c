/* train/trainer.c: a training run: opening, steps, checkpoints.
 *
 * Batch number b of the run has the task's rows b·rows …, step s uses the batches (s −
 * 1)·accumulate …: the position in the data, and every dropout mask, follow from the number of
 * steps done. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "train/checkpointing.h"
#include "train/evaluation.h"
#include "train/first_weights.h"
#include "train/recipe.h"
#include "train/task.h"
#include "train/work.h"

typedef struct trainer {
    const ssm_recipe *recipe;
    const char *directory;
    const ssm_train_options *options;
    const ssm__kernels *kernels;
    ssm_train_task *task;
    ssm__network *network;
    ssm__pass *pass;
    ssm__optimiser optimiser;
    ssm_train_batch *batches; /* [accumulate] */
    int64_t labels;           /* of the step under way */
    float *sum;               /* of the gradients of a step's batches; NULL: one batch a step */
    json_t *json;             /* the recipe as it holds */
    char *text;
    int lock;
    ssm__log *log;
    ssm__position position;
    int64_t first_step;
    double started, last_line; /* seconds */
    int64_t last_tokens;
    double loss, norm;  /* of the last step */
    double stepped;     /* when it was done */
    json_t *evaluation; /* the last one */
    int64_t written;    /* step of the last checkpoint */
    bool not_finite;
} trainer;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- opening --------------------------------------------------------------------------------- */

static ssm_status open_network(trainer *t, ssm_error *err)
{
    const ssm_train_info *info = ssm_train_task_info(t->task);
    SSM__TRY(ssm__recipe_open(t->recipe, info, t->kernels, t->options->pool, &t->network, err));
    SSM__TRY(ssm__pass_create(t->network, info->length, true, &t->pass, err));
    return ssm__optimiser_create(t->network, t->kernels, t->options->pool, &t->optimiser, err);
}

static ssm_status open_batches(trainer *t, ssm_error *err)
{
    const int64_t accumulate = t->recipe->batch.accumulate;
    const ssm_train_info *info = ssm_train_task_info(t->task);
    t->batches = calloc((size_t)accumulate, sizeof *t->batches);
    if (t->batches == NULL) {
        return ssm__fail_memory(err, "batches", (size_t)accumulate * sizeof *t->batches);
    }
    for (int64_t i = 0; i < accumulate; i++) {
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

static ssm_status open_text(trainer *t, ssm_error *err)
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
static ssm_status take_directory(trainer *t, ssm_error *err)
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

static ssm_status log_head(trainer *t, ssm_error *err)
{
    json_t *line = json_pack("{s:s, s:s, s:s, s:I, s:O}", "schema", "ssmscope.train/1", "version",
                             ssm_version(), "data", ssm_train_task_digest(t->task), "parameters",
                             (json_int_t)ssm__count_parameters(t->network), "recipe", t->json);
    return ssm__log_add(t->log, line, err);
}

static ssm_status begin(trainer *t, ssm_error *err)
{
    SSM__TRY(ssm__first_weights(t->network, t->recipe, err));
    SSM__TRY(ssm__write_recipe(t->json, t->directory, err));
    SSM__TRY(ssm__write_tokenizer(t->recipe, ssm_train_task_info(t->task), t->directory, err));
    SSM__TRY(ssm__log_open(t->directory, -1, &t->log, err));
    return log_head(t, err);
}

static ssm_status go_on(trainer *t, ssm_error *err)
{
    SSM__TRY(ssm__read_state(&t->optimiser, t->json, ssm_train_task_digest(t->task), t->directory,
                             &t->position, err));
    t->first_step = t->written = t->position.step;
    return ssm__log_open(t->directory, t->position.step, &t->log, err);
}

static ssm_status open_run(trainer *t, ssm_error *err)
{
    SSM__TRY(ssm__recipe_task(t->recipe, &t->task, err));
    SSM__TRY(open_network(t, err));
    SSM__TRY(open_batches(t, err));
    SSM__TRY(open_text(t, err));
    const bool resumed = t->options->resume && ssm__has_state(t->directory);
    if (!resumed && !(t->options->resume && holds_training(t->directory))) {
        SSM__TRY(ssm__check_no_model(t->directory, err));
    }
    SSM__TRY(take_directory(t, err));
    return resumed ? go_on(t, err) : begin(t, err);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* The batches of step `step`, and how many labels they have. */
static ssm_status make_batches(trainer *t, int64_t step, ssm_error *err)
{
    const ssm__recipe_batch *b = &t->recipe->batch;
    const ssm__network_config *config = ssm__network_config_of(t->network);
    t->labels = 0;
    for (int64_t i = 0; i < b->accumulate; i++) {
        char what[64];
        const int64_t number = (step - 1) * b->accumulate + i;
        ssm_train_task_rows(t->task, number * b->rows, &t->batches[i]);
        snprintf(what, sizeof what, "step %" PRId64 ", batch %" PRId64, step, number);
        SSM__TRY(ssm__check_batch(config, &t->batches[i], what, err));
        t->labels += ssm__batch_labels(config, &t->batches[i]);
    }
    if (t->labels == 0) {
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                         "step %" PRId64 " has no label to learn from", step);
    }
    return SSM_STATUS_OK;
}

static ssm_status fail_not_finite(trainer *t, int64_t step, int64_t batch, ssm_error *err)
{
    t->not_finite = true;
    char bad[256] = "the loss is not finite";
    ssm__pass_not_finite(t->pass, bad, sizeof bad);
    return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                     "step %" PRId64 ", batch %" PRId64 ": %s; the last checkpoint is of step "
                     "%" PRId64 "; a lower learning rate or a longer warm-up may help",
                     step, batch, bad, t->written);
}

static ssm_status gradients_of(trainer *t, int64_t step, int64_t i, ssm__loss *total,
                               ssm_error *err)
{
    const size_t floats = (size_t)ssm__network_floats(t->network);
    float *gradients = ssm__network_gradients(t->network);
    const int64_t number = (step - 1) * t->recipe->batch.accumulate + i;
    const ssm__dropout dropout = {.seed = (uint64_t)t->recipe->seed, .number = (uint64_t)number};
    ssm__loss loss;
    memset(gradients, 0, floats * sizeof *gradients);
    ssm__pass_train(t->pass, &t->batches[i], 1.0 / (double)t->labels, &dropout, &loss);
    total->sum += loss.sum;
    total->count += loss.count;
    if (!isfinite(loss.sum)) {
        return fail_not_finite(t, step, number, err);
    }
    if (t->sum != NULL && i == 0) {
        memcpy(t->sum, gradients, floats * sizeof *gradients);
    } else if (t->sum != NULL) {
        t->kernels->add(gradients, t->sum, (int64_t)floats);
    }
    return SSM_STATUS_OK;
}

static ssm_status take_step(trainer *t, int64_t step, ssm_error *err)
{
    const double clip = t->recipe->optimiser.clip;
    ssm__loss total = {0};
    SSM__TRY(make_batches(t, step, err));
    for (int64_t i = 0; i < t->recipe->batch.accumulate; i++) {
        SSM__TRY(gradients_of(t, step, i, &total, err));
    }
    float *gradients = t->sum != NULL ? t->sum : ssm__network_gradients(t->network);
    t->norm = ssm__gradient_norm(&t->optimiser, gradients);
    if (!isfinite(t->norm)) {
        return fail_not_finite(t, step, step * t->recipe->batch.accumulate - 1, err);
    }
    const double scale = clip > 0 && t->norm > clip ? clip / t->norm : 1;
    ssm__optimiser_step(&t->optimiser, t->recipe, step, gradients, scale);
    t->loss = total.sum / (double)total.count;
    t->position.step = step;
    for (int64_t i = 0; i < t->recipe->batch.accumulate; i++) {
        t->position.tokens += t->batches[i].rows * t->batches[i].length;
    }
    const int64_t steps = t->recipe->schedule.steps;
    if (step > steps - (steps + 9) / 10) {
        t->position.tail += t->loss;
        t->position.tail_count++;
    }
    return SSM_STATUS_OK;
}

/* ---- between steps --------------------------------------------------------------------------- */

static bool due(int64_t step, int64_t every, int64_t steps)
{
    return step == steps || (every > 0 && step % every == 0);
}

static ssm_status evaluate(trainer *t, ssm_error *err)
{
    json_decref(t->evaluation);
    t->evaluation = NULL;
    return ssm__evaluate_task(t->network, t->task, t->recipe->evaluate.rows, t->recipe->batch.rows,
                              &t->evaluation, err);
}

/* The line of the step; evaluated: with what was measured at it. */
static ssm_status add_line(trainer *t, bool evaluated, ssm_error *err)
{
    const double seconds = t->stepped; /* an evaluation is not part of the rate */
    const double rate =
        (double)(t->position.tokens - t->last_tokens) / fmax(seconds - t->last_line, 1e-9);
    const double lr = ssm__learning_rate(t->recipe, t->position.step);
    json_t *line = json_pack("{s:I, s:f, s:f, s:f, s:I, s:f, s:f}", "step",
                             (json_int_t)t->position.step, "loss", t->loss, "learning_rate", lr,
                             "gradient_norm", t->norm, "tokens", (json_int_t)t->position.tokens,
                             "tokens_per_second", rate, "seconds", seconds - t->started);
    char *text = NULL;
    if (line != NULL && evaluated) {
        text = ssm__json_print(t->evaluation, JSON_COMPACT | JSON_REAL_PRECISION(9));
        if (text == NULL || json_object_set(line, "evaluation", t->evaluation) != 0) {
            json_decref(line);
            line = NULL;
        }
    }
    const ssm_status status = ssm__log_add(t->log, line, err);
    if (status == SSM_STATUS_OK && t->options->line != NULL) {
        const ssm_train_line out = {.step = t->position.step,
                                    .steps = t->recipe->schedule.steps,
                                    .loss = t->loss,
                                    .learning_rate = lr,
                                    .gradient_norm = t->norm,
                                    .tokens_per_second = rate,
                                    .seconds = seconds - t->started,
                                    .evaluation = text};
        t->options->line(t->options->context, &out);
    }
    free(text);
    t->last_line = now();
    t->last_tokens = t->position.tokens;
    return status;
}

/* The model first: what is resumed from is the state, and it then has a model at least as new. */
static ssm_status write_checkpoint(trainer *t, ssm_error *err)
{
    SSM__TRY(ssm__write_model(t->network, t->directory, err));
    SSM__TRY(ssm__write_state(&t->optimiser, &t->position, t->text, ssm_train_task_digest(t->task),
                              t->directory, err));
    t->written = t->position.step;
    return SSM_STATUS_OK;
}

/* training/result.json: what a finished run came to, for those who look later. */
static ssm_status write_result(const trainer *t, ssm_error *err)
{
    json_t *result =
        json_pack("{s:s, s:I, s:I, s:f, s:O?}", "schema", "ssmscope.training_result/1", "steps",
                  (json_int_t)t->position.step, "tokens", (json_int_t)t->position.tokens, "loss",
                  t->position.tail / (double)t->position.tail_count, "evaluation", t->evaluation);
    return ssm__json_write(result, JSON_INDENT(2) | JSON_REAL_PRECISION(9), t->directory,
                           "training/result.json", err);
}

/* Of a run that is resumed at its end; a result that cannot be read is made again. */
static ssm_status read_result(trainer *t, ssm_error *err)
{
    char *path = ssm__path_join(t->directory, "training/result.json");
    json_t *result = NULL;
    if (path == NULL) {
        return ssm__fail_memory(err, "a path", strlen(t->directory));
    }
    ssm_error own;
    ssm_error_clear(&own);
    const ssm_status status = ssm__is_file(path)
                                  ? ssm__json_read(path, 1 << 22, SSM__JSON_STRICT, &result, &own)
                                  : SSM_STATUS_OK;
    json_t *evaluation = json_object_get(result, "evaluation");
    t->evaluation = json_is_object(evaluation) ? json_incref(evaluation) : NULL;
    json_decref(result);
    free(path);
    return status == SSM_STATUS_MEMORY ? ssm__fail_memory(err, "a result", 0) : SSM_STATUS_OK;
}

static ssm_status finish_run(trainer *t, ssm_error *err)
{
    if (t->evaluation == NULL) {
        SSM__TRY(read_result(t, err));
    }
    if (t->evaluation == NULL && t->recipe->evaluate.rows > 0) { /* killed in between */
        SSM__TRY(evaluate(t, err));
    }
    return write_result(t, err);
}

static ssm_status run_steps(trainer *t, ssm_error *err)
{
    const ssm_recipe *r = t->recipe;
    const int64_t steps = r->schedule.steps;
    t->last_line = now();
    t->last_tokens = t->position.tokens;
    for (int64_t step = t->position.step + 1; step <= steps; step++) {
        const ssm_progress *p = t->options->progress;
        if (p != NULL && p->report != NULL &&
            !p->report(p->context, "train", step - 1, steps, "steps")) {
            SSM__TRY(write_checkpoint(t, err));
            return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                             "interrupted behind step %" PRId64 "; resume goes on from there",
                             step - 1);
        }
        SSM__TRY(take_step(t, step, err));
        t->stepped = now();
        const bool evaluated = r->evaluate.rows > 0 && due(step, r->evaluate.every, steps);
        if (evaluated) {
            SSM__TRY(evaluate(t, err));
        }
        if (evaluated || due(step, r->checkpoint.log, steps)) {
            SSM__TRY(add_line(t, evaluated, err));
        }
        if (due(step, r->checkpoint.every, steps)) {
            SSM__TRY(write_checkpoint(t, err));
        }
    }
    return finish_run(t, err);
}

/* ---- the run --------------------------------------------------------------------------------- */

static ssm_status fill_result(const trainer *t, ssm_train_result *out, ssm_error *err)
{
    const size_t floats = (size_t)ssm__network_floats(t->network);
    const int64_t arrays = t->sum != NULL ? 5 : 4;
    *out = (ssm_train_result){.steps = t->position.step,
                              .first_step = t->first_step,
                              .parameters = ssm__count_parameters(t->network),
                              .tokens = t->position.tokens,
                              .seconds = now() - t->started,
                              .bytes = ssm__pass_bytes(t->pass) +
                                       floats * (size_t)arrays * sizeof(float)};
    out->loss = t->position.tail_count == 0 ? (double)NAN
                                            : t->position.tail / (double)t->position.tail_count;
    if (t->evaluation != NULL) {
        out->evaluation = ssm__json_print(t->evaluation, JSON_COMPACT | JSON_REAL_PRECISION(9));
        if (out->evaluation == NULL) {
            return ssm__fail_memory(err, "an evaluation", 0);
        }
    }
    return SSM_STATUS_OK;
}

static void close_run(trainer *t)
{
    for (int64_t i = 0; t->batches != NULL && i < t->recipe->batch.accumulate; i++) {
        ssm_train_batch_free(&t->batches[i]);
    }
    free(t->batches);
    free(t->sum);
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

ssm_status ssm_train(const ssm_recipe *recipe, const char *directory,
                     const ssm_train_options *options, ssm_train_result *out, ssm_error *err)
{
    trainer t = {.recipe = recipe,
                 .directory = directory,
                 .options = options,
                 .kernels = ssm__kernels_for(options->isa),
                 .lock = -1,
                 .started = now()};
    *out = (ssm_train_result){0};
    ssm_status status = open_run(&t, err);
    if (status == SSM_STATUS_OK) {
        status = run_steps(&t, err);
    }
    if (status == SSM_STATUS_OK) {
        status = fill_result(&t, out, err);
    }
    out->not_finite = t.not_finite;
    close_run(&t);
    return status;
}
