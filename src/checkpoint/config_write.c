/* Keys: transformers 4.57 (configuration_mamba, _falcon_mamba, _mamba2) and state-spaces/mamba
 * (MambaConfig, whose constructor knows no other keys). Everything written is strict JSON: where a
 * limit of the step size has no upper end it is the largest float32, which limits nothing. */
#include "checkpoint/config_write.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

enum { CHUNK_SIZE = 256 }; /* both codes' default; it changes no number */

/* An object that is being filled; failed: out of memory. */
typedef struct object {
    json_t *json;
    bool failed;
} object;

static object new_object(void)
{
    json_t *json = json_object();
    return (object){json, json == NULL};
}

static void put(object *out, const char *key, json_t *value)
{
    out->failed = json_object_set_new(out->json, key, value) != 0 || out->failed;
}

static void put_size(object *out, const char *key, int64_t value)
{
    put(out, key, json_integer((json_int_t)value));
}

static void put_flag(object *out, const char *key, bool value)
{
    put(out, key, json_boolean(value));
}

static void put_object(object *out, const char *key, object *inner)
{
    out->failed = inner->failed || out->failed;
    put(out, key, inner->json);
}

static void put_id(object *out, const char *key, int64_t id)
{
    put(out, key, id < 0 ? json_null() : json_integer((json_int_t)id));
}

/* The number x with int(x · d_model) = d_inner, whole where it can be: d_inner / d_model, rounded
 * up where the rounded product would fall short. */
static void put_expand(object *out, const ssm_config *config)
{
    if (config->d_inner % config->d_model == 0) {
        put_size(out, "expand", config->d_inner / config->d_model);
        return;
    }
    double expand = (double)config->d_inner / (double)config->d_model;
    while (floor(expand * (double)config->d_model) < (double)config->d_inner) {
        expand = nextafter(expand, (double)INFINITY);
    }
    put(out, "expand", json_real(expand));
}

/* Left out where both ends do nothing: that is both codes' default. */
static void put_limits(object *out, const char *key, const ssm_config *config)
{
    if (config->dt_limit_low <= 0 && isinf(config->dt_limit_high)) {
        return;
    }
    double high = isinf(config->dt_limit_high) ? (double)FLT_MAX : config->dt_limit_high;
    put(out, key, json_pack("[f, f]", config->dt_limit_low, high));
}

/* ---- Hugging Face ---------------------------------------------------------------------------- */

static const char *torch_dtype(ssm_dtype dtype)
{
    return dtype == SSM_DTYPE_F32 ? "float32" : dtype == SSM_DTYPE_F16 ? "float16" : "bfloat16";
}

static const char *architecture(ssm_family family)
{
    static const char *const names[] = {[SSM_FAMILY_MAMBA] = "MambaForCausalLM",
                                        [SSM_FAMILY_FALCON_MAMBA] = "FalconMambaForCausalLM",
                                        [SSM_FAMILY_MAMBA2] = "Mamba2ForCausalLM"};
    return names[family];
}

static void put_hf_mixer(object *out, const ssm_config *config)
{
    put_size(out, "state_size", config->d_state);
    if (config->family == SSM_FAMILY_MAMBA2) {
        put_size(out, "num_heads", config->n_heads);
        put_size(out, "head_dim", config->head_dim);
        put_size(out, "n_groups", config->n_groups);
        put_size(out, "chunk_size", CHUNK_SIZE);
        put_flag(out, "rms_norm", true);
        put_limits(out, "time_step_limit", config);
    } else {
        put_size(out, "time_step_rank", config->dt_rank);
    }
    if (config->family == SSM_FAMILY_FALCON_MAMBA) {
        put(out, "mixer_rms_eps", json_real(config->mixer_norm_eps));
    }
}

static object build_hf(const ssm__written_config *written)
{
    const ssm_config *config = written->config;
    object out = new_object();
    put(&out, "architectures", json_pack("[s]", architecture(config->family)));
    put(&out, "model_type", json_string(ssm_family_name(config->family)));
    put_size(&out, "vocab_size", config->vocab_size);
    put_size(&out, "hidden_size", config->d_model);
    put_size(&out, "num_hidden_layers", config->n_layers);
    if (config->family != SSM_FAMILY_MAMBA2) {
        put_size(&out, "intermediate_size", config->d_inner);
    }
    put_expand(&out, config);
    put_hf_mixer(&out, config);
    put_size(&out, "conv_kernel", config->d_conv);
    put(&out, "layer_norm_epsilon", json_real(config->norm_eps));
    put_flag(&out, "use_bias", written->use_bias);
    put_flag(&out, "use_conv_bias", written->use_conv_bias);
    put(&out, "hidden_act", json_string("silu"));
    put_flag(&out, "residual_in_fp32", true);
    put_flag(&out, "tie_word_embeddings", config->tied);
    put(&out, "torch_dtype", json_string(torch_dtype(written->dtype)));
    put_id(&out, "bos_token_id", config->bos_id);
    put_id(&out, "eos_token_id", config->eos_id);
    put_id(&out, "pad_token_id", config->pad_id);
    return out;
}

/* ---- the original code ----------------------------------------------------------------------- */

