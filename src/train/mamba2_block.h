/* train/mamba2_block.h: Mamba-2's block in training, for the mixers that differ in the recurrence
 * alone (docs/mamba2.md, docs/training.md).
 *
 * in_proj's rows stand in groups of 16 lanes: z and x head by head, B and C group by group, then
 * dt; a head, and the modes of a group of B or C, begin a new group of 16 and what is beyond them
 * is zero. Where that differs from the checkpoint's rows (head_dim or d_state no multiple of 16),
 * the projections are copied into that form and their gradients back. So N is a multiple of 16
 * here. */
#ifndef SSM_TRAIN_MAMBA2_BLOCK_H
#define SSM_TRAIN_MAMBA2_BLOCK_H

#include "kernels/training.h"
#include "train/convolution.h"
#include "train/lanes.h"
#include "train/mixer.h"
#include "train/work.h"

typedef enum ssm__block_parameter {
    SSM__BLOCK_IN_PROJ,
    SSM__BLOCK_CONV,
    SSM__BLOCK_CONV_BIAS,
    SSM__BLOCK_DT_BIAS,
    SSM__BLOCK_A_LOG,
    SSM__BLOCK_SKIP,
    SSM__BLOCK_NORM,
    SSM__BLOCK_OUT_PROJ,
    SSM__BLOCK_B, /* time-invariant mode: B and C of every token */
    SSM__BLOCK_C,
    SSM__BLOCK_GATE_DOWN, /* GLA: W1 [r, D], W2 [JN, r], b [JN] */
    SSM__BLOCK_GATE_UP,
    SSM__BLOCK_GATE_BIAS,
    SSM__BLOCK_PARAMETERS
} ssm__block_parameter;

/* Sizes, and where things stand. Groups are of 16 lanes unless they are called bc_groups. */
typedef struct ssm__block_sizes {
    ssm__mixer_kind kind;
    int64_t H, P, N, bc_groups;
    int64_t keys;                     /* sets of B and C that heads see: bc_groups; GLA: gates J */
    int64_t gate_rank;                /* GLA: r; else 0 */
    int64_t d_model, d_conv;          /* d_conv 0: SiLU alone */
    int64_t head_groups, mode_groups; /* of a head's channels; of the modes of one B or C */
    int64_t padded_N;                 /* 16·mode_groups */
    int64_t x_group, bc_group, dt_group, groups; /* first groups of the parts; all */
    int64_t conv_groups;                         /* x, B, C */
    int64_t rows;      /* of the in_proj that is used; the last group may have fewer than 16 */
    int64_t channels;  /* columns of the out_proj that is used, H·head_groups·16 */
    bool padded;       /* they are copies */
    int64_t norms;     /* groups of the gated norm */
    bool has_steps;    /* there are Δ and A; else Δ = 1 and nothing decays */
    bool fixed;        /* time-invariant: B, C and dt are no rows of in_proj, their lanes of
                        * kept.in stay zero, and B and C are constants in their place */
    int64_t convolved; /* groups that go through the convolution, the first of conv_groups */
    int64_t index[SSM__BLOCK_PARAMETERS]; /* among the branch's parameters; −1: absent */
} ssm__block_sizes;

ssm__block_sizes ssm__block_of(const ssm__network_config *config, ssm__mixer_kind kind);
bool ssm__block_accepts(const ssm__network_config *config, ssm__mixer_kind kind, char *why,
                        size_t size);
void ssm__block_declare(ssm__declaration *list, const ssm__network_config *config, int64_t layer,
                        ssm__mixer_kind kind);

/* Parameters in lanes, and their gradients of a pass. */
typedef struct ssm__block_weights {
    float *in_proj, *out_proj; /* copies in the form above; NULL: the parameters themselves */
    float *din_proj, *dout_proj;
    ssm__convolution conv; /* of conv_groups */
    float *dt_bias;        /* [⌈H/16⌉][16] */
    float *A2;             /* [H] */
    float *D, *norm;       /* [H·head_groups][16] */
    float *fixed;          /* [2·bc_groups·mode_groups][16] B, then C */
    float *ddt_bias, *dD, *dnorm, *dfixed;
    double *dA; /* [H] */
} ssm__block_weights;

