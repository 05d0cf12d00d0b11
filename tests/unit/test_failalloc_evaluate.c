/* Tasks, documents and divergence when memory runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failalloc.h"

#include "base/error.h"
#include "test_paths.h"
#include "test_subject.h"

typedef struct fixture {
    char directory[TEST_PATH_MAX], items[TEST_PATH_MAX + 32], text[TEST_PATH_MAX + 32];
    char journal[TEST_PATH_MAX + 32], resumed[TEST_PATH_MAX + 32], harness[TEST_PATH_MAX + 32];
    char results[TEST_PATH_MAX + 32];
    subject subject;
    ssm_mask mask;
    ssm_corpus corpus;
} fixture;

static ssm_status expect(bool right)
{
    return right ? SSM_STATUS_OK : SSM_STATUS_CHECK;
}

static ssm_status run_items(const fixture *this, const ssm_task_data *data, ssm_journal *journal,
                            ssm_error *err)
{
    const ssm_bootstrap_options few = {.resamples = 5, .seed = 1};
    const ssm_task_options options = {
        .scorer = {.max_length = 64}, .journal = journal, .series = "a"};
    ssm_task_score *scores = NULL;
    ssm_task_result result = {0};
    ssm_task_difference difference = {0};
    SSM__TRY(ssm_task_run(this->subject.model, this->subject.tokenizer, &this->mask, data, &options,
                          &scores, err));
    ssm_status status =
        ssm_task_result_of(scores, data->count, SSM_METRIC_PERPLEXITY, &few, 5, &result, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_task_difference_of(scores, scores, data->count, SSM_METRIC_ACC, &few,
                                        &difference, err);
    }
    ssm_task_scores_free(scores, data->count);
    return status == SSM_STATUS_OK ? expect(result.value > 1.0 && difference.value == 0.0) : status;
}

/* Finished items come from the journal: nothing is scored, and lines are read. */
static ssm_status run_resumed(void *context, ssm_error *err)
{
    const fixture *this = context;
    const ssm_task *task = NULL;
    ssm_task_data data;
    ssm_journal *journal = NULL;
    SSM__TRY(ssm_task_find("hellaswag", &task, err));
    SSM__TRY(ssm_task_read(task, this->items, 0, &data, err));
    ssm_status status = ssm_journal_open(this->resumed, "work", true, &journal, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_journal_resumed(journal) == 1 ? run_items(this, &data, journal, err)
                                                   : SSM_STATUS_CHECK;
    }
    ssm_journal_close(journal, false, NULL);
    ssm_task_data_free(&data);
    return status;
}

static ssm_status run_task(void *context, ssm_error *err)
{
    const fixture *this = context;
    const ssm_task *task = NULL;
    ssm_task_data data;
    ssm_journal *journal = NULL;
    SSM__TRY(ssm_task_find("hellaswag", &task, err));
    SSM__TRY(ssm_task_read(task, this->items, 0, &data, err));
    ssm_status status = ssm_journal_open(this->journal, "work", false, &journal, err);
    status = status == SSM_STATUS_OK ? run_items(this, &data, journal, err) : status;
    const ssm_status closed = ssm_journal_close(journal, status == SSM_STATUS_OK, err);
    ssm_task_data_free(&data);
    return status == SSM_STATUS_OK ? closed : status;
}

static ssm_status run_rolling(void *context, ssm_error *err)
{
    const fixture *this = context;
    ssm_documents documents;
    ssm_document_score *scores = NULL;
    const ssm_rolling_options options = {.max_length = 16};
    SSM__TRY(ssm_documents_open(&this->corpus, SSM_DOCUMENTS_WIKITEXT, &documents, err));
    const ssm_status status = ssm_score_documents(this->subject.model, this->subject.tokenizer,
                                                  NULL, &documents, &options, &scores, err);
    const bool right = scores && documents.count == 2 && scores[0].log_likelihood < 0.0;
    ssm_document_scores_free(scores);
    ssm_documents_free(&documents);
    return status == SSM_STATUS_OK ? expect(right) : status;
}

static ssm_status run_divergence(void *context, ssm_error *err)
{
    const fixture *this = context;
    const ssm_bootstrap_options few = {.resamples = 5, .seed = 1};
    const ssm_score_options options = {.window = 8, .windows = 1, .continuation = -1};
    ssm_pruned models[2] = {{.mask = &this->mask, .series = "a"}, {.series = "b"}};
    ssm_window_score *base = NULL;
    int64_t count = 0;
    const ssm_status status = ssm_score_divergences(this->subject.model, &this->corpus, models, 2,
                                                    &options, &few, &base, &count, err);
    if (status != SSM_STATUS_OK) {
        return base || models[0].scores || models[1].scores ? SSM_STATUS_CHECK : status;
    }
    ssm_scores_free(base);
    ssm_scores_free(models[0].scores);
    ssm_scores_free(models[1].scores);
    const ssm_divergence *d = &models[0].divergence;
    return expect(count == 1 && d->tokens == 7 && d->kl == 0.0);
}

