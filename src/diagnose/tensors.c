#include "diagnose/tensors.h"

const ssm_tensor *ssm__place_tensor(const ssm_checkpoint *checkpoint, int64_t n_layers, int64_t i)
{
    const ssm__slot_place place = ssm__slot_at(n_layers, i);
    if (place.layer >= ssm_checkpoint_config(checkpoint)->n_layers) {
        return NULL;
    }
    const ssm_tensor *tensor = ssm__slot_tensor_const(ssm__checkpoint_weights(checkpoint), place);
    return tensor->data == NULL ? NULL : tensor;
}

void ssm__place_name(int64_t n_layers, int64_t i, char out[SSM__SLOT_NAME_MAX])
{
    ssm__slot_name(ssm__slot_at(n_layers, i), out);
}
