#include "test_subject.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

void ok(ssm_status status, const ssm_error *err)
{
    if (status != SSM_STATUS_OK) {
        fail_msg("%s: %s", err->file, err->message);
    }
}

void near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance)) {
        fail_msg("%s: got %.12g, expected %.12g", what, got, want);
    }
}

subject subject_open(const char *directory)
{
    ssm_error err;
    ssm_error_clear(&err);
    subject s = {0};
    ssm_checkpoint *checkpoint = NULL;
    const char *source = NULL;
    const ssm_checkpoint_options options = {0};
    ok(ssm_checkpoint_open(directory, &options, &checkpoint, &err), &err);
    ok(ssm_model_create(checkpoint, SSM_ISA_AUTO, &s.model, &err), &err);
    ok(ssm_tokenizer_open(TEST_TINY, &s.tokenizer, &err), &err);
    ok(ssm_prefix_token(s.tokenizer, TEST_TINY, &s.prefix, &source, &err), &err);
    assert_string_equal(source, "bos_token");
    assert_int_equal(s.prefix, 0);
    return s;
}

void subject_close(subject *s)
{
    ssm_model_free(s->model);
    ssm_tokenizer_free(s->tokenizer);
}
