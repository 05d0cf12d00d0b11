/* Names and defaults: Hugging Face transformers (configuration_mamba, _falcon_mamba, _mamba2), the
 * state-spaces code (MambaConfig, Mamba, Mamba2, MHA), Mistral's params.json; aliases as other
 * projects write them. A key with the value null counts as absent, as it does there. */
#include "checkpoint/claims.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/foreign.h"
#include "base/json.h"
#include "checkpoint/claim_rules.h"

enum { ALIASES = 6 };

typedef struct reader {
    const char *path;
    const json_t *root;
    ssm__notes *notes;
    ssm_error *err;
} reader;

/* ---- single values --------------------------------------------------------------------------- */

void ssm__claim_text(const json_t *value, char *out, size_t size)
{
    char *text = ssm__json_print(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    const char *from = text == NULL ? "?" : text;
    double number;
    if (!json_is_number(value) && ssm__json_number(value, &number)) {
        from =
            json_string_value(json_object_get(value, "__float__")); /* as it stands in the file */
    }
    size_t length = strlen(from);
    if (length < size) {
        memcpy(out, from, length + 1);
    } else {
        size_t cut = size - 4;
        while (cut > 0 && ((unsigned char)from[cut] & 0xc0) == 0x80) {
            cut--; /* do not cut a character */
        }
        memcpy(out, from, cut);
        memcpy(out + cut, "...", 4);
    }
    free(text);
}

const json_t *ssm__claims_value(const json_t *root, const char *key)
{
    char object[32];
    const char *dot = strchr(key, '.');
    if (dot != NULL && (size_t)(dot - key) < sizeof object) {
        memcpy(object, key, (size_t)(dot - key));
        object[dot - key] = '\0';
        root = json_object_get(root, object);
        key = dot + 1;
    }
    const json_t *value = json_object_get(root, key);
    return json_is_null(value) ? NULL : value;
}

/* The first of the spellings that is given; a later one that disagrees is noted and ignored. */
static ssm_status find_alias(const reader *in, const char *const keys[ALIASES], const char **key,
                             const json_t **value)
{
    *key = NULL;
    *value = NULL;
    for (int i = 0; i < ALIASES && keys[i] != NULL; i++) {
        const json_t *found = ssm__claims_value(in->root, keys[i]);
        if (found == NULL) {
            continue;
        }
        if (*key == NULL) {
            *key = keys[i];
            *value = found;
        } else if (!json_equal(found, *value)) {
            char first[64];
            char second[64];
            ssm__claim_text(*value, first, sizeof first);
            ssm__claim_text(found, second, sizeof second);
            SSM__TRY(ssm__note(in->notes, in->err,
                               "config.json says both %s = %s and %s = %s; the first is compared "
                               "with the tensors, the second is ignored.",
                               *key, first, keys[i], second));
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status wrong_value(const reader *in, const char *key, const json_t *value,
                              const char *expected)
{
    char text[64];
    ssm__claim_text(value, text, sizeof text);
    return ssm__fail(in->err, SSM_STATUS_FILE, SSM__TENSOR(in->path, key),
                     "config.json says %s = %s; expected %s", key, text, expected);
}

static ssm_status read_whole(const reader *in, const char *const keys[ALIASES], int least,
                             ssm__claim *out)
{
    const json_t *value;
    SSM__TRY(find_alias(in, keys, &out->key, &value));
    if (value == NULL) {
        return SSM_STATUS_OK;
    }
    if (!json_is_integer(value) || json_integer_value(value) < least) {
        return wrong_value(in, out->key, value,
                           least == 0 ? "a whole number of 0 or more"
                                      : "a whole number of 1 or more");
    }
    out->value = (int64_t)json_integer_value(value);
    return SSM_STATUS_OK;
}

static ssm_status read_number(const reader *in, const char *const keys[ALIASES],
                              ssm__claim_number *out)
{
    const json_t *value;
    SSM__TRY(find_alias(in, keys, &out->key, &value));
    if (value == NULL) {
        return SSM_STATUS_OK;
    }
    if (!ssm__json_number(value, &out->value) || !isfinite((float)out->value) ||
        (float)out->value <= 0) { /* it is used in float32 */
        return wrong_value(in, out->key, value, "a finite number above 0");
    }
    return SSM_STATUS_OK;
}

static ssm_status read_flag(const reader *in, const char *const keys[ALIASES], ssm__claim_flag *out)
{
    const json_t *value;
    SSM__TRY(find_alias(in, keys, &out->key, &value));
    if (value == NULL) {
        return SSM_STATUS_OK;
    }
    if (!json_is_boolean(value)) {
        return wrong_value(in, out->key, value, "true or false");
    }
    out->value = json_is_true(value);
    return SSM_STATUS_OK;
}

/* A token id; a negative one means none. Of a list the first counts. */
static ssm_status read_id(const reader *in, const char *key, ssm__claim *out)
{
    out->value = -1;
    const json_t *value = ssm__claims_value(in->root, key);
    if (json_is_array(value) && json_array_size(value) > 0) {
        if (json_array_size(value) > 1) {
            SSM__TRY(ssm__note(in->notes, in->err,
                               "config.json lists several values of %s; the first is used.", key));
        }
        value = json_array_get(value, 0);
    }
    if (value == NULL) {
        return SSM_STATUS_OK;
    }
    if (!json_is_integer(value)) {
        return wrong_value(in, key, value, "a token id");
    }
    if (json_integer_value(value) >= 0) {
        out->key = key;
        out->value = (int64_t)json_integer_value(value);
    }
    return SSM_STATUS_OK;
}

static ssm_status read_ids(const reader *in, ssm__claims *out)
{
    SSM__TRY(read_id(in, "bos_token_id", &out->bos_id));
    SSM__TRY(read_id(in, "eos_token_id", &out->eos_id));
    return read_id(in, "pad_token_id", &out->pad_id);
}

/* A number, or "auto". */
static ssm_status read_dt_rank(const reader *in, ssm__claims *out)
{
    static const char *const keys[ALIASES] = {"time_step_rank", "dt_rank", "ssm_cfg.dt_rank"};
    const json_t *value;
    SSM__TRY(find_alias(in, keys, &out->dt_rank.key, &value));
    if (json_is_string(value) && strcmp(json_string_value(value), "auto") == 0) {
        out->dt_rank_auto = true;
        return SSM_STATUS_OK;
    }
    return read_whole(in, keys, 1, &out->dt_rank);
}

static ssm_status read_limits(const reader *in, ssm__claim_limits *out)
{
    static const char *const keys[ALIASES] = {"time_step_limit", "dt_limit", "mamba_dt_limit",
                                              "ssm_cfg.dt_limit"};
    const json_t *value;
    SSM__TRY(find_alias(in, keys, &out->key, &value));
    if (value == NULL) {
        return SSM_STATUS_OK;
    }
    bool good = json_array_size(value) == 2 &&
                ssm__json_number(json_array_get(value, 0), &out->low) &&
                ssm__json_number(json_array_get(value, 1), &out->high) && out->low < out->high &&
                out->high > 0;
    if (!good) {
        return wrong_value(in, out->key, value,
                           "two numbers, the lower limit of the step size and a higher upper one");
    }
    out->low = out->low > 0 ? out->low : 0; /* a step size is above 0 anyway, */
    if (out->high >= (double)FLT_MAX) {     /* and a float32 */
        out->high = (double)INFINITY;
    }
    return SSM_STATUS_OK;
}

/* ---- the tables ------------------------------------------------------------------------------ */

#define AT(field) offsetof(ssm__claims, field)

typedef struct whole_row {
    size_t into;
    int least;
    const char *keys[ALIASES];
} whole_row;

static const whole_row wholes[] = {
    {AT(hidden_size), 1, {"hidden_size", "d_model", "dim"}},
    {AT(n_layers), 1, {"num_hidden_layers", "n_layer", "n_layers"}},
    {AT(intermediate_size), 1, {"intermediate_size", "d_inner"}},
    {AT(state_size),
     1,
     {"state_size", "d_state", "ssm_state_size", "mamba_d_state", "ssm_cfg.d_state"}},
    {AT(conv_kernel), 1, {"conv_kernel", "d_conv", "mamba_d_conv", "ssm_cfg.d_conv"}},
    {AT(vocab_size), 1, {"vocab_size"}},
    {AT(vocab_multiple), 1, {"pad_vocab_size_multiple"}},
    {AT(n_heads), 1, {"num_heads", "n_mamba_heads", "mamba_n_heads", "mamba_num_heads"}},
    {AT(head_dim),
     1,
     {"head_dim", "headdim", "mamba_d_head", "mamba_headdim", "mamba_head_dim", "ssm_cfg.headdim"}},
    {AT(n_groups),
     1,
     {"n_groups", "ngroups", "mamba_ngroups", "mamba_n_groups", "ssm_cfg.ngroups"}},
    {AT(d_ssm), 1, {"d_ssm", "ssm_cfg.d_ssm"}},
    {AT(d_mlp), 0, {"d_intermediate"}},
    {AT(n_query_heads), 1, {"attn_cfg.num_heads"}},
    {AT(n_kv_heads), 1, {"attn_cfg.num_heads_kv"}},
    {AT(attention_head_dim), 1, {"attn_cfg.head_dim"}},
    {AT(attention_conv), 0, {"attn_cfg.d_conv"}},
    {AT(rotary_dim), 0, {"attn_cfg.rotary_emb_dim"}},
};

typedef struct key_row {
    size_t into;
    const char *keys[ALIASES];
} key_row;

static const key_row numbers[] = {
    {AT(expand), {"expand", "ssm_cfg.expand"}},
    {AT(norm_eps), {"layer_norm_epsilon", "rms_norm_eps", "norm_epsilon"}},
    {AT(mixer_eps), {"mixer_rms_eps"}},
    {AT(rotary_base), {"attn_cfg.rotary_emb_base"}},
    {AT(softmax_scale), {"attn_cfg.softmax_scale"}},
};

static const key_row flags[] = {
    {AT(use_bias), {"use_bias", "bias", "mamba_proj_bias", "ssm_cfg.bias"}},
    {AT(use_conv_bias), {"use_conv_bias", "conv_bias", "mamba_conv_bias", "ssm_cfg.conv_bias"}},
    {AT(tied), {"tie_word_embeddings", "tie_embeddings"}},
    {AT(rms_norm), {"rms_norm"}},
    {AT(gated_norm), {"ssm_cfg.rmsnorm", "rmsnorm", "mamba_rms_norm"}},
    {AT(norm_before_gate),
     {"norm_before_gate", "mamba_norm_before_gate", "ssm_cfg.norm_before_gate"}},
    {AT(D_per_channel), {"D_has_hdim", "ssm_cfg.D_has_hdim"}},
    {AT(rotary_interleaved), {"attn_cfg.rotary_emb_interleaved"}},
    {AT(qkv_bias), {"attn_cfg.qkv_proj_bias"}},
    {AT(attention_out_bias), {"attn_cfg.out_proj_bias"}},
};

#define FIELD(type, claims, into) ((type *)(void *)((char *)(claims) + (into)))

static ssm_status read_tables(const reader *in, ssm__claims *out)
{
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++) {
        const whole_row *row = &wholes[i];
        SSM__TRY(read_whole(in, row->keys, row->least, FIELD(ssm__claim, out, row->into)));
    }
    SSM__TRY(read_dt_rank(in, out));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        SSM__TRY(read_number(in, numbers[i].keys, FIELD(ssm__claim_number, out, numbers[i].into)));
    }
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        SSM__TRY(read_flag(in, flags[i].keys, FIELD(ssm__claim_flag, out, flags[i].into)));
    }
    return read_limits(in, &out->dt_limits);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* attn_layer_idx is a list of layer numbers, attn_cfg and ssm_cfg are objects. */
static ssm_status read_attention(const reader *in, ssm__claims *out)
{
    static const char *const objects[] = {"ssm_cfg", "attn_cfg"};
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        const json_t *value = ssm__claims_value(in->root, objects[i]);
        if (value != NULL && !json_is_object(value)) {
            return wrong_value(in, objects[i], value, "an object");
        }
    }
    const json_t *layers = ssm__claims_value(in->root, "attn_layer_idx");
    if (layers != NULL && !json_is_array(layers)) {
        return wrong_value(in, "attn_layer_idx", layers, "a list of layer numbers");
    }
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *layer = json_array_get(layers, i);
        if (!json_is_integer(layer) || json_integer_value(layer) < 0) {
            return wrong_value(in, "attn_layer_idx", layers, "a list of layer numbers");
        }
    }
    const json_t *causal = ssm__claims_value(in->root, "attn_cfg.causal");
    if (causal != NULL && !json_is_boolean(causal)) {
        return wrong_value(in, "attn_cfg.causal", causal, "true or false");
    }
    out->has_attention = json_array_size(layers) > 0 ||
                         json_object_size(ssm__claims_value(in->root, "attn_cfg")) > 0;
    return SSM_STATUS_OK;
}

