/* Tensors that a model may have or not: presence decides, a contradicting claim is a conflict, and
 * all layers of a kind must agree. Then every slot against its type and shape. */
#include "checkpoint/internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "safetensors/dtype.h"

/* ---- presence -------------------------------------------------------------------------------- */

static bool is_there(const ssm_checkpoint *checkpoint, int id, int64_t layer)
{
    ssm__slot_place place = {id, layer};
    return ssm__slot_tensor_const(&checkpoint->weights, place)->name != NULL;
}

static const char *noun(int id)
{
    const char *name = ssm__slot_info(id)->name;
    size_t length = strlen(name);
    return strcmp(name + length - strlen(".bias"), ".bias") == 0 ? "bias" : "tensor";
}

/* The layers of one kind. inverted: the flag is true where the tensor must not be. */
static ssm_status check_kind(const ssm_checkpoint *checkpoint, ssm_layer_kind kind, int id,
                             const ssm__claim_flag *flag, bool inverted, ssm_error *err)
{
    int64_t first = ssm__first_layer(checkpoint, kind);
    if (first < 0 || ssm__slot_need(kind, id) != SSM__OPTIONAL) {
        return SSM_STATUS_OK;
    }
    bool wanted = is_there(checkpoint, id, first);
    for (int64_t layer = first; layer < checkpoint->config.n_layers; layer++) {
        if (checkpoint->weights.layers[layer].kind != kind) {
            continue;
        }
        char name[SSM__SLOT_NAME_MAX];
        ssm__slot_name((ssm__slot_place){id, layer}, name);
        bool present = is_there(checkpoint, id, layer);
        if (flag != NULL && flag->key != NULL && present != (flag->value != inverted)) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, flag->key),
                             "config.json says %s = %s, but %s is %s", flag->key,
                             flag->value ? "true" : "false", name, present ? "there" : "missing");
        }
        if (present != wanted) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->path, name),
                             "the %s is %s although that of layer %" PRId64
                             " is %s; all layers or none must have it",
                             noun(id), present ? "there" : "missing", first,
                             wanted ? "there" : "missing");
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status check_mixers(const ssm_checkpoint *checkpoint, int id,
                               const ssm__claim_flag *flag, ssm_error *err)
{
    SSM__TRY(check_kind(checkpoint, SSM_LAYER_MAMBA, id, flag, false, err));
    return check_kind(checkpoint, SSM_LAYER_MAMBA2, id, flag, false, err);
}

/* Norms and MLPs do not depend on the kind: layers of different kinds must agree, too. */
static ssm_status check_blocks(const ssm_checkpoint *checkpoint, int id,
                               const ssm__claim_flag *flag, bool inverted, ssm_error *err)
{
    for (int kind = 0; kind < SSM_LAYER_KINDS; kind++) {
        SSM__TRY(check_kind(checkpoint, (ssm_layer_kind)kind, id, flag, inverted, err));
    }
    for (int64_t layer = 1; layer < checkpoint->config.n_layers; layer++) {
        if (is_there(checkpoint, id, layer) != is_there(checkpoint, id, 0)) {
            char name[SSM__SLOT_NAME_MAX];
            ssm__slot_name((ssm__slot_place){id, layer}, name);
            bool present = is_there(checkpoint, id, layer);
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->path, name),
                             "the %s is %s although layer 0, of another kind, has it%s", noun(id),
                             present ? "there" : "missing", present ? " not" : "");
        }
    }
    return SSM_STATUS_OK;
}

/* LayerNorm has biases, RMSNorm has none. transformers does not read Mamba-2's rms_norm. */
static ssm_status check_norms(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claim_flag *claim = &checkpoint->claims.rms_norm;
    const bool unread = checkpoint->claims.schema == SSM__SCHEMA_HF &&
                        checkpoint->config.family == SSM_FAMILY_MAMBA2;
    const ssm__claim_flag *flag = unread ? NULL : claim;
    SSM__TRY(check_blocks(checkpoint, SSM__SLOT_norm_bias, flag, true, err));
    const bool layer_norm = is_there(checkpoint, SSM__SLOT_norm_bias, 0);
    const bool final_bias = checkpoint->weights.norm_f_bias.name != NULL;
    if (final_bias != layer_norm) {
        return ssm__fail(err, SSM_STATUS_FILE,
                         SSM__TENSOR(checkpoint->path, "backbone.norm_f.bias"),
                         "the bias of the final norm is %s although that of the layers' norms is "
                         "%s",
                         final_bias ? "there" : "missing", layer_norm ? "there" : "missing");
    }
    if (checkpoint->config.d_mlp > 0) {
        const ssm__claim_flag same = {"norm.bias", layer_norm};
        SSM__TRY(check_blocks(checkpoint, SSM__SLOT_norm2_bias, NULL, false, err));
        if (is_there(checkpoint, SSM__SLOT_norm2_bias, 0) != same.value) {
            return ssm__fail(err, SSM_STATUS_FILE,
                             SSM__TENSOR(checkpoint->path, "backbone.layers.0.norm2.bias"),
                             "the bias of the norm before the MLP is %s although norm.bias is %s",
                             layer_norm ? "missing" : "there", layer_norm ? "there" : "missing");
        }
    }
    checkpoint->config.layer_norm = layer_norm;
    if (unread && claim->key != NULL && !claim->value) {
        return ssm__note(&checkpoint->notes, err,
                         "config.json says rms_norm = false; transformers does not read it for "
                         "mamba2, and it is ignored.");
    }
    return SSM_STATUS_OK;
}

