/* Reading safetensors files that are unusual and right. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "safetensors/read.h"
#include "test_paths.h"

static ssm_safetensors *parse(const char *header, const void *data, size_t bytes, bool lenient,
                              unsigned char **block)
{
    size_t length = strlen(header);
    *block = calloc(1, 8 + length + bytes);
    assert_non_null(*block);
    (*block)[0] = (unsigned char)(length & 0xff);
    (*block)[1] = (unsigned char)(length >> 8);
    memcpy(*block + 8, header, length);
    memcpy(*block + 8 + length, data, bytes);
    ssm_safetensors *file = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    ssm_status status =
        ssm__safetensors_parse("x", *block, 8 + length + bytes, lenient, &file, &err);
    if (status != SSM_STATUS_OK) {
        fail_msg("%s: %s", header, err.message);
    }
    return file;
}

static void empty_set(void **state)
{
    (void)state;
    unsigned char *block;
    ssm_safetensors *file = parse("{}", "", 0, false, &block);
    assert_int_equal(ssm_safetensors_count(file), 0);
    assert_null(ssm_safetensors_at(file, 0));
    assert_null(ssm_safetensors_find(file, "a"));
    assert_null(ssm_safetensors_metadata(file, "a"));
    ssm_safetensors_close(file);
    free(block);
    file = parse("{\"__metadata__\":{\"format\":\"pt\"}}   ", "", 0, false, &block);
    assert_int_equal(ssm_safetensors_count(file), 0);
    assert_string_equal(ssm_safetensors_metadata(file, "format"), "pt");
    assert_null(ssm_safetensors_find(file, "__metadata__"));
    ssm_safetensors_close(file);
    free(block);
}

/* Order of the data, not of the header; 0-dim; empty tensors, two at one place; unaligned data. */
static void order_and_empty_tensors(void **state)
{
    (void)state;
    static const char header[] =
        "{\"late\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[3,7]},"
        "\"none2\":{\"dtype\":\"F64\",\"shape\":[4,0],\"data_offsets\":[3,3]},"
        "\"none1\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[3,3]},"
        "\"early\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
        "\"last\":{\"dtype\":\"I8\",\"shape\":[0,9],\"data_offsets\":[7,7]}}  ";
    const unsigned char data[7] = {1, 2, 3, 0, 0, 0xc0, 0x3f};
    static const char *const order[] = {"early", "none1", "none2", "late", "last"};
    unsigned char *block;
    ssm_safetensors *file = parse(header, data, sizeof data, false, &block);
    assert_int_equal(ssm_safetensors_count(file), 5);
    for (int64_t i = 0; i < 5; i++) {
        const ssm_tensor *tensor = ssm_safetensors_at(file, i);
        assert_string_equal(tensor->name, order[i]);
        assert_ptr_equal(ssm_safetensors_find(file, order[i]), tensor);
        assert_non_null(tensor->data); /* an empty tensor is there, too */
        assert_ptr_equal(tensor->data, block + tensor->file_offset);
        assert_string_equal(tensor->file, "x");
    }
    const ssm_tensor *late = ssm_safetensors_find(file, "late");
    assert_int_equal(late->n_dims, 0);
    assert_int_equal(ssm_tensor_count(late), 1);
    assert_true(ssm_tensor_get(late, 0) == 1.5);
    assert_null(ssm_safetensors_at(file, -1));
    assert_null(ssm_safetensors_at(file, 5));
    assert_null(ssm_safetensors_find(file, "lat"));
    ssm_safetensors_close(file);
    free(block);
}

