/* ssmscope/model.h: a model, a session with streaming state, masks, taps, generation. */
#ifndef SSMSCOPE_MODEL_H
#define SSMSCOPE_MODEL_H

#include <ssmscope/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- model ----------------------------------------------------------------------------------- */

/* Read-only; may be shared by threads. Large matrices stay in the checkpoint's mapping. */
typedef struct ssm_model ssm_model;

/* Takes ownership of `checkpoint`, also when it fails. isa: the kernels to use (AUTO = best).
 * Errors: USAGE (isa not supported here), FILE (a non-finite weight, named), MEMORY. */
SSM_API ssm_status ssm_model_create(ssm_checkpoint *checkpoint, ssm_isa isa, ssm_model **out,
                                    ssm_error *err);
SSM_API void ssm_model_free(ssm_model *model);
SSM_API const ssm_config *ssm_model_config(const ssm_model *model);
SSM_API const ssm_checkpoint *ssm_model_checkpoint(const ssm_model *model);
SSM_API ssm_isa ssm_model_isa(const ssm_model *model);

/* ---- masks ----------------------------------------------------------------------------------- */

/* Which modes are kept. Layers of attention have none: what stands in their place is not looked at.
 * keep: uint8 [n_layers][H][d_state], 1 = kept; H n_channels: d_inner, Mamba-2 d_ssm or n_heads. */
typedef struct ssm_mask {
    int64_t n_layers, n_channels, d_state;
    int64_t head_dim; /* the channels are those of heads of this width (Mamba-2); else 0 */
    uint8_t *keep;
    /* Compensation, both or neither (NULL): weight float32 as keep, the factor of each summand in y
     * (0 where dropped), and skip_weight float32 [n_layers][H], that of the feed-through. */
    float *weight, *skip_weight;
    char rule[64];
    int64_t budget;   /* kept modes a channel; 0: not stated */
    bool mean_budget; /* the budget is the mean over the channels, which differ */
    char scope[16];   /* "channel", "head", "group" or "layer" */
    char model_digest[64];
    char recording_digest[64];
    uint64_t seed;
} ssm_mask;

/* All modes kept. Owner: the caller, ssm_mask_free. */
SSM_API ssm_status ssm_mask_create(int64_t n_layers, int64_t n_channels, int64_t d_state,
                                   ssm_mask *out, ssm_error *err);
/* Takes the memory of the weights, which begin as they are without: keep as numbers, and 1. Errors:
 * MEMORY. */
SSM_API ssm_status ssm_mask_add_weights(ssm_mask *mask, ssm_error *err);
SSM_API void ssm_mask_free(ssm_mask *mask);
/* The mask file of the documentation (safetensors, layers.N.keep and those of the weights).
 * Errors: FILE, FAILED, MEMORY. */
SSM_API ssm_status ssm_mask_read(const char *path, ssm_mask *out, ssm_error *err);
SSM_API ssm_status ssm_mask_write(const ssm_mask *mask, const char *path, const char *command,
                                  ssm_error *err);

/* ---- taps ------------------------------------------------------------------------------------ */

/* Named points of the forward pass; names of TransformerLens, `{i}` is the layer. Widths of
 * Mamba-1 (E d_inner, N d_state, R dt_rank) | Mamba-2 (S d_ssm, H n_heads, G n_groups, rows in the
 * order of the checkpoint) | attention (Hq n_query_heads, dh a head's width; of the points above
 * ATTENTION_OUT it has IN_PROJ and CONV1D, both of the rows q, k, v); –: the point does not exist
 * in that layer. RESID_MID, MLP_IN and MLP_OUT exist where blocks have an MLP.
 * Every tap fires for every token of every forward call, whatever the chunking. */
