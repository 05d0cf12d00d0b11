#include "checkpoint/slots.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the table ------------------------------------------------------------------------------- */

static const ssm__slot slots[SSM__SLOTS] = {
#define LAYER_SLOT(field, text, mamba, mamba2, attention)                                          \
    [SSM__SLOT_##field] = {text,                                                                   \
                           {SSM__##mamba, SSM__##mamba2, SSM__##attention},                        \
                           offsetof(ssm__layer_weights, field)},
    SSM__LAYER_SLOT_LIST(LAYER_SLOT)
#undef LAYER_SLOT
        [SSM__SLOT_embedding] = {"embeddings.weight",
                                 {SSM__REQUIRED},
                                 offsetof(ssm__weights, embedding)},
    [SSM__SLOT_norm_f] = {"norm_f.weight", {SSM__REQUIRED}, offsetof(ssm__weights, norm_f)},
    [SSM__SLOT_norm_f_bias] = {"norm_f.bias", {SSM__OPTIONAL}, offsetof(ssm__weights, norm_f_bias)},
    [SSM__SLOT_lm_head] = {"lm_head.weight", {SSM__OPTIONAL}, offsetof(ssm__weights, lm_head)},
};

typedef ssm__dim shape_of[SSM__SLOT_DIMS];

/* Where a kind of layer has no row of its own here, the first column holds for it too. */
static const shape_of shapes[SSM_LAYER_KINDS][SSM__SLOTS] = {
    [SSM_LAYER_MAMBA] =
        {
            [SSM__SLOT_norm] = {SSM__DIM_D},
            [SSM__SLOT_in_proj] = {SSM__DIM_2E, SSM__DIM_D},
            [SSM__SLOT_in_proj_bias] = {SSM__DIM_2E},
            [SSM__SLOT_conv1d] = {SSM__DIM_E, SSM__DIM_ONE, SSM__DIM_K},
            [SSM__SLOT_conv1d_bias] = {SSM__DIM_E},
            [SSM__SLOT_x_proj] = {SSM__DIM_R2N, SSM__DIM_E},
            [SSM__SLOT_dt_proj] = {SSM__DIM_E, SSM__DIM_R},
            [SSM__SLOT_dt_proj_bias] = {SSM__DIM_E},
            [SSM__SLOT_A_log] = {SSM__DIM_E, SSM__DIM_N},
            [SSM__SLOT_D] = {SSM__DIM_E},
            [SSM__SLOT_out_proj] = {SSM__DIM_D, SSM__DIM_E},
            [SSM__SLOT_out_proj_bias] = {SSM__DIM_D},
            [SSM__SLOT_norm_bias] = {SSM__DIM_D},
            [SSM__SLOT_dt_bias] = {SSM__DIM_H},
            [SSM__SLOT_gate_norm] = {SSM__DIM_S},
            [SSM__SLOT_norm2] = {SSM__DIM_D},
            [SSM__SLOT_norm2_bias] = {SSM__DIM_D},
            [SSM__SLOT_fc1] = {SSM__DIM_2M, SSM__DIM_D},
            [SSM__SLOT_fc1_bias] = {SSM__DIM_2M},
            [SSM__SLOT_fc2] = {SSM__DIM_D, SSM__DIM_M},
            [SSM__SLOT_fc2_bias] = {SSM__DIM_D},
            [SSM__SLOT_embedding] = {SSM__DIM_V, SSM__DIM_D},
            [SSM__SLOT_norm_f] = {SSM__DIM_D},
            [SSM__SLOT_norm_f_bias] = {SSM__DIM_D},
            [SSM__SLOT_lm_head] = {SSM__DIM_V, SSM__DIM_D},
        },
    [SSM_LAYER_MAMBA2] =
        {
            [SSM__SLOT_in_proj] = {SSM__DIM_IN2, SSM__DIM_D},
            [SSM__SLOT_in_proj_bias] = {SSM__DIM_IN2},
            [SSM__SLOT_conv1d] = {SSM__DIM_CONV2, SSM__DIM_ONE, SSM__DIM_K},
            [SSM__SLOT_conv1d_bias] = {SSM__DIM_CONV2},
            [SSM__SLOT_A_log] = {SSM__DIM_H},
            [SSM__SLOT_D] = {SSM__DIM_SKIP},
        },
    [SSM_LAYER_ATTENTION] =
        {
            [SSM__SLOT_in_proj] = {SSM__DIM_QKV, SSM__DIM_D},
            [SSM__SLOT_in_proj_bias] = {SSM__DIM_QKV},
            [SSM__SLOT_conv1d] = {SSM__DIM_QKV, SSM__DIM_ONE, SSM__DIM_KA},
            [SSM__SLOT_conv1d_bias] = {SSM__DIM_QKV},
            [SSM__SLOT_out_proj] = {SSM__DIM_D, SSM__DIM_QA},
        },
};

static const ssm__dim *shape_row(ssm_layer_kind kind, int id)
{
    const ssm__dim *own = shapes[kind][id];
    return own[0] != SSM__DIM_NONE ? own : shapes[SSM_LAYER_MAMBA][id];
}

const ssm__slot *ssm__slot_info(int id)
{
    return &slots[id];
}

ssm__need ssm__slot_need(ssm_layer_kind kind, int id)
{
    return slots[id].needs[id < SSM__LAYER_SLOTS ? kind : 0];
}

bool ssm__slot_is_matrix(int id)
{
    const ssm__dim *dims = shapes[SSM_LAYER_MAMBA][id];
    return dims[1] != SSM__DIM_NONE && dims[2] == SSM__DIM_NONE && id != SSM__SLOT_A_log;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static int64_t dim_value(const ssm_config *c, ssm__dim dim)
{
    const int64_t values[] = {
        [SSM__DIM_NONE] = 0,
        [SSM__DIM_ONE] = 1,
        [SSM__DIM_V] = c->vocab_size,
        [SSM__DIM_D] = c->d_model,
        [SSM__DIM_E] = c->d_inner,
        [SSM__DIM_2E] = 2 * c->d_inner,
        [SSM__DIM_N] = c->d_state,
        [SSM__DIM_R] = c->dt_rank,
        [SSM__DIM_R2N] = c->dt_rank + 2 * c->d_state,
        [SSM__DIM_K] = c->d_conv,
        [SSM__DIM_H] = c->n_heads,
        [SSM__DIM_SKIP] = c->D_per_channel ? c->d_ssm : c->n_heads,
        [SSM__DIM_S] = c->d_ssm,
        [SSM__DIM_IN2] = 2 * c->d_inner + 2 * c->n_groups * c->d_state + c->n_heads,
        [SSM__DIM_CONV2] = c->d_ssm + 2 * c->n_groups * c->d_state,
        [SSM__DIM_QKV] = (c->n_query_heads + 2 * c->n_kv_heads) * c->attention_head_dim,
        [SSM__DIM_QA] = c->n_query_heads * c->attention_head_dim,
        [SSM__DIM_KA] = c->attention_conv,
        [SSM__DIM_M] = c->d_mlp,
        [SSM__DIM_2M] = 2 * c->d_mlp,
    };
    return values[dim];
}

static const char *dim_letters(ssm__dim dim)
{
    static const char *const letters[] = {
        [SSM__DIM_NONE] = "",
        [SSM__DIM_ONE] = "1",
        [SSM__DIM_V] = "vocab_size",
        [SSM__DIM_D] = "d_model",
        [SSM__DIM_E] = "d_inner",
        [SSM__DIM_2E] = "2 d_inner",
        [SSM__DIM_N] = "d_state",
        [SSM__DIM_R] = "dt_rank",
        [SSM__DIM_R2N] = "dt_rank + 2 d_state",
        [SSM__DIM_K] = "d_conv",
        [SSM__DIM_H] = "n_heads",
        [SSM__DIM_SKIP] = "n_heads or d_ssm",
        [SSM__DIM_S] = "d_ssm",
        [SSM__DIM_IN2] = "2 d_inner + 2 n_groups d_state + n_heads",
        [SSM__DIM_CONV2] = "d_ssm + 2 n_groups d_state",
        [SSM__DIM_QKV] = "(query heads + 2 key heads) head_dim",
        [SSM__DIM_QA] = "query heads · head_dim",
        [SSM__DIM_KA] = "attention's d_conv",
        [SSM__DIM_M] = "d_mlp",
        [SSM__DIM_2M] = "2 d_mlp",
    };
    return letters[dim];
}

int ssm__slot_shape(const ssm_config *config, ssm_layer_kind kind, int id,
                    int64_t dims[SSM__SLOT_DIMS])
{
    const ssm__dim *row = shape_row(kind, id);
    int n_dims = 0;
    while (n_dims < SSM__SLOT_DIMS && row[n_dims] != SSM__DIM_NONE) {
        dims[n_dims] = dim_value(config, row[n_dims]);
        n_dims++;
    }
    return n_dims;
}

void ssm__slot_letters(ssm_layer_kind kind, int id, char out[SSM__LETTERS_MAX])
{
    const ssm__dim *dims = shape_row(kind, id);
    snprintf(out, SSM__LETTERS_MAX, "[%s%s%s%s%s]", dim_letters(dims[0]),
             dims[1] == SSM__DIM_NONE ? "" : ", ", dim_letters(dims[1]),
             dims[2] == SSM__DIM_NONE ? "" : ", ", dim_letters(dims[2]));
}

/* ---- the order ------------------------------------------------------------------------------- */

int64_t ssm__slot_count(int64_t n_layers)
{
    return n_layers * SSM__LAYER_SLOTS + (SSM__SLOTS - SSM__LAYER_SLOTS);
}

ssm__slot_place ssm__slot_at(int64_t n_layers, int64_t i)
{
    int64_t in_layers = n_layers * SSM__LAYER_SLOTS;
    if (i == 0) {
        return (ssm__slot_place){SSM__SLOT_embedding, -1};
    }
    if (i <= in_layers) {
        return (ssm__slot_place){(int)((i - 1) % SSM__LAYER_SLOTS), (i - 1) / SSM__LAYER_SLOTS};
    }
    return (ssm__slot_place){(int)(SSM__SLOT_norm_f + i - in_layers - 1), -1};
}

ssm_tensor *ssm__slot_tensor(ssm__weights *weights, ssm__slot_place place)
{
    char *base = place.layer < 0 ? (char *)weights : (char *)&weights->layers[place.layer];
    return (ssm_tensor *)(void *)(base + slots[place.id].offset);
}

const ssm_tensor *ssm__slot_tensor_const(const ssm__weights *weights, ssm__slot_place place)
{
    const char *base =
        place.layer < 0 ? (const char *)weights : (const char *)&weights->layers[place.layer];
    return (const ssm_tensor *)(const void *)(base + slots[place.id].offset);
}

/* ---- names ----------------------------------------------------------------------------------- */

void ssm__slot_name(ssm__slot_place place, char out[SSM__SLOT_NAME_MAX])
{
    const char *name = slots[place.id].name;
    if (place.layer >= 0) {
        snprintf(out, SSM__SLOT_NAME_MAX, "backbone.layers.%" PRId64 ".%s", place.layer, name);
    } else {
        snprintf(out, SSM__SLOT_NAME_MAX, "%s%s", place.id == SSM__SLOT_lm_head ? "" : "backbone.",
                 name);
    }
}

const char *ssm__strip_prefixes(const char *name)
{
    static const char *const prefixes[] = {"module.", "_orig_mod.", "model.", "backbone."};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0];) {
        size_t length = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], length) == 0) {
            name += length;
            i = 0;
        } else {
            i++;
        }
    }
    return name;
}

