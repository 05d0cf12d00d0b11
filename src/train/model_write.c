/* train/model_write.c: a network as a model directory.
 *
 * Hugging Face's layout holds Mamba-1 or Mamba-2 with RMSNorm; the original's also an MLP,
 * LayerNorm and layers of attention, all with norm_eps 1e-5. Anything else is written in our own
 * layout, whose config.json says so (model_type "ssmscope"): same tensor names, not for other
 * programs. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/config_write.h"
#include "train/checkpointing.h"
#include "train/mixer.h"

typedef enum layout { LAYOUT_HF, LAYOUT_ORIGINAL, LAYOUT_OWN } layout;

/* Attention alone is not: the published layouts describe it beside layers of Mamba. */
static bool published(const ssm__network_config *config, bool *attention)
{
    const ssm__mixer_kind mamba =
        config->shape.family == SSM_FAMILY_MAMBA2 ? SSM__MIXER_MAMBA2 : SSM__MIXER_MAMBA1;
    bool has_mamba = false;
    *attention = false;
    for (int64_t layer = 0; layer < config->shape.n_layers; layer++) {
        const bool attends = config->mixers[layer] == SSM__MIXER_ATTENTION;
        if (!attends && (config->mixers[layer] != mamba || config->shape.d_conv == 0)) {
            return false;
        }
        *attention = *attention || attends;
        has_mamba = has_mamba || !attends;
    }
    return has_mamba && config->loss == SSM_TRAIN_TOKENS && config->norm != SSM__NORM_NONE &&
           !config->time_invariant;
}

static layout layout_of(const ssm__network_config *config)
{
    const ssm_config *c = &config->shape;
    bool attention;
    if (!published(config, &attention)) {
        return LAYOUT_OWN;
    }
    /* The original's config has no key for it and its code 1e-5. */
    const bool original_eps = !(c->norm_eps < 1e-5 || c->norm_eps > 1e-5);
    const bool plain2 =
        c->family != SSM_FAMILY_MAMBA2 ||
        (c->d_ssm == c->d_inner && !c->D_per_channel && c->gated_norm && !c->norm_before_gate);
    if (!attention && c->d_mlp == 0 && !c->layer_norm && plain2) {
        return LAYOUT_HF;
    }
    return original_eps ? LAYOUT_ORIGINAL : LAYOUT_OWN;
}

