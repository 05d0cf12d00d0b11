#include "torch/write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/utf8.h"
#include "safetensors/dtype.h"
#include "torch/zip_write.h"

/* The directory in the archive. torch.save takes the file's name; ours is fixed, so that the bytes
 * do not depend on it. */
#define ROOT "archive"

typedef struct storage {
    int64_t shares; /* earlier tensor, or −1 */
    int64_t key;
    size_t bytes;
} storage;

struct ssm__torch_stream {
    ssm__zip_writer *zip;
    char *path;
    int64_t count;
    storage *storages; /* of each tensor */
    int64_t next;      /* the tensor whose data come next */
    size_t left;       /* bytes of the tensor that is being written */
};

static ssm_status no_memory(ssm_error *err)
{
    return ssm__fail_memory(err, "a torch writer", 0);
}

/* ---- what is to be written ------------------------------------------------------------------- */

static const char *storage_class(ssm_dtype dtype)
{
    static const char *const names[SSM_DTYPE_COUNT] = {
        [SSM_DTYPE_F32] = "FloatStorage",     [SSM_DTYPE_F16] = "HalfStorage",
        [SSM_DTYPE_BF16] = "BFloat16Storage", [SSM_DTYPE_F64] = "DoubleStorage",
        [SSM_DTYPE_I64] = "LongStorage",      [SSM_DTYPE_I32] = "IntStorage",
        [SSM_DTYPE_I16] = "ShortStorage",     [SSM_DTYPE_I8] = "CharStorage",
        [SSM_DTYPE_U8] = "ByteStorage",       [SSM_DTYPE_BOOL] = "BoolStorage",
    };
    return (unsigned)dtype < SSM_DTYPE_COUNT ? names[dtype] : NULL;
}

static ssm_status check_tensor(const char *path, const ssm_tensor *tensor, size_t *bytes,
                               ssm_error *err)
{
    if (tensor->name == NULL || !ssm__is_utf8(tensor->name)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(path),
                         "a tensor has no name, or one that is not valid UTF-8");
    }
    if ((unsigned)tensor->dtype >= SSM_DTYPE_COUNT || tensor->n_dims < 0 ||
        tensor->n_dims > SSM_MAX_DIMS || !ssm__tensor_bytes(tensor, bytes)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__TENSOR(path, tensor->name),
                         "the tensor's type or shape is not valid");
    }
    if (storage_class(tensor->dtype) == NULL) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__TENSOR(path, tensor->name),
                         "torch has no storage class for %s; write safetensors instead",
                         ssm_dtype_name(tensor->dtype));
    }
    return SSM_STATUS_OK;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp((*(const ssm_tensor *const *)left)->name,
                  (*(const ssm_tensor *const *)right)->name);
}

/* By data, type and size, then by place in the list. */
static int compare_data(const void *left, const void *right)
{
    const ssm_tensor *a = *(const ssm_tensor *const *)left;
    const ssm_tensor *b = *(const ssm_tensor *const *)right;
    if (a->data != b->data) {
        return (uintptr_t)a->data < (uintptr_t)b->data ? -1 : 1;
    }
    if (a->dtype != b->dtype) {
        return a->dtype < b->dtype ? -1 : 1;
    }
    int64_t difference = ssm_tensor_count(a) - ssm_tensor_count(b);
    if (difference != 0) {
        return difference < 0 ? -1 : 1;
    }
    return (a > b) - (a < b);
}

static void find_shared(ssm__torch_stream *stream, const ssm_tensor *tensors,
                        const ssm_tensor **sorted)
{
    qsort(sorted, (size_t)stream->count, sizeof(ssm_tensor *), compare_data);
    int64_t first = -1;
    for (int64_t k = 0; k < stream->count; k++) {
        int64_t i = sorted[k] - tensors;
        bool same = k > 0 && sorted[k]->data != NULL && sorted[k]->data == sorted[k - 1]->data &&
                    sorted[k]->dtype == sorted[k - 1]->dtype &&
                    stream->storages[i].bytes == stream->storages[sorted[k - 1] - tensors].bytes;
        first = same ? first : i;
        stream->storages[i].shares = same && stream->storages[i].bytes > 0 ? first : -1;
    }
    int64_t key = 0;
    for (int64_t i = 0; i < stream->count; i++) {
        storage *s = &stream->storages[i];
        s->key = s->shares < 0 ? key++ : stream->storages[s->shares].key;
    }
}

static ssm_status plan(ssm__torch_stream *stream, const ssm_tensor *tensors, ssm_error *err)
{
    for (int64_t i = 0; i < stream->count; i++) {
        SSM__TRY(check_tensor(stream->path, &tensors[i], &stream->storages[i].bytes, err));
    }
    const ssm_tensor **sorted = malloc(((size_t)stream->count + 1) * sizeof(ssm_tensor *));
    if (sorted == NULL) {
        return no_memory(err);
    }
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; i < stream->count; i++) {
        sorted[i] = &tensors[i];
    }
    qsort(sorted, (size_t)stream->count, sizeof(ssm_tensor *), compare_names);
    for (int64_t i = 1; i < stream->count && status == SSM_STATUS_OK; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0) {
            status = ssm__fail(err, SSM_STATUS_USAGE, SSM__TENSOR(stream->path, sorted[i]->name),
                               "two tensors have this name");
        }
    }
    find_shared(stream, tensors, sorted);
    free(sorted);
    return status;
}

