/* Writing safetensors files: bytes, alignment, order, round trip, streaming, failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "safetensors/write.h"
#include "test_paths.h"

static char directory[TEST_PATH_MAX];

static const char *path_of(const char *name)
{
    static char path[TEST_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static const float numbers[6] = {0.5f, -1, 2, 3, 4, 5};
static const uint8_t bytes3[3] = {7, 8, 9};
static const ssm_tensor tensors[] = {
    {.name = "z.odd", .dtype = SSM_DTYPE_U8, .n_dims = 1, .dims = {3}, .data = bytes3},
    {.name = "a \"quoted\" \xc3\xa9",
     .dtype = SSM_DTYPE_F32,
     .n_dims = 2,
     .dims = {2, 3},
     .data = numbers},
    {.name = "scalar", .dtype = SSM_DTYPE_F32, .data = numbers},
    {.name = "empty", .dtype = SSM_DTYPE_F64, .n_dims = 2, .dims = {5, 0}},
};
enum { TENSORS = sizeof tensors / sizeof tensors[0] };
static const ssm_metadata metadata[] = {{"format", "pt"}, {"note", "l\xc3\xa4uft\n"}};

static void write_ok(const char *path)
{
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_safetensors_write(path, tensors, TENSORS, metadata, 2, &err) != SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
}

static void round_trip(void **state)
{
    (void)state;
    write_ok(path_of("a.safetensors"));
    ssm_error err;
    ssm_error_clear(&err);
    ssm_safetensors *file = NULL;
    assert_int_equal(ssm_safetensors_open(path_of("a.safetensors"), false, &file, &err),
                     SSM_STATUS_OK);
    assert_int_equal(ssm_safetensors_count(file), TENSORS);
    assert_int_equal(ssm_safetensors_at(file, 0)->file_offset % 64, 0);
    assert_int_equal((uintptr_t)ssm_safetensors_at(file, 0)->data % 64, 0);
    for (int i = 0; i < TENSORS; i++) {
        const ssm_tensor *got = ssm_safetensors_at(file, i);
        const ssm_tensor *want = &tensors[i];
        assert_string_equal(got->name, want->name);
        assert_int_equal(got->dtype, want->dtype);
        assert_int_equal(got->n_dims, want->n_dims);
        assert_memory_equal(got->dims, want->dims, sizeof got->dims);
        if (got->bytes > 0) {
            assert_memory_equal(got->data, want->data, got->bytes);
        }
    }
    assert_string_equal(ssm_safetensors_metadata(file, "note"), metadata[1].value);
    ssm_safetensors_close(file);
}

static void same_input_same_bytes(void **state)
{
    (void)state;
    write_ok(path_of("b.safetensors"));
    ssm__map first;
    assert_int_equal(ssm__map_open(path_of("b.safetensors"), &first, NULL), SSM_STATUS_OK);
    write_ok(path_of("c.safetensors"));
    ssm__map second;
    assert_int_equal(ssm__map_open(path_of("c.safetensors"), &second, NULL), SSM_STATUS_OK);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    ssm__map_close(&first);
    ssm__map_close(&second);
}

/* The whole file of one small tensor, by hand. */
static void bytes_by_hand(void **state)
{
    (void)state;
    static const char header[] = "{\"x\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    const ssm_tensor one = {
        .name = "x", .dtype = SSM_DTYPE_U8, .n_dims = 1, .dims = {3}, .data = bytes3};
    assert_int_equal(ssm_safetensors_write(path_of("d"), &one, 1, NULL, 0, NULL), SSM_STATUS_OK);
    ssm__map map;
    assert_int_equal(ssm__map_open(path_of("d"), &map, NULL), SSM_STATUS_OK);
    assert_int_equal(map.size, 64 + 3);
    assert_int_equal(map.data[0], 56);
    assert_memory_equal(map.data + 1, "\0\0\0\0\0\0\0", 7);
    assert_memory_equal(map.data + 8, header, sizeof header - 1);
    for (size_t i = 8 + sizeof header - 1; i < 64; i++) {
        assert_int_equal(map.data[i], ' ');
    }
    assert_memory_equal(map.data + 64, bytes3, 3);
    ssm__map_close(&map);
}