#define SSM_TAPS(X)                                                                                \
    X(EMBED, "embed")                                 /* [T, d_model] embedding */                 \
    X(RESID_PRE, "blocks.{i}.hook_resid_pre")         /* [T, d_model] stream into the block */     \
    X(MIXER_IN, "blocks.{i}.hook_mixer_in")           /* [T, d_model] normed */                    \
    X(IN_PROJ, "blocks.{i}.mixer.in_proj.hook_out")   /* [T, 2E] xs, z | [T, rows of in_proj] */   \
    X(CONV1D, "blocks.{i}.mixer.conv1d.hook_out")     /* [T, E] | [T, S+2GN] before SiLU */        \
    X(U, "blocks.{i}.mixer.hook_u")                   /* [T, E] | [T, S] u = SiLU of it */         \
    X(X_PROJ, "blocks.{i}.mixer.x_proj.hook_out")     /* [T, R+2N] dt, B, C | – */               \
    X(DT_PROJ, "blocks.{i}.mixer.dt_proj.hook_out")   /* [T, E] before softplus | – */           \
    X(DELTA, "blocks.{i}.mixer.hook_delta")           /* [T, E] softplus of it | [T, H] clamped */ \
    X(SSM_OUT, "blocks.{i}.mixer.hook_ssm_out")       /* [T, E] y, gated, into out_proj | [T, S]   \
                                                       * what the gated norm is given */           \
    X(INNER_NORM, "blocks.{i}.mixer.hook_inner_norm") /* – | [T, S] after the gated norm */      \
    X(ATTENTION_OUT, "blocks.{i}.mixer.hook_attn_out") /* – | – | [T, Hq·dh] into out_proj */ \
    X(MIXER_OUT, "blocks.{i}.hook_mixer_out")          /* [T, d_model] = out_proj.hook_out */      \
    X(RESID_MID, "blocks.{i}.hook_resid_mid")          /* [T, d_model] stream before the MLP */    \
    X(MLP_IN, "blocks.{i}.hook_mlp_in")                /* [T, d_model] normed */                   \
    X(MLP_OUT, "blocks.{i}.hook_mlp_out")              /* [T, d_model] */                          \
    X(RESID_POST, "blocks.{i}.hook_resid_post")        /* [T, d_model] stream after the block */   \
    X(LN_FINAL, "ln_final")                            /* [T, d_model] normed, into the head */

typedef enum ssm_tap_point {
#define SSM_TAP_ENUM(name, text) SSM_TAP_##name,
    SSM_TAPS(SSM_TAP_ENUM)
#undef SSM_TAP_ENUM
        SSM_TAP_COUNT
} ssm_tap_point;

SSM_API const char *ssm_tap_name(ssm_tap_point point);
/* The tap of a name of ssm_tap_name with a layer in place of {i}, or of one of the shorter names
 * that TransformerLens knows: blocks.{i}.hook_in_proj, .hook_conv, .hook_x_proj, .hook_dt_proj,
 * .hook_ssm_out, and blocks.{i}.mixer.out_proj.hook_out. *layer: −1 for the taps of the whole
 * model; whether the model has such a layer is not looked at. Errors: USAGE (no such name). */
SSM_API ssm_status ssm_tap_parse(const char *name, ssm_tap_point *point, int64_t *layer,
                                 ssm_error *err);

/* What a tap shows: element (t, k) is data[t·row_stride + (k/16)·group_stride + k%16].
 * Valid during the call only. */
typedef struct ssm_tap {
    ssm_tap_point point;
    int64_t layer;    /* −1 for EMBED and LN_FINAL */
    int64_t position; /* of the first token, since the last reset */
    int64_t tokens;
    int64_t width;
    const float *data;
    ptrdiff_t row_stride, group_stride;
} ssm_tap;

/* Copies a tap to dense row-major out [tokens][width]. */
SSM_API void ssm_tap_copy(const ssm_tap *tap, float *out);

/* read: called for the points in `points` (bit 1 << point) from the thread that called forward. */
typedef struct ssm_observer {
    void *context;
    uint64_t points;
    void (*read)(void *context, const ssm_tap *tap);
} ssm_observer;

/* ---- session --------------------------------------------------------------------------------- */

/* One stream of text: recurrent state and scratch, all allocated at creation, but for what a mask
 * needs, and the keys and values of layers of attention, which grow with the text. Not shared. */
typedef struct ssm_session ssm_session;

typedef struct ssm_session_options {
    ssm_pool *pool;    /* borrowed; NULL: single-threaded */
    int64_t max_chunk; /* most tokens that go through a layer at once; 0 = 1024 */
    bool exact_chunks; /* Mamba-2: the recurrence always, never the chunked form; see forward */
    bool full_state;   /* dropped modes are carried along, too; see set_mask */
} ssm_session_options;

SSM_API ssm_status ssm_session_create(const ssm_model *model, const ssm_session_options *options,
                                      ssm_session **out, ssm_error *err);
SSM_API void ssm_session_free(ssm_session *session);
/* Bytes that ssm_session_create would allocate. */
SSM_API size_t ssm_session_size(const ssm_model *model, const ssm_session_options *options);
/* Bytes that a session grows by with every token of the text: keys and values of the layers of
 * attention (allocated 64 tokens at a time); 0 where there are none. */
