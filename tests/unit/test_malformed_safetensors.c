/* Malformed safetensors files, named by the rule they break; each has its own message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "safetensors/read.h"
#include "test_messages.h"
#include "test_paths.h"

/* A file by its parts: length field (−1: that of the header), header, `data` bytes of buffer. */
typedef struct header_row {
    const char *rule;
    const char *header;
    int data;
    const char *part; /* of the message */
} header_row;

#define F32_2 "\"dtype\":\"F32\",\"shape\":[2]"

static const header_row header_rows[] = {
    /* JSON */
    {"header is JSON", "{\"a\":", 0, "not valid JSON"},
    {"header is one JSON value", "{} {}", 0, "not valid JSON at line 1, column 5"},
    {"header is UTF-8", "{\"\xff\":{}}", 0, "UTF-8"},
    {"names have no NUL", "{\"a\\u0000b\":{" F32_2 ",\"data_offsets\":[0,8]}}", 8, "JSON"},
    {"keys are unique",
     "{\"a\":{" F32_2 ",\"data_offsets\":[0,8]},\"a\":{" F32_2 ",\"data_offsets\":[0,8]}}", 8,
     "duplicate"},
    {"header begins with a brace", " {}", 0, "begins with byte 0x20"},
    {"header is an object", "[1]", 0, "begins with byte 0x5b"},
    {"numbers fit 64 bits",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[99999999999999999999],\"data_offsets\":[0,1]}}", 1,
     "JSON"},
    {"offsets fit 63 bits", "{\"a\":{" F32_2 ",\"data_offsets\":[0,18446744073709551615]}}", 8,
     "JSON"},
    {"the end of a tensor fits", "{\"a\":{" F32_2 ",\"data_offsets\":[0,9223372036854775807]}}", 8,
     "9223372036854775807"},
    /* entries */
    {"entry is an object", "{\"a\":[]}", 0, "not an object with dtype, shape, data_offsets"},
    {"entry has a dtype", "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no dtype"},
    {"dtype is a string", "{\"a\":{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
     "a dtype that is not a string"},
    {"dtype is known", "{\"a\":{\"dtype\":\"Q4\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
     "unknown dtype \"Q4\""},
    {"dtype is exact", "{\"a\":{\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
     "unknown dtype \"f32\""},
    {"F8_E4M3 is named", "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8,
     "dtype F8_E4M3 is not supported"},
    {"C64 is named", "{\"a\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8,
     "dtype C64 is not supported"},
    {"F4 is named", "{\"a\":{\"dtype\":\"F4\",\"shape\":[16],\"data_offsets\":[0,8]}}", 8,
     "dtype F4 is not supported"},
    {"entry has a shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "no shape"},
    {"shape is a list", "{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8,
     "a shape that is not a list"},
    {"at most 8 dimensions",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
     "9 dimensions; at most 8"},
    {"dimensions are not negative",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1,
     "dimension 0 of the shape"},
    {"dimensions are whole", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1.0],\"data_offsets\":[0,1]}}",
     1, "dimension 1 of the shape"},
    {"dimensions are numbers",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,\"1\"],\"data_offsets\":[0,1]}}", 1,
     "dimension 2 of the shape"},
    {"the product of a shape fits",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807,3],\"data_offsets\":[0,1]}}", 1,
     "more bytes than 63 bits"},
    {"the bytes of a shape fit",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0,
     "shape [4611686018427387904] of F32 has more bytes"},
    /* offsets */
    {"entry has data_offsets", "{\"a\":{" F32_2 "}}", 8, "no data_offsets"},
    {"data_offsets are two", "{\"a\":{" F32_2 ",\"data_offsets\":[0,8,8]}}", 8,
     "malformed data_offsets"},
    {"begin is not after end", "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,0]}}",
     8, "[8, 0] run backwards"},
    {"begin is not negative", "{\"a\":{" F32_2 ",\"data_offsets\":[-8,0]}}", 8,
     "[-8, 0] run backwards"},
    {"shape and offsets agree", "{\"a\":{" F32_2 ",\"data_offsets\":[0,4]}}", 4,
     "shape [2] of F32 needs 8 bytes, data_offsets [0, 4] give 4"},
    {"an empty tensor has no bytes",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[0,4]}}", 4,
     "shape [0, 3] of F32 needs 0 bytes"},
    {"a 0-dim tensor has one element",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,8]}}", 8,
     "shape [] of F32 needs 4 bytes"},
    /* the buffer */
    {"no hole at the start", "{\"a\":{" F32_2 ",\"data_offsets\":[4,12]}}", 12,
     "hole of 4 bytes before the tensor: it begins at 4"},
    {"no hole between",
     "{\"a\":{" F32_2 ",\"data_offsets\":[0,8]},\"b\":{" F32_2 ",\"data_offsets\":[16,24]}}", 24,
     "hole of 8 bytes before the tensor: it begins at 16"},
    {"no hole before an empty tensor",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[2,2]}}", 2,
     "hole of 2 bytes before the tensor: it begins at 2"},
    {"no overlap",
     "{\"a\":{" F32_2 ",\"data_offsets\":[0,8]},\"b\":{" F32_2 ",\"data_offsets\":[4,12]}}", 12,
     "begins at 4 and overlaps a, which ends at 8"},
    {"no shared bytes",
     "{\"b\":{" F32_2 ",\"data_offsets\":[0,8]},\"c\":{" F32_2 ",\"data_offsets\":[0,8]}}", 8,
     "begins at 0 and overlaps b"},
    {"no empty tensor inside another",
     "{\"c\":{" F32_2
     ",\"data_offsets\":[0,8]},\"d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]}}",
     8, "begins at 4 and overlaps c"},
    {"all data are there", "{\"a\":{" F32_2 ",\"data_offsets\":[0,8]}}", 7, "is truncated"},
    {"offsets end within the file",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[9000000000000000000],"
     "\"data_offsets\":[0,9000000000000000000]}}",
     8, "the header describes 90000000000000000"},
    {"nothing follows the data", "{\"a\":{" F32_2 ",\"data_offsets\":[0,8]}}", 9,
     "1 bytes follow the last tensor"},
    {"nothing follows an empty set", "{}", 3, "3 bytes follow the last tensor"},
    /* metadata */
    {"metadata is an object", "{\"__metadata__\":[]}", 0, "not an object of strings"},
    {"metadata values are strings", "{\"__metadata__\":{\"step\":3}}", 0,
     "the value of \"step\" in __metadata__ is not a string"},
    {"metadata is flat", "{\"__metadata__\":{\"x\":{}}}", 0, "the value of \"x\""},
};

