/* train/network.c: the list of parameters and branches of a network, and their first values. */
#include "train/network.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "train/draw.h"
#include "train/inside.h"

struct ssm__declaration {
    ssm__network *network; /* its parameters are NULL while they are counted */
    int64_t count;
    int64_t floats;
    bool overflow;
    ssm__branch *branch; /* whose own parameters are declared; NULL: none's */
};

/* ---- declaring ------------------------------------------------------------------------------- */

static void add_own(ssm__declaration *list, int64_t number)
{
    if (list->branch != NULL) {
        list->branch->own[list->branch->count++] = number;
    }
}

void ssm__declare_absent(ssm__declaration *list)
{
    add_own(list, -1);
}

static int64_t declare(ssm__declaration *list, const ssm__parameter *wanted)
{
    add_own(list, list->count);
    ssm__parameter made = *wanted;
    const double paper_c = list->network->config.paper_c;
    made.factor = made.slot == SSM__SLOT_A_log && paper_c > 0 ? -paper_c : 1;
    made.count = 1;
    for (int i = 0; i < made.n_dims; i++) {
        list->overflow = !ssm__mul_dim(made.count, made.dims[i], &made.count) || list->overflow;
    }
    made.at = list->floats;
    const int64_t end = INT64_MAX / 64 - made.count; /* several arrays of them fit size_t */
    if (list->overflow || made.count < 0 || made.at > end) {
        list->overflow = true;
        return list->count++;
    }
    list->floats += (made.count + SSM__LANES - 1) / SSM__LANES * SSM__LANES;
    if (list->network->parameters != NULL) {
        list->network->parameters[list->count] = made;
    }
    return list->count++;
}

/* Matrices and convolutions; the published lists name what has no decay. */
static bool slot_decays(int slot)
{
    return ssm__slot_is_matrix(slot) || slot == SSM__SLOT_conv1d;
}

int64_t ssm__declare_slot(ssm__declaration *list, ssm_layer_kind kind, int64_t layer, int slot)
{
    ssm__parameter made = {.layer = layer, .slot = slot, .kind = kind};
    made.decayed = slot_decays(slot);
    made.n_dims = ssm__slot_shape(&list->network->config.shape, kind, slot, made.dims);
    ssm__slot_name((ssm__slot_place){slot, layer}, made.name);
    return declare(list, &made);
}

int64_t ssm__declare_shaped(ssm__declaration *list, ssm_layer_kind kind, int64_t layer, int slot,
                            int n_dims, const int64_t *dims)
{
    ssm__parameter made = {.layer = layer, .slot = slot, .kind = kind, .n_dims = n_dims};
    made.decayed = slot_decays(slot);
    memcpy(made.dims, dims, (size_t)n_dims * sizeof *dims);
    ssm__slot_name((ssm__slot_place){slot, layer}, made.name);
    return declare(list, &made);
}

int64_t ssm__declare_other(ssm__declaration *list, int64_t layer, const char *name, bool decayed,
                           int n_dims, const int64_t *dims)
{
    ssm__parameter made = {.layer = layer, .slot = -1, .decayed = decayed, .n_dims = n_dims};
    memcpy(made.dims, dims, (size_t)n_dims * sizeof *dims);
    if (layer < 0) {
        snprintf(made.name, sizeof made.name, "backbone.%s", name);
    } else {
        snprintf(made.name, sizeof made.name, "backbone.layers.%" PRId64 ".%s", layer, name);
    }
    return declare(list, &made);
}

static void declare_norm(ssm__declaration *list, int64_t layer, int weight, int bias,
                         int64_t *weight_at, int64_t *bias_at)
{
    const ssm__norm_kind norm = list->network->config.norm;
    *weight_at = *bias_at = -1;
    if (norm != SSM__NORM_NONE) {
        *weight_at = ssm__declare_slot(list, SSM_LAYER_MAMBA, layer, weight);
    }
    if (norm == SSM__NORM_LAYER) {
        *bias_at = ssm__declare_slot(list, SSM_LAYER_MAMBA, layer, bias);
    }
}

static void declare_branch(ssm__declaration *list, ssm__mixer_kind kind, int64_t layer,
                           ssm__branch *branch)
{
    const bool mlp = kind == SSM__MIXER_MLP;
    *branch = (ssm__branch){.kind = kind, .layer = layer};
    declare_norm(list, layer, mlp ? SSM__SLOT_norm2 : SSM__SLOT_norm,
                 mlp ? SSM__SLOT_norm2_bias : SSM__SLOT_norm_bias, &branch->norm,
                 &branch->norm_bias);
    list->branch = branch;
    ssm__mixer_of(kind)->declare(list, &list->network->config, layer);
    list->branch = NULL;
}