static ssm_status run_harness(void *context, ssm_error *err)
{
    const fixture *this = context;
    const ssm_harness_metric metric = {"acc", 0.5, 0.1, true};
    const ssm_harness_run run = {.task = "piqa",
                                 .dataset = "baber/piqa",
                                 .output_type = "multiple_choice",
                                 .metrics = &metric,
                                 .n_metrics = 1,
                                 .model_path = "a b/c"};
    return ssm_harness_write(&run, this->harness, err);
}

/* Made, or taken up when an earlier run made it. */
static ssm_status run_results(void *context, ssm_error *err)
{
    const fixture *this = context;
    ssm_results *results = NULL;
    SSM__TRY(ssm_results_open(this->results, "{\"seed\": 1}", true, &results, err));
    ssm_status status = ssm_results_folder(results, "masks", err);
    status = status == SSM_STATUS_OK ? ssm_results_write(results, "table", "x", 1, err) : status;
    ssm_results_close(results);
    return status;
}

/* A refusal that has something to list. */
static ssm_status run_refused(void *context, ssm_error *err)
{
    const fixture *this = context;
    ssm_results *results = NULL;
    ssm_error why;
    ssm_error_clear(&why);
    const ssm_status status =
        ssm_results_open(this->results, "{\"seed\": [2, 3]}", true, &results, &why);
    if (status == SSM_STATUS_USAGE) {
        return expect(results == NULL && strstr(why.message, "seed: there ") != NULL);
    }
    *err = why;
    return status;
}

static void nothing_leaks(void **state)
{
    const failalloc_case cases[] = {
        {.name = "ssm_task_run", .run = run_task, .context = *state, .dense = 60},
        {.name = "ssm_journal_open", .run = run_resumed, .context = *state, .dense = 60},
        {.name = "ssm_score_documents", .run = run_rolling, .context = *state, .dense = 60},
        {.name = "ssm_score_divergences", .run = run_divergence, .context = *state},
        {.name = "ssm_harness_write", .run = run_harness, .context = *state},
        {.name = "ssm_results_open", .run = run_results, .context = *state},
        {.name = "ssm_results_open, another plan", .run = run_refused, .context = *state},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(failalloc_check(&cases[i]));
    }
}

static void put(char *path, size_t room, const char *directory, const char *name, const char *text)
{
    snprintf(path, room, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int set_up(void **state)
{
    fixture *this = calloc(1, sizeof *this);
    if (this == NULL) {
        return 1;
    }
    ssm_error err;
    ssm_error_clear(&err);
    test_make_directory(this->directory);
    put(this->items, sizeof this->items, this->directory, "items.jsonl",
        "{\"activity_label\": \"Tea\", \"ctx_a\": \"She puts\", \"ctx_b\": \"the pot\", "
        "\"endings\":"
        " [\"on [x] it.\", \"away.\"], \"label\": \"1\"}\n");
    put(this->text, sizeof this->text, this->directory, "text",
        " = A = \n \n One , two . \n = B = \n three ( four ) five six \n");
    snprintf(this->journal, sizeof this->journal, "%s/journal", this->directory);
    snprintf(this->harness, sizeof this->harness, "%s/harness", this->directory);
    snprintf(this->results, sizeof this->results, "%s/results", this->directory);
    put(this->resumed, sizeof this->resumed, this->directory, "resumed.partial",
        "{\"schema\":\"ssmscope.journal/"
        "1\",\"work\":\"work\"}\n{\"series\":\"a\",\"index\":0,\"line\":1,"
        "\"choices\":[[-9.5,3,0,false],[-4.5,2,0,false]]}\n");
    snprintf(this->resumed, sizeof this->resumed, "%s/resumed", this->directory);
    this->subject = subject_open(TEST_TINY);
    const ssm_config *c = ssm_model_config(this->subject.model);
    ok(ssm_mask_create(c->n_layers, c->d_inner, c->d_state, &this->mask, &err), &err);
    const char *argument = this->text;
    ok(ssm_corpus_open(this->subject.tokenizer, &argument, 1, SSM_INVALID_UTF8_ERROR, &this->corpus,
                       &err),
       &err);
    *state = this;
    return 0;
}

static int tear_down(void **state)
{
    fixture *this = *state;
    ssm_corpus_free(&this->corpus);
    ssm_mask_free(&this->mask);
    subject_close(&this->subject);
    test_remove_directory(this->directory);
    free(this);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_leaks, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
