/* reference/ref_scan2.c: the recurrence of Mamba-2 (Dao & Gu, 2024) written as a sum of modes. */
#include "reference/reference.h"

#include <math.h>

/* Channel c at one token, as scan_step of ref_scan.c. */
static double scan2_step(const ssm__ref_scan2_args *a, int64_t t, int64_t c, double *state)
{
    const int64_t N = a->d_state, tc = t * a->n_heads * a->head_dim + c;
    const int64_t head = c / a->head_dim, group = head / (a->n_heads / a->n_groups);
    const double *B = a->B + (t * a->n_groups + group) * N;
    const double *C = a->C + (t * a->n_groups + group) * N;
    const double u = a->u[tc], delta = a->delta[t * a->n_heads + head];
    const double gate = a->z ? ssm__ref_silu(a->z[tc]) : 1.0;
    double *modes = a->modes ? a->modes + tc * (N + 1) : NULL;
    double y = 0.0;
    for (int64_t n = 0; n < N; n++) {
        state[n] = exp(delta * a->A[head]) * state[n] + delta * B[n] * u;
        const double kept = a->keep && !a->keep[c * N + n] ? 0.0 : 1.0;
        const double m = kept * gate * C[n] * state[n];
        if (modes) {
            modes[n] = m;
        }
        y += m;
    }
    const double D = a->D_skip ? a->D_skip[a->D_per_channel ? c : head] : 0.0;
    if (modes) {
        modes[N] = gate * D * u;
    }
    return y + gate * D * u;
}

void ssm__ref_scan2(const ssm__ref_scan2_args *args)
{
    const int64_t channels = args->n_heads * args->head_dim;
    for (int64_t t = 0; t < args->tokens; t++) {
        for (int64_t c = 0; c < channels; c++) {
            args->y[t * channels + c] = scan2_step(args, t, c, args->state + c * args->d_state);
        }
    }
}
