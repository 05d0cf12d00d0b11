/* train/attention.h: causal self-attention in training, forward and backward (docs/hybrid.md):
 *
 *   (q, k, v) = conv1d(in_proj h), the convolution without activation, or absent;
 *   rotary on the leading coordinates of q and k;
 *   o_h = softmax(scale q_h·k_g) v_g over the tokens so far, g = h / (Hq/Hkv);  out = out_proj o
 *
 * Scores exist for 64 queries × 64 keys at a time, forwards and, computed again, backwards. Kept
 * are q (scaled), k, v, o, and of every query the largest score and 1/Σ exp(score − largest). A
 * head's q, k, v are dense rows of its own. The heads that share keys are one task backwards: it
 * sums dk and dv in rising head and query. */
#ifndef SSM_TRAIN_ATTENTION_H
#define SSM_TRAIN_ATTENTION_H

#include "train/convolution.h"
#include "train/lanes.h"
#include "train/mixer.h"
#include "train/work.h"

/* The branch's parameters; the last two or none. */
enum {
    SSM__ATTENTION_IN_PROJ,
    SSM__ATTENTION_OUT_PROJ,
    SSM__ATTENTION_CONV,
    SSM__ATTENTION_CONV_BIAS
};

typedef struct ssm__attention_weights {
    ssm__convolution conv;
    double *turns; /* [rotary_dim/2] angle of a token */
} ssm__attention_weights;

typedef struct ssm__attention_kept {
    ssm__wide in;             /* before the convolution, where there is one */
    float *q, *k, *v;         /* [sequences][heads][L][dh] */
    float *o;                 /* [T][Hq·dh] */
    float *maximum, *inverse; /* [sequences][Hq][L] */
} ssm__attention_kept;

typedef struct ssm__attention_scratch {
    ssm__wide qkv;  /* what the heads are cut from; backward: its gradient */
    float *threads; /* [threads] of thread_floats */
    int64_t thread_floats;
    /* backward */
    float *dq, *dk, *dv; /* like q, k, v */
    float *dout;         /* [T][Hq·dh] */
} ssm__attention_scratch;

static inline int64_t ssm__attention_query_width(const ssm_config *c)
{
    return c->n_query_heads * c->attention_head_dim;
}

static inline int64_t ssm__attention_rows(const ssm_config *c)
{
    return (c->n_query_heads + 2 * c->n_kv_heads) * c->attention_head_dim;
}

static inline float *ssm__attention_memory(const ssm__run *run, int thread)
{
    const ssm__attention_scratch *s = run->scratch;
    return s->threads + thread * s->thread_floats;
}

/* Row t of head h of `heads` in an array like q. */
static inline float *ssm__head_row(const ssm__run *run, float *array, int64_t heads,
                                   int64_t sequence, int64_t h, int64_t t)
{
    const int64_t dh = run->config->shape.attention_head_dim;
    return array + (((sequence * heads + h) * run->length) + t) * dh;
}

/* Tasks over tiles of 64 tokens: scratch.qkv → q, k, v, turned, and the way back of gradients. */
void ssm__attention_cut_heads(void *context, int64_t task, int thread);
void ssm__attention_join_heads(void *context, int64_t task, int thread);

/* A block of queries of a head of a sequence. */
typedef struct ssm__queries {
    int64_t sequence, head, kv_head;
    int64_t first, count;
    const float *q;
    float *maximum, *inverse; /* of its queries */
    int64_t row;              /* of its first query in rows of [T][Hq·dh], in floats */
} ssm__queries;

ssm__queries ssm__queries_of(const ssm__run *run, int64_t sequence, int64_t head, int64_t first);

/* Keys of a block of keys that the first query sees, counted from the block's first. */
static inline int64_t ssm__queries_seen(const ssm__queries *b, int64_t first_key)
{
    return first_key < b->first ? SSM__TILE : 1;
}

/* scores ← x·rows of 64 keys (or values) from `first_key` on, `keys` of them. */
void ssm__queries_score(const ssm__run *run, const ssm__queries *b, float *rows, const float *x,
                        int64_t x_stride, int64_t first_key, int64_t keys, float *scores);

void ssm__attention_forward(const ssm__run *run);
void ssm__attention_backward(const ssm__run *run);

#endif
