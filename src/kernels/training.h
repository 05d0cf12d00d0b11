/* kernels/training.h: the float32 kernels that training adds, one table per instruction set.
 *
 * The rules of kernels.h hold: nothing is validated, nothing fails, every variant computes the same
 * bits. A sum over tokens, over rows of a weight or over modes is one chain of fused multiply-adds
 * in rising order that goes on from what is in memory, so a result does not depend on how its
 * tokens are cut into calls; a sum over the 16 lanes of a group is the tree of the summation law.
 * No kernel writes outside the range it is given, so tasks are cut by rows, columns or groups and
 * no sum crosses tasks. docs/numerics.md has the orders, docs/kernels/training.md the formulas.
 *
 * "One group" is 16 channels of one sequence, [tokens][16]; the state before a sequence is zero.
 */
#ifndef SSM_KERNELS_TRAINING_H
#define SSM_KERNELS_TRAINING_H

#include "kernels/kernels.h"
#include "kernels/training_h3.h"
#include "kernels/training_ssd.h"

enum { SSM__SCAN_PIECE = 16 }; /* tokens whose states scan_backward has in memory at once */

/* One group of one sequence backwards through the gate, the selective scan and softplus:
 *   Δ = softplus(dt + dt_bias),  x_t = 2^(Δ·A2)·x_{t−1} + Δ·u·B_t,
 *   s = Σ_n C_n x_n + D·u,  y = SiLU(z)·s.
 * Outputs are written unless said "added to". Outputs overlap nothing but what is said. */
typedef struct ssm__scan_backward_args {
    int64_t tokens;       /* L ≥ 0, the whole sequence */
    int64_t d_state;      /* N ≥ 1 */
    const float *u;       /* [tokens][16] input after conv and SiLU */
    const float *dt;      /* [tokens][16] before bias and softplus */
    const float *dt_bias; /* [16] */
    const float *z;       /* [tokens][16] */
    const float *B, *C;   /* [tokens] rows of N at stride bc_stride */
    ptrdiff_t bc_stride;
    const float *A2; /* [N][16] A·log2(e), negative, as scan is given it */
    const float *D;  /* [16] */
    /* [⌈tokens/16⌉][N][16] the state before tokens 0, 16, 32, … as scan leaves it (the first is
     * zero), where the forward pass kept them; NULL: they are computed again (a third more time).
     */
    const float *starts;
    const float *dy; /* [tokens][16] gradient of y */

    float *y;       /* [tokens][16] SiLU(z)·s, for the next weight's gradient; NULL: not wanted */
    float *du;      /* [tokens][16]; may be dy */
    float *ddt;     /* [tokens][16] gradient of dt */
    float *dz;      /* [tokens][16] */
    float *dB, *dC; /* [tokens] rows of N at stride dbc_stride: this group's part, summed over
                     * its 16 channels */
    ptrdiff_t dbc_stride;
    float *dA_log;   /* [N][16] of A_log, A = −exp(A_log); added to */
    float *dD;       /* [16] added to */
    float *ddt_bias; /* [16] added to */
    float *scratch;  /* ssm__scan_backward_scratch(tokens, d_state) floats */
} ssm__scan_backward_args;

/* One group of one sequence backwards through the causal depthwise convolution (and SiLU):
 *   p_t = bias + Σ_j w[j] x[t−(K−1)+j],  out = SiLU(p). */
typedef struct ssm__conv_backward_args {
    int64_t tokens, d_conv; /* K ≥ 1 */
    const float *x;         /* [tokens][16] what the convolution was given */
    const float *weight;    /* [K][16] */
    const float *bias;      /* [16]; not looked at without SiLU */
    const float *dout;      /* [tokens][16] gradient of out */
    float *dx;              /* [tokens][16] written; may be dout */
    float *dweight;         /* [K][16] added to */
    float *dbias;           /* [16] added to */
} ssm__conv_backward_args;

