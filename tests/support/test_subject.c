#include "test_subject.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include <ssmscope/init.h>

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

subject subject_of_shape(const char *shape, const char *directory)
{
    ssm_error err;
    ssm_error_clear(&err);
    ssm_config config;
    ssm_layer_kind kinds[64];
    ok(ssm_shape_config(shape, &config, &err), &err);
    assert_true(config.n_layers <= 64);
    ok(ssm_shape_layers(shape, kinds, &err), &err);
    config.vocab_size = 4096; /* of the tokenizer of tiny */
    ok(ssm_init_write_layers(&config, kinds, SSM_DTYPE_F32, 3, directory, NULL, &err), &err);
    return subject_open(directory);
}

void subject_close(subject *s)
{
    ssm_model_free(s->model);
    ssm_tokenizer_free(s->tokenizer);
}
