/* reference/ref_mamba2.c: one mixer of Mamba-2 (Dao & Gu, 2024) in float64; docs/mamba2.md.
 *
 *   (z0, x0, z, x B C, dt) = in_proj x;  (u, B, C) = SiLU(conv1d(x B C));
 *   Δ = clamp(softplus(dt + dt_bias));  v = recurrence (u, Δ, A, B, C, D, z);
 *   out = out_proj (SiLU(z0)·x0, gated norm of v)
 *
 * z0 and x0 are E − S wide each, and absent where the scan is as wide as the mixer. */
#include "reference/reference.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "reference/ref_alloc.h"

/* Everything between the input and the output of one mixer. */
typedef struct scratch {
    double *in;                        /* [L][2E+2GN+H] */
    double *z0, *x0;                   /* [L][E−S] */
    double *z, *u, *v, *y;             /* [L][S] */
    double *xBC, *conved;              /* [L][S+2GN] */
    double *B, *C;                     /* [L][GN] */
    double *delta;                     /* [L][H] */
    double *joined;                    /* [L][E] out_proj's input */
    double *state;                     /* [S][N] */
    double *A, *dt_bias;               /* [H] */
    double *D_skip, *conv, *conv_bias; /* [H] or [S], [S+2GN][K], [S+2GN] or NULL */
} scratch;

static void free_scratch(scratch *s)
{
    double *all[] = {s->in,  s->z0,      s->x0,     s->z,    s->u,        s->v,      s->y,
                     s->xBC, s->B,       s->conved, s->C,    s->delta,    s->joined, s->state,
                     s->A,   s->dt_bias, s->D_skip, s->conv, s->conv_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

static ssm_status alloc_scratch(const ssm_config *c, const ssm__layer_weights *w, int64_t tokens,
                                scratch *s, ssm_error *err)
{
    const int64_t E = c->d_inner, S = c->d_ssm, GN = c->n_groups * c->d_state;
    SSM__TRY(ssm__ref_alloc(tokens, 2 * E + 2 * GN + c->n_heads, &s->in, err));
    SSM__TRY(ssm__ref_alloc(tokens, E - S, &s->z0, err));
    SSM__TRY(ssm__ref_alloc(tokens, E - S, &s->x0, err));
    SSM__TRY(ssm__ref_alloc(tokens, S, &s->z, err));
    SSM__TRY(ssm__ref_alloc(tokens, S, &s->u, err));
    SSM__TRY(ssm__ref_alloc(tokens, S, &s->v, err));
    SSM__TRY(ssm__ref_alloc(tokens, S, &s->y, err));
    SSM__TRY(ssm__ref_alloc(tokens, S + 2 * GN, &s->xBC, err));
    SSM__TRY(ssm__ref_alloc(tokens, S + 2 * GN, &s->conved, err));
    SSM__TRY(ssm__ref_alloc(tokens, GN, &s->B, err));
    SSM__TRY(ssm__ref_alloc(tokens, GN, &s->C, err));
    SSM__TRY(ssm__ref_alloc(tokens, c->n_heads, &s->delta, err));
    SSM__TRY(ssm__ref_alloc(tokens, E, &s->joined, err));
    SSM__TRY(ssm__ref_alloc(S, c->d_state, &s->state, err));
    SSM__TRY(ssm__ref_widen(&w->A_log, &s->A, err));
    SSM__TRY(ssm__ref_widen(&w->dt_bias, &s->dt_bias, err));
    SSM__TRY(ssm__ref_widen(&w->D, &s->D_skip, err));
    SSM__TRY(ssm__ref_widen(&w->conv1d, &s->conv, err));
    SSM__TRY(ssm__ref_widen(&w->conv1d_bias, &s->conv_bias, err));
    return SSM_STATUS_OK;
}

/* x → z0, x0, z, u, B, C, Δ. */
static void project(const ssm_config *c, const ssm__layer_weights *w, const double *x,
                    int64_t tokens, scratch *s)
{
    const int64_t E = c->d_inner, S = c->d_ssm, GN = c->n_groups * c->d_state, H = c->n_heads;
    const int64_t width = 2 * E + 2 * GN + H, conv_width = S + 2 * GN, first = 2 * (E - S);

    ssm__ref_linear(&w->in_proj, &w->in_proj_bias, x, s->in, tokens);
    ssm__ref_columns(s->in, tokens, width, 0, E - S, s->z0);
    ssm__ref_columns(s->in, tokens, width, E - S, E - S, s->x0);
    ssm__ref_columns(s->in, tokens, width, first, S, s->z);
    ssm__ref_columns(s->in, tokens, width, first + S, conv_width, s->xBC);
    ssm__ref_columns(s->in, tokens, width, first + S + conv_width, H, s->delta);

    ssm__ref_conv_silu(s->xBC, s->conv, s->conv_bias, s->conved, tokens, conv_width, c->d_conv);
    ssm__ref_columns(s->conved, tokens, conv_width, 0, S, s->u);
    ssm__ref_columns(s->conved, tokens, conv_width, S, GN, s->B);
    ssm__ref_columns(s->conved, tokens, conv_width, S + GN, GN, s->C);

    for (int64_t i = 0; i < tokens * H; i++) {
        const double step = ssm__ref_softplus(s->delta[i] + s->dt_bias[i % H]);
        s->delta[i] = fmin(fmax(step, c->dt_limit_low), c->dt_limit_high);
    }
    for (int64_t head = 0; head < H; head++) {
        s->A[head] = -exp(s->A[head]); /* was A_log */
    }
}

/* z0, x0, y → out_proj's input. */
static void join(const ssm_config *c, int64_t tokens, scratch *s)
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

static void run_mixer(const ssm_config *c, const ssm__layer_weights *w, const uint8_t *keep,
                      const double *x, int64_t tokens, scratch *s, double *out, double *modes)
{
    const bool gate_later = c->gated_norm && c->norm_before_gate;
    project(c, w, x, tokens, s);
    ssm__ref_scan2(&(ssm__ref_scan2_args){.tokens = tokens,
                                          .n_heads = c->n_heads,
                                          .head_dim = c->head_dim,
                                          .n_groups = c->n_groups,
                                          .d_state = c->d_state,
                                          .u = s->u,
                                          .delta = s->delta,
                                          .z = gate_later ? NULL : s->z,
                                          .A = s->A,
                                          .B = s->B,
                                          .C = s->C,
                                          .D_skip = s->D_skip,
                                          .D_per_channel = c->D_per_channel,
                                          .keep = keep,
                                          .state = s->state,
                                          .y = s->v,
                                          .modes = modes});
    ssm__ref_gated_norm(c, &w->gate_norm, s->v, s->z, s->y, tokens);
    join(c, tokens, s);
    ssm__ref_linear(&w->out_proj, &w->out_proj_bias, s->joined, out, tokens);
}

ssm_status ssm__ref_mamba2_mixer(const ssm_config *config, const ssm__layer_weights *w,
                                 const uint8_t *keep, const double *x, int64_t tokens, double *out,
                                 double *v, double *modes, ssm_error *err)
{
    scratch s = {0};
    const ssm_status status = alloc_scratch(config, w, tokens, &s, err);
    if (status == SSM_STATUS_OK) {
        run_mixer(config, w, keep, x, tokens, &s, out, modes);
        if (v) {
            ssm__ref_columns(s.v, tokens, config->d_ssm, 0, config->d_ssm, v);
        }
    }
    free_scratch(&s);
    return status;
}
