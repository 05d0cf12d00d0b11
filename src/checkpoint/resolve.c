/* Every slot filled exactly once, every tensor used or listed, nothing made up. */
#include "checkpoint/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "safetensors/dtype.h"

/* ---- layers ---------------------------------------------------------------------------------- */

/* Parts of layers that only models of other families have, below layers.N. */
static const struct {
    const char *start, *kind;
} foreign_parts[] = {
    {"self_attn.", "attention"},
    {"attention.", "attention"},
    {"mixer.q_proj.", "attention"},
    {"block_sparse_moe.", "moe"},
    {"feed_forward.experts.", "moe"},
    {"feed_forward.router.", "moe"},
    {"mixer.experts.", "moe"},
    {"mixer.gate.", "moe"},
    {"mixer.up_proj.", "mlp"},
    {"feed_forward.", "mlp"},
    {"shared_mlp.", "mlp"},
    {"shared_transformer.", "a shared block of attention"},
    {"mamba_decoder.", "a Mamba layer behind a shared block of attention"},
    {"mixer.B_bias", "Mamba3"},
    {"mamba.", "the Mamba layer of a hybrid (Jamba, Bamba, Zamba2, Granite, Falcon-H1)"},
};

static const char *foreign_kind(const char *rest)
{
    for (size_t i = 0; i < sizeof foreign_parts / sizeof foreign_parts[0]; i++) {
        if (strncmp(rest, foreign_parts[i].start, strlen(foreign_parts[i].start)) == 0) {
            return foreign_parts[i].kind;
        }
    }
    return NULL;
}

/* The first layer that another family's names belong to, before anything is called missing. */
static ssm_status refuse_foreign_layers(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm_tensor *first = NULL;
    const char *kind = NULL;
    int64_t first_layer = INT64_MAX;
    for (int64_t i = 0; i < checkpoint->n_entries; i++) {
        const ssm_tensor *tensor = checkpoint->entries[i].tensor;
        const char *rest;
        int64_t layer;
        if (checkpoint->entries[i].superseded ||
            !ssm__parse_layer(ssm__strip_prefixes(tensor->name), &layer, &rest) ||
            layer >= first_layer || foreign_kind(rest) == NULL) {
            continue;
        }
        first = tensor;
        first_layer = layer;
        kind = foreign_kind(rest);
    }
    if (first == NULL) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(first->file, first->name),
                     "not supported yet: layer %" PRId64 " is %s", first_layer, kind);
}

static ssm_status check_layers(const ssm_checkpoint *checkpoint, int64_t layers, ssm_error *err)
{
    if (layers < 1) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->path),
                         "none of the %" PRId64 " tensors is named like a layer of a mamba model "
                         "(backbone.layers.0.mixer.A_log, …)%s%s",
                         checkpoint->n_entries, checkpoint->n_entries > 0 ? "; the first is " : "",
                         checkpoint->n_entries > 0 ? checkpoint->entries[0].tensor->name : "");
    }
    if (layers > checkpoint->n_entries) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->path),
                         "a tensor is named after layer %" PRId64 ", but there are only %" PRId64
                         " tensors: layers are missing",
                         layers - 1, checkpoint->n_entries);
    }
    return SSM_STATUS_OK;
}

static ssm_status set_kinds(ssm_checkpoint *checkpoint, ssm_error *err)
{
    int64_t layers = checkpoint->config.n_layers;
    ssm__layer_weights *weights = calloc((size_t)layers + 1, sizeof *weights);
    ssm_layer_kind *kinds = calloc((size_t)layers + 1, sizeof *kinds);
    checkpoint->weights.layers = weights;
    bool good = weights != NULL && kinds != NULL &&
                ssm__layer_kinds(checkpoint->entries, checkpoint->n_entries, layers,
                                 checkpoint->claims.has_attention, kinds);
    for (int64_t layer = 0; good && layer < layers; layer++) {
        weights[layer].kind = kinds[layer];
    }
    free(kinds);
    return good ? SSM_STATUS_OK
                : ssm__fail_memory(err, "the table of weights", (size_t)layers * sizeof *weights);
}

/* ---- filling --------------------------------------------------------------------------------- */

static ssm__need need_of(const ssm_checkpoint *checkpoint, ssm__slot_place place)
{
    ssm_layer_kind kind =
        place.layer < 0 ? SSM_LAYER_MAMBA : checkpoint->weights.layers[place.layer].kind;
    return ssm__slot_need(kind, place.id);
}

