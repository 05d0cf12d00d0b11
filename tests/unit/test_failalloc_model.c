/* Models, sessions, generation and scores when memory runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failalloc.h"

#include <math.h>
#include <ssmscope/evaluate.h>
#include <ssmscope/model.h>

#include "base/error.h"
#include "test_paths.h"
#include "test_session.h"

enum { COUNT = 9 };

typedef struct fixture {
    char directory[TEST_PATH_MAX];
    ssm_model *model;
    int32_t ids[COUNT];
} fixture;

static void check(failalloc_case this)
{
    assert_true(failalloc_check(&this));
}

static ssm_status expect(bool right)
{
    return right ? SSM_STATUS_OK : SSM_STATUS_CHECK;
}

static int set_up(void **state)
{
    fixture *this = calloc(1, sizeof *this);
    assert_non_null(this);
    ssm_config config = toy_config();
    config.n_layers = 2;
    test_make_directory(this->directory);
    toy_checkpoint(this->directory, &config, SSM_DTYPE_F32, 1, NULL);
    this->model = test_model_toy(&config, SSM_DTYPE_F32, 1, SSM_ISA_AUTO, NULL);
    toy_ids(&config, 2, this->ids, COUNT);
    *state = this;
    return 0;
}

static int tear_down(void **state)
{
    fixture *this = *state;
    test_remove_directory(this->directory);
    ssm_model_free(this->model);
    free(this);
    return 0;
}

/* The checkpoint is the model's, also when the model cannot be made. */
static ssm_status run_model(void *context, ssm_error *err)
{
    const fixture *this = context;
    ssm_checkpoint *checkpoint = NULL;
    ssm_model *model = NULL;
    SSM__TRY(ssm_checkpoint_open(this->directory, NULL, &checkpoint, err));
    SSM__TRY(ssm_model_create(checkpoint, SSM_ISA_PORTABLE, &model, err));
    bool right = ssm_model_config(model)->n_layers == 2;
    ssm_model_free(model);
    return expect(right);
}

static void keep_last(void *context, int64_t first, int64_t tokens, const float *logits)
{
    (void)first;
    (void)tokens;
    *(float *)context = logits[0];
}

static ssm_status use_session(const fixture *this, ssm_session *session, ssm_error *err)
{
    float nll[COUNT];
    float logit = NAN;
    ssm_mask mask;
    const ssm_config *config = ssm_model_config(this->model);
    SSM__TRY(ssm_mask_create(config->n_layers, config->d_inner, config->d_state, &mask, err));
    ssm_status status = ssm_session_set_mask(session, &mask, -1, err); /* keeps all */
    if (status == SSM_STATUS_OK) {
        memset(mask.keep, 0, (size_t)(config->d_inner * config->d_state)); /* packs a layer */
        status = ssm_session_set_mask(session, &mask, -1, err);
    }
    ssm_mask_free(&mask);
    SSM__TRY(status);
    SSM__TRY(
        ssm_session_forward(session, this->ids, COUNT, SSM_LOGITS_LAST, keep_last, &logit, err));
    void *block = malloc(ssm_session_state_size(session));
    if (block == NULL) {
        return ssm__fail_memory(err, "a saved state", ssm_session_state_size(session));
    }
    ssm_session_save(session, block);
    status = ssm_session_restore(session, block, ssm_session_state_size(session), err);
    free(block);
    SSM__TRY(status);
    ssm_session_reset(session);
    SSM__TRY(ssm_session_nll(session, this->ids, COUNT, nll, err));
    return expect(isfinite(logit) && isfinite(nll[COUNT - 2]));
}

static ssm_status run_session(void *context, ssm_error *err)
{
    const fixture *this = context;
    ssm_session *session = NULL;
    ssm_session_options options = {.max_chunk = 4};
    SSM__TRY(ssm_session_create(this->model, &options, &session, err));
    ssm_status status = use_session(this, session, err);
    ssm_session_free(session);
    return status;
}

