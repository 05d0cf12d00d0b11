/* reference/ref_gla.h: the recurrences of linear attention (Katharopoulos et al., 2020, without the
 * normalisation) and of gated linear attention (Yang et al., 2024), for Mamba-2's block. */
#ifndef SSM_REFERENCE_GLA_H
#define SSM_REFERENCE_GLA_H

#include "reference/backward.h"

/* Head k, its gate j = k / (H/J), its group g = k / (H/G); S [N][P] from the zero state:
 *   S_t = diag(α_{t,j}) S_{t−1} + B_{t,g} u_{t,k}ᵀ,  y_{t,k} = gate (S_tᵀ C_{t,g} + D u_{t,k})
 * u, z [L][H][P]; alpha [L][J][N], NULL: 1, linear attention; B, C [L][G][N]; D_skip [H], or [H][P]
 * when D_per_channel, or NULL; gate = SiLU(z), 1 for z NULL; y [L][H][P]. */
typedef struct ssm__ref_gla_args {
    int64_t tokens, n_heads, head_dim, n_groups, gate_groups, d_state;
    const double *u, *alpha, *z, *B, *C, *D_skip;
    bool D_per_channel;
    double *y;
} ssm__ref_gla_args;
ssm_status ssm__ref_gla(const ssm__ref_gla_args *args, ssm_error *err);

/* dy → gradients as in ssm__ref_scan2_backward; dalpha [L][J][N], overwritten, unless NULL. */
ssm_status ssm__ref_gla_backward(const ssm__ref_gla_args *args, const double *dy,
                                 const ssm__ref_scan_gradients *g, double *dalpha, ssm_error *err);

/* α = exp(logsigmoid(p) / gate_divisor), p = W2 low + b, low = W1 x. */
typedef struct ssm__ref_gla_gate {
    double *low;       /* [L][r] */
    double *p, *alpha; /* [L][JN] */
} ssm__ref_gla_gate;
/* Allocates and fills it; free with release whatever is returned. */
ssm_status ssm__ref_gla_gate_run(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                 ssm__ref_gla_gate *gate, ssm_error *err);
void ssm__ref_gla_gate_release(ssm__ref_gla_gate *gate);
/* dalpha [L][JN] → what comes to dx through the gate is added to dx [L][D]. */
ssm_status ssm__ref_gla_gate_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                      const ssm__ref_gla_gate *gate, const double *dalpha,
                                      double *dx, const ssm__ref_gradients *g, ssm_error *err);

#endif
