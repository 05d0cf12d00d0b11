/* test_vectors.h: what the original CUDA kernels gave (b-vitamins/ssm), in the folder of handed
 * data: operator → case → inputs, outputs, gradients → array. */
#ifndef TEST_VECTORS_H
#define TEST_VECTORS_H

#include <stdint.h>

#include <jansson.h>

/* One array of the file: {"data": nested lists, "shape": […]}. Owner of data: the caller, free.
 */
typedef struct vector_array {
    int64_t dims[4];
    int n_dims;
    int64_t count;
    double *data; /* NULL: no such array in this case */
} vector_array;

/* The case, or NULL where the data is absent: skip. Owner of *root: the caller. */
const json_t *vector_case(json_t **root, const char *operator_name, const char *case_name);
vector_array vector_read(const json_t *test_case, const char *group, const char *name);

#endif
