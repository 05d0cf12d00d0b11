/* Shapes are the truth: the sizes of the config are read off the first layer of each kind. Only
 * what shapes cannot say is taken from the configuration: how Mamba-2's B and C are cut into
 * groups, and how the rows of attention are cut into heads. */
#include "checkpoint/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "safetensors/dtype.h"

ssm_status ssm__need_dims(const ssm_tensor *tensor, ssm_layer_kind kind, int id, int n_dims,
                          ssm_error *err)
{
    bool empty = false;
    for (int i = 0; i < tensor->n_dims; i++) {
        empty = empty || tensor->dims[i] == 0;
    }
    if (tensor->n_dims == n_dims && !empty) {
        return SSM_STATUS_OK;
    }
    char shape[256];
    char letters[SSM__LETTERS_MAX];
    ssm__shape_text(tensor->dims, tensor->n_dims, shape, sizeof shape);
    ssm__slot_letters(kind, id, letters);
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(tensor->file, tensor->name),
                     "the tensor has shape %s; expected %s%s", shape, letters,
                     empty ? " without an empty dimension" : "");
}

ssm_status ssm__compare_claim(const ssm_checkpoint *checkpoint, const ssm__claim *claim,
                              int64_t found, const ssm_tensor *tensor, ssm_error *err)
{
    if (claim->key == NULL || claim->value == found) {
        return SSM_STATUS_OK;
    }
    char shape[256];
    ssm__shape_text(tensor->dims, tensor->n_dims, shape, sizeof shape);
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, claim->key),
                     "config.json says %s = %" PRId64 ", but %s has shape %s, which means %" PRId64,
                     claim->key, claim->value, tensor->name, shape, found);
}

ssm_status ssm__refuse_claim(const ssm_checkpoint *checkpoint, const char *key, const char *reason,
                             ssm_error *err)
{
    char text[64];
    ssm__claim_text(ssm__claims_value(checkpoint->claims.root, key), text, sizeof text);
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, key),
                     "config.json says %s = %s, which is not supported: %s", key, text, reason);
}

/* ---- Mamba ----------------------------------------------------------------------------------- */

static ssm_status read_mamba(ssm_checkpoint *checkpoint, const ssm__layer_weights *layer,
                             ssm_error *err)
{
    ssm_config *config = &checkpoint->config;
    SSM__TRY(ssm__need_dims(&layer->A_log, SSM_LAYER_MAMBA, SSM__SLOT_A_log, 2, err));
    SSM__TRY(ssm__need_dims(&layer->dt_proj, SSM_LAYER_MAMBA, SSM__SLOT_dt_proj, 2, err));
    SSM__TRY(ssm__need_dims(&layer->conv1d, SSM_LAYER_MAMBA, SSM__SLOT_conv1d, 3, err));
    config->d_inner = layer->A_log.dims[0];
    config->d_state = layer->A_log.dims[1];
    config->dt_rank = layer->dt_proj.dims[1];
    config->d_conv = layer->conv1d.dims[2];
    return SSM_STATUS_OK;
}

/* ---- Mamba-2 --------------------------------------------------------------------------------- */

static ssm_status fail_rows(const ssm_tensor *tensor, ssm_error *err, const char *format, ...)
    SSM_PRINTF(3, 4);
static ssm_status fail_rows(const ssm_tensor *tensor, ssm_error *err, const char *format, ...)
{
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(tensor->file, tensor->name), "%s", text);
}

/* n_heads, d_inner, d_ssm, head_dim, d_conv; *GN = n_groups · d_state. */
static ssm_status read_mamba2_widths(ssm_checkpoint *checkpoint, const ssm__layer_weights *layer,
                                     int64_t *GN, ssm_error *err)
{
    const ssm_layer_kind kind = SSM_LAYER_MAMBA2;
    SSM__TRY(ssm__need_dims(&layer->dt_bias, kind, SSM__SLOT_dt_bias, 1, err));
    SSM__TRY(ssm__need_dims(&layer->in_proj, kind, SSM__SLOT_in_proj, 2, err));
    SSM__TRY(ssm__need_dims(&layer->out_proj, kind, SSM__SLOT_out_proj, 2, err));
    SSM__TRY(ssm__need_dims(&layer->conv1d, kind, SSM__SLOT_conv1d, 3, err));
    const int64_t H = layer->dt_bias.dims[0];
    const int64_t E = layer->out_proj.dims[1];
    const int64_t rows = layer->in_proj.dims[0];
    const int64_t left = rows - 2 * E - H;
    if (left < 2 || left % 2 != 0) {
        return fail_rows(&layer->in_proj, err,
                         "the %" PRId64 " rows leave %" PRId64
                         " for B and C beside 2 d_inner = %" PRId64 " (out_proj) and n_heads = "
                         "%" PRId64 " (dt_bias); expected an even number above 0",
                         rows, left, 2 * E, H);
    }
    const int64_t S = layer->conv1d.dims[0] - left;
    if (S < 1 || S > E || S % H != 0) {
        return fail_rows(&layer->conv1d, err,
                         "the %" PRId64 " channels leave d_ssm = %" PRId64 " beside %" PRId64
                         " of B and C; expected a multiple of n_heads = %" PRId64
                         " of at most d_inner = %" PRId64,
                         layer->conv1d.dims[0], S, left, H, E);
    }
    ssm_config *config = &checkpoint->config;
    config->n_heads = H;
    config->d_inner = E;
    config->d_ssm = S;
    config->head_dim = S / H;
    config->d_conv = layer->conv1d.dims[2];
    *GN = left / 2;
    return SSM_STATUS_OK;
}

