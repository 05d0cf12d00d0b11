/* reference/ref_scan.c: the selective scan (Gu & Dao, 2023) written as a sum of modes, and the Gram
 * matrix of the modes. */
#include "reference/reference.h"

#include <math.h>
#include <string.h>

/* One channel at one token: moves its state [N], writes its summands where they are wanted, returns
 * y. */
static double scan_step(const ssm__ref_scan_args *a, int64_t t, int64_t e, double *state)
{
    const int64_t N = a->d_state, te = t * a->channels + e;
    const double u = a->u[te], delta = a->delta[te];
    const double gate = a->z ? ssm__ref_silu(a->z[te]) : 1.0;
    double *modes = a->modes ? a->modes + te * (N + 1) : NULL;
    double y = 0.0;
    for (int64_t i = 0; i < N; i++) {
        state[i] = exp(delta * a->A[e * N + i]) * state[i] + delta * a->B[t * N + i] * u; /* (1) */
        const double kept = a->keep && !a->keep[e * N + i] ? 0.0 : 1.0;
        const double m = kept * gate * a->C[t * N + i] * state[i]; /* (3) */
        if (modes) {
            modes[i] = m;
        }
        y += m;
    }
    const double feed_through = a->D_skip ? gate * a->D_skip[e] * u : 0.0;
    if (modes) {
        modes[N] = feed_through;
    }
    return y + feed_through; /* (2) */
}

void ssm__ref_scan(const ssm__ref_scan_args *args)
{
    for (int64_t t = 0; t < args->tokens; t++) {
        for (int64_t e = 0; e < args->channels; e++) {
            args->y[t * args->channels + e] =
                scan_step(args, t, e, args->state + e * args->d_state);
        }
    }
}

void ssm__ref_gram(const double *modes, int64_t tokens, int64_t channels, int64_t n, double *gram)
{
    const int64_t pairs = n * (n + 1) / 2;
    memset(gram, 0, (size_t)(channels * pairs) * sizeof *gram);
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t e = 0; e < channels; e++) {
            const double *m = modes + (t * channels + e) * n;
            double *out = gram + e * pairs;
            for (int64_t i = 0; i < n; i++) {
                for (int64_t j = i; j < n; j++) {
                    *out++ += m[i] * m[j];
                }
            }
        }
    }
}
