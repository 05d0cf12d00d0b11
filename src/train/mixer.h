/* train/mixer.h: what a kind of branch brings. The network calls these functions in the order
 *
 *   declare (once) · prepare (a pass) · { forward, …, backward } (a slab) · finish (a pass)
 *
 * A slab is `sequences` sequences of `length` tokens. Dense rows [sequences·length][D] come in and
 * go out; what is inside belongs to the mixer: `kept` memory holds what forward leaves for backward
 * of the same branch, `scratch` is shared by the branches of a kind and holds nothing between two
 * calls, but what is never written stays zero in both. Work is cut into tasks by shape only, and no
 * two tasks of a run add to the same gradient.
 */
#ifndef SSM_TRAIN_MIXER_H
#define SSM_TRAIN_MIXER_H

#include "base/arena.h"
#include "base/pool.h"
#include "train/network.h"

enum { SSM__BRANCH_MOST = 16 }; /* parameters of a mixer */

typedef struct ssm__branch {
    ssm__mixer_kind kind;
    int64_t layer;                 /* the parameters' (0 for all when layers are shared) */
    int64_t number;                /* of the branch in the network */
    int64_t norm, norm_bias;       /* numbers of parameters, −1: none */
    int64_t count;                 /* of the mixer's own parameters, */
    int64_t own[SSM__BRANCH_MOST]; /* their numbers in the order they were declared; −1: absent */
} ssm__branch;

/* The list that mixers declare their parameters on. */
typedef struct ssm__declaration ssm__declaration;
/* A slot of the published models, in the shape that it has there; returns the parameter's number.
 */
int64_t ssm__declare_slot(ssm__declaration *list, ssm_layer_kind kind, int64_t layer, int slot);
/* The same in another shape. */
int64_t ssm__declare_shaped(ssm__declaration *list, ssm_layer_kind kind, int64_t layer, int slot,
                            int n_dims, const int64_t *dims);
/* Any other; name stands below "backbone.layers.N.". */
int64_t ssm__declare_other(ssm__declaration *list, int64_t layer, const char *name, bool decayed,
                           int n_dims, const int64_t *dims);

/* One that this shape has not: it keeps its place among the branch's own. */
void ssm__declare_absent(ssm__declaration *list);

typedef struct ssm__run {
    const ssm__network_config *config;
    const ssm__kernels *kernels;
    ssm_pool *pool;
    const ssm__branch *branch;
    const ssm__parameter *parameters; /* those of the network */
    const float *values;
    float *gradients;
    int64_t length, sequences;
    const float *in; /* [T][D] normed input */
    float *out;      /* [T][D] forward: the branch's output, overwritten */
    const float *dout;
    float *din;    /* [T][D] backward: gradient of the normed input, overwritten */
    void *weights; /* what prepare made of this branch's parameters, and what finish adds back */
    void *kept;    /* of this branch; of all of its kind in a pass without backward */
    void *scratch; /* of all branches of its kind */
} ssm__run;

typedef struct ssm__mixer {
    /* False: the shape is none for this mixer; says why in `why`, of `size` bytes. */
    bool (*accepts)(const ssm__network_config *config, char *why, size_t size);
    void (*declare)(ssm__declaration *list, const ssm__network_config *config, int64_t layer);
    /* Layout functions: they take memory from the arena and return the object for the field of
     * ssm__run of the same name; run on an empty arena they count. sequences: of a slab. */
    void *(*weights)(ssm__arena *arena, const ssm__network_config *config);
    void *(*kept)(ssm__arena *arena, const ssm__network_config *config, int64_t length,
                  int64_t sequences, bool backward);
    void *(*scratch)(ssm__arena *arena, const ssm__network_config *config, int64_t length,
                     int64_t sequences, int threads, bool backward);
    void (*prepare)(const ssm__run *run);  /* weights from parameters, their gradients zero */
    void (*forward)(const ssm__run *run);  /* in → out */
    void (*backward)(const ssm__run *run); /* dout, in → din; adds to gradients */
    void (*finish)(const ssm__run *run);   /* gradients kept in weights → gradients */
} ssm__mixer;

const ssm__mixer *ssm__mixer_of(ssm__mixer_kind kind);
/* In the order of the enum, NULL-terminated. */
const char *const *ssm__mixer_names(void);
/* False: no such name. */
bool ssm__mixer_parse(const char *name, ssm__mixer_kind *out);

extern const ssm__mixer ssm__mixer_mamba1;
extern const ssm__mixer ssm__mixer_mamba2;
extern const ssm__mixer ssm__mixer_attention;
extern const ssm__mixer ssm__mixer_linear_attention;
extern const ssm__mixer ssm__mixer_gla;
extern const ssm__mixer ssm__mixer_h3;
extern const ssm__mixer ssm__mixer_mlp;

#endif
