/* train/recipe_network.c: the network that a recipe and a task ask for. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/mixer.h"
#include "train/recipe.h"
#include "train/task.h"

static ssm_status choose_mixers(const ssm__recipe_model *model, ssm__mixer_kind *mixers,
                                ssm_error *err)
{
    const ssm__texts *list = &model->mixer;
    if (list->count != 1 && list->count != model->n_layers) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "model: mixer names %" PRId64 " layers, n_layers is %" PRId64
                         "; expected one name, or one for every layer",
                         list->count, model->n_layers);
    }
    for (int64_t layer = 0; layer < model->n_layers; layer++) {
        const char *name = list->values[list->count == 1 ? 0 : layer];
        if (!ssm__mixer_parse(name, &mixers[layer])) {
            const char *nearest = ssm_nearest(name, ssm__mixer_names());
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "model: no mixer \"%.60s\"%s%s%s; expected mamba1, mamba2, attention, "
                             "linear_attention, gla or h3",
                             name, nearest == NULL ? "" : ", did you mean \"",
                             nearest == NULL ? "" : nearest, nearest == NULL ? "" : "\"?");
        }
    }
    return SSM_STATUS_OK;
}

/* Sizes of Mamba-2's block, where a layer has one. */
static ssm_status add_heads(const ssm__recipe_model *m, const ssm__mixer_kind *mixers,
                            ssm_config *shape, ssm_error *err)
{
    bool block = false;
    for (int64_t layer = 0; layer < m->n_layers; layer++) {
        const ssm__mixer_kind kind = mixers[layer];
        block = block || kind == SSM__MIXER_MAMBA2 || kind == SSM__MIXER_LINEAR_ATTENTION ||
                kind == SSM__MIXER_GLA || kind == SSM__MIXER_H3;
        shape->family = kind == SSM__MIXER_MAMBA1 ? SSM_FAMILY_MAMBA : shape->family;
    }
    if (!block) {
        return SSM_STATUS_OK;
    }
    if (shape->d_inner % m->head_dim != 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "model: head_dim %" PRId64 " does not divide expand·d_model = %" PRId64,
                         m->head_dim, shape->d_inner);
    }
    shape->n_heads = shape->d_inner / m->head_dim;
    shape->head_dim = m->head_dim;
    shape->n_groups = shape->norm_groups = m->n_groups;
    shape->d_ssm = shape->d_inner;
    shape->gated_norm = true;
    shape->dt_limit_high = (double)INFINITY;
    shape->mixer_norm_eps = m->norm_eps;
    return SSM_STATUS_OK;
}

/* Sizes of attention, where a layer is that. */
static ssm_status add_attention(const ssm__recipe_model *m, const ssm__mixer_kind *mixers,
                                ssm_config *shape, ssm_error *err)
{
    bool attends = false;
    for (int64_t layer = 0; layer < m->n_layers; layer++) {
        attends = attends || mixers[layer] == SSM__MIXER_ATTENTION;
    }
    if (!attends) {
        return SSM_STATUS_OK;
    }
    const int64_t heads = m->attention_heads != 0 ? m->attention_heads : m->d_model / m->head_dim;
    const int64_t divisor = m->attention_heads != 0 ? m->attention_heads : m->head_dim;
    if (m->d_model % divisor != 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "model: %s %" PRId64 " does not divide d_model %" PRId64
                         "; attention needs an attention_heads that divides it, or a head_dim "
                         "where attention_heads is 0",
                         m->attention_heads != 0 ? "attention_heads" : "head_dim", divisor,
                         m->d_model);
    }
    shape->n_query_heads = heads;
    shape->n_kv_heads = m->kv_heads != 0 ? m->kv_heads : heads;
    shape->attention_head_dim = m->d_model / heads;
    shape->attention_conv = m->attention_conv;
    shape->rotary_dim = m->rotary_dim;
    shape->rotary_base = 10000.0; /* files name one, turned or not */
    shape->softmax_scale = 1.0 / sqrt((double)shape->attention_head_dim);
    return SSM_STATUS_OK;
}