static ssm_status run_reference(void *context, ssm_error *err)
{
    const fixture *this = context;
    enum { WIDTH = 31 };
    double logits[COUNT * WIDTH] = {0};
    SSM__TRY(ssm_reference_forward(this->model, this->ids, COUNT, logits, NULL, err));
    return expect(isfinite(logits[0]) && logits[COUNT * WIDTH - 1] != 0);
}

static ssm_status run_sampler(void *context, ssm_error *err)
{
    (void)context;
    const float logits[4] = {1, 2, 3, 0};
    ssm_sampler *sampler = NULL;
    ssm_sampling sampling = {.temperature = 1, .top_k = 2, .top_p = 0.9, .seed = 1};
    SSM__TRY(ssm_sampler_create(&sampling, 4, 4, &sampler, err));
    int32_t id = ssm_sampler_next(sampler, logits);
    ssm_sampler_free(sampler);
    return expect(id == 1 || id == 2);
}

static void models(void **state)
{
    check((failalloc_case){.name = "ssm_model_create", .run = run_model, .context = *state});
    check((failalloc_case){.name = "ssm_session", .run = run_session, .context = *state});
    check(
        (failalloc_case){.name = "ssm_reference_forward", .run = run_reference, .context = *state});
    check((failalloc_case){.name = "ssm_sampler", .run = run_sampler});
}

static void run_without_memory(const fixture *this, ssm_pool *pool)
{
    ssm_session *session = test_session_create(this->model, pool, 4);
    float logit = 0;
    float nll[COUNT];
    ssm_error err = {0};
    failalloc_arm(1, FAILALLOC_FROM);
    ssm_status forward =
        ssm_session_forward(session, this->ids, COUNT, SSM_LOGITS_ALL, keep_last, &logit, &err);
    ssm_session_reset(session);
    ssm_status scored = ssm_session_nll(session, this->ids, COUNT, nll, &err);
    failalloc_disarm();
    assert_int_equal(forward, SSM_STATUS_OK);
    assert_int_equal(scored, SSM_STATUS_OK);
    assert_int_equal(failalloc.seen, 0);
    ssm_session_free(session);
}

/* Nothing may be allocated once a session exists (memory law). */
static void forward_allocates_nothing(void **state)
{
    run_without_memory(*state, NULL);
    ssm_pool *pool = test_pool_create(3);
    run_without_memory(*state, pool);
    ssm_pool_free(pool);
}

/* The other families that only have states: no more memory for 200 tokens than for one. */
static void no_family_allocates(void **state)
{
    (void)state;
    static const char *const names[] = {"hf-tiny/falcon", "hf-tiny/mamba2-g4-limit",
                                        "hybrid/mamba2-wide"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[TEST_PATH_MAX];
        enum { LONG = 200 };
        int32_t ids[LONG];
        float logit = 0;
        ssm_error err = {0};
        ssm_model *model = test_model_open(test_golden_path(path, names[i]), SSM_ISA_AUTO);
        toy_ids(ssm_model_config(model), 4, ids, LONG);
        ssm_session *session = test_session_create(model, NULL, 64);
        failalloc_arm(1, FAILALLOC_FROM);
        const ssm_status status =
            ssm_session_forward(session, ids, LONG, SSM_LOGITS_ALL, keep_last, &logit, &err);
        failalloc_disarm();
        assert_int_equal(status, SSM_STATUS_OK);
        assert_int_equal(failalloc.seen, 0);
        ssm_session_free(session);
        ssm_model_free(model);
    }
}

/* ---- attention: the one thing that grows with the text ----------------------------------------
 */

typedef struct grown {
    ssm_model *model;
    int32_t ids[100];
} grown;

static ssm_status run_growing(void *context, ssm_error *err)
{
    const grown *this = context;
    ssm_session *session = NULL;
    float logit = NAN;
    SSM__TRY(ssm_session_create(this->model, NULL, &session, err));
    ssm_status status =
        ssm_session_forward(session, this->ids, 100, SSM_LOGITS_LAST, keep_last, &logit, err);
    ssm_session_free(session);
    return status == SSM_STATUS_OK ? expect(isfinite(logit)) : status;
}

