/* Why a slot is empty: misnamed, in a shard that was not read, left out by the index, or absent. */
#include "checkpoint/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

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

ssm_status ssm__fail_missing(const ssm_checkpoint *checkpoint, ssm__slot_place place,
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
