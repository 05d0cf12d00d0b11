/* torch/internal.h: the inside of an open torch file. */
#ifndef SSM_TORCH_INTERNAL_H
#define SSM_TORCH_INTERNAL_H

#include "base/file.h"
#include "torch/pickle.h"
#include "torch/torch_file.h"
#include "torch/zip.h"

struct ssm__torch_file {
    char *path;
    ssm__map map;     /* empty when the bytes belong to someone else */
    ssm__zip *zip;    /* NULL: the older form */
    ssm__bump memory; /* of the pickle's objects, names and notes */
    ssm_tensor *tensors;
    ssm_tensor **by_name;
    int64_t count;
    char **notes;
    size_t note_count, note_room;
    void **owned; /* tensors that are no views */
    size_t owned_count, owned_room;
};

/* Finds the data of the roots that are marked as used. */
typedef ssm_status ssm__torch_resolve_fn(ssm__torch_file *file, ssm__pickle_storage **roots,
                                         size_t count, void *context, ssm_error *err);

/* The state dict of a pickle → file->tensors. */
ssm_status ssm__torch_collect(ssm__torch_file *file, const ssm__pickle_input *input,
                              const ssm__pickle *pickle, ssm__torch_resolve_fn *resolve,
                              void *context, ssm_error *err);
/* Row-major copies of the tensors whose strides are others. specs[i] describes file->tensors[i];
 * storage_bytes: of the storages in use. */
ssm_status ssm__torch_materialise(ssm__torch_file *file, ssm__pickle_tensor *const *specs,
                                  size_t storage_bytes, ssm_error *err);
/* True when the strides are those of a dense row-major tensor. */
bool ssm__torch_is_dense(const ssm__pickle_tensor *spec);

ssm_status ssm__torch_add_note(ssm__torch_file *file, ssm_error *err, const char *format, ...)
    SSM_PRINTF(3, 4);

ssm_status ssm__torch_read_archive(ssm__torch_file *file, const unsigned char *data, size_t size,
                                   ssm_error *err);
ssm_status ssm__torch_read_legacy(ssm__torch_file *file, const unsigned char *data, size_t size,
                                  ssm_error *err);

#endif