typedef struct ssm__block_kept {
    ssm__wide in;  /* [groups] in_proj's output */
    ssm__wide v;   /* [H·head_groups] the recurrence's output */
    float *states; /* [sequences][chunks][H][head_groups][N][16] before every chunk */
    float *low;    /* GLA: [T][r] */
    float *p;      /* GLA: [T][J][N] of the gates */
} ssm__block_kept;

typedef struct ssm__block_scratch {
    ssm__wide u;     /* [conv_groups] behind the convolution */
    float *bc;       /* [sequences][bc_groups][2][L][N] B, C in rows */
    float *seen;     /* [sequences][keys][2][L][N] what heads see: bc, or GLA's scaled ones */
    float *products; /* [sequences][chunks][keys][64][64] C·B */
    float *delta;    /* [sequences][H][64·chunks] */
    float *threads;  /* [threads] of thread_floats */
    int64_t thread_floats;
    /* backward */
    ssm__wide d; /* [groups] gradient of kept.in */
    ssm__wide y, dv;
    float *factors, *totals; /* GLA: [sequences][J][L][N] of kernels/body_gate.h */
    int32_t *counts;         /* GLA: [sequences][J][L] */
    float *dp, *dlow;        /* GLA: like p and low */
    float *dstates;          /* like states: of the state behind every chunk */
    float *ddelta, *rates;   /* like delta */
} ssm__block_scratch;

void *ssm__block_take_weights(ssm__arena *arena, const ssm__network_config *config,
                              ssm__mixer_kind kind);
void *ssm__block_take_kept(ssm__arena *arena, const ssm__network_config *config, int64_t length,
                           int64_t sequences, ssm__mixer_kind kind);
void *ssm__block_take_scratch(ssm__arena *arena, const ssm__network_config *config, int64_t length,
                              int64_t sequences, int threads, bool backward, ssm__mixer_kind kind);

void ssm__block_prepare(const ssm__run *run);
void ssm__block_forward(const ssm__run *run);
void ssm__block_backward(const ssm__run *run);
void ssm__block_finish(const ssm__run *run);

/* ---- for the files of the block -------------------------------------------------------------- */

/* A run with its sizes, what the tasks are given. */
typedef struct ssm__block_run {
    const ssm__run *run;
    ssm__block_sizes b;
    const ssm__block_weights *w;
    const ssm__block_kept *k;
    const ssm__block_scratch *s;
    int64_t chunks;
} ssm__block_run;

static inline int64_t ssm__block_chunks(int64_t length)
{
    return ssm__divide_up(length, SSM__TILE);
}

/* [head_groups][N][16] of a head in an array of states. */
static inline float *ssm__block_state(const ssm__block_run *r, float *states, int64_t sequence,
                                      int64_t chunk, int64_t head)
{
    return states + ((sequence * r->chunks + chunk) * r->b.H + head) * r->b.head_groups *
                        r->b.padded_N * SSM__LANES;
}

/* [2][L][N] of a group of B and C. */
static inline float *ssm__block_bc(const ssm__block_run *r, int64_t sequence, int64_t group)
{
    return r->s->bc + (sequence * r->b.bc_groups + group) * 2 * r->run->length * r->b.padded_N;
}

/* [2][L][N] that the heads of a key see. */
static inline float *ssm__block_seen(const ssm__block_run *r, int64_t sequence, int64_t key)
{
    return r->s->seen + (sequence * r->b.keys + key) * 2 * r->run->length * r->b.padded_N;
}

static inline int64_t ssm__block_key(const ssm__block_sizes *b, int64_t head)
{
    return head / (b->H / b->keys);
}