bool ssm__claims_attention_at(const ssm__claims *claims, int64_t layer)
{
    const json_t *layers = ssm__claims_value(claims->root, "attn_layer_idx");
    for (size_t i = 0; i < json_array_size(layers); i++) {
        if (json_integer_value(json_array_get(layers, i)) == layer) {
            return true;
        }
    }
    return false;
}

static ssm_status read_all(const reader *in, ssm__claims *out)
{
    if (!json_is_object(in->root)) {
        return ssm__fail(in->err, SSM_STATUS_FILE, SSM__AT(in->path, 0),
                         "config.json is not a JSON object");
    }
    SSM__TRY(ssm__claims_family(in->path, out, in->err));
    SSM__TRY(ssm__claims_check_settings(in->path, in->root, in->notes, in->err));
    SSM__TRY(read_attention(in, out));
    SSM__TRY(read_tables(in, out));
    return read_ids(in, out);
}

ssm_status ssm__claims_parse(const char *path, const char *text, size_t bytes, ssm__claims *out,
                             ssm__notes *notes, ssm_error *err)
{
    *out = (ssm__claims){0};
    SSM__TRY(ssm__refuse_foreign(path, (const unsigned char *)text, bytes, err));
    if (bytes == 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(path, 0), "config.json is empty");
    }
    SSM__TRY(ssm__json_parse(path, 0, text, bytes, SSM__JSON_PYTHON, &out->root, err));
    reader in = {path, out->root, notes, err};
    return read_all(&in, out);
}

ssm_status ssm__claims_read_ids(const char *path, ssm__claims *claims, ssm__notes *notes,
                                ssm_error *err)
{
    enum { LIMIT = 1 << 20 };
    json_t *root = NULL;
    SSM__TRY(ssm__json_read(path, LIMIT, SSM__JSON_PYTHON, &root, err));
    reader in = {path, root, notes, err};
    ssm_status status = read_ids(&in, claims);
    json_decref(root);
    return status;
}

void ssm__claims_free(ssm__claims *claims)
{
    json_decref(claims->root);
    claims->root = NULL;
}

ssm_status ssm__claims_read(const char *path, ssm__claims *out, ssm__notes *notes, ssm_error *err)
{
    enum { LIMIT = 16 << 20 };
    ssm__map map;
    SSM__TRY(ssm__map_open(path, &map, err));
    ssm_status status;
    if (map.size > LIMIT) {
        status = ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                           "config.json has %zu bytes, the limit is %d: not a configuration",
                           map.size, LIMIT);
    } else {
        status = ssm__claims_parse(path, map.data == NULL ? "" : (const char *)map.data, map.size,
                                   out, notes, err);
    }
    ssm__map_close(&map);
    return status;
}
