/* train/optimiser.h: learning rates, the norm of a gradient, AdamW over all parameters. */
#ifndef SSM_TRAIN_OPTIMISER_H
#define SSM_TRAIN_OPTIMISER_H

#include "train/network.h"
#include "train/recipe.h"

/* Of step 1 … steps: lr·step/warmup up to `warmup`; then with p = (step − 1 − warmup)/(steps −
 * warmup): cosine lr·(f + (1 − f)(1 + cos πp)/2), linear lr·(1 − (1 − f)p), or lr. */
double ssm__learning_rate(const ssm_recipe *recipe, int64_t step);

typedef struct ssm__optimiser {
    ssm__network *network;
    ssm_pool *pool;
    const ssm__kernels *kernels;
    float *first, *second; /* means of gradients and of their squares, floats of the network */
    double *norms;         /* a block of the arrays */
    int64_t n_blocks;
} ssm__optimiser;

/* Errors: MEMORY. Owner: the caller, ssm__optimiser_free. */
ssm_status ssm__optimiser_create(ssm__network *network, const ssm__kernels *kernels, ssm_pool *pool,
                                 ssm__optimiser *out, ssm_error *err);
void ssm__optimiser_free(ssm__optimiser *optimiser);
/* √Σ g² of what is optimised, p of value = factor·p, in float64, blocks in rising order. Not finite
 * exactly when a gradient is not. gradients: those of the values. */
double ssm__gradient_norm(const ssm__optimiser *optimiser, const float *gradients);
/* Step number `step` (from 1) with gradients · scale. The moments are p's. */
void ssm__optimiser_step(const ssm__optimiser *optimiser, const ssm_recipe *recipe, int64_t step,
                         const float *gradients, double scale);

#endif
