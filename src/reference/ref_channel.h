/* reference/ref_channel.h: one channel of any recurrence that the mixers have, and its gradients.
 *
 *   x_t[n] = a_t[n] x_{t−1}[n] + b_t[n] u_t,  x_{−1} = 0
 *   v_t = Σ_n c_t[n] x_t[n] + D u_t,  y_t = SiLU(z_t) v_t, or v_t where there is no gate
 *
 * A mixer says what a, b, c are and applies the chain rule to their gradients. */
#ifndef SSM_REFERENCE_CHANNEL_H
#define SSM_REFERENCE_CHANNEL_H

#include "reference/ref_alloc.h"

typedef struct ssm__ref_channel {
    int64_t tokens, d_state;
    double *a, *b, *c;    /* [L][N] */
    double *u, *z;        /* [L] */
    bool gated;           /* false: z is not looked at */
    double D;             /* 0: none */
    double *x;            /* [L][N] states, by forward */
    double *v, *y;        /* [L], by forward */
    double *dy;           /* [L], given to backward */
    double *lambda;       /* [L][N] derivative by the states, by backward */
    double *da, *db, *dc; /* [L][N], by backward */
    double *du, *dz;      /* [L], by backward */
    double dD;            /* by backward */
} ssm__ref_channel;

/* Takes the arrays; their status tells of failure. */
ssm__ref_channel ssm__ref_channel_create(ssm__ref_arrays *arrays, int64_t tokens, int64_t d_state);
void ssm__ref_channel_forward(ssm__ref_channel *channel);
void ssm__ref_channel_backward(ssm__ref_channel *channel);

#endif