static ssm_status fill_slot(ssm_checkpoint *checkpoint, ssm__entry *entry, ssm__slot_place place,
                            ssm_error *err)
{
    const ssm_tensor *tensor = entry->tensor;
    ssm_tensor *slot = ssm__slot_tensor(&checkpoint->weights, place);
    if (slot->name != NULL) {
        bool same_name = strcmp(slot->name, tensor->name) == 0;
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(tensor->file, tensor->name),
                         "the slot is filled twice: by this tensor and by %s%s%s",
                         same_name ? "that of the same name" : slot->name, " in ",
                         ssm__file_name(slot->file));
    }
    *slot = *tensor;
    entry->used = true;
    return SSM_STATUS_OK;
}

static ssm_status fill_slots(ssm_checkpoint *checkpoint, ssm_error *err)
{
    for (int64_t i = 0; i < checkpoint->n_entries; i++) {
        ssm__slot_place place;
        ssm__entry *entry = &checkpoint->entries[i];
        if (!entry->superseded && ssm__slot_parse(entry->tensor->name, &place) &&
            need_of(checkpoint, place) != SSM__ABSENT) {
            SSM__TRY(fill_slot(checkpoint, entry, place, err));
        }
    }
    return SSM_STATUS_OK;
}

/* ---- missing --------------------------------------------------------------------------------- */

/* An MLP is whole or not there. */
static bool is_needed(const ssm_checkpoint *checkpoint, ssm__slot_place place)
{
    if (place.id == SSM__SLOT_norm2 || place.id == SSM__SLOT_fc1 || place.id == SSM__SLOT_fc2) {
        const ssm__layer_weights *layer = &checkpoint->weights.layers[place.layer];
        return layer->norm2.name != NULL || layer->fc1.name != NULL || layer->fc2.name != NULL;
    }
    return need_of(checkpoint, place) == SSM__REQUIRED;
}

static ssm_status check_complete(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    int64_t layers = checkpoint->config.n_layers;
    ssm__slot_place first = {-1, -1};
    int64_t missing = 0;
    for (int64_t i = 0; i < ssm__slot_count(layers); i++) {
        ssm__slot_place place = ssm__slot_at(layers, i);
        const ssm_tensor *tensor = ssm__slot_tensor_const(&checkpoint->weights, place);
        if (tensor->name == NULL && is_needed(checkpoint, place)) {
            first = missing == 0 ? place : first;
            missing++;
        }
    }
    return missing == 0 ? SSM_STATUS_OK : ssm__fail_missing(checkpoint, first, missing - 1, err);
}

/* The place of a slot in filled[]; −1: not one that must be filled. */
static int64_t required_place(const char *name, int64_t layers, const ssm_layer_kind *kinds)
{
    ssm__slot_place place;
    if (!ssm__slot_parse(name, &place)) {
        return -1;
    }
    ssm_layer_kind kind = place.layer < 0 ? SSM_LAYER_MAMBA : kinds[place.layer];
    if (ssm__slot_need(kind, place.id) != SSM__REQUIRED) {
        return -1;
    }
    return place.layer >= 0 ? place.layer * SSM__LAYER_SLOTS + place.id
                            : layers * SSM__LAYER_SLOTS + place.id - SSM__LAYER_SLOTS;
}

static bool all_filled(const ssm__entry *entries, int64_t count, int64_t layers,
                       const ssm_layer_kind *kinds, bool *filled)
{
    int64_t left = 0;
    for (int64_t i = 0; i < ssm__slot_count(layers); i++) {
        ssm__slot_place place = ssm__slot_at(layers, i);
        ssm_layer_kind kind = place.layer < 0 ? SSM_LAYER_MAMBA : kinds[place.layer];
        left += ssm__slot_need(kind, place.id) == SSM__REQUIRED;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t at = required_place(entries[i].tensor->name, layers, kinds);
        if (at >= 0) {
            left -= !filled[at];
            filled[at] = true;
        }
    }
    return left == 0;
}

bool ssm__names_are_complete(const ssm__entry *entries, int64_t count, int64_t n_layers)
{
    int64_t named = ssm__layers_named(entries, count);
    int64_t layers = n_layers > 0 ? n_layers : named;
    if (layers == 0 || layers != named || layers > count) {
        return false;
    }
    bool *filled = calloc((size_t)ssm__slot_count(layers), sizeof *filled);
    ssm_layer_kind *kinds = calloc((size_t)layers, sizeof *kinds);
    bool complete = filled != NULL && kinds != NULL &&
                    ssm__layer_kinds(entries, count, layers, true, kinds) &&
                    all_filled(entries, count, layers, kinds, filled);
    free(filled);
    free(kinds);
    return complete;
}

