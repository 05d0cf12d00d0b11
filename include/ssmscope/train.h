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

typedef struct ssm_train_options {
    ssm_pool *pool; /* NULL: the calling thread alone */
    ssm_isa isa;
    bool resume; /* go on from the directory's checkpoint; without one, begin */
    const ssm_progress *progress;
    void (*line)(void *context, const ssm_train_line *line); /* may be NULL */
    void *context;
} ssm_train_options;

typedef struct ssm_train_result {
    int64_t steps;      /* done in all */
    int64_t first_step; /* of this process; > 0 after resuming */
    int64_t parameters;
    int64_t tokens;   /* seen in all */
    double loss;      /* mean over the last tenth of the steps */
    double seconds;   /* of this process */
    bool not_finite;  /* the run failed because its numbers were no longer finite */
    size_t bytes;     /* parameters, optimiser, activations */
    char *evaluation; /* the last evaluation as a JSON object, or NULL; for free() */
} ssm_train_result;

/* Trains and writes a model directory (config.json, model.safetensors, tokenizer.json for text,
 * recipe.json) and, below it, training/ with state.safetensors and log.jsonl. Every file appears
 * whole or not at all; a killed run resumed gives the same bits as one that never stopped, for any
 * number of threads. Interrupted: a checkpoint is written first.
 * Errors: USAGE (the directory holds a model and resume is false; another recipe than the one it
 * was begun with, the differences listed), FILE (text missing or too short, ids outside the
 * vocabulary), FAILED (not finite: tensor, step and batch are named; disk full), INTERRUPTED,
 * MEMORY. */
SSM_API ssm_status ssm_train(const ssm_recipe *recipe, const char *directory,
                             const ssm_train_options *options, ssm_train_result *out,
                             ssm_error *err);

#ifdef __cplusplus
}
#endif
#endif
