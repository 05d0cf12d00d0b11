/* Every claim of the configuration about sizes is compared with those of the tensors. A conflict
 * names both numbers and both sources. */
#include "checkpoint/internal.h"

#include <inttypes.h>
#include <math.h>

#include "base/error.h"
#include "safetensors/dtype.h"

static const ssm__layer_weights *first_of(const ssm_checkpoint *checkpoint, ssm_layer_kind kind)
{
    int64_t layer = ssm__first_layer(checkpoint, kind);
    return layer < 0 ? NULL : &checkpoint->weights.layers[layer];
}

/* The first layer that is Mamba or Mamba-2. */
static const ssm__layer_weights *first_mixer(const ssm_checkpoint *checkpoint)
{
    const ssm__layer_weights *mamba = first_of(checkpoint, SSM_LAYER_MAMBA);
    return mamba != NULL ? mamba : first_of(checkpoint, SSM_LAYER_MAMBA2);
}

/* ---- all families ---------------------------------------------------------------------------- */

static ssm_status compare_layers(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claim *claim = &checkpoint->claims.n_layers;
    if (claim->key == NULL || claim->value == checkpoint->config.n_layers) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, claim->key),
                     "config.json says %s = %" PRId64 ", but the tensors are those of %" PRId64
                     " layers",
                     claim->key, claim->value, checkpoint->config.n_layers);
}

/* intermediate_size wins over expand: a disagreeing expand is then only noted. */
static ssm_status compare_expand(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claims *claims = &checkpoint->claims;
    const ssm_config *config = &checkpoint->config;
    double claimed = floor(claims->expand.value * (double)config->d_model);
    if (claims->expand.key == NULL || claimed == (double)config->d_inner) {
        return SSM_STATUS_OK;
    }
    if (claims->intermediate_size.key != NULL) {
        return ssm__note(&checkpoint->notes, err,
                         "config.json says %s = %.17g, which would make d_inner %.17g; %s = "
                         "%" PRId64 " agrees with the tensors and wins.",
                         claims->expand.key, claims->expand.value, claimed,
                         claims->intermediate_size.key, claims->intermediate_size.value);
    }
    const ssm__layer_weights *layer = first_mixer(checkpoint);
    bool mamba = layer->kind == SSM_LAYER_MAMBA;
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, claims->expand.key),
                     "config.json says %s = %.17g, which makes d_inner %.17g with d_model "
                     "%" PRId64 ", but %s has %" PRId64 " %s",
                     claims->expand.key, claims->expand.value, claimed, config->d_model,
                     mamba ? layer->A_log.name : layer->out_proj.name, config->d_inner,
                     mamba ? "rows" : "columns");
}

/* The original code pads the vocabulary: the claim is its size before that. */
static ssm_status compare_padded(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claims *claims = &checkpoint->claims;
    const int64_t rows = checkpoint->config.vocab_size;
    const int64_t multiple = claims->vocab_multiple.value;
    if (claims->schema == SSM__SCHEMA_HF || claims->vocab_multiple.key == NULL ||
        claims->vocab_size.key == NULL) {
        return SSM_STATUS_OK;
    }
    const int64_t over = claims->vocab_size.value % multiple;
    const int64_t missing = over == 0 ? 0 : multiple - over;
    if (claims->vocab_size.value == rows - missing) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_FILE,
                     SSM__TENSOR(checkpoint->config_path, claims->vocab_multiple.key),
                     "config.json says vocab_size = %" PRId64 " and %s = %" PRId64
                     ", which adds %" PRId64 " rows, but %s has %" PRId64,
                     claims->vocab_size.value, claims->vocab_multiple.key, multiple, missing,
                     checkpoint->weights.embedding.name, rows);
}

static ssm_status compare_vocabulary(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claim *claim = &checkpoint->claims.vocab_size;
    int64_t rows = checkpoint->config.vocab_size;
    SSM__TRY(compare_padded(checkpoint, err));
    if (claim->key == NULL || claim->value == rows) {
        return SSM_STATUS_OK;
    }
    if (claim->value < rows) {
        return ssm__note(&checkpoint->notes, err,
                         "config.json says vocab_size = %" PRId64 ", the embedding has %" PRId64
                         " rows: %" PRId64 " rows of padding stay in the soft-max.",
                         claim->value, rows, rows - claim->value);
    }
    return ssm__compare_claim(checkpoint, claim, rows, &checkpoint->weights.embedding, err);
}

