/* reference/backward.h: training in float64: the gradients of every mixer and of whole-model
 * losses, naive, one array after another, never the fast path. The oracle of the float32 kernels
 * and of the network. Formulas: docs/training.md, section "Gradients"; letters as in reference.h.
 *
 * Conventions of every function here. dX is the derivative of the loss by X and has X's shape. The
 * derivative by an input is overwritten, the derivative by a parameter is added to what stands
 * there: two layers that share weights share the arrays of gradients, a tied head is the embedding.
 * A gradient that is NULL is not wanted. Arrays are dense row-major double. */
#ifndef SSM_REFERENCE_BACKWARD_H
#define SSM_REFERENCE_BACKWARD_H

#include "reference/reference.h"

/* ---- a layer --------------------------------------------------------------------------------- */

/* What stands in a block's place of the mixer. */
typedef enum ssm__ref_mixer {
    SSM__REF_MAMBA,  /* and Falcon-Mamba, by config->family */
    SSM__REF_MAMBA2, /* u, B, C, Δ, gate and norm of docs/mamba2.md */
    SSM__REF_ATTENTION,
    /* Mamba-2's block with another recurrence in the place of the SSD; in_proj has no rows of dt,
     * A_log and dt_bias are absent, D may be:
     *   S_t = diag(α_t) S_{t−1} + B_t u_tᵀ,  v_t = S_tᵀ C_t + D u_t  (state [N][P] of a head) */
    SSM__REF_LINEAR_ATTENTION, /* α = 1 */
    SSM__REF_GLA,              /* α_t = exp(logsigmoid(W2 W1 x_t + b) / gate_divisor), x normed */
    SSM__REF_H3                /* Fu et al., 2023; ref_h3.c */
} ssm__ref_mixer;

/* Slots that published checkpoints lack; field and name below backbone.layers.N. */
#define SSM__REF_MORE_SLOT_LIST(X)                                                                 \
    /* Time-invariant mode, on where B is present: B and C of every token, Δ = softplus of the    \
     * bias. Mamba-1, [N]: x_proj and dt_proj.weight are absent. Mamba-2, [G, N]: in_proj has the  \
     * rows (z0, x0,) z, x only and conv1d those of x. H3: C of the diagonal SSM, [H, N]. */       \
    X(B_fixed, "mixer.B")                                                                          \
    X(C_fixed, "mixer.C")                                                                          \
    /* GLA: W1 [r, D], W2 [JN, r], b [JN]; head k has the gate k / (H/J), J divides H. */          \
    X(gate_down, "mixer.gate_proj.0.weight")                                                       \
    X(gate_up, "mixer.gate_proj.1.weight")                                                         \
    X(gate_bias, "mixer.gate_proj.1.bias")

/* All slots of a layer: X(field, name, …). */
#define SSM__REF_SLOT_LIST(X)                                                                      \
    SSM__LAYER_SLOT_LIST(X)                                                                        \
    SSM__REF_MORE_SLOT_LIST(X)

/* One block: x += mixer(norm(x)), then x += mlp(norm2(x)) where w.fc1 is present. An absent norm
 * weight is no norm at all; an absent conv1d is no convolution (SiLU stays), for every mixer but
 * H3. Tensors are F64 for central differences; any dtype works. */
typedef struct ssm__ref_layer {
    ssm__ref_mixer mixer;
    const ssm_config *config; /* sizes of this mixer; borrowed */
    double gate_divisor;      /* GLA: 16 */
    ssm__layer_weights w;
#define SSM__REF_FIELD(field, name) ssm_tensor field;
    SSM__REF_MORE_SLOT_LIST(SSM__REF_FIELD)
#undef SSM__REF_FIELD
} ssm__ref_layer;

/* An array a slot, of the slot's shape, or NULL. */
typedef struct ssm__ref_gradients {
#define SSM__REF_FIELD(field, ...) double *field;
    SSM__REF_SLOT_LIST(SSM__REF_FIELD)
#undef SSM__REF_FIELD
} ssm__ref_gradients;