bool ssm__parse_layer(const char *name, int64_t *layer, const char **rest)
{
    static const char start[] = "layers.";
    if (strncmp(name, start, sizeof start - 1) != 0) {
        return false;
    }
    const char *digit = name + sizeof start - 1;
    const char *first = digit;
    int64_t value = 0;
    while (*digit >= '0' && *digit <= '9' && digit - first < 9) {
        value = 10 * value + (*digit - '0');
        digit++;
    }
    bool canonical = digit > first && (*first != '0' || digit - first == 1);
    if (!canonical || *digit != '.') {
        return false;
    }
    *layer = value;
    *rest = digit + 1;
    return true;
}

bool ssm__slot_parse(const char *name, ssm__slot_place *out)
{
    const char *rest = ssm__strip_prefixes(name);
    int64_t layer = -1;
    int first = SSM__LAYER_SLOTS;
    int last = SSM__SLOTS;
    if (ssm__parse_layer(rest, &layer, &rest)) {
        first = 0;
        last = SSM__LAYER_SLOTS;
    } else if (strcmp(rest, "embedding.weight") == 0) {
        rest = slots[SSM__SLOT_embedding].name;
    }
    for (int id = first; id < last; id++) {
        if (strcmp(rest, slots[id].name) == 0) {
            *out = (ssm__slot_place){id, layer};
            return true;
        }
    }
    return false;
}
