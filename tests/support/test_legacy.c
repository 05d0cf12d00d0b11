/* test_legacy.c: torch's stream of pickles. Opcodes: protocol 2 of the pickle module. */
#include "test_legacy.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "torch/torch_file.h"

static void bytes(FILE *file, const void *data, size_t size)
{
    assert_int_equal(fwrite(data, 1, size, file), size);
}

static void text(FILE *file, const char *line)
{
    bytes(file, line, strlen(line));
}

static void little_endian(FILE *file, uint64_t value, int size)
{
    for (int i = 0; i < size; i++) {
        fputc((int)(value >> (8 * i) & 0xff), file);
    }
}

static void put_string(FILE *file, const char *value)
{
    fputc('X', file); /* BINUNICODE */
    little_endian(file, strlen(value), 4);
    text(file, value);
}

static void put_integer(FILE *file, int64_t value)
{
    assert_true(value >= 0 && value < INT32_MAX);
    fputc('J', file); /* BININT */
    little_endian(file, (uint64_t)value, 4);
}

static const char *storage_class(ssm_dtype dtype)
{
    assert_true(dtype == SSM_DTYPE_F32 || dtype == SSM_DTYPE_F16 || dtype == SSM_DTYPE_BF16);
    return dtype == SSM_DTYPE_F32   ? "ctorch\nFloatStorage\n"
           : dtype == SSM_DTYPE_F16 ? "ctorch\nHalfStorage\n"
                                    : "ctorch\nBFloat16Storage\n";
}

/* The first tensor with the same data names the storage. */
static int64_t storage_of(const ssm_tensor *tensors, int64_t i)
{
    int64_t first = 0;
    while (tensors[first].data != tensors[i].data) {
        first++;
    }
    return first;
}

static void storage_key(int64_t storage, char out[32])
{
    snprintf(out, 32, "%" PRId64, 94000000 + storage); /* torch writes an address */
}

static void put_tensor(FILE *file, const ssm_tensor *tensors, int64_t i)
{
    const ssm_tensor *tensor = &tensors[i];
    char key[32];
    storage_key(storage_of(tensors, i), key);
    text(file, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_string(file, "storage");
    text(file, storage_class(tensor->dtype));
    put_string(file, key);
    put_string(file, "cpu");
    put_integer(file, ssm_tensor_count(tensor));
    text(file, "NtQ"); /* None; the tuple is a persistent id */
    put_integer(file, 0);
    fputc('(', file);
    for (int d = 0; d < tensor->n_dims; d++) {
        put_integer(file, tensor->dims[d]);
    }
    text(file, "t(");
    for (int d = 0; d < tensor->n_dims; d++) {
        int64_t stride = 1;
        for (int k = d + 1; k < tensor->n_dims; k++) {
            stride *= tensor->dims[k];
        }
        put_integer(file, stride);
    }
    text(file, "t\x89"
               "ccollections\nOrderedDict\n)RtR"); /* requires_grad False, no hooks */
}

static void put_head(FILE *file)
{
    bytes(file, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
    bytes(file, "\x80\x02M\xe9\x03.", 6); /* protocol 1001 */
    bytes(file, "\x80\x02}(", 4);
    put_string(file, "protocol_version");
    bytes(file, "M\xe9\x03", 3);
    put_string(file, "little_endian");
    bytes(file, "\x88u.", 3);
}

void legacy_write(const char *path, const ssm_tensor *tensors, int64_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    put_head(file);
    bytes(file,
          "\x80\x02"
          "ccollections\nOrderedDict\n)R(",
          30);
    for (int64_t i = 0; i < count; i++) {
        put_string(file, tensors[i].name);
        put_tensor(file, tensors, i);
    }
    text(file, "u.");
    char key[32];
    bytes(file, "\x80\x02](", 4);
    for (int64_t i = 0; i < count; i++) {
        if (storage_of(tensors, i) == i) {
            storage_key(i, key);
            put_string(file, key);
        }
    }
    text(file, "e.");
    for (int64_t i = 0; i < count; i++) {
        if (storage_of(tensors, i) == i) {
            little_endian(file, (uint64_t)ssm_tensor_count(&tensors[i]), 8);
            bytes(file, tensors[i].data, tensors[i].bytes);
        }
    }
    assert_int_equal(fclose(file), 0);
}

void legacy_rewrite(const char *path)
{
    ssm__torch_file *file = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm__torch_open(path, &file, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", path, err.message);
    }
    const int64_t count = ssm__torch_count(file);
    ssm_tensor *tensors = calloc((size_t)count, sizeof *tensors);
    assert_non_null(tensors);
    for (int64_t i = 0; i < count; i++) {
        tensors[i] = *ssm__torch_at(file, i);
    }
    char other[4096];
    assert_true(snprintf(other, sizeof other, "%s.legacy", path) < (int)sizeof other);
    legacy_write(other, tensors, count);
    free(tensors);
    ssm__torch_close(file);
    assert_int_equal(rename(other, path), 0);
}
