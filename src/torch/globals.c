#include "torch/globals.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- what values have in common -------------------------------------------------------------- */

ssm_status ssm__pickle_refuse(const ssm__pickle_site *site, ssm_error *err, const char *format, ...)
{
    char text[SSM_ERROR_MESSAGE_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const ssm__pickle_input *input = site->input;
    int64_t offset = input->base < 0 ? -1 : input->base + (int64_t)site->at;
    return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(input->path, offset), "%s (byte %zu of %s)",
                     text, site->at, input->what);
}

ssm_status ssm__pickle_no_memory(const ssm__pickle_site *site, ssm_error *err)
{
    if (site->memory->over_limit) {
        return ssm__pickle_refuse(site, err,
                                  "the pickle describes more than %zu MiB of objects; refused",
                                  site->memory->limit >> 20);
    }
    return ssm__fail_memory(err, "the objects of a pickle", site->memory->taken);
}

ssm_status ssm__pickle_make(const ssm__pickle_site *site, ssm__pickle_kind kind,
                            ssm__pickle_value **out, ssm_error *err)
{
    ssm__pickle_value *value = ssm__bump_take(site->memory, sizeof *value);
    if (value == NULL) {
        return ssm__pickle_no_memory(site, err);
    }
    value->kind = kind;
    *out = value;
    return SSM_STATUS_OK;
}

ssm_status ssm__pickle_add(const ssm__pickle_site *site, ssm__pickle_value *list,
                           ssm__pickle_value *item, ssm_error *err)
{
    if (!ssm__bump_room(site->memory, &list->as.list.items, &list->as.list.room,
                        list->as.list.count, sizeof(ssm__pickle_value *))) {
        return ssm__pickle_no_memory(site, err);
    }
    list->as.list.items[list->as.list.count++] = item;
    return SSM_STATUS_OK;
}

const char *ssm__pickle_kind_name(ssm__pickle_kind kind)
{
    static const char *const names[SSM__PICKLE_KINDS] = {
        [SSM__PICKLE_NONE] = "None",         [SSM__PICKLE_BOOL] = "a truth value",
        [SSM__PICKLE_INT] = "a number",      [SSM__PICKLE_BIG_INT] = "a number beyond 64 bits",
        [SSM__PICKLE_FLOAT] = "a float",     [SSM__PICKLE_TEXT] = "a string",
        [SSM__PICKLE_BYTES] = "bytes",       [SSM__PICKLE_TUPLE] = "a tuple",
        [SSM__PICKLE_LIST] = "a list",       [SSM__PICKLE_DICT] = "a dict",
        [SSM__PICKLE_SET] = "a set",         [SSM__PICKLE_GLOBAL] = "a global",
        [SSM__PICKLE_STORAGE] = "a storage", [SSM__PICKLE_TENSOR] = "a tensor",
        [SSM__PICKLE_OPAQUE] = "an object",
    };
    return (unsigned)kind < SSM__PICKLE_KINDS ? names[kind] : "?";
}

bool ssm__pickle_is_text(const ssm__pickle_value *value, const char *text)
{
    size_t bytes = strlen(text);
    return value != NULL && value->kind == SSM__PICKLE_TEXT && value->as.text.bytes == bytes &&
           memcmp(value->as.text.data, text, bytes) == 0;
}

const ssm__pickle_value *ssm__pickle_get(const ssm__pickle_value *dict, const char *key)
{
    const ssm__pickle_value *found = NULL;
    if (dict == NULL || dict->kind != SSM__PICKLE_DICT) {
        return NULL;
    }
    for (size_t i = 0; i < dict->as.list.count; i += 2) {
        if (ssm__pickle_is_text(dict->as.list.items[i], key)) {
            found = dict->as.list.items[i + 1];
        }
    }
    return found;
}

/* ---- the list of globals --------------------------------------------------------------------- */

typedef enum global_role {
    ROLE_ORDERED_DICT,
    ROLE_TENSOR,    /* _rebuild_tensor, _v2, _v3 */
    ROLE_TENSOR_V3, /* its dtype is an argument */
    ROLE_PARAMETER,
    ROLE_SIZE,
    ROLE_DEVICE,
    ROLE_STORAGE,
    ROLE_UNTYPED,
    ROLE_DTYPE,
    ROLE_UNSUPPORTED /* a type of element that cannot be computed with */
} global_role;

