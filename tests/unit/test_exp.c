/* The exponentials over all float32 inputs, softplus and SiLU over a dense sample, in every
 * instruction set of this machine: the stated ulp bounds, special values, the same bits.
 * ctest labels: slow */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/half.h"
#include "kernels/kernels.h"

enum { BLOCK = 4096 };

typedef void elementwise(const float *x, float *out, int64_t count);

static ssm_isa fastest(void)
{
    return ssm_isa_best();
}

/* Distance of a float32 result from the exact value, in units of the last place of the exact one.
 */
static double ulps(float got, double exact)
{
    int exponent;
    frexp(exact, &exponent);
    return fabs((double)got - exact) / ldexp(1.0, exponent - 24);
}

typedef double exact_function(double x);

static double exact_decay(double p)
{
    return exp2(p);
}
static double exact_softplus(double x)
{
    return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
}
static double exact_silu(double x)
{
    return x / (1.0 + exp(-x));
}

/* Largest error of `fast` over the floats with bits first, first + step, … ≤ last. */
static double worst_ulps(elementwise *fast, exact_function *exact, uint32_t first, uint32_t last,
                         uint32_t step)
{
    static float x[BLOCK], out[BLOCK];
    double worst = 0.0;
    for (uint64_t bits = first; bits <= last;) {
        int64_t count = 0;
        for (; count < BLOCK && bits <= last; bits += step) {
            x[count++] = ssm__f32_from_bits((uint32_t)bits);
        }
        fast(x, out, count);
        for (int64_t i = 0; i < count; i++) {
            const double u = ulps(out[i], exact((double)x[i]));
            worst = u > worst ? u : worst;
        }
    }
    return worst;
}

/* All floats between two magnitudes of one sign must give `value`. */
static void expect_constant(elementwise *fast, float from, float to, float value)
{
    static float x[BLOCK], out[BLOCK];
    const uint32_t last = ssm__bits_from_f32(to);
    for (uint64_t bits = ssm__bits_from_f32(from); bits <= last;) {
        int64_t count = 0;
        for (; count < BLOCK && bits <= last; bits++) {
            x[count++] = ssm__f32_from_bits((uint32_t)bits);
        }
        fast(x, out, count);
        for (int64_t i = 0; i < count; i++) {
            if (out[i] != value) {
                fail_msg("f(%a) = %a, expected %a", (double)x[i], (double)out[i], (double)value);
            }
        }
    }
}

static const float tiny_argument = 0x1p-25f; /* below it e^x rounds to 1 */
static const float lowest = 87.33654f;       /* e^−x is below the normal numbers beyond it */
static const float highest = 88.72283f;

static void exp_is_within_its_bound_everywhere(void **state)
{
    (void)state;
    const ssm__kernels *k = ssm__kernels_for(fastest());
    const double below =
        worst_ulps(k->exp, exp, ssm__bits_from_f32(-tiny_argument), ssm__bits_from_f32(-lowest), 1);
    const double above =
        worst_ulps(k->exp, exp, ssm__bits_from_f32(tiny_argument), ssm__bits_from_f32(highest), 1);
    printf("exp: at most %.4f ulp below 0, %.4f above\n", below, above);
    assert_true(below <= 1.1); /* docs/numerics.md states 1.1; measured 1.03 */
    assert_true(above <= 1.1);
    expect_constant(k->exp, -0.0f, -tiny_argument / 2, 1.0f);
    expect_constant(k->exp, 0.0f, tiny_argument, 1.0f);
    expect_constant(k->exp, -87.33656f, -INFINITY, 0.0f);
    expect_constant(k->exp, 88.7229f, INFINITY, INFINITY);
}

static void decay_is_within_its_bound_everywhere(void **state)
{
    (void)state;
    const ssm__kernels *k = ssm__kernels_for(fastest());
    const double worst = worst_ulps(k->decay, exact_decay, ssm__bits_from_f32(-0x1p-24f),
                                    ssm__bits_from_f32(-126.0f), 1);
    printf("decay: at most %.4f ulp\n", worst);
    assert_true(worst <= 1.1); /* stated bound */
    expect_constant(k->decay, -0.0f, -0x1p-26f, 1.0f);
    expect_constant(k->decay, -126.0f, -INFINITY, 0x1p-126f);
}

/* A slow mode multiplies a thousand decays near 1; their mean error must not be a bias. */
static void decay_near_one_has_no_bias(void **state)
{
    (void)state;
    static float x[BLOCK], out[BLOCK];
    const ssm__kernels *k = ssm__kernels_for(fastest());
    double bias = 0.0;
    for (int i = 0; i < BLOCK; i++) {
        x[i] = -2e-3f * (float)(i + 1) / BLOCK;
    }
    k->decay(x, out, BLOCK);
    for (int i = 0; i < BLOCK; i++) {
        bias += ((double)out[i] - exp2((double)x[i])) / BLOCK;
    }
    printf("decay: mean error %.3g over [-2e-3, 0)\n", bias);
    /* Rounding alone leaves 3e-8/√4096 = 5e-10 at random; a polynomial with constant term
     * 1 + 7.2e-8 would leave 7e-8. */
    assert_true(fabs(bias) <= 3e-9);
}