static ssm_status cannot_cut(const ssm_checkpoint *checkpoint, const ssm__claim *claim, int64_t GN,
                             const ssm_tensor *in_proj, ssm_error *err)
{
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, claim->key),
                     "config.json says %s = %" PRId64 ", but %s leaves n_groups · d_state = "
                     "%" PRId64 ", which is no multiple of it",
                     claim->key, claim->value, in_proj->name, GN);
}

/* The groups by the configuration's claim, else by its d_state, else one. */
static ssm_status cut_groups(ssm_checkpoint *checkpoint, int64_t GN, const ssm_tensor *in_proj,
                             ssm_error *err)
{
    const ssm__claim *groups = &checkpoint->claims.n_groups;
    const ssm__claim *state = &checkpoint->claims.state_size;
    ssm_config *config = &checkpoint->config;
    const ssm__claim *by = groups->key != NULL ? groups : state;
    if (by->key != NULL && GN % by->value != 0) {
        return cannot_cut(checkpoint, by, GN, in_proj, err);
    }
    config->n_groups = groups->key != NULL  ? groups->value
                       : state->key != NULL ? GN / state->value
                                            : 1;
    config->d_state = GN / config->n_groups;
    if (config->n_heads % config->n_groups != 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, by->key),
                         "n_groups = %" PRId64 " (by config.json's %s) does not divide n_heads = "
                         "%" PRId64 " of the tensors",
                         config->n_groups, by->key, config->n_heads);
    }
    if (groups->key != NULL || checkpoint->claims.schema == SSM__SCHEMA_ORIGINAL) {
        return SSM_STATUS_OK; /* the original code's default is written nowhere else */
    }
    return ssm__note(&checkpoint->notes, err,
                     "config.json does not say n_groups; %" PRId64 " of d_state %" PRId64
                     " are read off %s.",
                     config->n_groups, config->d_state,
                     state->key != NULL ? "in_proj and state_size" : "in_proj, as the original's");
}

static ssm_status read_mamba2(ssm_checkpoint *checkpoint, const ssm__layer_weights *layer,
                              ssm_error *err)
{
    int64_t GN = 0;
    ssm_config *config = &checkpoint->config;
    SSM__TRY(read_mamba2_widths(checkpoint, layer, &GN, err));
    SSM__TRY(cut_groups(checkpoint, GN, &layer->in_proj, err));
    SSM__TRY(ssm__need_dims(&layer->D, SSM_LAYER_MAMBA2, SSM__SLOT_D, 1, err));
    config->D_per_channel =
        layer->D.dims[0] == config->d_ssm && layer->D.dims[0] != config->n_heads;
    return SSM_STATUS_OK;
}

/* ---- attention ------------------------------------------------------------------------------- */

static ssm_status read_heads(ssm_checkpoint *checkpoint, const ssm__layer_weights *layer,
                             ssm_error *err)
{
    const ssm__claims *claims = &checkpoint->claims;
    ssm_config *config = &checkpoint->config;
    const int64_t width = layer->out_proj.dims[1];
    const int64_t rows = layer->in_proj.dims[0];
    const ssm__claim *heads = &claims->n_query_heads;
    if (heads->key == NULL) {
        return ssm__fail(err, SSM_STATUS_FILE,
                         SSM__TENSOR(checkpoint->config_path, "attn_cfg.num_heads"),
                         "config.json does not say attn_cfg.num_heads; shapes alone do not tell "
                         "how %s is cut into heads",
                         layer->in_proj.name);
    }
    if (width % heads->value != 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, heads->key),
                         "config.json says %s = %" PRId64 ", but %s has %" PRId64
                         " columns, no multiple of it",
                         heads->key, heads->value, layer->out_proj.name, width);
    }
    const int64_t A = width / heads->value;
    SSM__TRY(ssm__compare_claim(checkpoint, &claims->attention_head_dim, A, &layer->out_proj, err));
    const int64_t left = rows - width;
    if (left < 2 * A || left % (2 * A) != 0 || heads->value % (left / (2 * A)) != 0) {
        return fail_rows(&layer->in_proj, err,
                         "the %" PRId64 " rows leave %" PRId64 " for keys and values beside "
                         "%" PRId64 " query heads of %" PRId64
                         "; expected 2 · head_dim for each of a divisor of the query heads",
                         rows, left, heads->value, A);
    }
    config->n_query_heads = heads->value;
    config->attention_head_dim = A;
    config->n_kv_heads = left / (2 * A);
    ssm__claim kv = claims->n_kv_heads;
    if (kv.key == NULL) {
        kv = (ssm__claim){heads->key, heads->value}; /* the original code's default */
    }
    return ssm__compare_claim(checkpoint, &kv, config->n_kv_heads, &layer->in_proj, err);
}