/* ---- Mamba and Falcon-Mamba ------------------------------------------------------------------ */

static ssm_status compare_dt_rank(const ssm_checkpoint *checkpoint, const ssm__layer_weights *layer,
                                  ssm_error *err)
{
    const ssm_config *config = &checkpoint->config;
    if (!checkpoint->claims.dt_rank_auto) {
        return ssm__compare_claim(checkpoint, &checkpoint->claims.dt_rank, config->dt_rank,
                                  &layer->dt_proj, err);
    }
    int64_t claimed = (config->d_model + 15) / 16;
    if (claimed == config->dt_rank) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_FILE,
                     SSM__TENSOR(checkpoint->config_path, checkpoint->claims.dt_rank.key),
                     "config.json says %s = \"auto\", which is %" PRId64 " for d_model %" PRId64
                     ", but %s means %" PRId64,
                     checkpoint->claims.dt_rank.key, claimed, config->d_model, layer->dt_proj.name,
                     config->dt_rank);
}

static ssm_status match_mamba(ssm_checkpoint *checkpoint, const ssm__layer_weights *layer,
                              ssm_error *err)
{
    const ssm__claims *claims = &checkpoint->claims;
    const ssm_config *config = &checkpoint->config;
    SSM__TRY(ssm__compare_claim(checkpoint, &claims->intermediate_size, config->d_inner,
                                &layer->A_log, err));
    SSM__TRY(
        ssm__compare_claim(checkpoint, &claims->state_size, config->d_state, &layer->A_log, err));
    SSM__TRY(
        ssm__compare_claim(checkpoint, &claims->conv_kernel, config->d_conv, &layer->conv1d, err));
    return compare_dt_rank(checkpoint, layer, err);
}

/* ---- Mamba-2 --------------------------------------------------------------------------------- */

/* The shape gives the product of groups and states; the claim of n_groups has cut it (sizes.c). */
static ssm_status compare_state(const ssm_checkpoint *checkpoint, const ssm__layer_weights *layer,
                                ssm_error *err)
{
    const ssm__claim *state = &checkpoint->claims.state_size;
    const ssm__claim *groups = &checkpoint->claims.n_groups;
    const ssm_config *config = &checkpoint->config;
    if (groups->key == NULL || state->key == NULL || state->value == config->d_state) {
        return ssm__compare_claim(checkpoint, state, config->d_state, &layer->in_proj, err);
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, state->key),
                     "config.json says %s = %" PRId64 " and %s = %" PRId64
                     ", but %s leaves %" PRId64 " rows for their product",
                     state->key, state->value, groups->key, groups->value, layer->in_proj.name,
                     config->n_groups * config->d_state);
}

static ssm_status match_mamba2(ssm_checkpoint *checkpoint, const ssm__layer_weights *layer,
                               ssm_error *err)
{
    const ssm__claims *claims = &checkpoint->claims;
    const ssm_config *config = &checkpoint->config;
    const ssm__claim_flag *per_channel = &claims->D_per_channel;
    SSM__TRY(ssm__compare_claim(checkpoint, &claims->intermediate_size, config->d_inner,
                                &layer->out_proj, err));
    SSM__TRY(compare_state(checkpoint, layer, err));
    SSM__TRY(
        ssm__compare_claim(checkpoint, &claims->conv_kernel, config->d_conv, &layer->conv1d, err));
    SSM__TRY(
        ssm__compare_claim(checkpoint, &claims->n_heads, config->n_heads, &layer->dt_bias, err));
    SSM__TRY(ssm__compare_claim(checkpoint, &claims->d_ssm, config->d_ssm, &layer->conv1d, err));
    if (claims->head_dim.key != NULL && claims->head_dim.value != config->head_dim) {
        return ssm__fail(err, SSM_STATUS_FILE,
                         SSM__TENSOR(checkpoint->config_path, claims->head_dim.key),
                         "config.json says %s = %" PRId64 ", but d_ssm = %" PRId64
                         " (conv1d) over n_heads = %" PRId64 " (dt_bias) is %" PRId64,
                         claims->head_dim.key, claims->head_dim.value, config->d_ssm,
                         config->n_heads, config->head_dim);
    }
    if (per_channel->key != NULL && per_channel->value != config->D_per_channel &&
        config->head_dim > 1) {
        char shape[256];
        ssm__shape_text(layer->D.dims, layer->D.n_dims, shape, sizeof shape);
        return ssm__fail(err, SSM_STATUS_FILE,
                         SSM__TENSOR(checkpoint->config_path, per_channel->key),
                         "config.json says %s = %s, but %s has shape %s with n_heads = %" PRId64
                         " and d_ssm = %" PRId64,
                         per_channel->key, per_channel->value ? "true" : "false", layer->D.name,
                         shape, config->n_heads, config->d_ssm);
    }
    return SSM_STATUS_OK;
}