static void softplus_and_silu_are_within_their_bounds(void **state)
{
    (void)state;
    static float zero[16];
    const ssm__kernels *k = ssm__kernels_for(fastest());
    double softplus = 0.0;
    for (int side = 0; side < 2; side++) {
        const uint32_t sign = side ? 0x80000000u : 0u;
        /* |x| from 2^−30 to 80; e^−80 is still normal */
        static float x[BLOCK], out[BLOCK];
        for (uint32_t bits = 0x30800000u; bits < 0x42a00000u; bits += 16 * 256 * 3) {
            for (int i = 0; i < BLOCK; i++) {
                x[i] = ssm__f32_from_bits(sign | (bits + 3u * (uint32_t)i));
            }
            k->softplus_bias(x, zero, out, BLOCK / 16);
            for (int i = 0; i < BLOCK; i++) {
                const double u = ulps(out[i], exact_softplus((double)x[i]));
                softplus = u > softplus ? u : softplus;
            }
        }
    }
    const double below = worst_ulps(k->silu, exact_silu, ssm__bits_from_f32(-0x1p-30f),
                                    ssm__bits_from_f32(-80.0f), 17);
    const double above = worst_ulps(k->silu, exact_silu, ssm__bits_from_f32(0x1p-30f),
                                    ssm__bits_from_f32(1e30f), 17);
    printf("softplus: at most %.3f ulp; SiLU: %.3f below 0, %.3f above\n", softplus, below, above);
    assert_true(softplus <= 3.5); /* exp, one division, polynomial, one sum */
    assert_true(below <= 3.5);
    assert_true(above <= 3.5);
}

static void special_values(void **state)
{
    (void)state;
    for (int isa = SSM_ISA_PORTABLE; isa <= SSM_ISA_AVX512; isa++) {
        if (!ssm_isa_supported((ssm_isa)isa)) {
            continue;
        }
        const ssm__kernels *k = ssm__kernels_for((ssm_isa)isa);
        const float x[4] = {NAN, INFINITY, -INFINITY, 0.0f};
        float out[4];
        k->exp(x, out, 4);
        assert_true(isnan(out[0]) && out[1] == INFINITY && out[2] == 0.0f && out[3] == 1.0f);
        k->silu(x, out, 4);
        assert_true(isnan(out[0]) && out[1] == INFINITY && out[3] == 0.0f);
        k->decay(x, out, 4);
        assert_true(isnan(out[0]) && out[2] == 0x1p-126f && out[3] == 1.0f);
    }
}

/* Every 61st float, all of them would take the portable kernels minutes. */
static void every_instruction_set_gives_the_same_bits(void **state)
{
    (void)state;
    static float x[BLOCK], one[BLOCK], other[BLOCK];
    static float bias[16] = {0.5f, -0.25f};
    const ssm__kernels *portable = ssm__kernels_for(SSM_ISA_PORTABLE);
    for (uint64_t bits = 0; bits <= UINT32_MAX - 61u * BLOCK; bits += 61ull * 67 * BLOCK) {
        for (int i = 0; i < BLOCK; i++) {
            x[i] = ssm__f32_from_bits((uint32_t)bits + 61u * (uint32_t)i);
            x[i] = isnan(x[i]) ? 1.0f : x[i];
        }
        for (int isa = SSM_ISA_AVX2; isa <= SSM_ISA_AVX512; isa++) {
            if (!ssm_isa_supported((ssm_isa)isa)) {
                continue;
            }
            const ssm__kernels *k = ssm__kernels_for((ssm_isa)isa);
            portable->exp(x, one, BLOCK);
            k->exp(x, other, BLOCK);
            assert_memory_equal(one, other, sizeof one);
            portable->softplus_bias(x, bias, one, BLOCK / 16);
            k->softplus_bias(x, bias, other, BLOCK / 16);
            assert_memory_equal(one, other, sizeof one);
            for (int i = 0; i < BLOCK; i++) {
                x[i] = isinf(x[i]) ? 1.0f : x[i]; /* inf/inf: the sign of NaN is not promised */
            }
            portable->silu(x, one, BLOCK);
            k->silu(x, other, BLOCK);
            assert_memory_equal(one, other, sizeof one);
            for (int i = 0; i < BLOCK; i++) {
                x[i] = -fabsf(x[i]);
            }
            portable->decay(x, one, BLOCK);
            k->decay(x, other, BLOCK);
            assert_memory_equal(one, other, sizeof one);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_its_bound_everywhere),
        cmocka_unit_test(decay_is_within_its_bound_everywhere),
        cmocka_unit_test(decay_near_one_has_no_bias),
        cmocka_unit_test(softplus_and_silu_are_within_their_bounds),
        cmocka_unit_test(special_values),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
