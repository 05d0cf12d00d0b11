/* reference/ref_channel.c: one channel of a recurrence, forward and backward.
 *
 * With λ_t the derivative of the loss by the state x_t:
 *   dv_t = gate dy_t,  dz_t = dy_t v_t SiLU'(z_t),  dD = Σ_t dv_t u_t
 *   λ_t[n] = dv_t c_t[n] + a_{t+1}[n] λ_{t+1}[n]
 *   da_t[n] = λ_t[n] x_{t−1}[n],  db_t[n] = λ_t[n] u_t,  dc_t[n] = dv_t x_t[n]
 *   du_t = Σ_n λ_t[n] b_t[n] + D dv_t */
#include "reference/ref_channel.h"

#include "reference/backward.h"

ssm__ref_channel ssm__ref_channel_create(ssm__ref_arrays *arrays, int64_t tokens, int64_t d_state)
{
    ssm__ref_channel channel = {.tokens = tokens, .d_state = d_state};
    double **wide[] = {&channel.a,  &channel.b,  &channel.c,  &channel.x,
                       &channel.da, &channel.db, &channel.dc, &channel.lambda};
    double **narrow[] = {&channel.u,  &channel.z,  &channel.v, &channel.y,
                         &channel.dy, &channel.du, &channel.dz};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        *wide[i] = ssm__ref_array(arrays, tokens, d_state);
    }
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        *narrow[i] = ssm__ref_array(arrays, tokens, 1);
    }
    return channel;
}

void ssm__ref_channel_forward(ssm__ref_channel *channel)
{
    const int64_t N = channel->d_state;
    for (int64_t t = 0; t < channel->tokens; t++) {
        channel->v[t] = channel->D * channel->u[t];
        for (int64_t n = 0; n < N; n++) {
            const int64_t tn = t * N + n;
            const double before = t > 0 ? channel->x[tn - N] : 0.0;
            channel->x[tn] = channel->a[tn] * before + channel->b[tn] * channel->u[t];
            channel->v[t] += channel->c[tn] * channel->x[tn];
        }
        channel->y[t] = channel->v[t] * (channel->gated ? ssm__ref_silu(channel->z[t]) : 1.0);
    }
}

void ssm__ref_channel_backward(ssm__ref_channel *channel)
{
    const int64_t N = channel->d_state, L = channel->tokens;
    channel->dD = 0.0;
    for (int64_t t = L - 1; t >= 0; t--) {
        const double z = channel->gated ? channel->z[t] : 0.0;
        const double dv = channel->dy[t] * (channel->gated ? ssm__ref_silu(z) : 1.0);
        channel->dz[t] =
            channel->gated ? channel->dy[t] * channel->v[t] * ssm__ref_silu_slope(z) : 0.0;
        channel->dD += dv * channel->u[t];
        channel->du[t] = channel->D * dv;
        for (int64_t n = 0; n < N; n++) {
            const int64_t tn = t * N + n;
            double lambda = dv * channel->c[tn];
            if (t + 1 < L) {
                lambda += channel->a[tn + N] * channel->lambda[tn + N];
            }
            channel->lambda[tn] = lambda;
            channel->da[tn] = t > 0 ? lambda * channel->x[tn - N] : 0.0;
            channel->db[tn] = lambda * channel->u[t];
            channel->dc[tn] = dv * channel->x[tn];
            channel->du[t] += lambda * channel->b[tn];
        }
    }
}
