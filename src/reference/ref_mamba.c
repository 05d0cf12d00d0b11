/* reference/ref_mamba.c: one mixer of Mamba-1 (Gu & Dao, 2023) or of Falcon-Mamba in float64;
 * docs/mamba1.md. */
#include "reference/reference.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "reference/ref_alloc.h"

/* Everything between the input and the output of one mixer. */
typedef struct scratch {
    double *in;                        /* [L][2E] in_proj x: xs, z */
    double *xs, *z, *u;                /* [L][E] */
    double *low;                       /* [L][R+2N] x_proj u: dt_low, B, C */
    double *dt_low;                    /* [L][R] */
    double *B, *C;                     /* [L][N] */
    double *delta, *y;                 /* [L][E] */
    double *state, *A;                 /* [E][N] */
    double *D_skip, *conv, *conv_bias; /* [E], [E][K], [E] or NULL */
} scratch;

static void free_scratch(scratch *s)
{
    double *all[] = {s->in,    s->xs, s->z,     s->u, s->low,    s->dt_low, s->B,        s->C,
                     s->delta, s->y,  s->state, s->A, s->D_skip, s->conv,   s->conv_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

static ssm_status alloc_scratch(const ssm_config *c, const ssm__layer_weights *w, int64_t tokens,
                                scratch *s, ssm_error *err)
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
static void norm_low(const ssm_config *c, int64_t tokens, scratch *s)
{
    const double eps = c->mixer_norm_eps;
    ssm__ref_rmsnorm(s->dt_low, NULL, s->dt_low, tokens, c->dt_rank, eps);
    ssm__ref_rmsnorm(s->B, NULL, s->B, tokens, c->d_state, eps);
    ssm__ref_rmsnorm(s->C, NULL, s->C, tokens, c->d_state, eps);
}

static void run_mixer(const ssm_config *c, const ssm__layer_weights *w, const uint8_t *keep,
                      const double *x, int64_t tokens, scratch *s, double *out, double *modes)
{
    const int64_t E = c->d_inner, N = c->d_state, R = c->dt_rank;

    ssm__ref_linear(&w->in_proj, &w->in_proj_bias, x, s->in, tokens);
    ssm__ref_columns(s->in, tokens, 2 * E, 0, E, s->xs);
    ssm__ref_columns(s->in, tokens, 2 * E, E, E, s->z);

    ssm__ref_conv_silu(s->xs, s->conv, s->conv_bias, s->u, tokens, E, c->d_conv);

    ssm__ref_linear(&w->x_proj, NULL, s->u, s->low, tokens);
    ssm__ref_columns(s->low, tokens, R + 2 * N, 0, R, s->dt_low);
    ssm__ref_columns(s->low, tokens, R + 2 * N, R, N, s->B);
    ssm__ref_columns(s->low, tokens, R + 2 * N, R + N, N, s->C);
    if (c->family == SSM_FAMILY_FALCON_MAMBA) {
        norm_low(c, tokens, s);
    }

    ssm__ref_linear(&w->dt_proj, &w->dt_proj_bias, s->dt_low, s->delta, tokens);
    for (int64_t i = 0; i < tokens * E; i++) {
        s->delta[i] = ssm__ref_softplus(s->delta[i]);
    }

    for (int64_t i = 0; i < E * N; i++) {
        s->A[i] = -exp(s->A[i]); /* was A_log */
    }
    ssm__ref_scan(&(ssm__ref_scan_args){.tokens = tokens,
                                        .channels = E,
                                        .d_state = N,
                                        .u = s->u,
                                        .delta = s->delta,
                                        .z = s->z,
                                        .A = s->A,
                                        .B = s->B,
                                        .C = s->C,
                                        .D_skip = s->D_skip,
                                        .keep = keep,
                                        .state = s->state,
                                        .y = s->y,
                                        .modes = modes});

    ssm__ref_linear(&w->out_proj, &w->out_proj_bias, s->y, out, tokens);
}

ssm_status ssm__ref_mamba_mixer(const ssm_config *config, const ssm__layer_weights *w,
                                const uint8_t *keep, const double *x, int64_t tokens, double *out,
                                double *y, double *modes, ssm_error *err)
{
    scratch s = {0};
    const ssm_status status = alloc_scratch(config, w, tokens, &s, err);
    if (status == SSM_STATUS_OK) {
        run_mixer(config, w, keep, x, tokens, &s, out, modes);
        if (y) {
            ssm__ref_columns(s.y, tokens, config->d_inner, 0, config->d_inner, y);
        }
    }
    free_scratch(&s);
    return status;
}
