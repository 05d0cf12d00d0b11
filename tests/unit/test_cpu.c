/* Instruction sets: names, and agreement with what the compiler finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ssmscope/base.h>

#include <string.h>

static void names_and_parse(void **state)
{
    (void)state;
    for (int i = SSM_ISA_AUTO; i <= SSM_ISA_AVX512; i++) {
        ssm_isa parsed = SSM_ISA_AUTO;
        assert_int_equal(ssm_isa_parse(ssm_isa_name((ssm_isa)i), &parsed, NULL), SSM_STATUS_OK);
        assert_int_equal(parsed, i);
    }
    ssm_error err = {0};
    ssm_isa unchanged = SSM_ISA_AVX2;
    assert_int_equal(ssm_isa_parse("sse9", &unchanged, &err), SSM_STATUS_USAGE);
    assert_int_equal(unchanged, SSM_ISA_AVX2);
    assert_non_null(strstr(err.message, "sse9"));
    assert_non_null(strstr(err.message, "avx512"));
    assert_string_equal(ssm_isa_name((ssm_isa)99), "unknown");
}

static void best_is_supported(void **state)
{
    (void)state;
    ssm_isa best = ssm_isa_best();
    assert_true(best >= SSM_ISA_PORTABLE && best <= SSM_ISA_AVX512);
    for (int i = SSM_ISA_AUTO; i <= SSM_ISA_AVX512; i++) {
        assert_int_equal(ssm_isa_supported((ssm_isa)i), i <= (int)best);
    }
    assert_false(ssm_isa_supported((ssm_isa)-1));
    assert_false(ssm_isa_supported((ssm_isa)99));
}

static void agrees_with_the_compiler(void **state)
{
    (void)state;
#if defined(__x86_64__)
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    assert_int_equal(ssm_isa_supported(SSM_ISA_AVX2), avx2);
    assert_int_equal(ssm_isa_supported(SSM_ISA_AVX512), avx512);
#else
    assert_int_equal(ssm_isa_best(), SSM_ISA_PORTABLE);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_parse),
        cmocka_unit_test(best_is_supported),
        cmocka_unit_test(agrees_with_the_compiler),
    };
    return cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
}