/* ---- data.pkl -------------------------------------------------------------------------------- */

typedef struct text {
    unsigned char *bytes;
    size_t used, room;
    bool failed;
} text;

static void add(text *t, const void *data, size_t bytes)
{
    if (t->failed || bytes > SIZE_MAX / 4 - t->used) {
        t->failed = true;
        return;
    }
    if (t->used + bytes > t->room) {
        size_t room = 2 * (t->used + bytes) + 256;
        unsigned char *moved = realloc(t->bytes, room);
        if (moved == NULL) {
            t->failed = true;
            return;
        }
        t->bytes = moved;
        t->room = room;
    }
    memcpy(t->bytes + t->used, data, bytes);
    t->used += bytes;
}

static void add_code(text *t, const char *codes)
{
    add(t, codes, strlen(codes));
}

static void add_little(text *t, uint64_t value, size_t width)
{
    unsigned char digits[8];
    for (size_t i = 0; i < width; i++) {
        digits[i] = (unsigned char)(value >> (8 * i) & 0xff);
    }
    add(t, digits, width);
}

static void add_string(text *t, const char *string)
{
    add_code(t, "X");
    add_little(t, strlen(string), 4);
    add_code(t, string);
}

/* The shortest of BININT1, BININT2, BININT and LONG1, as Python does. */
static void add_number(text *t, int64_t value)
{
    if (value <= UINT8_MAX) {
        add_code(t, "K");
        add_little(t, (uint64_t)value, 1);
    } else if (value <= UINT16_MAX) {
        add_code(t, "M");
        add_little(t, (uint64_t)value, 2);
    } else if (value <= INT32_MAX) {
        add_code(t, "J");
        add_little(t, (uint64_t)value, 4);
    } else {
        size_t width = 5;
        while (width < 8 && value >> (8 * width - 1) != 0) {
            width++;
        }
        add_code(t, "\x8a");
        add_little(t, width, 1);
        add_little(t, (uint64_t)value, width);
    }
}

static void add_tuple(text *t, const int64_t *numbers, int count)
{
    static const char *const codes[] = {")", "\x85", "\x86", "\x87", "t"};
    if (count > 3) {
        add_code(t, "(");
    }
    for (int i = 0; i < count; i++) {
        add_number(t, numbers[i]);
    }
    add_code(t, codes[count < 4 ? count : 4]);
}

/* Places in the memo of what is said again and again; the classes of storages stand behind them. */
enum { MEMO_DICT, MEMO_REBUILD, MEMO_STORAGE, MEMO_CPU, MEMO_CLASSES };

static void put_memo(text *t, unsigned index)
{
    add_code(t, "q");
    add_little(t, index, 1);
}

static void get_memo(text *t, unsigned index)
{
    add_code(t, "h");
    add_little(t, index, 1);
}

/* A global or a string: in words the first time, from the memo afterwards. */
static void add_again(text *t, unsigned index, uint32_t *seen, const char *words, bool is_string)
{
    if ((*seen >> index & 1) != 0) {
        get_memo(t, index);
        return;
    }
    *seen |= UINT32_C(1) << index;
    if (is_string) {
        add_string(t, words);
    } else {
        add_code(t, words);
    }
    put_memo(t, index);
}

/* _rebuild_tensor_v2(storage, 0, size, stride, False, OrderedDict()). */
static void add_tensor(text *t, const ssm_tensor *tensor, const storage *s, uint32_t *seen)
{
    char words[64];
    char key[24];
    int64_t strides[SSM_MAX_DIMS];
    int64_t step = 1;
    for (int i = tensor->n_dims - 1; i >= 0; i--) {
        strides[i] = step;
        step *= s->bytes > 0 ? tensor->dims[i] : 1; /* of an empty tensor they mean nothing */
    }
    add_string(t, tensor->name);
    add_again(t, MEMO_REBUILD, seen, "ctorch._utils\n_rebuild_tensor_v2\n", false);
    add_code(t, "((");
    add_again(t, MEMO_STORAGE, seen, "storage", true);
    snprintf(words, sizeof words, "ctorch\n%s\n", storage_class(tensor->dtype));
    add_again(t, MEMO_CLASSES + (unsigned)tensor->dtype, seen, words, false);
    snprintf(key, sizeof key, "%" PRId64, s->key);
    add_string(t, key);
    add_again(t, MEMO_CPU, seen, "cpu", true);
    add_number(t, (int64_t)(s->bytes / ssm_dtype_size(tensor->dtype)));
    add_code(t, "tQ");
    add_number(t, 0);
    add_tuple(t, tensor->dims, tensor->n_dims);
    add_tuple(t, strides, tensor->n_dims);
    add_code(t, "\x89");
    get_memo(t, MEMO_DICT);
    add_code(t, ")RtR");
}

