/* train/task.h: tasks for the trainer: the public interface, and creation from a recipe. */
#ifndef SSM_TRAIN_TASK_H
#define SSM_TRAIN_TASK_H

#include <jansson.h>
#include <ssmscope/train_task.h>

/* From the `task` object of a recipe, {"name": "copy", "max": 50, "evaluate": [50, 100]}: numbers,
 * strings, booleans, and arrays of them where a list is taken. `place` names the file in errors;
 * may be NULL. Errors: as ssm_train_task_create, and USAGE for a value of another JSON type. */
ssm_status ssm__train_task_from_json(const json_t *object, uint64_t seed, const char *place,
                                     ssm_train_task **out, ssm_error *err);

#endif
