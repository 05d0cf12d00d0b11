/* train/probe_modes.c: energies of the modes of a trained layer, in plain float64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/probe.h"

/* Parameters of a layer of Mamba-1 (docs/mamba1.md). */
typedef struct mamba1 {
    int64_t D, E, N, K, R; /* without convolution K is 1 and conv NULL */
    const float *in_proj, *conv, *conv_bias, *x_proj, *dt_proj, *dt_bias, *A_log;
} mamba1;

/* Of one token, and what is remembered. */
typedef struct work {
    double *history; /* [K][E] the last K of it, the newest last */
    double *u;       /* [E] behind convolution and SiLU */
    double *low;     /* [R + 2N] dt, B, C */
    double *state;   /* [E][N] */
} work;

static const float *find(const ssm__network *network, int64_t number, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "backbone.layers.%lld.mixer.%s", (long long)number, name);
    const ssm__parameter *p = ssm__network_find(network, full);
    return p == NULL ? NULL : ssm__network_values(network) + p->at;
}

static ssm_status find_layer(const ssm__network *network, int64_t number, mamba1 *out,
                             ssm_error *err)
{
    const ssm__network_config *config = ssm__network_config_of(network);
    const ssm_config *c = &config->shape;
    *out = (mamba1){.D = c->d_model,
                    .E = c->d_inner,
                    .N = c->d_state,
                    .K = c->d_conv > 0 ? c->d_conv : 1,
                    .R = c->dt_rank};
    out->in_proj = find(network, number, "in_proj.weight");
    out->conv = find(network, number, "conv1d.weight");
    out->conv_bias = find(network, number, "conv1d.bias");
    out->x_proj = find(network, number, "x_proj.weight");
    out->dt_proj = find(network, number, "dt_proj.weight");
    out->dt_bias = find(network, number, "dt_proj.bias");
    out->A_log = find(network, number, "A_log");
    const bool convolved = out->conv != NULL && out->conv_bias != NULL;
    if (out->in_proj == NULL || convolved != (c->d_conv > 0) || out->x_proj == NULL ||
        out->dt_proj == NULL || out->dt_bias == NULL || out->A_log == NULL) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "probe: layer %lld is none of Mamba-1, whose modes alone are probed",
                         (long long)number);
    }
    return SSM_STATUS_OK;
}

static double silu(double a)
{
    return a / (1 + exp(-a));
}

static double softplus(double a)
{
    return a > 30 ? a : log1p(exp(a));
}

static double dot_float(const float *w, const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)w[i] * x[i];
    }
    return sum;
}

/* in_proj, convolution, SiLU, x_proj of one token. */
static void project(const mamba1 *l, const float *in, work *w)
{
    memmove(w->history, w->history + l->E, (size_t)((l->K - 1) * l->E) * sizeof *w->history);
    double *newest = w->history + (l->K - 1) * l->E;
    for (int64_t e = 0; e < l->E; e++) {
        double sum = 0;
        for (int64_t d = 0; d < l->D; d++) {
            sum += (double)l->in_proj[e * l->D + d] * (double)in[d];
        }
        newest[e] = sum;
    }
    for (int64_t e = 0; e < l->E; e++) {
        double sum = l->conv == NULL ? newest[e] : (double)l->conv_bias[e];
        for (int64_t k = 0; l->conv != NULL && k < l->K; k++) {
            sum += (double)l->conv[e * l->K + k] * w->history[k * l->E + e];
        }
        w->u[e] = silu(sum);
    }
    for (int64_t r = 0; r < l->R + 2 * l->N; r++) {
        w->low[r] = dot_float(l->x_proj + r * l->E, w->u, l->E);
    }
}

/* x ← exp(ΔA) x + Δ B u; energies += (C x)². */
static void scan(const mamba1 *l, work *w, double *energies)
{
    const double *B = w->low + l->R, *C = B + l->N;
    for (int64_t e = 0; e < l->E; e++) {
        const double delta =
            softplus(dot_float(l->dt_proj + e * l->R, w->low, l->R) + (double)l->dt_bias[e]);
        double *x = w->state + e * l->N;
        for (int64_t n = 0; n < l->N; n++) {
            const double A = -exp((double)l->A_log[e * l->N + n]);
            x[n] = exp(delta * A) * x[n] + delta * B[n] * w->u[e];
            const double m = C[n] * x[n];
            energies[e * l->N + n] += m * m;
        }
    }
}

ssm_status ssm__mode_energies(const ssm__network *network, int64_t layer, const float *normed,
                              int64_t length, int64_t window, double *out, ssm_error *err)
{
    mamba1 l;
    SSM__TRY(find_layer(network, layer, &l, err));
    const int64_t floats = l.E + l.K * l.E + l.R + 2 * l.N + l.E * l.N;
    double *memory = calloc((size_t)floats, sizeof *memory);
    if (memory == NULL) {
        return ssm__fail_memory(err, "a probe", (size_t)floats * sizeof *memory);
    }
    work w = {.history = memory};
    w.u = w.history + l.K * l.E;
    w.low = w.u + l.E;
    w.state = w.low + l.R + 2 * l.N;
    const int64_t windows = length / window, modes = l.E * l.N;
    memset(out, 0, (size_t)(windows * modes) * sizeof *out);
    for (int64_t t = 0; t < windows * window; t++) {
        project(&l, normed + t * l.D, &w);
        scan(&l, &w, out + t / window * modes);
    }
    free(memory);
    return SSM_STATUS_OK;
}
