/* test_task.h: making tasks, and their rows as text. */
#ifndef TEST_TASK_H
#define TEST_TASK_H

#include <ssmscope/train_task.h>

/* settings: "max=5 length=20", or "". Fails the test when the task cannot be made. */
ssm_train_task *test_task(const char *name, const char *settings, uint64_t seed);
/* The status of making it, and the message in *err. */
ssm_status test_task_status(const char *name, const char *settings, ssm_error *err);
/* A batch of training rows, or of examples of a size. */
ssm_train_batch test_task_rows(const ssm_train_task *task, int64_t first, int64_t rows);
ssm_train_batch test_task_examples(const ssm_train_task *task, int64_t size, int64_t first,
                                   int64_t rows);
/* Row b's used ids, and its labels with "-" for none, joined without spaces. */
void test_task_ids(const ssm_train_task *task, const ssm_train_batch *batch, int64_t b, char *out,
                   size_t size);
void test_task_labels(const ssm_train_task *task, const ssm_train_batch *batch, int64_t b,
                      char *out, size_t size);
/* Pearson's Σ (observed − expected)²/expected. */
double test_chi_square(const int64_t *observed, const double *expected, int64_t cells);

#endif
