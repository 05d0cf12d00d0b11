/* reference/ref_mamba2_backward.c: gradients of one mixer of Mamba-2's block: the steps of
 * ref_mamba2.c from the last to the first. */
#include <math.h>

#include "base/error.h"
#include "reference/ref_alloc.h"
#include "reference/ref_mamba2.h"

typedef struct gradients {
    double *in, *z0, *x0, *z, *u, *v, *y; /* as in the pass */
    double *z_norm;                       /* [L][S] the part of dz through the gated norm */
    double *xBC, *conved, *before;        /* before: of the convolution */
    double *B, *C, *delta, *joined;
    double *A;     /* [H] */
    double *alpha; /* [L][JN] GLA only */
} gradients;

static gradients take_gradients(const ssm__ref_layer *layer, int64_t tokens,
                                ssm__ref_arrays *arrays)
{
    const ssm_config *c = layer->config;
    const ssm__ref_mamba2_rows rows = ssm__ref_mamba2_rows_of(layer);
    const int64_t S = c->d_ssm, GN = c->n_groups * c->d_state;
    gradients d = {.in = ssm__ref_array(arrays, tokens, rows.all),
                   .z0 = ssm__ref_array(arrays, tokens, rows.beside),
                   .x0 = ssm__ref_array(arrays, tokens, rows.beside),
                   .z = ssm__ref_array(arrays, tokens, S),
                   .u = ssm__ref_array(arrays, tokens, S),
                   .v = ssm__ref_array(arrays, tokens, S),
                   .y = ssm__ref_array(arrays, tokens, S),
                   .z_norm = ssm__ref_array(arrays, tokens, S),
                   .xBC = ssm__ref_array(arrays, tokens, rows.conv_width),
                   .conved = ssm__ref_array(arrays, tokens, rows.conv_width),
                   .before = ssm__ref_array(arrays, tokens, rows.conv_width),
                   .B = ssm__ref_array(arrays, tokens, GN),
                   .C = ssm__ref_array(arrays, tokens, GN),
                   .delta = ssm__ref_array(arrays, tokens, c->n_heads),
                   .joined = ssm__ref_array(arrays, tokens, c->d_inner),
                   .A = ssm__ref_array(arrays, c->n_heads, 1)};
    if (layer->mixer == SSM__REF_GLA) {
        d.alpha = ssm__ref_array(arrays, tokens, layer->gate_up.dims[0]);
    }
    return d;
}

/* d of (SiLU(z0) x0, y) → dz0, dx0, dy. */
static void join_backward(const ssm__ref_layer *layer, const ssm__ref_mamba2_pass *s,
                          int64_t tokens, gradients *d)
{
    const int64_t E = layer->config->d_inner, S = layer->config->d_ssm, beside = E - S;
    ssm__ref_columns(d->joined, tokens, E, beside, S, d->y);
    for (int64_t i = 0; i < tokens * beside; i++) {
        const double dproduct = d->joined[i / beside * E + i % beside];
        d->z0[i] = dproduct * s->x0[i] * ssm__ref_silu_slope(s->z0[i]);
        d->x0[i] = dproduct * ssm__ref_silu(s->z0[i]);
    }
}

/* dΔ and dA → ddt, in place, and dA_log, ddt_bias. The clamp passes nothing where it acts. */
static void discretise_backward(const ssm_config *c, const ssm__ref_mamba2_pass *s, int64_t tokens,
                                gradients *d, const ssm__ref_gradients *g)
{
    for (int64_t i = 0; i < tokens * c->n_heads; i++) {
        const double step = ssm__ref_softplus(s->dt[i]);
        const bool inside = step >= c->dt_limit_low && step <= c->dt_limit_high;
        d->delta[i] *= inside ? ssm__ref_sigmoid(s->dt[i]) : 0.0;
    }
    ssm__ref_sum_tokens(d->delta, tokens, c->n_heads, g->dt_bias);
    for (int64_t head = 0; g->A_log && head < c->n_heads; head++) {
        g->A_log[head] += d->A[head] * s->A[head]; /* A = −exp(A_log) is its own derivative */
    }
}

