/* Element types, sizes and shapes in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "safetensors/dtype.h"

static void names_and_sizes(void **state)
{
    (void)state;
    const struct {
        const char *name;
        size_t size;
    } expected[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"I64", 8},
                    {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8}, {"U32", 4},
                    {"U16", 2}, {"U8", 1},  {"BOOL", 1}};
    assert_int_equal(sizeof expected / sizeof expected[0], SSM_DTYPE_COUNT);
    for (size_t i = 0; i < SSM_DTYPE_COUNT; i++) {
        ssm_dtype dtype = SSM_DTYPE_COUNT;
        assert_true(ssm__dtype_parse(expected[i].name, &dtype));
        assert_string_equal(ssm_dtype_name(dtype), expected[i].name);
        assert_int_equal(ssm_dtype_size(dtype), expected[i].size);
    }
    ssm_dtype untouched = SSM_DTYPE_I8;
    assert_false(ssm__dtype_parse("f32", &untouched));
    assert_false(ssm__dtype_parse("F8_E4M3", &untouched));
    assert_false(ssm__dtype_parse("", &untouched));
    assert_int_equal(untouched, SSM_DTYPE_I8);
    assert_string_equal(ssm_dtype_name(SSM_DTYPE_COUNT), "?");
    assert_int_equal(ssm_dtype_size(SSM_DTYPE_COUNT), 0);
}

static void unsupported_names(void **state)
{
    (void)state;
    assert_true(ssm__dtype_known_unsupported("F8_E4M3"));
    assert_true(ssm__dtype_known_unsupported("C64"));
    assert_false(ssm__dtype_known_unsupported("F32"));
    assert_false(ssm__dtype_known_unsupported("F7"));
}

static void bytes_of_shapes(void **state)
{
    (void)state;
    size_t bytes = 1;
    assert_true(ssm__tensor_bytes(&(ssm_tensor){.dtype = SSM_DTYPE_F32}, &bytes));
    assert_int_equal(bytes, 4); /* a 0-dim tensor has one element */
    assert_true(ssm__tensor_bytes(
        &(ssm_tensor){.dtype = SSM_DTYPE_BF16, .n_dims = 3, .dims = {3, 1, 5}}, &bytes));
    assert_int_equal(bytes, 30);
    /* Empty, although the product of the others overflows. */
    assert_true(ssm__tensor_bytes(
        &(ssm_tensor){.dtype = SSM_DTYPE_F64, .n_dims = 3, .dims = {INT64_MAX, INT64_MAX, 0}},
        &bytes));
    assert_int_equal(bytes, 0);
    /* The count overflows; the count fits, the bytes do not; the bytes fit size_t, not int64. */
    assert_false(ssm__tensor_bytes(
        &(ssm_tensor){.dtype = SSM_DTYPE_I8, .n_dims = 2, .dims = {INT64_MAX, 2}}, &bytes));
    assert_false(ssm__tensor_bytes(
        &(ssm_tensor){.dtype = SSM_DTYPE_F64, .n_dims = 1, .dims = {INT64_MAX / 2}}, &bytes));
    assert_false(ssm__tensor_bytes(
        &(ssm_tensor){.dtype = SSM_DTYPE_F16, .n_dims = 1, .dims = {INT64_MAX / 2 + 1}}, &bytes));
    assert_false(
        ssm__tensor_bytes(&(ssm_tensor){.dtype = SSM_DTYPE_I8, .n_dims = 1, .dims = {-1}}, &bytes));
}

static void shapes_in_words(void **state)
{
    (void)state;
    char text[256];
    const int64_t dims[8] = {128, 1, 4, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
    ssm__shape_text(dims, 3, text, sizeof text);
    assert_string_equal(text, "[128, 1, 4]");
    ssm__shape_text(dims, 0, text, sizeof text);
    assert_string_equal(text, "[]");
    ssm__shape_text(dims, 8, text, 64); /* cut, but closed and within its bounds */
    assert_true(strlen(text) < 64);
    assert_int_equal(text[strlen(text) - 1], ']');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(unsupported_names),
        cmocka_unit_test(bytes_of_shapes),
        cmocka_unit_test(shapes_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
