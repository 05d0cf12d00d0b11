/* test_subject.h: a model with the tokenizer of tiny, for tests of evaluation. */
#ifndef TEST_SUBJECT_H
#define TEST_SUBJECT_H

#include <ssmscope/tasks.h>

#define TEST_TINY        SSM_SOURCE_DIR "/models/tiny"
#define TEST_TASK_GOLDEN SSM_SOURCE_DIR "/tests/golden/tasks"

typedef struct subject {
    ssm_model *model;
    ssm_tokenizer *tokenizer;
    int32_t prefix; /* of tiny */
} subject;

subject subject_open(const char *directory);
/* A new model of a named shape with rows for that tokenizer, written into the directory. */
subject subject_of_shape(const char *shape, const char *directory);
void subject_close(subject *s);

/* Fails with the error's words. */
void ok(ssm_status status, const ssm_error *err);
void near(double got, double want, double tolerance, const char *what);

#endif
