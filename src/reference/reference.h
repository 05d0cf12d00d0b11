/* reference/reference.h: the mathematics in float64, naive, short enough to check by eye. The
 * oracle of the tests and of `verify`; never the fast path. All arrays dense row-major double.
 *
 * L tokens, D d_model, E d_inner, N d_state, R dt_rank, K d_conv, V vocab_size. */
#ifndef SSM_REFERENCE_H
#define SSM_REFERENCE_H

#include "checkpoint/weights.h"

/* y[L][rows] = x[L][cols] Wᵀ + bias; bias may be an absent tensor. */
void ssm__ref_linear(const ssm_tensor *w, const ssm_tensor *bias, const double *x, double *y,
                     int64_t tokens);
/* out = x / sqrt(mean x² + eps) · weight; weight may be an absent tensor. */
void ssm__ref_rmsnorm(const double *x, const ssm_tensor *weight, double *out, int64_t tokens,
                      int64_t width, double eps);
/* out[t][e] = SiLU(bias_e + Σ_j w[e][j] x[t−(K−1)+j][e]), zero before the first token. */
void ssm__ref_conv_silu(const double *x, const double *weight, const double *bias, double *out,
                        int64_t tokens, int64_t channels, int64_t d_conv);
double ssm__ref_softplus(double x); /* log(1 + exp x), accurate and finite for all x */
double ssm__ref_silu(double x);

/* Equations (1)-(3) of docs/instrument.md for all channels. u, delta, z: [L][E]; A: [E][N]; B, C:
 * [L][N]; D_skip: [E]; state: [E][N] in and out; y: [L][E]; z NULL: no gate.
 * modes: [L][E][N+1] the summands m_0 … m_{N−1}, f, or NULL. keep: [E][N] 0/1 or NULL; a mode with
 * 0 adds nothing to y (its summand is 0) and its state moves on all the same. D_skip NULL: no f. */
typedef struct ssm__ref_scan_args {
    int64_t tokens, channels, d_state;
    const double *u, *delta, *z, *A, *B, *C, *D_skip;
    const uint8_t *keep;
    double *state, *y, *modes;
} ssm__ref_scan_args;
void ssm__ref_scan(const ssm__ref_scan_args *args);

/* gram[e][ij] = Σ_t m_{e,t,i} m_{e,t,j} for i ≤ j < n, the upper triangle row by row, n(n+1)/2
 * numbers a channel; modes [L][E][n], so n = N+1 for the modes of ssm__ref_scan. Overwrites gram.
 */
void ssm__ref_gram(const double *modes, int64_t tokens, int64_t channels, int64_t n, double *gram);
/* log Σ exp x of count ≥ 1 numbers, with the maximum taken out. */
double ssm__ref_logsumexp(const double *x, int64_t count);

/* One mixer on its normed input x [L][D] from the zero state → out [L][D]. keep: [E][N] 0/1 or
 * NULL. y [L][E] (gated, before out_proj) and modes [L][E][N+1] may be NULL. Scratch is allocated.
 * Errors: MEMORY. */
ssm_status ssm__ref_mamba_mixer(const ssm_config *config, const ssm__layer_weights *w,
                                const uint8_t *keep, const double *x, int64_t tokens, double *out,
                                double *y, double *modes, ssm_error *err);

/* The whole model, as ssm_reference_forward; keep: [n_layers][E][N] 0/1 or NULL. logits [L][V] and
 * hidden [n_layers+1][L][D] may be NULL. Errors: USAGE (an id outside the vocabulary), MEMORY. */
ssm_status ssm__ref_forward(const ssm_config *config, const ssm__weights *weights,
                            const uint8_t *keep, const int32_t *ids, int64_t count, double *logits,
                            double *hidden, ssm_error *err);

#endif