static ssm_status read_rotation(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claims *claims = &checkpoint->claims;
    ssm_config *config = &checkpoint->config;
    const int64_t dim = claims->rotary_dim.value;
    if (dim > config->attention_head_dim || dim % 2 != 0) {
        return ssm__fail(err, SSM_STATUS_FILE,
                         SSM__TENSOR(checkpoint->config_path, claims->rotary_dim.key),
                         "config.json says %s = %" PRId64
                         "; expected an even number of at most head_dim = %" PRId64,
                         claims->rotary_dim.key, dim, config->attention_head_dim);
    }
    config->rotary_dim = dim;
    config->rotary_base = claims->rotary_base.key != NULL ? claims->rotary_base.value : 10000.0;
    config->rotary_interleaved = claims->rotary_interleaved.value;
    config->softmax_scale = claims->softmax_scale.key != NULL
                                ? claims->softmax_scale.value
                                : 1.0 / sqrt((double)config->attention_head_dim);
    return SSM_STATUS_OK;
}

static ssm_status read_attention(ssm_checkpoint *checkpoint, const ssm__layer_weights *layer,
                                 ssm_error *err)
{
    const ssm_layer_kind kind = SSM_LAYER_ATTENTION;
    SSM__TRY(ssm__need_dims(&layer->in_proj, kind, SSM__SLOT_in_proj, 2, err));
    SSM__TRY(ssm__need_dims(&layer->out_proj, kind, SSM__SLOT_out_proj, 2, err));
    if (ssm__claims_value(checkpoint->claims.root, "attn_cfg.causal") == NULL) {
        return ssm__fail(err, SSM_STATUS_FILE,
                         SSM__TENSOR(checkpoint->config_path, "attn_cfg.causal"),
                         "config.json does not say attn_cfg.causal = true (the original code then "
                         "looks ahead); only causal attention is computed");
    }
    SSM__TRY(read_heads(checkpoint, layer, err));
    if (layer->conv1d.name != NULL) {
        SSM__TRY(ssm__need_dims(&layer->conv1d, kind, SSM__SLOT_conv1d, 3, err));
        checkpoint->config.attention_conv = layer->conv1d.dims[2];
    }
    return read_rotation(checkpoint, err);
}

/* ---- all ------------------------------------------------------------------------------------- */

ssm_status ssm__read_sizes(ssm_checkpoint *checkpoint, ssm_error *err)
{
    ssm_config *config = &checkpoint->config;
    const ssm__layer_weights *layers = checkpoint->weights.layers;
    const ssm_tensor *embedding = &checkpoint->weights.embedding;
    SSM__TRY(ssm__need_dims(embedding, SSM_LAYER_MAMBA, SSM__SLOT_embedding, 2, err));
    config->vocab_size = embedding->dims[0];
    config->d_model = embedding->dims[1];
    const int64_t mamba = ssm__first_layer(checkpoint, SSM_LAYER_MAMBA);
    const int64_t mamba2 = ssm__first_layer(checkpoint, SSM_LAYER_MAMBA2);
    const int64_t attention = ssm__first_layer(checkpoint, SSM_LAYER_ATTENTION);
    if (mamba >= 0) {
        SSM__TRY(read_mamba(checkpoint, &layers[mamba], err));
    }
    if (mamba2 >= 0) {
        SSM__TRY(read_mamba2(checkpoint, &layers[mamba2], err));
    }
    if (attention >= 0) {
        SSM__TRY(read_attention(checkpoint, &layers[attention], err));
    }
    if (layers[0].fc2.name != NULL) {
        SSM__TRY(ssm__need_dims(&layers[0].fc2, layers[0].kind, SSM__SLOT_fc2, 2, err));
        config->d_mlp = layers[0].fc2.dims[1];
    }
    return SSM_STATUS_OK;
}