/* A = −exp(−c·a) needs a layer with an A_log. */
static ssm_status check_paper_a(const ssm__recipe_init *init, const ssm__recipe_model *m,
                                const ssm__mixer_kind *mixers, ssm_error *err)
{
    bool has_A = init->paper_a == 0;
    for (int64_t layer = 0; layer < m->n_layers; layer++) {
        has_A = has_A || mixers[layer] == SSM__MIXER_MAMBA1 || mixers[layer] == SSM__MIXER_MAMBA2 ||
                mixers[layer] == SSM__MIXER_H3;
    }
    if (!has_A) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "init: paper_a is true, but no layer has A_log; expected a layer of "
                         "mamba1, mamba2 or h3, or paper_a false");
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__recipe_network(const ssm_recipe *recipe, const ssm_train_info *task,
                               ssm__mixer_kind *mixers, ssm__network_config *out, ssm_error *err)
{
    const ssm__recipe_model *m = &recipe->model;
    SSM__TRY(choose_mixers(m, mixers, err));
    SSM__TRY(check_paper_a(&recipe->init, m, mixers, err));
    if (m->vocab_size != 0 && m->vocab_size < task->vocab_size) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "model: vocab_size is %" PRId64 ", the task %s has ids up to %" PRId64
                         "; expected %" PRId64 " or more, or 0",
                         m->vocab_size, task->name, task->vocab_size - 1, task->vocab_size);
    }
    ssm_config shape = {
        .family = SSM_FAMILY_MAMBA2, /* unless there is a layer of Mamba-1 */
        .vocab_size = m->vocab_size != 0 ? m->vocab_size : task->vocab_size,
        .d_model = m->d_model,
        .n_layers = m->n_layers,
        .d_inner = m->expand * m->d_model,
        .d_state = m->d_state,
        .d_conv = m->d_conv,
        .dt_rank = m->dt_rank != 0 ? m->dt_rank : (m->d_model + 15) / 16,
        .d_mlp = m->d_mlp,
        .norm_eps = m->norm_eps,
        .tied = task->loss == SSM_TRAIN_TOKENS && m->tied != 0,
        .bos_id = -1,
        .eos_id = -1,
        .pad_id = -1,
    };
    SSM__TRY(add_heads(m, mixers, &shape, err));
    SSM__TRY(add_attention(m, mixers, &shape, err));
    *out = (ssm__network_config){.shape = shape,
                                 .mixers = mixers,
                                 .norm = (ssm__norm_kind)m->norm,
                                 .shared_layers = m->shared_layers != 0,
                                 .loss = task->loss,
                                 .n_inputs = task->input_width,
                                 .n_outputs = task->output_width,
                                 .dropout = m->dropout,
                                 .time_invariant = m->time_invariant != 0,
                                 .gate_rank = m->gate_rank,
                                 .gate_groups = m->gate_groups,
                                 .gate_divisor = m->gate_divisor,
                                 .paper_c = recipe->init.paper_a != 0 ? recipe->init.c : 0.0};
    return SSM_STATUS_OK;
}

ssm_status ssm__recipe_open(const ssm_recipe *recipe, const ssm_train_info *task,
                            const ssm__kernels *kernels, ssm_pool *pool, ssm__network **out,
                            ssm_error *err)
{
    const size_t bytes = (size_t)recipe->model.n_layers * sizeof(ssm__mixer_kind);
    ssm__network_config config;
    ssm__mixer_kind *mixers = malloc(bytes);
    if (mixers == NULL) {
        return ssm__fail_memory(err, "a list of layers", bytes);
    }
    ssm_error own;
    ssm_error_clear(&own);
    ssm_status status = ssm__recipe_network(recipe, task, mixers, &config, &own);
    if (status == SSM_STATUS_OK) {
        status = ssm__network_create(&config, kernels, pool, out, &own);
    }
    free(mixers);
    return status == SSM_STATUS_OK
               ? status
               : ssm__fail(err, status, SSM__IN_FILE(recipe->place), "%s", own.message);
}

ssm_status ssm__recipe_task(const ssm_recipe *recipe, ssm_train_task **out, ssm_error *err)
{
    SSM__TRY(ssm__recipe_check(recipe, err));
    if (recipe->task == NULL) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(recipe->place),
                         "the recipe has no task; expected \"task\": {\"name\": …}");
    }
    return ssm__train_task_from_json(recipe->task, (uint64_t)recipe->seed, recipe->place, out, err);
}
