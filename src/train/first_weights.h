/* train/first_weights.h: what a run begins with, and the tokenizer that goes with its model. */
#ifndef SSM_TRAIN_FIRST_WEIGHTS_H
#define SSM_TRAIN_FIRST_WEIGHTS_H

#include "train/recipe.h"

/* The recipe's init section: weights of a checkpoint, or the published default. Errors: FILE (no
 * such model, one of another shape, a tensor that it lacks or has too many, named), USAGE, MEMORY.
 */
ssm_status ssm__first_weights(ssm__network *network, const ssm_recipe *recipe, ssm_error *err);

/* directory/tokenizer.json: a copy of the task's, or one whose ids are the bytes where the task
 * reads bytes; nothing for tasks without text. Errors: FILE, FAILED, MEMORY. */
ssm_status ssm__write_tokenizer(const ssm_recipe *recipe, const ssm_train_info *task,
                                const char *directory, ssm_error *err);

#endif
