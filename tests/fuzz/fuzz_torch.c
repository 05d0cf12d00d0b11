/* Any bytes as a torch file, archive or older stream: refused with a message, or every tensor
 * readable to its last element. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/tensor.h"
#include "torch/torch_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static void use(const ssm__torch_file *file, const uint8_t *data, size_t size)
{
    for (int64_t i = 0; i < ssm__torch_count(file); i++) {
        const ssm_tensor *tensor = ssm__torch_at(file, i);
        int64_t count = tensor->bytes == 0 ? 0 : ssm_tensor_count(tensor);
        require((size_t)count * ssm_dtype_size(tensor->dtype) == tensor->bytes);
        require(ssm__torch_find(file, tensor->name) == tensor && tensor->data != NULL);
        if (tensor->bytes > 0) {
            volatile double last = ssm_tensor_get(tensor, count - 1);
            (void)last;
            require(ssm__tensor_first_nonfinite(tensor) < count);
        }
        if (tensor->file_offset >= 0) {
            require((const uint8_t *)tensor->data == data + tensor->file_offset);
            require((size_t)tensor->file_offset + tensor->bytes <= size);
        }
    }
    for (int64_t i = 0; i < ssm__torch_note_count(file); i++) {
        require(strlen(ssm__torch_note(file, i)) > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ssm__torch_file *file = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    ssm_status status = ssm__torch_parse("fuzz", data, size, &file, &err);
    if (status == SSM_STATUS_OK) {
        use(file, data, size);
        status = ssm__torch_check_crc(file, &err);
        require(status == SSM_STATUS_OK || status == SSM_STATUS_FILE);
        ssm__torch_close(file);
    } else {
        require(file == NULL && err.status == status && err.message[0] != '\0');
    }
    return 0;
}