static ssm_status write_member(ssm__zip_writer *zip, const char *name, const void *data,
                               size_t bytes, ssm_error *err)
{
    SSM__TRY(ssm__zip_writer_begin(zip, name, bytes, err));
    return ssm__zip_writer_add(zip, data, bytes, err);
}

static ssm_status write_pickle(ssm__torch_stream *stream, const ssm_tensor *tensors, ssm_error *err)
{
    text t = {0};
    uint32_t seen = 1U << MEMO_DICT;
    add_code(&t, "\x80\x02"
                 "ccollections\nOrderedDict\n");
    put_memo(&t, MEMO_DICT);
    add_code(&t, ")R(");
    for (int64_t i = 0; i < stream->count; i++) {
        add_tensor(&t, &tensors[i], &stream->storages[i], &seen);
    }
    add_code(&t, "u.");
    ssm_status status = t.failed
                            ? no_memory(err)
                            : write_member(stream->zip, ROOT "/data.pkl", t.bytes, t.used, err);
    free(t.bytes);
    return status;
}

/* ---- the stream ------------------------------------------------------------------------------ */

/* Opens the members of the tensors that come next, as long as they are empty. */
static ssm_status next_member(ssm__torch_stream *stream, ssm_error *err)
{
    char name[64];
    while (stream->left == 0 && stream->next < stream->count) {
        const storage *s = &stream->storages[stream->next++];
        if (s->shares >= 0) {
            continue;
        }
        snprintf(name, sizeof name, ROOT "/data/%" PRId64, s->key);
        SSM__TRY(ssm__zip_writer_begin(stream->zip, name, s->bytes, err));
        stream->left = s->bytes;
    }
    return SSM_STATUS_OK;
}

static ssm_status start(ssm__torch_stream *stream, const ssm_tensor *tensors, ssm_error *err)
{
    SSM__TRY(plan(stream, tensors, err));
    SSM__TRY(ssm__zip_writer_open(stream->path, &stream->zip, err));
    SSM__TRY(write_pickle(stream, tensors, err));
    SSM__TRY(write_member(stream->zip, ROOT "/byteorder", "little", 6, err));
    return next_member(stream, err);
}

ssm_status ssm__torch_stream_open(const char *path, const ssm_tensor *tensors, int64_t count,
                                  ssm__torch_stream **out, ssm_error *err)
{
    *out = NULL;
    ssm__torch_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL || (stream->path = strdup(path)) == NULL ||
        (stream->storages = calloc((size_t)count + 1, sizeof *stream->storages)) == NULL) {
        ssm__torch_stream_abort(stream);
        return no_memory(err);
    }
    stream->count = count;
    ssm_status status = start(stream, tensors, err);
    if (status != SSM_STATUS_OK) {
        ssm__torch_stream_abort(stream);
        return status;
    }
    *out = stream;
    return SSM_STATUS_OK;
}

int64_t ssm__torch_stream_shares(const ssm__torch_stream *stream, int64_t i)
{
    return stream->storages[i].shares;
}

ssm_status ssm__torch_stream_add(ssm__torch_stream *stream, const void *data, size_t bytes,
                                 ssm_error *err)
{
    const unsigned char *from = data;
    while (bytes > 0) {
        if (stream->left == 0) {
            return ssm__fail(err, SSM_STATUS_FAILED, SSM__IN_FILE(stream->path),
                             "%zu bytes more were given than the tensors have", bytes);
        }
        size_t part = bytes < stream->left ? bytes : stream->left;
        SSM__TRY(ssm__zip_writer_add(stream->zip, from, part, err));
        from += part;
        bytes -= part;
        stream->left -= part;
        SSM__TRY(next_member(stream, err));
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__torch_stream_commit(ssm__torch_stream *stream, ssm_error *err)
{
    ssm_status status = write_member(stream->zip, ROOT "/version", "3\n", 2, err);
    if (status == SSM_STATUS_OK) {
        status = ssm__zip_writer_commit(stream->zip, err);
        stream->zip = NULL;
    }
    ssm__torch_stream_abort(stream);
    return status;
}

void ssm__torch_stream_abort(ssm__torch_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    ssm__zip_writer_abort(stream->zip);
    free(stream->storages);
    free(stream->path);
    free(stream);
}

ssm_status ssm__torch_write(const char *path, const ssm_tensor *tensors, int64_t count,
                            ssm_error *err)
{
    ssm__torch_stream *stream = NULL;
    SSM__TRY(ssm__torch_stream_open(path, tensors, count, &stream, err));
    for (int64_t i = 0; i < count; i++) {
        const storage *s = &stream->storages[i];
        if (s->shares >= 0 || s->bytes == 0) {
            continue;
        }
        ssm_status status = ssm__torch_stream_add(stream, tensors[i].data, s->bytes, err);
        if (status != SSM_STATUS_OK) {
            ssm__torch_stream_abort(stream);
            return status;
        }
    }
    return ssm__torch_stream_commit(stream, err);
}
