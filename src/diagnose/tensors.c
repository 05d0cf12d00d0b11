#include "diagnose/tensors.h"

#include <inttypes.h>
#include <stdio.h>

static const struct {
    const char *name;
    size_t offset;
} layer_fields[SSM__LAYER_FIELDS] = {
#define FIELD(field, text, ...) {text, offsetof(ssm__layer_weights, field)},
    SSM__LAYER_SLOT_LIST(FIELD)
#undef FIELD
};

static const struct {
    const char *name;
    size_t offset;
} last_fields[] = {{"backbone.norm_f.weight", offsetof(ssm__weights, norm_f)},
                   {"backbone.norm_f.bias", offsetof(ssm__weights, norm_f_bias)},
                   {"lm_head.weight", offsetof(ssm__weights, lm_head)}};

enum { LAST_FIELDS = sizeof last_fields / sizeof last_fields[0] };

int64_t ssm__place_count(int64_t n_layers)
{
    return 1 + n_layers * SSM__LAYER_FIELDS + LAST_FIELDS;
}

ssm__place_in_model ssm__place_at(int64_t n_layers, int64_t i)
{
    if (i == 0 || i > n_layers * SSM__LAYER_FIELDS) {
        return (ssm__place_in_model){-1, 0};
    }
    return (ssm__place_in_model){(i - 1) / SSM__LAYER_FIELDS, (int)((i - 1) % SSM__LAYER_FIELDS)};
}

const ssm_tensor *ssm__place_tensor(const ssm_checkpoint *checkpoint, int64_t n_layers, int64_t i)
{
    const ssm__weights *weights = ssm__checkpoint_weights(checkpoint);
    const ssm__place_in_model place = ssm__place_at(n_layers, i);
    const char *base = (const char *)weights;
    size_t offset = offsetof(ssm__weights, embedding);
    if (place.layer >= 0) {
        if (place.layer >= ssm_checkpoint_config(checkpoint)->n_layers) {
            return NULL;
        }
        base = (const char *)&weights->layers[place.layer];
        offset = layer_fields[place.field].offset;
    } else if (i > 0) {
        offset = last_fields[i - 1 - n_layers * SSM__LAYER_FIELDS].offset;
    }
    const ssm_tensor *tensor = (const void *)(base + offset);
    return tensor->data == NULL ? NULL : tensor;
}

void ssm__place_name(int64_t n_layers, int64_t i, char *out, size_t size)
{
    const ssm__place_in_model place = ssm__place_at(n_layers, i);
    if (place.layer >= 0) {
        snprintf(out, size, "backbone.layers.%" PRId64 ".%s", place.layer,
                 layer_fields[place.field].name);
    } else {
        snprintf(out, size, "%s",
                 i == 0 ? "backbone.embeddings.weight"
                        : last_fields[i - 1 - n_layers * SSM__LAYER_FIELDS].name);
    }
}
