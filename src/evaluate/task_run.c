/* evaluate/task_run.c: scores the items of a task, one after the other. */
#include <ssmscope/tasks.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "evaluate/journal.h"
#include "evaluate/python_text.h"

typedef struct run {
    ssm_scorer *scorer;
    const ssm_task_data *data;
    const ssm_task_options *options;
    ssm_task_score *scores;
    int64_t right; /* so far */
    double log_likelihood;
} run;

void ssm_task_scores_free(ssm_task_score *scores, int64_t count)
{
    for (int64_t i = 0; scores && i < count; i++) {
        free(scores[i].choices);
    }
    free(scores);
}

/* ---- one item -------------------------------------------------------------------------------- */

/* First of the largest of Σ log p / length. */
static int64_t best_choice(const ssm_task_item *item, const ssm_task_score *score,
                           ssm_task_metric metric)
{
    int64_t best = 0;
    double most = -INFINITY;
    for (int64_t i = 0; i < item->n_choices; i++) {
        double length = 1.0;
        if (metric == SSM_METRIC_ACC_NORM) {
            length = (double)ssm__count_characters(item->choices[i]);
        } else if (metric == SSM_METRIC_ACC_BYTES) {
            for (length = 0.0; item->choices[i][(size_t)length] != '\0';) {
                length += 1.0;
            }
        }
        const double value = score->choices[i].log_likelihood / length;
        if (value > most) {
            most = value;
            best = i;
        }
    }
    return best;
}

/* A task of words asks whether the model says the word; the others, however few choices an item
 * has, which of them is the likeliest. */
static void judge(const ssm_task *task, const ssm_task_item *item, ssm_task_score *score)
{
    const bool word = (task->metrics & 1U << SSM_METRIC_PERPLEXITY) != 0;
    for (int metric = SSM_METRIC_ACC; metric <= SSM_METRIC_ACC_BYTES; metric++) {
        score->right[metric] =
            word ? score->choices[0].greedy
                 : best_choice(item, score, (ssm_task_metric)metric) == item->gold;
    }
}

static ssm_status score_item(run *r, const ssm_task_item *item, ssm_task_score *score,
                             ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    ssm_error reason;
    ssm_error_clear(&reason);
    if (!item->own_contexts) {
        status =
            ssm_scorer_score(r->scorer, item->contexts[0], (const char *const *)item->continuations,
                             item->n_choices, score->choices, &reason);
    }
    for (int64_t i = 0; item->own_contexts && i < item->n_choices && status == SSM_STATUS_OK; i++) {
        status = ssm_scorer_score(r->scorer, item->contexts[i],
                                  (const char *const *)item->continuations + i, 1,
                                  &score->choices[i], &reason);
    }
    if (status != SSM_STATUS_OK) {
        ssm__fail(err, status, SSM__NOWHERE, "the item of line %lld: %s", (long long)item->line,
                  reason.message);
    }
    return status;
}

/* ---- the journal ----------------------------------------------------------------------------- */

/* NULL: no memory. */
static json_t *to_line(const ssm_task_item *item, const ssm_task_score *score)
{
    json_t *line =
        json_pack("{s:I, s:I, s:b, s:[]}", "line", (json_int_t)item->line, "gold",
                  (json_int_t)item->gold, "acc", (int)score->right[SSM_METRIC_ACC], "choices");
    json_t *choices = json_object_get(line, "choices");
    for (int64_t i = 0; i < score->n_choices && line; i++) {
        const ssm_continuation_score *c = &score->choices[i];
        json_t *choice = json_pack("[f, I, I, b]", c->log_likelihood, (json_int_t)c->tokens,
                                   (json_int_t)c->truncated, (int)c->greedy);
        if (!choice || json_array_append_new(choices, choice) != 0) {
            json_decref(line);
            line = NULL;
        }
    }
    return line;
}

