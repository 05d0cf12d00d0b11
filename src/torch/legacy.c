/* The form before PyTorch 1.6: five pickles one behind the other (magic number, protocol, sys_info,
 * the object, the keys of its storages), then the storages in the order of the keys, each as a
 * count of elements (i64) and the elements. Source: torch/serialization.py, _legacy_save. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "torch/internal.h"

enum { PROTOCOL = 1001 };

typedef struct stream {
    ssm__torch_file *file;
    const unsigned char *data;
    size_t size;
    size_t at;
    ssm__pickle keys;
} stream;

static ssm_status read_pickle(stream *s, const char *what, ssm__pickle_input *input,
                              ssm__pickle *out, ssm_error *err)
{
    *input =
        (ssm__pickle_input){s->file->path, what, s->data + s->at, s->size - s->at, (int64_t)s->at};
    SSM__TRY(ssm__pickle_read(input, &s->file->memory, out, err));
    s->at += out->used;
    return SSM_STATUS_OK;
}

static ssm_status check_magic(stream *s, ssm_error *err)
{
    static const unsigned char magic[10] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                            0x20, 0x6a, 0xa8, 0x50, 0x19};
    ssm__pickle pickle;
    ssm__pickle_input input;
    SSM__TRY(read_pickle(s, "the magic number's pickle", &input, &pickle, err));
    const ssm__pickle_value *value = pickle.value;
    if (value->kind != SSM__PICKLE_BIG_INT || value->as.text.bytes != sizeof magic ||
        memcmp(value->as.text.data, magic, sizeof magic) != 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(s->file->path, 0),
                         "the file does not begin with the magic number of torch.save");
    }
    SSM__TRY(read_pickle(s, "the protocol's pickle", &input, &pickle, err));
    if (pickle.value->kind != SSM__PICKLE_INT || pickle.value->as.integer != PROTOCOL) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(s->file->path, input.base),
                         "the protocol of the stream is not %d, the only one there is", PROTOCOL);
    }
    return SSM_STATUS_OK;
}

static ssm_status check_system(stream *s, ssm_error *err)
{
    ssm__pickle pickle;
    ssm__pickle_input input;
    SSM__TRY(read_pickle(s, "the sys_info pickle", &input, &pickle, err));
    const ssm__pickle_value *little = ssm__pickle_get(pickle.value, "little_endian");
    if (little == NULL || little->kind != SSM__PICKLE_BOOL) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(s->file->path, input.base),
                         "the stream's sys_info does not say little_endian");
    }
    if (little->as.integer == 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(s->file->path, input.base),
                         "the stream was written on a big-endian machine (sys_info); load it in "
                         "PyTorch and save it again on a little-endian one");
    }
    return SSM_STATUS_OK;
}

static int compare_key(const void *key, const void *item)
{
    const ssm__pickle_value *text = key;
    const ssm__pickle_storage *root = *(ssm__pickle_storage *const *)item;
    size_t a = text->as.text.bytes;
    size_t b = root->key_bytes;
    int order = memcmp(text->as.text.data, root->key, a < b ? a : b);
    return order != 0 ? order : (a > b) - (a < b);
}

/* One storage of the stream; s->at moves behind it. */
static ssm_status read_storage(stream *s, ssm__pickle_storage *root, ssm_error *err)
{
    if (root->data != NULL || root->file_offset >= 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(s->file->path, (int64_t)s->at),
                         "the stream lists storage \"%.*s\" twice",
                         (int)(root->key_bytes < 40 ? root->key_bytes : 40), root->key);
    }
    if (s->size - s->at < 8) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(s->file->path, (int64_t)s->at),
                         "the stream ends before the size of a storage: the file is truncated");
    }
    uint64_t count = 0;
    for (size_t i = 8; i-- > 0;) {
        count = count << 8 | s->data[s->at + i];
    }
    if (count != (uint64_t)root->count) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(s->file->path, (int64_t)s->at),
                         "a storage has %" PRIu64 " elements here and %" PRId64 " in the pickle",
                         count, root->count);
    }
    s->at += 8;
    if (root->bytes > s->size - s->at) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(s->file->path, (int64_t)s->size),
                         "the file is truncated: a storage of %zu bytes begins at byte %zu of %zu",
                         root->bytes, s->at, s->size);
    }
    root->file_offset = (int64_t)s->at;
    root->data = s->data + s->at;
    s->at += root->bytes;
    return SSM_STATUS_OK;
}

static ssm_status resolve(ssm__torch_file *file, ssm__pickle_storage **roots, size_t count,
                          void *context, ssm_error *err)
{
    stream *s = context;
    const ssm__pickle_value *keys = s->keys.value;
    for (size_t i = 0; i < keys->as.list.count; i++) {
        const ssm__pickle_value *key = keys->as.list.items[i];
        ssm__pickle_storage **found =
            key->kind == SSM__PICKLE_TEXT
                ? bsearch(key, roots, count, sizeof(ssm__pickle_storage *), compare_key)
                : NULL;
        if (found == NULL) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(file->path, (int64_t)s->at),
                             "key %zu of the stream's storages is not in its pickle, so the length "
                             "of that storage is unknown",
                             i);
        }
        SSM__TRY(read_storage(s, *found, err));
    }
    for (size_t i = 0; i < count; i++) {
        if (roots[i]->file_offset < 0) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(file->path, (int64_t)s->at),
                             "storage \"%.*s\" is used and not in the stream's list",
                             (int)(roots[i]->key_bytes < 40 ? roots[i]->key_bytes : 40),
                             roots[i]->key);
        }
    }
    if (s->at != s->size) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(file->path, (int64_t)s->at),
                         "%zu bytes follow the last storage", s->size - s->at);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__torch_read_legacy(ssm__torch_file *file, const unsigned char *data, size_t size,
                                  ssm_error *err)
{
    stream s = {.file = file, .data = data, .size = size};
    ssm__pickle_input input;
    ssm__pickle_input keys_input;
    ssm__pickle object;
    SSM__TRY(check_magic(&s, err));
    SSM__TRY(check_system(&s, err));
    SSM__TRY(read_pickle(&s, "the object's pickle", &input, &object, err));
    SSM__TRY(read_pickle(&s, "the storage keys' pickle", &keys_input, &s.keys, err));
    if (s.keys.value->kind != SSM__PICKLE_LIST) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(file->path, keys_input.base),
                         "the keys of the stream's storages are %s, expected a list",
                         ssm__pickle_kind_name(s.keys.value->kind));
    }
    return ssm__torch_collect(file, &input, &object, resolve, &s, err);
}