/* One step of AdamW with everything that depends on the step number taken out:
 *   g ← grad_scale·grad;  w ← w·keep;  m ← beta1·m + (1−beta1)·g;  v ← beta2·v + (1−beta2)·g²;
 *   w ← w − step·m / (√v·root + eps).
 * keep = 1 − lr·decay (1 where not decayed), step = lr/(1−beta1^t), root = 1/√(1−beta2^t); taken in
 * float64 and rounded once. grad_scale is clipping's factor, 1 without. */
typedef struct ssm__adamw_args {
    float beta1, one_minus_beta1; /* the second rounded from float64, not from beta1 */
    float beta2, one_minus_beta2;
    float eps, keep, step, root, grad_scale;
} ssm__adamw_args;

/* Backwards through the softmax of one head against one block of keys, as ssm__attend_args has
 * them: p = exp(score − maximum)·inverse, ds = p·(dp − mean), 0 for keys that are not seen. */
typedef struct ssm__attend_backward_args {
    int64_t queries, keys, seen;
    float *scores;        /* [queries][64] scaled q·k; becomes p */
    float *d;             /* [queries][64] dp, the gradient of p; becomes ds */
    const float *maximum; /* [queries] the largest score */
    const float *inverse; /* [queries] 1/Σ exp(score − maximum) */
    const float *mean;    /* [queries] Σ p·dp over all keys */
} ssm__attend_backward_args;