SSM_API size_t ssm_session_token_size(const ssm_model *model);
/* Back to the zero state, position 0; keeps mask and observer. */
SSM_API void ssm_session_reset(ssm_session *session);
SSM_API int64_t ssm_session_position(const ssm_session *session);
/* Copies the mask in; NULL removes it. layer −1: all layers; else only that layer is pruned. From
 * then on the session carries the kept modes' states alone and computes no others (Mamba-2: where
 * the channels of a head keep the same), unless it was created with full_state: the same bits, but
 * for Mamba-2's chunked form. Behind the first token the states of what the new mask keeps go
 * along, so a text can go on pruned; the way back is a USAGE error (a mode whose state was not
 * carried), and nothing has changed: reset first. Other errors: USAGE (shapes differ from the
 * model's), MEMORY. */
SSM_API ssm_status ssm_session_set_mask(ssm_session *session, const ssm_mask *mask, int64_t layer,
                                        ssm_error *err);
/* Borrowed until replaced; NULL removes it. */
SSM_API void ssm_session_set_observer(ssm_session *session, const ssm_observer *observer);

/* Logits of consecutive tokens: [tokens][vocab_size], row stride vocab_size, valid during the call.
 * first: index of the first row in `ids` of the forward call. */
typedef void ssm_logits_fn(void *context, int64_t first, int64_t tokens, const float *logits);

/* Where logits are wanted; NONE skips the head. */
typedef enum ssm_logits_want { SSM_LOGITS_NONE, SSM_LOGITS_LAST, SSM_LOGITS_ALL } ssm_logits_want;

/* Runs count ≥ 0 tokens and advances the state. The bits of everything computed do not depend on
 * how a text is cut into calls, except that Mamba-2 runs several tokens in chunks (the dual form),
 * whose rounding depends on the cut: results then agree within 2e-6 of their largest, and to the
 * bit with exact_chunks. fn may be NULL with NONE. Errors: USAGE (an id outside the vocabulary,
 * with its place; nothing was run), MEMORY (no room for keys and values of that many tokens;
 * nothing was run). */
SSM_API ssm_status ssm_session_forward(ssm_session *session, const int32_t *ids, int64_t count,
                                       ssm_logits_want want, ssm_logits_fn *fn, void *context,
                                       ssm_error *err);

/* out[t] = −log softmax(logits of position t)[ids[t+1]], float32 log-softmax with a float64 sum,
 * for t = 0 … count−2. Runs from the current state. */
SSM_API ssm_status ssm_session_nll(ssm_session *session, const int32_t *ids, int64_t count,
                                   float *out, ssm_error *err);

/* The state (not the mask) as one block of ssm_session_state_size bytes, which grows with the
 * position where there are layers of attention, and has the kept modes only where there is a mask;
 * restoring gives the same bits as never having left. A block carries shape and position, and what
 * modes it has: it can be restored where the mask keeps the same ones, and a block of all modes
 * under any mask. Other blocks, those of another model, and numbers that are not finite are a USAGE
 * error; MEMORY as in forward. */
SSM_API size_t ssm_session_state_size(const ssm_session *session);
SSM_API void ssm_session_save(const ssm_session *session, void *out);
SSM_API ssm_status ssm_session_restore(ssm_session *session, const void *block, size_t bytes,
                                       ssm_error *err);

/* ---- reference ------------------------------------------------------------------------------- */

/* The float64 oracle of src/reference over the whole model: logits [count][vocab_size] and hidden
 * [n_layers+1][count][d_model] (embedding, then the stream after each block); one may be NULL. */
SSM_API ssm_status ssm_reference_forward(const ssm_model *model, const int32_t *ids, int64_t count,
                                         double *logits, double *hidden, ssm_error *err);

/* ---- generation ------------------------------------------------------------------------------ */

typedef struct ssm_sampling {
    double temperature; /* 0 = greedy */
    int64_t top_k;      /* 0 = all */
    double top_p;       /* 1 = all; (0, 1] */
    uint64_t seed;
} ssm_sampling;

typedef struct ssm_sampler ssm_sampler;
/* vocab_size: rows; n_valid: ids ≥ n_valid (padding rows) are never drawn. */
SSM_API ssm_status ssm_sampler_create(const ssm_sampling *sampling, int64_t vocab_size,
                                      int64_t n_valid, ssm_sampler **out, ssm_error *err);
SSM_API void ssm_sampler_free(ssm_sampler *sampler);
/* Ties go to the lower id. */
SSM_API int32_t ssm_sampler_next(ssm_sampler *sampler, const float *logits);

#ifdef __cplusplus
}
#endif
#endif