typedef struct known_global {
    const char *module;
    const char *name;
    global_role role;
    ssm_dtype dtype;
} known_global;

static const known_global known[] = {
    {"collections", "OrderedDict", ROLE_ORDERED_DICT, 0},
    {"torch._utils", "_rebuild_tensor_v2", ROLE_TENSOR, 0},
    {"torch._utils", "_rebuild_tensor", ROLE_TENSOR, 0},
    {"torch._utils", "_rebuild_tensor_v3", ROLE_TENSOR_V3, 0},
    {"torch._utils", "_rebuild_parameter", ROLE_PARAMETER, 0},
    {"torch", "Size", ROLE_SIZE, 0},
    {"torch", "device", ROLE_DEVICE, 0},
    {"torch", "FloatStorage", ROLE_STORAGE, SSM_DTYPE_F32},
    {"torch", "HalfStorage", ROLE_STORAGE, SSM_DTYPE_F16},
    {"torch", "BFloat16Storage", ROLE_STORAGE, SSM_DTYPE_BF16},
    {"torch", "DoubleStorage", ROLE_STORAGE, SSM_DTYPE_F64},
    {"torch", "LongStorage", ROLE_STORAGE, SSM_DTYPE_I64},
    {"torch", "IntStorage", ROLE_STORAGE, SSM_DTYPE_I32},
    {"torch", "ShortStorage", ROLE_STORAGE, SSM_DTYPE_I16},
    {"torch", "CharStorage", ROLE_STORAGE, SSM_DTYPE_I8},
    {"torch", "ByteStorage", ROLE_STORAGE, SSM_DTYPE_U8},
    {"torch", "BoolStorage", ROLE_STORAGE, SSM_DTYPE_BOOL},
    {"torch", "UntypedStorage", ROLE_UNTYPED, SSM_DTYPE_U8},
    {"torch.storage", "UntypedStorage", ROLE_UNTYPED, SSM_DTYPE_U8},
    {"torch", "float32", ROLE_DTYPE, SSM_DTYPE_F32},
    {"torch", "float16", ROLE_DTYPE, SSM_DTYPE_F16},
    {"torch", "bfloat16", ROLE_DTYPE, SSM_DTYPE_BF16},
    {"torch", "float64", ROLE_DTYPE, SSM_DTYPE_F64},
    {"torch", "int64", ROLE_DTYPE, SSM_DTYPE_I64},
    {"torch", "int32", ROLE_DTYPE, SSM_DTYPE_I32},
    {"torch", "int16", ROLE_DTYPE, SSM_DTYPE_I16},
    {"torch", "int8", ROLE_DTYPE, SSM_DTYPE_I8},
    {"torch", "uint64", ROLE_DTYPE, SSM_DTYPE_U64},
    {"torch", "uint32", ROLE_DTYPE, SSM_DTYPE_U32},
    {"torch", "uint16", ROLE_DTYPE, SSM_DTYPE_U16},
    {"torch", "uint8", ROLE_DTYPE, SSM_DTYPE_U8},
    {"torch", "bool", ROLE_DTYPE, SSM_DTYPE_BOOL},
    {"torch", "ComplexFloatStorage", ROLE_UNSUPPORTED, 0},
    {"torch", "ComplexDoubleStorage", ROLE_UNSUPPORTED, 0},
    {"torch", "QInt8Storage", ROLE_UNSUPPORTED, 0},
    {"torch", "QUInt8Storage", ROLE_UNSUPPORTED, 0},
    {"torch", "QInt32Storage", ROLE_UNSUPPORTED, 0},
    {"torch", "float8_e4m3fn", ROLE_UNSUPPORTED, 0},
    {"torch", "float8_e5m2", ROLE_UNSUPPORTED, 0},
    {"torch", "complex64", ROLE_UNSUPPORTED, 0},
};
enum { N_KNOWN = sizeof known / sizeof known[0] };

