#include "test_task.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SETTINGS = 16 };

static ssm_status make(const char *name, const char *settings, uint64_t seed, ssm_train_task **out,
                       ssm_error *err)
{
    ssm_train_setting list[SETTINGS];
    char *words = strdup(settings);
    char *rest = NULL;
    int64_t count = 0;
    assert_non_null(words);
    for (char *word = strtok_r(words, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        assert_non_null(equals);
        *equals = '\0';
        assert_true(count < SETTINGS);
        list[count++] = (ssm_train_setting){word, equals + 1};
    }
    ssm_error_clear(err);
    ssm_status status = ssm_train_task_create(name, list, count, seed, out, err);
    free(words);
    return status;
}

ssm_train_task *test_task(const char *name, const char *settings, uint64_t seed)
{
    ssm_train_task *task = NULL;
    ssm_error err;
    if (make(name, settings, seed, &task, &err) != SSM_STATUS_OK) {
        fail_msg("%s %s: %s", name, settings, err.message);
    }
    return task;
}

ssm_status test_task_status(const char *name, const char *settings, ssm_error *err)
{
    ssm_train_task *task = NULL;
    const ssm_status status = make(name, settings, 0, &task, err);
    ssm_train_task_free(task);
    return status;
}

ssm_train_batch test_task_rows(const ssm_train_task *task, int64_t first, int64_t rows)
{
    ssm_train_batch batch;
    assert_int_equal(
        ssm_train_batch_create(task, rows, ssm_train_task_info(task)->length, &batch, NULL),
        SSM_STATUS_OK);
    ssm_train_task_rows(task, first, &batch);
    return batch;
}

ssm_train_batch test_task_examples(const ssm_train_task *task, int64_t size, int64_t first,
                                   int64_t rows)
{
    ssm_train_batch batch;
    int64_t length = 0;
    assert_int_equal(ssm_train_task_length(task, size, &length, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_train_batch_create(task, rows, length, &batch, NULL), SSM_STATUS_OK);
    ssm_train_task_examples(task, size, first, &batch);
    return batch;
}

static void append(char *out, size_t size, const char *text)
{
    assert_true(strlen(out) + strlen(text) < size);
    strcat(out, text);
}

void test_task_ids(const ssm_train_task *task, const ssm_train_batch *batch, int64_t b, char *out,
                   size_t size)
{
    out[0] = '\0';
    for (int64_t t = 0; t < batch->used[b]; t++) {
        char text[32];
        ssm_train_task_token(task, batch->ids[b * batch->length + t], text, sizeof text);
        append(out, size, text);
    }
}

void test_task_labels(const ssm_train_task *task, const ssm_train_batch *batch, int64_t b,
                      char *out, size_t size)
{
    out[0] = '\0';
    for (int64_t t = 0; t < batch->used[b]; t++) {
        char text[32] = "-";
        const int32_t label = batch->labels[b * batch->length + t];
        if (label >= 0) {
            ssm_train_task_token(task, label, text, sizeof text);
        }
        append(out, size, text);
    }
}

double test_chi_square(const int64_t *observed, const double *expected, int64_t cells)
{
    double sum = 0;
    for (int64_t i = 0; i < cells; i++) {
        const double difference = (double)observed[i] - expected[i];
        sum += difference * difference / expected[i];
    }
    return sum;
}
