/* train/mimetic_edit.h: mimetic initialisation of tensors that are written block by block. Memory
 * holds the rows that change in one layer. */
#ifndef SSM_TRAIN_MIMETIC_EDIT_H
#define SSM_TRAIN_MIMETIC_EDIT_H

#include "checkpoint/slots.h"
#include "train/mimetic.h"

typedef struct ssm__mimetic_edit ssm__mimetic_edit;

/* Gives elements first … first + count − 1 of a layer's tensor as they are without the edit, or
 * false when the layer has no such tensor. */
typedef bool ssm__mimetic_read(void *source, ssm__slot_place place, int64_t first, int64_t count,
                               float *out);

typedef struct ssm__mimetic_job {
    const ssm_mimetic *mimetic;
    const ssm_config *config;
    const ssm_layer_kind *kinds; /* [n_layers]; NULL: all of the family's */
    uint64_t seed;
    ssm__mimetic_read *read;
    void *source;
} ssm__mimetic_job;

/* Checks (ssm__mimetic_check) and takes the memory. Everything is borrowed. Errors: USAGE, MEMORY.
 */
ssm_status ssm__mimetic_edit_create(const ssm__mimetic_job *job, ssm__mimetic_edit **out,
                                    ssm_error *err);
void ssm__mimetic_edit_free(ssm__mimetic_edit *edit);
/* True when some element of the tensor changes. */
bool ssm__mimetic_edit_concerns(const ssm__mimetic_edit *edit, ssm__slot_place place);
/* Overwrites what changes among the elements first … first + count − 1. Fast when layers come one
 * after the other. Errors: MEMORY. */
ssm_status ssm__mimetic_edit_block(ssm__mimetic_edit *edit, ssm__slot_place place, int64_t first,
                                   int64_t count, float *block, ssm_error *err);

#endif
