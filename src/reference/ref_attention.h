/* reference/ref_attention.h: what one layer of attention computes between its input and its output,
 * for the forward pass and for the backward one. */
#ifndef SSM_REFERENCE_ATTENTION_H
#define SSM_REFERENCE_ATTENTION_H

#include "reference/backward.h"

typedef struct ssm__ref_attention_pass {
    double *in, *qkv;         /* [L][(Hq+2Hkv)·dh] before and after the convolution */
    double *q, *o;            /* [L][Hq·dh]; q and k behind rotary */
    double *k, *v;            /* [L][Hkv·dh] */
    double *weights;          /* [L] of one query */
    double *conv, *conv_bias; /* [(Hq+2Hkv)·dh][K]; NULL where absent */
} ssm__ref_attention_pass;

/* Allocates the pass, which starts zeroed, and runs the layer. Whatever it returns,
 * ssm__ref_attention_release. Errors: MEMORY. */
ssm_status ssm__ref_attention_run(const ssm_config *config, const ssm__layer_weights *w,
                                  const double *x, int64_t tokens, ssm__ref_attention_pass *pass,
                                  double *out, ssm_error *err);
void ssm__ref_attention_release(ssm__ref_attention_pass *pass);
/* pass->weights[j], j ≤ t: softmax of the query of head at token t. */
void ssm__ref_attention_weights(const ssm_config *config, int64_t t, int64_t head,
                                ssm__ref_attention_pass *pass);
/* Turns the other way round than ssm__ref_rotary from position 0: its gradient, for a rotation's
 * transpose is its inverse. */
void ssm__ref_rotary_backward(const ssm_config *config, double *dx, int64_t tokens, int64_t heads);

#endif