/* dv → du, dz, dB, dC, ddt or dα. */
static ssm_status recurrence_backward(const ssm__ref_layer *layer, const ssm__ref_mamba2_pass *s,
                                      int64_t tokens, gradients *d, const ssm__ref_gradients *g,
                                      ssm_error *err)
{
    ssm__ref_scan_gradients scan = {
        .u = d->u, .delta = d->delta, .B = d->B, .C = d->C, .A = d->A, .D_skip = g->D};
    if (layer->mixer == SSM__REF_MAMBA2) {
        const ssm__ref_scan2_args args = ssm__ref_mamba2_scan_args(layer, s, tokens);
        scan.z = args.z ? d->z : NULL;
        SSM__TRY(ssm__ref_scan2_backward(&args, d->v, &scan, err));
        discretise_backward(layer->config, s, tokens, d, g);
        return SSM_STATUS_OK;
    }
    const ssm__ref_gla_args args = ssm__ref_mamba2_gla_args(layer, s, tokens);
    scan.z = args.z ? d->z : NULL;
    return ssm__ref_gla_backward(&args, d->v, &scan, d->alpha, err);
}

/* du, dB, dC, dz, … → dx. */
static void project_backward(const ssm__ref_layer *layer, const ssm__ref_mamba2_pass *s,
                             const double *x, int64_t tokens, gradients *d, double *dx,
                             const ssm__ref_gradients *g)
{
    const ssm_config *c = layer->config;
    const ssm__ref_mamba2_rows rows = ssm__ref_mamba2_rows_of(layer);
    const int64_t S = c->d_ssm, GN = c->n_groups * c->d_state, width = rows.conv_width;

    ssm__ref_put_columns(d->u, tokens, S, d->conved, width, 0);
    if (layer->B_fixed.data) {
        ssm__ref_sum_tokens(d->B, tokens, GN, g->B_fixed);
        ssm__ref_sum_tokens(d->C, tokens, GN, g->C_fixed);
    } else {
        ssm__ref_put_columns(d->B, tokens, GN, d->conved, width, S);
        ssm__ref_put_columns(d->C, tokens, GN, d->conved, width, S + GN);
    }
    ssm__ref_conv_silu_backward(s->xBC, s->conv, s->conv_bias, d->conved, tokens, width, c->d_conv,
                                d->before, d->xBC, g->conv1d, g->conv1d_bias);

    ssm__ref_put_columns(d->z0, tokens, rows.beside, d->in, rows.all, 0);
    ssm__ref_put_columns(d->x0, tokens, rows.beside, d->in, rows.all, rows.beside);
    ssm__ref_put_columns(d->z, tokens, S, d->in, rows.all, rows.z);
    ssm__ref_put_columns(d->xBC, tokens, width, d->in, rows.all, rows.conv);
    ssm__ref_put_columns(d->delta, tokens, rows.dt_width, d->in, rows.all, rows.dt);
    ssm__ref_linear_backward(&layer->w.in_proj, x, d->in, tokens, dx, g->in_proj, g->in_proj_bias);
}

static ssm_status run_backward(const ssm__ref_layer *layer, const ssm__ref_mamba2_pass *s,
                               const double *x, int64_t tokens, const double *dout, gradients *d,
                               double *dx, const ssm__ref_gradients *g, ssm_error *err)
{
    const ssm__layer_weights *w = &layer->w;
    ssm__ref_linear_backward(&w->out_proj, s->joined, dout, tokens, d->joined, g->out_proj,
                             g->out_proj_bias);
    join_backward(layer, s, tokens, d);
    ssm__ref_gated_norm_backward(layer->config, &w->gate_norm, s->v, s->z, d->y, tokens, d->v,
                                 d->z_norm, g->gate_norm);
    SSM__TRY(recurrence_backward(layer, s, tokens, d, g, err));
    for (int64_t i = 0; i < tokens * layer->config->d_ssm; i++) {
        d->z[i] += d->z_norm[i];
    }
    project_backward(layer, s, x, tokens, d, dx, g);
    if (layer->mixer == SSM__REF_GLA) {
        return ssm__ref_gla_gate_backward(layer, x, tokens, &s->gate, d->alpha, dx, g, err);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__ref_mamba2_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                    const double *dout, double *dx, const ssm__ref_gradients *g,
                                    ssm_error *err)
{
    ssm__ref_arrays arrays = {.err = err};
    ssm__ref_mamba2_pass pass = {0};
    gradients d = take_gradients(layer, tokens, &arrays);
    double *out = ssm__ref_array(&arrays, tokens, layer->config->d_model);
    ssm_status status = arrays.status;
    if (status == SSM_STATUS_OK) {
        status = ssm__ref_mamba2_run(layer, NULL, x, tokens, &pass, out, NULL, err);
    }
    if (status == SSM_STATUS_OK) {
        status = run_backward(layer, &pass, x, tokens, dout, &d, dx, g, err);
    }
    ssm__ref_mamba2_release(&pass);
    ssm__ref_arrays_free(&arrays);
    return status;
}
