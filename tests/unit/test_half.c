/* Half precision: all 65536 f16 and bf16 values, and rounding against float64 arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/half.h"
#include <ssmscope/base.h>

#include <math.h>
#include <stdbool.h>

/* The value of f16 bits by the definition of binary16; NaN aside. */
static double f16_value(uint16_t h)
{
    int exponent = (h >> 10) & 0x1F;
    double mantissa = h & 0x3FF;
    double magnitude = exponent == 0x1F ? HUGE_VAL
                       : exponent == 0  ? ldexp(mantissa, -24)
                                        : ldexp(1024 + mantissa, exponent - 25);
    return (h & 0x8000) != 0 ? -magnitude : magnitude;
}

static bool is_nan_f16(uint16_t h)
{
    return (h & 0x7FFF) > 0x7C00;
}

static void every_f16_value(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits <= 0xFFFF; bits++) {
        uint16_t h = (uint16_t)bits;
        float wide = ssm__f32_from_f16(h);
        if (is_nan_f16(h)) {
            assert_true(isnan(wide));
            assert_true((ssm__bits_from_f32(wide) & 0x400000) != 0); /* quiet */
            assert_int_equal(ssm__f16_from_f32(wide), h | 0x200);
        } else {
            assert_true((double)wide == f16_value(h));
            assert_int_equal(signbit(wide) != 0, (h & 0x8000) != 0);
            assert_int_equal(ssm__f16_from_f32(wide), h);
        }
    }
}

static void every_bf16_value(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits <= 0xFFFF; bits++) {
        uint16_t h = (uint16_t)bits;
        float wide = ssm__f32_from_bf16(h);
        assert_int_equal(ssm__bits_from_f32(wide), bits << 16);
        assert_int_equal(ssm__bf16_from_f32(wide), isnan(wide) ? h | 0x40 : h);
    }
}

/* Rounding to nearest even in float64: exact quotient by the spacing, nearbyint, exact product. */
static double round_to(double value, int mantissa_bits, int least_exponent, double largest)
{
    int exponent;
    frexp(value, &exponent); /* value = f × 2^exponent, 0.5 ≤ |f| < 1 */
    int spacing = exponent - 1 - mantissa_bits;
    if (spacing < least_exponent) {
        spacing = least_exponent;
    }
    double rounded = ldexp(nearbyint(ldexp(value, -spacing)), spacing);
    return fabs(rounded) > largest ? copysign(HUGE_VAL, value) : rounded;
}

static void check_narrowing(float value)
{
    double f16 = round_to((double)value, 10, -24, 65504.0);
    assert_true(f16_value(ssm__f16_from_f32(value)) == f16);
    assert_int_equal(ssm__f16_from_f32(value) >> 15, signbit(value) != 0);
    double bf16 = round_to((double)value, 7, -133, 0x1.FEp127);
    assert_true((double)ssm__f32_from_bf16(ssm__bf16_from_f32(value)) == bf16);
    assert_int_equal(ssm__bf16_from_f32(value) >> 15, signbit(value) != 0);
}

/* Around every f16 and bf16 value and every midpoint: the neighbouring floats decide the ties. */
static void narrowing_near_values_and_ties(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7C00; bits++) {
        double here = f16_value((uint16_t)bits);
        double next = bits == 0x7BFF ? 65536.0 : f16_value((uint16_t)(bits + 1));
        float centers[2] = {(float)here, (float)((here + next) / 2)};
        for (int i = 0; i < 2; i++) {
            check_narrowing(centers[i]);
            check_narrowing(-centers[i]);
            check_narrowing(nextafterf(centers[i], HUGE_VALF));
            check_narrowing(nextafterf(centers[i], -HUGE_VALF));
        }
    }
    for (uint32_t bits = 0; bits < 0x7F80; bits++) {
        for (uint32_t low = 0; low < 3; low++) {
            check_narrowing(ssm__f32_from_bits(bits << 16 | (0x7FFF + low)));
            check_narrowing(ssm__f32_from_bits(0x80000000u | bits << 16 | (0x7FFF + low)));
        }
    }
}

static void narrowing_of_random_bits(void **state)
{
    (void)state;
    ssm_rng rng = ssm_rng_create(1, "test half");
    for (int i = 0; i < 1000000; i++) {
        float value = ssm__f32_from_bits(ssm_rng_u32(&rng));
        if (!isnan(value) && !isinf(value)) {
            check_narrowing(value);
        }
        /* Half of all float32 exponents are far outside of f16: draw some from its range. */
        float near = (float)ldexp(ssm_rng_uniform(&rng), (int)ssm_rng_below(&rng, 45) - 27);
        check_narrowing(near);
    }
}

static void infinity_and_nan(void **state)
{
    (void)state;
    assert_int_equal(ssm__f16_from_f32(HUGE_VALF), 0x7C00);
    assert_int_equal(ssm__f16_from_f32(-HUGE_VALF), 0xFC00);
    assert_int_equal(ssm__f16_from_f32(65519.996f), 0x7BFF);
    assert_int_equal(ssm__f16_from_f32(65520.0f), 0x7C00);
    assert_int_equal(ssm__f16_from_f32(3e38f), 0x7C00);
    assert_int_equal(ssm__bf16_from_f32(HUGE_VALF), 0x7F80);
    assert_int_equal(ssm__bf16_from_f32(3.4028235e38f), 0x7F80);
    assert_int_equal(ssm__bf16_from_f32(ssm__f32_from_bits(0x7F800001)), 0x7FC0); /* stays NaN */
    assert_int_equal(ssm__bf16_from_f32(ssm__f32_from_bits(0xFFFFFFFF)), 0xFFFF);
    assert_int_equal(ssm__f16_from_f32(ssm__f32_from_bits(0x7F800001)), 0x7E00);
    assert_int_equal(ssm__f16_from_f32(ssm__f32_from_bits(0xFFFFFFFF)), 0xFFFF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_value),
        cmocka_unit_test(every_bf16_value),
        cmocka_unit_test(narrowing_near_values_and_ties),
        cmocka_unit_test(narrowing_of_random_bits),
        cmocka_unit_test(infinity_and_nan),
    };
    return cmocka_run_group_tests_name("half", tests, NULL, NULL);
}
