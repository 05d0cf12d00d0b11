#include "train/mimetic_network.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "train/mimetic.h"
#include "train/mixer.h"

/* ---- what a layer has ------------------------------------------------------------------------ */

enum { SWITCH_A = 1, SWITCH_DELTA = 2, SWITCH_BC = 4, SWITCH_CONV = 8 };

/* Switches that have something to act on. */
static int switches_of(const ssm__network_config *config, ssm__mixer_kind mixer)
{
    switch (mixer) {
    case SSM__MIXER_MAMBA1:
    case SSM__MIXER_MAMBA2: /* constants B and C have no rows to correlate */
        return SWITCH_A | SWITCH_DELTA | SWITCH_CONV | (config->time_invariant ? 0 : SWITCH_BC);
    case SSM__MIXER_GLA: /* a gate is its decay; there is no step */
        return SWITCH_A | SWITCH_BC | SWITCH_CONV;
    case SSM__MIXER_LINEAR_ATTENTION:
        return SWITCH_BC | SWITCH_CONV;
    default:
        return 0;
    }
}

static int switches_on(const ssm_mimetic *mimetic)
{
    return (mimetic->A ? SWITCH_A : 0) | (mimetic->delta ? SWITCH_DELTA : 0) |
           (mimetic->correlation ? SWITCH_BC : 0) | (mimetic->conv ? SWITCH_CONV : 0);
}

typedef struct spelled {
    char text[32];
} spelled;

/* "A, BC, conv" */
static spelled spell(int switches)
{
    static const char *const names[] = {"A", "delta", "BC", "conv"};
    spelled out = {""};
    for (int i = 0; i < 4; i++) {
        if ((switches & 1 << i) != 0) {
            const size_t used = strlen(out.text);
            snprintf(out.text + used, sizeof out.text - used, "%s%s", used == 0 ? "" : ", ",
                     names[i]);
        }
    }
    return out;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static bool is_named(const ssm_mimetic *mimetic, int64_t layer)
{
    return ssm__mimetic_has_layer(mimetic, layer, SSM_LAYER_MAMBA);
}

/* A layer that the list names must have something for the switches. */
static ssm_status check_named(const ssm_mimetic *mimetic, int64_t layer, ssm__mixer_kind mixer,
                              int has, ssm_error *err)
{
    if (mixer == SSM__MIXER_ATTENTION || mixer == SSM__MIXER_H3) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "layer %" PRId64 " is one of %s, for which there is no mimetic "
                         "initialisation; leave it out of the list of layers",
                         layer, ssm__mixer_names()[mixer]);
    }
    if ((has & switches_on(mimetic)) == 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "layer %" PRId64 " is one of %s, which has nothing for %s; expected some "
                         "of the switches %s, or another list of layers",
                         layer, ssm__mixer_names()[mixer], spell(switches_on(mimetic)).text,
                         spell(has).text);
    }
    return SSM_STATUS_OK;
}

static ssm_status check_layers(const ssm__network_config *config, const ssm_mimetic *mimetic,
                               ssm_error *err)
{
    bool any = false;
    for (int64_t layer = 0; layer < config->shape.n_layers; layer++) {
        const ssm__mixer_kind mixer = config->mixers[layer];
        const int has = switches_of(config, mixer);
        if (!is_named(mimetic, layer)) {
            continue;
        }
        if (mimetic->layers != NULL) {
            SSM__TRY(check_named(mimetic, layer, mixer, has, err));
        }
        if ((has & switches_on(mimetic)) != 0 && mimetic->heads != NULL &&
            mixer == SSM__MIXER_MAMBA1) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "a list of heads was given, and layer %" PRId64
                             " is one of mamba1, which has none; name other layers",
                             layer);
        }
        any = any || (has & switches_on(mimetic)) != 0;
    }
    if (!any) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "no layer has anything for the mimetic switches %s (gla has A, BC, conv; "
                         "linear_attention BC, conv; attention and h3 none); expected mimetic "
                         "none, or other switches",
                         spell(switches_on(mimetic)).text);
    }
    if (config->shared_layers && !is_named(mimetic, 0)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "layer %" PRId64 " has the weights of layer 0, which the list of layers "
                         "does not name; expected 0 in it, or no list",
                         mimetic->layers[0]);
    }
    return SSM_STATUS_OK;
}