static ssm_status check_presence(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claims *claims = &checkpoint->claims;
    SSM__TRY(check_mixers(checkpoint, SSM__SLOT_in_proj_bias, &claims->use_bias, err));
    SSM__TRY(check_mixers(checkpoint, SSM__SLOT_out_proj_bias, &claims->use_bias, err));
    SSM__TRY(check_mixers(checkpoint, SSM__SLOT_conv1d_bias, &claims->use_conv_bias, err));
    SSM__TRY(check_mixers(checkpoint, SSM__SLOT_gate_norm, &claims->gated_norm, err));
    const ssm_layer_kind attention = SSM_LAYER_ATTENTION;
    SSM__TRY(
        check_kind(checkpoint, attention, SSM__SLOT_in_proj_bias, &claims->qkv_bias, false, err));
    SSM__TRY(check_kind(checkpoint, attention, SSM__SLOT_out_proj_bias, &claims->attention_out_bias,
                        false, err));
    SSM__TRY(check_kind(checkpoint, attention, SSM__SLOT_conv1d, NULL, false, err));
    SSM__TRY(check_kind(checkpoint, attention, SSM__SLOT_conv1d_bias, NULL, false, err));
    static const int mlp[] = {SSM__SLOT_norm2, SSM__SLOT_fc1, SSM__SLOT_fc1_bias, SSM__SLOT_fc2,
                              SSM__SLOT_fc2_bias};
    for (size_t i = 0; i < sizeof mlp / sizeof mlp[0]; i++) {
        SSM__TRY(check_blocks(checkpoint, mlp[i], NULL, false, err));
    }
    const int64_t mamba2 = ssm__first_layer(checkpoint, SSM_LAYER_MAMBA2);
    checkpoint->config.gated_norm =
        mamba2 >= 0 && is_there(checkpoint, SSM__SLOT_gate_norm, mamba2);
    return check_norms(checkpoint, err);
}

/* ---- types and shapes ------------------------------------------------------------------------ */

/* F64 is refused too: the kernels compute in float32 from F32, F16 and BF16, and rounding a weight
 * in silence would make it another model. */
static ssm_status check_dtype(const ssm_tensor *tensor, ssm_error *err)
{
    if (tensor->dtype == SSM_DTYPE_F32 || tensor->dtype == SSM_DTYPE_F16 ||
        tensor->dtype == SSM_DTYPE_BF16) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(tensor->file, tensor->name),
                     "the weight is stored as %s; expected F32, F16 or BF16%s",
                     ssm_dtype_name(tensor->dtype),
                     tensor->dtype == SSM_DTYPE_F64 ? ": convert the checkpoint to F32" : "");
}

static const char *source_of_sizes(ssm_layer_kind kind)
{
    static const char *const texts[] = {
        [SSM_LAYER_MAMBA] = "d_inner, d_state, dt_rank, d_conv from the first layer's A_log, "
                            "dt_proj, conv1d",
        [SSM_LAYER_MAMBA2] = "n_heads, d_inner, n_groups d_state, d_ssm from the first Mamba-2 "
                             "layer's dt_bias, out_proj, in_proj, conv1d",
        [SSM_LAYER_ATTENTION] = "heads from attn_cfg and the first attention layer's in_proj, "
                                "out_proj"};
    return texts[kind];
}

static ssm_status check_slot(const ssm_config *config, ssm_layer_kind kind, int id,
                             const ssm_tensor *tensor, ssm_error *err)
{
    SSM__TRY(check_dtype(tensor, err));
    int64_t dims[SSM__SLOT_DIMS];
    int n_dims = ssm__slot_shape(config, kind, id, dims);
    bool equal = tensor->n_dims == n_dims;
    for (int i = 0; equal && i < n_dims; i++) {
        equal = tensor->dims[i] == dims[i];
    }
    if (equal) {
        return SSM_STATUS_OK;
    }
    char found[256];
    char expected[256];
    char letters[SSM__LETTERS_MAX];
    ssm__shape_text(tensor->dims, tensor->n_dims, found, sizeof found);
    ssm__shape_text(dims, n_dims, expected, sizeof expected);
    ssm__slot_letters(kind, id, letters);
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(tensor->file, tensor->name),
                     "the tensor has shape %s; expected %s = %s, with d_model from the embedding "
                     "and %s",
                     found, letters, expected, source_of_sizes(kind));
}

ssm_status ssm__match_slots(ssm_checkpoint *checkpoint, ssm_error *err)
{
    SSM__TRY(check_presence(checkpoint, err));
    int64_t layers = checkpoint->config.n_layers;
    for (int64_t i = 0; i < ssm__slot_count(layers); i++) {
        ssm__slot_place place = ssm__slot_at(layers, i);
        const ssm_tensor *tensor = ssm__slot_tensor_const(&checkpoint->weights, place);
        if (tensor->name != NULL) {
            ssm_layer_kind kind = place.layer < 0 ? checkpoint->weights.layers[0].kind
                                                  : checkpoint->weights.layers[place.layer].kind;
            SSM__TRY(check_slot(&checkpoint->config, kind, place.id, tensor, err));
        }
    }
    return SSM_STATUS_OK;
}
