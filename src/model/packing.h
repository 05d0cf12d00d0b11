/* model/packing.h: what a session carries under a mask: states of the kept modes only.
 *
 * A group of 16 channels whose mask drops modes has as many rows of state, decay rates and factors
 * as its fullest channel keeps; a group that cannot be packed, or whose fullest channel keeps all,
 * has a row a mode and factors of 0 and 1, as have all groups where the instrument looks on. */
#ifndef SSM_MODEL_PACKING_H
#define SSM_MODEL_PACKING_H

#include "model/model.h"

/* One group of 16 channels of a layer's scan. */
typedef struct ssm__packed_group {
    bool packed;
    ssm__kept_modes kept; /* packed only */
    int64_t row;          /* of the session's states, where this group's rows [16] begin */
    int64_t rows;
    float *A2;   /* packed Mamba-1: [slots][16] */
    float *keep; /* [slots or N][16] factors; NULL: all 1 */
} ssm__packed_group;

/* A mask as one session runs it. */
typedef struct ssm__packing {
    ssm__arena arena;
    ssm__packed_group *groups; /* of all layers, in the order of the states */
    int64_t rows;              /* of all groups */
    bool *masked;              /* [n_layers] */
    bool *packed;              /* [n_layers] a group of the layer is packed */
    float *skip;               /* groups of [16]: D times the mask's weight of the feed-through */
    char digest[64];           /* of what the states are of; "" where every mode has one */
} ssm__packing;

/* layer −1: all layers. full: nothing is packed. The mask must fit the model. Owner of *out: the
 * caller. Errors: MEMORY. */
ssm_status ssm__packing_create(const ssm_model *model, const ssm_mask *mask, int64_t layer,
                               bool full, ssm__packing **out, ssm_error *err);
void ssm__packing_free(ssm__packing *packing);

/* Rows of state of all groups; packing NULL: a row a mode. */
int64_t ssm__packing_rows(const ssm_model *model, const ssm__packing *packing);
/* The part of `states` that is group `group` of a layer. */
float *ssm__packing_state(const ssm_model *model, const ssm__packing *packing, float *states,
                          int64_t layer, int64_t group);
const ssm__packed_group *ssm__packing_group(const ssm_model *model, const ssm__packing *packing,
                                            int64_t layer, int64_t group);
/* [16] of one group. */
const float *ssm__packing_skip(const ssm_model *model, const ssm__packing *packing, int64_t layer,
                               int64_t group);
/* Factor of a mode in the output of lane `lane` (16·group + lane, ssm__lane_of) of a layer, as the
 * kernels are given it: 0 for what has no slot. */
float ssm__packing_factor(const ssm_model *model, const ssm__packing *packing, int64_t layer,
                          int64_t lane, int64_t mode);
/* States of one packing into those of another, which must be zero. Errors: USAGE (a mode that `to`
 * keeps has none in `from`; `to_states` is then of no use). */
ssm_status ssm__packing_convert(const ssm_model *model, const ssm__packing *from,
                                const float *from_states, const ssm__packing *to, float *to_states,
                                ssm_error *err);

/* ---- the slots of one group ------------------------------------------------------------------ */

/* factors [N][16], 0: dropped. What ssm__kept_modes counts; the tables stay NULL. */
ssm__kept_modes ssm__kept_count(const float *factors, int64_t d_state);
/* Fills the tables of what was counted. */
void ssm__kept_fill(const float *factors, int64_t d_state, const ssm__kept_modes *kept,
                    uint16_t *modes, uint16_t *even, uint16_t *odd);
/* in [N][16] → out [slots][16]. Slots without a mode have what mode 0 has. */
void ssm__kept_gather(const ssm__kept_modes *kept, const float *in, float *out);

#endif
