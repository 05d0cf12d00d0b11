/* train/network.h: a network with its parameters and gradients, and one pass over a batch.
 *
 * A network is a list of branches, each x ← x + dropout(f(norm(x))): a mixer for every layer, and a
 * gated MLP behind it where the shape has one. What a branch computes is a table of functions
 * (mixer.h); a further kind is a further file with such a table.
 *
 * Parameters stand in the order and under the names of a Hugging Face checkpoint, dense float32,
 * in one array; so do their gradients, and what an optimiser keeps. Every parameter begins at a
 * multiple of 16, the padding is zero and stays zero.
 *
 * A pass goes over the sequences of a batch slab by slab: forward, loss and backward of a few
 * sequences, then the next. So memory grows with the length of a sequence, not with the batch.
 * Every gradient is summed over sequences and tokens in rising order by one task: the bits depend
 * neither on the number of threads nor on the slab (layers that share weights: on the slab, which
 * follows from the length alone).
 */
#ifndef SSM_TRAIN_NETWORK_H
#define SSM_TRAIN_NETWORK_H

#include <ssmscope/checkpoint.h>
#include <ssmscope/train_task.h>

#include "checkpoint/slots.h"
#include "kernels/kernels.h"

/* ---- what a network is ----------------------------------------------------------------------- */

typedef enum ssm__mixer_kind {
    SSM__MIXER_MAMBA1,
    SSM__MIXER_MAMBA2,
    SSM__MIXER_ATTENTION,
    SSM__MIXER_LINEAR_ATTENTION,
    SSM__MIXER_GLA,
    SSM__MIXER_H3,
    SSM__MIXER_MLP, /* the branch behind a mixer; not a layer's */
    SSM__MIXERS
} ssm__mixer_kind;

typedef enum ssm__norm_kind { SSM__NORM_RMS, SSM__NORM_LAYER, SSM__NORM_NONE } ssm__norm_kind;

typedef struct ssm__network_config {
    ssm_config shape;              /* sizes, norm_eps, d_mlp, tied; layer_norm follows from norm */
    const ssm__mixer_kind *mixers; /* [n_layers], borrowed until the network is created */
    ssm__norm_kind norm;           /* of the branches and of the end */
    bool shared_layers;            /* all layers have the parameters of the first */
    ssm_train_loss loss;           /* what the head is for */
    int64_t n_inputs;              /* VECTORS: width of an input, read by a linear map with bias */
    int64_t n_outputs;             /* VECTORS, CLASSES: width of the head; else vocab_size */
    double dropout;                /* share of a branch's outputs set to 0; 0: none */
    /* Mamba-1, Mamba-2: B, C and Δ are parameters and not of the token (docs/training.md) */
    bool time_invariant;
    int64_t gate_rank;   /* GLA: r of its gate; 0: 16 */
    int64_t gate_groups; /* GLA: J gates, n_groups | J | n_heads; 0: n_groups */
    double gate_divisor; /* GLA: of the gate's logarithm; 0: 16 */
    /* The paper's parametrisation A = −exp(−c·a): a is optimised, A_log = −c·a; 0: A_log is */
    double paper_c;
} ssm__network_config;

typedef struct ssm__parameter {
    char name[SSM__SLOT_NAME_MAX]; /* "backbone.layers.3.mixer.A_log" */
    int n_dims;
    int64_t dims[SSM__SLOT_DIMS];
    int64_t count;       /* elements */
    int64_t at;          /* first one in the arrays of values and gradients */
    int64_t layer;       /* −1 outside the layers */
    int slot;            /* SSM__SLOT_…, or −1: not of a published model */
    ssm_layer_kind kind; /* of the layer, for the slot's shape and first values */
    bool decayed;  /* weight decay: matrices and convolutions, but not A_log, D, biases, norms */
    double factor; /* value = factor·p where p is what is optimised; 1 for most */
} ssm__parameter;

typedef struct ssm__network ssm__network;

/* What creating would refuse but for memory. Errors: USAGE. */
ssm_status ssm__network_check(const ssm__network_config *config, ssm_error *err);

/* kernels, pool: borrowed. The parameters are zero until they are filled. Errors: USAGE (a shape
 * that contradicts itself), MEMORY. Owner: the caller. */
ssm_status ssm__network_create(const ssm__network_config *config, const ssm__kernels *kernels,
                               ssm_pool *pool, ssm__network **out, ssm_error *err);
void ssm__network_free(ssm__network *network);
const ssm__network_config *ssm__network_config_of(const ssm__network *network);
int64_t ssm__network_count(const ssm__network *network);
const ssm__parameter *ssm__network_at(const ssm__network *network, int64_t i);
/* NULL: there is none of that name. */
const ssm__parameter *ssm__network_find(const ssm__network *network, const char *name);
/* The parameter of a layer (−1: outside the layers) that stands in a published slot; NULL: none. */
const ssm__parameter *ssm__network_slot(const ssm__network *network, int64_t layer, int slot);
/* Numbers in all parameters. */
int64_t ssm__count_parameters(const ssm__network *network);
/* Floats in all, padding included; a multiple of 16. */
int64_t ssm__network_floats(const ssm__network *network);
float *ssm__network_values(const ssm__network *network);
float *ssm__network_gradients(const ssm__network *network);
/* The published default initialisation (train/draw.h). Weights that published models do not have:
 * U(±1/√fan_in) for matrices, 0 for biases, 1 for norms. */
void ssm__network_draw(ssm__network *network, uint64_t seed);

/* ---- a pass over a batch --------------------------------------------------------------------- */

/* Scratch and kept activations for sequences of one length. */
typedef struct ssm__pass ssm__pass;

typedef struct ssm__loss {
    double sum;    /* Σ −log p (nats) or Σ squared errors */
    int64_t count; /* labels, or components of vectors */
} ssm__loss;

/* The stream of dropout masks: an element's mask depends on seed, number, branch and place alone.
 */
typedef struct ssm__dropout {
    uint64_t seed;
    uint64_t number; /* of the batch since the start of the run */
} ssm__dropout;

/* backward false: for ssm__pass_evaluate only, which needs less. Errors: USAGE (length below 1),
 * MEMORY. Owner: the caller. */
ssm_status ssm__pass_create(const ssm__network *network, int64_t length, bool backward,
                            ssm__pass **out, ssm_error *err);
void ssm__pass_free(ssm__pass *pass);
size_t ssm__pass_bytes(const ssm__pass *pass);

/* Adds the gradient of scale · loss.sum of a batch of the pass's length to the gradients. ids and
 * labels must be inside the vocabulary. dropout NULL: none. */
void ssm__pass_train(ssm__pass *pass, const ssm_train_batch *batch, double scale,
                     const ssm__dropout *dropout, ssm__loss *loss);
/* Loss and, where not NULL: predictions, laid out as labels (argmax, the lowest of equals; set only
 * where there is a label), outputs [B][L][n_outputs] of VECTORS. */
void ssm__pass_evaluate(ssm__pass *pass, const ssm_train_batch *batch, ssm__loss *loss,
                        int32_t *predictions, float *outputs);

/* What is not finite after a pass, to be named in an error: the first parameter, else the first
 * output of a branch of the last slab that was not finite, else the first gradient. Writes "block 3
 * gives nan" or "the gradient of backbone.… is inf"; false: all is finite. */
bool ssm__pass_not_finite(const ssm__pass *pass, char *out, size_t size);

#endif
