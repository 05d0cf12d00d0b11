/* checkpoint/internal.h: the inside of an open checkpoint and the steps that fill it. */
#ifndef SSM_CHECKPOINT_INTERNAL_H
#define SSM_CHECKPOINT_INTERNAL_H

#include "checkpoint/claims.h"
#include "checkpoint/index.h"
#include "checkpoint/notes.h"
#include "checkpoint/slots.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"

/* A tensor of the files. */
typedef struct ssm__entry {
    const ssm_tensor *tensor;
    bool superseded; /* the index places the name in another shard, or nowhere */
    bool used;       /* fills a slot */
} ssm__entry;

struct ssm_checkpoint {
    char *path; /* as given */
    char *directory;
    char *config_path;
    ssm__weight_file *files;
    int64_t n_files;
    ssm__entry *entries; /* file by file, in the order of the data */
    int64_t n_entries;
    ssm__index *index; /* NULL: one file, or none was asked for */
    ssm__claims claims;
    ssm_config config;
    ssm__weights weights;
    ssm__notes notes;
};

/* ---- files.c: which files, then entries ------------------------------------------------------ */

/* Sets directory and config_path. Errors: FILE (missing path or config.json), MEMORY. */
ssm_status ssm__checkpoint_locate(ssm_checkpoint *checkpoint, ssm_error *err);
/* Opens the file of weights or the shards of the index, and lists their tensors. */
ssm_status ssm__checkpoint_open_files(ssm_checkpoint *checkpoint,
                                      const ssm_checkpoint_options *options, ssm_error *err);
/* Adds one file of the directory. */
ssm_status ssm__open_named(ssm_checkpoint *checkpoint, const char *name, bool lenient,
                           ssm_error *err);
/* Adds every .safetensors or torch file of the directory that begins with start (NULL: any), in the
 * order of their names, and lists their tensors. */
ssm_status ssm__open_all(ssm_checkpoint *checkpoint, const char *start, bool torch, bool lenient,
                         ssm_error *err);
void ssm__close_files(ssm_checkpoint *checkpoint);
/* shards.c: opens the shards that an index of the directory names. */
ssm_status ssm__open_index(ssm_checkpoint *checkpoint, const char *name,
                           const ssm_checkpoint_options *options, ssm_error *err);
/* Lists the tensors of checkpoint->files (already open) as entries. */
ssm_status ssm__checkpoint_list(ssm_checkpoint *checkpoint, ssm_error *err);
const char *ssm__file_name(const char *path); /* the part after the last slash */

/* ---- from entries and claims to config and weights ------------------------------------------- */

/* Runs the steps below in order. */
ssm_status ssm__checkpoint_resolve(ssm_checkpoint *checkpoint,
                                   const ssm_checkpoint_options *options, ssm_error *err);

/* kinds.c: what stands in each of n_layers layers, by the names of its tensors. A layer that looks
 * like none is taken for one of those around it, so that a lost tensor is missed by its name.
 * with_attention: the configuration speaks of layers of attention. kinds [n_layers]; false: out of
 * memory. */
bool ssm__layer_kinds(const ssm__entry *entries, int64_t count, int64_t n_layers,
                      bool with_attention, ssm_layer_kind *kinds);
/* Number of layers: one more than the highest that a name belongs to. */
int64_t ssm__layers_named(const ssm__entry *entries, int64_t count);
/* The first layer of the kind, −1: none. */
int64_t ssm__first_layer(const ssm_checkpoint *checkpoint, ssm_layer_kind kind);
/* config.family from the kinds and the claim. */
ssm_status ssm__decide_family(ssm_checkpoint *checkpoint, ssm_error *err);

/* resolve.c: fills every slot exactly once; config.n_layers, config.family, weights. */
ssm_status ssm__resolve_slots(ssm_checkpoint *checkpoint, ssm_error *err);
/* Of the names in entries: do they fill every required slot of n_layers layers? */
bool ssm__names_are_complete(const ssm__entry *entries, int64_t count, int64_t n_layers);
/* missing.c: says why the slot is empty. others: how many more are. */
ssm_status ssm__fail_missing(const ssm_checkpoint *checkpoint, ssm__slot_place place,
                             int64_t others, ssm_error *err);

/* sizes.c: the sizes of config from the shapes of the first layer of each kind, and what only the
 * configuration can say about Mamba-2's groups and about attention. */
ssm_status ssm__read_sizes(ssm_checkpoint *checkpoint, ssm_error *err);
/* A tensor of n_dims dimensions, none of them empty. */
ssm_status ssm__need_dims(const ssm_tensor *tensor, ssm_layer_kind kind, int id, int n_dims,
                          ssm_error *err);
/* FILE when the claim is not what the tensor's shape means. */
ssm_status ssm__compare_claim(const ssm_checkpoint *checkpoint, const ssm__claim *claim,
                              int64_t found, const ssm_tensor *tensor, ssm_error *err);
/* FILE: the claim is there and cannot be met, for this reason. */
ssm_status ssm__refuse_claim(const ssm_checkpoint *checkpoint, const char *key, const char *reason,
                             ssm_error *err);
/* match.c: compares every claim about sizes. */
ssm_status ssm__match_sizes(ssm_checkpoint *checkpoint, ssm_error *err);
/* presence.c: optional tensors: all layers or none, as claimed; shapes and types of all slots. */
ssm_status ssm__match_slots(ssm_checkpoint *checkpoint, ssm_error *err);
/* settings.c: what only config.json and the caller can say: eps, limits, ids, groups of the norm.
 */
ssm_status ssm__take_settings(ssm_checkpoint *checkpoint, const ssm_checkpoint_options *options,
                              ssm_error *err);
/* head.c: config.tied, weights.lm_head and the sentence that says why. */
ssm_status ssm__decide_head(ssm_checkpoint *checkpoint, ssm_error *err);

#endif
