/* reference/ref_gla.c: linear attention and gated linear attention, forward. */
#include "reference/ref_gla.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "reference/ref_alloc.h"

/* Channel c = head·P + p at token t: moves column p of the head's state, x [N], and returns y. */
static double gla_step(const ssm__ref_gla_args *a, int64_t t, int64_t c, double *x)
{
    const int64_t N = a->d_state, head = c / a->head_dim, tc = t * a->n_heads * a->head_dim + c;
    const int64_t group = head / (a->n_heads / a->n_groups);
    const int64_t gate = a->alpha ? head / (a->n_heads / a->gate_groups) : 0;
    const double *B = a->B + (t * a->n_groups + group) * N;
    const double *C = a->C + (t * a->n_groups + group) * N;
    const double *alpha = a->alpha ? a->alpha + (t * a->gate_groups + gate) * N : NULL;
    double v = a->D_skip ? a->D_skip[a->D_per_channel ? c : head] * a->u[tc] : 0.0;
    for (int64_t n = 0; n < N; n++) {
        x[n] = (alpha ? alpha[n] : 1.0) * x[n] + B[n] * a->u[tc];
        v += C[n] * x[n];
    }
    return v * (a->z ? ssm__ref_silu(a->z[tc]) : 1.0);
}

ssm_status ssm__ref_gla(const ssm__ref_gla_args *args, ssm_error *err)
{
    const int64_t channels = args->n_heads * args->head_dim;
    double *state = NULL;
    SSM__TRY(ssm__ref_alloc(channels, args->d_state, &state, err));
    for (int64_t t = 0; t < args->tokens; t++) {
        for (int64_t c = 0; c < channels; c++) {
            args->y[t * channels + c] = gla_step(args, t, c, state + c * args->d_state);
        }
    }
    free(state);
    return SSM_STATUS_OK;
}

ssm_status ssm__ref_gla_gate_run(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                 ssm__ref_gla_gate *gate, ssm_error *err)
{
    const int64_t rank = layer->gate_down.dims[0], width = layer->gate_up.dims[0];
    SSM__TRY(ssm__ref_alloc(tokens, rank, &gate->low, err));
    SSM__TRY(ssm__ref_alloc(tokens, width, &gate->p, err));
    SSM__TRY(ssm__ref_alloc(tokens, width, &gate->alpha, err));
    ssm__ref_linear(&layer->gate_down, NULL, x, gate->low, tokens);
    ssm__ref_linear(&layer->gate_up, &layer->gate_bias, gate->low, gate->p, tokens);
    for (int64_t i = 0; i < tokens * width; i++) { /* logsigmoid(p) = −softplus(−p) */
        gate->alpha[i] = exp(-ssm__ref_softplus(-gate->p[i]) / layer->gate_divisor);
    }
    return SSM_STATUS_OK;
}

void ssm__ref_gla_gate_release(ssm__ref_gla_gate *gate)
{
    free(gate->low);
    free(gate->p);
    free(gate->alpha);
}
