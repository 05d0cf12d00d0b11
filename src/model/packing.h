/* model/packing.h: what a session carries under a mask: states of the kept modes only.
 *
 * A group of 16 channels whose mask drops modes has as many rows of state, decay rates and factors
 * as its fullest channel keeps; a group that cannot be packed, or whose fullest channel keeps all,
 * has a row a mode and factors of 0 and 1, as have all groups where the instrument looks on. In
 * Mamba-2 all channels of a head keep the same modes, or the head is not packed: B and C are the
 * head's then, with fewer columns. */
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

/* B and C as neighbouring heads of Mamba-2 that keep the same modes read them. */
typedef struct ssm__packed_unit {
    int64_t bc_group;      /* whose B and C they are */
    int64_t slots;         /* columns */
    const uint16_t *modes; /* [slots], every 16th: the mode of a column; NULL: its own number */
    const float *factors;  /* [slots], every 16th: of C in the chunked form; NULL: all 1 */
    int64_t bc_at;         /* where its [2][64][slots] begin in unit_bc */
} ssm__packed_unit;

/* The heads of a masked layer of Mamba-2. A head is packed when all its channels keep the same
 * modes. */
typedef struct ssm__packed_heads {
    bool chunked; /* … with the same factors, in all heads: the chunked form can run them */
    bool whole;   /* a head reads all of B and C as they are */
    int64_t n_units, bc_floats;
    int64_t last;            /* while building: the last head that has a unit */
    ssm__packed_unit *units; /* [n_heads], of which n_units are there */
    int32_t *unit_of;        /* [n_heads] −1: B and C as they are */
} ssm__packed_heads;

/* A mask as one session runs it. */
typedef struct ssm__packing {
    ssm__arena arena;
    ssm__packed_group *groups; /* of all layers, in the order of the states */
    int64_t rows;              /* of all groups */
    bool *masked;              /* [n_layers] */
    bool *packed;              /* [n_layers] a group of the layer is packed */
    ssm__packed_heads *heads;  /* [n_layers] those of Mamba-2 */
    float *unit_bc;            /* scratch of the units of one layer */
    float *unit_products;      /* [n_units][64][64] C_t·B_s of it */
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
