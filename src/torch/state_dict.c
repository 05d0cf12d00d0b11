/* From a pickle's value to tensors: which dict is the state dict, which of its values are tensors,
 * and whether each lies within its storage. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "safetensors/dtype.h"
#include "safetensors/names.h"
#include "torch/internal.h"

/* What files with more than a state dict call it. */
static const char *const wrappers[] = {"model", "state_dict", "model_state_dict", "module"};
enum {
    N_WRAPPERS = sizeof wrappers / sizeof wrappers[0],
    KEYS_SHOWN = 8,
    KEY_BYTES = 60,
    KEYS_BYTES = (KEYS_SHOWN + 1) * (KEY_BYTES + 8)
};

typedef struct collection {
    ssm__torch_file *file;
    const ssm__pickle_input *input;
    const ssm__pickle_value *dict;
    ssm__pickle_tensor **specs; /* of file->tensors */
    ssm_error *err;
} collection;

static ssm_status no_memory(ssm_error *err)
{
    return ssm__fail_memory(err, "the tensors of a torch file", 0);
}

/* What an empty tensor points to: it is there, and no byte of it may be read. */
static const unsigned char nothing[1];

/* ---- the state dict -------------------------------------------------------------------------- */

static size_t count_tensors(const ssm__pickle_value *dict)
{
    size_t count = 0;
    for (size_t i = 1; i < dict->as.list.count; i += 2) {
        count += dict->as.list.items[i]->kind == SSM__PICKLE_TENSOR;
    }
    return count;
}

/* A key as it may be shown: quoted, cut between characters, what does not print as '?'. */
static size_t show_key(const ssm__pickle_value *key, char *out, size_t size)
{
    if (key->kind != SSM__PICKLE_TEXT) {
        return (size_t)snprintf(out, size, "%s", ssm__pickle_kind_name(key->kind));
    }
    const char *text = key->as.text.data;
    size_t bytes = key->as.text.bytes < KEY_BYTES ? key->as.text.bytes : KEY_BYTES;
    while (bytes > 0 && bytes < key->as.text.bytes && ((unsigned char)text[bytes] & 0xc0) == 0x80) {
        bytes--;
    }
    out[0] = '"';
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        out[i + 1] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
    }
    out[bytes + 1] = '"';
    out[bytes + 2] = '\0';
    return bytes + 2;
}

/* The first keys of a dict, of all or of what is no tensor. */
static const char *list_keys(const ssm__pickle_value *dict, bool all, char out[KEYS_BYTES])
{
    size_t used = 0;
    int shown = 0;
    out[0] = '\0';
    for (size_t i = 0; i < dict->as.list.count; i += 2) {
        if (!all && dict->as.list.items[i + 1]->kind == SSM__PICKLE_TENSOR) {
            continue;
        }
        if (shown == KEYS_SHOWN) {
            snprintf(out + used, KEYS_BYTES - used, ", …");
            break;
        }
        used += (size_t)snprintf(out + used, KEYS_BYTES - used, "%s", shown++ > 0 ? ", " : "");
        used += show_key(dict->as.list.items[i], out + used, KEYS_BYTES - used);
    }
    return out;
}

/* The one dict with tensors under a key of `wrappers`; *chosen NULL: there is none. */
static ssm_status find_wrapped(collection *c, const ssm__pickle_value *top, const char **chosen)
{
    *chosen = NULL;
    for (int i = 0; i < N_WRAPPERS; i++) {
        const ssm__pickle_value *inner = ssm__pickle_get(top, wrappers[i]);
        if (inner == NULL || inner == c->dict || inner->kind != SSM__PICKLE_DICT ||
            count_tensors(inner) == 0) {
            continue;
        }
        if (*chosen != NULL) {
            return ssm__fail(c->err, SSM_STATUS_FILE, SSM__IN_FILE(c->input->path),
                             "the file has tensors under \"%s\" and under \"%s\"; save the state "
                             "dict that is meant in a file of its own",
                             *chosen, wrappers[i]);
        }
        *chosen = wrappers[i];
        c->dict = inner;
    }
    return SSM_STATUS_OK;
}

/* No state dict has a dict among its values, so one that is wrapped comes before tensors beside it,
 * such as a loss or a step. */
