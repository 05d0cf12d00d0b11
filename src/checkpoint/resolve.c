/* Every slot filled exactly once, every tensor used or listed, nothing made up. */
#include "checkpoint/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "safetensors/dtype.h"

static const char *config_path(const ssm_checkpoint *checkpoint)
{
    return checkpoint->config_path;
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* One more than the highest layer that a name fills a slot of. */
static int64_t layers_named(const ssm__entry *entries, int64_t count)
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

static bool any_name_ends(const ssm_checkpoint *checkpoint, const char *end)
{
    for (int64_t i = 0; i < checkpoint->n_entries; i++) {
        const char *name = checkpoint->entries[i].tensor->name;
        size_t length = strlen(name);
        if (length >= strlen(end) && strcmp(name + length - strlen(end), end) == 0) {
            return true;
        }
    }
    return false;
}

static ssm_status check_family(const ssm_checkpoint *checkpoint, int64_t layers, ssm_error *err)
{
    if (any_name_ends(checkpoint, ".mixer.dt_bias") &&
        !any_name_ends(checkpoint, ".mixer.x_proj.weight")) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(config_path(checkpoint), "model_type"),
                         "config.json says model_type = \"mamba\", but the tensors are those of "
                         "Mamba-2 (mixer.dt_bias, no mixer.x_proj.weight)");
    }
    if (layers < 1) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->path),
                         "none of the %" PRId64 " tensors is named like a layer of a mamba model "
                         "(backbone.layers.0.mixer.A_log, …)%s%s",
                         checkpoint->n_entries, checkpoint->n_entries > 0 ? "; the first is " : "",
                         checkpoint->n_entries > 0 ? checkpoint->entries[0].tensor->name : "");
    }
    return SSM_STATUS_OK;
}

/* ---- filling --------------------------------------------------------------------------------- */

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
    int64_t layers = checkpoint->config.n_layers;
    checkpoint->weights.layers = calloc((size_t)layers + 1, sizeof *checkpoint->weights.layers);
    if (checkpoint->weights.layers == NULL) {
        return ssm__fail_memory(err, "the table of weights",
                                (size_t)layers * sizeof *checkpoint->weights.layers);
    }
    for (int64_t i = 0; i < checkpoint->n_entries; i++) {
        ssm__slot_place place;
        ssm__entry *entry = &checkpoint->entries[i];
        if (!entry->superseded && ssm__slot_parse(entry->tensor->name, &place)) {
            SSM__TRY(fill_slot(checkpoint, entry, place, err));
        }
    }
    return SSM_STATUS_OK;
}

/* ---- missing --------------------------------------------------------------------------------- */

/* A tensor without a slot whose name resembles the slot's; NULL: none. */
static const ssm_tensor *find_similar(const ssm_checkpoint *checkpoint, const char *slot_name)
{
    const char **names = calloc((size_t)checkpoint->n_entries + 1, sizeof *names);
    if (names == NULL) {
        return NULL; /* the message then has no suggestion */
    }
    int64_t count = 0;
    for (int64_t i = 0; i < checkpoint->n_entries; i++) {
        if (!checkpoint->entries[i].used && !checkpoint->entries[i].superseded) {
            names[count++] = ssm__strip_prefixes(checkpoint->entries[i].tensor->name);
        }
    }
    const char *nearest = ssm_nearest(ssm__strip_prefixes(slot_name), names);
    const ssm_tensor *found = NULL;
    for (int64_t i = 0; nearest != NULL && i < checkpoint->n_entries; i++) {
        const ssm_tensor *tensor = checkpoint->entries[i].tensor;
        if (!checkpoint->entries[i].used && ssm__strip_prefixes(tensor->name) == nearest) {
            found = tensor;
        }
    }
    free(names);
    return found;
}

/* The shard where the index places the slot's tensor under any spelling of its name. */
static const char *shard_of_slot(const ssm_checkpoint *checkpoint, ssm__slot_place place)
{
    const char *name;
    json_t *value;
    if (checkpoint->index == NULL) {
        return NULL;
    }
    json_object_foreach((json_t *)(uintptr_t)checkpoint->index->weight_map, name, value)
    {
        ssm__slot_place here;
        if (ssm__slot_parse(name, &here) && here.id == place.id && here.layer == place.layer) {
            return json_string_value(value);
        }
    }
    return NULL;
}

/* A tensor of the slot that was passed over because the index does not name it. */
static const ssm_tensor *find_superseded(const ssm_checkpoint *checkpoint, ssm__slot_place place)
{
    for (int64_t i = 0; i < checkpoint->n_entries; i++) {
        ssm__slot_place here;
        const ssm__entry *entry = &checkpoint->entries[i];
        if (entry->superseded && ssm__slot_parse(entry->tensor->name, &here) &&
            here.id == place.id && here.layer == place.layer) {
            return entry->tensor;
        }
    }
    return NULL;
}

