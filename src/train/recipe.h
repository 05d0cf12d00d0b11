/* train/recipe.h: what a recipe says, section by section; the tables are in recipe.c. */
#ifndef SSM_TRAIN_RECIPE_H
#define SSM_TRAIN_RECIPE_H

#include <jansson.h>
#include <ssmscope/train.h>

#include "train/network.h"
#include "train/settings.h"

typedef enum ssm__decay { SSM__DECAY_COSINE, SSM__DECAY_LINEAR, SSM__DECAY_CONSTANT } ssm__decay;

/* The sections. Integers of choices are indices in the order of the table. */
typedef struct ssm__recipe_model {
    ssm__texts mixer; /* one for all layers, or one a layer */
    int64_t d_model, n_layers, vocab_size, d_state, d_conv, expand, dt_rank, d_mlp;
    int64_t head_dim, n_groups, attention_heads, kv_heads, attention_conv, rotary_dim;
    int64_t gate_rank, gate_groups, time_invariant;
    int64_t norm, tied, shared_layers;
    double norm_eps, dropout, gate_divisor;
} ssm__recipe_model;

typedef struct ssm__recipe_init {
    char *from; /* a checkpoint; NULL: the published default initialisation */
    char *mimetic;
    int64_t mode;
    ssm__integers layers, heads;
    double c, noise;
    int64_t paper_a;
} ssm__recipe_init;

typedef struct ssm__recipe_batch {
    int64_t rows, accumulate;
} ssm__recipe_batch;

typedef struct ssm__recipe_optimiser {
    double lr, beta1, beta2, eps, weight_decay, clip;
} ssm__recipe_optimiser;

typedef struct ssm__recipe_schedule {
    int64_t steps, warmup, decay;
    double final;
} ssm__recipe_schedule;

typedef struct ssm__recipe_evaluate {
    int64_t every, rows;
} ssm__recipe_evaluate;

typedef struct ssm__recipe_checkpoint {
    int64_t every, log;
} ssm__recipe_checkpoint;

struct ssm_recipe {
    char *place; /* the file it was read from, for errors; NULL: none */
    json_t *given;
    int64_t seed;
    const json_t *task; /* inside given; NULL: the recipe has none */
    ssm__recipe_model model;
    ssm__recipe_init init;
    ssm__recipe_batch batch;
    ssm__recipe_optimiser optimiser;
    ssm__recipe_schedule schedule;
    ssm__recipe_evaluate evaluate;
    ssm__recipe_checkpoint checkpoint;
};

/* A recipe that stands inside another file, `place` of its errors. Copies. Errors: as
 * ssm_recipe_read. */
ssm_status ssm__recipe_from_json(json_t *given, const char *place, ssm_recipe **out,
                                 ssm_error *err);
/* As ssm_recipe_read, from a text that stands in `place`. */
ssm_status ssm__recipe_from_memory(const char *place, const char *text, size_t bytes,
                                   ssm_recipe **out, ssm_error *err);

/* All settings as they hold; those of the task as `task` has them, with its name, or as given when
 * NULL. New reference; NULL: out of memory. */
json_t *ssm__recipe_json(const ssm_recipe *recipe, const ssm_train_task *task);
/* Digits that all reals of an object need to be read back exactly. */
size_t ssm__json_digits(const json_t *root);
/* "optimiser.lr is 0.002, was 0.001; …" of two recipes as ssm__recipe_json writes them, or of two
 * experiments, at most `size` bytes; false: they say the same. */
bool ssm__json_differs(const json_t *was, const json_t *is, char *out, size_t size);

/* What one key says about another: looked at when a recipe is read and when it is run, not by
 * ssm_recipe_set, so that two keys can be set one after the other. Errors: USAGE. */
ssm_status ssm__recipe_check(const ssm_recipe *recipe, ssm_error *err);

/* The network of a recipe for a task. mixers [n_layers]: memory for config->mixers. Errors: USAGE
 * (contradictions, with the keys). */
ssm_status ssm__recipe_network(const ssm_recipe *recipe, const ssm_train_info *task,
                               ssm__mixer_kind *mixers, ssm__network_config *out, ssm_error *err);
/* The same, made; its weights are not set. Errors: USAGE, MEMORY. Owner: the caller,
 * ssm__network_free. */
ssm_status ssm__recipe_open(const ssm_recipe *recipe, const ssm_train_info *task,
                            const ssm__kernels *kernels, ssm_pool *pool, ssm__network **out,
                            ssm_error *err);
/* The recipe's task. Errors: FILE (no task, or as the task), USAGE (ssm__recipe_check), MEMORY.
 * Owner: the caller, ssm_train_task_free. */
ssm_status ssm__recipe_task(const ssm_recipe *recipe, ssm_train_task **out, ssm_error *err);

#endif
