/* Any bytes as a safetensors file: refused with a message, or every tensor readable to its last
 * element. The first byte chooses strict or lenient. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/tensor.h"
#include "safetensors/read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static void use(const ssm_safetensors *file, size_t size)
{
    size_t covered = 0;
    for (int64_t i = 0; i < ssm_safetensors_count(file); i++) {
        const ssm_tensor *tensor = ssm_safetensors_at(file, i);
        int64_t count = ssm_tensor_count(tensor);
        require((size_t)count * ssm_dtype_size(tensor->dtype) == tensor->bytes || count == 0);
        require(ssm_safetensors_find(file, tensor->name) == tensor);
        covered += tensor->bytes;
        if (tensor->bytes > 0) {
            volatile double last = ssm_tensor_get(tensor, count - 1);
            (void)last;
            require(ssm__tensor_first_nonfinite(tensor) < count);
        }
    }
    require(covered <= size);
    (void)ssm_safetensors_metadata(file, "format");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    ssm_safetensors *file = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    ssm_status status =
        ssm__safetensors_parse("fuzz", data + 1, size - 1, (data[0] & 1) != 0, &file, &err);
    if (status == SSM_STATUS_OK) {
        use(file, size);
        ssm_safetensors_close(file);
    } else {
        require(file == NULL && err.status == status && err.message[0] != '\0');
    }
    return 0;
}
