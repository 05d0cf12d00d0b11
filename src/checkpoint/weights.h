/* checkpoint/weights.h: the slots of a model and the tensors that fill them.
 *
 * The table is the one list of parameters: loading, initialising, writing, digesting and counting
 * are loops over it. Shapes are written in the letters of the config: D d_model, E d_inner, N
 * d_state, R dt_rank, K d_conv, V vocab_size. */
#ifndef SSM_CHECKPOINT_WEIGHTS_H
#define SSM_CHECKPOINT_WEIGHTS_H

#include <ssmscope/checkpoint.h>

/* field, name below backbone.layers.N., required */
#define SSM__MAMBA_LAYER_SLOTS(X)                                                                  \
    X(norm, "norm.weight", true)                   /* [D] */                                       \
    X(in_proj, "mixer.in_proj.weight", true)       /* [2E, D]: rows xs, z */                       \
    X(in_proj_bias, "mixer.in_proj.bias", false)   /* [2E] */                                      \
    X(conv1d, "mixer.conv1d.weight", true)         /* [E, 1, K], tap K−1 = current token */      \
    X(conv1d_bias, "mixer.conv1d.bias", false)     /* [E] */                                       \
    X(x_proj, "mixer.x_proj.weight", true)         /* [R+2N, E]: rows dt, B, C */                  \
    X(dt_proj, "mixer.dt_proj.weight", true)       /* [E, R] */                                    \
    X(dt_proj_bias, "mixer.dt_proj.bias", true)    /* [E] */                                       \
    X(A_log, "mixer.A_log", true)                  /* [E, N] */                                    \
    X(D, "mixer.D", true)                          /* [E] */                                       \
    X(out_proj, "mixer.out_proj.weight", true)     /* [D, E] */                                    \
    X(out_proj_bias, "mixer.out_proj.bias", false) /* [D] */

/* Slots of the other kinds of layer; not resolved yet. field, name below backbone.layers.N.
 * G n_groups, H n_heads, P head_dim, S d_ssm = HP, M d_mlp. Mamba-2: in_proj [2E+2GN+H, D] rows
 * (z0, x0 of E−S each when S < E), z, x, B, C, dt; conv1d [S+2GN, 1, K]; A_log [H]; D [H] or [S].
 * Attention: in_proj [(Hq+2Hkv)·dh, D] rows q, k, v; conv1d over all of them; out_proj [D, Hq·dh].
 */
#define SSM__OTHER_LAYER_SLOTS(X)                                                                  \
    X(norm_bias, "norm.bias")         /* [D] LayerNorm */                                          \
    X(dt_bias, "mixer.dt_bias")       /* [H] Mamba-2 */                                            \
    X(gate_norm, "mixer.norm.weight") /* [S] Mamba-2's gated RMSNorm */                            \
    X(norm2, "norm2.weight")          /* [D] before the MLP */                                     \
    X(norm2_bias, "norm2.bias")       /* [D] */                                                    \
    X(fc1, "mlp.fc1.weight")          /* [2M, D]: rows y, gate */                                  \
    X(fc1_bias, "mlp.fc1.bias")       /* [2M] */                                                   \
    X(fc2, "mlp.fc2.weight")          /* [D, M] */                                                 \
    X(fc2_bias, "mlp.fc2.bias")       /* [D] */

/* A tensor with data == NULL is an absent optional one. Views into the checkpoint's mappings. */
typedef struct ssm__layer_weights {
    ssm_layer_kind kind;
#define SSM__SLOT_FIELD(field, name, ...) ssm_tensor field;
    SSM__MAMBA_LAYER_SLOTS(SSM__SLOT_FIELD)
    SSM__OTHER_LAYER_SLOTS(SSM__SLOT_FIELD)
#undef SSM__SLOT_FIELD
} ssm__layer_weights;

typedef struct ssm__weights {
    ssm_tensor embedding;       /* [V, D] backbone.embeddings.weight */
    ssm_tensor norm_f;          /* [D] backbone.norm_f.weight */
    ssm_tensor norm_f_bias;     /* [D] LayerNorm */
    ssm_tensor lm_head;         /* [V, D]; a copy of the embedding's view when tied */
    ssm__layer_weights *layers; /* n_layers */
} ssm__weights;

/* The resolved slots of an open checkpoint. */
const ssm__weights *ssm__checkpoint_weights(const ssm_checkpoint *checkpoint);

#endif
