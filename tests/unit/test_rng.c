/* Philox against the published known answers; streams; distributions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"

#include <math.h>
#include <ssmscope/base.h>
#include <stdlib.h>
#include <string.h>

/* The known-answer vectors of the Random123 distribution (kat_vectors, philox4x32 10). */
static void known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[4];
        ssm__philox(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].expected, sizeof out);
    }
}

/* The layout of key and counter is part of the interface: seeds of old results must keep meaning.
 */
static void stream_is_philox_of_its_counter(void **state)
{
    (void)state;
    ssm_rng rng = ssm_rng_create(0x0123456789abcdefu, "embedding");
    uint32_t key[2] = {0x89abcdef, 0x01234567};
    assert_memory_equal(rng.key, key, sizeof key);
    uint64_t stream = rng.stream;
    for (uint32_t block = 0; block < 5; block++) {
        uint32_t counter[4] = {block, 0, (uint32_t)stream, (uint32_t)(stream >> 32)};
        uint32_t out[4];
        ssm__philox(counter, key, out);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(ssm_rng_u32(&rng), out[i]);
        }
    }
    /* The counter carries into its upper half. */
    rng.counter = 0xffffffff;
    rng.used = 4;
    for (int i = 0; i < 4; i++) {
        ssm_rng_u32(&rng);
    }
    uint32_t counter[4] = {0, 1, (uint32_t)stream, (uint32_t)(stream >> 32)};
    uint32_t out[4];
    ssm__philox(counter, key, out);
    assert_int_equal(ssm_rng_u32(&rng), out[0]);
}

/* Golden: the first numbers of one named stream. The name is hashed with XXH3-64. */
static void first_numbers_of_a_stream(void **state)
{
    (void)state;
    ssm_rng rng = ssm_rng_create(42, "bootstrap");
    assert_int_equal(rng.stream, UINT64_C(0x428f0ef4fa89561b));
    assert_int_equal(ssm_rng_u32(&rng), 0x7f027d85);
    assert_int_equal(ssm_rng_u32(&rng), 0xfd304b08);
    assert_true(ssm_rng_uniform(&rng) == 0x1.ddb2aa6a83461p-1);
    assert_int_equal(ssm_rng_below(&rng, 1000003), 515772);
}

static void streams_and_seeds_differ(void **state)
{
    (void)state;
    ssm_rng a = ssm_rng_create(1, "a");
    ssm_rng b = ssm_rng_create(1, "b");
    ssm_rng other_seed = ssm_rng_create(UINT64_C(1) << 32 | 1, "a");
    ssm_rng again = ssm_rng_create(1, "a");
    int equal_b = 0;
    int equal_seed = 0;
    for (int i = 0; i < 1000; i++) {
        uint32_t number = ssm_rng_u32(&a);
        equal_b += number == ssm_rng_u32(&b);
        equal_seed += number == ssm_rng_u32(&other_seed);
        assert_int_equal(number, ssm_rng_u32(&again));
    }
    assert_true(equal_b <= 1 && equal_seed <= 1);
}

/* n = 200,000 draws with a fixed seed; limits are five standard errors of each mean. */
static void uniform_and_normal_moments(void **state)
{
    (void)state;
    enum { N = 200000 };
    ssm_rng rng = ssm_rng_create(7, "moments");
    double sum = 0, square = 0, normal_sum = 0, normal_square = 0, normal_fourth = 0;
    for (int i = 0; i < N; i++) {
        double u = ssm_rng_uniform(&rng);
        assert_true(u >= 0 && u < 1);
        sum += u;
        square += u * u;
        double x = ssm_rng_normal(&rng);
        assert_true(isfinite(x));
        normal_sum += x;
        normal_square += x * x;
        normal_fourth += x * x * x * x;
    }
    double root = sqrt((double)N);
    assert_true(fabs(sum / N - 0.5) < 5 * sqrt(1.0 / 12) / root);
    assert_true(fabs(square / N - 1.0 / 3) < 5 * sqrt(4.0 / 45) / root);
    assert_true(fabs(normal_sum / N) < 5 / root);
    assert_true(fabs(normal_square / N - 1) < 5 * sqrt(2.0) / root);
    assert_true(fabs(normal_fourth / N - 3) < 5 * sqrt(96.0) / root); /* E x⁸ − 3² = 105 − 9 */
}

/* χ² over n cells with n − 1 degrees of freedom: mean n − 1, deviation sqrt(2 (n − 1)). */
static void below_is_even(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 7, 10, 100};
    ssm_rng rng = ssm_rng_create(9, "below");
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        uint64_t n = sizes[s];
        enum { DRAWS = 100000 };
        int counts[100] = {0};
        for (int i = 0; i < DRAWS; i++) {
            uint64_t number = ssm_rng_below(&rng, n);
            assert_true(number < n);
            counts[number]++;
        }
        double expected = (double)DRAWS / (double)n;
        double chi = 0;
        for (uint64_t i = 0; i < n; i++) {
            chi += (counts[i] - expected) * (counts[i] - expected) / expected;
        }
        double freedom = (double)n - 1;
        assert_true(chi <= freedom + 5 * sqrt(2 * freedom) + 1e-9);
    }
    /* A size just above 2^63: half of all draws are thrown away; the rest must stay below. */
    uint64_t large = (UINT64_C(1) << 63) + 1;
    int upper = 0;
    for (int i = 0; i < 10000; i++) {
        uint64_t number = ssm_rng_below(&rng, large);
        assert_true(number < large);
        upper += number >= large / 2;
    }
    assert_true(abs(upper - 5000) < 250); /* five standard deviations of 50 */
    assert_int_equal(ssm_rng_below(&rng, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(stream_is_philox_of_its_counter),
        cmocka_unit_test(first_numbers_of_a_stream),
        cmocka_unit_test(streams_and_seeds_differ),
        cmocka_unit_test(uniform_and_normal_moments),
        cmocka_unit_test(below_is_even),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
