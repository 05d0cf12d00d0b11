/* train/inside.h: the members of a network and of a pass, for the files that make them up. */
#ifndef SSM_TRAIN_INSIDE_H
#define SSM_TRAIN_INSIDE_H

#include "base/arena.h"
#include "train/mixer.h"
#include "train/network.h"

struct ssm__network {
    ssm__network_config config;
    const ssm__kernels *kernels;
    ssm_pool *pool;
    ssm__mixer_kind *mixers;
    ssm__parameter *parameters;
    int64_t n_parameters, floats;
    ssm__branch *branches;
    int64_t n_branches;
    int64_t input, input_bias; /* numbers of parameters; −1: none */
    int64_t norm_f, norm_f_bias;
    int64_t head, head_bias; /* head is input where they are tied */
    ssm__arena arena;
    float *values, *gradients;
};

/* Scratch of the end of the network, for a tile of rows. */
typedef struct ssm__head {
    int64_t tile;           /* rows */
    int64_t width;          /* of the head */
    int64_t *token;         /* [slab tokens] the tokens that have a loss, rising */
    int64_t rows;           /* so many */
    float *x, *h, *dh, *dx; /* [tile][D] */
    float *means, *scales;  /* [tile] */
    float *out;             /* [tile][width] logits, then their gradient */
    int32_t *labels;        /* [tile] */
    double *nll;            /* [tile] */
    int32_t *best;          /* [tile] argmax */
} ssm__head;

struct ssm__pass {
    const ssm__network *network;
    int64_t length, slab; /* sequences in a slab, at most */
    int64_t sequences;    /* in the slab under way */
    bool backward;
    ssm__arena arena;
    /* Residual stream in front of every branch and behind the last one, [slab·length][D] each;
     * one array for all without backward. */
    float **stream;
    float *normed, *out, *din, *dstream; /* [slab·length][D] */
    float *means, *scales;               /* [slab·length] of the norm under way */
    void **weights, **kept, **scratch;   /* a branch */
    ssm__head head;
};

/* ---- norms (train/norms.c) ------------------------------------------------------------------- */

/* Of dense rows [tokens][D]; weight −1: a network without norms, out ← x. */
void ssm__norm_forward(const ssm__network *network, int64_t weight, int64_t bias, const float *x,
                       float *out, int64_t tokens);
/* dx += (accumulate) or ← the gradient of x; those of weight and bias are added. means, scales
 * [tokens]: scratch. */
void ssm__norm_backward(const ssm__network *network, int64_t weight, int64_t bias, const float *x,
                        const float *dy, float *dx, float *means, float *scales, int64_t tokens,
                        bool accumulate);

/* ---- the ends (train/front.c, train/head.c) -------------------------------------------------- */

/* Sequences [first, first + pass->sequences) of the batch → stream[0]; and back. */
void ssm__front_forward(const ssm__pass *pass, const ssm_train_batch *batch, int64_t first);
void ssm__front_backward(const ssm__pass *pass, const ssm_train_batch *batch, int64_t first);

/* Takes the head's scratch from the arena. */
void ssm__head_layout(ssm__arena *arena, const ssm__network *network, int64_t tokens,
                      ssm__head *head);
/* Loss of the slab from the last stream; with backward, dstream ← its gradient times scale, and
 * the gradients of head and last norm are added. */
void ssm__head_run(ssm__pass *pass, const ssm_train_batch *batch, int64_t first, float scale,
                   ssm__loss *loss, int32_t *predictions, float *outputs);

/* ---- dropout (train/dropout.c) --------------------------------------------------------------- */

/* Rows [tokens] of D, the first being token `first` of the batch: x ← x·mask/(1 − share), in place;
 * the same mask forward and backward. */
void ssm__dropout_apply(const ssm__network *network, const ssm__dropout *dropout, int64_t branch,
                        int64_t first, int64_t tokens, float *x);

#endif