static ssm_status fail_missing(const ssm_checkpoint *checkpoint, ssm__slot_place place,
                               int64_t others, ssm_error *err)
{
    char name[SSM__SLOT_NAME_MAX];
    ssm__slot_name(place, name);
    char more[64] = "";
    if (others > 0) {
        snprintf(more, sizeof more, " (and %" PRId64 " more are missing)", others);
    }
    ssm__place where = SSM__TENSOR(checkpoint->path, name);
    const char *shard = shard_of_slot(checkpoint, place);
    if (shard != NULL) {
        return ssm__fail(err, SSM_STATUS_FILE, where,
                         "the tensor is missing%s: the index places it in the shard %s, which was "
                         "not read",
                         more, shard);
    }
    const ssm_tensor *superseded = find_superseded(checkpoint, place);
    if (superseded != NULL) {
        return ssm__fail(
            err, SSM_STATUS_FILE, where,
            "the tensor is missing%s: the index does not name it, although %s holds it", more,
            ssm__file_name(superseded->file));
    }
    const ssm_tensor *similar = find_similar(checkpoint, name);
    if (similar != NULL) {
        return ssm__fail(err, SSM_STATUS_FILE, where,
                         "the tensor is missing%s: perhaps it is misnamed, %s holds %s, which fits "
                         "no slot",
                         more, ssm__file_name(similar->file), similar->name);
    }
    bool is_shard = strstr(ssm__file_name(checkpoint->path), "-of-") != NULL;
    return ssm__fail(
        err, SSM_STATUS_FILE, where,
        "the tensor is missing%s: no file that was read holds it or a similar name%s", more,
        is_shard ? "; the file given is one shard of several, give the directory" : "");
}

static ssm_status check_complete(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    int64_t layers = checkpoint->config.n_layers;
    ssm__slot_place first = {-1, -1};
    int64_t missing = 0;
    for (int64_t i = 0; i < ssm__slot_count(layers); i++) {
        ssm__slot_place place = ssm__slot_at(layers, i);
        const ssm_tensor *tensor = ssm__slot_tensor_const(&checkpoint->weights, place);
        if (ssm__slot_info(place.id)->required && tensor->name == NULL) {
            first = missing == 0 ? place : first;
            missing++;
        }
    }
    return missing == 0 ? SSM_STATUS_OK : fail_missing(checkpoint, first, missing - 1, err);
}

bool ssm__names_are_complete(const ssm__entry *entries, int64_t count, int64_t n_layers)
{
    int64_t named = layers_named(entries, count);
    int64_t layers = n_layers > 0 ? n_layers : named;
    if (layers == 0 || layers != named || layers > count) {
        return false;
    }
    int64_t slots = ssm__slot_count(layers);
    bool *filled = calloc((size_t)slots, sizeof *filled);
    if (filled == NULL) {
        return false;
    }
    int64_t left = 0;
    for (int64_t i = 0; i < slots; i++) {
        left += ssm__slot_info(ssm__slot_at(layers, i).id)->required;
    }
    for (int64_t i = 0; i < count; i++) {
        ssm__slot_place place;
        if (ssm__slot_parse(entries[i].tensor->name, &place)) {
            int64_t at = place.layer >= 0 ? place.layer * SSM__LAYER_SLOTS + place.id
                                          : layers * SSM__LAYER_SLOTS + place.id - SSM__LAYER_SLOTS;
            left -= ssm__slot_info(place.id)->required && !filled[at];
            filled[at] = true;
        }
    }
    free(filled);
    return left == 0;
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

static ssm_status list_unused(ssm_checkpoint *checkpoint, ssm_error *err)
{
    for (int64_t i = 0; i < checkpoint->n_entries; i++) {
        const ssm__entry *entry = &checkpoint->entries[i];
        const ssm_tensor *tensor = entry->tensor;
        if (entry->used || entry->superseded) {
            continue;
        }
        if (changes_numbers(tensor->name)) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(tensor->file, tensor->name),
                             "the tensor belongs to no slot of a mamba model, but stands where a "
                             "model would use it; leaving it out would change the numbers");
        }
        char shape[256];
        ssm__shape_text(tensor->dims, tensor->n_dims, shape, sizeof shape);
        SSM__TRY(ssm__note(&checkpoint->notes, err,
                           "Tensor %s %s %s belongs to no slot of a mamba model and is not used.",
                           tensor->name, ssm_dtype_name(tensor->dtype), shape));
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
    int64_t layers = layers_named(checkpoint->entries, checkpoint->n_entries);
    SSM__TRY(check_family(checkpoint, layers, err));
    if (layers > checkpoint->n_entries) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(checkpoint->path),
                         "a tensor is named after layer %" PRId64 ", but there are only %" PRId64
                         " tensors: layers are missing",
                         layers - 1, checkpoint->n_entries);
    }
    checkpoint->config.n_layers = layers;
    SSM__TRY(fill_slots(checkpoint, err));
    SSM__TRY(check_complete(checkpoint, err));
    SSM__TRY(list_unused(checkpoint, err));
    return note_prefix(checkpoint, err);
}

ssm_status ssm__checkpoint_resolve(ssm_checkpoint *checkpoint, ssm_error *err)
{
    SSM__TRY(ssm__resolve_slots(checkpoint, err));
    SSM__TRY(ssm__match_claims(checkpoint, err));
    return ssm__decide_head(checkpoint, err);
}
