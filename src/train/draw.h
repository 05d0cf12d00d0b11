/* train/draw.h: the published default initialisation of one slot. */
#ifndef SSM_TRAIN_DRAW_H
#define SSM_TRAIN_DRAW_H

#include "checkpoint/slots.h"

/* How the elements of a slot are made (docs/initialisation.md). */
typedef enum ssm__draw_kind {
    SSM__DRAW_UNIFORM, /* U(−scale, scale) */
    SSM__DRAW_NORMAL,  /* N(0, scale²) */
    SSM__DRAW_ONE,
    SSM__DRAW_A_LOG,     /* log n, n = 1 … d_state along a row */
    SSM__DRAW_A_UNIFORM, /* log A, A ~ U(1, 16): Mamba-2's */
    SSM__DRAW_DT_BIAS    /* softplus⁻¹(dt), dt log-uniform */
} ssm__draw_kind;

typedef struct ssm__draw {
    ssm__draw_kind kind;
    double scale;
    int64_t d_state;
    ssm_rng rng; /* the stream named after the tensor */
} ssm__draw;

/* False: a layer of the kind has no such slot, or the default initialisation has none (biases of
 * in_proj, out_proj and the MLP). */
bool ssm__draw_has(const ssm_config *config, ssm_layer_kind kind, int id);
ssm__draw ssm__draw_create(const ssm_config *config, ssm_layer_kind kind, ssm__slot_place place,
                           uint64_t seed);
/* Elements first … first+count−1, in order: call with rising first, without gaps. */
void ssm__draw_next(ssm__draw *draw, int64_t first, int64_t count, float *out);

#endif