/* ---- applying -------------------------------------------------------------------------------- */

static float *slot_values(ssm__network *network, int64_t layer, int slot)
{
    const ssm__parameter *p = ssm__network_slot(network, layer, slot);
    return p == NULL ? NULL : ssm__network_values(network) + p->at;
}

static const ssm__parameter *gate_of(const ssm__network *network, int64_t layer, const char *what)
{
    char name[SSM__SLOT_NAME_MAX];
    snprintf(name, sizeof name, "backbone.layers.%" PRId64 ".mixer.gate_proj.1.%s", layer, what);
    return ssm__network_find(network, name);
}

static void add_gates(ssm__network *network, int64_t layer, ssm__mimetic_arrays *arrays)
{
    const ssm__parameter *W_2 = gate_of(network, layer, "weight");
    const ssm__parameter *b = gate_of(network, layer, "bias");
    if (W_2 != NULL && b != NULL) {
        float *values = ssm__network_values(network);
        arrays->gate_W_2 = values + W_2->at;
        arrays->gate_b = values + b->at;
        arrays->n_gates = b->count / ssm__network_config_of(network)->shape.d_state;
        arrays->gate_rank = W_2->dims[1];
    }
}

static ssm__mimetic_arrays arrays_of(ssm__network *network, int64_t layer, ssm__mixer_kind mixer)
{
    const bool block = mixer != SSM__MIXER_MAMBA1;
    const bool fixed = ssm__network_config_of(network)->time_invariant;
    ssm__mimetic_arrays arrays = {
        .A_log = slot_values(network, layer, SSM__SLOT_A_log),
        .dt_proj = slot_values(network, layer, SSM__SLOT_dt_proj),
        .dt_proj_bias =
            slot_values(network, layer, block ? SSM__SLOT_dt_bias : SSM__SLOT_dt_proj_bias),
        .x_proj = slot_values(network, layer, SSM__SLOT_x_proj),
        /* In time-invariant mode it ends behind x. */
        .in_proj = block && !fixed ? slot_values(network, layer, SSM__SLOT_in_proj) : NULL,
        .stepless = mixer == SSM__MIXER_GLA || mixer == SSM__MIXER_LINEAR_ATTENTION,
        .conv1d = slot_values(network, layer, SSM__SLOT_conv1d),
        .conv1d_bias = slot_values(network, layer, SSM__SLOT_conv1d_bias)};
    add_gates(network, layer, &arrays);
    return arrays;
}

/* The shape as the layer's own family has it. */
static ssm_config shape_of(const ssm__network_config *config, ssm__mixer_kind mixer)
{
    ssm_config shape = config->shape;
    shape.family = mixer == SSM__MIXER_MAMBA1 ? SSM_FAMILY_MAMBA : SSM_FAMILY_MAMBA2;
    if (config->time_invariant) {
        shape.n_groups = 0; /* B and C have neither rows nor a convolution */
    }
    return shape;
}

ssm_status ssm__mimetic_network(ssm__network *network, const ssm_mimetic *mimetic, uint64_t seed,
                                ssm_error *err)
{
    const ssm__network_config *config = ssm__network_config_of(network);
    SSM__TRY(ssm__mimetic_check(mimetic, &config->shape, NULL, err));
    SSM__TRY(check_layers(config, mimetic, err));
    const int64_t layers = config->shared_layers ? 1 : config->shape.n_layers;
    for (int64_t layer = 0; layer < layers; layer++) {
        const ssm__mixer_kind mixer = config->mixers[layer];
        if (switches_of(config, mixer) != 0) {
            const ssm_config shape = shape_of(config, mixer);
            const ssm__mimetic_arrays arrays = arrays_of(network, layer, mixer);
            SSM__TRY(ssm__mimetic_apply(mimetic, &shape, layer, seed, &arrays, err));
        }
    }
    return SSM_STATUS_OK;
}