/* The branches of a layer, into branches[*n …]; shared layers take those of the first. */
static void declare_layer(ssm__declaration *list, int64_t layer, int64_t *n)
{
    ssm__network *network = list->network;
    const ssm__network_config *config = &network->config;
    const int per_layer = config->shape.d_mlp > 0 ? 2 : 1;
    for (int i = 0; i < per_layer; i++, (*n)++) {
        ssm__branch *branch = &network->branches[*n];
        if (config->shared_layers && layer > 0) {
            *branch = network->branches[i];
        } else {
            declare_branch(list, i == 0 ? network->mixers[layer] : SSM__MIXER_MLP, layer, branch);
        }
        branch->number = *n;
    }
}

static void declare_ends(ssm__declaration *list, bool front)
{
    ssm__network *network = list->network;
    const ssm__network_config *config = &network->config;
    const int64_t D = config->shape.d_model;
    const bool vectors = config->loss == SSM_TRAIN_VECTORS;
    if (front && vectors) {
        network->input =
            ssm__declare_other(list, -1, "input.weight", true, 2, (int64_t[]){D, config->n_inputs});
        network->input_bias = ssm__declare_other(list, -1, "input.bias", false, 1, &D);
        return;
    }
    if (front) {
        network->input = ssm__declare_slot(list, SSM_LAYER_MAMBA, -1, SSM__SLOT_embedding);
        return;
    }
    declare_norm(list, -1, SSM__SLOT_norm_f, SSM__SLOT_norm_f_bias, &network->norm_f,
                 &network->norm_f_bias);
    if (config->loss == SSM_TRAIN_TOKENS) {
        network->head = config->shape.tied
                            ? network->input
                            : ssm__declare_slot(list, SSM_LAYER_MAMBA, -1, SSM__SLOT_lm_head);
        return;
    }
    network->head =
        ssm__declare_other(list, -1, "head.weight", true, 2, (int64_t[]){config->n_outputs, D});
    network->head_bias = ssm__declare_other(list, -1, "head.bias", false, 1, &config->n_outputs);
}

/* Everything, in the order of a checkpoint. */
static void declare_all(ssm__declaration *list)
{
    ssm__network *network = list->network;
    int64_t branch = 0;
    network->input_bias = network->head_bias = -1;
    declare_ends(list, true);
    for (int64_t layer = 0; layer < network->config.shape.n_layers; layer++) {
        declare_layer(list, layer, &branch);
    }
    declare_ends(list, false);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static ssm_status check_size(const char *name, int64_t value, ssm_error *err)
{
    enum { LARGEST = 1 << 24 };
    if (value < 1 || value > LARGEST) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "%s is %" PRId64 "; expected 1 … %d",
                         name, value, LARGEST);
    }
    return SSM_STATUS_OK;
}

static ssm_status check_mixers(const ssm__network_config *config, ssm_error *err)
{
    for (int64_t layer = 0; layer < config->shape.n_layers; layer++) {
        const ssm__mixer_kind kind = config->mixers[layer];
        if (kind == SSM__MIXER_MLP) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "layer %" PRId64 ": an MLP stands behind a mixer, not for one", layer);
        }
        const ssm__mixer *mixer = ssm__mixer_of(kind);
        char why[256];
        if (!mixer->accepts(config, why, sizeof why)) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "layer %" PRId64 ": %s", layer,
                             why);
        }
        if (config->shared_layers && kind != config->mixers[0]) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "layers that share their weights have one mixer; layer 0 and layer "
                             "%" PRId64 " have two",
                             layer);
        }
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__network_check(const ssm__network_config *config, ssm_error *err)
{
    const ssm_config *c = &config->shape;
    const bool vectors = config->loss == SSM_TRAIN_VECTORS;
    SSM__TRY(check_size("d_model", c->d_model, err));
    SSM__TRY(check_size("n_layers", c->n_layers, err));
    SSM__TRY(check_size(vectors ? "n_inputs" : "vocab_size",
                        vectors ? config->n_inputs : c->vocab_size, err));
    if (config->loss != SSM_TRAIN_TOKENS) {
        SSM__TRY(check_size("n_outputs", config->n_outputs, err));
    }
    if (c->d_mlp != 0) {
        SSM__TRY(check_size("d_mlp", c->d_mlp, err));
    }
    if (!isfinite(c->norm_eps) || c->norm_eps <= 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "norm_eps is %g; expected a finite number above 0", c->norm_eps);
    }
    if (!(config->dropout >= 0 && config->dropout < 1)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "dropout is %g; expected 0 or more and less than 1", config->dropout);
    }
    return check_mixers(config, err);
}

/* ---- creating -------------------------------------------------------------------------------- */

