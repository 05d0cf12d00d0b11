/* test_session.c: models and sessions for tests. */
#include "test_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_numbers.h"

static void check(ssm_status status, const ssm_error *err, const char *what)
{
    if (status != SSM_STATUS_OK) {
        fail_msg("%s: %s %s %s", what, err->file, err->tensor, err->message);
    }
}

ssm_model *test_model_open(const char *path, ssm_isa isa)
{
    ssm_checkpoint *checkpoint = NULL;
    ssm_model *model = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    check(ssm_checkpoint_open(path, NULL, &checkpoint, &err), &err, "checkpoint");
    check(ssm_model_create(checkpoint, isa, &model, &err), &err, "model");
    return model;
}

ssm_model *test_model_toy(const ssm_config *config, ssm_dtype dtype, uint64_t seed, ssm_isa isa,
                          const toy_options *options)
{
    char directory[TEST_PATH_MAX];
    test_make_directory(directory);
    toy_checkpoint(directory, config, dtype, seed, options);
    ssm_model *model = test_model_open(directory, isa);
    test_remove_directory(directory); /* the mapping stays */
    return model;
}

ssm_session *test_session_create(const ssm_model *model, ssm_pool *pool, int64_t max_chunk)
{
    const ssm_session_options options = {.pool = pool, .max_chunk = max_chunk};
    ssm_session *session = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    check(ssm_session_create(model, &options, &session, &err), &err, "session");
    return session;
}

ssm_pool *test_pool_create(int threads)
{
    ssm_pool *pool = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    check(ssm_pool_create(threads, &pool, &err), &err, "pool");
    return pool;
}

typedef struct sink {
    float *logits;
    int64_t vocab_size, rows, first_of_call;
} sink;

static void take_logits(void *context, int64_t first, int64_t tokens, const float *logits)
{
    sink *s = context;
    assert_int_equal(s->first_of_call + first, s->rows);
    memcpy(s->logits + s->rows * s->vocab_size, logits,
           (size_t)(tokens * s->vocab_size) * sizeof *logits);
    s->rows += tokens;
}

float *test_logits(ssm_session *session, const ssm_model *model, const int32_t *ids, int64_t count,
                   int64_t chunk)
{
    sink s = {.vocab_size = ssm_model_config(model)->vocab_size};
    s.logits = test_floats(count * s.vocab_size);
    const int64_t step = chunk > 0 ? chunk : count > 0 ? count : 1;
    for (; s.first_of_call < count; s.first_of_call += step) {
        const int64_t left = count - s.first_of_call, tokens = left < step ? left : step;
        ssm_error err;
        ssm_error_clear(&err);
        check(ssm_session_forward(session, ids + s.first_of_call, tokens, SSM_LOGITS_ALL,
                                  take_logits, &s, &err),
              &err, "forward");
        assert_int_equal(s.rows, s.first_of_call + tokens);
    }
    return s.logits;
}

float *test_model_logits(const ssm_model *model, const int32_t *ids, int64_t count, int64_t chunk)
{
    ssm_session *session = test_session_create(model, NULL, 0);
    float *logits = test_logits(session, model, ids, count, chunk);
    ssm_session_free(session);
    return logits;
}