static inline float *ssm__block_products(const ssm__block_run *r, int64_t sequence, int64_t chunk,
                                         int64_t key)
{
    return r->s->products +
           ((sequence * r->chunks + chunk) * r->b.keys + key) * SSM__TILE * SSM__TILE;
}

/* Of a head, in arrays like delta. */
static inline float *ssm__block_steps(const ssm__block_run *r, float *steps, int64_t sequence,
                                      int64_t head)
{
    return steps + (sequence * r->b.H + head) * r->chunks * SSM__TILE;
}

ssm__block_run ssm__block_run_of(const ssm__run *run);
ssm__matrix ssm__block_in_matrix(const ssm__block_run *r);
ssm__matrix ssm__block_out_matrix(const ssm__block_run *r);
const float *ssm__block_value(const ssm__block_run *r, ssm__block_parameter which);
/* A parameter's gradients in the form that is used. */
float *ssm__block_gradient(const ssm__block_run *r, ssm__block_parameter which);
/* Groups [first, end) of kept.in behind the projection: convolution, rows of B and C, Δ. */
void ssm__block_inputs(const ssm__block_run *r, int64_t sequence, int64_t first, int64_t end,
                       int thread);
/* Δ = 1 where there are no steps. */
void ssm__block_unit_steps(const ssm__block_run *r);
/* C·B of a task (sequence, chunk, group of B and C). */
void ssm__block_multiply(void *context, int64_t task, int thread);
/* Arguments of the gated norm for a tile of tokens: the forward part. y in a tile of its own. */
ssm__gated_norm_args ssm__block_norm(const ssm__block_run *r, int64_t sequence, int64_t token,
                                     int64_t tokens, int64_t norm);

/* ---- of the backward pass (train/mamba2_backward.c), for tokens of one chunk ------------------
 */

ssm__ssd_chunk ssm__block_chunk(const ssm__block_run *r, int64_t sequence, int64_t token,
                                int64_t tokens, int64_t head);
/* All arguments but the states, the memory for sums and the scratch. */
ssm__ssd_backward_args ssm__block_chunk_args(const ssm__block_run *r, int64_t sequence,
                                             int64_t token, int64_t tokens, int64_t head);
/* What the products C·B give to B and C, rows of N. */
void ssm__block_back_products(const ssm__block_run *r, const ssm__ssd_chunk *chunk,
                              float *dproducts, float *dB, float *dC);

/* ---- gated linear attention (train/mamba2_gla.c) ----------------------------------------------
 */

/* Floats of a thread that its tasks need. */
int64_t ssm__gla_floats(const ssm__block_sizes *b);
/* Task: a tile of tokens of a sequence. The gates, and what heads see; again: that only. */
void ssm__gla_gates(void *context, int64_t task, int thread);
void ssm__gla_gates_again(void *context, int64_t task, int thread);
/* Tokens of every piece, from that of its first token on. */
int32_t *ssm__gla_counts(const ssm__block_run *r, int64_t sequence, int64_t key, int64_t token);
/* A piece: the state before it → that which the chunked form is run from. */
void ssm__gla_enter(const ssm__block_run *r, int64_t sequence, int64_t key, int64_t token,
                    const float *state, float *scaled);
/* The gradient of the state behind a chunk becomes that of the state before it. */
void ssm__gla_state_backward(const ssm__block_run *r, int64_t sequence, int64_t head, int64_t token,
                             int64_t tokens, float *dstate);
/* A chunk of all heads that share B and C: du, dp, and dB and dC [2][64][N] into rows; at: scratch.
 */
void ssm__gla_back_chunk(const ssm__block_run *r, int64_t sequence, int64_t token, int64_t tokens,
                         int64_t group, float *rows, float *at);
/* Gradients of the gate's parameters; dlow. */
void ssm__gla_gradients(const ssm__block_run *r);
/* din += what comes through the gate, for a tile of tokens. */
void ssm__gla_back_in(const ssm__block_run *r, int64_t sequence, int64_t token, int64_t tokens);

#endif
