/* reference/ref_mamba2.c: one mixer of Mamba-2 (Dao & Gu, 2024) in float64; docs/mamba2.md.
 *
 *   (z0, x0, z, x B C, dt) = in_proj x;  (u, B, C) = SiLU(conv1d(x B C));
 *   Δ = clamp(softplus(dt + dt_bias));  v = recurrence (u, Δ, A, B, C, D, z);
 *   out = out_proj (SiLU(z0)·x0, gated norm of v)
 *
 * z0 and x0 are E − S wide each, and absent where the scan is as wide as the mixer. Linear
 * attention and GLA stand in the recurrence's place (ref_gla.h), without dt, and all else is as it
 * was. */
#include "reference/ref_mamba2.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "reference/ref_alloc.h"

void ssm__ref_mamba2_release(ssm__ref_mamba2_pass *s)
{
    double *all[] = {s->in,  s->z0,      s->x0,     s->z,    s->u,      s->v,        s->y,
                     s->xBC, s->B,       s->conved, s->C,    s->dt,     s->delta,    s->state,
                     s->A,   s->dt_bias, s->D_skip, s->conv, s->joined, s->conv_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
    ssm__ref_gla_gate_release(&s->gate);
}

ssm__ref_mamba2_rows ssm__ref_mamba2_rows_of(const ssm__ref_layer *layer)
{
    const ssm_config *c = layer->config;
    const bool fixed = layer->B_fixed.data != NULL;
    ssm__ref_mamba2_rows rows = {.beside = c->d_inner - c->d_ssm};
    rows.conv_width = c->d_ssm + (fixed ? 0 : 2 * c->n_groups * c->d_state);
    rows.dt_width = layer->mixer == SSM__REF_MAMBA2 && !fixed ? c->n_heads : 0;
    rows.z = 2 * rows.beside;
    rows.conv = rows.z + c->d_ssm;
    rows.dt = rows.conv + rows.conv_width;
    rows.all = rows.dt + rows.dt_width;
    return rows;
}

static ssm_status alloc_pass(const ssm__ref_layer *layer, int64_t tokens, ssm__ref_mamba2_pass *s,
                             ssm_error *err)
{
    const ssm_config *c = layer->config;
    const ssm__layer_weights *w = &layer->w;
    const ssm__ref_mamba2_rows rows = ssm__ref_mamba2_rows_of(layer);
    const int64_t S = c->d_ssm, GN = c->n_groups * c->d_state;
    SSM__TRY(ssm__ref_alloc(tokens, rows.all, &s->in, err));
    SSM__TRY(ssm__ref_alloc(tokens, rows.beside, &s->z0, err));
    SSM__TRY(ssm__ref_alloc(tokens, rows.beside, &s->x0, err));
    SSM__TRY(ssm__ref_alloc(tokens, S, &s->z, err));
    SSM__TRY(ssm__ref_alloc(tokens, S, &s->u, err));
    SSM__TRY(ssm__ref_alloc(tokens, S, &s->v, err));
    SSM__TRY(ssm__ref_alloc(tokens, S, &s->y, err));
    SSM__TRY(ssm__ref_alloc(tokens, rows.conv_width, &s->xBC, err));
    SSM__TRY(ssm__ref_alloc(tokens, rows.conv_width, &s->conved, err));
    SSM__TRY(ssm__ref_alloc(tokens, GN, &s->B, err));
    SSM__TRY(ssm__ref_alloc(tokens, GN, &s->C, err));
    SSM__TRY(ssm__ref_alloc(tokens, c->n_heads, &s->dt, err));
    SSM__TRY(ssm__ref_alloc(tokens, c->n_heads, &s->delta, err));
    SSM__TRY(ssm__ref_alloc(tokens, c->d_inner, &s->joined, err));
    SSM__TRY(ssm__ref_alloc(S, c->d_state, &s->state, err));
    SSM__TRY(ssm__ref_widen(&w->A_log, &s->A, err));
    SSM__TRY(ssm__ref_widen(&w->dt_bias, &s->dt_bias, err));
    SSM__TRY(ssm__ref_widen(&w->D, &s->D_skip, err));
    SSM__TRY(ssm__ref_widen(&w->conv1d, &s->conv, err));
    SSM__TRY(ssm__ref_widen(&w->conv1d_bias, &s->conv_bias, err));
    return SSM_STATUS_OK;
}

/* x → z0, x0, z, u, B, C, dt. */
static void project(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                    ssm__ref_mamba2_pass *s)
{
    const ssm_config *c = layer->config;
    const ssm__ref_mamba2_rows rows = ssm__ref_mamba2_rows_of(layer);
    const int64_t S = c->d_ssm, GN = c->n_groups * c->d_state, width = rows.conv_width;

    ssm__ref_linear(&layer->w.in_proj, &layer->w.in_proj_bias, x, s->in, tokens);
    ssm__ref_columns(s->in, tokens, rows.all, 0, rows.beside, s->z0);
    ssm__ref_columns(s->in, tokens, rows.all, rows.beside, rows.beside, s->x0);
    ssm__ref_columns(s->in, tokens, rows.all, rows.z, S, s->z);
    ssm__ref_columns(s->in, tokens, rows.all, rows.conv, width, s->xBC);
    ssm__ref_columns(s->in, tokens, rows.all, rows.dt, rows.dt_width, s->dt);

    ssm__ref_conv_silu(s->xBC, s->conv, s->conv_bias, s->conved, tokens, width, c->d_conv);
    ssm__ref_columns(s->conved, tokens, width, 0, S, s->u);
    if (layer->B_fixed.data) {
        ssm__ref_repeat(&layer->B_fixed, tokens, GN, s->B);
        ssm__ref_repeat(&layer->C_fixed, tokens, GN, s->C);
    } else {
        ssm__ref_columns(s->conved, tokens, width, S, GN, s->B);
        ssm__ref_columns(s->conved, tokens, width, S + GN, GN, s->C);
    }
}

/* dt, A_log → Δ, A. */
static void discretise(const ssm_config *c, int64_t tokens, ssm__ref_mamba2_pass *s)
{
    const int64_t H = c->n_heads;
    for (int64_t i = 0; i < tokens * H; i++) {
        s->dt[i] += s->dt_bias[i % H];
        const double step = ssm__ref_softplus(s->dt[i]);
        s->delta[i] = fmin(fmax(step, c->dt_limit_low), c->dt_limit_high);
    }
    for (int64_t head = 0; head < H; head++) {
        s->A[head] = -exp(s->A[head]); /* was A_log */
    }
}

/* z0, x0, y → out_proj's input. */
static void join(const ssm_config *c, int64_t tokens, ssm__ref_mamba2_pass *s)
{
    const int64_t E = c->d_inner, beside = E - c->d_ssm;
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t k = 0; k < beside; k++) {
            s->joined[t * E + k] = ssm__ref_silu(s->z0[t * beside + k]) * s->x0[t * beside + k];
        }
        for (int64_t k = 0; k < c->d_ssm; k++) {
            s->joined[t * E + beside + k] = s->y[t * c->d_ssm + k];
        }
    }
}

