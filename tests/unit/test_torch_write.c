/* Writing torch checkpoints: round trip, alignment, tied weights, determinism, streaming, zip64,
 * failures. */
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
#include "test_paths.h"
#include "torch/torch_file.h"
#include "torch/write.h"

static char directory[TEST_PATH_MAX];

static const char *path_of(const char *name)
{
    static char path[TEST_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    test_make_directory(directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_directory(directory);
    return 0;
}

static const float floats[300] = {0.5f, -1, 2, 3, 4, 5};
static const uint8_t bytes[8] = {1, 0, 1, 9, 8, 7, 6, 5};
static const ssm_tensor tensors[] = {
    {.name = "embedding", .n_dims = 2, .dims = {10, 30}, .data = floats},
    {.name = "scalar", .data = floats},
    {.name = "empty", .dtype = SSM_DTYPE_F64, .n_dims = 2, .dims = {5, 0}},
    {.name = "gr\xc3\xb6\xc3\x9f"
             "e",
     .dtype = SSM_DTYPE_BOOL,
     .n_dims = 1,
     .dims = {3},
     .data = bytes},
    {.name = "head", .n_dims = 3, .dims = {5, 2, 30}, .data = floats},
    {.name = "half", .dtype = SSM_DTYPE_F16, .n_dims = 4, .dims = {1, 2, 1, 2}, .data = bytes},
    {.name = "brain", .dtype = SSM_DTYPE_BF16, .n_dims = 1, .dims = {4}, .data = bytes},
    {.name = "long", .dtype = SSM_DTYPE_I64, .n_dims = 1, .dims = {1}, .data = bytes},
    {.name = "int", .dtype = SSM_DTYPE_I32, .n_dims = 1, .dims = {2}, .data = bytes},
    {.name = "short", .dtype = SSM_DTYPE_I16, .n_dims = 1, .dims = {4}, .data = bytes},
    {.name = "char", .dtype = SSM_DTYPE_I8, .n_dims = 1, .dims = {8}, .data = bytes},
    {.name = "byte", .dtype = SSM_DTYPE_U8, .n_dims = 1, .dims = {7}, .data = bytes},
    {.name = "double", .dtype = SSM_DTYPE_F64, .n_dims = 1, .dims = {1}, .data = bytes},
};
enum { TENSORS = sizeof tensors / sizeof tensors[0] };

static void write_ok(const char *path, const ssm_tensor *list, int64_t count)
{
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm__torch_write(path, list, count, &err) != SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
}

static ssm__torch_file *open_ok(const char *path)
{
    ssm__torch_file *file = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm__torch_open(path, &file, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", path, err.message);
    }
    if (ssm__torch_check_crc(file, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", path, err.message);
    }
    return file;
}

static void round_trip(void **state)
{
    (void)state;
    write_ok(path_of("a.bin"), tensors, TENSORS);
    ssm__torch_file *file = open_ok(path_of("a.bin"));
    assert_int_equal(ssm__torch_count(file), TENSORS);
    for (int i = 0; i < TENSORS; i++) {
        const ssm_tensor *got = ssm__torch_at(file, i);
        assert_string_equal(got->name, tensors[i].name);
        assert_int_equal(got->dtype, tensors[i].dtype);
        assert_int_equal(got->n_dims, tensors[i].n_dims);
        assert_memory_equal(got->dims, tensors[i].dims, sizeof got->dims);
        if (got->bytes > 0) {
            assert_memory_equal(got->data, tensors[i].data, got->bytes);
            assert_int_equal(got->file_offset % 64, 0);
        }
    }
    /* The head has the embedding's numbers; the scalar begins there too and is another size. */
    assert_ptr_equal(ssm__torch_find(file, "head")->data, ssm__torch_find(file, "embedding")->data);
    assert_ptr_not_equal(ssm__torch_find(file, "scalar")->data,
                         ssm__torch_find(file, "embedding")->data);
    assert_int_equal(ssm__torch_note_count(file), 0);
    ssm__torch_close(file);
}

static void nothing_to_write(void **state)
{
    (void)state;
    write_ok(path_of("none.bin"), NULL, 0);
    ssm__torch_file *file = open_ok(path_of("none.bin"));
    assert_int_equal(ssm__torch_count(file), 0);
    ssm__torch_close(file);
}

static void expect_same_files(const char *left, const char *right)
{
    ssm__map a;
    ssm__map b;
    assert_int_equal(ssm__map_open(path_of(left), &a, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__map_open(path_of(right), &b, NULL), SSM_STATUS_OK);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    ssm__map_close(&a);
    ssm__map_close(&b);
}

/* In pieces of seven bytes, under another name: the same file. */
static void same_input_same_bytes(void **state)
{
    (void)state;
    write_ok(path_of("a.bin"), tensors, TENSORS);
    ssm_error err;
    ssm_error_clear(&err);
    ssm__torch_stream *stream = NULL;
    assert_int_equal(
        ssm__torch_stream_open(path_of("other name.pt"), tensors, TENSORS, &stream, &err),
        SSM_STATUS_OK);
    unsigned char all[2048];
    size_t size = 0;
    for (int i = 0; i < TENSORS; i++) {
        size_t own = (size_t)ssm_tensor_count(&tensors[i]) * ssm_dtype_size(tensors[i].dtype);
        assert_int_equal(ssm__torch_stream_shares(stream, i), i == 4 ? 0 : -1);
        if (ssm__torch_stream_shares(stream, i) < 0 && own > 0) {
            assert_true(size + own <= sizeof all);
            memcpy(all + size, tensors[i].data, own);
            size += own;
        }
    }
    for (size_t at = 0; at < size; at += 7) {
        assert_int_equal(
            ssm__torch_stream_add(stream, all + at, size - at < 7 ? size - at : 7, &err),
            SSM_STATUS_OK);
    }
    assert_int_equal(ssm__torch_stream_commit(stream, &err), SSM_STATUS_OK);
    expect_same_files("a.bin", "other name.pt");
}

/* What a file holds is written again as the same file. */
static void fixed_point(void **state)
{
    (void)state;
    write_ok(path_of("a.bin"), tensors, TENSORS);
    ssm__torch_file *file = open_ok(path_of("a.bin"));
    ssm_tensor copy[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        copy[i] = *ssm__torch_at(file, i);
    }
    write_ok(path_of("b.bin"), copy, TENSORS);
    ssm__torch_close(file);
    expect_same_files("a.bin", "b.bin");
}

/* More members than 16 bits count: the directory is in the zip64 form. */
static void many_members(void **state)
{
    (void)state;
    enum { MANY = 66000 };
    ssm_tensor *list = calloc(MANY, sizeof *list);
    char(*names)[8] = calloc(MANY, sizeof *names);
    uint16_t *values = calloc(MANY, sizeof *values);
    assert_non_null(list);
    assert_non_null(names);
    assert_non_null(values);
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        values[i] = (uint16_t)i;
        list[i] = (ssm_tensor){.name = names[i], .dtype = SSM_DTYPE_BF16, .data = &values[i]};
    }
    write_ok(path_of("many.bin"), list, MANY);
    ssm__torch_file *file = open_ok(path_of("many.bin"));
    assert_int_equal(ssm__torch_count(file), MANY);
    for (int i = 0; i < MANY; i += 997) {
        const ssm_tensor *got = ssm__torch_find(file, names[i]);
        assert_non_null(got);
        assert_memory_equal(got->data, &values[i], 2);
    }
    ssm__torch_close(file);
    unlink(path_of("many.bin"));
    free(list);
    free(names);
    free(values);
}

static void expect_refused(const ssm_tensor *list, int64_t count, const char *part)
{
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm__torch_write(path_of("refused.bin"), list, count, &err), SSM_STATUS_USAGE);
    if (strstr(err.message, part) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", err.message, part);
    }
    assert_false(ssm__is_file(path_of("refused.bin")));
}

static void refused(void **state)
{
    (void)state;
    const ssm_tensor twice[] = {tensors[0], tensors[1], tensors[0]};
    expect_refused(twice, 3, "two tensors have this name");
    const ssm_tensor nameless = {.data = floats};
    expect_refused(&nameless, 1, "has no name");
    const ssm_tensor latin = {.name = "\xe4", .data = floats};
    expect_refused(&latin, 1, "not valid UTF-8");
    const ssm_tensor unsigned32 = {.name = "u", .dtype = SSM_DTYPE_U32, .data = floats};
    expect_refused(&unsigned32, 1, "no storage class for U32");
    const ssm_tensor negative = {.name = "n", .n_dims = 1, .dims = {-1}, .data = floats};
    expect_refused(&negative, 1, "type or shape is not valid");
    const ssm_tensor huge = {
        .name = "h", .n_dims = 2, .dims = {INT64_MAX, INT64_MAX}, .data = floats};
    expect_refused(&huge, 1, "type or shape is not valid");
}

static void wrong_amounts_of_data(void **state)
{
    (void)state;
    ssm_error err;
    ssm_error_clear(&err);
    ssm__torch_stream *stream = NULL;
    assert_int_equal(ssm__torch_stream_open(path_of("c.bin"), tensors, 2, &stream, &err), 0);
    assert_int_equal(ssm__torch_stream_add(stream, floats, 600, &err), SSM_STATUS_OK);
    assert_int_equal(ssm__torch_stream_commit(stream, &err), SSM_STATUS_FAILED);
    assert_non_null(strstr(err.message, "600 bytes of data were written, the member has 1200"));
    assert_false(ssm__is_file(path_of("c.bin")));
    ssm_error_clear(&err);
    assert_int_equal(ssm__torch_stream_open(path_of("c.bin"), tensors, 1, &stream, &err), 0);
    assert_int_equal(ssm__torch_stream_add(stream, floats, 1200, &err), SSM_STATUS_OK);
    assert_int_equal(ssm__torch_stream_add(stream, floats, 1, &err), SSM_STATUS_FAILED);
    assert_non_null(strstr(err.message, "1 bytes more were given"));
    ssm__torch_stream_abort(stream);
    ssm__torch_stream_abort(NULL);
    assert_false(ssm__is_file(path_of("c.bin")));
    ssm_error_clear(&err);
    assert_int_equal(ssm__torch_write("/nonexistent/folder/x.bin", tensors, 1, &err),
                     SSM_STATUS_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(nothing_to_write),
        cmocka_unit_test(fixed_point),
        cmocka_unit_test(same_input_same_bytes),
        cmocka_unit_test(many_members),
        cmocka_unit_test(refused),
        cmocka_unit_test(wrong_amounts_of_data),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
