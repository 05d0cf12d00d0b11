/* train/mamba1.h: the mixer of Mamba-1 in training, forward and backward (docs/mamba1.md):
 *
 *   (xs, z) = in_proj h;  u = SiLU(conv1d(xs)), SiLU(xs) where d_conv is 0;  (dt, B, C) = x_proj u;
 *   Δ = softplus(dt_proj dt + b);  y = selective scan(u, Δ, A, B, C, D, z);  out = out_proj y
 *
 * Kept for backward: xs and z, what dt_proj gives, x_proj's rows, and the states before every 16th
 * token. u, Δ, the states between and y are computed again. */
#ifndef SSM_TRAIN_MAMBA1_H
#define SSM_TRAIN_MAMBA1_H

#include "train/convolution.h"
#include "train/lanes.h"
#include "train/mixer.h"

/* The branch's parameters. In time-invariant mode B and C stand in the places of X_PROJ and
 * DT_PROJ, and dt stays 0. */
enum {
    SSM__MAMBA1_IN_PROJ, /* rows of xs, then of z */
    SSM__MAMBA1_CONV,
    SSM__MAMBA1_CONV_BIAS,
    SSM__MAMBA1_X_PROJ,
    SSM__MAMBA1_DT_PROJ,
    SSM__MAMBA1_DT_BIAS,
    SSM__MAMBA1_A_LOG,
    SSM__MAMBA1_SKIP,
    SSM__MAMBA1_OUT_PROJ,
    SSM__MAMBA1_PARAMETERS
};

/* Parameters in lanes, and their gradients of a pass. */
typedef struct ssm__mamba1_weights {
    ssm__convolution conv;
    float *dt_bias, *A2, *D;
    float *ddt_bias, *dA_log, *dD;
} ssm__mamba1_weights;

typedef struct ssm__mamba1_kept {
    ssm__wide xs, z, dt;
    float *x_proj; /* [T][R + 2N] */
    float *starts; /* [sequences][groups][⌈L/16⌉][N][16] states before every 16th token */
    int64_t start_floats; /* of a group of a sequence */
} ssm__mamba1_kept;

typedef struct ssm__mamba1_scratch {
    ssm__wide u;    /* then y of forward */
    float *history; /* [sequences][groups][K − 1][16] */
    float *states;  /* [threads][N][16] */
    /* backward */
    ssm__wide dy; /* then du, then dxs */
    ssm__wide y, dz, ddt;
    float *parts;   /* [groups][T][2N] of dB, dC */
    float *dx_proj; /* [T][R + 2N] */
    float *scan;    /* [threads] of scan_backward */
    int64_t scan_floats;
} ssm__mamba1_scratch;

static inline int64_t ssm__mamba1_x_rows(const ssm_config *c)
{
    return c->dt_rank + 2 * c->d_state;
}

/* xs → u of a group. */
static inline void ssm__mamba1_convolve(const ssm__run *run, int64_t sequence, int64_t group)
{
    const ssm__mamba1_weights *w = run->weights;
    const ssm__mamba1_kept *k = run->kept;
    const ssm__mamba1_scratch *s = run->scratch;
    float *history =
        s->history + (sequence * s->u.groups + group) * ssm__convolution_history(w->conv.width);
    ssm__convolve(run, &w->conv, group, ssm__wide_group(k->xs, sequence, group),
                  ssm__wide_group(s->u, sequence, group), history);
}

/* States of a group of a sequence, in kept. */
static inline float *ssm__mamba1_starts(const ssm__mamba1_kept *k, int64_t sequence, int64_t group)
{
    return k->starts + (sequence * k->xs.groups + group) * k->start_floats;
}

void ssm__mamba1_forward(const ssm__run *run);
void ssm__mamba1_backward(const ssm__run *run);

#endif
