/* The sampler: greedy and its ties, the sets of top-k and top-p, frequencies, padding rows, seeds.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/model.h>

enum { V = 40 };

static ssm_sampler *create(ssm_sampling sampling, int64_t vocab_size, int64_t n_valid)
{
    ssm_sampler *sampler = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_sampler_create(&sampling, vocab_size, n_valid, &sampler, &err) != SSM_STATUS_OK) {
        fail_msg("sampler: %s", err.message);
    }
    return sampler;
}

/* Rounded to quarters so that ties are many. */
static void random_logits(uint64_t seed, float logits[V])
{
    ssm_rng rng = ssm_rng_create(seed, "test/logits");
    for (int i = 0; i < V; i++) {
        logits[i] = (float)(round(4.0 * ssm_rng_normal(&rng)) / 4.0);
    }
}

/* ---- greedy ---------------------------------------------------------------------------------- */

static void test_greedy_takes_the_lowest_of_equals(void **state)
{
    (void)state;
    ssm_sampler *sampler = create((ssm_sampling){.temperature = 0, .top_p = 1, .seed = 1}, V, V);
    for (uint64_t seed = 0; seed < 200; seed++) {
        float logits[V];
        random_logits(seed, logits);
        int best = 0;
        for (int i = 1; i < V; i++) {
            best = logits[i] > logits[best] ? i : best;
        }
        assert_int_equal(ssm_sampler_next(sampler, logits), best);
    }
    float equal[V] = {0};
    assert_int_equal(ssm_sampler_next(sampler, equal), 0);
    equal[7] = equal[30] = 1.0F;
    assert_int_equal(ssm_sampler_next(sampler, equal), 7);
    ssm_sampler_free(sampler);
}

static void test_padding_rows_are_never_drawn(void **state)
{
    (void)state;
    float logits[V];
    random_logits(3, logits);
    logits[V - 1] = logits[V - 2] = 100.0F;
    const double temperatures[] = {0, 1, 50};
    for (size_t i = 0; i < sizeof temperatures / sizeof *temperatures; i++) {
        ssm_sampler *sampler =
            create((ssm_sampling){.temperature = temperatures[i], .top_p = 1, .seed = 4}, V, V - 2);
        for (int draw = 0; draw < 500; draw++) {
            const int32_t id = ssm_sampler_next(sampler, logits);
            assert_true(id >= 0 && id < V - 2);
        }
        ssm_sampler_free(sampler);
    }
}

/* ---- sets ------------------------------------------------------------------------------------ */

/* Ids by falling logit, the lower id first among equals. */
static void naive_order(const float logits[V], int order[V])
{
    for (int i = 0; i < V; i++) {
        int rank = 0;
        for (int j = 0; j < V; j++) {
            rank += logits[j] > logits[i] || (j < i && logits[j] == logits[i]);
        }
        order[rank] = i;
    }
}

/* p[id]: the k best ids; of those, with their probabilities at this temperature, the fewest whose
 * mass reaches top_p; renormalised. */
static void naive_probabilities(const ssm_sampling *s, const float logits[V], double p[V])
{
    int order[V], kept = s->top_k > 0 && s->top_k < V ? (int)s->top_k : V;
    double sum = 0.0, mass = 0.0;
    naive_order(logits, order);
    memset(p, 0, V * sizeof *p);
    for (int i = 0; i < kept; i++) {
        const double x = (double)logits[order[i]] - (double)logits[order[0]];
        p[order[i]] = exp(x / s->temperature);
        sum += p[order[i]];
    }
    for (int i = 0; i < kept; i++) {
        if (mass >= s->top_p * sum) {
            p[order[i]] = 0.0;
        }
        mass += p[order[i]];
    }
    for (int i = 0; i < V; i++) {
        p[i] /= mass;
    }
}

/* Draws with a fixed seed: each frequency within 5 standard deviations of the naive probability,
 * nothing outside the naive set, everything likely enough inside. */
static void check_distribution(ssm_sampling sampling, uint64_t logits_seed)
{
    enum { DRAWS = 20000 };
    float logits[V];
    double p[V];
    int drawn[V] = {0};
    random_logits(logits_seed, logits);
    naive_probabilities(&sampling, logits, p);
    ssm_sampler *sampler = create(sampling, V, V);
    for (int draw = 0; draw < DRAWS; draw++) {
        const int32_t id = ssm_sampler_next(sampler, logits);
        assert_true(id >= 0 && id < V);
        drawn[id]++;
    }
    ssm_sampler_free(sampler);
    for (int i = 0; i < V; i++) {
        const double want = DRAWS * p[i], deviation = sqrt(want * (1.0 - p[i]));
        if (p[i] == 0.0 ? drawn[i] > 0 : fabs(drawn[i] - want) > 5.0 * deviation + 1.0) {
            fail_msg("id %d: %d draws, %.1f were expected (temperature %g, k %d, p %g)", i,
                     drawn[i], want, sampling.temperature, (int)sampling.top_k, sampling.top_p);
        }
    }
}

