/* kernels/training_h3.h: the recurrence of H3, which training alone has; the rules of
 * kernels/training.h hold.
 *
 * Of a head every pair (i, j) of channels is a channel of a diagonal recurrence whose constants are
 * the head's:
 *   x_t[n] = a[n] x_{t−1}[n] + k_{t,i} v_{t,j},  s_{t,ij} = Σ_n c[n] x_t[n] + D k_{t,i} v_{t,j},
 *   o_{t,j} = Σ_i q_{t,i} s_{t,ij}.
 * Sixteen lanes hold 16/W heads of W channels, or a part of one head (W = 16). A kernel takes
 * every channel j of its lanes with the W channels i of the same head in another group of lanes,
 * or the same group. docs/kernels/training.md has the order of the sums. */
#ifndef SSM_KERNELS_TRAINING_H3_H
#define SSM_KERNELS_TRAINING_H3_H

#include "kernels/kernels.h"

typedef struct ssm__h3_args {
    int64_t tokens;            /* L ≥ 0, the whole sequence; the state before it is zero */
    int64_t d_state;           /* N ≥ 1 */
    int64_t width;             /* W: 1, 2, 4, 8 or 16 */
    const float *q, *k;        /* [tokens][16] of channels i */
    const float *v;            /* [tokens][16] of channels j */
    const float *decay, *read; /* [N][16] a and c of the lane's head */
    const float *D;            /* [16] */
    float *scratch;            /* ssm__h3_scratch or ssm__h3_backward_scratch floats */
} ssm__h3_args;

/* All outputs are added to and overlap nothing. */
typedef struct ssm__h3_backward_args {
    ssm__h3_args forward;
    const float *dout;     /* [tokens][16] gradient of o, of channels j */
    float *dq, *dk;        /* [tokens][16] of channels i */
    float *dv;             /* [tokens][16] of channels j */
    float *ddecay, *dread; /* [N][16] of a and c: of the pairs of channel j of the lane */
    float *dD;             /* [16] likewise */
} ssm__h3_backward_args;

typedef struct ssm__h3_kernels {
    void (*forward)(const ssm__h3_args *args,
                    float *o); /* o [tokens][16] of channels j, added to */
    void (*backward)(const ssm__h3_backward_args *args);
} ssm__h3_kernels;

int64_t ssm__h3_scratch(int64_t d_state);
int64_t ssm__h3_backward_scratch(int64_t tokens, int64_t d_state);

#endif
