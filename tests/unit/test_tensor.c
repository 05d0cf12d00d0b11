/* Elements of stored tensors: every type, unaligned data, and the search for what is not finite. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "checkpoint/tensor.h"

/* A view of values whose data stand one byte off any alignment. */
#define UNALIGNED(name, type_id, type, ...)                                                        \
    const type name##_values[] = {__VA_ARGS__};                                                    \
    unsigned char name##_bytes[sizeof name##_values + 1];                                          \
    memcpy(name##_bytes + 1, name##_values, sizeof name##_values);                                 \
    const ssm_tensor name = {.dtype = type_id,                                                     \
                             .n_dims = 1,                                                          \
                             .dims = {sizeof name##_values / sizeof name##_values[0]},             \
                             .data = name##_bytes + 1,                                             \
                             .bytes = sizeof name##_values}

static void get_every_type(void **state)
{
    (void)state;
    UNALIGNED(f32, SSM_DTYPE_F32, float, 1.5f, -0.1f);
    UNALIGNED(f16, SSM_DTYPE_F16, uint16_t, 0x3c00, 0xc000, 0x0001);
    UNALIGNED(bf16, SSM_DTYPE_BF16, uint16_t, 0x3f80, 0xbf80, 0x4049);
    UNALIGNED(f64, SSM_DTYPE_F64, double, 0.1, -1e300);
    UNALIGNED(i64, SSM_DTYPE_I64, int64_t, -5, (int64_t)1 << 52);
    UNALIGNED(u64, SSM_DTYPE_U64, uint64_t, (uint64_t)1 << 63);
    UNALIGNED(i32, SSM_DTYPE_I32, int32_t, INT32_MIN);
    UNALIGNED(u32, SSM_DTYPE_U32, uint32_t, UINT32_MAX);
    UNALIGNED(i16, SSM_DTYPE_I16, int16_t, INT16_MIN);
    UNALIGNED(u16, SSM_DTYPE_U16, uint16_t, UINT16_MAX);
    UNALIGNED(i8, SSM_DTYPE_I8, int8_t, -128);
    UNALIGNED(u8, SSM_DTYPE_U8, uint8_t, 255);
    UNALIGNED(truth, SSM_DTYPE_BOOL, uint8_t, 0, 1);
    assert_true(ssm_tensor_get(&f32, 0) == 1.5 && ssm_tensor_get(&f32, 1) == (double)-0.1f);
    assert_true(ssm_tensor_get(&f16, 0) == 1 && ssm_tensor_get(&f16, 1) == -2);
    assert_true(ssm_tensor_get(&f16, 2) == 0x1p-24);
    assert_true(ssm_tensor_get(&bf16, 0) == 1 && ssm_tensor_get(&bf16, 1) == -1);
    assert_true(ssm_tensor_get(&bf16, 2) == 3.140625);
    assert_true(ssm_tensor_get(&f64, 0) == 0.1 && ssm_tensor_get(&f64, 1) == -1e300);
    assert_true(ssm_tensor_get(&i64, 0) == -5 && ssm_tensor_get(&i64, 1) == 0x1p52);
    assert_true(ssm_tensor_get(&u64, 0) == 0x1p63);
    assert_true(ssm_tensor_get(&i32, 0) == (double)INT32_MIN);
    assert_true(ssm_tensor_get(&u32, 0) == (double)UINT32_MAX);
    assert_true(ssm_tensor_get(&i16, 0) == -32768 && ssm_tensor_get(&u16, 0) == 65535);
    assert_true(ssm_tensor_get(&i8, 0) == -128 && ssm_tensor_get(&u8, 0) == 255);
    assert_true(ssm_tensor_get(&truth, 0) == 0 && ssm_tensor_get(&truth, 1) == 1);
}

static void counts(void **state)
{
    (void)state;
    assert_int_equal(ssm_tensor_count(&(ssm_tensor){.n_dims = 0}), 1);
    assert_int_equal(ssm_tensor_count(&(ssm_tensor){.n_dims = 2, .dims = {3, 7}}), 21);
    assert_int_equal(ssm_tensor_count(&(ssm_tensor){.n_dims = 2, .dims = {3, 0}}), 0);
}

static void to_f32_keeps_bits(void **state)
{
    (void)state;
    UNALIGNED(f32, SSM_DTYPE_F32, uint32_t, 0x7f800001u, 0x80000000u, 0x00000001u);
    float out[3];
    ssm__tensor_to_f32(&f32, out);
    assert_memory_equal(out, f32_values, sizeof out); /* a signalling NaN and −0 too */

    UNALIGNED(bf16, SSM_DTYPE_BF16, uint16_t, 0x3f80, 0x8000, 0x0001);
    ssm__tensor_to_f32(&bf16, out);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ssm__bits_from_f32(out[i]), (uint32_t)bf16_values[i] << 16);
    }
}

static void to_f32_of_other_types(void **state)
{
    (void)state;
    UNALIGNED(f16, SSM_DTYPE_F16, uint16_t, 0x3c00, 0x3555, 0xfbff);
    UNALIGNED(f64, SSM_DTYPE_F64, double, 0.1, -2.0, 1e300);
    UNALIGNED(i16, SSM_DTYPE_I16, int16_t, 3, -4, 5);
    float out[3];
    ssm__tensor_to_f32(&f16, out);
    assert_true(out[0] == 1.0f && out[1] == 0.333251953125f && out[2] == -65504.0f);
    ssm__tensor_to_f32(&f64, out);
    assert_true(out[0] == 0.1f && out[1] == -2.0f && isinf(out[2]));
    ssm__tensor_to_f32(&i16, out);
    assert_true(out[0] == 3.0f && out[1] == -4.0f && out[2] == 5.0f);
    ssm__tensor_range_to_f32(&i16, 1, 2, out);
    assert_true(out[0] == -4.0f && out[1] == 5.0f && out[2] == 5.0f);
    out[0] = 9.0f;
    ssm__tensor_to_f32(&(ssm_tensor){.dtype = SSM_DTYPE_F32, .n_dims = 1, .dims = {3}}, out);
    assert_true(out[0] == 9.0f); /* an absent tensor writes nothing */
}

static void first_nonfinite(void **state)
{
    (void)state;
    UNALIGNED(f32, SSM_DTYPE_F32, uint32_t, 0x7f7fffffu, 0x00000001u, 0xff800000u);
    UNALIGNED(f16, SSM_DTYPE_F16, uint16_t, 0x7bff, 0x7c01);
    UNALIGNED(bf16, SSM_DTYPE_BF16, uint16_t, 0x7f7f, 0xffc0);
    UNALIGNED(f64, SSM_DTYPE_F64, double, 1e308, -HUGE_VAL);
    UNALIGNED(fine, SSM_DTYPE_F16, uint16_t, 0x7bff, 0xfbff);
    UNALIGNED(whole, SSM_DTYPE_I16, uint16_t, 0x7fff, 0xffff);
    assert_int_equal(ssm__tensor_first_nonfinite(&f32), 2);
    assert_int_equal(ssm__tensor_first_nonfinite(&f16), 1);
    assert_int_equal(ssm__tensor_first_nonfinite(&bf16), 1);
    assert_int_equal(ssm__tensor_first_nonfinite(&f64), 1);
    assert_int_equal(ssm__tensor_first_nonfinite(&fine), -1);
    assert_int_equal(ssm__tensor_first_nonfinite(&whole), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(get_every_type),    cmocka_unit_test(counts),
        cmocka_unit_test(to_f32_keeps_bits), cmocka_unit_test(to_f32_of_other_types),
        cmocka_unit_test(first_nonfinite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
