/* reference/ref_mlp.c: the gated MLP of a block (Shazeer, 2020) in float64. */
#include "reference/reference.h"

#include <stdlib.h>

#include "base/error.h"
#include "reference/ref_alloc.h"

ssm_status ssm__ref_mlp(const ssm_config *config, const ssm__layer_weights *w, const double *x,
                        int64_t tokens, double *out, ssm_error *err)
{
    const int64_t M = config->d_mlp;
    double *both = NULL, *gated = NULL; /* [L][2M] y, gate; [L][M] */
    ssm_status status = ssm__ref_alloc(tokens, 2 * M, &both, err);
    if (status == SSM_STATUS_OK) {
        status = ssm__ref_alloc(tokens, M, &gated, err);
    }
    if (status == SSM_STATUS_OK) {
        ssm__ref_linear(&w->fc1, &w->fc1_bias, x, both, tokens);
        for (int64_t t = 0; t < tokens; t++) {
            for (int64_t k = 0; k < M; k++) {
                const double *row = both + t * 2 * M;
                gated[t * M + k] = row[k] * ssm__ref_silu(row[M + k]);
            }
        }
        ssm__ref_linear(&w->fc2, &w->fc2_bias, gated, out, tokens);
    }
    free(both);
    free(gated);
    return status;
}
