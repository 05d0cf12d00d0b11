/* Names and defaults: Hugging Face transformers, configuration_mamba; aliases as other projects
 * write them. A key with the value null counts as absent, as it does there. */
#include "checkpoint/claims.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/claim_rules.h"
#include "safetensors/foreign.h"

enum { ALIASES = 4 };

typedef struct reader {
    const char *path;
    const json_t *root;
    ssm__notes *notes;
    ssm_error *err;
} reader;

/* ---- single values --------------------------------------------------------------------------- */

static const json_t *given(const json_t *root, const char *key)
{
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
        const json_t *found = given(in->root, keys[i]);
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

static ssm_status read_size(const reader *in, const char *const keys[ALIASES], ssm__claim *out)
{
    const json_t *value;
    SSM__TRY(find_alias(in, keys, &out->key, &value));
    if (value == NULL) {
        return SSM_STATUS_OK;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 1) {
        return wrong_value(in, out->key, value, "a whole number of 1 or more");
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
        (float)out->value <= 0) { /* it is added in float32 */
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
    const json_t *value = given(in->root, key);
    if (json_is_array(value) && json_array_size(value) > 0) {
        value = json_array_get(value, 0);
        if (json_array_size(given(in->root, key)) > 1) {
            SSM__TRY(ssm__note(in->notes, in->err,
                               "config.json lists several values of %s; the first is used.", key));
        }
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

/* A number, or "auto". */
static ssm_status read_dt_rank(const reader *in, ssm__claims *out)
{
    static const char *const keys[ALIASES] = {"time_step_rank", "dt_rank"};
    const json_t *value;
    SSM__TRY(find_alias(in, keys, &out->dt_rank.key, &value));
    if (json_is_string(value) && strcmp(json_string_value(value), "auto") == 0) {
        out->dt_rank_auto = true;
        return SSM_STATUS_OK;
    }
    return read_size(in, keys, &out->dt_rank);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static ssm_status read_sizes(const reader *in, ssm__claims *out)
{
    static const char *const hidden[ALIASES] = {"hidden_size", "d_model", "dim"};
    static const char *const layers[ALIASES] = {"num_hidden_layers", "n_layer", "n_layers"};
    static const char *const inner[ALIASES] = {"intermediate_size", "d_inner"};
    static const char *const state[ALIASES] = {"state_size", "d_state", "ssm_state_size"};
    static const char *const conv[ALIASES] = {"conv_kernel", "d_conv"};
    static const char *const vocab[ALIASES] = {"vocab_size"};
    SSM__TRY(read_size(in, hidden, &out->hidden_size));
    SSM__TRY(read_size(in, layers, &out->n_layers));
    SSM__TRY(read_size(in, inner, &out->intermediate_size));
    SSM__TRY(read_size(in, state, &out->state_size));
    SSM__TRY(read_size(in, conv, &out->conv_kernel));
    SSM__TRY(read_size(in, vocab, &out->vocab_size));
    return read_dt_rank(in, out);
}

static ssm_status read_rest(const reader *in, ssm__claims *out)
{
    static const char *const expand[ALIASES] = {"expand"};
    static const char *const eps[ALIASES] = {"layer_norm_epsilon", "rms_norm_eps", "norm_epsilon"};
    static const char *const bias[ALIASES] = {"use_bias", "bias"};
    static const char *const conv_bias[ALIASES] = {"use_conv_bias", "conv_bias"};
    static const char *const tied[ALIASES] = {"tie_word_embeddings", "tie_embeddings"};
    SSM__TRY(read_number(in, expand, &out->expand));
    SSM__TRY(read_number(in, eps, &out->norm_eps));
    SSM__TRY(read_flag(in, bias, &out->use_bias));
    SSM__TRY(read_flag(in, conv_bias, &out->use_conv_bias));
    SSM__TRY(read_flag(in, tied, &out->tied));
    SSM__TRY(read_id(in, "bos_token_id", &out->bos_id));
    SSM__TRY(read_id(in, "eos_token_id", &out->eos_id));
    return read_id(in, "pad_token_id", &out->pad_id);
}

static ssm_status read_all(const reader *in, ssm__claims *out)
{
    if (!json_is_object(in->root)) {
        return ssm__fail(in->err, SSM_STATUS_FILE, SSM__AT(in->path, 0),
                         "config.json is not a JSON object");
    }
    SSM__TRY(ssm__claims_check_family(in->path, in->root, in->err));
    SSM__TRY(ssm__claims_check_settings(in->path, in->root, in->notes, in->err));
    SSM__TRY(read_sizes(in, out));
    return read_rest(in, out);
}

ssm_status ssm__claims_parse(const char *path, const char *text, size_t bytes, ssm__claims *out,
                             ssm__notes *notes, ssm_error *err)
{
    *out = (ssm__claims){0};
    SSM__TRY(ssm__refuse_foreign(path, (const unsigned char *)text, bytes, err));
    if (bytes == 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(path, 0), "config.json is empty");
    }
    json_t *root = NULL;
    SSM__TRY(ssm__json_parse(path, 0, text, bytes, SSM__JSON_PYTHON, &root, err));
    reader in = {path, root, notes, err};
    ssm_status status = read_all(&in, out);
    json_decref(root);
    return status;
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
