/* reference/ref_mamba.h: what one mixer of Mamba-1 computes between its input and its output, for
 * the forward pass and for the backward one. */
#ifndef SSM_REFERENCE_MAMBA_H
#define SSM_REFERENCE_MAMBA_H

#include "reference/backward.h"

typedef struct ssm__ref_mamba_pass {
    double *in;                        /* [L][2E] in_proj x: xs, z */
    double *xs, *z, *u;                /* [L][E] */
    double *low;                       /* [L][R+2N] x_proj u: dt_low, B, C */
    double *dt_low;                    /* [L][R], behind Falcon-Mamba's norm as B and C */
    double *B, *C;                     /* [L][N] */
    double *delta, *y;                 /* [L][E] */
    double *state, *A;                 /* [E][N] */
    double *D_skip, *conv, *conv_bias; /* [E], [E][K], [E]; NULL where absent */
} ssm__ref_mamba_pass;

/* Allocates the pass, which starts zeroed, and runs the mixer; arguments as in
 * ssm__ref_mamba_mixer. Whatever it returns, ssm__ref_mamba_release. Errors: MEMORY. */
ssm_status ssm__ref_mamba_run(const ssm__ref_layer *layer, const uint8_t *keep, const double *x,
                              int64_t tokens, ssm__ref_mamba_pass *pass, double *out, double *modes,
                              ssm_error *err);
void ssm__ref_mamba_release(ssm__ref_mamba_pass *pass);
/* The scan of a pass that has run. */
ssm__ref_scan_args ssm__ref_mamba_scan_args(const ssm__ref_layer *layer,
                                            const ssm__ref_mamba_pass *pass, int64_t tokens);

#endif
