/* reference/ref_scan_backward.c: gradients of the selective scan (Gu & Dao, 2023): a channel of
 * ref_channel.h with a = exp(Δ A), b = Δ B, c = C, hence
 *
 *   dΔ_t = Σ_n da a A + db B,  dA[n] = Σ_t da a Δ,  dB_t[n] = Σ_channels db Δ,  dC_t[n] = Σ dc */
#include "reference/backward.h"

#include <math.h>
#include <string.h>

#include "reference/ref_channel.h"

/* Channel e of the arguments. */
static void fill_channel(const ssm__ref_scan_args *args, const double *dy, int64_t e,
                         ssm__ref_channel *channel)
{
    const int64_t N = args->d_state;
    channel->gated = args->z != NULL;
    channel->D = args->D_skip ? args->D_skip[e] : 0.0;
    for (int64_t t = 0; t < args->tokens; t++) {
        const int64_t te = t * args->channels + e;
        channel->u[t] = args->u[te];
        channel->z[t] = args->z ? args->z[te] : 0.0;
        channel->dy[t] = dy[te];
        for (int64_t n = 0; n < N; n++) {
            channel->a[t * N + n] = exp(args->delta[te] * args->A[e * N + n]);
            channel->b[t * N + n] = args->delta[te] * args->B[t * N + n];
            channel->c[t * N + n] = args->C[t * N + n];
        }
    }
}

static void add_channel(const ssm__ref_scan_args *args, const ssm__ref_channel *channel, int64_t e,
                        const ssm__ref_scan_gradients *g)
{
    const int64_t N = args->d_state;
    for (int64_t t = 0; t < args->tokens; t++) {
        const int64_t te = t * args->channels + e;
        g->u[te] = channel->du[t];
        if (g->z) {
            g->z[te] = channel->dz[t];
        }
        g->delta[te] = 0.0;
        for (int64_t n = 0; n < N; n++) {
            const int64_t tn = t * N + n;
            const double slope = channel->da[tn] * channel->a[tn]; /* by the exponent Δ A */
            g->delta[te] += slope * args->A[e * N + n] + channel->db[tn] * args->B[tn];
            g->B[tn] += channel->db[tn] * args->delta[te];
            g->C[tn] += channel->dc[tn];
            if (g->A) {
                g->A[e * N + n] += slope * args->delta[te];
            }
        }
    }
    if (g->D_skip) {
        g->D_skip[e] += channel->dD;
    }
}

ssm_status ssm__ref_scan_backward(const ssm__ref_scan_args *args, const double *dy,
                                  const ssm__ref_scan_gradients *g, ssm_error *err)
{
    ssm__ref_arrays arrays = {.err = err};
    ssm__ref_channel channel = ssm__ref_channel_create(&arrays, args->tokens, args->d_state);
    if (arrays.status == SSM_STATUS_OK) {
        const size_t bytes = (size_t)(args->tokens * args->d_state) * sizeof *g->B;
        memset(g->B, 0, bytes);
        memset(g->C, 0, bytes);
        for (int64_t e = 0; e < args->channels; e++) {
            fill_channel(args, dy, e, &channel);
            ssm__ref_channel_forward(&channel);
            ssm__ref_channel_backward(&channel);
            add_channel(args, &channel, e, g);
        }
    }
    ssm__ref_arrays_free(&arrays);
    return arrays.status;
}
