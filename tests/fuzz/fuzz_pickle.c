/* Any bytes as a pickle: refused with a message, or a value whose parts can be walked, in memory
 * that grows with the input only. The unpickler alone has no sums to hide behind. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "torch/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VISITS = 10000 };

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static void look(const ssm__pickle_value *value, const uint8_t *data, size_t size, int *visits)
{
    if (--*visits < 0) {
        return;
    }
    require(value != NULL && ssm__pickle_kind_name(value->kind)[0] != '?');
    switch (value->kind) {
    case SSM__PICKLE_TEXT:
    case SSM__PICKLE_BYTES:
    case SSM__PICKLE_BIG_INT: {
        const uint8_t *text = (const uint8_t *)value->as.text.data;
        require(text >= data && value->as.text.bytes <= size - (size_t)(text - data));
        break;
    }
    case SSM__PICKLE_TENSOR: {
        const ssm__pickle_tensor *tensor = value->as.tensor;
        require(tensor->n_dims >= 0 && tensor->n_dims <= SSM_MAX_DIMS && tensor->offset >= 0);
        require(tensor->storage != NULL && tensor->storage->root != NULL);
        for (int i = 0; i < tensor->n_dims; i++) {
            require(tensor->dims[i] >= 0 && tensor->strides[i] >= 0);
        }
        break;
    }
    case SSM__PICKLE_STORAGE:
        require(value->as.storage->view_offset + value->as.storage->view_count <=
                value->as.storage->count);
        break;
    case SSM__PICKLE_DICT:
        require(value->as.list.count % 2 == 0);
        break;
    default:
        break;
    }
}

/* The value and what it holds directly: values refer in circles, so no deeper. */
static void walk(const ssm__pickle_value *value, const uint8_t *data, size_t size)
{
    int visits = VISITS;
    look(value, data, size, &visits);
    bool holds = value->kind == SSM__PICKLE_TUPLE || value->kind == SSM__PICKLE_LIST ||
                 value->kind == SSM__PICKLE_DICT || value->kind == SSM__PICKLE_SET;
    for (size_t i = 0; holds && i < value->as.list.count; i++) {
        look(value->as.list.items[i], data, size, &visits);
    }
    (void)ssm__pickle_get(value, "model");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const ssm__pickle_input input = {"fuzz", "a pickle", data, size, 0};
    /* A pickle of n bytes makes at most n values, each a few words, on a stack and in lists that
     * may have twice the room and leave their smaller predecessors behind. */
    ssm__bump memory = {.limit = 4096 + 1024 * size};
    ssm__pickle pickle;
    ssm__pickle_storage **roots = NULL;
    size_t count = 0;
    ssm_error err;
    ssm_error_clear(&err);
    ssm_status status = ssm__pickle_read(&input, &memory, &pickle, &err);
    require(!memory.over_limit);
    if (status == SSM_STATUS_OK) {
        require(pickle.used <= size);
        walk(pickle.value, data, size);
        status = ssm__pickle_roots(&input, &memory, &pickle, &roots, &count, &err);
        require(status == SSM_STATUS_FILE || count <= pickle.storage_count);
    }
    if (status != SSM_STATUS_OK) {
        require(status == SSM_STATUS_FILE && err.status == status && err.message[0] != '\0');
    }
    ssm__bump_free(&memory);
    return 0;
}
