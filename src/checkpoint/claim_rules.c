#include "checkpoint/claim_rules.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

void ssm__claim_text(const json_t *value, char *out, size_t size)
{
    char *text = ssm__json_print(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    snprintf(out, size, "%s", text == NULL ? "?" : text);
    if (text != NULL && strlen(text) >= size && size > 4) {
        size_t cut = size - 4;
        while (cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80) {
            cut--; /* do not cut a character */
        }
        snprintf(out + cut, size - cut, "...");
    }
    free(text);
}

/* ---- the family ------------------------------------------------------------------------------ */

static ssm_status no_model_type(const char *path, const json_t *root, ssm_error *err)
{
    bool original =
        json_object_get(root, "d_model") != NULL &&
        (json_object_get(root, "n_layer") != NULL || json_object_get(root, "ssm_cfg") != NULL);
    if (original) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, "model_type"),
                         "this is a configuration of the original state-spaces code (d_model, "
                         "n_layer, ssm_cfg); this version reads the Hugging Face layout "
                         "(model_type \"mamba\"), e.g. the repositories whose names end in -hf");
    }
    if (json_object_get(root, "dim") != NULL && json_object_get(root, "n_layers") != NULL) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, "model_type"),
                         "this is a Mistral params.json (dim, n_layers); this version reads the "
                         "Hugging Face layout of model_type \"mamba\"");
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, "model_type"),
                     "config.json has no model_type; it decides between families whose tensors "
                     "look alike: add \"model_type\": \"mamba\" if that is what the model is");
}

ssm_status ssm__claims_check_family(const char *path, const json_t *root, ssm_error *err)
{
    const json_t *value = json_object_get(root, "model_type");
    if (value == NULL || json_is_null(value)) {
        return no_model_type(path, root, err);
    }
    if (!json_is_string(value)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, "model_type"),
                         "model_type is not a string; expected \"mamba\"");
    }
    const char *type = json_string_value(value);
    if (strcmp(type, "mamba") == 0) {
        return SSM_STATUS_OK;
    }
    if (strcmp(type, "falcon_mamba") == 0 || strcmp(type, "mamba2") == 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, "model_type"),
                         "model_type \"%s\" is not supported by this version; it runs \"mamba\"",
                         type);
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, "model_type"),
                     "unknown model_type \"%s\"; expected \"mamba\"", type);
}

/* ---- settings -------------------------------------------------------------------------------- */

typedef enum rule {
    MUST_TRUE,  /* false is refused */
    MUST_UNSET, /* anything but null, false, 0, "", [] and {} is refused */
    ACTIVATION, /* "silu" or its other name "swish" */
    DT_LIMITS   /* [0, Infinity] does nothing; other limits are refused */
} rule;

typedef struct setting {
    const char *key;
    rule rule;
    const char *reason;
} setting;

static const setting settings[] = {
    {"hidden_act", ACTIVATION, "only SiLU is computed"},
    {"residual_in_fp32", MUST_TRUE, "the residual stream is kept in float32"},
    {"rms_norm", MUST_TRUE, "only RMSNorm is computed, not LayerNorm"},
    {"time_step_limit", DT_LIMITS, "the mamba family has no limits on the time step"},
    {"dt_limit", DT_LIMITS, "the mamba family has no limits on the time step"},
    {"mixer_rms_eps", MUST_UNSET, "norms inside the mixer belong to model_type \"falcon_mamba\""},
    {"attn_layer_idx", MUST_UNSET, "layers of attention are not computed"},
    {"attn_layer_indices", MUST_UNSET, "layers of attention are not computed"},
    {"attn_cfg", MUST_UNSET, "layers of attention are not computed"},
    {"layers_block_type", MUST_UNSET, "hybrid models are not computed"},
    {"layer_types", MUST_UNSET, "hybrid models are not computed"},
    {"hybrid_override_pattern", MUST_UNSET, "hybrid models are not computed"},
    {"num_attention_heads", MUST_UNSET, "layers of attention are not computed"},
    {"num_experts", MUST_UNSET, "mixtures of experts are not computed"},
    {"num_local_experts", MUST_UNSET, "mixtures of experts are not computed"},
    {"d_intermediate", MUST_UNSET, "MLP blocks between the mixers are not computed"},
    {"quantization_config", MUST_UNSET, "quantised weights are not read"},
    {"embedding_multiplier", MUST_UNSET, "scaled embeddings are not computed"},
    {"residual_multiplier", MUST_UNSET, "scaled residuals are not computed"},
    {"logits_scaling", MUST_UNSET, "scaled logits are not computed"},
};