static ssm_status parse(const void *data, size_t size, ssm_error *err)
{
    /* A block of exactly this size: a sanitizer sees a read beyond it. */
    unsigned char *exact = malloc(size > 0 ? size : 1);
    assert_non_null(exact);
    memcpy(exact, data, size);
    ssm_safetensors *file = NULL;
    ssm_error_clear(err);
    ssm_status status =
        ssm__safetensors_parse("broken.safetensors", exact, size, false, &file, err);
    assert_null(file);
    free(exact);
    return status;
}

static ssm_status parse_row(const header_row *row, ssm_error *err)
{
    unsigned char block[1024] = {0};
    size_t length = strlen(row->header);
    size_t size = 8 + length + (size_t)row->data;
    assert_true(size <= sizeof block);
    block[0] = (unsigned char)(length & 0xff);
    block[1] = (unsigned char)(length >> 8);
    memcpy(block + 8, row->header, length);
    return parse(block, size, err);
}

/* Whole files that are something else, or cut short before the header ends. */
typedef struct file_row {
    const char *rule;
    const char *data;
    size_t size; /* 0: strlen */
    const char *part;
} file_row;

static const file_row file_rows[] = {
    {"file is not empty", "", 0, "the file has 0 bytes"},
    {"length field is whole", "\x02\0\0\0", 4, "the file has 4 bytes"},
    {"header length is not 0", "\0\0\0\0\0\0\0\0", 8, "the header length is 0"},
    {"header length is not 1", "\1\0\0\0\0\0\0\0{", 9, "the header length is 1"},
    {"header is whole", "\x40\0\0\0\0\0\0\0{\"a\":", 13,
     "the header has 64 bytes but only 5 follow"},
    {"header length is below the limit", "\x01\xe1\xf5\x05\0\0\0\0{}", 10,
     "the header length is 100000001 bytes, the limit is 100000000"},
    {"header length is not absurd", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10,
     "the header length is 18446744073709551615"},
    {"not a Git LFS pointer",
     "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 516567560\n", 0,
     "Git LFS pointer of 72 bytes, not the file of 516567560 bytes"},
    {"not a web page", "<!DOCTYPE html>\n<html><head><title>Sign in</title>", 0, "web page"},
    {"not a PyTorch archive", "PK\x03\x04\x14\0\x08\0", 8, "a PyTorch (zip) checkpoint"},
    {"not a legacy PyTorch file", "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46", 8,
     "a PyTorch (legacy pickle) checkpoint"},
    {"not a pickle", "\x80\x04\x95\x10\0\0\0\0\0\0\0", 11, "a Python pickle"},
    {"not a GGUF file", "GGUF\x03\0\0\0\0\0\0\0", 12, "a GGUF file"},
    {"not a NumPy array", "\x93NUMPY\x01\0\x76\0", 10, "a NumPy array"},
    {"not an HDF5 file", "\x89HDF\r\n\x1a\n", 8, "an HDF5 file"},
    {"not gzip", "\x1f\x8b\x08\0\0\0\0\0", 8, "gzip-compressed"},
    {"not zstd", "\x28\xb5\x2f\xfd\0\0\0\0", 8, "zstd-compressed"},
    {"not xz", "\xfd\x37zXZ\0\0\0", 8, "xz-compressed"},
};

