/* checkpoint/claims.h: what config.json says about a model. Claims, not facts: the shapes decide.
 */
#ifndef SSM_CHECKPOINT_CLAIMS_H
#define SSM_CHECKPOINT_CLAIMS_H

#include <jansson.h>
#include <ssmscope/checkpoint.h>

#include "checkpoint/notes.h"

/* key is the spelling found in the file (static text), NULL when nothing is claimed. */
typedef struct ssm__claim {
    const char *key;
    int64_t value;
} ssm__claim;

typedef struct ssm__claim_number {
    const char *key;
    double value;
} ssm__claim_number;

typedef struct ssm__claim_flag {
    const char *key;
    bool value;
} ssm__claim_flag;

typedef struct ssm__claim_limits {
    const char *key;
    double low, high; /* low ≤ 0 does nothing and is 0 here */
} ssm__claim_limits;

/* Whose configuration it is. */
typedef enum ssm__schema {
    SSM__SCHEMA_HF,       /* transformers: hidden_size, num_hidden_layers */
    SSM__SCHEMA_ORIGINAL, /* state-spaces: d_model, n_layer, ssm_cfg */
    SSM__SCHEMA_MISTRAL   /* params.json: dim, n_layers */
} ssm__schema;

/* The family that a key names; not given: the tensors decide. */
typedef struct ssm__claim_family {
    const char *key;  /* "model_type", "ssm_cfg.layer", "architectures[0]" */
    const char *text; /* what it says; lives as long as the claims */
    ssm_family value;
} ssm__claim_family;

typedef struct ssm__claims {
    json_t *root; /* owns every text */
    ssm__schema schema;
    ssm__claim_family family;
    ssm__claim hidden_size, n_layers, intermediate_size, state_size, conv_kernel, vocab_size;
    ssm__claim vocab_multiple;
    ssm__claim dt_rank;
    bool dt_rank_auto; /* "auto": ceil(d_model / 16); dt_rank.value is not set */
    ssm__claim n_heads, head_dim, n_groups, d_ssm;
    ssm__claim d_mlp; /* before rounding up to a multiple of 128; may be 0 */
    ssm__claim_number expand, norm_eps, mixer_eps;
    ssm__claim_flag use_bias, use_conv_bias, tied;
    ssm__claim_flag rms_norm; /* of the blocks; false: LayerNorm */
    ssm__claim_flag gated_norm, norm_before_gate, D_per_channel;
    ssm__claim_limits dt_limits;
    /* attn_layer_idx and attn_cfg; has_attention: either names a layer of attention */
    bool has_attention;
    ssm__claim n_query_heads, n_kv_heads, attention_head_dim, attention_conv, rotary_dim;
    ssm__claim_number rotary_base, softmax_scale;
    ssm__claim_flag rotary_interleaved, qkv_bias, attention_out_bias;
    ssm__claim bos_id, eos_id, pad_id;
} ssm__claims;

/* Reads a configuration of Hugging Face (mamba, falcon_mamba, mamba2), of the original state-spaces
 * code, or a Mistral params.json. Other families, and settings that would change the numbers in a
 * way this library does not compute, are refused by name; settings that do not matter here are
 * ignored, unknown ones are noted. Owner: the caller, ssm__claims_free, also after an error.
 * Errors: FILE, MEMORY. */
ssm_status ssm__claims_read(const char *path, ssm__claims *out, ssm__notes *notes, ssm_error *err);
/* The same from `bytes` bytes of text; path is for messages. */
ssm_status ssm__claims_parse(const char *path, const char *text, size_t bytes, ssm__claims *out,
                             ssm__notes *notes, ssm_error *err);
/* The ids of bos, eos and pad from a generation_config.json, for schemas without them. */
ssm_status ssm__claims_read_ids(const char *path, ssm__claims *claims, ssm__notes *notes,
                                ssm_error *err);
void ssm__claims_free(ssm__claims *claims);

/* The value of a key, "ssm_cfg.d_state" for one inside an object; NULL where absent or null. */
const json_t *ssm__claims_value(const json_t *root, const char *key);
/* A key's value as compact JSON, cut to size. */
void ssm__claim_text(const json_t *value, char *out, size_t size);
/* Does attn_layer_idx name the layer? False where there is no such list. */
bool ssm__claims_attention_at(const ssm__claims *claims, int64_t layer);

#endif
