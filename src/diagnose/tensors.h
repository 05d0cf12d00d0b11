/* diagnose/tensors.h: the slots of a checkpoint one after the other, whatever its family: those of
 * every kind of layer, of which a layer fills some. */
#ifndef SSM_DIAGNOSE_TENSORS_H
#define SSM_DIAGNOSE_TENSORS_H

#include "checkpoint/weights.h"

/* The fields of ssm__layer_weights, in their order. */
enum {
#define SSM__FIELD_ID(field, ...) SSM__FIELD_##field,
    SSM__LAYER_SLOT_LIST(SSM__FIELD_ID)
#undef SSM__FIELD_ID
        SSM__LAYER_FIELDS
};

/* Place 0 is the embedding, then come the layers, then norm_f, its bias and the head. */
typedef struct ssm__place_in_model {
    int64_t layer; /* −1 outside the layers */
    int field;     /* SSM__FIELD_… in a layer; else 0 */
} ssm__place_in_model;

int64_t ssm__place_count(int64_t n_layers);
ssm__place_in_model ssm__place_at(int64_t n_layers, int64_t i);
/* The tensor there, NULL where the checkpoint has none (a layer beyond its last one included). */
const ssm_tensor *ssm__place_tensor(const ssm_checkpoint *checkpoint, int64_t n_layers, int64_t i);
/* "backbone.layers.3.mixer.A_log" */
void ssm__place_name(int64_t n_layers, int64_t i, char *out, size_t size);

#endif
