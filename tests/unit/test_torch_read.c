/* Reading torch checkpoints: files that PyTorch wrote (tools/make_torch_goldens.py), in all forms.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_paths.h"
#include "torch/torch_file.h"

static ssm_safetensors *expected;

static int set_up(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    return (int)ssm_safetensors_open(test_golden_path(path, "torch/expected.safetensors"), false,
                                     &expected, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    ssm_safetensors_close(expected);
    return 0;
}

static ssm__torch_file *open_path(const char *path)
{
    ssm__torch_file *file = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm__torch_open(path, &file, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", path, err.message);
    }
    return file;
}

static ssm__torch_file *open_golden(const char *name)
{
    char relative[128];
    char path[TEST_PATH_MAX];
    snprintf(relative, sizeof relative, "torch/%s", name);
    return open_path(test_golden_path(path, relative));
}

/* The same tensors as expected.safetensors, in the order of the dict; empty ones come first in a
 * safetensors file's order, so order is compared by name only. */
static void compare(const ssm__torch_file *file, const char *what)
{
    assert_int_equal(ssm__torch_count(file), ssm_safetensors_count(expected));
    for (int64_t i = 0; i < ssm__torch_count(file); i++) {
        const ssm_tensor *got = ssm__torch_at(file, i);
        const ssm_tensor *want = ssm_safetensors_find(expected, got->name);
        if (want == NULL) {
            fail_msg("%s: unexpected tensor %s", what, got->name);
            return;
        }
        assert_ptr_equal(ssm__torch_find(file, got->name), got);
        assert_int_equal(got->dtype, want->dtype);
        assert_int_equal(got->n_dims, want->n_dims);
        assert_memory_equal(got->dims, want->dims, sizeof(int64_t) * (size_t)want->n_dims);
        assert_int_equal(got->bytes, want->bytes);
        assert_non_null(got->data);
        if (memcmp(got->data, want->data, want->bytes) != 0) {
            fail_msg("%s: the bytes of %s differ", what, got->name);
        }
    }
}

static void all_forms(void **state)
{
    (void)state;
    static const char *const names[] = {
        "zip.bin",   "legacy.bin",   "protocol4.bin", "legacy_protocol4.bin",
        "nested.pt", "metadata.pth", "deflated.bin",  "unaligned.bin"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ssm__torch_file *file = open_golden(names[i]);
        ssm_error err;
        ssm_error_clear(&err);
        compare(file, names[i]);
        assert_int_equal(ssm__torch_check_crc(file, &err), SSM_STATUS_OK);
        ssm__torch_close(file);
    }
    ssm__torch_close(NULL);
}

static void order_of_the_dict(void **state)
{
    (void)state;
    static const char *const first[] = {"backbone.embedding.weight", "backbone.A_log", "half",
                                        "brain"};
    ssm__torch_file *file = open_golden("zip.bin");
    for (int64_t i = 0; i < 4; i++) {
        assert_string_equal(ssm__torch_at(file, i)->name, first[i]);
    }
    assert_string_equal(ssm__torch_at(file, ssm__torch_count(file) - 1)->name, "lm_head.weight");
    assert_null(ssm__torch_at(file, -1));
    assert_null(ssm__torch_at(file, ssm__torch_count(file)));
    assert_null(ssm__torch_find(file, "no such tensor"));
    ssm__torch_close(file);
}

