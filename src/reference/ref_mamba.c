/* reference/ref_mamba.c: one mixer of Mamba-1 (Gu & Dao, 2023) or of Falcon-Mamba in float64;
 * docs/mamba1.md. */
#include "reference/ref_mamba.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "reference/ref_alloc.h"

void ssm__ref_mamba_release(ssm__ref_mamba_pass *s)
{
    double *all[] = {s->in,    s->xs, s->z,     s->u, s->low,    s->dt_low, s->B,        s->C,
                     s->delta, s->y,  s->state, s->A, s->D_skip, s->conv,   s->conv_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

static ssm_status alloc_pass(const ssm_config *c, const ssm__layer_weights *w, int64_t tokens,
                             ssm__ref_mamba_pass *s, ssm_error *err)
{
    SSM__TRY(ssm__ref_alloc(tokens, 2 * c->d_inner, &s->in, err));
    SSM__TRY(ssm__ref_alloc(tokens, c->d_inner, &s->xs, err));
    SSM__TRY(ssm__ref_alloc(tokens, c->d_inner, &s->z, err));
    SSM__TRY(ssm__ref_alloc(tokens, c->d_inner, &s->u, err));
    SSM__TRY(ssm__ref_alloc(tokens, c->dt_rank + 2 * c->d_state, &s->low, err));
    SSM__TRY(ssm__ref_alloc(tokens, c->dt_rank, &s->dt_low, err));
    SSM__TRY(ssm__ref_alloc(tokens, c->d_state, &s->B, err));
    SSM__TRY(ssm__ref_alloc(tokens, c->d_state, &s->C, err));
    SSM__TRY(ssm__ref_alloc(tokens, c->d_inner, &s->delta, err));
    SSM__TRY(ssm__ref_alloc(tokens, c->d_inner, &s->y, err));
    SSM__TRY(ssm__ref_alloc(c->d_inner, c->d_state, &s->state, err));
    SSM__TRY(ssm__ref_widen(&w->A_log, &s->A, err));
    SSM__TRY(ssm__ref_widen(&w->D, &s->D_skip, err));
    SSM__TRY(ssm__ref_widen(&w->conv1d, &s->conv, err));
    SSM__TRY(ssm__ref_widen(&w->conv1d_bias, &s->conv_bias, err));
    return SSM_STATUS_OK;
}

/* Falcon-Mamba: RMSNorm without weight over each of dt, B and C. */
static void norm_low(const ssm_config *c, int64_t tokens, ssm__ref_mamba_pass *s)
{
    const double eps = c->mixer_norm_eps;
    ssm__ref_rmsnorm(s->dt_low, NULL, s->dt_low, tokens, c->dt_rank, eps);
    ssm__ref_rmsnorm(s->B, NULL, s->B, tokens, c->d_state, eps);
    ssm__ref_rmsnorm(s->C, NULL, s->C, tokens, c->d_state, eps);
}

/* u → dt_low, B, C and, before its softplus, Δ. */
static void select_parameters(const ssm_config *c, const ssm__layer_weights *w, int64_t tokens,
                              ssm__ref_mamba_pass *s)
{
    const int64_t N = c->d_state, R = c->dt_rank;
    ssm__ref_linear(&w->x_proj, NULL, s->u, s->low, tokens);
    ssm__ref_columns(s->low, tokens, R + 2 * N, 0, R, s->dt_low);
    ssm__ref_columns(s->low, tokens, R + 2 * N, R, N, s->B);
    ssm__ref_columns(s->low, tokens, R + 2 * N, R + N, N, s->C);
    if (c->family == SSM_FAMILY_FALCON_MAMBA) {
        norm_low(c, tokens, s);
    }
    ssm__ref_linear(&w->dt_proj, &w->dt_proj_bias, s->dt_low, s->delta, tokens);
}

/* The same of every token: time-invariant mode. */
static void fixed_parameters(const ssm__ref_layer *layer, int64_t tokens, ssm__ref_mamba_pass *s)
{
    const int64_t N = layer->config->d_state, E = layer->config->d_inner;
    ssm__ref_repeat(&layer->B_fixed, tokens, N, s->B);
    ssm__ref_repeat(&layer->C_fixed, tokens, N, s->C);
    ssm__ref_repeat(&layer->w.dt_proj_bias, tokens, E, s->delta);
}

ssm__ref_scan_args ssm__ref_mamba_scan_args(const ssm__ref_layer *layer,
                                            const ssm__ref_mamba_pass *s, int64_t tokens)
{
    return (ssm__ref_scan_args){.tokens = tokens,
                                .channels = layer->config->d_inner,
                                .d_state = layer->config->d_state,
                                .u = s->u,
                                .delta = s->delta,
                                .z = s->z,
                                .A = s->A,
                                .B = s->B,
                                .C = s->C,
                                .D_skip = s->D_skip,
                                .state = s->state,
                                .y = s->y};
}

static void run_mixer(const ssm__ref_layer *layer, const uint8_t *keep, const double *x,
                      int64_t tokens, ssm__ref_mamba_pass *s, double *out, double *modes)
{
    const ssm_config *c = layer->config;
    const ssm__layer_weights *w = &layer->w;
    const int64_t E = c->d_inner, N = c->d_state;

    ssm__ref_linear(&w->in_proj, &w->in_proj_bias, x, s->in, tokens);
    ssm__ref_columns(s->in, tokens, 2 * E, 0, E, s->xs);
    ssm__ref_columns(s->in, tokens, 2 * E, E, E, s->z);

    ssm__ref_conv_silu(s->xs, s->conv, s->conv_bias, s->u, tokens, E, c->d_conv);

    if (layer->B_fixed.data) {
        fixed_parameters(layer, tokens, s);
    } else {
        select_parameters(c, w, tokens, s);
    }
    for (int64_t i = 0; i < tokens * E; i++) {
        s->delta[i] = ssm__ref_softplus(s->delta[i]);
    }

    for (int64_t i = 0; i < E * N; i++) {
        s->A[i] = -exp(s->A[i]); /* was A_log */
    }
    ssm__ref_scan_args args = ssm__ref_mamba_scan_args(layer, s, tokens);
    args.keep = keep;
    args.modes = modes;
    ssm__ref_scan(&args);

    ssm__ref_linear(&w->out_proj, &w->out_proj_bias, s->y, out, tokens);
}

ssm_status ssm__ref_mamba_run(const ssm__ref_layer *layer, const uint8_t *keep, const double *x,
                              int64_t tokens, ssm__ref_mamba_pass *pass, double *out, double *modes,
                              ssm_error *err)
{
    SSM__TRY(alloc_pass(layer->config, &layer->w, tokens, pass, err));
    run_mixer(layer, keep, x, tokens, pass, out, modes);
    return SSM_STATUS_OK;
}

ssm_status ssm__ref_mamba_mixer(const ssm_config *config, const ssm__layer_weights *w,
                                const uint8_t *keep, const double *x, int64_t tokens, double *out,
                                double *y, double *modes, ssm_error *err)
{
    const ssm__ref_layer layer = ssm__ref_layer_of(config, w);
    ssm__ref_mamba_pass pass = {0};
    const ssm_status status = ssm__ref_mamba_run(&layer, keep, x, tokens, &pass, out, modes, err);
    if (status == SSM_STATUS_OK && y) {
        ssm__ref_columns(pass.y, tokens, config->d_inner, 0, config->d_inner, y);
    }
    ssm__ref_mamba_release(&pass);
    return status;
}
