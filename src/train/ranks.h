/* train/ranks.h: what the processes of one run tell each other.
 *
 * A step has `accumulate` batches. Number i is computed by rank i mod size, so that the ranks are
 * busy together, a round of `size` batches at a time. Its gradient is ((g_0 + g_1) + g_2) + … as in
 * one process: behind every round each rank gets its share of the floats from all of them and adds
 * them in rank order, which is the order of the batches, to the sum of the rounds before; behind
 * the last round the shares are gathered. So the bits do not depend on the number of ranks.
 *
 * A process alone takes the same way: every function here then does what is left to do. */
#ifndef SSM_TRAIN_RANKS_H
#define SSM_TRAIN_RANKS_H

#include <ssmscope/train.h>

#include "kernels/kernels.h"

typedef struct ssm__ranks {
    const ssm_train_ranks *table; /* NULL: this process alone */
    int rank, size;
    float *out, *in; /* a piece of the gradients, on its way; NULL: alone */
    bool lost;       /* nothing is said any more */
} ssm__ranks;

/* table: borrowed, may be NULL. Errors: USAGE (no such number of ranks), MEMORY. */
ssm_status ssm__ranks_open(const ssm_train_ranks *table, ssm__ranks *out, ssm_error *err);
void ssm__ranks_close(ssm__ranks *ranks);

/* What a rank has to say at a place where all of them meet. */
typedef struct ssm__rank_note {
    bool stop, not_finite; /* of one is of all */
    int64_t count;         /* summed */
    double sum;            /* added in rank order */
} ssm__rank_note;

/* All ranks meet here. `own`: how this one fared until now, with `err`. When one has failed, all of
 * them return the status and the error of the lowest that has. `all`: the notes of this meeting are
 * added to what stands there; NULL, as `note`: nothing to say. Errors: those of a rank; FAILED (the
 * connection is lost). */
ssm_status ssm__ranks_meet(ssm__ranks *ranks, ssm_status own, const ssm__rank_note *note,
                           ssm__rank_note *all, ssm_error *err);

/* Rank 0's data become everybody's. Errors: FAILED. */
ssm_status ssm__ranks_copy(ssm__ranks *ranks, void *data, size_t bytes, ssm_error *err);
/* That a digest is the same everywhere; `what` it is of: "the recipe". Errors: FAILED (of whom it
 * is another). */
ssm_status ssm__ranks_alike(ssm__ranks *ranks, const char *what, const char digest[64],
                            ssm_error *err);

/* The end of a round: this rank's share of `sum` ← (first) or += the gradients of all ranks, in
 * rank order. floats: a multiple of 16. Errors: FAILED. */
ssm_status ssm__ranks_add(ssm__ranks *ranks, const ssm__kernels *kernels, const float *gradients,
                          bool first, float *sum, int64_t floats, ssm_error *err);
/* The end of a step: all shares of the sum to all ranks. Errors: FAILED. */
ssm_status ssm__ranks_gather(ssm__ranks *ranks, float *sum, int64_t floats, ssm_error *err);

#endif
