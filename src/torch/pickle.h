/* torch/pickle.h: a pickle read as data.
 *
 * A pickle is a program for a stack machine, and most of its power is to call whatever it names.
 * This machine calls nothing: it knows the opcodes that build numbers, strings, tuples, lists and
 * dicts, and the few globals that torch.save writes for a state dict, whose calls it replaces by
 * descriptions. Any other opcode or global ends the reading with an error that names it.
 * Source: the opcode comments of Python's pickletools.
 *
 * Values refer to one another freely (also in circles), so reading is linear in the pickle's length
 * whatever it says; who walks them must not follow references without a bound. */
#ifndef SSM_TORCH_PICKLE_H
#define SSM_TORCH_PICKLE_H

#include <ssmscope/checkpoint.h>

#include "torch/bump.h"

typedef enum ssm__pickle_kind {
    SSM__PICKLE_NONE,
    SSM__PICKLE_BOOL,
    SSM__PICKLE_INT,
    SSM__PICKLE_BIG_INT, /* does not fit 64 bits: its bytes, little-endian */
    SSM__PICKLE_FLOAT,
    SSM__PICKLE_TEXT,
    SSM__PICKLE_BYTES,
    SSM__PICKLE_TUPLE,
    SSM__PICKLE_LIST,
    SSM__PICKLE_DICT, /* also collections.OrderedDict */
    SSM__PICKLE_SET,
    SSM__PICKLE_GLOBAL,
    SSM__PICKLE_STORAGE,
    SSM__PICKLE_TENSOR,
    SSM__PICKLE_OPAQUE, /* a harmless object of which nothing is kept: torch.device */
    SSM__PICKLE_KINDS
} ssm__pickle_kind;

/* What a persistent id says of a storage, and what the container finds for it. */
typedef struct ssm__pickle_storage {
    const char *key;
    size_t key_bytes;
    ssm_dtype dtype;
    bool untyped;                     /* counted in bytes; dtype is U8 */
    int64_t count;                    /* elements of the whole storage */
    int64_t view_offset, view_count;  /* the part that is seen; whole: 0, count */
    int64_t place;                    /* byte of the pickle, for messages */
    struct ssm__pickle_storage *root; /* the first of this key, perhaps itself */
    /* of the root only: */
    bool used;
    const unsigned char *data;
    size_t bytes;
    int64_t file_offset; /* −1: not in the mapping */
} ssm__pickle_storage;

typedef struct ssm__pickle_tensor {
    ssm__pickle_storage *storage;
    ssm_dtype dtype;
    int64_t offset; /* elements */
    int n_dims;
    int64_t dims[SSM_MAX_DIMS];
    int64_t strides[SSM_MAX_DIMS]; /* elements; 0 or more */
    int64_t place;
} ssm__pickle_tensor;

typedef struct ssm__pickle_value ssm__pickle_value;
struct ssm__pickle_value {
    ssm__pickle_kind kind;
    union {
        int64_t integer; /* INT, BOOL; GLOBAL: row of the table in globals.c */
        double number;
        struct {
            const char *data; /* in the pickle: no NUL at its end */
            size_t bytes;
        } text; /* TEXT, BYTES, BIG_INT */
        struct {
            ssm__pickle_value **items; /* DICT: key, value, key, value … */
            size_t count, room;
        } list; /* TUPLE, LIST, DICT, SET */
        ssm__pickle_storage *storage;
        ssm__pickle_tensor *tensor;
    } as;
};

typedef struct ssm__pickle_input {
    const char *path; /* of the file, for messages */
    const char *what; /* "data.pkl" */
    const unsigned char *data;
    size_t size;
    int64_t base; /* offset of data in the file; −1: not in it */
} ssm__pickle_input;

typedef struct ssm__pickle {
    ssm__pickle_value *value;
    size_t used; /* bytes up to and with STOP */
    ssm__pickle_storage **storages;
    size_t storage_count, storage_room;
} ssm__pickle;

enum { SSM__PICKLE_MEMORY = 256 << 20 }; /* a sensible limit of the bump */

/* Reads one pickle from the beginning of the input. Everything lives in memory and, the texts, in
 * the input. Errors: FILE (opcode or global by name, with its byte), MEMORY. */
ssm_status ssm__pickle_read(const ssm__pickle_input *input, ssm__bump *memory, ssm__pickle *out,
                            ssm_error *err);
/* The value under a text key, the last one as in Python; NULL: none, or not a dict. */
const ssm__pickle_value *ssm__pickle_get(const ssm__pickle_value *dict, const char *key);
bool ssm__pickle_is_text(const ssm__pickle_value *value, const char *text);
/* "a list", "a whole number", … */
const char *ssm__pickle_kind_name(ssm__pickle_kind kind);

/* Links each storage to the first one of its key and sorts the roots by key into *roots (in
 * memory, *count of them). Errors: FILE when two descriptions of a key differ; MEMORY. */
ssm_status ssm__pickle_roots(const ssm__pickle_input *input, ssm__bump *memory,
                             const ssm__pickle *pickle, ssm__pickle_storage ***roots, size_t *count,
                             ssm_error *err);

#endif
