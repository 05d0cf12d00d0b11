/* checkpoint/slots.h: the table of weights.h with shapes, and the names that files use for it. */
#ifndef SSM_CHECKPOINT_SLOTS_H
#define SSM_CHECKPOINT_SLOTS_H

#include "checkpoint/weights.h"

/* A dimension of a slot, in the letters of the config. */
typedef enum ssm__dim {
    SSM__DIM_NONE,
    SSM__DIM_ONE,
    SSM__DIM_V,
    SSM__DIM_D,
    SSM__DIM_E,
    SSM__DIM_2E,
    SSM__DIM_N,
    SSM__DIM_R,
    SSM__DIM_R2N, /* R + 2N */
    SSM__DIM_K,
    SSM__DIM_H,
    SSM__DIM_SKIP, /* H, or S when D is per channel */
    SSM__DIM_S,
    SSM__DIM_IN2,   /* 2E + 2GN + H */
    SSM__DIM_CONV2, /* S + 2GN */
    SSM__DIM_QKV,   /* (Q + 2L)A */
    SSM__DIM_QA,
    SSM__DIM_KA,
    SSM__DIM_M,
    SSM__DIM_2M
} ssm__dim;

enum { SSM__SLOT_DIMS = 3, SSM__LETTERS_MAX = 112 };

/* Layer slots first (the order of weights.h), then those of the whole model. */
enum {
#define SSM__SLOT_ID(field, ...) SSM__SLOT_##field,
    SSM__LAYER_SLOT_LIST(SSM__SLOT_ID)
#undef SSM__SLOT_ID
        SSM__LAYER_SLOTS,
    SSM__SLOT_embedding = SSM__LAYER_SLOTS,
    SSM__SLOT_norm_f,
    SSM__SLOT_norm_f_bias,
    SSM__SLOT_lm_head,
    SSM__SLOTS
};

typedef struct ssm__slot {
    const char *name;                 /* below layers.N. for a layer's slot */
    ssm__need needs[SSM_LAYER_KINDS]; /* of the model's own slots: [0] */
    size_t offset;                    /* of the ssm_tensor in ssm__layer_weights or ssm__weights */
} ssm__slot;

/* id: SSM__SLOT_… */
const ssm__slot *ssm__slot_info(int id);
/* kind does not matter for the slots of the whole model, here and below. */
ssm__need ssm__slot_need(ssm_layer_kind kind, int id);
/* True for the large matrices; false for vectors, conv1d and A_log, which stay float32. */
bool ssm__slot_is_matrix(int id);
/* Number of dimensions, their values under config in dims, and "[R + 2N, E]" in letters. */
int ssm__slot_shape(const ssm_config *config, ssm_layer_kind kind, int id,
                    int64_t dims[SSM__SLOT_DIMS]);
void ssm__slot_letters(ssm_layer_kind kind, int id, char out[SSM__LETTERS_MAX]);

/* Place i of the model in the one order of loading, writing and digesting: the embedding, the
 * layers from the first, norm_f and its bias, the head. */
typedef struct ssm__slot_place {
    int id;
    int64_t layer; /* −1 outside the layers */
} ssm__slot_place;
int64_t ssm__slot_count(int64_t n_layers);
ssm__slot_place ssm__slot_at(int64_t n_layers, int64_t i);
ssm_tensor *ssm__slot_tensor(ssm__weights *weights, ssm__slot_place place);
const ssm_tensor *ssm__slot_tensor_const(const ssm__weights *weights, ssm__slot_place place);

enum { SSM__SLOT_NAME_MAX = 96 };
/* "backbone.layers.3.mixer.A_log": the Hugging Face spelling. */
void ssm__slot_name(ssm__slot_place place, char out[SSM__SLOT_NAME_MAX]);

/* Skips any of the prefixes "module.", "_orig_mod.", "model.", "backbone." in front of a name. */
const char *ssm__strip_prefixes(const char *name);
/* Finds the slot of a tensor's name, prefixes and both spellings of the embedding included. */
bool ssm__slot_parse(const char *name, ssm__slot_place *out);
/* "layers.N.": true, N in *layer and the rest in *rest. name is already stripped. */
bool ssm__parse_layer(const char *name, int64_t *layer, const char **rest);

#endif
