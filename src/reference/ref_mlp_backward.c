/* reference/ref_mlp_backward.c: gradients of the gated MLP.
 *
 *   (y, a) = fc1 x, p = y SiLU(a), out = fc2 p:  dy = dp SiLU(a),  da = dp y SiLU'(a) */
#include "reference/backward.h"
#include "reference/ref_alloc.h"

ssm_status ssm__ref_mlp_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                 const double *dout, double *dx, const ssm__ref_gradients *g,
                                 ssm_error *err)
{
    const ssm__layer_weights *w = &layer->w;
    const int64_t M = layer->config->d_mlp;
    ssm__ref_arrays arrays = {.err = err};
    double *both = ssm__ref_array(&arrays, tokens, 2 * M); /* y, a */
    double *dboth = ssm__ref_array(&arrays, tokens, 2 * M);
    double *product = ssm__ref_array(&arrays, tokens, M);
    double *dproduct = ssm__ref_array(&arrays, tokens, M);
    if (arrays.status == SSM_STATUS_OK) {
        ssm__ref_linear(&w->fc1, &w->fc1_bias, x, both, tokens);
        for (int64_t i = 0; i < tokens * M; i++) {
            const double *y = both + i / M * 2 * M + i % M;
            product[i] = y[0] * ssm__ref_silu(y[M]);
        }
        ssm__ref_linear_backward(&w->fc2, product, dout, tokens, dproduct, g->fc2, g->fc2_bias);
        for (int64_t i = 0; i < tokens * M; i++) {
            const int64_t at = i / M * 2 * M + i % M;
            dboth[at] = dproduct[i] * ssm__ref_silu(both[at + M]);
            dboth[at + M] = dproduct[i] * both[at] * ssm__ref_silu_slope(both[at + M]);
        }
        ssm__ref_linear_backward(&w->fc1, x, dboth, tokens, dx, g->fc1, g->fc1_bias);
    }
    ssm__ref_arrays_free(&arrays);
    return arrays.status;
}
