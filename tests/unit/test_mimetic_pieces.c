/* The pieces of the mimetic initialisation by hand: modes, identity, gate; the words that name
 * them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "train/mimetic.h"

static void modes_by_hand(void **state)
{
    (void)state;
    float W_B[4] = {1, 2, 3, 4};
    float W_C[4] = {5, 6, 7, 8};
    ssm_rng rng = ssm_rng_create(0, "test");
    assert_int_equal(ssm__mimetic_correlate(SSM_MIMETIC_HALF, 0, &rng, 2, 2, W_B, W_C, NULL), 0);
    const float half[4] = {3, 4, 5, 6};
    assert_memory_equal(W_C, half, sizeof half);
    assert_int_equal(ssm__mimetic_correlate(SSM_MIMETIC_EQUAL, 0, &rng, 2, 2, W_B, W_C, NULL), 0);
    const float equal[4] = {1, 2, 3, 4};
    assert_memory_equal(W_C, equal, sizeof equal);
    assert_memory_equal(W_B, equal, sizeof equal);
}

/* Rows (3, 4) and (0, 5) have the norms 5: so have the orthogonal ones, up to float32's rounding.
 */
static void orthogonal_rows(void **state)
{
    (void)state;
    float W_B[4] = {3, 4, 0, 5};
    float W_C[4] = {10, 0, 0, 10};
    ssm_rng rng = ssm_rng_create(1, "test");
    assert_int_equal(ssm__mimetic_correlate(SSM_MIMETIC_ORTHOGONAL, 0, &rng, 2, 2, W_B, W_C, NULL),
                     0);
    assert_true(fabs(hypot((double)W_B[0], (double)W_B[1]) - 5) < 1e-6);
    assert_true(fabs(hypot((double)W_B[2], (double)W_B[3]) - 5) < 1e-6);
    assert_true(fabs((double)W_B[0] * (double)W_B[2] + (double)W_B[1] * (double)W_B[3]) < 1e-5);
    for (int i = 0; i < 4; i++) {
        assert_true(fabs((double)W_C[i] - 2 * (double)W_B[i]) < 1e-5); /* one matrix, two sizes */
    }
    /* Noise is each one's own, and small: with 0.1 the rows stay near the common ones. */
    float noisy_B[400];
    float noisy_C[400];
    double common = 0;
    double apart = 0;
    for (int i = 0; i < 400; i++) {
        noisy_B[i] = 1;
        noisy_C[i] = 1;
    }
    assert_int_equal(
        ssm__mimetic_correlate(SSM_MIMETIC_ORTHOGONAL, 0.1, &rng, 10, 40, noisy_B, noisy_C, NULL),
        0);
    for (int i = 0; i < 400; i++) {
        const double difference = (double)noisy_B[i] - (double)noisy_C[i];
        common += (double)noisy_B[i] * (double)noisy_C[i] / 400;
        apart += difference * difference / 400;
    }
    assert_true(fabs(common - 1) < 0.05);   /* elements of rms 1; sd of the mean 0.1/√400·√2 */
    assert_true(fabs(apart - 0.02) < 0.01); /* 2 · 0.1², 400 squares: sd 0.0014 */
    /* More rows than columns: orthogonal in blocks, all of them of the same size. */
    float tall_B[6] = {1, 1, 1, 1, 1, 1};
    float tall_C[6] = {1, 1, 1, 1, 1, 1};
    assert_int_equal(
        ssm__mimetic_correlate(SSM_MIMETIC_ORTHOGONAL, 0, &rng, 3, 2, tall_B, tall_C, NULL), 0);
    for (int i = 0; i < 3; i++) {
        assert_true(fabs(hypot((double)tall_B[2 * i], (double)tall_B[2 * i + 1]) - sqrt(2)) < 1e-6);
    }
}

static void identity_and_gate(void **state)
{
    (void)state;
    float conv[12];
    float bias[3] = {7, 7, 7};
    for (int i = 0; i < 12; i++) {
        conv[i] = 7;
    }
    ssm__mimetic_identity(1, 1, 4, conv, bias);
    const float expected[12] = {7, 7, 7, 7, 0, 0, 0, 1, 7, 7, 7, 7};
    const float expected_bias[3] = {7, 0, 7};
    assert_memory_equal(conv, expected, sizeof expected);
    assert_memory_equal(bias, expected_bias, sizeof bias);
    ssm__mimetic_identity(0, 3, 4, conv, NULL);
    assert_true(conv[3] == 1 && conv[11] == 1 && conv[8] == 0);

    float W_2[2] = {1, 2};
    float b[2] = {3, 4};
    ssm__mimetic_gate(2, W_2, 2, b);
    assert_true(W_2[0] == 0 && W_2[1] == 0 && b[0] == 10 && b[1] == 10);
    /* α = exp(log sigmoid(10)/16): 1 but for 3e-6. */
    assert_true(1 - exp(-log1p(exp(-10)) / 16) < 3e-6);
}

static void words(void **state)
{
    (void)state;
    ssm_mimetic mimetic = ssm_mimetic_default();
    ssm_mimetic_mode mode;
    ssm_error err;
    char text[256];
    assert_true(mimetic.A && mimetic.delta && mimetic.correlation && mimetic.conv);
    assert_int_equal(ssm_mimetic_parse_switches("conv,A", &mimetic, NULL), SSM_STATUS_OK);
    assert_true(mimetic.A && !mimetic.delta && !mimetic.correlation && mimetic.conv);
    ssm__mimetic_describe(&mimetic, text, sizeof text);
    assert_string_equal(text, "A,conv; BC half; c 8; noise 0.1; layers all; heads all");
    assert_int_equal(ssm_mimetic_parse_switches("all", &mimetic, NULL), SSM_STATUS_OK);
    assert_true(mimetic.A && mimetic.delta && mimetic.correlation && mimetic.conv);
    const char *const wrong[] = {"", "A,", "B", "delta,dleta", "A delta"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ssm_error_clear(&err);
        assert_int_equal(ssm_mimetic_parse_switches(wrong[i], &mimetic, &err), SSM_STATUS_USAGE);
        assert_non_null(strstr(err.message, "some of A, delta, BC, conv"));
    }
    ssm_error_clear(&err);
    assert_int_equal(ssm_mimetic_parse_switches("dleta", &mimetic, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "did you mean delta?"));
    assert_int_equal(ssm_mimetic_parse_mode("orthogonal", &mode, NULL), SSM_STATUS_OK);
    assert_string_equal(ssm_mimetic_mode_name(mode), "orthogonal");
    assert_int_equal(ssm_mimetic_parse_mode("full", &mode, NULL), SSM_STATUS_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_by_hand),
        cmocka_unit_test(orthogonal_rows),
        cmocka_unit_test(identity_and_gate),
        cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