/* ---- left over ------------------------------------------------------------------------------- */

/* True for a tensor that stands where the family has none but that another family would compute
 * with: leaving it out would give other numbers without a word. */
static bool changes_numbers(const char *name)
{
    static const char *const starts[] = {"layers.",  "norm_f.",     "norm.",
                                         "lm_head.", "embeddings.", "embedding."};
    const char *rest = ssm__strip_prefixes(name);
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        if (strncmp(rest, starts[i], strlen(starts[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* Buffers that old versions of transformers wrote: the weights of Falcon-Mamba's norms of dt, B and
 * C, which have none. */
static bool is_falcon_buffer(const ssm_checkpoint *checkpoint, const char *name)
{
    int64_t layer;
    const char *rest;
    return checkpoint->config.family == SSM_FAMILY_FALCON_MAMBA &&
           ssm__parse_layer(ssm__strip_prefixes(name), &layer, &rest) &&
           (strcmp(rest, "mixer.b_c_rms") == 0 || strcmp(rest, "mixer.dt_rms") == 0);
}

static ssm_status list_unused(ssm_checkpoint *checkpoint, ssm_error *err)
{
    for (int64_t i = 0; i < checkpoint->n_entries; i++) {
        const ssm__entry *entry = &checkpoint->entries[i];
        const ssm_tensor *tensor = entry->tensor;
        if (entry->used || entry->superseded) {
            continue;
        }
        if (changes_numbers(tensor->name) && !is_falcon_buffer(checkpoint, tensor->name)) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(tensor->file, tensor->name),
                             "the tensor belongs to no slot of a %s model, but stands where a "
                             "model would use it; leaving it out would change the numbers",
                             ssm_family_name(checkpoint->config.family));
        }
        char shape[256];
        ssm__shape_text(tensor->dims, tensor->n_dims, shape, sizeof shape);
        SSM__TRY(ssm__note(&checkpoint->notes, err,
                           "Tensor %s %s %s belongs to no slot of a %s model and is not used.",
                           tensor->name, ssm_dtype_name(tensor->dtype), shape,
                           ssm_family_name(checkpoint->config.family)));
    }
    return SSM_STATUS_OK;
}

static ssm_status note_prefix(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const char *name = checkpoint->weights.embedding.name;
    size_t length = (size_t)(ssm__strip_prefixes(name) - name);
    if (length == strlen("backbone.") && strncmp(name, "backbone.", length) == 0) {
        return SSM_STATUS_OK;
    }
    if (length == 0) {
        return ssm__note(&checkpoint->notes, err,
                         "Tensor names have no prefix (Hugging Face writes backbone.).");
    }
    return ssm__note(&checkpoint->notes, err,
                     "Tensor names begin with %.*s (Hugging Face writes backbone.).", (int)length,
                     name);
}

/* ---- steps ----------------------------------------------------------------------------------- */

ssm_status ssm__resolve_slots(ssm_checkpoint *checkpoint, ssm_error *err)
{
    SSM__TRY(refuse_foreign_layers(checkpoint, err));
    int64_t layers = ssm__layers_named(checkpoint->entries, checkpoint->n_entries);
    SSM__TRY(check_layers(checkpoint, layers, err));
    checkpoint->config.n_layers = layers;
    SSM__TRY(set_kinds(checkpoint, err));
    SSM__TRY(ssm__decide_family(checkpoint, err));
    SSM__TRY(fill_slots(checkpoint, err));
    SSM__TRY(check_complete(checkpoint, err));
    SSM__TRY(list_unused(checkpoint, err));
    return note_prefix(checkpoint, err);
}

ssm_status ssm__checkpoint_resolve(ssm_checkpoint *checkpoint,
                                   const ssm_checkpoint_options *options, ssm_error *err)
{
    SSM__TRY(ssm__resolve_slots(checkpoint, err));
    SSM__TRY(ssm__read_sizes(checkpoint, err));
    SSM__TRY(ssm__match_sizes(checkpoint, err));
    SSM__TRY(ssm__match_slots(checkpoint, err));
    SSM__TRY(ssm__take_settings(checkpoint, options, err));
    return ssm__decide_head(checkpoint, err);
}
