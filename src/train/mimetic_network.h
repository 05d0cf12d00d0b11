/* train/mimetic_network.h: mimetic initialisation of a network in training, mixer by mixer. */
#ifndef SSM_TRAIN_MIMETIC_NETWORK_H
#define SSM_TRAIN_MIMETIC_NETWORK_H

#include <ssmscope/mimetic.h>

#include "train/network.h"

/* Applies the switches to the layers that have something for them; everything else keeps its bits.
 * Mamba-1 and Mamba-2 have something for all four, without BC in time-invariant mode; gated linear
 * attention for A (its gates), BC and conv; linear attention for BC and conv; attention and H3 for
 * none. seed is used by ORTHOGONAL only. Errors: USAGE (as ssm__mimetic_check; a layer of the list
 * that has nothing for the switches, or that shares its weights with one not in the list; no layer
 * that has; a list of heads and a layer of Mamba-1), MEMORY. */
ssm_status ssm__mimetic_network(ssm__network *network, const ssm_mimetic *mimetic, uint64_t seed,
                                ssm_error *err);

#endif
