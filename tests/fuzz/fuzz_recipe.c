/* Any bytes as a recipe: refused with a message, or a recipe that prints what it reads, and whose
 * network is one or is refused with a message. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "train/recipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        __builtin_trap();
    }
}

static void check_network(const ssm_recipe *recipe)
{
    const ssm_train_info task = {.name = "task", .vocab_size = 100, .output_width = 100};
    ssm__mixer_kind *mixers = calloc((size_t)recipe->model.n_layers, sizeof *mixers);
    ssm__network_config config;
    ssm_error err = {0};
    require(mixers != NULL);
    const ssm_status status = ssm__recipe_network(recipe, &task, mixers, &config, &err);
    require(status == SSM_STATUS_OK || err.message[0] != '\0');
    if (status == SSM_STATUS_OK) {
        require(config.shape.vocab_size >= 100 && config.shape.d_model > 0);
    }
    free(mixers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ssm_error err = {0};
    ssm_recipe *recipe = NULL, *again = NULL;
    const ssm_status status =
        ssm__recipe_from_memory("fuzz.json", (const char *)data, size, &recipe, &err);
    if (status != SSM_STATUS_OK) {
        require(recipe == NULL && err.message[0] != '\0');
        return 0;
    }
    char differences[200];
    char *text = ssm_recipe_text(recipe);
    require(text != NULL);
    require(ssm__recipe_from_memory("again.json", text, strlen(text), &again, &err) ==
            SSM_STATUS_OK);
    json_t *was = ssm__recipe_json(recipe, NULL), *is = ssm__recipe_json(again, NULL);
    require(was != NULL && is != NULL);
    require(!ssm__json_differs(was, is, differences, sizeof differences));
    require(ssm_recipe_set(again, "optimiser.lr", "0.5", &err) == SSM_STATUS_OK);
    check_network(recipe);
    json_decref(was);
    json_decref(is);
    free(text);
    ssm_recipe_free(recipe);
    ssm_recipe_free(again);
    return 0;
}
