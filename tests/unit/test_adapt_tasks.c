/* `scheduled` on continuations: the set is chosen on the passage that is scored, for each
 * continuation its own; and the share that a rule recovers, by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/adapt.h>
#include <ssmscope/tasks.h>

#include "test_session.h"

#define CONTEXT "The old man walked down to the river and looked at the"
static const char *const continuations[] = {" boat that lay there", " mathematics of it", " boat"};
enum { CONTINUATIONS = sizeof continuations / sizeof *continuations, IDS_MAX = 64 };

typedef struct subject {
    ssm_model *model;
    ssm_tokenizer *tokenizer;
    ssm_adapter *adapter;
} subject;

static subject open_subject(int64_t budget)
{
    subject s = {.model = test_model_open(SSM_SOURCE_DIR "/models/tiny", SSM_ISA_AUTO)};
    const ssm_corpus none = {0};
    const ssm_adapt_options options = {.rule = "scheduled", .budget = budget, .window = IDS_MAX};
    assert_int_equal(ssm_tokenizer_open(SSM_SOURCE_DIR "/models/tiny", &s.tokenizer, NULL), 0);
    assert_int_equal(ssm_adapt_create(s.model, &none, NULL, &options, &s.adapter, NULL), 0);
    return s;
}

static void close_subject(subject *s)
{
    ssm_adapt_free(s->adapter);
    ssm_tokenizer_free(s->tokenizer);
    ssm_model_free(s->model);
}

static void score(const subject *s, const ssm_chooser *chooser, int64_t first, int64_t count,
                  ssm_continuation_score *out)
{
    const ssm_scorer_options options = {.max_length = IDS_MAX, .prefix_id = -1, .chooser = chooser};
    ssm_scorer *scorer = NULL;
    assert_int_equal(ssm_scorer_create(s->model, s->tokenizer, NULL, &options, &scorer, NULL), 0);
    assert_int_equal(ssm_scorer_score(scorer, CONTEXT, continuations + first, count, out, NULL), 0);
    ssm_scorer_free(scorer);
}

/* −Σ nll of the continuation, under the set of the passage. */
static double by_hand(const subject *s, int64_t which)
{
    const ssm_chooser *chooser = ssm_adapt_chooser(s->adapter);
    const ssm_encode_options options = {.invalid_utf8 = SSM_INVALID_UTF8_ERROR};
    char text[256] = CONTEXT;
    ssm_ids ids = {0};
    float nll[IDS_MAX];
    const ssm_mask *mask = NULL;
    double sum = 0.0;
    assert_int_equal(ssm_tokenizer_encode(s->tokenizer, text, strlen(text), &options, &ids, NULL),
                     0);
    const int64_t context = ids.count;
    ids.count = 0;
    strcat(text, continuations[which]);
    assert_int_equal(ssm_tokenizer_encode(s->tokenizer, text, strlen(text), &options, &ids, NULL),
                     0);
    assert_true(ids.count > context && ids.count <= IDS_MAX);
    assert_int_equal(chooser->choose(chooser->context, -1, ids.data, ids.count - 1, &mask, NULL),
                     0);
    ssm_session *session = test_session_create(s->model, NULL, 0);
    assert_int_equal(ssm_session_set_mask(session, mask, -1, NULL), 0);
    assert_int_equal(ssm_session_nll(session, ids.data, ids.count, nll, NULL), 0);
    for (int64_t t = context; t < ids.count; t++) {
        sum -= (double)nll[t - 1];
    }
    ssm_session_free(session);
    ssm_ids_free(&ids);
    return sum;
}

static void every_continuation_has_the_set_of_its_passage(void **state)
{
    (void)state;
    subject s = open_subject(3);
    ssm_continuation_score together[CONTINUATIONS];
    ssm_continuation_score unpruned[CONTINUATIONS];
    score(&s, ssm_adapt_chooser(s.adapter), 0, CONTINUATIONS, together);
    score(&s, NULL, 0, CONTINUATIONS, unpruned);
    for (int64_t i = 0; i < CONTINUATIONS; i++) {
        ssm_continuation_score alone;
        score(&s, ssm_adapt_chooser(s.adapter), i, 1, &alone);
        assert_true(alone.log_likelihood == together[i].log_likelihood);
        /* nll is rounded to float32 a token. */
        assert_true(fabs(together[i].log_likelihood - by_hand(&s, i)) < 1e-5);
        assert_true(together[i].log_likelihood != unpruned[i].log_likelihood);
    }
    close_subject(&s);
    s = open_subject(16);
    score(&s, ssm_adapt_chooser(s.adapter), 0, CONTINUATIONS, together);
    for (int64_t i = 0; i < CONTINUATIONS; i++) {
        assert_true(together[i].log_likelihood == unpruned[i].log_likelihood);
    }
    close_subject(&s);
}

/* 8 items: static has 2 right, scheduled 5, unpruned 6: (5 − 2) / (6 − 2). */
static void the_recovered_share_by_hand(void **state)
{
    (void)state;
    enum { N = 8 };
    const int right[3] = {2, 5, 6};
    const ssm_bootstrap_options bootstrap = {.resamples = 0, .seed = 1};
    ssm_task_score scores[3][N] = {0};
    ssm_continuation_score choices[3] = {{.log_likelihood = -3.0}, /* perplexity exp(3) */
                                         {.log_likelihood = -2.0},
                                         {.log_likelihood = -1.0}};
    double share = 0.0;
    ssm_interval interval = {0};
    for (int m = 0; m < 3; m++) {
        for (int i = 0; i < N; i++) {
            scores[m][i] = (ssm_task_score){.n_choices = 1, .choices = &choices[m]};
            scores[m][i].right[SSM_METRIC_ACC] = i < right[m];
        }
    }
    assert_int_equal(ssm_task_recovered_of(scores[0], scores[1], scores[2], N, SSM_METRIC_ACC,
                                           &bootstrap, &share, &interval, NULL),
                     0);
    assert_true(share == 0.75 && isnan(interval.lo));
    const ssm_bootstrap_options some = {.resamples = 400, .seed = 1};
    assert_int_equal(ssm_task_recovered_of(scores[0], scores[1], scores[2], N,
                                           SSM_METRIC_PERPLEXITY, &some, &share, &interval, NULL),
                     0);
    /* The same in every item, so in every resample; rounding of exp. */
    const double wanted = (exp(3.0) - exp(2.0)) / (exp(3.0) - exp(1.0));
    assert_true(fabs(share - wanted) < 1e-12 && fabs(interval.lo - wanted) < 1e-12 &&
                fabs(interval.hi - wanted) < 1e-12);
    assert_int_equal(ssm_task_recovered_of(scores[1], scores[0], scores[1], N, SSM_METRIC_ACC,
                                           &some, &share, &interval, NULL),
                     0);
    assert_true(isnan(share) && isnan(interval.lo) && isnan(interval.hi));
    assert_int_equal(ssm_task_recovered_of(scores[0], scores[1], scores[2], 0, SSM_METRIC_ACC,
                                           &some, &share, &interval, NULL),
                     SSM_STATUS_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_continuation_has_the_set_of_its_passage),
        cmocka_unit_test(the_recovered_share_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