static const double *gate_of_scan(const ssm_config *c, const ssm__ref_mamba2_pass *s)
{
    return c->gated_norm && c->norm_before_gate ? NULL : s->z;
}

ssm__ref_scan2_args ssm__ref_mamba2_scan_args(const ssm__ref_layer *layer,
                                              const ssm__ref_mamba2_pass *s, int64_t tokens)
{
    const ssm_config *c = layer->config;
    return (ssm__ref_scan2_args){.tokens = tokens,
                                 .n_heads = c->n_heads,
                                 .head_dim = c->head_dim,
                                 .n_groups = c->n_groups,
                                 .d_state = c->d_state,
                                 .u = s->u,
                                 .delta = s->delta,
                                 .z = gate_of_scan(c, s),
                                 .A = s->A,
                                 .B = s->B,
                                 .C = s->C,
                                 .D_skip = s->D_skip,
                                 .D_per_channel = c->D_per_channel,
                                 .state = s->state,
                                 .y = s->v};
}

ssm__ref_gla_args ssm__ref_mamba2_gla_args(const ssm__ref_layer *layer,
                                           const ssm__ref_mamba2_pass *s, int64_t tokens)
{
    const ssm_config *c = layer->config;
    return (ssm__ref_gla_args){.tokens = tokens,
                               .n_heads = c->n_heads,
                               .head_dim = c->head_dim,
                               .n_groups = c->n_groups,
                               .gate_groups =
                                   s->gate.alpha ? layer->gate_up.dims[0] / c->d_state : 1,
                               .d_state = c->d_state,
                               .u = s->u,
                               .alpha = s->gate.alpha,
                               .z = gate_of_scan(c, s),
                               .B = s->B,
                               .C = s->C,
                               .D_skip = s->D_skip,
                               .D_per_channel = c->D_per_channel,
                               .y = s->v};
}

/* x and the projections → v. */
static ssm_status run_recurrence(const ssm__ref_layer *layer, const uint8_t *keep, const double *x,
                                 int64_t tokens, ssm__ref_mamba2_pass *s, double *modes,
                                 ssm_error *err)
{
    if (layer->mixer == SSM__REF_MAMBA2) {
        discretise(layer->config, tokens, s);
        ssm__ref_scan2_args args = ssm__ref_mamba2_scan_args(layer, s, tokens);
        args.keep = keep;
        args.modes = modes;
        ssm__ref_scan2(&args);
        return SSM_STATUS_OK;
    }
    if (layer->mixer == SSM__REF_GLA) {
        SSM__TRY(ssm__ref_gla_gate_run(layer, x, tokens, &s->gate, err));
    }
    const ssm__ref_gla_args args = ssm__ref_mamba2_gla_args(layer, s, tokens);
    return ssm__ref_gla(&args, err);
}

ssm_status ssm__ref_mamba2_run(const ssm__ref_layer *layer, const uint8_t *keep, const double *x,
                               int64_t tokens, ssm__ref_mamba2_pass *pass, double *out,
                               double *modes, ssm_error *err)
{
    const ssm__layer_weights *w = &layer->w;
    SSM__TRY(alloc_pass(layer, tokens, pass, err));
    project(layer, x, tokens, pass);
    SSM__TRY(run_recurrence(layer, keep, x, tokens, pass, modes, err));
    ssm__ref_gated_norm(layer->config, &w->gate_norm, pass->v, pass->z, pass->y, tokens);
    join(layer->config, tokens, pass);
    ssm__ref_linear(&w->out_proj, &w->out_proj_bias, pass->joined, out, tokens);
    return SSM_STATUS_OK;
}

ssm_status ssm__ref_mamba2_mixer(const ssm_config *config, const ssm__layer_weights *w,
                                 const uint8_t *keep, const double *x, int64_t tokens, double *out,
                                 double *v, double *modes, ssm_error *err)
{
    const ssm__ref_layer layer = ssm__ref_layer_of(config, w);
    ssm__ref_mamba2_pass pass = {0};
    const ssm_status status = ssm__ref_mamba2_run(&layer, keep, x, tokens, &pass, out, modes, err);
    if (status == SSM_STATUS_OK && v) {
        ssm__ref_columns(pass.v, tokens, config->d_ssm, 0, config->d_ssm, v);
    }
    ssm__ref_mamba2_release(&pass);
    return status;
}
