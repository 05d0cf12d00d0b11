/* ssmscope/recording.h: the recording on disk (schema ssmscope.recording/1). Knows no model. */
#ifndef SSMSCOPE_RECORDING_H
#define SSMSCOPE_RECORDING_H

#include <ssmscope/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ssm_role { SSM_ROLE_CALIBRATION, SSM_ROLE_EVALUATION } ssm_role;

typedef struct ssm_recording_window {
    const char *file; /* relative to the recording */
    const char *domain;
    ssm_role role;
    int64_t token_offset; /* in the domain's stream */
    int64_t tokens;
} ssm_recording_window;

/* The head of a recording: recording.json. Arrays are owned by the recording. */
typedef struct ssm_recording_info {
    char model_digest[64];
    char tokenizer_digest[64];
    ssm_family family;
    int64_t n_layers, d_model, d_inner, d_state, n_heads, head_dim, n_groups;
    int64_t n_attention;    /* layers of attention among n_layers: they are never recorded */
    int64_t window;         /* tokens */
    const int64_t *layers;  /* the recorded layers, rising (`record --layers`) */
    int64_t n_recorded;     /* how many; n_layers when all are there */
    bool has_gram;          /* false: recorded with --no-gram */
    bool has_window_gram;   /* calibration windows keep their own Grams too */
    bool has_calibration;   /* there are calibration windows */
    const int64_t *budgets; /* Mamba-2: those of the channels' errors; else NULL */
    int64_t n_budgets;
    char digest[64]; /* of recording.json, for masks made from it */
} ssm_recording_info;

/* The budgets of `--budgets` when none are given: N/4, N/2, 3N/4, clipped to 1 … N−1, each once.
 * Returns how many were written (0 when N < 2: no budget is both ≥ 1 and < N). */
SSM_API int64_t ssm_default_budgets(int64_t d_state, int64_t out[3]);
/* What a kept set belongs to: a channel (of d_inner, Mamba-2 of n_heads·head_dim) or, in Mamba-2, a
 * head, all channels of which keep the same modes. DEFAULT is the channel. */
typedef enum ssm_scope { SSM_SCOPE_DEFAULT, SSM_SCOPE_CHANNEL, SSM_SCOPE_HEAD } ssm_scope;
SSM_API const char *ssm_scope_name(ssm_scope scope); /* "channel", "head" */
/* Rows of the tensors: d_inner, for Mamba-2 n_heads. */
SSM_API int64_t ssm_recording_channels(const ssm_recording_info *info);
/* How many sets a layer has at a scope: d_inner; Mamba-2 n_heads·head_dim or n_heads. */
SSM_API int64_t ssm_recording_sets(const ssm_recording_info *info, ssm_scope scope);

typedef struct ssm_recording ssm_recording;

/* Opens and checks recording.json and that every window file is there; shards are opened on use.
 * Errors: FILE (missing, damaged, unfinished: the file is named), MEMORY. */
SSM_API ssm_status ssm_recording_open(const char *directory, ssm_recording **out, ssm_error *err);
SSM_API void ssm_recording_close(ssm_recording *recording);
SSM_API const ssm_recording_info *ssm_recording_get_info(const ssm_recording *recording);
SSM_API int64_t ssm_recording_window_count(const ssm_recording *recording);
SSM_API const ssm_recording_window *ssm_recording_get_window(const ssm_recording *recording,
                                                             int64_t i);
/* A tensor of window i, "layers.N.<field>" or "nll", "ids" with layer −1, checked for dtype and
 * shape against the info. Valid until close. Errors: USAGE (no such field; a layer that was not
 * recorded; the Gram of a calibration window that is only in its domain's sum; a channel's errors
 * where they are not: calibration windows, --no-gram, static errors without calibration), FILE
 * (damaged, truncated or foreign shard, wrong dtype or shape: file and tensor are named), MEMORY.
 */
SSM_API ssm_status ssm_recording_tensor(ssm_recording *recording, int64_t window, int64_t layer,
                                        const char *field, const ssm_tensor **out, ssm_error *err);
/* A domain's calibration Gram, float32 [H][(N+1)(N+2)/2], summed over its windows of that role. */
SSM_API ssm_status ssm_recording_calibration_gram(ssm_recording *recording, const char *domain,
                                                  int64_t layer, const ssm_tensor **out,
                                                  ssm_error *err);
/* float32 [H][N] of model.safetensors, negative. */
SSM_API ssm_status ssm_recording_A(ssm_recording *recording, int64_t layer, const ssm_tensor **out,
                                   ssm_error *err);

#ifdef __cplusplus
}
#endif
#endif
