/* reference/ref_mamba_backward.c: gradients of one mixer of Mamba-1 or Falcon-Mamba: the steps of
 * ref_mamba.c from the last to the first. */
#include <math.h>

#include "reference/ref_alloc.h"
#include "reference/ref_mamba.h"

typedef struct gradients {
    double *in, *xs, *z, *u, *u_low; /* as in the pass; u_low: the part of du through x_proj */
    double *low, *dt_low, *B, *C;
    double *delta, *y;
    double *A;      /* [E][N] */
    double *before; /* [L][E] of the convolution */
} gradients;

static gradients take_gradients(const ssm_config *c, int64_t tokens, ssm__ref_arrays *arrays)
{
    const int64_t E = c->d_inner, N = c->d_state, R = c->dt_rank;
    return (gradients){.in = ssm__ref_array(arrays, tokens, 2 * E),
                       .xs = ssm__ref_array(arrays, tokens, E),
                       .z = ssm__ref_array(arrays, tokens, E),
                       .u = ssm__ref_array(arrays, tokens, E),
                       .u_low = ssm__ref_array(arrays, tokens, E),
                       .low = ssm__ref_array(arrays, tokens, R + 2 * N),
                       .dt_low = ssm__ref_array(arrays, tokens, R),
                       .B = ssm__ref_array(arrays, tokens, N),
                       .C = ssm__ref_array(arrays, tokens, N),
                       .delta = ssm__ref_array(arrays, tokens, E),
                       .y = ssm__ref_array(arrays, tokens, E),
                       .A = ssm__ref_array(arrays, E, N),
                       .before = ssm__ref_array(arrays, tokens, E)};
}

/* dy → du, dz, dB, dC, dA_log, dD and dΔ before its softplus, whose derivative by its argument is
 * 1 − exp(−Δ). */
static ssm_status scan_backward(const ssm__ref_layer *layer, const ssm__ref_mamba_pass *s,
                                int64_t tokens, gradients *d, const ssm__ref_gradients *g,
                                ssm_error *err)
{
    const ssm_config *c = layer->config;
    const ssm__ref_scan_args args = ssm__ref_mamba_scan_args(layer, s, tokens);
    const ssm_status status = ssm__ref_scan_backward(&args, d->y,
                                                     &(ssm__ref_scan_gradients){.u = d->u,
                                                                                .delta = d->delta,
                                                                                .z = d->z,
                                                                                .B = d->B,
                                                                                .C = d->C,
                                                                                .A = d->A,
                                                                                .D_skip = g->D},
                                                     err);
    for (int64_t i = 0; status == SSM_STATUS_OK && i < tokens * c->d_inner; i++) {
        d->delta[i] *= -expm1(-s->delta[i]);
    }
    for (int64_t i = 0; status == SSM_STATUS_OK && g->A_log && i < c->d_inner * c->d_state; i++) {
        g->A_log[i] += d->A[i] * s->A[i]; /* A = −exp(A_log) is its own derivative */
    }
    return status;
}

/* dΔ, dB, dC → the rest of du. */
static void select_backward(const ssm__ref_layer *layer, const ssm__ref_mamba_pass *s,
                            int64_t tokens, gradients *d, const ssm__ref_gradients *g)
{
    const ssm_config *c = layer->config;
    const int64_t N = c->d_state, R = c->dt_rank, width = R + 2 * N;
    ssm__ref_linear_backward(&layer->w.dt_proj, s->dt_low, d->delta, tokens, d->dt_low, g->dt_proj,
                             g->dt_proj_bias);
    ssm__ref_put_columns(d->dt_low, tokens, R, d->low, width, 0);
    ssm__ref_put_columns(d->B, tokens, N, d->low, width, R);
    ssm__ref_put_columns(d->C, tokens, N, d->low, width, R + N);
    for (int64_t t = 0; c->family == SSM_FAMILY_FALCON_MAMBA && t < tokens; t++) {
        const double eps = c->mixer_norm_eps, *x = s->low + t * width;
        double *dx = d->low + t * width;
        ssm__ref_rmsnorm_backward(x, NULL, dx, 1, R, eps, dx, NULL);
        ssm__ref_rmsnorm_backward(x + R, NULL, dx + R, 1, N, eps, dx + R, NULL);
        ssm__ref_rmsnorm_backward(x + R + N, NULL, dx + R + N, 1, N, eps, dx + R + N, NULL);
    }
    ssm__ref_linear_backward(&layer->w.x_proj, s->u, d->low, tokens, d->u_low, g->x_proj, NULL);
    for (int64_t i = 0; i < tokens * c->d_inner; i++) {
        d->u[i] += d->u_low[i];
    }
}

static ssm_status run_backward(const ssm__ref_layer *layer, const ssm__ref_mamba_pass *s,
                               const double *x, int64_t tokens, const double *dout, gradients *d,
                               double *dx, const ssm__ref_gradients *g, ssm_error *err)
{
    const ssm_config *c = layer->config;
    const ssm__layer_weights *w = &layer->w;
    const int64_t E = c->d_inner;

    ssm__ref_linear_backward(&w->out_proj, s->y, dout, tokens, d->y, g->out_proj, g->out_proj_bias);
    const ssm_status status = scan_backward(layer, s, tokens, d, g, err);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    if (layer->B_fixed.data) {
        ssm__ref_sum_tokens(d->delta, tokens, E, g->dt_proj_bias);
        ssm__ref_sum_tokens(d->B, tokens, c->d_state, g->B_fixed);
        ssm__ref_sum_tokens(d->C, tokens, c->d_state, g->C_fixed);
    } else {
        select_backward(layer, s, tokens, d, g);
    }
    ssm__ref_conv_silu_backward(s->xs, s->conv, s->conv_bias, d->u, tokens, E, c->d_conv, d->before,
                                d->xs, g->conv1d, g->conv1d_bias);
    ssm__ref_put_columns(d->xs, tokens, E, d->in, 2 * E, 0);
    ssm__ref_put_columns(d->z, tokens, E, d->in, 2 * E, E);
    ssm__ref_linear_backward(&w->in_proj, x, d->in, tokens, dx, g->in_proj, g->in_proj_bias);
    return SSM_STATUS_OK;
}

ssm_status ssm__ref_mamba_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                   const double *dout, double *dx, const ssm__ref_gradients *g,
                                   ssm_error *err)
{
    ssm__ref_arrays arrays = {.err = err};
    ssm__ref_mamba_pass pass = {0};
    gradients d = take_gradients(layer->config, tokens, &arrays);
    double *out = ssm__ref_array(&arrays, tokens, layer->config->d_model);
    ssm_status status = arrays.status;
    if (status == SSM_STATUS_OK) {
        status = ssm__ref_mamba_run(layer, NULL, x, tokens, &pass, out, NULL, err);
    }
    if (status == SSM_STATUS_OK) {
        status = run_backward(layer, &pass, x, tokens, dout, &d, dx, g, err);
    }
    ssm__ref_mamba_release(&pass);
    ssm__ref_arrays_free(&arrays);
    return status;
}
