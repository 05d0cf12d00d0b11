/* train/work.h: products of a branch, cut into tasks of like cost.
 *
 * The pool gives every thread a contiguous share of the tasks, so the blocks of the products of one
 * run are interleaved: any share has its part of each. */
#ifndef SSM_TRAIN_WORK_H
#define SSM_TRAIN_WORK_H

#include "train/lanes.h"
#include "train/mixer.h"

enum {
    SSM__WORK_TOKENS = 64, /* of a task over tokens */
    SSM__WORK_ROWS = 48,   /* of a task over rows of a weight */
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
