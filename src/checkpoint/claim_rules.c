#include "checkpoint/claim_rules.h"

#include <string.h>

#include "base/error.h"
#include "base/json.h"

/* ---- the family ------------------------------------------------------------------------------ */

typedef struct family_name {
    const char *text;
    ssm_family family;
} family_name;

static const family_name model_types[] = {{"mamba", SSM_FAMILY_MAMBA},
                                          {"falcon_mamba", SSM_FAMILY_FALCON_MAMBA},
                                          {"mamba2", SSM_FAMILY_MAMBA2}};
static const family_name layers[] = {{"Mamba1", SSM_FAMILY_MAMBA}, {"Mamba2", SSM_FAMILY_MAMBA2}};
static const family_name architectures[] = {{"MambaForCausalLM", SSM_FAMILY_MAMBA},
                                            {"FalconMambaForCausalLM", SSM_FAMILY_FALCON_MAMBA},
                                            {"Mamba2ForCausalLM", SSM_FAMILY_MAMBA2}};
enum { FAMILIES = 3, LAYERS = 2 };

static bool take_family(ssm__claims *claims, const char *key, const char *text,
                        const family_name *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(text, names[i].text) == 0) {
            claims->family = (ssm__claim_family){key, text, names[i].family};
            return true;
        }
    }
    return false;
}

static ssm__schema schema_of(const json_t *root)
{
    if (ssm__claims_value(root, "dim") != NULL && ssm__claims_value(root, "n_layers") != NULL) {
        return SSM__SCHEMA_MISTRAL;
    }
    bool original =
        ssm__claims_value(root, "d_model") != NULL &&
        ssm__claims_value(root, "hidden_size") == NULL &&
        (ssm__claims_value(root, "n_layer") != NULL || ssm__claims_value(root, "ssm_cfg") != NULL);
    return original ? SSM__SCHEMA_ORIGINAL : SSM__SCHEMA_HF;
}

static ssm_status family_of_model_type(const char *path, ssm__claims *claims, const json_t *value,
                                       ssm_error *err)
{
    if (!json_is_string(value)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, "model_type"),
                         "model_type is not a string; expected \"mamba\", \"falcon_mamba\" or "
                         "\"mamba2\"");
    }
    const char *type = json_string_value(value);
    if (strcmp(type, "ssmscope") == 0) { /* src/train/model_write.c */
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, "model_type"),
                         "\"ssmscope\" is a trained network that no published layout can hold (its "
                         "mixers, norms or head); `train --resume` goes on with it, nothing else "
                         "reads it; expected mamba, falcon_mamba or mamba2");
    }
    if (!take_family(claims, "model_type", type, model_types, FAMILIES)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, "model_type"),
                         "unknown model_type \"%s\"; expected mamba, falcon_mamba or mamba2", type);
    }
    return SSM_STATUS_OK;
}

/* The original code's ssm_cfg.layer: "Mamba1" (its default), "Mamba2", "Mamba3". */
static ssm_status family_of_layer(const char *path, ssm__claims *claims, ssm_error *err)
{
    const json_t *value = ssm__claims_value(claims->root, "ssm_cfg.layer");
    if (value == NULL) {
        return SSM_STATUS_OK;
    }
    const char *layer = json_is_string(value) ? json_string_value(value) : "";
    if (take_family(claims, "ssm_cfg.layer", layer, layers, LAYERS)) {
        return SSM_STATUS_OK;
    }
    if (strcmp(layer, "Mamba3") == 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, "ssm_cfg.layer"),
                         "Mamba-3 is not supported yet: layer 0 is Mamba3");
    }
    char text[64];
    ssm__claim_text(value, text, sizeof text);
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, "ssm_cfg.layer"),
                     "config.json says ssm_cfg.layer = %s; expected \"Mamba1\" or \"Mamba2\"",
                     text);
}

