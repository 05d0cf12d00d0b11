/* reference/reference.h: the mathematics in float64, naive, short enough to check by eye. The
 * oracle of the tests and of `verify`; never the fast path. All arrays dense row-major double.
 *
 * L tokens, D d_model, E d_inner, N d_state, R dt_rank, K d_conv, V vocab_size; Mamba-2: H n_heads,
 * P head_dim, S d_ssm = HP, G n_groups. */
#ifndef SSM_REFERENCE_H
#define SSM_REFERENCE_H

#include "checkpoint/weights.h"

/* y[L][rows] = x[L][cols] Wᵀ + bias; bias may be an absent tensor. */
void ssm__ref_linear(const ssm_tensor *w, const ssm_tensor *bias, const double *x, double *y,
                     int64_t tokens);
/* to[t][k] = from[t][begin + k] for k < width; rows of `from` have `stride` numbers. */
void ssm__ref_columns(const double *from, int64_t tokens, int64_t stride, int64_t begin,
                      int64_t width, double *to);
/* The way back: to[t][begin + k] = from[t][k]; rows of `to` have `stride` numbers. */
void ssm__ref_put_columns(const double *from, int64_t tokens, int64_t width, double *to,
                          int64_t stride, int64_t begin);
/* to[t][k] = row[k], k < width, for every token; an absent tensor is 0. */
void ssm__ref_repeat(const ssm_tensor *row, int64_t tokens, int64_t width, double *to);
/* Its gradient: sum[k] += Σ_t from[t][k]; sum may be NULL. */
void ssm__ref_sum_tokens(const double *from, int64_t tokens, int64_t width, double *sum);
/* out = x / sqrt(mean x² + eps) · weight; weight may be an absent tensor, out may be
 * x. */
void ssm__ref_rmsnorm(const double *x, const ssm_tensor *weight, double *out, int64_t tokens,
                      int64_t width, double eps);
/* out = (x − mean x) / sqrt(variance x + eps) · weight + bias; bias may be an absent tensor. */
void ssm__ref_layernorm(const double *x, const ssm_tensor *weight, const ssm_tensor *bias,
                        double *out, int64_t tokens, int64_t width, double eps);
/* The norm of the residual stream, either of the two as the model has it; an absent weight: none.
 */
void ssm__ref_block_norm(const ssm_config *config, const ssm_tensor *weight, const ssm_tensor *bias,
                         const double *x, double *out, int64_t tokens);
/* Mamba-2, from the pre-norm output v [L][S] to out_proj's input y [L][S]: RMSNorm over each of
 * norm_groups groups of channels, times weight [S], times SiLU(z) when norm_before_gate (else v has
 * the gate already); without gated_norm y is v. */
void ssm__ref_gated_norm(const ssm_config *config, const ssm_tensor *weight, const double *v,
                         const double *z, double *y, int64_t tokens);
/* out[t][e] = bias_e + Σ_j w[e][j] x[t−(K−1)+j][e], zero before the first token; and SiLU of it.
 * weight NULL: out = x + bias. */
void ssm__ref_conv(const double *x, const double *weight, const double *bias, double *out,
                   int64_t tokens, int64_t channels, int64_t d_conv);
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

/* Mamba-2's recurrence (Dao & Gu, 2024), one decay a head. A mode is (channel c = head·P + p, n):
 *   x_{c,n} ← exp(Δ_k A_k) x_{c,n} + Δ_k B_{g,n} u_c,  m_{c,n} = gate C_{g,n} x_{c,n},
 *   f_c = gate D u_c,  y_c = Σ_n m_{c,n} + f_c;  k the head of c, g = k / (H/G) its group.
 * u, z: [L][S]; delta: [L][H]; A: [H]; B, C: [L][G][N]; D_skip: [H], or [S] when D_per_channel, or
 * NULL; gate = SiLU(z), 1 for z NULL; keep, modes, state as in ssm__ref_scan, with S channels. */
typedef struct ssm__ref_scan2_args {
    int64_t tokens, n_heads, head_dim, n_groups, d_state;
    const double *u, *delta, *z, *A, *B, *C, *D_skip;
    bool D_per_channel;
    const uint8_t *keep;
    double *state, *y, *modes;
} ssm__ref_scan2_args;
void ssm__ref_scan2(const ssm__ref_scan2_args *args);

/* In place: coordinates of every head [heads][head_dim] of token t turned by the angles
 * (position + t)·base^(−2i/rotary_dim) in the pairs of rotary_interleaved (Su et al., 2021). */
void ssm__ref_rotary(const ssm_config *config, double *x, int64_t tokens, int64_t heads,
                     int64_t position);

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

/* One Mamba-2 mixer likewise. keep: [S][N] 0/1 or NULL. v [L][S]: the output before the norm as the
 * instrument takes it apart, with the gate unless norm_before_gate; modes [L][S][N+1] its summands
 * m_0 … m_{N−1}, f; both may be NULL. Errors: MEMORY. */
ssm_status ssm__ref_mamba2_mixer(const ssm_config *config, const ssm__layer_weights *w,
                                 const uint8_t *keep, const double *x, int64_t tokens, double *out,
                                 double *v, double *modes, ssm_error *err);

/* Causal self-attention of a whole text x [L][D] → out [L][D]. Errors: MEMORY. */
ssm_status ssm__ref_attention(const ssm_config *config, const ssm__layer_weights *w,
                              const double *x, int64_t tokens, double *out, ssm_error *err);

/* Gated MLP: (y, gate) = fc1 x; out = fc2 (y · SiLU(gate)). x, out [L][D]. Errors: MEMORY. */
ssm_status ssm__ref_mlp(const ssm_config *config, const ssm__layer_weights *w, const double *x,
                        int64_t tokens, double *out, ssm_error *err);

/* The whole model, as ssm_reference_forward; keep: [n_layers][E][N] (Mamba-2: [n_layers][S][N]) 0/1
 * or NULL; what stands there for a layer of attention is not looked at. logits [L][V] and
 * hidden [n_layers+1][L][D] may be NULL. Errors: USAGE (an id outside the vocabulary), MEMORY. */
ssm_status ssm__ref_forward(const ssm_config *config, const ssm__weights *weights,
                            const uint8_t *keep, const int32_t *ids, int64_t count, double *logits,
                            double *hidden, ssm_error *err);

#endif
