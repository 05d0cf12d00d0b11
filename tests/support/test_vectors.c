/* test_vectors.c: what the original CUDA kernels gave. */
#include "test_vectors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/json.h"
#include "test_numbers.h"
#include "test_paths.h"

const json_t *vector_case(json_t **root, const char *operator_name, const char *case_name)
{
    char path[TEST_PATH_MAX];
    if (!test_shared_path(path, "data/vectors/b-vitamins-ssm/mamba_reference_cases.json")) {
        return NULL;
    }
    /* Cases that are not used here hold bare NaN. */
    assert_int_equal(ssm__json_read(path, 1 << 24, SSM__JSON_PYTHON, root, NULL), SSM_STATUS_OK);
    const json_t *found = json_object_get(json_object_get(*root, operator_name), case_name);
    assert_non_null(found);
    return found;
}

static void flatten(const json_t *value, double **next)
{
    if (!json_is_array(value)) {
        assert_true(json_is_number(value));
        *(*next)++ = json_number_value(value);
        return;
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        flatten(json_array_get(value, i), next);
    }
}

vector_array vector_read(const json_t *test_case, const char *group, const char *name)
{
    vector_array out = {.count = 1};
    const json_t *value = json_object_get(json_object_get(test_case, group), name);
    if (!value) {
        return (vector_array){0};
    }
    const json_t *shape = json_object_get(value, "shape");
    for (size_t i = 0; i < json_array_size(shape); i++) {
        assert_true(out.n_dims < 4);
        out.dims[out.n_dims++] = json_integer_value(json_array_get(shape, i));
        out.count *= out.dims[out.n_dims - 1];
    }
    out.data = test_doubles(out.count);
    double *next = out.data;
    flatten(json_object_get(value, "data"), &next);
    assert_true(next == out.data + out.count);
    return out;
}