ssm_status ssm__claims_family(const char *path, ssm__claims *claims, ssm_error *err)
{
    const json_t *root = claims->root;
    SSM__TRY(ssm__claims_refuse_hybrid(path, root, err));
    claims->schema = schema_of(root);
    if (claims->schema == SSM__SCHEMA_MISTRAL) {
        return SSM_STATUS_OK; /* its model_type "mamba" means Mamba-2: the tensors decide */
    }
    const json_t *type = ssm__claims_value(root, "model_type");
    if (type != NULL) {
        return family_of_model_type(path, claims, type, err);
    }
    SSM__TRY(family_of_layer(path, claims, err));
    const char *first = json_string_value(
        json_array_get(ssm__claims_value(root, "architectures"), 0)); /* NULL: none */
    if (claims->family.key == NULL && first != NULL) {
        take_family(claims, "architectures", first, architectures, FAMILIES);
    }
    return SSM_STATUS_OK;
}

/* ---- settings -------------------------------------------------------------------------------- */

typedef enum rule {
    MUST_TRUE,  /* false is refused */
    MUST_UNSET, /* anything but null, false, 0, "", [] and {} is refused */
    ACTIVATION  /* "silu" or its other name "swish" */
} rule;

typedef struct setting {
    const char *key;
    rule rule;
    const char *reason;
} setting;

static const setting settings[] = {
    {"hidden_act", ACTIVATION, "only SiLU is computed"},
    {"ssm_cfg.activation", ACTIVATION, "only SiLU is computed"},
    {"residual_in_fp32", MUST_TRUE, "the residual stream is kept in float32"},
    {"attn_cfg.causal", MUST_TRUE, "only causal attention is computed"},
    {"attn_cfg.mlp_dim", MUST_UNSET, "an MLP inside the attention layer is not computed"},
    {"attn_cfg.dwconv", MUST_UNSET, "this form of attention is not computed"},
    {"num_attention_heads", MUST_UNSET, "layers of attention of this form are not computed"},
    {"num_experts", MUST_UNSET, "mixtures of experts are not computed"},
    {"num_local_experts", MUST_UNSET, "mixtures of experts are not computed"},
    {"quantization_config", MUST_UNSET, "quantised weights are not read"},
    {"embedding_multiplier", MUST_UNSET, "scaled embeddings are not computed"},
    {"residual_multiplier", MUST_UNSET, "scaled residuals are not computed"},
    {"logits_scaling", MUST_UNSET, "scaled logits are not computed"},
};

/* Keys that are compared with the tensors, and keys that change no number. */
static const char *const known_keys[] = {
    "model_type", "hidden_size", "d_model", "dim", "num_hidden_layers", "n_layer", "n_layers",
    "intermediate_size", "d_inner", "state_size", "d_state", "ssm_state_size", "mamba_d_state",
    "conv_kernel", "d_conv", "mamba_d_conv", "vocab_size", "pad_vocab_size_multiple",
    "time_step_rank", "dt_rank", "expand", "num_heads", "n_mamba_heads", "mamba_n_heads",
    "mamba_num_heads", "head_dim", "headdim", "mamba_d_head", "mamba_headdim", "mamba_head_dim",
    "n_groups", "ngroups", "mamba_ngroups", "mamba_n_groups", "d_ssm", "d_intermediate",
    "layer_norm_epsilon", "rms_norm_eps", "norm_epsilon", "mixer_rms_eps", "time_step_limit",
    "dt_limit", "mamba_dt_limit", "use_bias", "bias", "mamba_proj_bias", "use_conv_bias",
    "conv_bias", "mamba_conv_bias", "tie_word_embeddings", "tie_embeddings", "rms_norm", "rmsnorm",
    "mamba_rms_norm", "norm_before_gate", "mamba_norm_before_gate", "D_has_hdim", "attn_layer_idx",
    "bos_token_id", "eos_token_id", "pad_token_id",
    /* initialisation, training, caches, bookkeeping */
    "architectures", "_name_or_path", "name_or_path", "transformers_version", "torch_dtype",
    "dtype", "auto_map", "initializer_range", "rescale_prenorm_residual", "time_step_min",
    "time_step_max", "time_step_floor", "time_step_scale", "time_step_init_scheme", "use_cache",
    "use_mambapy", "use_falcon_mambapy", "use_associative_scan", "fused_add_norm", "chunk_size",
    "return_dict", "output_hidden_states", "output_attentions", "max_position_embeddings",
    "gradient_checkpointing",
    /* hybrids: refused where they name a layer that is not computed */
    "layers_block_type", "layer_types", "hybrid_override_pattern", "attn_layer_indices"};

