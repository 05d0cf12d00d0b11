/* train/trainer.c: a training run: steps, and what is due between them.
 *
 * Batch number b of the run has the task's rows b·rows …, step s uses the batches (s −
 * 1)·accumulate …: the position in the data, and every dropout mask, follow from the number of
 * steps done. Of several ranks each has every size-th batch, and the weights; rank 0 alone has the
 * directory. What one rank does alone ends where all of them meet (ranks.h). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "train/evaluation.h"
#include "train/trainer.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Of the run: this rank's batch in a round of a step. */
static int64_t batch_number(const ssm__trainer *t, int64_t step, int64_t round)
{
    return (step - 1) * t->recipe->batch.accumulate + round * t->ranks.size + t->ranks.rank;
}

/* This rank's batches of step `step`, and how many labels they have. */
static ssm_status make_batches(ssm__trainer *t, int64_t step, int64_t *labels, ssm_error *err)
{
    const ssm__recipe_batch *b = &t->recipe->batch;
    const ssm__network_config *config = ssm__network_config_of(t->network);
    for (int64_t i = 0; i < t->rounds; i++) {
        char what[64];
        const int64_t number = batch_number(t, step, i);
        ssm_train_task_rows(t->task, number * b->rows, &t->batches[i]);
        snprintf(what, sizeof what, "step %" PRId64 ", batch %" PRId64, step, number);
        SSM__TRY(ssm__check_batch(config, &t->batches[i], what, err));
        *labels += ssm__batch_labels(config, &t->batches[i]);
    }
    return SSM_STATUS_OK;
}

/* The batches of step `step`, unless somebody wants to stop. */
static ssm_status begin_step(ssm__trainer *t, int64_t step, bool *stop, ssm_error *err)
{
    const ssm_progress *p = t->options->progress;
    ssm__rank_note note = {0}, all = {0};
    ssm_status status = SSM_STATUS_OK;
    note.stop = p != NULL && p->report != NULL &&
                !p->report(p->context, "train", step - 1, t->recipe->schedule.steps, "steps");
    if (!note.stop) {
        status = make_batches(t, step, &note.count, err);
    }
    SSM__TRY(ssm__ranks_meet(&t->ranks, status, &note, &all, err));
    t->labels = all.count;
    *stop = all.stop;
    if (!*stop && t->labels == 0) {
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                         "step %" PRId64 " has no label to learn from", step);
    }
    return SSM_STATUS_OK;
}

static ssm_status fail_not_finite(ssm__trainer *t, int64_t step, int64_t batch, ssm_error *err)
{
    t->not_finite = true;
    char bad[256] = "the loss is not finite";
    ssm__pass_not_finite(t->pass, bad, sizeof bad);
    return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                     "step %" PRId64 ", batch %" PRId64 ": %s; the last checkpoint is of step "
                     "%" PRId64 "; a lower learning rate or a longer warm-up may help",
                     step, batch, bad, t->written);
}

/* A round: this rank's batch, and the gradients of all of them into the sum. */
static ssm_status take_round(ssm__trainer *t, int64_t step, int64_t round, ssm__loss *total,
                             ssm_error *err)
{
    const int64_t floats = ssm__network_floats(t->network);
    float *gradients = ssm__network_gradients(t->network);
    const int64_t number = batch_number(t, step, round);
    const ssm__dropout dropout = {.seed = (uint64_t)t->recipe->seed, .number = (uint64_t)number};
    ssm__loss loss;
    memset(gradients, 0, (size_t)floats * sizeof *gradients);
    ssm__pass_train(t->pass, &t->batches[round], 1.0 / (double)t->labels, &dropout, &loss);
    /* Of one batch a step the norm is taken behind it; of several the sum does not tell which. */
    const bool finite = isfinite(loss.sum) &&
                        (t->sum == NULL || isfinite(ssm__gradient_norm(&t->optimiser, gradients)));
    const ssm_status status = finite ? SSM_STATUS_OK : fail_not_finite(t, step, number, err);
    const ssm__rank_note note = {.not_finite = t->not_finite, .count = loss.count, .sum = loss.sum};
    ssm__rank_note all = {.count = total->count, .sum = total->sum};
    const ssm_status agreed = ssm__ranks_meet(&t->ranks, status, &note, &all, err);
    t->not_finite = all.not_finite;
    *total = (ssm__loss){.sum = all.sum, .count = all.count};
    if (agreed != SSM_STATUS_OK || t->sum == NULL) {
        return agreed;
    }
    return ssm__ranks_add(&t->ranks, t->kernels, gradients, round == 0, t->sum, floats, err);
}

