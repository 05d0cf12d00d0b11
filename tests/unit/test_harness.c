/* Tasks and rolling perplexity against the numbers of lm-evaluation-harness. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssmscope/init.h"
#include "test_place.h"
#include "test_subject.h"

/* The toy model of the goldens: two layers of 64 channels with the vocabulary of tiny. */
static const char *toy_directory(place *here)
{
    const char *wanted = getenv("SSM_TOY_MODEL"); /* for tools/make_task_goldens.py */
    const char *directory = wanted ? wanted : place_path(here, "toy");
    ssm_error err;
    ssm_error_clear(&err);
    ssm_config config;
    ok(ssm_shape_config("tiny", &config, &err), &err);
    config.n_layers = 2;
    ok(ssm_init_write(&config, SSM_DTYPE_F32, 5, directory, NULL, &err), &err);
    return directory;
}

/* ---- against the harness --------------------------------------------------------------------- */

static json_t *read_json(const char *path)
{
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    if (!json) {
        fail_msg("%s: line %d: %s", path, error.line, error.text);
    }
    return json;
}

static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void check_items(const char *name, const json_t *items, const ssm_task_score *scores,
                        int64_t count)
{
    assert_int_equal(json_array_size(items), count);
    for (int64_t i = 0; i < count; i++) {
        const json_t *choices = json_array_get(items, (size_t)i);
        assert_int_equal(json_array_size(choices), scores[i].n_choices);
        for (int64_t k = 0; k < scores[i].n_choices; k++) {
            const json_t *pair = json_array_get(choices, (size_t)k);
            const double want = json_number_value(json_array_get(pair, 0));
            char what[64];
            snprintf(what, sizeof what, "%s, item %lld, choice %lld", name, (long long)i,
                     (long long)k);
            near(scores[i].choices[k].log_likelihood, want, 1e-5 * fmax(1.0, fabs(want)), what);
            assert_int_equal(scores[i].choices[k].greedy, json_is_true(json_array_get(pair, 1)));
        }
    }
}

static int64_t check_task(const subject *s, const json_t *golden, const char *name, int64_t most,
                          int64_t bootstrap)
{
    ssm_error err;
    ssm_error_clear(&err);
    const ssm_task *task = NULL;
    ssm_task_data data;
    ssm_task_score *scores = NULL;
    char path[512];
    snprintf(path, sizeof path, TEST_TASK_GOLDEN "/%s.jsonl", name);
    ok(ssm_task_find(name, &task, &err), &err);
    ok(ssm_task_read(task, path, 0, &data, &err), &err);
    assert_true(data.count >= 50);
    const ssm_task_options options = {.scorer = {.max_length = most, .prefix_id = s->prefix}};
    ok(ssm_task_run(s->model, s->tokenizer, NULL, &data, &options, &scores, &err), &err);
    check_items(name, json_object_get(golden, "items"), scores, data.count);
    const json_t *metrics = json_object_get(golden, "metrics");
    for (int metric = 0; metric < SSM_METRIC_COUNT; metric++) {
        if ((task->harness_metrics & 1u << metric) == 0) {
            continue;
        }
        const char *key = ssm_task_metric_name((ssm_task_metric)metric);
        char stderr_key[64];
        snprintf(stderr_key, sizeof stderr_key, "%s_stderr", key);
        const ssm_bootstrap_options few = {.resamples = 10, .seed = 1};
        ssm_task_result result;
        ok(ssm_task_result_of(scores, data.count, (ssm_task_metric)metric, &few, bootstrap, &result,
                              &err),
           &err);
        const double want = number_at(metrics, key);
        near(result.value, want, 1e-5 * fmax(1.0, want), key);
        /* Where it is bootstrapped the draws are the harness's; the values differ by 1e-5. */
        const double error = number_at(metrics, stderr_key);
        near(result.stderr_, error, metric == SSM_METRIC_PERPLEXITY ? 2e-5 * error : 1e-9,
             stderr_key);
    }
    int64_t truncated = 0;
    for (int64_t i = 0; i < data.count; i++) {
        truncated += scores[i].choices[0].truncated > 0;
    }
    ssm_task_scores_free(scores, data.count);
    ssm_task_data_free(&data);
    return truncated;
}

static void check_rolling(const subject *s, const json_t *golden, const json_t *all)
{
    ssm_error err;
    ssm_error_clear(&err);
    ssm_corpus corpus;
    ssm_documents documents;
    ssm_document_score *scores = NULL;
    const char *const argument = TEST_TASK_GOLDEN "/wiki.txt";
    ok(ssm_corpus_open(s->tokenizer, &argument, 1, SSM_INVALID_UTF8_ERROR, &corpus, &err), &err);
    ok(ssm_documents_open(&corpus, SSM_DOCUMENTS_WIKITEXT, &documents, &err), &err);
    assert_int_equal(documents.count, (int64_t)number_at(all, "pages"));
    const ssm_rolling_options options = {.max_length = (int64_t)number_at(all, "max_length"),
                                         .prefix_id = s->prefix};
    ok(ssm_score_documents(s->model, s->tokenizer, NULL, &documents, &options, &scores, &err),
       &err);
    const json_t *items = json_object_get(golden, "items");
    double sum = 0.0;
    double words = 0.0;
    double bytes = 0.0;
    for (int64_t i = 0; i < documents.count; i++) {
        const double want = json_number_value(json_array_get(json_array_get(items, (size_t)i), 0));
        near(scores[i].log_likelihood, want, 1e-5 * fmax(1.0, fabs(want)), "page");
        sum += scores[i].log_likelihood;
        words += (double)scores[i].words;
        bytes += (double)scores[i].bytes;
    }
    assert_true(words == number_at(all, "words") && bytes == number_at(all, "bytes"));
    const json_t *metrics = json_object_get(golden, "metrics");
    const double per_word = number_at(metrics, "word_perplexity");
    near(exp(-sum / words), per_word, 1e-5 * per_word, "word_perplexity");
    near(exp(-sum / bytes), number_at(metrics, "byte_perplexity"), 1e-5, "byte_perplexity");
    near(-sum / (bytes * log(2.0)), number_at(metrics, "bits_per_byte"), 1e-5, "bits_per_byte");
    ssm_document_scores_free(scores);
    ssm_documents_free(&documents);
    ssm_corpus_free(&corpus);
}

static void check_model(const char *directory, const char *expected)
{
    static const char *const names[] = {"lambada_openai", "piqa",       "arc_easy",
                                        "arc_challenge",  "winogrande", "hellaswag"};
    subject s = subject_open(directory);
    json_t *golden = read_json(expected);
    const json_t *tasks = json_object_get(golden, "tasks");
    int64_t truncated = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        truncated += check_task(&s, json_object_get(tasks, names[i]), names[i],
                                (int64_t)number_at(golden, "max_length"),
                                (int64_t)number_at(golden, "bootstrap"));
    }
    assert_true(truncated > 0); /* the goldens are to have such items */
    check_rolling(&s, json_object_get(tasks, "wikitext"), golden);
    json_decref(golden);
    subject_close(&s);
}

static void a_toy_model_scores_as_in_the_harness(void **state)
{
    check_model(toy_directory(*state), TEST_TASK_GOLDEN "/expect.toy.json");
}

static void the_built_in_model_scores_as_in_the_harness(void **state)
{
    (void)state;
    check_model(TEST_TINY, TEST_TASK_GOLDEN "/expect.tiny.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_toy_model_scores_as_in_the_harness, place_set_up,
                                        place_tear_down),
        cmocka_unit_test(the_built_in_model_scores_as_in_the_harness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
