/* checkpoint/convert.h: the parts of a conversion. */
#ifndef SSM_CHECKPOINT_CONVERT_H
#define SSM_CHECKPOINT_CONVERT_H

#include <ssmscope/convert.h>

#include "checkpoint/config_write.h"
#include "checkpoint/slots.h"

/* A tensor to be written: out has its new name, type and shape; from has the data. */
typedef struct ssm__written_tensor {
    ssm_tensor out;
    const ssm_tensor *from;
    char name[SSM__SLOT_NAME_MAX];
    int64_t shard;
} ssm__written_tensor;

typedef struct ssm__conversion {
    const ssm_checkpoint *checkpoint;
    const ssm_convert_options *options;
    const ssm_progress *progress;
    const char *directory; /* where the files are written first */
    ssm__written_tensor *tensors;
    int64_t count, n_shards;
    ssm__written_config written;
    int64_t *attention_layers;
    int64_t done, total; /* bytes */
    void *block;         /* two blocks: float32, and the narrowed */
} ssm__conversion;

/* convert_refuse.c: USAGE with what the layout has no word for; OK when it can hold the model. */
ssm_status ssm__convert_refuse(const ssm_checkpoint *checkpoint, ssm_layout layout, ssm_error *err);
/* convert_write.c: writes all shards, and their index when there are several. */
ssm_status ssm__convert_write(ssm__conversion *job, ssm_error *err);
/* "model-00002-of-00003.safetensors", or "model.safetensors" of one shard. */
void ssm__convert_shard_name(const ssm__conversion *job, int64_t shard, char out[64]);

#endif
