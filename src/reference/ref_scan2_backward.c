/* reference/ref_scan2_backward.c: gradients of Mamba-2's recurrence (Dao & Gu, 2024): channel c of
 * head k and group g is a channel of ref_channel.h with a = exp(Δ_k A_k) for every n, b = Δ_k B_g,
 * c = C_g, hence, with sums over the channels of the head or of the group,
 *
 *   dΔ_{t,k} = Σ_{c,n} da a A_k + db B,  dA_k = Σ_{t,c,n} da a Δ,  dB_g[n] = Σ_c db Δ,  dC_g[n] =
 * Σ_c dc
 */
#include <math.h>
#include <string.h>

#include "reference/backward.h"
#include "reference/ref_channel.h"

static void fill_channel(const ssm__ref_scan2_args *args, const double *dy, int64_t c,
                         ssm__ref_channel *channel)
{
    const int64_t N = args->d_state, head = c / args->head_dim;
    const int64_t group = head / (args->n_heads / args->n_groups);
    channel->gated = args->z != NULL;
    channel->D = args->D_skip ? args->D_skip[args->D_per_channel ? c : head] : 0.0;
    for (int64_t t = 0; t < args->tokens; t++) {
        const int64_t tc = t * args->n_heads * args->head_dim + c;
        const double delta = args->delta[t * args->n_heads + head];
        channel->u[t] = args->u[tc];
        channel->z[t] = args->z ? args->z[tc] : 0.0;
        channel->dy[t] = dy[tc];
        for (int64_t n = 0; n < N; n++) {
            const int64_t at = (t * args->n_groups + group) * N + n;
            channel->a[t * N + n] = exp(delta * args->A[head]);
            channel->b[t * N + n] = delta * args->B[at];
            channel->c[t * N + n] = args->C[at];
        }
    }
}

static void add_channel(const ssm__ref_scan2_args *args, const ssm__ref_channel *channel, int64_t c,
                        const ssm__ref_scan_gradients *g)
{
    const int64_t N = args->d_state, head = c / args->head_dim;
    const int64_t group = head / (args->n_heads / args->n_groups);
    for (int64_t t = 0; t < args->tokens; t++) {
        const int64_t tc = t * args->n_heads * args->head_dim + c, tk = t * args->n_heads + head;
        g->u[tc] = channel->du[t];
        if (g->z) {
            g->z[tc] = channel->dz[t];
        }
        for (int64_t n = 0; n < N; n++) {
            const int64_t tn = t * N + n, at = (t * args->n_groups + group) * N + n;
            const double slope = channel->da[tn] * channel->a[tn]; /* by the exponent Δ A */
            g->delta[tk] += slope * args->A[head] + channel->db[tn] * args->B[at];
            g->B[at] += channel->db[tn] * args->delta[tk];
            g->C[at] += channel->dc[tn];
            if (g->A) {
                g->A[head] += slope * args->delta[tk];
            }
        }
    }
    if (g->D_skip) {
        g->D_skip[args->D_per_channel ? c : head] += channel->dD;
    }
}

ssm_status ssm__ref_scan2_backward(const ssm__ref_scan2_args *args, const double *dy,
                                   const ssm__ref_scan_gradients *g, ssm_error *err)
{
    ssm__ref_arrays arrays = {.err = err};
    ssm__ref_channel channel = ssm__ref_channel_create(&arrays, args->tokens, args->d_state);
    if (arrays.status == SSM_STATUS_OK) {
        const size_t keys = (size_t)(args->tokens * args->n_groups * args->d_state);
        memset(g->B, 0, keys * sizeof *g->B);
        memset(g->C, 0, keys * sizeof *g->C);
        memset(g->delta, 0, (size_t)(args->tokens * args->n_heads) * sizeof *g->delta);
        for (int64_t c = 0; c < args->n_heads * args->head_dim; c++) {
            fill_channel(args, dy, c, &channel);
            ssm__ref_channel_forward(&channel);
            ssm__ref_channel_backward(&channel);
            add_channel(args, &channel, c, g);
        }
    }
    ssm__ref_arrays_free(&arrays);
    return arrays.status;
}