/* At 60 tokens the cache has one block, at 100 it needs two. What cannot grow stays as it was. */
static void growing_fails_whole(const grown *this, bool restoring)
{
    ssm_session *other = test_session_create(this->model, NULL, 0);
    ssm_session *session = test_session_create(this->model, NULL, 0);
    float *want = test_logits(other, this->model, this->ids, 100, 0);
    free(test_logits(session, this->model, this->ids, 60, 0));
    const size_t bytes = ssm_session_state_size(other);
    void *block = malloc(bytes);
    assert_non_null(block);
    ssm_session_save(other, block);

    ssm_error err = {0};
    failalloc_arm(1, FAILALLOC_FROM);
    const ssm_status status = restoring ? ssm_session_restore(session, block, bytes, &err)
                                        : ssm_session_forward(session, this->ids + 60, 40,
                                                              SSM_LOGITS_NONE, NULL, NULL, &err);
    failalloc_disarm();
    if (!FAILALLOC_OFF) {
        assert_int_equal(status, SSM_STATUS_MEMORY);
        assert_int_equal(ssm_session_position(session), 60);
        float *got = test_logits(session, this->model, this->ids + 60, 40, 0);
        const int64_t V = ssm_model_config(this->model)->vocab_size;
        assert_memory_equal(got, want + 60 * V, (size_t)(40 * V) * sizeof *got);
        free(got);
    }
    free(block);
    free(want);
    ssm_session_free(session);
    ssm_session_free(other);
}

static void growing(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    grown this = {.model =
                      test_model_open(test_golden_path(path, "hybrid/transformer"), SSM_ISA_AUTO)};
    toy_ids(ssm_model_config(this.model), 4, this.ids, 100);
    check((failalloc_case){.name = "attention", .run = run_growing, .context = &this});
    growing_fails_whole(&this, false);
    growing_fails_whole(&this, true);
    ssm_model_free(this.model);
}

/* ---- scores ---------------------------------------------------------------------------------- */

static ssm_status run_scores(void *context, ssm_error *err)
{
    const fixture *this = context;
    int32_t ids[COUNT];
    memcpy(ids, this->ids, sizeof ids);
    ssm_domain domains[2] = {{.name = (char[]){"a"}, .ids = {ids, COUNT, COUNT}},
                             {.name = (char[]){"b"}, .ids = {ids, COUNT, COUNT}}};
    ssm_corpus corpus = {.domains = domains, .n_domains = 2};
    ssm_score_options options = {.window = 4, .windows = 2, .continuation = -1};
    ssm_window_score *scores = NULL;
    int64_t count = 0;
    SSM__TRY(ssm_score_windows(this->model, &corpus, NULL, &options, &scores, &count, err));
    ssm_status status = expect(count == 4 && scores[0].nll == scores[2].nll);
    ssm_bootstrap_options bootstrap = {.resamples = 50, .seed = 1};
    ssm_perplexity perplexity;
    ssm_difference difference;
    if (status == SSM_STATUS_OK) {
        status = ssm_perplexity_of(scores, count, 2, -1, &bootstrap, &perplexity, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm_difference_of(scores, scores, count, 2, 0, &bootstrap, &difference, err);
    }
    if (status == SSM_STATUS_OK) {
        status = expect(difference.perplexity == 0 && perplexity.tokens == 12);
    }
    ssm_scores_free(scores);
    return status;
}

static void scores(void **state)
{
    check((failalloc_case){
        .name = "ssm_score_windows and bootstrap", .run = run_scores, .context = *state});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(models, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forward_allocates_nothing, set_up, tear_down),
        cmocka_unit_test(no_family_allocates),
        cmocka_unit_test(growing),
        cmocka_unit_test_setup_teardown(scores, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("failalloc_model", tests, NULL, NULL);
}