static void test_distributions(void **state)
{
    (void)state;
    const ssm_sampling cases[] = {
        {.temperature = 1.0, .top_k = 0, .top_p = 1.0, .seed = 1},
        {.temperature = 0.7, .top_k = 0, .top_p = 1.0, .seed = 2},
        {.temperature = 3.0, .top_k = 0, .top_p = 1.0, .seed = 3},
        {.temperature = 1.0, .top_k = 1, .top_p = 1.0, .seed = 4},
        {.temperature = 2.0, .top_k = 7, .top_p = 1.0, .seed = 5},
        {.temperature = 2.0, .top_k = V, .top_p = 1.0, .seed = 6},
        {.temperature = 2.0, .top_k = 1000, .top_p = 1.0, .seed = 7},
        {.temperature = 1.0, .top_k = 0, .top_p = 0.5, .seed = 8},
        {.temperature = 2.0, .top_k = 0, .top_p = 0.9, .seed = 9},
        {.temperature = 1.0, .top_k = 0, .top_p = 1e-9, .seed = 10},
        {.temperature = 2.0, .top_k = 9, .top_p = 0.8, .seed = 11},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_distribution(cases[i], 100 + i);
        check_distribution(cases[i], 200 + i);
    }
}

/* Equal logits: the cut of top-k and top-p keeps the lower ids; five of forty ids reach 0.125. */
static void test_ties_at_the_cut(void **state)
{
    (void)state;
    const float equal[V] = {0};
    const ssm_sampling cuts[] = {{.temperature = 1.0, .top_k = 5, .top_p = 1.0, .seed = 1},
                                 {.temperature = 1.0, .top_k = 0, .top_p = 0.125, .seed = 1}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        bool drawn[V] = {false};
        ssm_sampler *sampler = create(cuts[i], V, V);
        for (int draw = 0; draw < 1000; draw++) {
            drawn[ssm_sampler_next(sampler, equal)] = true;
        }
        for (int id = 0; id < V; id++) {
            assert_int_equal(drawn[id], id < 5);
        }
        ssm_sampler_free(sampler);
    }
}

/* Logits whose exponentials overflow float64 must not. */
static void test_large_logits(void **state)
{
    (void)state;
    float logits[V] = {0};
    logits[3] = 3e4F;
    logits[9] = 3e4F;
    logits[11] = -INFINITY;
    ssm_sampler *sampler =
        create((ssm_sampling){.temperature = 1.0, .top_p = 1.0, .seed = 1}, V, V);
    int threes = 0;
    for (int draw = 0; draw < 1000; draw++) {
        const int32_t id = ssm_sampler_next(sampler, logits);
        assert_true(id == 3 || id == 9);
        threes += id == 3;
    }
    assert_in_range(threes, 420, 580); /* 5 standard deviations of 1000 fair draws */
    ssm_sampler_free(sampler);
}

/* ---- seeds and options ----------------------------------------------------------------------- */

static void test_seeds(void **state)
{
    (void)state;
    enum { DRAWS = 200 };
    int32_t first[DRAWS], again[DRAWS], other[DRAWS];
    int32_t *const runs[] = {first, again, other};
    const uint64_t seeds[] = {5, 5, 6};
    for (int run = 0; run < 3; run++) {
        ssm_sampler *sampler =
            create((ssm_sampling){.temperature = 2, .top_p = 1, .seed = seeds[run]}, V, V);
        for (int draw = 0; draw < DRAWS; draw++) {
            float logits[V];
            random_logits((uint64_t)draw, logits);
            runs[run][draw] = ssm_sampler_next(sampler, logits);
        }
        ssm_sampler_free(sampler);
    }
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
}

static void test_options_that_make_no_sense(void **state)
{
    (void)state;
    const struct {
        ssm_sampling sampling;
        int64_t vocab_size, n_valid;
    } bad[] = {
        {{.temperature = -1, .top_p = 1}, V, V},
        {{.temperature = NAN, .top_p = 1}, V, V},
        {{.temperature = INFINITY, .top_p = 1}, V, V},
        {{.temperature = 1, .top_k = -1, .top_p = 1}, V, V},
        {{.temperature = 1, .top_p = 0}, V, V},
        {{.temperature = 1, .top_p = 1.5}, V, V},
        {{.temperature = 1, .top_p = NAN}, V, V},
        {{.temperature = 1, .top_p = 1}, V, 0},
        {{.temperature = 1, .top_p = 1}, V, V + 1},
        {{.temperature = 1, .top_p = 1}, 0, 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ssm_sampler *sampler = NULL;
        ssm_error err;
        ssm_error_clear(&err);
        const ssm_status status =
            ssm_sampler_create(&bad[i].sampling, bad[i].vocab_size, bad[i].n_valid, &sampler, &err);
        if (status != SSM_STATUS_USAGE || sampler || err.message[0] == '\0') {
            fail_msg("case %zu was not refused", i);
        }
    }
    ssm_sampler_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(test_padding_rows_are_never_drawn),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_ties_at_the_cut),
        cmocka_unit_test(test_large_logits),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_options_that_make_no_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
