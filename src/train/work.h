/* train/work.h: what mixers share: a branch's parameters, its tokens, channels and products cut
 * into tasks of like cost.
 *
 * The pool gives every thread a contiguous share of the tasks, so the blocks of the products of one
 * run are interleaved: any share has its part of each. */
#ifndef SSM_TRAIN_WORK_H
#define SSM_TRAIN_WORK_H

#include "kernels/training.h"
#include "train/lanes.h"
#include "train/mixer.h"

enum {
    SSM__WORK_TOKENS = 64, /* of a task over tokens */
    SSM__WORK_ROWS = 48,   /* of a task over rows of a weight */
    SSM__WORK_GROUPS = SSM__WORK_ROWS / SSM__LANES,
    SSM__WORK_PRODUCTS = 6 /* most in one run */
};

static inline int64_t ssm__least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t ssm__divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Parameter `which` of the branch's own: values, gradients, and the values as a matrix. */
const float *ssm__own_value(const ssm__run *run, int64_t which);
float *ssm__own_gradient(const ssm__run *run, int64_t which);
ssm__matrix ssm__own_matrix(const ssm__run *run, int64_t which);
/* Part `part` of `parts` equal ones of its rows. */
ssm__matrix ssm__own_part(const ssm__run *run, int64_t which, int64_t part, int64_t parts);

/* Tasks over all tokens of a run, SSM__WORK_TOKENS each, whatever their sequence. */
static inline int64_t ssm__token_tasks(const ssm__run *run)
{
    return ssm__divide_up(run->sequences * run->length, SSM__WORK_TOKENS);
}

/* Tasks over tiles of at most `most` tokens of a sequence… */
static inline int64_t ssm__tile_tasks(const ssm__run *run, int64_t most)
{
    return run->sequences * ssm__divide_up(run->length, most);
}

/* …and the tile of a task: [*first, *first + result) of a sequence. */
static inline int64_t ssm__tile_of(const ssm__run *run, int64_t task, int64_t most,
                                   int64_t *sequence, int64_t *first)
{
    const int64_t tiles = ssm__divide_up(run->length, most);
    *sequence = task / tiles;
    *first = task % tiles * most;
    return ssm__least(most, run->length - *first);
}

/* out = in·wᵀ for the tokens of a task, rows of w a few at a time, so that they stay in the cache
 * over the tokens. */
void ssm__project_rows(const ssm__run *run, const ssm__matrix *w, ssm__view in, ssm__view out,
                       int64_t tokens);

/* Tasks over blocks of a few of `groups` channel groups of a sequence… */
static inline int64_t ssm__group_tasks(const ssm__run *run, int64_t groups)
{
    return run->sequences * ssm__divide_up(groups, SSM__WORK_GROUPS);
}

/* …and the block of a task: groups [*first, *end) of the sequence that is returned. */
static inline int64_t ssm__groups_of(int64_t task, int64_t groups, int64_t *first, int64_t *end)
{
    const int64_t blocks = ssm__divide_up(groups, SSM__WORK_GROUPS);
    *first = task % blocks * SSM__WORK_GROUPS;
    *end = ssm__least(*first + SSM__WORK_GROUPS, groups);
    return task / blocks;
}

/* out = in·wᵀ for all tokens of a sequence, those rows of w that are lanes of groups [first, end).
 * in: the rows of all sequences, `stride` floats each. */
void ssm__project_groups(const ssm__run *run, const ssm__matrix *w, const float *in, int64_t stride,
                         ssm__wide out, int64_t sequence, int64_t first, int64_t end);
/* d = dout·w for all tokens of a sequence, those columns of w that are lanes of groups [first,
 * end).
 */
void ssm__project_groups_back(const ssm__run *run, const ssm__matrix *w, ssm__wide d,
                              int64_t sequence, int64_t first, int64_t end);
/* din = d·w for a tile of tokens of a sequence; add: din += d·w. */
void ssm__project_back(const ssm__run *run, const ssm__matrix *w, ssm__wide d, int64_t sequence,
                       int64_t token, int64_t tokens, bool add);

/* One side of a product: wide, or dense rows of `stride` floats. */
typedef struct ssm__side {
    ssm__wide wide;    /* data NULL: dense */
    const float *rows; /* [sequences·length] */
    int64_t stride;
} ssm__side;

/* A sequence of it from token `token` on. */
ssm__view ssm__side_view(const ssm__side *side, int64_t length, int64_t sequence, int64_t token);

/* dw [rows][cols] += Σ over sequences and tokens of dy xᵀ. */
typedef struct ssm__weight_product {
    ssm__side dy, x;
    int64_t rows, cols;
    float *dw;
} ssm__weight_product;

void ssm__weight_products(const ssm__run *run, const ssm__weight_product *list, int count);

#endif
