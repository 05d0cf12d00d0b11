/* model/model.h: what a loaded model holds. */
#ifndef SSM_MODEL_INTERNAL_H
#define SSM_MODEL_INTERNAL_H

#include <ssmscope/model.h>

#include "base/arena.h"
#include "checkpoint/weights.h"
#include "kernels/kernels.h"

/* Weights of the mixers. Matrices point into the checkpoint; the rest are float32 copies in the
 * model's arena, those of channels in groups of 16 (ssm__lane_of), padding channels zero. */

/* Mamba-1 and Falcon-Mamba; G = ⌈E/16⌉ groups. */
typedef struct ssm__mamba_layer {
    ssm__matrix in_proj_x, in_proj_z; /* [E, D] each: the two halves of in_proj's rows */
    ssm__matrix x_proj;               /* [R+2N, E] */
    ssm__matrix dt_proj;              /* [E, R] */
    ssm__matrix out_proj;             /* [D, E] */
    float *in_proj_bias;              /* [2E] or NULL */
    float *out_proj_bias;             /* [D] or NULL */
    float *conv_weight;               /* [G][K][16] */
    float *conv_bias;                 /* [G][16], zero when the checkpoint has none */
    float *dt_bias;                   /* [G][16] */
    float *A2;                        /* [G][N][16] −exp(A_log)·log2(e) */
    float *D;                         /* [G][16] */
} ssm__mamba_layer;

/* Mamba-2; a head's P channels have ⌈P/16⌉ groups of their own, G in all; Gbc = ⌈2·n_groups·N/16⌉
 * groups of B and C follow where the convolution is concerned. */
typedef struct ssm__mamba2_layer {
    ssm__matrix in_proj; /* [2E+2·n_groups·N+H, D]: rows z0, x0 (E−d_ssm each), z, x, B, C, dt */
    ssm__matrix out_proj; /* [D, E] */
    float *in_proj_bias;  /* of all rows, or NULL */
    float *out_proj_bias; /* [D] or NULL */
    float *conv_weight;   /* [G+Gbc][K][16] */
    float *conv_bias;     /* [G+Gbc][16] */
    float *dt_bias;       /* [⌈H/16⌉][16] */
    float *A2;            /* [H] */
    float *D;             /* [G][16] */
    float *gate_norm;     /* [G][16], or NULL without a norm */
} ssm__mamba2_layer;

/* Attention; Hq query heads and Hkv key heads of dh coordinates, W = (Hq+2Hkv)·dh. */
typedef struct ssm__attention_layer {
    ssm__matrix in_proj;  /* [W, D]: rows q, k, v */
    ssm__matrix out_proj; /* [D, Hq·dh] */
    float *in_proj_bias;  /* [W] or NULL */
    float *out_proj_bias; /* [D] or NULL */
    float *conv_weight;   /* [⌈W/16⌉][K][16], K = attention_conv; NULL: no convolution */
    float *conv_bias;     /* [⌈W/16⌉][16] */
    int64_t cache_index;  /* which of the model's layers of attention */
} ssm__attention_layer;

/* Gated MLP of a block; M = d_mlp. */
typedef struct ssm__mlp {
    ssm__matrix fc1_y, fc1_gate; /* [M, D] each: the two halves of fc1's rows */
    ssm__matrix fc2;             /* [D, M] */
    float *fc1_bias, *fc2_bias;  /* [2M], [D], or NULL */
    float *norm;                 /* [D] norm2 */
    float *norm_bias;            /* [D] LayerNorm, or NULL */
} ssm__mlp;

/* One block: norm, mixer, residual; then, where the model has MLPs, the same with the MLP. conv_at
 * … state_count: the layer's part of the session's conv_history and ssm_state, in floats. */
typedef struct ssm__block {
    ssm_layer_kind kind;
    int64_t conv_at, conv_count;
    int64_t state_at, state_count;
    float *norm;      /* [D] */
    float *norm_bias; /* [D] LayerNorm, or NULL */
    union {
        ssm__mamba_layer mamba;
        ssm__mamba2_layer mamba2;
        ssm__attention_layer attention;
    };
    ssm__mlp mlp;
} ssm__block;

struct ssm_model {
    ssm_checkpoint *checkpoint;
    const ssm_config *config;
    const ssm__kernels *kernels;
    ssm__arena arena;
    int64_t n_groups16;              /* G, groups of 16 channels of a layer's scan */
    int64_t conv_count, state_count; /* floats of all layers */
    ssm__block *blocks;              /* [n_layers] */
    ssm__matrix embedding, lm_head;  /* [V, D] */
    float *norm_f;                   /* [D] */
    float *norm_f_bias;              /* [D] LayerNorm, or NULL */
    int64_t n_attention;             /* layers of attention */
    double *rotary_turns;            /* [rotary_dim/2] radians a token */
};

/* Rows of a layer of attention's in_proj, W. */
static inline int64_t ssm__attention_rows(const ssm_config *c)
{
    return (c->n_query_heads + 2 * c->n_kv_heads) * c->attention_head_dim;
}

/* ---- channels of the scan: d_inner, of Mamba-2 d_ssm ----------------------------------------- */

static inline int64_t ssm__scan_channels(const ssm_config *c)
{
    return c->n_heads > 0 ? c->d_ssm : c->d_inner;
}
/* Groups of 16 channels that one head has; Mamba-1: of all channels. */
static inline int64_t ssm__groups_per_head(const ssm_config *c)
{
    return ((c->n_heads > 0 ? c->head_dim : c->d_inner) + SSM__LANES - 1) / SSM__LANES;
}
static inline int64_t ssm__scan_groups(const ssm_config *c)
{
    return (c->n_heads > 0 ? c->n_heads : 1) * ssm__groups_per_head(c);
}
/* Groups of B and C of Mamba-2. */
static inline int64_t ssm__bc_groups(const ssm_config *c)
{
    return (2 * c->n_groups * c->d_state + SSM__LANES - 1) / SSM__LANES;
}
/* Place of a channel among the lanes of all groups, 16·group + lane. */
static inline int64_t ssm__lane_of(const ssm_config *c, int64_t channel)
{
    const int64_t head_dim = c->n_heads > 0 ? c->head_dim : c->d_inner;
    return channel / head_dim * ssm__groups_per_head(c) * SSM__LANES + channel % head_dim;
}

/* Row of the embedding as float32: out [d_model]. */
void ssm__embed(const ssm_model *model, int32_t id, float *out);

#endif
