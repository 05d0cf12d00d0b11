/* reference/ref_mamba2.h: what one mixer of Mamba-2's block computes between its input and its
 * output, for the forward pass and for the backward one. */
#ifndef SSM_REFERENCE_MAMBA2_H
#define SSM_REFERENCE_MAMBA2_H

#include "reference/backward.h"
#include "reference/ref_gla.h"

/* Where in_proj's rows begin: z0, x0 of `beside` = E − S each, z, then what the convolution sees
 * (x, and B and C unless they are fixed), then dt unless there is none. */
typedef struct ssm__ref_mamba2_rows {
    int64_t beside, z, conv, dt, all;
    int64_t conv_width, dt_width;
} ssm__ref_mamba2_rows;
ssm__ref_mamba2_rows ssm__ref_mamba2_rows_of(const ssm__ref_layer *layer);

typedef struct ssm__ref_mamba2_pass {
    double *in;                        /* [L][rows of in_proj] */
    double *z0, *x0;                   /* [L][E−S] */
    double *z, *u, *v, *y;             /* [L][S] */
    double *xBC, *conved;              /* [L][conv_width] */
    double *B, *C;                     /* [L][GN] */
    double *dt, *delta;                /* [L][H] Δ before softplus and clamp, and behind */
    double *joined;                    /* [L][E] out_proj's input */
    double *state;                     /* [S][N] */
    double *A, *dt_bias;               /* [H]; NULL where absent */
    double *D_skip, *conv, *conv_bias; /* [H] or [S], [conv_width][K], [conv_width]; or NULL */
    ssm__ref_gla_gate gate;            /* GLA only */
} ssm__ref_mamba2_pass;

/* Allocates the pass, which starts zeroed, and runs the mixer; arguments as in
 * ssm__ref_mamba2_mixer. Whatever it returns, ssm__ref_mamba2_release. Errors: MEMORY. */
ssm_status ssm__ref_mamba2_run(const ssm__ref_layer *layer, const uint8_t *keep, const double *x,
                               int64_t tokens, ssm__ref_mamba2_pass *pass, double *out,
                               double *modes, ssm_error *err);
void ssm__ref_mamba2_release(ssm__ref_mamba2_pass *pass);
/* The recurrence of a pass that has run: Mamba-2's own, or that of linear attention and GLA. */
ssm__ref_scan2_args ssm__ref_mamba2_scan_args(const ssm__ref_layer *layer,
                                              const ssm__ref_mamba2_pass *pass, int64_t tokens);
ssm__ref_gla_args ssm__ref_mamba2_gla_args(const ssm__ref_layer *layer,
                                           const ssm__ref_mamba2_pass *pass, int64_t tokens);

#endif
