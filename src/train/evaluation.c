#include "train/evaluation.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "train/work.h"

int64_t ssm__batch_labels(const ssm__network_config *config, const ssm_train_batch *batch)
{
    const int64_t tokens = batch->rows * batch->length;
    int64_t count = 0;
    switch (config->loss) {
    case SSM_TRAIN_TOKENS:
        for (int64_t t = 0; t < tokens; t++) {
            count += batch->labels[t] >= 0;
        }
        break;
    case SSM_TRAIN_CLASSES:
        for (int64_t r = 0; r < batch->rows; r++) {
            count += batch->labels[r] >= 0;
        }
        break;
    case SSM_TRAIN_VECTORS:
        for (int64_t r = 0; r < batch->rows; r++) {
            count += batch->used[r] * config->n_outputs;
        }
        break;
    }
    return count;
}

static ssm_status check_list(const int32_t *list, int64_t count, int64_t end, bool negative,
                             const char *what, const char *of, ssm_error *err)
{
    for (int64_t i = 0; i < count; i++) {
        if (list[i] >= end || (list[i] < 0 && !negative)) {
            return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                             "%s: %s %" PRId32 " (number %" PRId64 ") is outside 0 … %" PRId64,
                             what, of, list[i], i, end - 1);
        }
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__check_batch(const ssm__network_config *config, const ssm_train_batch *batch,
                            const char *what, ssm_error *err)
{
    const int64_t tokens = batch->rows * batch->length, V = config->shape.vocab_size;
    const bool tokens_labelled = config->loss == SSM_TRAIN_TOKENS;
    if (config->loss == SSM_TRAIN_VECTORS) {
        return SSM_STATUS_OK;
    }
    SSM__TRY(check_list(batch->ids, tokens, V, false, what, "id", err));
    return check_list(batch->labels, tokens_labelled ? tokens : batch->rows,
                      tokens_labelled ? V : config->n_outputs, true, what, "label", err);
}

/* ---- one size -------------------------------------------------------------------------------- */

typedef struct size_job {
    const ssm__network *network;
    const ssm__network_config *config;
    const ssm_train_task *task;
    int64_t size, examples;
    ssm__pass *pass;
    ssm_train_batch batch;
    int32_t *predictions; /* NULL: vectors */
    ssm_train_score score;
    ssm__loss loss;
    bool not_finite;
} size_job;

static ssm_status run_batch(size_job *job, int64_t first, ssm_error *err)
{
    char what[96];
    ssm__loss loss;
    snprintf(what, sizeof what, "evaluation of size %" PRId64 ", example %" PRId64, job->size,
             first);
    ssm_train_task_examples(job->task, job->size, first, &job->batch);
    SSM__TRY(ssm__check_batch(job->config, &job->batch, what, err));
    job->batch.rows = ssm__least(job->batch.rows, job->examples - first);
    ssm__pass_evaluate(job->pass, &job->batch, &loss, job->predictions, NULL);
    if (!isfinite(loss.sum)) {
        char bad[256] = "the loss is not finite";
        job->not_finite = true;
        ssm__pass_not_finite(job->pass, bad, sizeof bad);
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE, "%s: %s", what, bad);
    }
    job->loss.sum += loss.sum;
    job->loss.count += loss.count;
    if (job->predictions != NULL) {
        ssm_train_score_add(&job->score, job->task, &job->batch, job->predictions);
    }
    return SSM_STATUS_OK;
}

static ssm_status run_size(size_job *job, int64_t rows, ssm_error *err)
{
    int64_t length;
    SSM__TRY(ssm_train_task_length(job->task, job->size, &length, err));
    SSM__TRY(ssm_train_batch_create(job->task, rows, length, &job->batch, err));
    SSM__TRY(ssm__pass_create(job->network, length, false, &job->pass, err));
    if (job->config->loss != SSM_TRAIN_VECTORS) { /* of vectors there is the loss alone */
        const size_t tokens = (size_t)(rows * length);
        job->predictions = calloc(tokens, sizeof *job->predictions);
        if (job->predictions == NULL) {
            return ssm__fail_memory(err, "predictions", tokens * sizeof *job->predictions);
        }
    }
    for (int64_t first = 0; first < job->examples; first += rows) {
        job->batch.rows = rows;
        SSM__TRY(run_batch(job, first, err));
    }
    return SSM_STATUS_OK;
}

static json_t *size_json(const size_job *job)
{
    const double loss = job->loss.count == 0 ? 0 : job->loss.sum / (double)job->loss.count;
    if (job->config->loss == SSM_TRAIN_VECTORS) {
        return json_pack("{s:I, s:f}", "examples", (json_int_t)job->examples, "loss", loss);
    }
    const double strings = ssm_train_string_accuracy(&job->score);
    const double characters = ssm_train_character_accuracy(&job->score);
    return json_pack("{s:I, s:f, s:f, s:f}", "examples", (json_int_t)job->examples, "loss", loss,
                     "strings", isnan(strings) ? 0.0 : strings, "characters",
                     isnan(characters) ? 0.0 : characters);
}

static ssm_status add_size(size_job *job, int64_t rows, json_t *into, ssm_error *err)
{
    char key[24];
    const int64_t there = ssm_train_task_example_count(job->task, job->size);
    job->examples = there < 0 ? job->examples : ssm__least(job->examples, there);
    ssm_status status = SSM_STATUS_OK;
    if (job->examples > 0) {
        status = run_size(job, ssm__least(rows, job->examples), err);
    }
    snprintf(key, sizeof key, "%" PRId64, job->size);
    if (status == SSM_STATUS_OK && job->examples > 0 &&
        json_object_set_new(into, key, size_json(job)) != 0) {
        status = ssm__fail_memory(err, "an evaluation", 0);
    }
    ssm__pass_free(job->pass);
    ssm_train_batch_free(&job->batch);
    free(job->predictions);
    return status;
}

ssm_status ssm__evaluate_task(const ssm__network *network, const ssm_train_task *task, int64_t rows,
                              int64_t at_once, json_t **out, bool *not_finite, ssm_error *err)
{
    const ssm_train_info *info = ssm_train_task_info(task);
    json_t *sizes = json_object();
    ssm_status status = sizes == NULL ? ssm__fail_memory(err, "an evaluation", 0) : SSM_STATUS_OK;
    *out = NULL;
    *not_finite = false;
    for (int64_t i = 0; status == SSM_STATUS_OK && i < info->n_sizes; i++) {
        size_job job = {.network = network,
                        .config = ssm__network_config_of(network),
                        .task = task,
                        .size = info->sizes[i],
                        .examples = rows};
        status = add_size(&job, at_once, sizes, err);
        *not_finite = job.not_finite;
    }
    if (status != SSM_STATUS_OK) {
        json_decref(sizes);
        return status;
    }
    *out = sizes;
    return SSM_STATUS_OK;
}