/* ---- attention and MLP ----------------------------------------------------------------------- */

static ssm_status fail_attention_layers(const ssm_checkpoint *checkpoint, int64_t layer,
                                        ssm_error *err)
{
    const int64_t n_layers = checkpoint->config.n_layers;
    ssm__place place = SSM__TENSOR(checkpoint->config_path, "attn_layer_idx");
    char text[64];
    ssm__claim_text(ssm__claims_value(checkpoint->claims.root, "attn_layer_idx"), text,
                    sizeof text);
    if (layer >= n_layers) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "config.json says attn_layer_idx = %s, but there is no layer %" PRId64
                         ": the tensors are those of %" PRId64 " layers",
                         text, layer, n_layers);
    }
    return ssm__fail(err, SSM_STATUS_FILE, place,
                     "config.json says attn_layer_idx = %s, but layer %" PRId64
                     " is %s by its tensors",
                     text, layer, ssm_layer_kind_name(checkpoint->weights.layers[layer].kind));
}

static ssm_status match_attention_layers(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    const json_t *list = ssm__claims_value(checkpoint->claims.root, "attn_layer_idx");
    if (list == NULL) {
        return SSM_STATUS_OK;
    }
    for (int64_t layer = 0; layer < checkpoint->config.n_layers; layer++) {
        bool claimed = ssm__claims_attention_at(&checkpoint->claims, layer);
        if (claimed != (checkpoint->weights.layers[layer].kind == SSM_LAYER_ATTENTION)) {
            return fail_attention_layers(checkpoint, layer, err);
        }
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t layer = json_integer_value(json_array_get(list, i));
        if (layer >= checkpoint->config.n_layers) {
            return fail_attention_layers(checkpoint, layer, err);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status match_attention_conv(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__layer_weights *layer = first_of(checkpoint, SSM_LAYER_ATTENTION);
    const ssm__claim *claim = &checkpoint->claims.attention_conv;
    if (layer == NULL || claim->key == NULL || layer->conv1d.name != NULL) {
        return layer == NULL
                   ? SSM_STATUS_OK
                   : ssm__compare_claim(checkpoint, claim, checkpoint->config.attention_conv,
                                        &layer->conv1d, err);
    }
    if (claim->value == 0) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, claim->key),
                     "config.json says %s = %" PRId64
                     ", but the first layer of attention has no mixer.conv1d.weight",
                     claim->key, claim->value);
}

/* The original code rounds the width of an MLP up to a multiple of 128. */
static ssm_status match_mlp(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claim *claim = &checkpoint->claims.d_mlp;
    const int64_t found = checkpoint->config.d_mlp;
    const int64_t over = claim->value % 128;
    const int64_t missing = over == 0 ? 0 : 128 - over;
    if (claim->key == NULL || claim->value == found || claim->value == found - missing) {
        return SSM_STATUS_OK;
    }
    if (found == 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, claim->key),
                         "config.json says %s = %" PRId64
                         ", but no layer has an MLP (mlp.fc1.weight)",
                         claim->key, claim->value);
    }
    return ssm__compare_claim(checkpoint, claim, found, &checkpoint->weights.layers[0].fc2, err);
}

/* ---- all ------------------------------------------------------------------------------------- */

ssm_status ssm__match_sizes(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__layer_weights *layer = first_mixer(checkpoint);
    SSM__TRY(ssm__compare_claim(checkpoint, &checkpoint->claims.hidden_size,
                                checkpoint->config.d_model, &checkpoint->weights.embedding, err));
    if (layer != NULL) { /* a transformer has none, and claims about it say nothing */
        SSM__TRY(layer->kind == SSM_LAYER_MAMBA ? match_mamba(checkpoint, layer, err)
                                                : match_mamba2(checkpoint, layer, err));
        SSM__TRY(compare_expand(checkpoint, err));
    }
    SSM__TRY(compare_layers(checkpoint, err));
    SSM__TRY(match_attention_layers(checkpoint, err));
    SSM__TRY(match_attention_conv(checkpoint, err));
    SSM__TRY(match_mlp(checkpoint, err));
    return compare_vocabulary(checkpoint, err);
}
