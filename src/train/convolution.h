/* train/convolution.h: the short causal convolution of a mixer, its parameters in lanes. */
#ifndef SSM_TRAIN_CONVOLUTION_H
#define SSM_TRAIN_CONVOLUTION_H

#include "train/lanes.h"
#include "train/mixer.h"

typedef struct ssm__convolution {
    int64_t width; /* K; 0: there is none */
    bool constant; /* no parameters: SiLU alone, which is one tap of 1 in front of it */
    int64_t groups;
    bool silu;              /* behind it */
    float *weight, *bias;   /* [groups][K][16], [groups][16] */
    float *dweight, *dbias; /* a pass's sums */
} ssm__convolution;

/* width 0: none at all, or SiLU alone. */
ssm__convolution ssm__convolution_take(ssm__arena *arena, int64_t groups, int64_t width, bool silu);
void ssm__convolution_clear(const ssm__convolution *c); /* the sums */

/* Between lanes and the branch's own parameters `weight` and `weight + 1`, the bias. */
void ssm__convolution_put(const ssm__convolution *c, const ssm__run *run, int64_t channels,
                          int64_t weight);
void ssm__convolution_add(const ssm__convolution *c, const ssm__run *run, int64_t channels,
                          int64_t weight);

/* Floats of its history in a group, K − 1 taps. */
static inline int64_t ssm__convolution_history(int64_t width)
{
    return width > 1 ? (width - 1) * SSM__LANES : 0;
}

/* One group of a sequence from its beginning on. history: scratch. */
void ssm__convolve(const ssm__run *run, const ssm__convolution *c, int64_t group, const float *x,
                   float *out, float *history);
/* One group of all sequences backwards: d becomes its gradient in place. The group stands at place
 * `at` in x and d. */
void ssm__convolve_back(const ssm__run *run, const ssm__convolution *c, int64_t group, ssm__wide x,
                        ssm__wide d, int64_t at);

#endif
