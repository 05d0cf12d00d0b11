/* diagnose/tensors.h: the slots of a checkpoint one after the other, whatever its family: those of
 * every kind of layer, of which a layer fills some. Place i is that of checkpoint/slots.h: the
 * embedding, the layers, norm_f, its bias, the head. */
#ifndef SSM_DIAGNOSE_TENSORS_H
#define SSM_DIAGNOSE_TENSORS_H

#include "checkpoint/slots.h"

/* The tensor at a place, NULL where the checkpoint has none (a layer beyond its last one
 * included). */
const ssm_tensor *ssm__place_tensor(const ssm_checkpoint *checkpoint, int64_t n_layers, int64_t i);
/* "backbone.layers.3.mixer.A_log" */
void ssm__place_name(int64_t n_layers, int64_t i, char out[SSM__SLOT_NAME_MAX]);

#endif
