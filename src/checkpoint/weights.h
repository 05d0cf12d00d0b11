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

/* A tensor with data == NULL is an absent optional one. Views into the checkpoint's mappings. */
typedef struct ssm__layer_weights {
#define SSM__SLOT_FIELD(field, name, required) ssm_tensor field;
    SSM__MAMBA_LAYER_SLOTS(SSM__SLOT_FIELD)
#undef SSM__SLOT_FIELD
} ssm__layer_weights;

typedef struct ssm__weights {
    ssm_tensor embedding;       /* [V, D] backbone.embeddings.weight */
    ssm_tensor norm_f;          /* [D] backbone.norm_f.weight */
    ssm_tensor lm_head;         /* [V, D]; a copy of the embedding's view when tied */
    ssm__layer_weights *layers; /* n_layers */
} ssm__weights;

/* The resolved slots of an open checkpoint. */
const ssm__weights *ssm__checkpoint_weights(const ssm_checkpoint *checkpoint);

#endif