/* False: not the form of to_line. */
static bool from_line(const json_t *line, const ssm_task_item *item, ssm_task_score *score)
{
    const json_t *choices = json_object_get(line, "choices");
    if (json_integer_value(json_object_get(line, "line")) != item->line ||
        json_array_size(choices) != (size_t)score->n_choices) {
        return false;
    }
    for (int64_t i = 0; i < score->n_choices; i++) {
        json_t *choice = json_array_get(choices, (size_t)i);
        double log_likelihood = 0.0;
        json_int_t tokens = 0;
        json_int_t truncated = 0;
        int greedy = 0;
        if (json_unpack(choice, "[F, I, I, b]", &log_likelihood, &tokens, &truncated, &greedy) !=
            0) {
            return false;
        }
        score->choices[i] =
            (ssm_continuation_score){log_likelihood, tokens, truncated, greedy != 0};
    }
    return true;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* The unit of the progress line carries the estimate: "items, acc 0.412 so far". */
static ssm_status report(run *r, int64_t done, ssm_error *err)
{
    const ssm_progress *progress = r->options->progress;
    if (!progress) {
        return SSM_STATUS_OK;
    }
    char unit[96];
    int used = snprintf(unit, sizeof unit, "items, acc %.3f", (double)r->right / (double)done);
    if ((r->data->task->metrics & 1u << SSM_METRIC_PERPLEXITY) != 0) {
        snprintf(unit + used, sizeof unit - (size_t)used, ", perplexity %.4g",
                 exp(-r->log_likelihood / (double)done));
    }
    if (!progress->report(progress->context, r->data->task->name, done, r->data->count, unit)) {
        return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                         "stopped after %lld of %lld items", (long long)done,
                         (long long)r->data->count);
    }
    return SSM_STATUS_OK;
}

static ssm_status run_item(run *r, int64_t i, ssm_error *err)
{
    const ssm_task_item *item = &r->data->items[i];
    ssm_task_score *score = &r->scores[i];
    score->n_choices = item->n_choices;
    score->choices = calloc((size_t)item->n_choices, sizeof *score->choices);
    if (!score->choices) {
        return ssm__fail_memory(err, "scores", (size_t)item->n_choices * sizeof *score->choices);
    }
    ssm_journal *journal = r->options->journal;
    const json_t *line = ssm__journal_find(journal, r->options->series, i);
    if (line && !from_line(line, item, score)) {
        return ssm__journal_fail(journal, r->options->series, i, err);
    }
    if (!line) {
        SSM__TRY(score_item(r, item, score, err));
    }
    judge(r->data->task, item, score);
    r->right += score->right[SSM_METRIC_ACC];
    r->log_likelihood += score->choices[item->gold].log_likelihood;
    return line || !journal
               ? SSM_STATUS_OK
               : ssm__journal_add(journal, r->options->series, i, to_line(item, score), err);
}

ssm_status ssm_task_run(const ssm_model *model, const ssm_tokenizer *tokenizer,
                        const ssm_mask *mask, const ssm_task_data *data,
                        const ssm_task_options *options, ssm_task_score **scores, ssm_error *err)
{
    *scores = NULL;
    run r = {.data = data, .options = options};
    r.scores = calloc((size_t)data->count + 1, sizeof *r.scores);
    ssm_status status =
        r.scores ? SSM_STATUS_OK
                 : ssm__fail_memory(err, "scores", (size_t)data->count * sizeof *r.scores);
    if (status == SSM_STATUS_OK) {
        status = ssm_scorer_create(model, tokenizer, mask, &options->scorer, &r.scorer, err);
    }
    for (int64_t i = 0; i < data->count && status == SSM_STATUS_OK; i++) {
        status = run_item(&r, i, err);
        status = status == SSM_STATUS_OK ? report(&r, i + 1, err) : status;
    }
    ssm_scorer_free(r.scorer);
    if (status != SSM_STATUS_OK) {
        ssm_task_scores_free(r.scores, data->count);
        return status;
    }
    *scores = r.scores;
    return SSM_STATUS_OK;
}
