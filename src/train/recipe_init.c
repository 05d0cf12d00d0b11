/* train/recipe_init.c: the model that a run begins with, without the run. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "train/checkpointing.h"
#include "train/first_weights.h"
#include "train/recipe.h"
#include "train/task.h"

static ssm_status write_start(const ssm_recipe *recipe, const ssm_train_task *task,
                              ssm__network *network, const char *directory, ssm_error *err)
{
    SSM__TRY(ssm__first_weights(network, recipe, err));
    SSM__TRY(ssm__check_no_model(directory, err));
    SSM__TRY(ssm__make_directories(directory, err));
    SSM__TRY(ssm__write_tokenizer(recipe, ssm_train_task_info(task), directory, err));
    json_t *json = ssm__recipe_json(recipe, task);
    const ssm_status status = ssm__write_recipe(json, directory, err);
    json_decref(json);
    SSM__TRY(status);
    return ssm__write_model(network, directory, err);
}

ssm_status ssm_recipe_init(const ssm_recipe *recipe, const char *directory, ssm_recipe_start *out,
                           ssm_error *err)
{
    ssm_train_task *task = NULL;
    ssm__network *network = NULL;
    SSM__TRY(ssm__recipe_task(recipe, &task, err));
    ssm_status status = ssm__recipe_open(recipe, ssm_train_task_info(task),
                                         ssm__kernels_for(SSM_ISA_AUTO), NULL, &network, err);
    if (status == SSM_STATUS_OK) {
        status = write_start(recipe, task, network, directory, err);
    }
    if (status == SSM_STATUS_OK) {
        const ssm__network_config *config = ssm__network_config_of(network);
        *out = (ssm_recipe_start){.config = config->shape,
                                  .seed = recipe->seed,
                                  .parameters = ssm__count_parameters(network),
                                  .published = ssm__is_published(config)};
    }
    ssm__network_free(network);
    ssm_train_task_free(task);
    return status;
}
