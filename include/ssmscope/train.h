/* ssmscope/train.h: recipes and training runs. docs/training.md lists the keys of a recipe. */
#ifndef SSMSCOPE_TRAIN_H
#define SSMSCOPE_TRAIN_H

#include <ssmscope/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- recipes --------------------------------------------------------------------------------- */

/* Everything that a run depends on: model, initialisation, data, optimiser, schedule, seed. */
typedef struct ssm_recipe ssm_recipe;

/* A JSON object. Errors: FILE (not JSON; an unknown key, with the nearest; a value out of its
 * range, which is named), MEMORY. Owner: the caller, ssm_recipe_free. */
SSM_API ssm_status ssm_recipe_read(const char *path, ssm_recipe **out, ssm_error *err);
SSM_API void ssm_recipe_free(ssm_recipe *recipe);
/* An own copy. Errors: MEMORY. */
SSM_API ssm_status ssm_recipe_copy(const ssm_recipe *recipe, ssm_recipe **out, ssm_error *err);
/* Sets one key: "optimiser.lr", or "lr" where one section alone has it; value as JSON, or a bare
 * word for a text. Errors: USAGE (unknown key, with the nearest; a value out of range), MEMORY. */
SSM_API ssm_status ssm_recipe_set(ssm_recipe *recipe, const char *key, const char *value,
                                  ssm_error *err);
/* The recipe with all defaults written out, keys in the order of the documentation; for free().
 * NULL: out of memory. */
SSM_API char *ssm_recipe_text(const ssm_recipe *recipe);
/* All keys with range, default and meaning, a line each; for free(). NULL: out of memory. */
SSM_API char *ssm_recipe_keys(void);

/* What a run of a recipe begins with. */
typedef struct ssm_recipe_start {
    ssm_config config;  /* shape of the network */
    int64_t parameters; /* numbers to be learned */
    int64_t seed;       /* of the recipe */
    bool published;     /* false: written in our own layout, which only training reads */
} ssm_recipe_start;

/* Writes the model directory that a run of the recipe begins with (config.json,
 * model.safetensors, tokenizer.json for text, recipe.json), the same bytes as training with a
 * learning rate of 0. The directory is made where there is none. Errors: USAGE (the directory
 * holds a model; contradictions), FILE (as ssm_train), FAILED, MEMORY. */
SSM_API ssm_status ssm_recipe_init(const ssm_recipe *recipe, const char *directory,
                                   ssm_recipe_start *out, ssm_error *err);

/* ---- runs ------------------------------------------------------------------------------------ */

/* One line of the log. NaN: not measured. */
typedef struct ssm_train_line {
    int64_t step, steps; /* steps done, and in all */
    double loss;         /* mean over the labels of the step, nats (or squared error) */
    double learning_rate;
    double gradient_norm;     /* before clipping */
    double tokens_per_second; /* since the last line */
    double seconds;           /* of this process */
    const char *evaluation;   /* NULL, or a JSON object: what was measured at this step */
} ssm_train_line;

/* Several processes, the ranks, that train one model together: batch i of a step is computed by
 * rank i mod size, and one recipe gives the same bytes for any number of ranks that divides
 * batch.accumulate (docs/training.md). The caller brings the connection: `ssmscope train` MPI, a
 * program of yours what it likes. All ranks call the same function at the same time, each with the
 * same number of bytes, never more than 2²² for all of them together; the functions return when the
 * data are there, or false when the connection is lost, and are called from the thread of ssm_train
 * alone. Data are sent as they lie in memory. */
enum { SSM_TRAIN_RANKS_MOST = 1024 };

typedef struct ssm_train_ranks {
    void *context;
    int rank, size; /* 0 ≤ rank < size ≤ SSM_TRAIN_RANKS_MOST */
    /* out, in: [size][bytes]; part k of out goes to rank k, part k of in came from it. */
    bool (*exchange)(void *context, const void *out, void *in, size_t bytes);
    /* Part k of all, [size][bytes], ← what rank k has in own, [bytes]. */
    bool (*gather)(void *context, const void *own, void *all, size_t bytes);
    /* data, [bytes], ← what rank `from` has there. */
    bool (*broadcast)(void *context, int from, void *data, size_t bytes);
} ssm_train_ranks;

/* All ranks meet here, each with how it fared: when one has failed, all of them return the status
 * and the error of the lowest that has. For what comes in front of ssm_train; ranks NULL: own. */
SSM_API ssm_status ssm_train_agree(const ssm_train_ranks *ranks, ssm_status own, ssm_error *err);

typedef struct ssm_train_options {
    ssm_pool *pool; /* NULL: the calling thread alone */
    ssm_isa isa;
    bool resume; /* go on from the directory's checkpoint; without one, begin */
    const ssm_progress *progress;
    void (*line)(void *context, const ssm_train_line *line); /* may be NULL */
    void *context;
    const ssm_train_ranks *ranks; /* NULL: this process alone */
} ssm_train_options;

typedef struct ssm_train_result {
    int64_t steps;      /* done in all */
    int64_t first_step; /* of this process; > 0 after resuming */
    int64_t parameters;
    int64_t tokens;   /* seen in all */
    double loss;      /* mean over the last tenth of the steps */
    double seconds;   /* of this process */
    bool not_finite;  /* the run failed because its numbers were no longer finite */
    size_t bytes;     /* parameters, optimiser, activations; of this process */
    char *evaluation; /* the last evaluation as a JSON object, or NULL (as on ranks > 0); for free()
                       */
} ssm_train_result;

/* Trains and writes a model directory (config.json, model.safetensors, tokenizer.json for text,
 * recipe.json) and, below it, training/ with state.safetensors and log.jsonl. Every file appears
 * whole or not at all; a killed run resumed gives the same bits as one that never stopped, for any
 * number of threads and ranks. Interrupted: a checkpoint is written first. Of several ranks only
 * rank 0 touches the directory and calls `line`; recipe and texts must be the same on all of them,
 * `progress` of one stops all, and all of them return the same status and error.
 * Errors: USAGE (the directory holds a model and resume is false; another recipe than the one it
 * was begun with, the differences listed), FILE (text missing or too short, ids outside the
 * vocabulary), FAILED (not finite: tensor, step and batch are named; disk full; ranks that differ
 * in recipe, texts or weights), INTERRUPTED, MEMORY. */
SSM_API ssm_status ssm_train(const ssm_recipe *recipe, const char *directory,
                             const ssm_train_options *options, ssm_train_result *out,
                             ssm_error *err);

#ifdef __cplusplus
}
#endif
#endif