/* Pieces of any cut give the file that one call gives. */
static void streaming_equals_one_call(void **state)
{
    (void)state;
    write_ok(path_of("e.safetensors"));
    ssm__stream *stream = NULL;
    char path[TEST_PATH_MAX + 64];
    strcpy(path, path_of("f.safetensors"));
    assert_int_equal(ssm__stream_open(path, tensors, TENSORS, metadata, 2, &stream, NULL),
                     SSM_STATUS_OK);
    unsigned char all[3 + 24 + 4];
    memcpy(all, bytes3, 3);
    memcpy(all + 3, numbers, 24);
    memcpy(all + 27, numbers, 4);
    assert_int_equal(ssm__stream_add(stream, all, 1, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__stream_add(stream, NULL, 0, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__stream_add(stream, all + 1, 20, NULL), SSM_STATUS_OK);
    assert_int_equal(access(path, F_OK), -1); /* not before it is whole */
    assert_int_equal(ssm__stream_add(stream, all + 21, sizeof all - 21, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__stream_commit(stream, NULL), SSM_STATUS_OK);
    ssm__map left;
    ssm__map right;
    assert_int_equal(ssm__map_open(path_of("e.safetensors"), &left, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__map_open(path, &right, NULL), SSM_STATUS_OK);
    assert_int_equal(left.size, right.size);
    assert_memory_equal(left.data, right.data, left.size);
    ssm__map_close(&left);
    ssm__map_close(&right);
}

static void wrong_amount_leaves_nothing(void **state)
{
    (void)state;
    for (size_t bytes = 30; bytes <= 32; bytes += 2) {
        ssm_error err;
        ssm_error_clear(&err);
        ssm__stream *stream = NULL;
        unsigned char data[32] = {0};
        char path[TEST_PATH_MAX + 64];
        strcpy(path, path_of("g.safetensors"));
        assert_int_equal(ssm__stream_open(path, tensors, TENSORS, NULL, 0, &stream, &err),
                         SSM_STATUS_OK);
        assert_int_equal(ssm__stream_add(stream, data, bytes, &err), SSM_STATUS_OK);
        assert_int_equal(ssm__stream_commit(stream, &err), SSM_STATUS_FAILED);
        assert_non_null(strstr(err.message, "the header says 31"));
        assert_int_equal(access(path, F_OK), -1);
    }
    ssm__stream_abort(NULL);
}

static void expect_usage(const ssm_tensor *wrong, int64_t count, const ssm_metadata *meta,
                         int64_t meta_count, const char *part)
{
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_safetensors_write(path_of("h"), wrong, count, meta, meta_count, &err),
                     SSM_STATUS_USAGE);
    if (strstr(err.message, part) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", err.message, part);
    }
    assert_int_equal(access(path_of("h"), F_OK), -1);
}

static void wrong_use(void **state)
{
    (void)state;
    const ssm_tensor twice[2] = {tensors[0], tensors[0]};
    expect_usage(twice, 2, NULL, 0, "two tensors have this name");
    const ssm_tensor reserved = {.name = "__metadata__", .dtype = SSM_DTYPE_U8};
    expect_usage(&reserved, 1, NULL, 0, "reserved name");
    const ssm_tensor nameless = {.dtype = SSM_DTYPE_U8};
    expect_usage(&nameless, 1, NULL, 0, "no name");
    const ssm_tensor not_text = {.name = "\xff\xfe", .dtype = SSM_DTYPE_U8, .data = bytes3};
    expect_usage(&not_text, 1, NULL, 0, "not valid UTF-8");
    const ssm_tensor negative = {
        .name = "x", .dtype = SSM_DTYPE_U8, .n_dims = 1, .dims = {-1}, .data = bytes3};
    expect_usage(&negative, 1, NULL, 0, "type or shape");
    const ssm_tensor many = {.name = "x", .dtype = SSM_DTYPE_U8, .n_dims = 9, .data = bytes3};
    expect_usage(&many, 1, NULL, 0, "type or shape");
    const ssm_tensor typeless = {.name = "x", .dtype = SSM_DTYPE_COUNT, .data = bytes3};
    expect_usage(&typeless, 1, NULL, 0, "type or shape");
    const ssm_tensor huge[2] = {
        {.name = "x", .dtype = SSM_DTYPE_U8, .n_dims = 1, .dims = {INT64_MAX}, .data = bytes3},
        {.name = "y", .dtype = SSM_DTYPE_U8, .n_dims = 1, .dims = {INT64_MAX}, .data = bytes3}};
    expect_usage(huge, 2, NULL, 0, "63 bits");
    const ssm_metadata bad = {"key", "\xc3"};
    expect_usage(tensors, TENSORS, &bad, 1, "not valid UTF-8");
}

static void unwritable_place(void **state)
{
    (void)state;
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_safetensors_write("/no/such/place/x", tensors, TENSORS, NULL, 0, &err),
                     SSM_STATUS_FAILED);
    assert_string_equal(err.file, "/no/such/place/x");
}

static int make(void **state)
{
    (void)state;
    test_make_directory(directory);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    test_remove_directory(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(same_input_same_bytes),
        cmocka_unit_test(bytes_by_hand),
        cmocka_unit_test(streaming_equals_one_call),
        cmocka_unit_test(wrong_amount_leaves_nothing),
        cmocka_unit_test(wrong_use),
        cmocka_unit_test(unwritable_place),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