/* The layer of a checkpoint; tensors are views, borrowed with config. */
ssm__ref_layer ssm__ref_layer_of(const ssm_config *config, const ssm__layer_weights *w);

/* ---- mixers ---------------------------------------------------------------------------------- */

/* One mixer on its normed input x [L][D] from the zero state → out [L][D]. Errors: MEMORY. */
ssm_status ssm__ref_mixer_forward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                  double *out, ssm_error *err);

/* x [L][D] as above, dout [L][D] → dx [L][D] and the mixer's slots of g. Errors: MEMORY. The first
 * goes by layer->mixer; mamba2 serves linear attention and GLA too. */
ssm_status ssm__ref_mixer_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                   const double *dout, double *dx, const ssm__ref_gradients *g,
                                   ssm_error *err);
ssm_status ssm__ref_mamba_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                   const double *dout, double *dx, const ssm__ref_gradients *g,
                                   ssm_error *err);
ssm_status ssm__ref_mamba2_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                    const double *dout, double *dx, const ssm__ref_gradients *g,
                                    ssm_error *err);
ssm_status ssm__ref_attention_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                       const double *dout, double *dx, const ssm__ref_gradients *g,
                                       ssm_error *err);
ssm_status ssm__ref_h3(const ssm__ref_layer *layer, const double *x, int64_t tokens, double *out,
                       ssm_error *err);
ssm_status ssm__ref_h3_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                const double *dout, double *dx, const ssm__ref_gradients *g,
                                ssm_error *err);
/* The gated MLP likewise, slots fc1, fc2. */
ssm_status ssm__ref_mlp_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                 const double *dout, double *dx, const ssm__ref_gradients *g,
                                 ssm_error *err);

/* A whole block; x, y, dy, dx [L][D] of the residual stream, y and dx may be x and dy. */
ssm_status ssm__ref_block_forward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                  double *y, ssm_error *err);
ssm_status ssm__ref_block_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                   const double *dy, double *dx, const ssm__ref_gradients *g,
                                   ssm_error *err);

/* ---- whole models ---------------------------------------------------------------------------- */

/* stream = embedding[ids], or input·numbers + input_bias where ids are not given; blocks; norm_f;
 * head·x + head_bias. An absent norm_f is no norm, an absent bias none. */
typedef struct ssm__ref_model {
    const ssm_config *config; /* d_model, n_layers, layer_norm and norm_eps of norm_f; borrowed */
    ssm_tensor embedding;     /* [V, D] */
    ssm_tensor input;         /* [D, F] numbers of a token */
    ssm_tensor input_bias;    /* [D] */
    ssm_tensor norm_f, norm_f_bias;
    ssm_tensor head;      /* [V or outputs or classes, D]; tied: the embedding's view */
    ssm_tensor head_bias; /* [rows of head] */
    const ssm__ref_layer *layers;
} ssm__ref_model;

/* The model of a checkpoint's weights; layers [n_layers] is filled and borrowed, as is all else. */
ssm__ref_model ssm__ref_model_of(const ssm_config *config, const ssm__weights *weights,
                                 ssm__ref_layer *layers);

/* Tied head: head = embedding, so that both parts are added there. */
typedef struct ssm__ref_model_gradients {
    double *embedding, *input, *input_bias, *norm_f, *norm_f_bias, *head, *head_bias;
    ssm__ref_gradients *layers; /* n_layers */
} ssm__ref_model_gradients;

/* B sequences of L tokens. One of ids, numbers; one of labels, targets, classes: it says the
 * loss. */
typedef struct ssm__ref_batch {
    int64_t sequences, tokens;
    const int64_t *lengths; /* [B] tokens that there are (≥ 1), then padding; NULL: L each */
    const int32_t *ids;     /* [B][L] */
    const double *numbers;  /* [B][L][F] */
    const int32_t *labels;  /* [B][L] language model; < 0: the token has no loss */
    const double *targets;  /* [B][L][rows of head] regression */
    const int32_t *classes; /* [B] classification of the mean over the tokens, pooled behind
                             * norm_f and before the head */
} ssm__ref_batch;

