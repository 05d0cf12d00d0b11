/* test_session.h: models and sessions for tests. Every helper fails the test on any error. */
#ifndef TEST_SESSION_H
#define TEST_SESSION_H

#include <ssmscope/model.h>

#include "test_paths.h"
#include "test_toy.h"

/* The checkpoint at path on the kernels of isa. Owner: the caller, ssm_model_free. */
ssm_model *test_model_open(const char *path, ssm_isa isa);
/* A toy model; its directory is gone when this returns. */
ssm_model *test_model_toy(const ssm_config *config, ssm_dtype dtype, uint64_t seed, ssm_isa isa,
                          const toy_options *options);
/* pool may be NULL; max_chunk 0: the default. Owner: the caller, ssm_session_free. */
ssm_session *test_session_create(const ssm_model *model, ssm_pool *pool, int64_t max_chunk);
ssm_pool *test_pool_create(int threads);

/* Runs ids through the session in calls of `chunk` tokens (0: one call) and returns all logits
 * [count][V], for free(). Checks that every row comes once and in its place. */
float *test_logits(ssm_session *session, const ssm_model *model, const int32_t *ids, int64_t count,
                   int64_t chunk);
/* The same from a session of its own without a pool. */
float *test_model_logits(const ssm_model *model, const int32_t *ids, int64_t count, int64_t chunk);

#endif