static void lenient_accepts_trailing_bytes(void **state)
{
    (void)state;
    unsigned char *block;
    ssm_safetensors *file = parse("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                                  "ab????", 6, true, &block);
    assert_int_equal(ssm_safetensors_count(file), 1);
    assert_int_equal(ssm_safetensors_at(file, 0)->bytes, 2);
    ssm_safetensors_close(file);
    free(block);
}

/* Unknown members of an entry are not ours to judge; names may hold anything that JSON can. */
static void odd_names_and_members(void **state)
{
    (void)state;
    unsigned char *block;
    ssm_safetensors *file =
        parse("{\"\\u00e9/ \\\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":[]},"
              "\"\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[1,2]}}",
              "\x05\x01", 2, false, &block);
    assert_non_null(ssm_safetensors_find(file, "\xc3\xa9/ \""));
    assert_int_equal(ssm_safetensors_find(file, "")->n_dims, 8);
    ssm_safetensors_close(file);
    free(block);
}

static void files_that_cannot_be_opened(void **state)
{
    (void)state;
    char directory[TEST_PATH_MAX];
    test_make_directory(directory);
    ssm_safetensors *file = (ssm_safetensors *)(uintptr_t)8;
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_safetensors_open(directory, false, &file, &err), SSM_STATUS_FILE);
    assert_null(file);
    assert_non_null(strstr(err.message, "directory"));
    ssm_error_clear(&err);
    assert_int_equal(ssm_safetensors_open("/no/such/file", false, &file, &err), SSM_STATUS_FILE);
    assert_string_equal(err.file, "/no/such/file");
    assert_int_equal(ssm_safetensors_open("/no/such/file", false, &file, NULL), SSM_STATUS_FILE);
    ssm_safetensors_close(NULL);
    test_remove_directory(directory);
}

/* One file per type, written by the reference implementation: −3 … 2, wrapped where unsigned. */
static void samples_of_the_reference(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ssm_dtype dtype;
    } samples[] = {{"B", SSM_DTYPE_U8},  {"H", SSM_DTYPE_U16}, {"I", SSM_DTYPE_U32},
                   {"b", SSM_DTYPE_I8},  {"d", SSM_DTYPE_F64}, {"e", SSM_DTYPE_F16},
                   {"f", SSM_DTYPE_F32}, {"h", SSM_DTYPE_I16}, {"i", SSM_DTYPE_I32}};
    enum { SAMPLES = sizeof samples / sizeof samples[0] };
    char path[TEST_PATH_MAX];
    if (!test_shared_path(path, "data/vectors/safetensors-samples/overall.safetensors")) {
        skip();
    }
    ssm_error err;
    ssm_error_clear(&err);
    ssm_safetensors *overall;
    assert_int_equal(ssm_safetensors_open(path, false, &overall, &err), SSM_STATUS_OK);
    assert_int_equal(ssm_safetensors_count(overall), SAMPLES);
    assert_string_equal(ssm_safetensors_metadata(overall, "test"), "a");
    for (int i = 0; i < SAMPLES; i++) {
        char relative[96];
        snprintf(relative, sizeof relative, "data/vectors/safetensors-samples/%s.safetensors",
                 samples[i].name);
        assert_true(test_shared_path(path, relative));
        ssm_safetensors *single;
        assert_int_equal(ssm_safetensors_open(path, false, &single, &err), SSM_STATUS_OK);
        const ssm_tensor *alone = ssm_safetensors_find(single, samples[i].name);
        const ssm_tensor *together = ssm_safetensors_find(overall, samples[i].name);
        assert_non_null(alone);
        assert_non_null(together);
        assert_int_equal(alone->dtype, samples[i].dtype);
        assert_int_equal(alone->dims[0], 6);
        assert_memory_equal(alone->data, together->data, alone->bytes);
        for (int64_t k = 0; k < 6; k++) {
            double wrap = samples[i].name[0] < 'a' && k < 3
                              ? ldexp(1, 8 * (int)ssm_dtype_size(alone->dtype))
                              : 0;
            assert_true(ssm_tensor_get(alone, k) == (double)(k - 3) + wrap);
        }
        ssm_safetensors_close(single);
    }
    ssm_safetensors_close(overall);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_set),
        cmocka_unit_test(order_and_empty_tensors),
        cmocka_unit_test(lenient_accepts_trailing_bytes),
        cmocka_unit_test(odd_names_and_members),
        cmocka_unit_test(files_that_cannot_be_opened),
        cmocka_unit_test(samples_of_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
