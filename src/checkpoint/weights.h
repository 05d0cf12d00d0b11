/* checkpoint/weights.h: the slots of a model and the tensors that fill them.
 *
 * The table is the one list of parameters: loading, initialising, writing, digesting and counting
 * are loops over it. Shapes are written in the letters of the config: D d_model, E d_inner, N
 * d_state, R dt_rank, K d_conv, V vocab_size; G n_groups, H n_heads, S d_ssm (≤ E); M d_mlp; Q
 * n_query_heads, L n_kv_heads, A attention_head_dim, KA attention_conv. */
#ifndef SSM_CHECKPOINT_WEIGHTS_H
#define SSM_CHECKPOINT_WEIGHTS_H

#include <ssmscope/checkpoint.h>

/* Does a kind of layer have the slot? */
typedef enum ssm__need { SSM__ABSENT, SSM__OPTIONAL, SSM__REQUIRED } ssm__need;

/* Field; name below backbone.layers.N.; need in Mamba (and Falcon-Mamba), Mamba-2, attention.
 * Where a shape differs between the kinds, they stand in this order. The order of the rows is that
 * of writing and digesting: new ones go to the end. */
#define SSM__LAYER_SLOT_LIST(X)                                                                    \
    X(norm, "norm.weight", REQUIRED, REQUIRED, REQUIRED) /* [D] */                                 \
    /* [2E, D] rows xs, z | [2E + 2GN + H, D] rows (z0, x0 of E − S each,) z, x, B, C, dt |      \
     * [(Q + 2L)A, D] rows q, k, v */                                                              \
    X(in_proj, "mixer.in_proj.weight", REQUIRED, REQUIRED, REQUIRED)                               \
    X(in_proj_bias, "mixer.in_proj.bias", OPTIONAL, OPTIONAL, OPTIONAL) /* rows of in_proj */      \
    /* Tap K − 1 is the current token: [E, 1, K] | [S + 2GN, 1, K] | [(Q + 2L)A, 1, KA] */       \
    X(conv1d, "mixer.conv1d.weight", REQUIRED, REQUIRED, OPTIONAL)                                 \
    X(conv1d_bias, "mixer.conv1d.bias", OPTIONAL, OPTIONAL, OPTIONAL) /* rows of conv1d */         \
    X(x_proj, "mixer.x_proj.weight", REQUIRED, ABSENT, ABSENT)   /* [R + 2N, E] rows dt, B, C */   \
    X(dt_proj, "mixer.dt_proj.weight", REQUIRED, ABSENT, ABSENT) /* [E, R] */                      \
    X(dt_proj_bias, "mixer.dt_proj.bias", REQUIRED, ABSENT, ABSENT)       /* [E] */                \
    X(A_log, "mixer.A_log", REQUIRED, REQUIRED, ABSENT)                   /* [E, N] | [H] */       \
    X(D, "mixer.D", REQUIRED, REQUIRED, ABSENT)                           /* [E] | [H] or [S] */   \
    X(out_proj, "mixer.out_proj.weight", REQUIRED, REQUIRED, REQUIRED)    /* [D, E | E | QA] */    \
    X(out_proj_bias, "mixer.out_proj.bias", OPTIONAL, OPTIONAL, OPTIONAL) /* [D] */                \
    X(norm_bias, "norm.bias", OPTIONAL, OPTIONAL, OPTIONAL)               /* [D] LayerNorm */      \
    X(dt_bias, "mixer.dt_bias", ABSENT, REQUIRED, ABSENT)                 /* [H] */                \
    X(gate_norm, "mixer.norm.weight", ABSENT, OPTIONAL, ABSENT)           /* [S] gated RMSNorm */  \
    X(norm2, "norm2.weight", OPTIONAL, OPTIONAL, OPTIONAL)                /* [D] before the MLP */ \
    X(norm2_bias, "norm2.bias", OPTIONAL, OPTIONAL, OPTIONAL)             /* [D] */                \
    X(fc1, "mlp.fc1.weight", OPTIONAL, OPTIONAL, OPTIONAL)    /* [2M, D] rows y, gate */           \
    X(fc1_bias, "mlp.fc1.bias", OPTIONAL, OPTIONAL, OPTIONAL) /* [2M] */                           \
    X(fc2, "mlp.fc2.weight", OPTIONAL, OPTIONAL, OPTIONAL)    /* [D, M] */                         \
    X(fc2_bias, "mlp.fc2.bias", OPTIONAL, OPTIONAL, OPTIONAL) /* [D] */

/* A tensor with data == NULL is an absent optional one. Views into the checkpoint's mappings. */
typedef struct ssm__layer_weights {
    ssm_layer_kind kind;
#define SSM__SLOT_FIELD(field, ...) ssm_tensor field;
    SSM__LAYER_SLOT_LIST(SSM__SLOT_FIELD)
#undef SSM__SLOT_FIELD
} ssm__layer_weights;

typedef struct ssm__weights {
    ssm_tensor embedding;       /* [V, D] backbone.embeddings.weight */
    ssm_tensor norm_f;          /* [D] backbone.norm_f.weight */
    ssm_tensor norm_f_bias;     /* [D] LayerNorm */
    ssm_tensor lm_head;         /* [V, D]; a copy of the embedding's view when tied */
    ssm__layer_weights *layers; /* n_layers */
} ssm__weights;

/* Compares the bytes of every file with the checksums that it carries (torch's zip archives do;
 * safetensors has none). Opening does not: that would read everything. Errors: FILE, with file and
 * member. */
ssm_status ssm__checkpoint_check_sums(const ssm_checkpoint *checkpoint, ssm_error *err);
/* The resolved slots of an open checkpoint. */
const ssm__weights *ssm__checkpoint_weights(const ssm_checkpoint *checkpoint);

#endif
