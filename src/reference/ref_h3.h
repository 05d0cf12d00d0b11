/* reference/ref_h3.h: what one mixer of H3 computes between its input and its output, for the
 * forward pass and for the backward one. S = d_ssm = H·P. */
#ifndef SSM_REFERENCE_H3_H
#define SSM_REFERENCE_H3_H

#include "reference/backward.h"
#include "reference/ref_alloc.h"

typedef struct ssm__ref_h3_pass {
    double *in;               /* [L][3S] in_proj x: q, k, v */
    double *q, *k, *v;        /* [L][S] */
    double *shifted, *o;      /* [L][S] */
    double *delta, *D_skip;   /* [H] */
    double *A, *C;            /* [H][N] */
    double *conv, *conv_bias; /* [S][K], [S]; zeros where absent */
    double *state;            /* [N] of one pair of channels */
} ssm__ref_h3_pass;

/* Takes the arrays, whose status tells of failure; run fills them and out [L][D]. */
ssm__ref_h3_pass ssm__ref_h3_pass_create(const ssm__ref_layer *layer, int64_t tokens,
                                         ssm__ref_arrays *arrays);
void ssm__ref_h3_run(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                     ssm__ref_h3_pass *pass, double *out);

#endif
