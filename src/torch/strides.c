/* Tensors whose elements do not lie one behind the other: transposed, expanded, cut out. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "torch/internal.h"

enum { EXPANDED_SMALL = 16 << 20, ALIGNMENT = 64 };

typedef struct candidate {
    const ssm__pickle_tensor *spec;
    ssm_tensor *tensor;
} candidate;

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Equal ones show the same elements: they share their copy. */
static int compare_candidates(const void *left, const void *right)
{
    const candidate *a = left;
    const candidate *b = right;
    int order = 0;
    if (a->tensor->data != b->tensor->data) {
        return (uintptr_t)a->tensor->data < (uintptr_t)b->tensor->data ? -1 : 1;
    }
    if (a->spec->dtype != b->spec->dtype) {
        return a->spec->dtype < b->spec->dtype ? -1 : 1;
    }
    order = compare_numbers(a->spec->n_dims, b->spec->n_dims);
    for (int i = 0; i < a->spec->n_dims && order == 0; i++) {
        order = compare_numbers(a->spec->dims[i], b->spec->dims[i]);
        order = order != 0 ? order : compare_numbers(a->spec->strides[i], b->spec->strides[i]);
    }
    return order;
}

static void copy_row(unsigned char *to, const unsigned char *from, int64_t count, int64_t stride,
                     size_t size)
{
    if (stride == 1) {
        memcpy(to, from, (size_t)count * size);
        return;
    }
    size_t step = (size_t)stride * size;
    for (int64_t i = 0; i < count; i++) {
        memcpy(to + (size_t)i * size, from + (size_t)i * step, size);
    }
}

/* Row by row of the last dimension; an odometer counts the others. */
static void copy_elements(const candidate *c, unsigned char *to)
{
    const ssm__pickle_tensor *spec = c->spec;
    const unsigned char *from = c->tensor->data;
    size_t size = ssm_dtype_size(spec->dtype);
    int last = spec->n_dims - 1;
    int64_t index[SSM_MAX_DIMS] = {0};
    int64_t at = 0; /* element */
    for (;;) {
        copy_row(to, from + (size_t)at * size, spec->dims[last], spec->strides[last], size);
        to += (size_t)spec->dims[last] * size;
        int i = last - 1;
        while (i >= 0 && ++index[i] == spec->dims[i]) {
            at -= (index[i] - 1) * spec->strides[i];
            index[i--] = 0;
        }
        if (i < 0) {
            return;
        }
        at += spec->strides[i];
    }
}

static ssm_status materialise(ssm__torch_file *file, const candidate *c, size_t *left,
                              ssm_error *err)
{
    if (c->tensor->bytes > *left) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(file->path, c->tensor->name),
                         "the tensor repeats the elements of its storage: written out, the strided "
                         "tensors of this file would take more than its storages and 16 MiB; save "
                         "it with .contiguous()");
    }
    *left -= c->tensor->bytes;
    size_t rounded = (c->tensor->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *copy = aligned_alloc(ALIGNMENT, rounded);
    if (copy == NULL || !ssm__bump_room(&file->memory, &file->owned, &file->owned_room,
                                        file->owned_count, sizeof(void *))) {
        free(copy);
        return ssm__fail_memory(err, "a tensor that is not stored densely", rounded);
    }
    file->owned[file->owned_count++] = copy;
    copy_elements(c, copy);
    c->tensor->data = copy;
    c->tensor->file_offset = -1;
    return SSM_STATUS_OK;
}

static ssm_status materialise_all(ssm__torch_file *file, candidate *list, size_t count, size_t left,
                                  ssm_error *err)
{
    qsort(list, count, sizeof *list, compare_candidates);
    size_t first = 0;
    while (first < count) {
        size_t end = first + 1;
        while (end < count && compare_candidates(&list[first], &list[end]) == 0) {
            end++;
        }
        SSM__TRY(materialise(file, &list[first], &left, err));
        for (size_t i = first + 1; i < end; i++) {
            list[i].tensor->data = list[first].tensor->data;
            list[i].tensor->file_offset = -1;
        }
        first = end;
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__torch_materialise(ssm__torch_file *file, ssm__pickle_tensor *const *specs,
                                  size_t storage_bytes, ssm_error *err)
{
    candidate *list = calloc((size_t)file->count + 1, sizeof *list);
    if (list == NULL) {
        return ssm__fail_memory(err, "a list of tensors", (size_t)file->count * sizeof *list);
    }
    size_t count = 0;
    for (int64_t i = 0; i < file->count; i++) {
        if (file->tensors[i].bytes > 0 && !ssm__torch_is_dense(specs[i])) {
            list[count++] = (candidate){specs[i], &file->tensors[i]};
        }
    }
    ssm_status status = materialise_all(file, list, count, storage_bytes + EXPANDED_SMALL, err);
    free(list);
    return status;
}
