/* model/prune.h: the parts of writing a smaller checkpoint. */
#ifndef SSM_MODEL_PRUNE_H
#define SSM_MODEL_PRUNE_H

#include <ssmscope/prune.h>

#include "checkpoint/weights.h"

/* A mask that a checkpoint can hold. */
typedef struct ssm__pruning {
    const ssm_config *config;
    const ssm__weights *weights;
    const ssm_mask *mask;
    const ssm_prune_options *options;
    int64_t groups; /* sets of rows B and C in a layer */
    int64_t r;      /* modes kept in each */
    int64_t *kept;  /* [n_layers][groups][r], rising; what stands for a layer of attention is 0 */
} ssm__pruning;

/* True when layer has a state. */
static inline bool ssm__pruning_cuts(const ssm__pruning *p, int64_t layer)
{
    return p->weights->layers[layer].kind != SSM_LAYER_ATTENTION;
}

/* prune_check.c: refuses what cannot be written, and sets groups, r and kept (for free(), also
 * after an error). Errors: as ssm_prune. */
ssm_status ssm__pruning_check(ssm__pruning *p, ssm_error *err);

#endif
