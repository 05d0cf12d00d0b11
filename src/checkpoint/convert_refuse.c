/* What a layout has no word for. A model that was written without it would be read as another one.
 */
#include <inttypes.h>

#include "base/error.h"
#include "checkpoint/convert.h"
#include "checkpoint/internal.h"

static bool has(const ssm_checkpoint *checkpoint, ssm_layer_kind kind, int id)
{
    const int64_t layer = ssm__first_layer(checkpoint, kind);
    const ssm__slot_place place = {id, layer};
    return layer >= 0 && ssm__slot_tensor_const(&checkpoint->weights, place)->name != NULL;
}

static bool mixer_has(const ssm_checkpoint *checkpoint, int id)
{
    return has(checkpoint, SSM_LAYER_MAMBA, id) || has(checkpoint, SSM_LAYER_MAMBA2, id);
}

typedef struct lack {
    bool applies;
    const char *what;
} lack;

static ssm_status refuse(const ssm_checkpoint *checkpoint, const char *layout, const lack *rows,
                         size_t count, ssm_error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (rows[i].applies) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(checkpoint->path),
                             "the %s layout cannot hold this model: it has no word for %s", layout,
                             rows[i].what);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status refuse_hf(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm_config *c = &checkpoint->config;
    const bool mamba2 = c->family == SSM_FAMILY_MAMBA2;
    const lack rows[] = {
        {ssm__first_layer(checkpoint, SSM_LAYER_ATTENTION) >= 0, "layers of attention"},
        {c->d_mlp > 0, "an MLP in every block"},
        {c->layer_norm, "LayerNorm in place of RMSNorm"},
        {mamba2 && c->d_ssm < c->d_inner, "a scan narrower than d_inner (d_ssm < d_inner)"},
        {mamba2 && c->D_per_channel, "D per channel (D_has_hdim)"},
        {mamba2 && !c->gated_norm, "a mixer without its norm (rmsnorm = false)"},
        {mamba2 && c->norm_before_gate, "the norm before the gate (norm_before_gate)"},
        {mamba2 && c->mixer_norm_eps != c->norm_eps, "two epsilons"},
        {mixer_has(checkpoint, SSM__SLOT_in_proj_bias) !=
             mixer_has(checkpoint, SSM__SLOT_out_proj_bias),
         "a bias of only one of in_proj and out_proj"},
    };
    return refuse(checkpoint, "Hugging Face", rows, sizeof rows / sizeof rows[0], err);
}

static ssm_status refuse_original(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm_config *c = &checkpoint->config;
    const ssm_layer_kind attention = SSM_LAYER_ATTENTION;
    const lack rows[] = {
        {c->family == SSM_FAMILY_FALCON_MAMBA, "norms of dt, B and C (Falcon-Mamba)"},
        {c->norm_eps != 1e-5, "an epsilon of the norms other than 1e-5"},
        {c->d_mlp % 128 != 0, "an MLP whose width is no multiple of 128"},
        {has(checkpoint, checkpoint->weights.layers[0].kind, SSM__SLOT_fc1_bias) ||
             has(checkpoint, checkpoint->weights.layers[0].kind, SSM__SLOT_fc2_bias),
         "biases of the MLP"},
        {c->attention_conv > 0 && !has(checkpoint, attention, SSM__SLOT_conv1d_bias),
         "a convolution of attention without its bias"},
        {mixer_has(checkpoint, SSM__SLOT_in_proj_bias) !=
             mixer_has(checkpoint, SSM__SLOT_out_proj_bias),
         "a bias of only one of in_proj and out_proj"},
    };
    return refuse(checkpoint, "original", rows, sizeof rows / sizeof rows[0], err);
}

ssm_status ssm__convert_refuse(const ssm_checkpoint *checkpoint, ssm_layout layout, ssm_error *err)
{
    return layout == SSM_LAYOUT_HF ? refuse_hf(checkpoint, err) : refuse_original(checkpoint, err);
}

ssm_status ssm__convert_keep_layout(const ssm_checkpoint *checkpoint, ssm_convert_options *options,
                                    ssm_error *err)
{
    const ssm_layout own =
        checkpoint->claims.schema == SSM__SCHEMA_ORIGINAL ? SSM_LAYOUT_ORIGINAL : SSM_LAYOUT_HF;
    const ssm_layout other = own == SSM_LAYOUT_HF ? SSM_LAYOUT_ORIGINAL : SSM_LAYOUT_HF;
    options->layout = own;
    if (ssm__convert_refuse(checkpoint, own, NULL) != SSM_STATUS_OK) {
        if (ssm__convert_refuse(checkpoint, other, NULL) != SSM_STATUS_OK) {
            return ssm__convert_refuse(checkpoint, own, err);
        }
        options->layout = other;
    }
    options->container =
        options->layout == SSM_LAYOUT_ORIGINAL ? SSM_CONTAINER_TORCH : SSM_CONTAINER_SAFETENSORS;
    return SSM_STATUS_OK;
}
