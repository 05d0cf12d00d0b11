/* reference/ref_h3.c: one mixer of H3 (Fu et al., 2023, "Hungry Hungry Hippos") in float64. Heads
 * h < H of P channels, i, j < P:
 *
 *   (q, k, v) = in_proj x, [L][HP] each
 *   k̄ = shift SSM of k: its state is the last K numbers of a channel, its output a learned sum of
 *       them, which is the causal convolution conv1d
 *   s_{h,ij} = diagonal SSM of head h over the products k̄_{h,i} v_{h,j}, from the zero state:
 *       x_t[n] = exp(Δ_h A_h[n]) x_{t−1}[n] + Δ_h k̄_{t,i} v_{t,j},
 *       s_t = Σ_n C_h[n] x_t[n] + D_h k̄_{t,i} v_{t,j}
 *   o_{h,j} = Σ_i q_{h,i} s_{h,ij};  out = out_proj o
 * The paper's form, but for three choices of ours: A is real and negative (−exp(A_log)), where S4D
 * has complex pairs; Δ = softplus(dt_bias) discretises as in Mamba; the shift SSM's skip weight is
 * in its last tap. With P = 1 it is q ⊙ diag(shift(k) ⊙ v). */
#include "reference/ref_h3.h"

#include <math.h>

#include "base/error.h"

ssm__ref_h3_pass ssm__ref_h3_pass_create(const ssm__ref_layer *layer, int64_t tokens,
                                         ssm__ref_arrays *arrays)
{
    const ssm_config *c = layer->config;
    const int64_t S = c->d_ssm, H = c->n_heads, N = c->d_state;
    ssm__ref_h3_pass pass = {.in = ssm__ref_array(arrays, tokens, 3 * S),
                             .q = ssm__ref_array(arrays, tokens, S),
                             .k = ssm__ref_array(arrays, tokens, S),
                             .v = ssm__ref_array(arrays, tokens, S),
                             .shifted = ssm__ref_array(arrays, tokens, S),
                             .o = ssm__ref_array(arrays, tokens, S),
                             .delta = ssm__ref_array(arrays, H, 1),
                             .A = ssm__ref_array(arrays, H, N),
                             .C = ssm__ref_array(arrays, H, N),
                             .D_skip = ssm__ref_array(arrays, H, 1),
                             .conv = ssm__ref_array(arrays, S, c->d_conv),
                             .conv_bias = ssm__ref_array(arrays, S, 1),
                             .state = ssm__ref_array(arrays, 1, N)};
    return pass;
}

static void read_parameters(const ssm__ref_layer *layer, ssm__ref_h3_pass *s)
{
    const ssm_config *c = layer->config;
    const ssm__layer_weights *w = &layer->w;
    const int64_t H = c->n_heads, N = c->d_state;
    ssm__ref_repeat(&w->dt_bias, 1, H, s->delta);
    ssm__ref_repeat(&w->A_log, 1, H * N, s->A);
    ssm__ref_repeat(&layer->C_fixed, 1, H * N, s->C);
    ssm__ref_repeat(&w->D, 1, H, s->D_skip);
    ssm__ref_repeat(&w->conv1d, 1, c->d_ssm * c->d_conv, s->conv);
    ssm__ref_repeat(&w->conv1d_bias, 1, c->d_ssm, s->conv_bias);
    for (int64_t head = 0; head < H; head++) {
        s->delta[head] = ssm__ref_softplus(s->delta[head]); /* was dt_bias */
    }
    for (int64_t i = 0; i < H * N; i++) {
        s->A[i] = -exp(s->A[i]); /* was A_log */
    }
}

/* The pair (i, j) of a head: adds q_i s_ij to o_j of every token. */
static void run_pair(const ssm_config *c, int64_t head, int64_t i, int64_t j, int64_t tokens,
                     ssm__ref_h3_pass *s)
{
    const int64_t N = c->d_state, S = c->d_ssm;
    const int64_t row = head * c->head_dim + i, column = head * c->head_dim + j;
    for (int64_t n = 0; n < N; n++) {
        s->state[n] = 0.0;
    }
    for (int64_t t = 0; t < tokens; t++) {
        const double u = s->shifted[t * S + row] * s->v[t * S + column];
        double sum = s->D_skip[head] * u;
        for (int64_t n = 0; n < N; n++) {
            const int64_t hn = head * N + n;
            s->state[n] = exp(s->delta[head] * s->A[hn]) * s->state[n] + s->delta[head] * u;
            sum += s->C[hn] * s->state[n];
        }
        s->o[t * S + column] += s->q[t * S + row] * sum;
    }
}

void ssm__ref_h3_run(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                     ssm__ref_h3_pass *s, double *out)
{
    const ssm_config *c = layer->config;
    const ssm__layer_weights *w = &layer->w;
    const int64_t S = c->d_ssm;
    read_parameters(layer, s);
    ssm__ref_linear(&w->in_proj, &w->in_proj_bias, x, s->in, tokens);
    ssm__ref_columns(s->in, tokens, 3 * S, 0, S, s->q);
    ssm__ref_columns(s->in, tokens, 3 * S, S, S, s->k);
    ssm__ref_columns(s->in, tokens, 3 * S, 2 * S, S, s->v);
    ssm__ref_conv(s->k, s->conv, s->conv_bias, s->shifted, tokens, S, c->d_conv);
    for (int64_t head = 0; head < c->n_heads; head++) {
        for (int64_t i = 0; i < c->head_dim; i++) {
            for (int64_t j = 0; j < c->head_dim; j++) {
                run_pair(c, head, i, j, tokens, s);
            }
        }
    }
    ssm__ref_linear(&w->out_proj, &w->out_proj_bias, s->o, out, tokens);
}

ssm_status ssm__ref_h3(const ssm__ref_layer *layer, const double *x, int64_t tokens, double *out,
                       ssm_error *err)
{
    ssm__ref_arrays arrays = {.err = err};
    ssm__ref_h3_pass pass = ssm__ref_h3_pass_create(layer, tokens, &arrays);
    if (arrays.status == SSM_STATUS_OK) {
        ssm__ref_h3_run(layer, x, tokens, &pass, out);
    }
    ssm__ref_arrays_free(&arrays);
    return arrays.status;
}