static ssm_status fill(ssm__network *network, const ssm__network_config *config, ssm_error *err)
{
    const size_t layers = (size_t)config->shape.n_layers;
    network->n_branches = config->shape.n_layers * (config->shape.d_mlp > 0 ? 2 : 1);
    network->mixers = calloc(layers, sizeof *network->mixers);
    network->branches = calloc((size_t)network->n_branches, sizeof *network->branches);
    if (network->mixers == NULL || network->branches == NULL) {
        return ssm__fail_memory(err, "the layers of a network", layers * sizeof(ssm__branch));
    }
    memcpy(network->mixers, config->mixers, layers * sizeof *network->mixers);
    network->config.mixers = network->mixers;
    ssm__declaration list = {.network = network};
    declare_all(&list);
    if (list.overflow) {
        return ssm__fail_memory(err, "a network: its size does not fit", SIZE_MAX);
    }
    network->parameters = calloc((size_t)list.count, sizeof *network->parameters);
    if (network->parameters == NULL) {
        return ssm__fail_memory(err, "the parameters of a network",
                                (size_t)list.count * sizeof *network->parameters);
    }
    network->n_parameters = list.count;
    network->floats = list.floats;
    list = (ssm__declaration){.network = network};
    declare_all(&list);
    ssm__arena counted = {0};
    SSM__TAKE(&counted, float, network->floats);
    SSM__TAKE(&counted, float, network->floats);
    SSM__TRY(ssm__arena_create(&network->arena, counted.used, err));
    network->values = SSM__TAKE(&network->arena, float, network->floats);
    network->gradients = SSM__TAKE(&network->arena, float, network->floats);
    return SSM_STATUS_OK;
}

ssm_status ssm__network_create(const ssm__network_config *config, const ssm__kernels *kernels,
                               ssm_pool *pool, ssm__network **out, ssm_error *err)
{
    *out = NULL;
    SSM__TRY(ssm__network_check(config, err));
    ssm__network *network = calloc(1, sizeof *network);
    if (network == NULL) {
        return ssm__fail_memory(err, "a network", sizeof *network);
    }
    network->config = *config;
    network->config.shape.layer_norm = config->norm == SSM__NORM_LAYER;
    network->kernels = kernels;
    network->pool = pool;
    const ssm_status status = fill(network, config, err);
    if (status != SSM_STATUS_OK) {
        ssm__network_free(network);
        return status;
    }
    *out = network;
    return SSM_STATUS_OK;
}

void ssm__network_free(ssm__network *network)
{
    if (network != NULL) {
        ssm__arena_free(&network->arena);
        free(network->parameters);
        free(network->branches);
        free(network->mixers);
        free(network);
    }
}

/* ---- looking --------------------------------------------------------------------------------- */

const ssm__network_config *ssm__network_config_of(const ssm__network *network)
{
    return &network->config;
}

int64_t ssm__network_count(const ssm__network *network)
{
    return network->n_parameters;
}

const ssm__parameter *ssm__network_at(const ssm__network *network, int64_t i)
{
    return &network->parameters[i];
}

const ssm__parameter *ssm__network_find(const ssm__network *network, const char *name)
{
    for (int64_t i = 0; i < network->n_parameters; i++) {
        if (strcmp(network->parameters[i].name, name) == 0) {
            return &network->parameters[i];
        }
    }
    return NULL;
}

const ssm__parameter *ssm__network_slot(const ssm__network *network, int64_t layer, int slot)
{
    for (int64_t i = 0; i < network->n_parameters; i++) {
        if (network->parameters[i].layer == layer && network->parameters[i].slot == slot) {
            return &network->parameters[i];
        }
    }
    return NULL;
}

int64_t ssm__count_parameters(const ssm__network *network)
{
    int64_t count = 0;
    for (int64_t i = 0; i < network->n_parameters; i++) {
        count += network->parameters[i].count;
    }
    return count;
}

int64_t ssm__network_floats(const ssm__network *network)
{
    return network->floats;
}

float *ssm__network_values(const ssm__network *network)
{
    return network->values;
}

float *ssm__network_gradients(const ssm__network *network)
{
    return network->gradients;
}

/* ---- first values ---------------------------------------------------------------------------- */

/* U(±1/√fan_in) for matrices, 0 for biases. */
static void draw_other(const ssm__parameter *p, uint64_t seed, float *out)
{
    if (p->n_dims < 2) {
        memset(out, 0, (size_t)p->count * sizeof *out);
        return;
    }
    ssm_rng rng = ssm_rng_create(seed, p->name);
    const int64_t fan_in = p->count / p->dims[0];
    const double bound = 1 / sqrt((double)fan_in);
    for (int64_t i = 0; i < p->count; i++) {
        out[i] = (float)(bound * (2 * ssm_rng_uniform(&rng) - 1));
    }
}

static bool is_norm_bias(int slot)
{
    return slot == SSM__SLOT_norm_bias || slot == SSM__SLOT_norm2_bias ||
           slot == SSM__SLOT_norm_f_bias;
}

void ssm__network_draw(ssm__network *network, uint64_t seed)
{
    for (int64_t i = 0; i < network->n_parameters; i++) {
        const ssm__parameter *p = &network->parameters[i];
        float *out = network->values + p->at;
        if (p->slot < 0 || is_norm_bias(p->slot)) {
            draw_other(p, seed, out);
        } else {
            ssm__draw draw = ssm__draw_create(&network->config.shape, p->kind,
                                              (ssm__slot_place){p->slot, p->layer}, seed);
            ssm__draw_next(&draw, 0, p->count, out);
        }
    }
}