static ssm_status choose(collection *c, const ssm__pickle_value *top)
{
    char keys[KEYS_BYTES];
    const char *chosen = NULL;
    if (top->kind != SSM__PICKLE_DICT) {
        return ssm__fail(c->err, SSM_STATUS_FILE, SSM__IN_FILE(c->input->path),
                         "the file holds %s instead of a state dict (names and tensors); save it "
                         "with torch.save(model.state_dict(), …)",
                         ssm__pickle_kind_name(top->kind));
    }
    c->dict = top;
    SSM__TRY(find_wrapped(c, top, &chosen));
    if (chosen != NULL) {
        return ssm__torch_add_note(c->file, c->err,
                                   "the state dict was taken from under \"%s\"; of the file's keys "
                                   "(%s) the others were ignored",
                                   chosen, list_keys(top, true, keys));
    }
    if (count_tensors(top) > 0 || top->as.list.count == 0) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(c->err, SSM_STATUS_FILE, SSM__IN_FILE(c->input->path),
                     "the dict at the top of the file holds no tensor, nor does one under "
                     "\"model\", \"state_dict\", \"model_state_dict\" or \"module\"; its keys "
                     "are %s",
                     list_keys(top, true, keys));
}

static ssm_status note_others(collection *c, size_t tensors)
{
    char keys[KEYS_BYTES];
    size_t others = c->dict->as.list.count / 2 - tensors;
    if (others == 0) {
        return SSM_STATUS_OK;
    }
    return ssm__torch_add_note(c->file, c->err,
                               "%zu %s of the state dict %s no tensor and %s ignored: %s", others,
                               others == 1 ? "entry" : "entries", others == 1 ? "is" : "are",
                               others == 1 ? "was" : "were", list_keys(c->dict, false, keys));
}

/* ---- names ----------------------------------------------------------------------------------- */

static ssm_status read_name(collection *c, const ssm__pickle_value *key,
                            const ssm__pickle_tensor *spec, const char **out)
{
    int64_t offset = c->input->base < 0 ? -1 : c->input->base + spec->place;
    if (key->kind != SSM__PICKLE_TEXT) {
        return ssm__fail(c->err, SSM_STATUS_FILE, SSM__AT(c->input->path, offset),
                         "the name of a tensor is %s, expected a string",
                         ssm__pickle_kind_name(key->kind));
    }
    if (memchr(key->as.text.data, '\0', key->as.text.bytes) != NULL) {
        return ssm__fail(c->err, SSM_STATUS_FILE, SSM__AT(c->input->path, offset),
                         "the name of a tensor has a NUL character in it");
    }
    *out = ssm__bump_text(&c->file->memory, key->as.text.data, key->as.text.bytes);
    return *out == NULL ? no_memory(c->err) : SSM_STATUS_OK;
}