/* A name from the file, safe to show: at most 100 bytes, what does not print as '?'. */
static const char *shown(const ssm__pickle_value *text, char out[104])
{
    size_t bytes = text->as.text.bytes < 100 ? text->as.text.bytes : 100;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text->as.text.data[i];
        out[i] = (char)(c < 0x20 || c >= 0x7f ? '?' : c);
    }
    out[bytes] = '\0';
    return out;
}

ssm_status ssm__pickle_find_global(const ssm__pickle_site *site, const ssm__pickle_value *module,
                                   const ssm__pickle_value *name, ssm__pickle_value **out,
                                   ssm_error *err)
{
    char module_shown[104];
    char name_shown[104];
    for (int i = 0; i < N_KNOWN; i++) {
        if (!ssm__pickle_is_text(module, known[i].module) ||
            !ssm__pickle_is_text(name, known[i].name)) {
            continue;
        }
        if (known[i].role == ROLE_UNSUPPORTED) {
            return ssm__pickle_refuse(site, err,
                                      "tensors of torch.%s are not supported; save the model in "
                                      "float32, float16 or bfloat16",
                                      known[i].name);
        }
        SSM__TRY(ssm__pickle_make(site, SSM__PICKLE_GLOBAL, out, err));
        (*out)->as.integer = i;
        return SSM_STATUS_OK;
    }
    return ssm__pickle_refuse(
        site, err,
        "this file wants to use %s.%s, which no state dict needs; refused, no code of a file is "
        "ever run. Save the bare state dict: torch.save(model.state_dict(), …)",
        shown(module, module_shown), shown(name, name_shown));
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Whole numbers of 0 or more from a tuple or list. */
static ssm_status read_extents(const ssm__pickle_site *site, const ssm__pickle_value *value,
                               const char *what, int64_t out[SSM_MAX_DIMS], int *n, ssm_error *err)
{
    if (value->kind != SSM__PICKLE_TUPLE && value->kind != SSM__PICKLE_LIST) {
        return ssm__pickle_refuse(site, err, "the %s of a tensor is %s, expected a tuple", what,
                                  ssm__pickle_kind_name(value->kind));
    }
    if (value->as.list.count > SSM_MAX_DIMS) {
        return ssm__pickle_refuse(site, err,
                                  "the %s of a tensor has %zu dimensions; at most %d are "
                                  "supported",
                                  what, value->as.list.count, SSM_MAX_DIMS);
    }
    for (size_t i = 0; i < value->as.list.count; i++) {
        const ssm__pickle_value *item = value->as.list.items[i];
        if (item->kind != SSM__PICKLE_INT || item->as.integer < 0) {
            return ssm__pickle_refuse(
                site, err, "dimension %zu of the %s of a tensor is not a whole number of 0 or more",
                i, what);
        }
        out[i] = item->as.integer;
    }
    *n = (int)value->as.list.count;
    return SSM_STATUS_OK;
}

/* _rebuild_tensor(storage, offset, size, stride), _v2(…, requires_grad, backward_hooks, metadata),
 * _v3(…, requires_grad, backward_hooks, dtype, metadata). */
static ssm_status call_tensor(const ssm__pickle_site *site, const known_global *callable,
                              const ssm__pickle_value *arguments, ssm__pickle_value **out,
                              ssm_error *err)
{
    ssm__pickle_value **argument = arguments->as.list.items;
    bool v3 = callable->role == ROLE_TENSOR_V3;
    if (arguments->as.list.count < (v3 ? 7 : 4)) {
        return ssm__pickle_refuse(site, err,
                                  "%s with %zu arguments; expected storage, offset, size "
                                  "and stride",
                                  callable->name, arguments->as.list.count);
    }
    if (argument[0]->kind != SSM__PICKLE_STORAGE) {
        return ssm__pickle_refuse(site, err, "a tensor stands on %s instead of a storage",
                                  ssm__pickle_kind_name(argument[0]->kind));
    }
    ssm__pickle_tensor *tensor = ssm__bump_take(site->memory, sizeof *tensor);
    if (tensor == NULL) {
        return ssm__pickle_no_memory(site, err);
    }
    tensor->storage = argument[0]->as.storage;
    tensor->dtype = tensor->storage->dtype;
    tensor->place = (int64_t)site->at;
    if (argument[1]->kind != SSM__PICKLE_INT || argument[1]->as.integer < 0) {
        return ssm__pickle_refuse(site, err,
                                  "the storage offset of a tensor is not a whole number of 0 or "
                                  "more");
    }
    tensor->offset = argument[1]->as.integer;
    int n_strides = 0;
    SSM__TRY(read_extents(site, argument[2], "size", tensor->dims, &tensor->n_dims, err));
    SSM__TRY(read_extents(site, argument[3], "stride", tensor->strides, &n_strides, err));
    if (n_strides != tensor->n_dims) {
        return ssm__pickle_refuse(site, err, "a tensor has %d dimensions and %d strides",
                                  tensor->n_dims, n_strides);
    }
    if (v3) {
        const ssm__pickle_value *type = argument[6];
        if (type->kind != SSM__PICKLE_GLOBAL || known[type->as.integer].role != ROLE_DTYPE) {
            return ssm__pickle_refuse(site, err, "_rebuild_tensor_v3 without a dtype");
        }
        tensor->dtype = known[type->as.integer].dtype;
    }
    if (!v3 && tensor->storage->untyped) {
        return ssm__pickle_refuse(site, err, "%s on an untyped storage: of which type is it?",
                                  callable->name);
    }
    SSM__TRY(ssm__pickle_make(site, SSM__PICKLE_TENSOR, out, err));
    (*out)->as.tensor = tensor;
    return SSM_STATUS_OK;
}

/* OrderedDict() or, from Python 2, OrderedDict([[key, value], …]). */
static ssm_status call_ordered_dict(const ssm__pickle_site *site,
                                    const ssm__pickle_value *arguments, ssm__pickle_value **out,
                                    ssm_error *err)
{
    SSM__TRY(ssm__pickle_make(site, SSM__PICKLE_DICT, out, err));
    if (arguments->as.list.count == 0) {
        return SSM_STATUS_OK;
    }
    const ssm__pickle_value *pairs = arguments->as.list.items[0];
    if (arguments->as.list.count > 1 ||
        (pairs->kind != SSM__PICKLE_LIST && pairs->kind != SSM__PICKLE_TUPLE)) {
        return ssm__pickle_refuse(site, err,
                                  "OrderedDict is made from %s; expected nothing or a "
                                  "list of pairs",
                                  ssm__pickle_kind_name(pairs->kind));
    }
    for (size_t i = 0; i < pairs->as.list.count; i++) {
        const ssm__pickle_value *pair = pairs->as.list.items[i];
        if ((pair->kind != SSM__PICKLE_LIST && pair->kind != SSM__PICKLE_TUPLE) ||
            pair->as.list.count != 2) {
            return ssm__pickle_refuse(site, err, "item %zu of an OrderedDict is not a pair", i);
        }
        SSM__TRY(ssm__pickle_add(site, *out, pair->as.list.items[0], err));
        SSM__TRY(ssm__pickle_add(site, *out, pair->as.list.items[1], err));
    }
    return SSM_STATUS_OK;
}

/* The first argument, which must be of this kind. */
static ssm_status call_first(const ssm__pickle_site *site, const known_global *callable,
                             const ssm__pickle_value *arguments, ssm__pickle_kind kind,
                             ssm__pickle_value **out, ssm_error *err)
{
    if (arguments->as.list.count == 0 || arguments->as.list.items[0]->kind != kind) {
        return ssm__pickle_refuse(site, err, "%s.%s is called without %s", callable->module,
                                  callable->name, ssm__pickle_kind_name(kind));
    }
    *out = arguments->as.list.items[0];
    return SSM_STATUS_OK;
}

ssm_status ssm__pickle_call(const ssm__pickle_site *site, const ssm__pickle_value *callable,
                            const ssm__pickle_value *arguments, ssm__pickle_value **out,
                            ssm_error *err)
{
    if (callable->kind != SSM__PICKLE_GLOBAL || arguments->kind != SSM__PICKLE_TUPLE) {
        return ssm__pickle_refuse(site, err, "%s is called with %s; expected a global and a tuple",
                                  ssm__pickle_kind_name(callable->kind),
                                  ssm__pickle_kind_name(arguments->kind));
    }
    const known_global *global = &known[callable->as.integer];
    switch (global->role) {
    case ROLE_ORDERED_DICT:
        return call_ordered_dict(site, arguments, out, err);
    case ROLE_TENSOR:
    case ROLE_TENSOR_V3:
        return call_tensor(site, global, arguments, out, err);
    case ROLE_PARAMETER:
        return call_first(site, global, arguments, SSM__PICKLE_TENSOR, out, err);
    case ROLE_SIZE:
        return call_first(site, global, arguments, SSM__PICKLE_TUPLE, out, err);
    case ROLE_DEVICE:
        return ssm__pickle_make(site, SSM__PICKLE_OPAQUE, out, err);
    case ROLE_STORAGE:
    case ROLE_UNTYPED:
    case ROLE_DTYPE:
    case ROLE_UNSUPPORTED:
        break;
    }
    return ssm__pickle_refuse(site, err, "torch.%s is called; torch.save never does that",
                              global->name);
}

/* ---- storages -------------------------------------------------------------------------------- */

/* The sixth element of the older form: None or (key, offset, count) of a part. */
static ssm_status read_view(const ssm__pickle_site *site, const ssm__pickle_value *view,
                            ssm__pickle_storage *storage, ssm_error *err)
{
    if (view->kind == SSM__PICKLE_NONE) {
        return SSM_STATUS_OK;
    }
    bool whole = view->kind == SSM__PICKLE_TUPLE && view->as.list.count == 3 &&
                 view->as.list.items[1]->kind == SSM__PICKLE_INT &&
                 view->as.list.items[2]->kind == SSM__PICKLE_INT;
    if (!whole) {
        return ssm__pickle_refuse(site, err,
                                  "the view of a storage is %s; expected (key, offset, count)",
                                  ssm__pickle_kind_name(view->kind));
    }
    storage->view_offset = view->as.list.items[1]->as.integer;
    storage->view_count = view->as.list.items[2]->as.integer;
    if (storage->view_offset < 0 || storage->view_count < 0 ||
        storage->view_offset > storage->count ||
        storage->view_count > storage->count - storage->view_offset) {
        return ssm__pickle_refuse(site, err,
                                  "a view of %" PRId64 " elements from element %" PRId64
                                  " of a storage of %" PRId64,
                                  storage->view_count, storage->view_offset, storage->count);
    }
    return SSM_STATUS_OK;
}

static ssm_status fill_storage(const ssm__pickle_site *site, const ssm__pickle_value *id,
                               ssm__pickle_storage *storage, ssm_error *err)
{
    ssm__pickle_value **item = id->as.list.items;
    global_role role =
        item[1]->kind == SSM__PICKLE_GLOBAL ? known[item[1]->as.integer].role : ROLE_UNSUPPORTED;
    if (role != ROLE_STORAGE && role != ROLE_UNTYPED) {
        return ssm__pickle_refuse(site, err,
                                  "the type of a storage is %s; expected a class such as "
                                  "torch.FloatStorage",
                                  ssm__pickle_kind_name(item[1]->kind));
    }
    if (item[2]->kind != SSM__PICKLE_TEXT || item[2]->as.text.bytes == 0) {
        return ssm__pickle_refuse(site, err, "the key of a storage is %s; expected its name",
                                  ssm__pickle_kind_name(item[2]->kind));
    }
    if (item[4]->kind != SSM__PICKLE_INT || item[4]->as.integer < 0) {
        return ssm__pickle_refuse(site, err,
                                  "the size of a storage is not a whole number of 0 or more");
    }
    *storage = (ssm__pickle_storage){.key = item[2]->as.text.data,
                                     .key_bytes = item[2]->as.text.bytes,
                                     .dtype = known[item[1]->as.integer].dtype,
                                     .untyped = role == ROLE_UNTYPED,
                                     .count = item[4]->as.integer,
                                     .view_count = item[4]->as.integer,
                                     .place = (int64_t)site->at,
                                     .root = storage,
                                     .file_offset = -1};
    if (__builtin_mul_overflow((size_t)storage->count, ssm_dtype_size(storage->dtype),
                               &storage->bytes) ||
        storage->bytes > INT64_MAX) {
        return ssm__pickle_refuse(
            site, err, "a storage of %" PRId64 " elements has more bytes than 63 bits can count",
            storage->count);
    }
    return id->as.list.count > 5 ? read_view(site, item[5], storage, err) : SSM_STATUS_OK;
}

ssm_status ssm__pickle_persistent(const ssm__pickle_site *site, const ssm__pickle_value *id,
                                  ssm__pickle_value **out, ssm_error *err)
{
    if (id->kind != SSM__PICKLE_TUPLE || id->as.list.count == 0 ||
        !ssm__pickle_is_text(id->as.list.items[0], "storage")) {
        return ssm__pickle_refuse(site, err,
                                  "a persistent id is %s of something else than a storage; torch "
                                  "writes (\"storage\", type, key, device, count)",
                                  ssm__pickle_kind_name(id->kind));
    }
    if (id->as.list.count < 5 || id->as.list.count > 6) {
        return ssm__pickle_refuse(site, err,
                                  "the persistent id of a storage has %zu parts; torch "
                                  "writes 5 or 6",
                                  id->as.list.count);
    }
    ssm__pickle_storage *storage = ssm__bump_take(site->memory, sizeof *storage);
    if (storage == NULL) {
        return ssm__pickle_no_memory(site, err);
    }
    SSM__TRY(fill_storage(site, id, storage, err));
    SSM__TRY(ssm__pickle_make(site, SSM__PICKLE_STORAGE, out, err));
    (*out)->as.storage = storage;
    return SSM_STATUS_OK;
}

/* By key, then by place in the pickle. */
static int compare_storages(const void *left, const void *right)
{
    const ssm__pickle_storage *a = *(ssm__pickle_storage *const *)left;
    const ssm__pickle_storage *b = *(ssm__pickle_storage *const *)right;
    size_t common = a->key_bytes < b->key_bytes ? a->key_bytes : b->key_bytes;
    int order = memcmp(a->key, b->key, common);
    if (order != 0) {
        return order;
    }
    if (a->key_bytes != b->key_bytes) {
        return a->key_bytes < b->key_bytes ? -1 : 1;
    }
    return (a->place > b->place) - (a->place < b->place);
}

ssm_status ssm__pickle_roots(const ssm__pickle_input *input, ssm__bump *memory,
                             const ssm__pickle *pickle, ssm__pickle_storage ***roots, size_t *count,
                             ssm_error *err)
{
    ssm__pickle_storage **sorted =
        ssm__bump_take(memory, (pickle->storage_count + 1) * sizeof(ssm__pickle_storage *));
    *roots = sorted;
    *count = 0;
    if (sorted == NULL) {
        const ssm__pickle_site site = {input, memory, 0};
        return ssm__pickle_no_memory(&site, err);
    }
    if (pickle->storage_count > 0) {
        memcpy(sorted, pickle->storages, pickle->storage_count * sizeof *sorted);
        qsort(sorted, pickle->storage_count, sizeof *sorted, compare_storages);
    }
    for (size_t i = 0; i < pickle->storage_count; i++) {
        ssm__pickle_storage *storage = sorted[i];
        ssm__pickle_storage *root = *count > 0 ? sorted[*count - 1] : NULL;
        if (root == NULL || root->key_bytes != storage->key_bytes ||
            memcmp(root->key, storage->key, root->key_bytes) != 0) {
            sorted[(*count)++] = storage;
            continue;
        }
        if (root->dtype != storage->dtype || root->count != storage->count ||
            root->untyped != storage->untyped) {
            const ssm__pickle_site site = {input, memory, (size_t)storage->place};
            return ssm__pickle_refuse(&site, err,
                                      "storage \"%.*s\" is %" PRId64 " × %s here and %" PRId64
                                      " × %s at byte %" PRId64,
                                      (int)(root->key_bytes < 40 ? root->key_bytes : 40), root->key,
                                      storage->count, ssm_dtype_name(storage->dtype), root->count,
                                      ssm_dtype_name(root->dtype), root->place);
        }
        storage->root = root;
    }
    return SSM_STATUS_OK;
}
