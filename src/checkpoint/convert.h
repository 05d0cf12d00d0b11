/* checkpoint/convert.h: the parts of a conversion. */
#ifndef SSM_CHECKPOINT_CONVERT_H
#define SSM_CHECKPOINT_CONVERT_H

#include <ssmscope/convert.h>

#include "checkpoint/config_write.h"
#include "checkpoint/slots.h"

/* An axis of a tensor of which chosen places are written, each multiplied by a factor. */
typedef struct ssm__cut {
    int axis;
    int64_t count;       /* of places, the axis's new length; 0: the tensor is written as it is */
    const int64_t *from; /* [count] places of the source; NULL: all, in their order */
    const float *factor; /* [count]; NULL: 1. With factors the tensor is written in F32: rounding
                          * products to a narrower type would change them */
} ssm__cut;

/* What is written otherwise than the checkpoint has it; everything is borrowed. */
typedef struct ssm__changes {
    const char *task;         /* as progress names it */
    const ssm_config *config; /* of what is written */
    /* Sets *out for a slot that is cut; NULL: none is. */
    void (*cut)(const void *context, ssm__slot_place place, ssm__cut *out);
    const void *context;
    /* True for a tensor of which some elements are others; NULL: none. It passes through float32,
     * which leaves every other element its bits, and is stored as before (F64 and integers: F32).
     */
    bool (*edits)(const void *editor, ssm__slot_place place);
    /* Overwrites what changes among the elements first … first + count − 1. */
    ssm_status (*edit)(void *editor, ssm__slot_place place, int64_t first, int64_t count,
                       float *block, ssm_error *err);
    void *editor;
    /* Where it came from: in the metadata of safetensors files, and as a JSON object in a file of
     * this name, since torch files have none. */
    const ssm_metadata *metadata;
    int64_t n_metadata;
    const char *metadata_file;
} ssm__changes;

/* A tensor to be written: out has its new name, type and shape; from has the data. */
typedef struct ssm__written_tensor {
    ssm_tensor out;
    const ssm_tensor *from;
    ssm__cut cut;
    ssm__slot_place place;
    bool edited;
    char name[SSM__SLOT_NAME_MAX];
    int64_t shard;
} ssm__written_tensor;

typedef struct ssm__conversion {
    const ssm_checkpoint *checkpoint;
    const ssm_convert_options *options;
    const ssm__changes *changes; /* NULL: none */
    const ssm_progress *progress;
    const char *directory; /* where the files are written first */
    ssm__written_tensor *tensors;
    int64_t count, n_shards;
    ssm__written_config written;
    int64_t *attention_layers;
    int64_t done, total; /* bytes */
    void *block;         /* two blocks: float32, and the narrowed */
} ssm__conversion;

/* convert.c: ssm_convert with changes, which may be NULL. With them options->dtype is
 * SSM_DTYPE_COUNT. */
ssm_status ssm__convert(const ssm_checkpoint *checkpoint, const ssm_convert_options *options,
                        const ssm__changes *changes, const char *directory,
                        const ssm_progress *progress, ssm_error *err);
/* convert_refuse.c: USAGE with what the layout has no word for; OK when it can hold the model. */
ssm_status ssm__convert_refuse(const ssm_checkpoint *checkpoint, ssm_layout layout, ssm_error *err);
/* convert_refuse.c: the layout of the checkpoint, or the other one where that cannot hold the
 * model, and the container that goes with it. Errors: USAGE (neither can). */
ssm_status ssm__convert_keep_layout(const ssm_checkpoint *checkpoint, ssm_convert_options *options,
                                    ssm_error *err);
/* convert_write.c: writes all shards, and their index when there are several. */
ssm_status ssm__convert_write(ssm__conversion *job, ssm_error *err);
/* "model-00002-of-00003.safetensors", or "model.safetensors" of one shard. */
void ssm__convert_shard_name(const ssm__conversion *job, int64_t shard, char out[64]);

#endif