/* Keys that are compared with the tensors, and keys that change no number. */
static const char *const known_keys[] = {
    "model_type", "hidden_size", "d_model", "dim", "num_hidden_layers", "n_layer", "n_layers",
    "intermediate_size", "d_inner", "state_size", "d_state", "ssm_state_size", "conv_kernel",
    "d_conv", "vocab_size", "time_step_rank", "dt_rank", "expand", "layer_norm_epsilon",
    "rms_norm_eps", "norm_epsilon", "use_bias", "bias", "use_conv_bias", "conv_bias",
    "tie_word_embeddings", "tie_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",
    /* initialisation, training, caches, bookkeeping */
    "architectures", "_name_or_path", "name_or_path", "transformers_version", "torch_dtype",
    "dtype", "auto_map", "initializer_range", "rescale_prenorm_residual", "time_step_min",
    "time_step_max", "time_step_floor", "time_step_scale", "time_step_init_scheme", "use_cache",
    "use_mambapy", "use_falcon_mambapy", "use_associative_scan", "fused_add_norm",
    "pad_vocab_size_multiple", "ssm_cfg", "return_dict", "output_hidden_states",
    "output_attentions", "max_position_embeddings", "gradient_checkpointing"};

static bool is_known(const char *key)
{
    for (size_t i = 0; i < sizeof known_keys / sizeof known_keys[0]; i++) {
        if (strcmp(key, known_keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

static const setting *find_setting(const char *key)
{
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        if (strcmp(key, settings[i].key) == 0) {
            return &settings[i];
        }
    }
    return NULL;
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

static bool limits_do_nothing(const json_t *value)
{
    double low;
    double high;
    return json_array_size(value) == 2 && ssm__json_number(json_array_get(value, 0), &low) &&
           ssm__json_number(json_array_get(value, 1), &high) && low <= 0 && isinf(high) && high > 0;
}

static bool is_accepted(const setting *rule_of, const json_t *value)
{
    if (json_is_null(value)) {
        return true;
    }
    const char *text = json_string_value(value);
    switch (rule_of->rule) {
    case MUST_TRUE:
        return json_is_true(value);
    case MUST_UNSET:
        return is_unset(value);
    case ACTIVATION:
        return text != NULL && (strcmp(text, "silu") == 0 || strcmp(text, "swish") == 0);
    case DT_LIMITS:
        return limits_do_nothing(value);
    }
    return false;
}

ssm_status ssm__claims_check_settings(const char *path, const json_t *root, ssm__notes *notes,
                                      ssm_error *err)
{
    ssm__list_text unknown = {0};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        const setting *found = find_setting(key);
        if (found == NULL) {
            if (!is_known(key)) {
                ssm__list_add(&unknown, "%s", key);
            }
        } else if (!is_accepted(found, value)) {
            char text[64];
            ssm__claim_text(value, text, sizeof text);
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, key),
                             "config.json says %s = %s, which is not supported: %s", key, text,
                             found->reason);
        }
    }
    if (unknown.total == 0) {
        return SSM_STATUS_OK;
    }
    return ssm__note(notes, err, "Unknown keys of config.json are ignored: %s.",
                     ssm__list_end(&unknown));
}
