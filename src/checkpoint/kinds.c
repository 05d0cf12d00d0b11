/* What stands in each layer, by the names of its tensors: mixer.x_proj is Mamba's, mixer.dt_bias
 * Mamba-2's, and mixer.in_proj without A_log is attention, whose names are the same otherwise. */
#include "checkpoint/internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"

enum { HAS_IN_PROJ = 1, HAS_X_PROJ = 2, HAS_DT_PROJ = 4, HAS_DT_BIAS = 8, HAS_A_LOG = 16 };

static unsigned mark_of(int id)
{
    switch (id) {
    case SSM__SLOT_in_proj:
        return HAS_IN_PROJ;
    case SSM__SLOT_x_proj:
        return HAS_X_PROJ;
    case SSM__SLOT_dt_proj:
        return HAS_DT_PROJ;
    case SSM__SLOT_dt_bias:
        return HAS_DT_BIAS;
    case SSM__SLOT_A_log:
        return HAS_A_LOG;
    default:
        return 0;
    }
}

/* SSM_LAYER_KINDS: cannot be told. */
static ssm_layer_kind kind_of(unsigned marks, bool with_attention)
{
    if (marks & HAS_X_PROJ) {
        return SSM_LAYER_MAMBA;
    }
    if (marks & HAS_DT_BIAS) {
        return SSM_LAYER_MAMBA2;
    }
    if (marks & HAS_DT_PROJ) {
        return SSM_LAYER_MAMBA;
    }
    bool attention = with_attention && (marks & HAS_IN_PROJ) && !(marks & HAS_A_LOG);
    return attention ? SSM_LAYER_ATTENTION : SSM_LAYER_KINDS;
}

int64_t ssm__layers_named(const ssm__entry *entries, int64_t count)
{
    int64_t layers = 0;
    for (int64_t i = 0; i < count; i++) {
        ssm__slot_place place;
        if (!entries[i].superseded && ssm__slot_parse(entries[i].tensor->name, &place) &&
            place.layer >= layers) {
            layers = place.layer + 1;
        }
    }
    return layers;
}

bool ssm__layer_kinds(const ssm__entry *entries, int64_t count, int64_t n_layers,
                      bool with_attention, ssm_layer_kind *kinds)
{
    unsigned char *marks = calloc((size_t)n_layers + 1, sizeof *marks);
    if (marks == NULL) {
        return false;
    }
    for (int64_t i = 0; i < count; i++) {
        ssm__slot_place place;
        if (!entries[i].superseded && ssm__slot_parse(entries[i].tensor->name, &place) &&
            place.layer >= 0 && place.layer < n_layers) {
            marks[place.layer] |= (unsigned char)mark_of(place.id);
        }
    }
    ssm_layer_kind around = SSM_LAYER_MAMBA;
    for (int64_t layer = n_layers - 1; layer >= 0; layer--) {
        kinds[layer] = kind_of(marks[layer], with_attention);
        if (kinds[layer] == SSM_LAYER_MAMBA || kinds[layer] == SSM_LAYER_MAMBA2) {
            around = kinds[layer];
        }
    }
    for (int64_t layer = 0; layer < n_layers; layer++) {
        kinds[layer] = kinds[layer] == SSM_LAYER_KINDS ? around : kinds[layer];
    }
    free(marks);
    return true;
}

int64_t ssm__first_layer(const ssm_checkpoint *checkpoint, ssm_layer_kind kind)
{
    for (int64_t layer = 0; layer < checkpoint->config.n_layers; layer++) {
        if (checkpoint->weights.layers[layer].kind == kind) {
            return layer;
        }
    }
    return -1;
}

/* ---- the family ------------------------------------------------------------------------------ */

static ssm_status family_conflict(const ssm_checkpoint *checkpoint, bool mamba2, ssm_error *err)
{
    const ssm__claim_family *claim = &checkpoint->claims.family;
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, claim->key),
                     "config.json says %s = \"%s\", but the tensors are those of %s", claim->key,
                     claim->text,
                     mamba2 ? "Mamba-2 (mixer.dt_bias, no mixer.x_proj.weight)"
                            : "Mamba-1 (mixer.x_proj.weight, no mixer.dt_bias)");
}

static ssm_status undecided(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, "model_type"),
                     "config.json has no model_type; it decides between families whose tensors "
                     "look alike: add \"model_type\": \"mamba\" if that is what the model is");
}

ssm_status ssm__decide_family(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claims *claims = &checkpoint->claims;
    int64_t mamba = ssm__first_layer(checkpoint, SSM_LAYER_MAMBA);
    int64_t mamba2 = ssm__first_layer(checkpoint, SSM_LAYER_MAMBA2);
    if (mamba >= 0 && mamba2 >= 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->path),
                         "layer %" PRId64 " is Mamba-1 and layer %" PRId64
                         " is Mamba-2 by their tensors; a model of both is not supported",
                         mamba, mamba2);
    }
    if (mamba < 0 && mamba2 < 0) { /* a transformer of the same code: the family tells nothing */
        checkpoint->config.family = claims->family.value;
        return ssm__note(&checkpoint->notes, err,
                         "All layers are attention: the model runs, but has no states to record.");
    }
    bool claims_mamba2 = claims->family.value == SSM_FAMILY_MAMBA2;
    if (claims->family.key != NULL && claims_mamba2 != (mamba2 >= 0)) {
        return family_conflict(checkpoint, mamba2 >= 0, err);
    }
    checkpoint->config.family = mamba2 >= 0 ? SSM_FAMILY_MAMBA2 : claims->family.value;
    if (claims->family.key == NULL && mamba >= 0 && claims->schema == SSM__SCHEMA_HF) {
        return undecided(checkpoint, err); /* Falcon-Mamba's tensors are the same */
    }
    if (claims->family.key == NULL && mamba2 >= 0 && claims->schema == SSM__SCHEMA_ORIGINAL) {
        return ssm__note(&checkpoint->notes, err,
                         "config.json does not say ssm_cfg.layer (the original code then makes "
                         "Mamba1); the tensors are those of Mamba-2.");
    }
    return SSM_STATUS_OK;
}