/* sum: Σ −log p of the count labelled tokens (language model) or of the count sequences
 * (classification), or Σ (prediction − target)² over count numbers (regression). */
typedef struct ssm__ref_loss {
    double sum;
    int64_t count;
} ssm__ref_loss;

/* The loss, and the gradients of scale·sum in g (NULL: the loss only); scale 1/count makes the loss
 * the mean. What the model predicts is written to predictions, [B][L][rows of head] or [B][rows]
 * for classes, unless NULL; padding is not touched. Errors: USAGE (an id or a label outside the
 * rows), MEMORY. */
ssm_status ssm__ref_model_loss(const ssm__ref_model *model, const ssm__ref_batch *batch,
                               double scale, const ssm__ref_model_gradients *g, ssm__ref_loss *out,
                               double *predictions, ssm_error *err);

/* ---- pieces ---------------------------------------------------------------------------------- */

/* y = x Wᵀ + bias: dx = dy W (NULL: not wanted), dw += dyᵀ x, dbias += Σ_t dy. */
void ssm__ref_linear_backward(const ssm_tensor *w, const double *x, const double *dy,
                              int64_t tokens, double *dx, double *dw, double *dbias);
/* weight NULL or absent: 1. dx may be dy. */
void ssm__ref_rmsnorm_backward(const double *x, const ssm_tensor *weight, const double *dy,
                               int64_t tokens, int64_t width, double eps, double *dx,
                               double *dweight);
void ssm__ref_layernorm_backward(const double *x, const ssm_tensor *weight, const double *dy,
                                 int64_t tokens, int64_t width, double eps, double *dx,
                                 double *dweight, double *dbias);
/* Of the block norm; an absent weight is no norm. */
void ssm__ref_block_norm_backward(const ssm_config *config, const ssm_tensor *weight,
                                  const double *x, const double *dy, int64_t tokens, double *dx,
                                  double *dweight, double *dbias);
/* v, z as in ssm__ref_gated_norm; dz is overwritten (zero unless norm_before_gate). */
void ssm__ref_gated_norm_backward(const ssm_config *config, const ssm_tensor *weight,
                                  const double *v, const double *z, const double *dy,
                                  int64_t tokens, double *dv, double *dz, double *dweight);
/* out = conv(x), without activation. dweight [E][K], dbias [E]. weight NULL: out = x. */
void ssm__ref_conv_backward(const double *x, const double *weight, const double *dout,
                            int64_t tokens, int64_t channels, int64_t d_conv, double *dx,
                            double *dweight, double *dbias);
/* Of SiLU(conv(x)); the pre-activation is computed anew into before [L][E], scratch. */
void ssm__ref_conv_silu_backward(const double *x, const double *weight, const double *bias,
                                 const double *dout, int64_t tokens, int64_t channels,
                                 int64_t d_conv, double *before, double *dx, double *dweight,
                                 double *dbias);
double ssm__ref_sigmoid(double x);
double ssm__ref_silu_slope(double x); /* derivative of SiLU */

/* Of ssm__ref_scan from the zero state without keep: dy [L][E] → u, delta, z [L][E] and B, C
 * [L][N], overwritten; A [E][N] and D_skip [E], added. delta is the derivative by Δ itself. z NULL
 * without gate. Errors: MEMORY. */
typedef struct ssm__ref_scan_gradients {
    double *u, *delta, *z, *B, *C, *A, *D_skip;
} ssm__ref_scan_gradients;
ssm_status ssm__ref_scan_backward(const ssm__ref_scan_args *args, const double *dy,
                                  const ssm__ref_scan_gradients *g, ssm_error *err);
/* Of ssm__ref_scan2 likewise: u, z [L][S], delta [L][H], B, C [L][G][N], A [H], D_skip [H] or [S].
 */
ssm_status ssm__ref_scan2_backward(const ssm__ref_scan2_args *args, const double *dy,
                                   const ssm__ref_scan_gradients *g, ssm_error *err);

#endif