static const char *const known_ssm_keys[] = {
    "layer", "d_state", "d_conv", "expand", "headdim", "d_ssm", "ngroups", "D_has_hdim", "rmsnorm",
    "norm_before_gate", "dt_limit", "dt_rank", "bias", "conv_bias",
    /* initialisation, kernels, parallelism */
    "A_init_range", "conv_init", "dt_min", "dt_max", "dt_init", "dt_scale", "dt_init_floor",
    "chunk_size", "use_fast_path", "use_mem_eff_path", "process_group", "sequence_parallel",
    "layer_idx", "device", "dtype"};

static const char *const known_attention_keys[] = {"num_heads",
                                                   "num_heads_kv",
                                                   "head_dim",
                                                   "d_conv",
                                                   "rotary_emb_dim",
                                                   "rotary_emb_base",
                                                   "rotary_emb_interleaved",
                                                   "softmax_scale",
                                                   "qkv_proj_bias",
                                                   "out_proj_bias",
                                                   "layer_idx",
                                                   "device",
                                                   "dtype"};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static bool is_one_of(const char *key, const char *const *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(key, keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_unset(const json_t *value)
{
    double number;
    if (ssm__json_number(value, &number)) {
        return number == 0;
    }
    return json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static bool is_accepted(rule rule_of, const json_t *value)
{
    const char *text = json_string_value(value);
    switch (rule_of) {
    case MUST_TRUE:
        return json_is_true(value);
    case MUST_UNSET:
        return is_unset(value);
    case ACTIVATION:
        return text != NULL && (strcmp(text, "silu") == 0 || strcmp(text, "swish") == 0);
    }
    return false;
}

static bool is_setting(const char *object, const char *key)
{
    for (size_t i = 0; i < COUNT(settings); i++) {
        const char *name = settings[i].key;
        size_t length = strlen(object);
        if (strncmp(name, object, length) == 0 && strcmp(name + length, key) == 0) {
            return true;
        }
    }
    return false;
}

static void list_unknown(const json_t *object, const char *prefix, const char *const *known,
                         size_t count, ssm__list_text *unknown)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        bool inner =
            prefix[0] == '\0' && (strcmp(key, "ssm_cfg") == 0 || strcmp(key, "attn_cfg") == 0);
        if (!inner && !is_one_of(key, known, count) && !is_setting(prefix, key)) {
            ssm__list_add(unknown, "%s%s", prefix, key);
        }
    }
}

ssm_status ssm__claims_check_settings(const char *path, const json_t *root, ssm__notes *notes,
                                      ssm_error *err)
{
    for (size_t i = 0; i < COUNT(settings); i++) {
        const json_t *value = ssm__claims_value(root, settings[i].key);
        if (value != NULL && !is_accepted(settings[i].rule, value)) {
            char text[64];
            ssm__claim_text(value, text, sizeof text);
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, settings[i].key),
                             "config.json says %s = %s, which is not supported: %s",
                             settings[i].key, text, settings[i].reason);
        }
    }
    ssm__list_text unknown = {0};
    list_unknown(root, "", known_keys, COUNT(known_keys), &unknown);
    list_unknown(json_object_get(root, "ssm_cfg"), "ssm_cfg.", known_ssm_keys,
                 COUNT(known_ssm_keys), &unknown);
    list_unknown(json_object_get(root, "attn_cfg"), "attn_cfg.", known_attention_keys,
                 COUNT(known_attention_keys), &unknown);
    if (unknown.total == 0) {
        return SSM_STATUS_OK;
    }
    return ssm__note(notes, err, "Unknown keys of config.json are ignored: %s.",
                     ssm__list_end(&unknown));
}
