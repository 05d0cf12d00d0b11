/* checkpoint/internal.h: the inside of an open checkpoint and the steps that fill it. */
#ifndef SSM_CHECKPOINT_INTERNAL_H
#define SSM_CHECKPOINT_INTERNAL_H

#include "checkpoint/claims.h"
#include "checkpoint/index.h"
#include "checkpoint/notes.h"
#include "checkpoint/slots.h"
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
    ssm_safetensors **files;
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
/* Opens the safetensors file or the shards of the index, and lists their tensors. */
ssm_status ssm__checkpoint_open_files(ssm_checkpoint *checkpoint,
                                      const ssm_checkpoint_options *options, ssm_error *err);
/* Lists the tensors of checkpoint->files (already open) as entries. */
ssm_status ssm__checkpoint_list(ssm_checkpoint *checkpoint, ssm_error *err);
const char *ssm__file_name(const char *path); /* the part after the last slash */

/* ---- resolve.c, match.c, head.c: from entries and claims to config and weights --------------- */

/* Runs the three steps below in order. */
ssm_status ssm__checkpoint_resolve(ssm_checkpoint *checkpoint, ssm_error *err);
/* Fills every slot exactly once; config.n_layers, weights. */
ssm_status ssm__resolve_slots(ssm_checkpoint *checkpoint, ssm_error *err);
/* The rest of config from the shapes; compares every claim and every slot with it. */
ssm_status ssm__match_claims(ssm_checkpoint *checkpoint, ssm_error *err);
/* config.tied, weights.lm_head and the sentence that says why. */
ssm_status ssm__decide_head(ssm_checkpoint *checkpoint, ssm_error *err);

/* Of the names in entries: do they fill every required slot of n_layers layers? */
bool ssm__names_are_complete(const ssm__entry *entries, int64_t count, int64_t n_layers);

#endif