typedef struct ssm__training_kernels {
    /* ---- products: of y = x Wᵀ + b, w F32 [rows][cols] dense ----------------------------------
     */

    /* dx(t, c) = Σ_r dy(t, r) w[r][c] for c in [col_begin, col_end), by FMA in rising r from 0, or
     * from dx(t, c) with `accumulate`. dy is [tokens] × w->rows, dx [tokens] × w->cols; col_begin
     * is a multiple of 16; dx does not overlap dy. */
    void (*linear_input_gradient)(const ssm__matrix *w, ssm__view dy, ssm__view dx, int64_t tokens,
                                  int64_t col_begin, int64_t col_end, bool accumulate);
    /* dw[r][c] += Σ_t dy(t, r) x(t, c) for r in [row_begin, row_end) and all c < cols, by FMA in
     * rising t from dw. dy is [tokens] × rows, x [tokens] × cols, dw [rows][cols] dense; row_begin
     * is a multiple of 16. */
    void (*linear_weight_gradient)(ssm__view dy, ssm__view x, int64_t tokens, int64_t cols,
                                   float *dw, int64_t row_begin, int64_t row_end);
    /* sums[c] += Σ_t x(t, c) for c in [col_begin, col_end) in rising t: a bias's gradient.
     * col_begin is a multiple of 16. */
    void (*column_sums)(ssm__view x, int64_t tokens, float *sums, int64_t col_begin,
                        int64_t col_end);
    /* out[row·out_stride + i] = Σ_p parts[p·part_stride + row·width + i] in rising p for row < rows
     * and i < width: dB and dC (width 2N) from the parts of the groups. n_parts ≥ 1. */
    void (*sum_parts)(const float *parts, int64_t n_parts, ptrdiff_t part_stride, int64_t rows,
                      int64_t width, float *out, ptrdiff_t out_stride);

    /* ---- norms over dense rows of `width`; weight NULL: ones ----------------------------------
     */

    /* Of rmsnorm: dx (+)= s·(w·dy − x·s²·mean(w·dy·x)), s = rsqrt(mean(x²) + eps) computed as
     * rmsnorm computes it and left in scales [tokens] for the weight's gradient. accumulate: added
     * to dx (the residual path), else written. dx may be dy. */
    void (*rmsnorm_input_gradient)(const float *x, const float *weight, const float *dy, float *dx,
                                   float *scales, int64_t tokens, int64_t width, float eps,
                                   bool accumulate);
    /* dweight[c] += Σ_t dy·(x·s_t) for c in [col_begin, col_end) in rising t. */
    void (*rmsnorm_weight_gradient)(const float *x, const float *dy, const float *scales,
                                    float *dweight, int64_t tokens, int64_t width,
                                    int64_t col_begin, int64_t col_end);
    /* Of layernorm, x̂ = (x − mean)·s: dx (+)= s·(w·dy − mean(w·dy) − x̂·mean(w·dy·x̂)); mean and s as
     * layernorm computes them are left in means and scales [tokens]. */
    void (*layernorm_input_gradient)(const float *x, const float *weight, const float *dy,
                                     float *dx, float *means, float *scales, int64_t tokens,
                                     int64_t width, float eps, bool accumulate);
    /* dweight[c] += Σ_t dy·x̂, dbias[c] += Σ_t dy (dbias NULL: none), as rmsnorm's. */
    void (*layernorm_weight_gradient)(const float *x, const float *dy, const float *means,
                                      const float *scales, float *dweight, float *dbias,
                                      int64_t tokens, int64_t width, int64_t col_begin,
                                      int64_t col_end);

    /* ---- one group of one sequence ------------------------------------------------------------
     */

    void (*conv_silu_backward)(const ssm__conv_backward_args *args);
    void (*conv_backward)(const ssm__conv_backward_args *args); /* without SiLU */
    void (*scan_backward)(const ssm__scan_backward_args *args);

    /* ---- elementwise on count floats ----------------------------------------------------------
     */

    /* Of out = x·SiLU(gate): dx = dout·SiLU(gate), dgate = dout·x·SiLU'(gate). dx may be dout or x,
     * dgate may be gate; either may be dout or x, but not both. */
    void (*silu_mul_backward)(const float *x, const float *gate, const float *dout, float *dx,
                              float *dgate, int64_t count);

    /* ---- attention ----------------------------------------------------------------------------
     */

    void (*attend_backward)(const ssm__attend_backward_args *args);
    /* out[row] = Σ_k a[row·a_stride + k] b[row·b_stride + k], k < width, by the summation law. */
    void (*row_products)(const float *a, ptrdiff_t a_stride, const float *b, ptrdiff_t b_stride,
                         int64_t rows, int64_t width, float *out);

    /* ---- both ends ----------------------------------------------------------------------------
     */

    /* dweight[ids[t]][0 … width) += dy[t] in rising t for ids in [id_begin, id_end); others are
     * passed over. dy dense [tokens][width], dweight [vocabulary][width]. */
    void (*embedding_gradient)(const int32_t *ids, const float *dy, float *dweight, int64_t tokens,
                               int64_t width, int64_t id_begin, int64_t id_end);
    /* Softmax cross-entropy of `rows` dense rows of `count` logits, in place:
     * logits ← scale·(softmax(logits) − onehot(label)); nll[row] = logsumexp − logit[label] in
     * float64. Where a label is negative, nll is 0 and the row becomes zeros. Returns Σ nll in
     * rising row. dlogits false: the logits are left as they are. nll may be NULL. */
    double (*cross_entropy)(float *logits, const int32_t *labels, int64_t rows, int64_t count,
                            float scale, bool dlogits, double *nll);

    /* ---- optimiser ----------------------------------------------------------------------------
     */

    void (*adamw)(const ssm__adamw_args *args, float *w, const float *grad, float *m, float *v,
                  int64_t count);
    /* Σ x² in float64: lane j sums k ≡ j (mod 16) in rising k, then the tree. NaN or infinite
     * exactly when an x is. */
    double (*squared_norm)(const float *x, int64_t count);

    ssm__ssd_kernels ssd; /* Mamba-2's block: kernels/training_ssd.h */
    ssm__h3_kernels h3;   /* kernels/training_h3.h */
} ssm__training_kernels;

/* Floats of scratch of scan_backward; tokens and d_state such that it does not overflow. */
int64_t ssm__scan_backward_scratch(int64_t tokens, int64_t d_state);

extern const ssm__training_kernels ssm__training_portable;
#if defined(__x86_64__)
extern const ssm__training_kernels ssm__training_avx2;
extern const ssm__training_kernels ssm__training_avx512;
#endif

#endif