/* JSON inside JSON, far deeper than any parser's stack should be asked to go. */
static void recursive_header(message_list *list)
{
    enum { DEPTH = 100000 };
    static unsigned char block[8 + 5 * DEPTH];
    memset(block, 0, 8);
    block[0] = (5 * DEPTH) & 0xff;
    block[1] = (5 * DEPTH) >> 8 & 0xff;
    block[2] = (5 * DEPTH) >> 16;
    for (size_t i = 0; i < DEPTH; i++) {
        memcpy(block + 8 + 5 * i, "{\"a\":", 5);
    }
    ssm_error err;
    ssm_status status = parse(block, sizeof block, &err);
    message_expect(list, "header is not recursive", status, SSM_STATUS_FILE, &err,
                   "nested too deeply");
}

static void each_rule_has_its_message(void **state)
{
    (void)state;
    message_list *list = calloc(1, sizeof *list);
    assert_non_null(list);
    ssm_error err;
    for (size_t i = 0; i < sizeof header_rows / sizeof header_rows[0]; i++) {
        const header_row *row = &header_rows[i];
        ssm_status status = parse_row(row, &err);
        message_expect(list, row->rule, status, SSM_STATUS_FILE, &err, row->part);
    }
    for (size_t i = 0; i < sizeof file_rows / sizeof file_rows[0]; i++) {
        const file_row *row = &file_rows[i];
        size_t size = row->size > 0 ? row->size : strlen(row->data);
        ssm_status status = parse(row->data, size, &err);
        message_expect(list, row->rule, status, SSM_STATUS_FILE, &err, row->part);
    }
    recursive_header(list);
    printf("%d malformed safetensors files\n", list->count);
    free(list);
}

static void other_spellings_of_a_web_page(void **state)
{
    (void)state;
    static const char *const pages[] = {"<html><body>403</body></html>", "  \n<!doctype HTML>..",
                                        "\xef\xbb\xbf<?xml version=\"1.0\"?>"};
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        ssm_error err;
        assert_int_equal(parse(pages[i], strlen(pages[i]), &err), SSM_STATUS_FILE);
        assert_non_null(strstr(err.message, "web page"));
    }
}

/* Cut anywhere, a good file is refused (its last byte belongs to a tensor). */
static void every_truncation_is_refused(void **state)
{
    (void)state;
    static const char header[] = "{\"a\":{" F32_2 ",\"data_offsets\":[0,8]}}   ";
    unsigned char block[128] = {sizeof header - 1};
    memcpy(block + 8, header, sizeof header - 1);
    size_t whole = 8 + sizeof header - 1 + 8;
    ssm_safetensors *file = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm__safetensors_parse("good", block, whole, false, &file, &err),
                     SSM_STATUS_OK);
    ssm_safetensors_close(file);
    for (size_t size = 0; size < whole; size++) {
        assert_int_equal(parse(block, size, &err), SSM_STATUS_FILE);
    }
}

static void errors_say_where(void **state)
{
    (void)state;
    const header_row hole = {"", "{\"a\":{" F32_2 ",\"data_offsets\":[4,12]}}", 12, ""};
    const header_row json = {"", "{\"a\" 1}", 0, ""};
    ssm_error err;
    assert_int_equal(parse_row(&hole, &err), SSM_STATUS_FILE);
    assert_string_equal(err.file, "broken.safetensors");
    assert_string_equal(err.tensor, "a");
    assert_int_equal(err.offset, 8 + (int64_t)strlen(hole.header));
    assert_int_equal(parse_row(&json, &err), SSM_STATUS_FILE);
    assert_in_range(err.offset, 8, 8 + strlen(json.header));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_has_its_message),
        cmocka_unit_test(other_spellings_of_a_web_page),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(errors_say_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
