/* reference/ref_h3_backward.c: gradients of H3's mixer (ref_h3.c). A pair (i, j) of a head is a
 * channel of ref_channel.h with u = k̄_i v_j, a = exp(Δ A), b = Δ, c = C, and
 *
 *   ds_ij = q_i do_j,  dq_i = Σ_j do_j s_ij,  dk̄_i = Σ_j du_ij v_j,  dv_j = Σ_i du_ij k̄_i
 *   dΔ = Σ da a A + db,  dA = Σ da a Δ,  dC = Σ dc; sums over pairs, tokens and, for Δ, modes */
#include <math.h>

#include "reference/ref_channel.h"
#include "reference/ref_h3.h"

typedef struct gradients {
    double *in, *q, *k, *v, *shifted, *o; /* as in the pass */
} gradients;

static gradients take_gradients(int64_t S, int64_t tokens, ssm__ref_arrays *arrays)
{
    return (gradients){.in = ssm__ref_array(arrays, tokens, 3 * S),
                       .q = ssm__ref_array(arrays, tokens, S),
                       .k = ssm__ref_array(arrays, tokens, S),
                       .v = ssm__ref_array(arrays, tokens, S),
                       .shifted = ssm__ref_array(arrays, tokens, S),
                       .o = ssm__ref_array(arrays, tokens, S)};
}

/* Adds the channel's gradients to the parameters of its head. */
static void add_parameters(const ssm__ref_layer *layer, const ssm__ref_h3_pass *s,
                           const ssm__ref_channel *channel, int64_t head,
                           const ssm__ref_gradients *g)
{
    const int64_t N = layer->config->d_state;
    double ddelta = 0.0;
    for (int64_t tn = 0; tn < channel->tokens * N; tn++) {
        const int64_t hn = head * N + tn % N;
        const double slope = channel->da[tn] * channel->a[tn]; /* by the exponent Δ A */
        ddelta += slope * s->A[hn] + channel->db[tn];
        if (g->A_log) { /* A = −exp(A_log) is its own derivative */
            g->A_log[hn] += slope * s->delta[head] * s->A[hn];
        }
        if (g->C_fixed) {
            g->C_fixed[hn] += channel->dc[tn];
        }
    }
    if (g->dt_bias) { /* softplus' derivative is 1 − exp(−Δ) */
        g->dt_bias[head] += ddelta * -expm1(-s->delta[head]);
    }
    if (g->D) {
        g->D[head] += channel->dD;
    }
}

static void pair_backward(const ssm__ref_layer *layer, const ssm__ref_h3_pass *s, int64_t head,
                          int64_t i, int64_t j, ssm__ref_channel *channel, gradients *d,
                          const ssm__ref_gradients *g)
{
    const ssm_config *c = layer->config;
    const int64_t N = c->d_state, S = c->d_ssm;
    const int64_t row = head * c->head_dim + i, column = head * c->head_dim + j;
    channel->D = s->D_skip[head];
    for (int64_t t = 0; t < channel->tokens; t++) {
        channel->u[t] = s->shifted[t * S + row] * s->v[t * S + column];
        channel->dy[t] = s->q[t * S + row] * d->o[t * S + column];
        for (int64_t n = 0; n < N; n++) {
            channel->a[t * N + n] = exp(s->delta[head] * s->A[head * N + n]);
            channel->b[t * N + n] = s->delta[head];
            channel->c[t * N + n] = s->C[head * N + n];
        }
    }
    ssm__ref_channel_forward(channel);
    ssm__ref_channel_backward(channel);
    for (int64_t t = 0; t < channel->tokens; t++) {
        d->q[t * S + row] += d->o[t * S + column] * channel->y[t];
        d->shifted[t * S + row] += channel->du[t] * s->v[t * S + column];
        d->v[t * S + column] += channel->du[t] * s->shifted[t * S + row];
    }
    add_parameters(layer, s, channel, head, g);
}

static void run_backward(const ssm__ref_layer *layer, const ssm__ref_h3_pass *s, const double *x,
                         int64_t tokens, const double *dout, ssm__ref_channel *channel,
                         gradients *d, double *dx, const ssm__ref_gradients *g)
{
    const ssm_config *c = layer->config;
    const ssm__layer_weights *w = &layer->w;
    const int64_t S = c->d_ssm;
    ssm__ref_linear_backward(&w->out_proj, s->o, dout, tokens, d->o, g->out_proj, g->out_proj_bias);
    for (int64_t head = 0; head < c->n_heads; head++) {
        for (int64_t i = 0; i < c->head_dim; i++) {
            for (int64_t j = 0; j < c->head_dim; j++) {
                pair_backward(layer, s, head, i, j, channel, d, g);
            }
        }
    }
    ssm__ref_conv_backward(s->k, s->conv, d->shifted, tokens, S, c->d_conv, d->k, g->conv1d,
                           g->conv1d_bias);
    ssm__ref_put_columns(d->q, tokens, S, d->in, 3 * S, 0);
    ssm__ref_put_columns(d->k, tokens, S, d->in, 3 * S, S);
    ssm__ref_put_columns(d->v, tokens, S, d->in, 3 * S, 2 * S);
    ssm__ref_linear_backward(&w->in_proj, x, d->in, tokens, dx, g->in_proj, g->in_proj_bias);
}

ssm_status ssm__ref_h3_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                const double *dout, double *dx, const ssm__ref_gradients *g,
                                ssm_error *err)
{
    const ssm_config *c = layer->config;
    ssm__ref_arrays arrays = {.err = err};
    ssm__ref_h3_pass pass = ssm__ref_h3_pass_create(layer, tokens, &arrays);
    gradients d = take_gradients(c->d_ssm, tokens, &arrays);
    ssm__ref_channel channel = ssm__ref_channel_create(&arrays, tokens, c->d_state);
    double *out = ssm__ref_array(&arrays, tokens, c->d_model);
    if (arrays.status == SSM_STATUS_OK) {
        ssm__ref_h3_run(layer, x, tokens, &pass, out);
        run_backward(layer, &pass, x, tokens, dout, &channel, &d, dx, g);
    }
    ssm__ref_arrays_free(&arrays);
    return arrays.status;
}
