/* train/experiment_probe.c: probing the model that a run has trained. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "train/experiment.h"
#include "train/task.h"

/* The model is in float32, under the parameters' names. */
static ssm_status read_values(const ssm__network *network, const char *path, ssm_error *err)
{
    ssm_safetensors *file = NULL;
    SSM__TRY(ssm_safetensors_open(path, false, &file, err));
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; i < ssm__network_count(network) && status == SSM_STATUS_OK; i++) {
        const ssm__parameter *p = ssm__network_at(network, i);
        const ssm_tensor *tensor = ssm_safetensors_find(file, p->name);
        if (tensor == NULL || ssm_tensor_count(tensor) != p->count) {
            status = ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, p->name),
                               "is not there, or of another shape than the recipe's");
        }
        for (int64_t k = 0; status == SSM_STATUS_OK && k < p->count; k++) {
            ssm__network_values(network)[p->at + k] = (float)ssm_tensor_get(tensor, k);
        }
    }
    ssm_safetensors_close(file);
    return status;
}

static ssm_status probe(const ssm_experiment *e, const ssm_recipe *recipe,
                        const ssm_train_task *task, const char *directory,
                        const ssm_experiment_options *options, json_t **out, ssm_error *err)
{
    ssm__network *network = NULL;
    char *path = ssm__path_join(directory, "model.safetensors");
    ssm_status status =
        path == NULL ? ssm__fail_memory(err, "a path", strlen(directory)) : SSM_STATUS_OK;
    if (status == SSM_STATUS_OK) {
        status = ssm__recipe_open(recipe, ssm_train_task_info(task), ssm__kernels_for(options->isa),
                                  options->pool, &network, err);
    }
    status = status == SSM_STATUS_OK ? read_values(network, path, err) : status;
    status =
        status == SSM_STATUS_OK ? ssm__probe_network(network, task, &e->probe, out, err) : status;
    ssm__network_free(network);
    free(path);
    return status;
}

ssm_status ssm__probe_run(const ssm_experiment *e, const ssm_recipe *recipe, const char *directory,
                          const ssm_experiment_options *options, ssm_error *err)
{
    ssm_train_task *task = NULL;
    json_t *found = NULL;
    SSM__TRY(ssm__train_task_from_json(recipe->task, (uint64_t)recipe->seed, NULL, &task, err));
    const ssm_status status = probe(e, recipe, task, directory, options, &found, err);
    ssm_train_task_free(task);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    return ssm__json_write(found, JSON_INDENT(2) | JSON_REAL_PRECISION(9), directory, "probe.json",
                           err);
}