/* Dense tensors are views into the file: the offset is where their bytes are; tied ones share. */
static void views_and_copies(void **state)
{
    (void)state;
    static const char *const forms[] = {"zip.bin", "legacy.bin", "unaligned.bin"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        ssm__torch_file *file = open_golden(forms[i]);
        const ssm_tensor *tied = ssm__torch_find(file, "lm_head.weight");
        const ssm_tensor *embedding = ssm__torch_find(file, "backbone.embedding.weight");
        const ssm_tensor *whole = ssm__torch_find(file, "whole");
        const ssm_tensor *row = ssm__torch_find(file, "row");
        assert_ptr_equal(tied->data, embedding->data);
        assert_int_equal(tied->file_offset, embedding->file_offset);
        assert_int_equal(row->file_offset, whole->file_offset + 2 * 6 * 4);
        assert_ptr_equal(row->data, (const char *)whole->data + 2 * 6 * 4);
        FILE *stream = fopen(whole->file, "rb");
        float values[24];
        assert_non_null(stream);
        assert_int_equal(fseek(stream, (long)whole->file_offset, SEEK_SET), 0);
        assert_int_equal(fread(values, sizeof values, 1, stream), 1);
        fclose(stream);
        assert_memory_equal(values, whole->data, sizeof values);
        static const char *const copied[] = {"transposed", "corner", "cube.permuted", "expanded"};
        for (size_t k = 0; k < sizeof copied / sizeof copied[0]; k++) {
            const ssm_tensor *copy = ssm__torch_find(file, copied[k]);
            assert_int_equal(copy->file_offset, -1);
            assert_int_equal((uintptr_t)copy->data % 64, 0);
        }
        ssm__torch_close(file);
    }
    ssm__torch_file *aligned = open_golden("zip.bin");
    assert_int_equal(ssm__torch_find(aligned, "whole")->file_offset % 64, 0);
    ssm__torch_close(aligned);
}

static void notes(void **state)
{
    (void)state;
    ssm__torch_file *nested = open_golden("nested.pt");
    assert_int_equal(ssm__torch_note_count(nested), 1);
    assert_non_null(strstr(ssm__torch_note(nested, 0), "from under \"model_state_dict\""));
    assert_non_null(strstr(ssm__torch_note(nested, 0), "\"optimizer\""));
    assert_null(ssm__torch_note(nested, 1));
    ssm__torch_close(nested);
    ssm__torch_file *extra = open_golden("metadata.pth");
    assert_int_equal(ssm__torch_note_count(extra), 1);
    assert_string_equal(ssm__torch_note(extra, 0),
                        "1 entry of the state dict is no tensor and was ignored: \"epoch\"");
    ssm__torch_close(extra);
    ssm__torch_file *plain = open_golden("zip.bin");
    assert_int_equal(ssm__torch_note_count(plain), 0);
    ssm__torch_close(plain);
}

static void recognised(void **state)
{
    (void)state;
    assert_true(ssm__torch_recognise((const unsigned char *)"PK\x03\x04", 4));
    assert_true(ssm__torch_recognise((const unsigned char *)"\x80\x02\x8a\x0a\x6c\xfc", 6));
    assert_false(
        ssm__torch_recognise((const unsigned char *)"\x80\x04\x95\x20\0\0\0\0\0\0\0}", 12));
    assert_false(ssm__torch_recognise((const unsigned char *)"\x40\0\0\0\0\0\0\0{", 9));
    assert_false(ssm__torch_recognise((const unsigned char *)"", 0));
}

/* Files of another project, made by a newer PyTorch. */
static void handed_files(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t count;
    } rows[] = {{"tiny_torch_state.bin", 6},
                {"tiny_gpt2.bin", 30},
                {"tiny_gpt2-00001-of-00002.bin", 15},
                {"tiny_gpt2-00002-of-00002.bin", 15}};
    char relative[128];
    char path[TEST_PATH_MAX];
    if (!test_shared_path(path, "data/vectors/neural-api/formats/evil_torch.bin")) {
        skip();
    }
    ssm__torch_file *file = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm__torch_open(path, &file, &err), SSM_STATUS_FILE);
    assert_non_null(strstr(err.message, "posix.system"));
    assert_null(file);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(relative, sizeof relative, "data/vectors/neural-api/formats/%s", rows[i].name);
        if (!test_shared_path(path, relative)) {
            skip();
        }
        file = open_path(path);
        assert_int_equal(ssm__torch_count(file), rows[i].count);
        ssm_error_clear(&err);
        assert_int_equal(ssm__torch_check_crc(file, &err), SSM_STATUS_OK);
        ssm__torch_close(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms),        cmocka_unit_test(order_of_the_dict),
        cmocka_unit_test(views_and_copies), cmocka_unit_test(notes),
        cmocka_unit_test(recognised),       cmocka_unit_test(handed_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