static object build_ssm_cfg(const ssm__written_config *written)
{
    const ssm_config *config = written->config;
    const bool mamba2 = config->family == SSM_FAMILY_MAMBA2;
    object out = new_object();
    if (config->d_inner == 0) {
        return out; /* all layers are attention */
    }
    if (mamba2) { /* Mamba1 is the default; old versions of the code know no other */
        put(&out, "layer", json_string("Mamba2"));
    }
    put_size(&out, "d_state", config->d_state);
    put_size(&out, "d_conv", config->d_conv);
    put_expand(&out, config);
    put_flag(&out, "bias", written->use_bias);
    put_flag(&out, "conv_bias", written->use_conv_bias);
    if (!mamba2) {
        put_size(&out, "dt_rank", config->dt_rank);
        return out;
    }
    put_size(&out, "headdim", config->head_dim);
    put_size(&out, "ngroups", config->n_groups);
    if (config->d_ssm < config->d_inner) {
        put_size(&out, "d_ssm", config->d_ssm);
    }
    put_flag(&out, "D_has_hdim", config->D_per_channel);
    put_flag(&out, "rmsnorm", config->gated_norm);
    put_flag(&out, "norm_before_gate", config->norm_before_gate);
    put_limits(&out, "dt_limit", config);
    put_size(&out, "chunk_size", CHUNK_SIZE);
    return out;
}

static object build_attn_cfg(const ssm__written_config *written)
{
    const ssm_config *config = written->config;
    object out = new_object();
    if (written->n_attention == 0) {
        return out;
    }
    put_flag(&out, "causal", true);
    put_size(&out, "d_conv", config->attention_conv);
    put_size(&out, "head_dim", config->attention_head_dim);
    put_size(&out, "num_heads", config->n_query_heads);
    put_size(&out, "num_heads_kv", config->n_kv_heads);
    put_flag(&out, "qkv_proj_bias", written->qkv_bias);
    put_flag(&out, "out_proj_bias", written->attention_out_bias);
    put_size(&out, "rotary_emb_dim", config->rotary_dim);
    put(&out, "rotary_emb_base", json_real(config->rotary_base));
    put_flag(&out, "rotary_emb_interleaved", config->rotary_interleaved);
    if (config->softmax_scale != 1.0 / sqrt((double)config->attention_head_dim)) {
        put(&out, "softmax_scale", json_real(config->softmax_scale));
    }
    return out;
}

static object build_original(const ssm__written_config *written)
{
    const ssm_config *config = written->config;
    object out = new_object();
    object ssm_cfg = build_ssm_cfg(written);
    object attn_cfg = build_attn_cfg(written);
    put_size(&out, "d_model", config->d_model);
    put_size(&out, "d_intermediate", config->d_mlp);
    put_size(&out, "n_layer", config->n_layers);
    put_size(&out, "vocab_size", config->vocab_size);
    put_object(&out, "ssm_cfg", &ssm_cfg);
    json_t *layers = json_array();
    for (int64_t i = 0; i < written->n_attention; i++) {
        json_t *layer = json_integer((json_int_t)written->attention_layers[i]);
        out.failed = json_array_append_new(layers, layer) != 0 || out.failed;
    }
    put(&out, "attn_layer_idx", layers);
    put_object(&out, "attn_cfg", &attn_cfg);
    put_flag(&out, "rms_norm", !config->layer_norm);
    put_flag(&out, "residual_in_fp32", true);
    put_flag(&out, "fused_add_norm", true);
    put_size(&out, "pad_vocab_size_multiple", 1);
    put_flag(&out, "tie_embeddings", config->tied);
    return out;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The digits that a real number needs to be read back exactly, at least `least`. */
static size_t digits_of(double value, size_t least)
{
    for (size_t digits = least; digits < 17; digits++) {
        char text[64];
        snprintf(text, sizeof text, "%.*g", (int)digits, value);
        if (strtod(text, NULL) == value) {
            return digits;
        }
    }
    return 17;
}

/* The fewest that do for every real of a value: 1e-05, not 1.0000000000000001e-05. Not recursive:
 * the objects written here are two deep. */
static size_t digits_needed(const json_t *value)
{
    size_t digits = 15;
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)(uintptr_t)value, key, member)
    {
        size_t own = digits;
        if (json_is_real(member)) {
            own = digits_of(json_real_value(member), digits);
        }
        for (size_t i = 0; i < json_array_size(member); i++) {
            const json_t *element = json_array_get(member, i);
            own = json_is_real(element) ? digits_of(json_real_value(element), own) : own;
        }
        digits = own > digits ? own : digits;
    }
    return digits;
}

static size_t digits_of_all(const json_t *root)
{
    const size_t own = digits_needed(root);
    const size_t ssm = digits_needed(json_object_get(root, "ssm_cfg"));
    const size_t attention = digits_needed(json_object_get(root, "attn_cfg"));
    const size_t most = own > ssm ? own : ssm;
    return most > attention ? most : attention;
}

static ssm_status write_object(object *built, const char *directory, const char *name,
                               ssm_error *err)
{
    const size_t digits = digits_of_all(built->json);
    if (built->failed) {
        json_decref(built->json);
        built->json = NULL;
    }
    return ssm__json_write(built->json, JSON_INDENT(2) | JSON_REAL_PRECISION(digits), directory,
                           name, err);
}

ssm_status ssm__hf_config_write(const ssm__written_config *written, const char *directory,
                                ssm_error *err)
{
    object built = build_hf(written);
    return write_object(&built, directory, "config.json", err);
}

ssm_status ssm__original_config_write(const ssm__written_config *written, const char *directory,
                                      ssm_error *err)
{
    const ssm_config *config = written->config;
    object built = build_original(written);
    SSM__TRY(write_object(&built, directory, "config.json", err));
    if (config->bos_id < 0 && config->eos_id < 0 && config->pad_id < 0) {
        return SSM_STATUS_OK;
    }
    object ids = new_object();
    put_id(&ids, "bos_token_id", config->bos_id);
    put_id(&ids, "eos_token_id", config->eos_id);
    put_id(&ids, "pad_token_id", config->pad_id);
    return write_object(&ids, directory, "generation_config.json", err);
}
