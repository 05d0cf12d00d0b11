/* reference/ref_gla_backward.c: gradients of linear attention and gated linear attention: a channel
 * of ref_channel.h with a = α, b = B, c = C.
 *
 *   dα_{t,j}[n] = Σ_channels of the gate da,  dB_{t,g}[n] = Σ db,  dC_{t,g}[n] = Σ dc
 *   dp = dα α (1 − σ(p)) / gate_divisor, since logsigmoid'(p) = 1 − σ(p) = σ(−p) */
#include <string.h>

#include "reference/ref_channel.h"
#include "reference/ref_gla.h"

/* The first of the N numbers of token t that channel c sees in B and C, and in alpha. */
static int64_t keys_at(const ssm__ref_gla_args *a, int64_t t, int64_t c)
{
    const int64_t group = c / a->head_dim / (a->n_heads / a->n_groups);
    return (t * a->n_groups + group) * a->d_state;
}

static int64_t gates_at(const ssm__ref_gla_args *a, int64_t t, int64_t c)
{
    const int64_t gate = c / a->head_dim / (a->n_heads / a->gate_groups);
    return (t * a->gate_groups + gate) * a->d_state;
}

static void fill_channel(const ssm__ref_gla_args *a, const double *dy, int64_t c,
                         ssm__ref_channel *channel)
{
    const int64_t N = a->d_state;
    channel->gated = a->z != NULL;
    channel->D = a->D_skip ? a->D_skip[a->D_per_channel ? c : c / a->head_dim] : 0.0;
    for (int64_t t = 0; t < a->tokens; t++) {
        const int64_t tc = t * a->n_heads * a->head_dim + c;
        channel->u[t] = a->u[tc];
        channel->z[t] = a->z ? a->z[tc] : 0.0;
        channel->dy[t] = dy[tc];
        for (int64_t n = 0; n < N; n++) {
            channel->a[t * N + n] = a->alpha ? a->alpha[gates_at(a, t, c) + n] : 1.0;
            channel->b[t * N + n] = a->B[keys_at(a, t, c) + n];
            channel->c[t * N + n] = a->C[keys_at(a, t, c) + n];
        }
    }
}

static void add_channel(const ssm__ref_gla_args *a, const ssm__ref_channel *channel, int64_t c,
                        const ssm__ref_scan_gradients *g, double *dalpha)
{
    const int64_t N = a->d_state;
    for (int64_t t = 0; t < a->tokens; t++) {
        const int64_t tc = t * a->n_heads * a->head_dim + c;
        g->u[tc] = channel->du[t];
        if (g->z) {
            g->z[tc] = channel->dz[t];
        }
        for (int64_t n = 0; n < N; n++) {
            g->B[keys_at(a, t, c) + n] += channel->db[t * N + n];
            g->C[keys_at(a, t, c) + n] += channel->dc[t * N + n];
            if (dalpha) {
                dalpha[gates_at(a, t, c) + n] += channel->da[t * N + n];
            }
        }
    }
    if (g->D_skip) {
        g->D_skip[a->D_per_channel ? c : c / a->head_dim] += channel->dD;
    }
}

ssm_status ssm__ref_gla_backward(const ssm__ref_gla_args *args, const double *dy,
                                 const ssm__ref_scan_gradients *g, double *dalpha, ssm_error *err)
{
    ssm__ref_arrays arrays = {.err = err};
    ssm__ref_channel channel = ssm__ref_channel_create(&arrays, args->tokens, args->d_state);
    if (arrays.status == SSM_STATUS_OK) {
        const size_t bytes = (size_t)(args->tokens * args->d_state) * sizeof *g->B;
        memset(g->B, 0, bytes * (size_t)args->n_groups);
        memset(g->C, 0, bytes * (size_t)args->n_groups);
        if (dalpha) {
            memset(dalpha, 0, bytes * (size_t)args->gate_groups);
        }
        for (int64_t c = 0; c < args->n_heads * args->head_dim; c++) {
            fill_channel(args, dy, c, &channel);
            ssm__ref_channel_forward(&channel);
            ssm__ref_channel_backward(&channel);
            add_channel(args, &channel, c, g, dalpha);
        }
    }
    ssm__ref_arrays_free(&arrays);
    return arrays.status;
}

ssm_status ssm__ref_gla_gate_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                      const ssm__ref_gla_gate *gate, const double *dalpha,
                                      double *dx, const ssm__ref_gradients *g, ssm_error *err)
{
    const int64_t D = layer->config->d_model;
    const int64_t rank = layer->gate_down.dims[0], width = layer->gate_up.dims[0];
    ssm__ref_arrays arrays = {.err = err};
    double *dp = ssm__ref_array(&arrays, tokens, width);
    double *dlow = ssm__ref_array(&arrays, tokens, rank);
    double *through = ssm__ref_array(&arrays, tokens, D);
    if (arrays.status == SSM_STATUS_OK) {
        for (int64_t i = 0; i < tokens * width; i++) {
            dp[i] =
                dalpha[i] * gate->alpha[i] * ssm__ref_sigmoid(-gate->p[i]) / layer->gate_divisor;
        }
        ssm__ref_linear_backward(&layer->gate_up, gate->low, dp, tokens, dlow, g->gate_up,
                                 g->gate_bias);
        ssm__ref_linear_backward(&layer->gate_down, x, dlow, tokens, through, g->gate_down, NULL);
        for (int64_t i = 0; i < tokens * D; i++) {
            dx[i] += through[i];
        }
    }
    ssm__ref_arrays_free(&arrays);
    return arrays.status;
}