bool ssm__is_published(const ssm__network_config *config)
{
    return layout_of(config) != LAYOUT_OWN;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Layers that share their weights are written one by one. */
static int64_t copies(const ssm__network_config *config, const ssm__parameter *p)
{
    return config->shared_layers && p->layer >= 0 ? config->shape.n_layers : 1;
}

static void name_of(const ssm__parameter *p, layout as, int64_t layer, char *out, size_t size)
{
    static const char first[] = "backbone.layers.0.";
    if (as == LAYOUT_ORIGINAL && p->slot == SSM__SLOT_embedding) {
        snprintf(out, size, "backbone.embedding.weight");
    } else if (layer > 0) {
        snprintf(out, size, "backbone.layers.%lld.%s", (long long)layer,
                 p->name + sizeof first - 1);
    } else {
        snprintf(out, size, "%s", p->name);
    }
}

/* Shared layers come layer by layer, as a checkpoint has them. */
static int64_t list(const ssm__network *network, layout as, ssm_tensor *tensors,
                    char (*names)[SSM__SLOT_NAME_MAX])
{
    const ssm__network_config *config = ssm__network_config_of(network);
    const float *values = ssm__network_values((ssm__network *)(uintptr_t)network);
    int64_t n = 0;
    const int64_t count = ssm__network_count(network);
    for (int64_t i = 0; i < count;) {
        int64_t end = i + 1; /* a run of parameters with as many copies */
        const int64_t times = copies(config, ssm__network_at(network, i));
        while (end < count && copies(config, ssm__network_at(network, end)) == times) {
            end++;
        }
        for (int64_t layer = 0; layer < times; layer++) {
            for (int64_t k = i; k < end; k++, n++) {
                const ssm__parameter *p = ssm__network_at(network, k);
                name_of(p, as, times > 1 ? layer : 0, names[n], SSM__SLOT_NAME_MAX);
                tensors[n] = ssm__parameter_tensor(p, names[n], values + p->at);
            }
        }
        i = end;
    }
    return n;
}

static ssm_status write_weights(const ssm__network *network, layout as, const char *directory,
                                ssm_error *err)
{
    static const ssm_metadata metadata[] = {{"format", "pt"}};
    const ssm__network_config *config = ssm__network_config_of(network);
    const size_t most = (size_t)(ssm__network_count(network) *
                                 (config->shared_layers ? config->shape.n_layers : 1));
    ssm_tensor *tensors = calloc(most, sizeof *tensors);
    char(*names)[SSM__SLOT_NAME_MAX] = calloc(most, sizeof *names);
    char *path = ssm__path_join(directory, "model.safetensors");
    const ssm_status status =
        tensors == NULL || names == NULL || path == NULL
            ? ssm__fail_memory(err, "a list of tensors", most * sizeof *tensors)
            : ssm_safetensors_write(path, tensors, list(network, as, tensors, names), metadata, 1,
                                    err);
    free(tensors);
    free(names);
    free(path);
    return status;
}

/* ---- config.json ----------------------------------------------------------------------------- */

static json_t *own_config(const ssm__network_config *config)
{
    static const char *const norms[] = {
        [SSM__NORM_RMS] = "rms", [SSM__NORM_LAYER] = "layer", [SSM__NORM_NONE] = "none"};
    const ssm_config *c = &config->shape;
    json_t *mixers = json_array();
    bool good = mixers != NULL;
    for (int64_t layer = 0; good && layer < c->n_layers; layer++) {
        const char *name = ssm__mixer_names()[config->mixers[layer]];
        good = json_array_append_new(mixers, json_string(name)) == 0;
    }
    if (!good) {
        json_decref(mixers);
        return NULL;
    }
    return json_pack(
        "{s:s, s:o, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:f, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}",
        "model_type", "ssmscope", "mixer", mixers, "loss", ssm_train_loss_name(config->loss),
        "norm", norms[config->norm], "shared_layers", config->shared_layers, "vocab_size",
        (json_int_t)c->vocab_size, "d_model", (json_int_t)c->d_model, "n_layers",
        (json_int_t)c->n_layers, "d_inner", (json_int_t)c->d_inner, "d_state",
        (json_int_t)c->d_state, "d_conv", (json_int_t)c->d_conv, "dt_rank", (json_int_t)c->dt_rank,
        "d_mlp", (json_int_t)c->d_mlp, "n_inputs", (json_int_t)config->n_inputs, "n_outputs",
        (json_int_t)config->n_outputs, "norm_eps", c->norm_eps, "tied", c->tied, "time_invariant",
        config->time_invariant, "n_heads", (json_int_t)c->n_heads, "head_dim",
        (json_int_t)c->head_dim, "n_groups", (json_int_t)c->n_groups, "n_query_heads",
        (json_int_t)c->n_query_heads, "n_kv_heads", (json_int_t)c->n_kv_heads, "attention_head_dim",
        (json_int_t)c->attention_head_dim, "attention_conv", (json_int_t)c->attention_conv,
        "rotary_dim", (json_int_t)c->rotary_dim, "gate_divisor", config->gate_divisor);
}

static ssm_status write_config(const ssm__network_config *config, layout as, const char *directory,
                               ssm_error *err)
{
    if (as == LAYOUT_OWN) {
        return ssm__json_write(own_config(config), JSON_INDENT(2) | JSON_REAL_PRECISION(15),
                               directory, "config.json", err);
    }
    const int64_t n_layers = config->shape.n_layers;
    int64_t *attention = calloc((size_t)n_layers, sizeof *attention);
    if (attention == NULL) {
        return ssm__fail_memory(err, "a list of layers", (size_t)n_layers * sizeof *attention);
    }
    ssm__written_config written = {.config = &config->shape,
                                   .dtype = SSM_DTYPE_F32,
                                   .use_conv_bias = true,
                                   .attention_layers = attention};
    for (int64_t layer = 0; layer < n_layers; layer++) {
        if (config->mixers[layer] == SSM__MIXER_ATTENTION) {
            attention[written.n_attention++] = layer;
        }
    }
    const ssm_status status = as == LAYOUT_HF
                                  ? ssm__hf_config_write(&written, directory, err)
                                  : ssm__original_config_write(&written, directory, err);
    free(attention);
    return status;
}

ssm_status ssm__write_model(const ssm__network *network, const char *directory, ssm_error *err)
{
    const ssm__network_config *config = ssm__network_config_of(network);
    const layout as = layout_of(config);
    SSM__TRY(write_weights(network, as, directory, err));
    return write_config(config, as, directory, err);
}

ssm_status ssm__write_recipe(json_t *recipe, const char *directory, ssm_error *err)
{
    const size_t digits = recipe == NULL ? 0 : ssm__json_digits(recipe);
    return ssm__json_write(json_incref(recipe), JSON_INDENT(2) | JSON_REAL_PRECISION(digits),
                           directory, "recipe.json", err);
}

ssm_status ssm__check_no_model(const char *directory, ssm_error *err)
{
    static const char *const held[] = {"config.json", "model.safetensors", "pytorch_model.bin",
                                       "model.safetensors.index.json", "recipe.json"};
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++) {
        if (ssm__holds_file(directory, held[i])) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(directory),
                             "the directory already holds a model or a run (%s); choose "
                             "another, or go on with the run (--resume)",
                             held[i]);
        }
    }
    return SSM_STATUS_OK;
}
