/* model/model.h: what a loaded model holds. */
#ifndef SSM_MODEL_INTERNAL_H
#define SSM_MODEL_INTERNAL_H

#include <ssmscope/model.h>

#include "base/arena.h"
#include "checkpoint/weights.h"
#include "kernels/kernels.h"

/* One block. Matrices point into the checkpoint; the rest are float32 copies in the model's arena,
 * those of the channels in groups of 16 (G = ⌈d_inner/16⌉), padding channels zero. */
typedef struct ssm__mamba_layer {
    ssm__matrix in_proj_x, in_proj_z; /* [E, D] each: the two halves of in_proj's rows */
    ssm__matrix x_proj;               /* [R+2N, E] */
    ssm__matrix dt_proj;              /* [E, R] */
    ssm__matrix out_proj;             /* [D, E] */
    float *norm;                      /* [D] */
    float *in_proj_bias;              /* [2E] or NULL */
    float *out_proj_bias;             /* [D] or NULL */
    float *conv_weight;               /* [G][K][16] */
    float *conv_bias;                 /* [G][16], zero when the checkpoint has none */
    float *dt_bias;                   /* [G][16] */
    float *A2;                        /* [G][N][16] −exp(A_log)·log2(e) */
    float *D;                         /* [G][16] */
} ssm__mamba_layer;

struct ssm_model {
    ssm_checkpoint *checkpoint;
    const ssm_config *config;
    const ssm__kernels *kernels;
    ssm__arena arena;
    int64_t n_groups16; /* G */
    ssm__mamba_layer *layers;
    ssm__matrix embedding, lm_head; /* [V, D] */
    float *norm_f;                  /* [D] */
};

/* Row of the embedding as float32: out [d_model]. */
void ssm__embed(const ssm_model *model, int32_t id, float *out);

#endif
