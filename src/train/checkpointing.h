/* train/checkpointing.h: what a run leaves on the disk: the model directory, the training state
 * and the log. */
#ifndef SSM_TRAIN_CHECKPOINTING_H
#define SSM_TRAIN_CHECKPOINTING_H

#include "train/optimiser.h"

/* Where a run stands behind a step. */
typedef struct ssm__position {
    int64_t step;   /* done */
    int64_t tokens; /* seen */
    double tail;    /* Σ of the losses of the last tenth of the steps, and how many */
    int64_t tail_count;
} ssm__position;

/* A parameter as it is written; everything is borrowed. */
ssm_tensor ssm__parameter_tensor(const ssm__parameter *p, const char *name, const float *data);

/* Errors: USAGE (the directory holds a model or what is left of a run, named). */
ssm_status ssm__check_no_model(const char *directory, ssm_error *err);

/* directory/recipe.json of a recipe as it holds. Errors: MEMORY (also of a recipe that is NULL),
 * FAILED. */
ssm_status ssm__write_recipe(json_t *recipe, const char *directory, ssm_error *err);

/* True: the model has a published layout; false: it is written in our own. */
bool ssm__is_published(const ssm__network_config *config);

/* config.json and model.safetensors, each whole or not at all; the layout is Hugging Face's or the
 * original's where they can hold the network, else ours (docs/training.md). Errors: FAILED, MEMORY.
 */
ssm_status ssm__write_model(const ssm__network *network, const char *directory, ssm_error *err);

/* directory/training/state.safetensors: weights, moments and position, with the recipe and the
 * digest of the data. Errors: FAILED, MEMORY. */
ssm_status ssm__write_state(const ssm__optimiser *optimiser, const ssm__position *position,
                            const char *recipe, const char *data, const char *directory,
                            ssm_error *err);
/* True: there is one. */
bool ssm__has_state(const char *directory);
/* Reads it into network and optimiser. Errors: USAGE (another recipe: the differences are listed;
 * other data), FILE (not a state, of another network), MEMORY. */
ssm_status ssm__read_state(const ssm__optimiser *optimiser, const json_t *recipe, const char *data,
                           const char *directory, ssm__position *position, ssm_error *err);

/* training/log.jsonl, a line a JSON object. */
typedef struct ssm__log ssm__log;
/* Keeps the lines up to `step` (a line of JSON with "step") and opens the rest for appending;
 * step −1: begins anew. Errors: FAILED, MEMORY. */
ssm_status ssm__log_open(const char *directory, int64_t step, ssm__log **out, ssm_error *err);
/* Takes the reference; NULL stands for a value that there was no memory for. Errors: FAILED,
 * MEMORY. */
ssm_status ssm__log_add(ssm__log *log, json_t *line, ssm_error *err);
void ssm__log_close(ssm__log *log);

#endif
