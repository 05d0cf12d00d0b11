/* train/trainer.h: the members of a training run, for the files that make it up. */
#ifndef SSM_TRAIN_TRAINER_H
#define SSM_TRAIN_TRAINER_H

#include "train/checkpointing.h"
#include "train/ranks.h"

typedef struct ssm__trainer {
    const ssm_recipe *recipe;
    const char *directory;
    const ssm_train_options *options;
    const ssm__kernels *kernels;
    ssm__ranks ranks;
    ssm_train_task *task;
    ssm__network *network;
    ssm__pass *pass;
    ssm__optimiser optimiser;
    ssm_train_batch *batches; /* [rounds], this rank's of a step */
    int64_t rounds;           /* accumulate / ranks */
    int64_t labels;           /* of the step under way, of all ranks */
    float *sum;               /* of the gradients of a step's batches; NULL: one batch a step */
    json_t *json;             /* the recipe as it holds */
    char *text;
    int lock;
    ssm__log *log;
    ssm__position position;
    int64_t first_step;
    double started, last_line; /* seconds */
    int64_t last_tokens;
    double loss, norm;  /* of the last step */
    double stepped;     /* when it was done */
    json_t *evaluation; /* the last one */
    int64_t written;    /* step of the last checkpoint */
    bool not_finite;
} ssm__trainer;

/* Of several processes, that which reads and writes. */
static inline bool ssm__train_writes(const ssm__trainer *t)
{
    return t->ranks.rank == 0;
}

/* Where all ranks meet behind something that one of them may have failed in. */
static inline ssm_status ssm__train_meet(ssm__trainer *t, ssm_status own, ssm_error *err)
{
    const ssm__rank_note note = {.not_finite = t->not_finite};
    ssm__rank_note all = {0};
    const ssm_status status = ssm__ranks_meet(&t->ranks, own, &note, &all, err);
    t->not_finite = all.not_finite;
    return status;
}

/* Everything in front of the first step: parts, directory, weights or state. What it has made until
 * an error, ssm__close_run frees. Errors: as ssm_train. */
ssm_status ssm__open_run(ssm__trainer *t, ssm_error *err);
void ssm__close_run(ssm__trainer *t);

#endif