/* Of several batches each was finite and their sum is not. */
static ssm_status fail_norm(ssm__trainer *t, int64_t step, ssm_error *err)
{
    if (t->sum != NULL) {
        memcpy(ssm__network_gradients(t->network), t->sum,
               (size_t)ssm__network_floats(t->network) * sizeof *t->sum);
    }
    return fail_not_finite(t, step, step * t->recipe->batch.accumulate - 1, err);
}

static ssm_status take_step(ssm__trainer *t, int64_t step, ssm_error *err)
{
    const double clip = t->recipe->optimiser.clip;
    ssm__loss total = {0};
    for (int64_t i = 0; i < t->rounds; i++) {
        SSM__TRY(take_round(t, step, i, &total, err));
    }
    if (t->sum != NULL) {
        SSM__TRY(ssm__ranks_gather(&t->ranks, t->sum, ssm__network_floats(t->network), err));
    }
    float *gradients = t->sum != NULL ? t->sum : ssm__network_gradients(t->network);
    t->norm = ssm__gradient_norm(&t->optimiser, gradients);
    if (!isfinite(t->norm)) {
        return fail_norm(t, step, err);
    }
    const double scale = clip > 0 && t->norm > clip ? clip / t->norm : 1;
    ssm__optimiser_step(&t->optimiser, t->recipe, step, gradients, scale);
    t->loss = total.sum / (double)total.count;
    t->position.step = step;
    t->position.tokens += t->recipe->batch.accumulate * t->batches[0].rows * t->batches[0].length;
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

static ssm_status evaluate(ssm__trainer *t, ssm_error *err)
{
    json_decref(t->evaluation);
    t->evaluation = NULL;
    return ssm__evaluate_task(t->network, t->task, t->recipe->evaluate.rows, t->recipe->batch.rows,
                              &t->evaluation, &t->not_finite, err);
}

/* The line of the step; evaluated: with what was measured at it. */
static ssm_status add_line(ssm__trainer *t, bool evaluated, ssm_error *err)
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
static ssm_status write_checkpoint(const ssm__trainer *t, ssm_error *err)
{
    SSM__TRY(ssm__write_model(t->network, t->directory, err));
    return ssm__write_state(&t->optimiser, &t->position, t->text, ssm_train_task_digest(t->task),
                            t->directory, err);
}

/* Machines whose C libraries compute a learning rate otherwise would drift apart unseen. */
static ssm_status check_weights(ssm__trainer *t, ssm_error *err)
{
    char digest[64];
    if (t->ranks.size == 1) {
        return SSM_STATUS_OK;
    }
    ssm__digest_bytes(ssm__network_values(t->network),
                      (size_t)ssm__network_floats(t->network) * sizeof(float), digest);
    return ssm__ranks_alike(&t->ranks, "the model that this rank has come to", digest, err);
}

/* Of the last step nobody else would see what the optimiser has made of the weights. */
static ssm_status check_finite(ssm__trainer *t, ssm_error *err)
{
    const float *values = ssm__network_values(t->network);
    const int64_t step = t->position.step, floats = ssm__network_floats(t->network);
    int64_t k = 0;
    while (k < floats && isfinite(values[k])) {
        k++;
    }
    return k == floats ? SSM_STATUS_OK
                       : fail_not_finite(t, step, step * t->recipe->batch.accumulate - 1, err);
}

static ssm_status checkpoint(ssm__trainer *t, ssm_error *err)
{
    SSM__TRY(ssm__train_meet(t, check_finite(t, err), err));
    SSM__TRY(check_weights(t, err));
    SSM__TRY(
        ssm__train_meet(t, ssm__train_writes(t) ? write_checkpoint(t, err) : SSM_STATUS_OK, err));
    t->written = t->position.step;
    return SSM_STATUS_OK;
}

/* training/result.json: what a finished run came to, for those who look later. */
static ssm_status write_result(const ssm__trainer *t, ssm_error *err)
{
    json_t *result =
        json_pack("{s:s, s:I, s:I, s:f, s:O?}", "schema", "ssmscope.training_result/1", "steps",
                  (json_int_t)t->position.step, "tokens", (json_int_t)t->position.tokens, "loss",
                  t->position.tail / (double)t->position.tail_count, "evaluation", t->evaluation);
    return ssm__json_write(result, JSON_INDENT(2) | JSON_REAL_PRECISION(9), t->directory,
                           "training/result.json", err);
}

/* Of a run that is resumed at its end; a result that cannot be read is made again. */
static ssm_status read_result(ssm__trainer *t, ssm_error *err)
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

static ssm_status finish_run(ssm__trainer *t, ssm_error *err)
{
    if (t->evaluation == NULL) {
        SSM__TRY(read_result(t, err));
    }
    if (t->evaluation == NULL && t->recipe->evaluate.rows > 0) { /* killed in between */
        SSM__TRY(evaluate(t, err));
    }
    return write_result(t, err);
}

/* What is due behind a step. */
static ssm_status look(ssm__trainer *t, bool evaluated, ssm_error *err)
{
    if (evaluated) {
        SSM__TRY(evaluate(t, err));
    }
    return add_line(t, evaluated, err);
}

static ssm_status end_step(ssm__trainer *t, int64_t step, ssm_error *err)
{
    const ssm_recipe *r = t->recipe;
    const int64_t steps = r->schedule.steps;
    const bool evaluated = r->evaluate.rows > 0 && due(step, r->evaluate.every, steps);
    t->stepped = now();
    if (evaluated || due(step, r->checkpoint.log, steps)) {
        SSM__TRY(ssm__train_meet(t, ssm__train_writes(t) ? look(t, evaluated, err) : SSM_STATUS_OK,
                                 err));
    }
    return due(step, r->checkpoint.every, steps) ? checkpoint(t, err) : SSM_STATUS_OK;
}

static ssm_status run_steps(ssm__trainer *t, ssm_error *err)
{
    const int64_t steps = t->recipe->schedule.steps;
    t->last_line = now();
    t->last_tokens = t->position.tokens;
    for (int64_t step = t->position.step + 1; step <= steps; step++) {
        bool stop;
        SSM__TRY(begin_step(t, step, &stop, err));
        if (stop) {
            SSM__TRY(checkpoint(t, err));
            return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                             "interrupted behind step %" PRId64 "; resume goes on from there",
                             step - 1);
        }
        SSM__TRY(take_step(t, step, err));
        SSM__TRY(end_step(t, step, err));
    }
    return ssm__train_meet(t, ssm__train_writes(t) ? finish_run(t, err) : SSM_STATUS_OK, err);
}

/* ---- the run --------------------------------------------------------------------------------- */

static ssm_status fill_result(const ssm__trainer *t, ssm_train_result *out, ssm_error *err)
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

ssm_status ssm_train(const ssm_recipe *recipe, const char *directory,
                     const ssm_train_options *options, ssm_train_result *out, ssm_error *err)
{
    ssm__trainer t = {.recipe = recipe,
                      .directory = directory,
                      .options = options,
                      .kernels = ssm__kernels_for(options->isa),
                      .lock = -1,
                      .started = now()};
    *out = (ssm_train_result){0};
    ssm_status status = ssm__open_run(&t, err);
    if (status == SSM_STATUS_OK) {
        status = run_steps(&t, err);
    }
    if (status == SSM_STATUS_OK) {
        status = fill_result(&t, out, err);
    }
    out->not_finite = t.not_finite;
    ssm__close_run(&t);
    return status;
}
