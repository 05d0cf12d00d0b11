/* train/mimetic.h: mimetic initialisation of parameters in memory: for the trainer, and for init.
 *
 * Every function works on plain float32 arrays, dense and row-major, that already have their
 * default initialisation, and changes nothing that its switch does not name. Gradients: Mamba-1's Δ
 * is softplus(dt_proj · (W_dt x) + bias); zeroing dt_proj.weight keeps the gradient of dt_proj
 * alive through W_dt x, so W_dt (the dt rows of x_proj) must not be zeroed as well. */
#ifndef SSM_TRAIN_MIMETIC_H
#define SSM_TRAIN_MIMETIC_H

#include <ssmscope/mimetic.h>

/* ln(e − 1) = softplus⁻¹(1). */
#define SSM__MIMETIC_DT_BIAS 0.54132485461291810

/* Parameters of one layer; any pointer may be NULL and is then left out. */
typedef struct ssm__mimetic_arrays {
    float *A_log;        /* Mamba-1 [E][N], Mamba-2 [H] */
    float *dt_proj;      /* Mamba-1 [E][R] */
    float *dt_proj_bias; /* Mamba-1 [E]; Mamba-2's dt_bias [H] */
    float *x_proj;       /* Mamba-1 [R + 2N][E], rows dt, B, C */
    float *in_proj;      /* Mamba-2 [2E + 2GN + H][D], rows z, x, B, C, dt */
    float *in_proj_bias; /* Mamba-2 [2E + 2GN + H]: the same rows change as of in_proj */
    float *conv1d;       /* Mamba-1 [E][K], Mamba-2 [S + 2GN][K] */
    float *conv1d_bias;  /* [E], [S + 2GN] */
    /* Linear attention and GLA in Mamba-2's block: in_proj has no rows of dt. */
    bool stepless;
    float *gate_W_2; /* GLA [JN][r] of J gates, each of H/J heads */
    float *gate_b;   /* GLA [JN] */
    int64_t n_gates, gate_rank;
} ssm__mimetic_arrays;

/* The same by what they do, so that the rows of B, C and dt need not stand in one array with
 * others. Any pointer may be NULL; W_B and W_C go together. */
typedef struct ssm__mimetic_parts {
    float *A_log;                /* Mamba-1 [E][N], Mamba-2 [H] */
    float *dt_weight;            /* Mamba-1 [E][R] (dt_proj), Mamba-2 [H][D] (rows of in_proj) */
    float *dt_weight_bias;       /* Mamba-2 [H] (of in_proj) */
    float *dt_bias;              /* Mamba-1 [E], Mamba-2 [H] */
    float *W_B, *W_C;            /* Mamba-1 [N][E], Mamba-2 [G][N][D] */
    float *b_B, *b_C;            /* Mamba-2 [G][N] (of in_proj) */
    float *conv1d, *conv1d_bias; /* as above */
    float *gate_W_2, *gate_b;    /* as above, both or none */
    int64_t n_gates, gate_rank;
} ssm__mimetic_parts;

/* USAGE: a layer or head that config does not have, c ≤ 0, noise < 0, no switch on, a layer in the
 * list without a state (kinds [n_layers], NULL: all of the family's), heads of Mamba-1, a dt limit
 * that keeps Δ from being 1. */
ssm_status ssm__mimetic_check(const ssm_mimetic *mimetic, const ssm_config *config,
                              const ssm_layer_kind *kinds, ssm_error *err);
/* "A,delta,BC,conv; BC half; c 8; layers 1 2; heads all": for metadata; cut to size bytes. */
void ssm__mimetic_describe(const ssm_mimetic *mimetic, char *out, size_t size);
/* True when the layer is in the list (a layer of attention never is). */
bool ssm__mimetic_has_layer(const ssm_mimetic *mimetic, int64_t layer, ssm_layer_kind kind);
/* Applies the switches to one layer, Mamba-1 or Mamba-2 by config; A also to gates, where any of a
 * gate's heads is named. Random numbers (ORTHOGONAL) come
 * from the stream "mimetic.layers.<layer>" of seed. Nothing happens to a layer that is not in the
 * list. Errors: MEMORY. */
ssm_status ssm__mimetic_apply(const ssm_mimetic *mimetic, const ssm_config *config, int64_t layer,
                              uint64_t seed, const ssm__mimetic_arrays *arrays, ssm_error *err);

ssm_status ssm__mimetic_apply_parts(const ssm_mimetic *mimetic, const ssm_config *config,
                                    int64_t layer, uint64_t seed, const ssm__mimetic_parts *parts,
                                    ssm_error *err);

/* ---- pieces, also for the mixers that stand in the SSD's place ------------------------------- */

/* W_B and W_C [rows][cols]; for linear attention and gated linear attention W_k and W_q of one
 * head. ORTHOGONAL: rows of W_B, and of W_C, keep the root mean square of their norms, so that
 * signals keep their size; rows are orthogonal in blocks of at most cols. Errors: MEMORY. */
ssm_status ssm__mimetic_correlate(ssm_mimetic_mode mode, double noise, ssm_rng *rng, int64_t rows,
                                  int64_t cols, float *W_B, float *W_C, ssm_error *err);
/* conv [channels][taps], bias [channels] or NULL, channels first … first + count − 1. */
void ssm__mimetic_identity(int64_t first, int64_t count, int64_t taps, float *conv, float *bias);
/* Gated linear attention, α = exp(log sigmoid(x W_1 W_2 + b)/divisor): W_2 [count] ← 0, W_1 stays
 * so that a gradient reaches W_2, b [n_bias] ← 10 (α = exp(−4.5e-5/divisor)). */
void ssm__mimetic_gate(int64_t count, float *W_2, int64_t n_bias, float *b);

#endif