static ssm_status sort_names(collection *c)
{
    ssm__torch_file *file = c->file;
    ssm__names_sort(file->tensors, file->count, file->by_name);
    for (int64_t i = 1; i < file->count; i++) {
        if (strcmp(file->by_name[i - 1]->name, file->by_name[i]->name) == 0) {
            return ssm__fail(c->err, SSM_STATUS_FILE,
                             SSM__TENSOR(file->path, file->by_name[i]->name),
                             "the state dict has two tensors of this name; which one is meant?");
        }
    }
    return SSM_STATUS_OK;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

bool ssm__torch_is_dense(const ssm__pickle_tensor *spec)
{
    int64_t step = 1;
    for (int i = 0; i < spec->n_dims; i++) {
        if (spec->dims[i] == 0) {
            return true;
        }
    }
    for (int i = spec->n_dims - 1; i >= 0; i--) {
        if (spec->dims[i] != 1 && spec->strides[i] != step) {
            return false;
        }
        step *= spec->dims[i]; /* the whole product was checked before */
    }
    return true;
}

/* One more than the highest element that the tensor reaches, from its own first; 0 for an empty
 * one, whose other dimensions and strides mean nothing. False: overflow. */
static bool reach(const ssm__pickle_tensor *spec, size_t bytes, int64_t *out)
{
    int64_t last = 0;
    *out = 0;
    for (int i = 0; i < spec->n_dims && bytes > 0; i++) {
        int64_t step;
        if (!ssm__mul_dim(spec->dims[i] - 1, spec->strides[i], &step) ||
            __builtin_add_overflow(last, step, &last)) {
            return false;
        }
    }
    return bytes == 0 || !__builtin_add_overflow(last, 1, out);
}

static ssm_status check_shape(collection *c, const char *name, const ssm__pickle_tensor *spec,
                              ssm_tensor *tensor)
{
    char shape[256];
    char strides[256];
    ssm__shape_text(spec->dims, spec->n_dims, shape, sizeof shape);
    ssm__shape_text(spec->strides, spec->n_dims, strides, sizeof strides);
    *tensor = (ssm_tensor){.name = name,
                           .dtype = spec->dtype,
                           .n_dims = spec->n_dims,
                           .file = c->file->path,
                           .file_offset = -1};
    memcpy(tensor->dims, spec->dims, sizeof tensor->dims);
    if (!ssm__tensor_bytes(tensor, &tensor->bytes)) {
        return ssm__fail(c->err, SSM_STATUS_FILE, SSM__TENSOR(c->file->path, name),
                         "size %s of %s has more bytes than 63 bits can count", shape,
                         ssm_dtype_name(spec->dtype));
    }
    const ssm__pickle_storage *storage = spec->storage;
    int64_t elements = 0;
    int64_t count = storage->view_count * (int64_t)ssm_dtype_size(storage->dtype) /
                    (int64_t)ssm_dtype_size(spec->dtype);
    if (!reach(spec, tensor->bytes, &elements) || spec->offset > count ||
        elements > count - spec->offset) {
        return ssm__fail(c->err, SSM_STATUS_FILE, SSM__TENSOR(c->file->path, name),
                         "size %s with strides %s from element %" PRId64
                         " reaches beyond its storage of %" PRId64 " elements",
                         shape, strides, spec->offset, count);
    }
    return SSM_STATUS_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static ssm_status read_specs(collection *c)
{
    ssm__torch_file *file = c->file;
    const ssm__pickle_value *dict = c->dict;
    size_t count = count_tensors(dict);
    file->tensors = calloc(count + 1, sizeof *file->tensors);
    file->by_name = calloc(count + 1, sizeof(ssm_tensor *));
    c->specs = calloc(count + 1, sizeof(ssm__pickle_tensor *));
    if (file->tensors == NULL || file->by_name == NULL || c->specs == NULL) {
        return no_memory(c->err);
    }
    for (size_t i = 0; i < dict->as.list.count; i += 2) {
        if (dict->as.list.items[i + 1]->kind != SSM__PICKLE_TENSOR) {
            continue;
        }
        ssm__pickle_tensor *spec = dict->as.list.items[i + 1]->as.tensor;
        const char *name = NULL;
        SSM__TRY(read_name(c, dict->as.list.items[i], spec, &name));
        SSM__TRY(check_shape(c, name, spec, &file->tensors[file->count]));
        spec->storage->root->used = true;
        c->specs[file->count++] = spec;
    }
    SSM__TRY(sort_names(c));
    return note_others(c, count);
}

static ssm_status place_tensors(collection *c, ssm__pickle_storage *const *roots, size_t count)
{
    ssm__torch_file *file = c->file;
    size_t storage_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        storage_bytes += roots[i]->used ? roots[i]->bytes : 0; /* they all lie in one file */
    }
    for (int64_t i = 0; i < file->count; i++) {
        const ssm__pickle_tensor *spec = c->specs[i];
        const ssm__pickle_storage *root = spec->storage->root;
        ssm_tensor *tensor = &file->tensors[i];
        tensor->data = nothing;
        if (tensor->bytes == 0) {
            continue;
        }
        size_t start = (size_t)spec->storage->view_offset * ssm_dtype_size(spec->storage->dtype) +
                       (size_t)spec->offset * ssm_dtype_size(spec->dtype);
        tensor->data = root->data + start;
        if (root->file_offset >= 0) {
            tensor->file_offset = root->file_offset + (int64_t)start;
        }
    }
    return ssm__torch_materialise(file, c->specs, storage_bytes, c->err);
}

ssm_status ssm__torch_collect(ssm__torch_file *file, const ssm__pickle_input *input,
                              const ssm__pickle *pickle, ssm__torch_resolve_fn *resolve,
                              void *context, ssm_error *err)
{
    collection c = {.file = file, .input = input, .err = err};
    ssm__pickle_storage **roots = NULL;
    size_t count = 0;
    SSM__TRY(ssm__pickle_roots(input, &file->memory, pickle, &roots, &count, err));
    SSM__TRY(choose(&c, pickle->value));
    ssm_status status = read_specs(&c);
    if (status == SSM_STATUS_OK) {
        status = resolve(file, roots, count, context, err);
    }
    if (status == SSM_STATUS_OK) {
        status = place_tensors(&c, roots, count);
    }
    free(c.specs);
    return status;
}
