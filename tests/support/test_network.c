#include "test_network.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reference/backward.h"

#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        ssm_error err;                                                                             \
        ssm_error_clear(&err);                                                                     \
        if ((call) != SSM_STATUS_OK) {                                                             \
            fail_msg("%s: %s", #call, err.message);                                                \
        }                                                                                          \
    } while (0)

enum { MOST_LAYERS = 8 };

static void *get(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    assert_non_null(memory);
    return memory;
}

ssm__network_config toy_network(void)
{
    static const ssm__mixer_kind mixers[MOST_LAYERS] = {SSM__MIXER_MAMBA1, SSM__MIXER_MAMBA1,
                                                        SSM__MIXER_MAMBA1};
    return (ssm__network_config){.shape = {.family = SSM_FAMILY_MAMBA,
                                           .vocab_size = 31,
                                           .d_model = 20,
                                           .n_layers = 2,
                                           .d_inner = 36,
                                           .d_state = 5,
                                           .d_conv = 3,
                                           .dt_rank = 3,
                                           .norm_eps = 1e-5},
                                 .mixers = mixers,
                                 .loss = SSM_TRAIN_TOKENS};
}

ssm__network *toy_network_create(const ssm__network_config *config, ssm_isa isa, ssm_pool *pool)
{
    ssm__network *network;
    CHECK_OK(ssm__network_create(config, ssm__kernels_for(isa), pool, &network, &err));
    ssm__network_draw(network, 1);
    ssm_rng rng = ssm_rng_create(7, "toy network");
    for (int64_t i = 0; i < ssm__network_count(network); i++) {
        const ssm__parameter *p = ssm__network_at(network, i);
        float *values = ssm__network_values(network) + p->at;
        for (int64_t k = 0; k < p->count; k++) {
            values[k] += (float)(0.2 * ssm_rng_normal(&rng));
        }
    }
    return network;
}

ssm_train_batch toy_batch(const ssm__network_config *config, int64_t rows, int64_t length)
{
    const int64_t tokens = rows * length, V = config->shape.vocab_size;
    ssm_train_batch batch = {.rows = rows, .length = length};
    ssm_rng rng = ssm_rng_create(3, "toy batch");
    batch.used = get((size_t)rows, sizeof *batch.used);
    batch.ids = get((size_t)tokens, sizeof *batch.ids);
    batch.labels = get((size_t)tokens, sizeof *batch.labels);
    batch.inputs = get((size_t)(tokens * config->n_inputs) + 1, sizeof *batch.inputs);
    batch.targets = get((size_t)(tokens * config->n_outputs) + 1, sizeof *batch.targets);
    for (int64_t r = 0; r < rows; r++) {
        batch.used[r] = config->loss == SSM_TRAIN_TOKENS ? (int32_t)length
                                                         : (int32_t)(length - r % 3 * length / 5);
    }
    for (int64_t t = 0; t < tokens && V > 0; t++) {
        batch.ids[t] = (int32_t)ssm_rng_below(&rng, (uint64_t)V);
        batch.labels[t] =
            ssm_rng_below(&rng, 3) == 0 ? -1 : (int32_t)ssm_rng_below(&rng, (uint64_t)V);
    }
    for (int64_t r = 0; r < rows && config->loss == SSM_TRAIN_CLASSES; r++) {
        batch.labels[r] = (int32_t)ssm_rng_below(&rng, (uint64_t)config->n_outputs);
    }
    for (int64_t i = 0; i < tokens * config->n_inputs; i++) {
        batch.inputs[i] = (float)ssm_rng_normal(&rng);
    }
    for (int64_t i = 0; i < tokens * config->n_outputs; i++) {
        batch.targets[i] = (float)ssm_rng_normal(&rng);
    }
    return batch;
}

void toy_batch_free(ssm_train_batch *batch)
{
    free(batch->used);
    free(batch->ids);
    free(batch->labels);
    free(batch->inputs);
    free(batch->targets);
}

static int64_t losses_of(const ssm__network_config *config, const ssm_train_batch *batch)
{
    int64_t count = 0;
    for (int64_t t = 0; t < batch->rows * batch->length; t++) {
        count += config->loss == SSM_TRAIN_TOKENS && batch->labels[t] >= 0;
    }
    for (int64_t r = 0; r < batch->rows; r++) {
        count += config->loss == SSM_TRAIN_CLASSES   ? 1
                 : config->loss == SSM_TRAIN_VECTORS ? batch->used[r] * config->n_outputs
                                                     : 0;
    }
    return count;
}

ssm__loss toy_gradients(ssm__network *network, const ssm_train_batch *batch,
                        const ssm__dropout *dropout)
{
    ssm__pass *pass;
    ssm__loss loss;
    CHECK_OK(ssm__pass_create(network, batch->length, true, &pass, &err));
    memset(ssm__network_gradients(network), 0,
           (size_t)ssm__network_floats(network) * sizeof(float));
    const int64_t count = losses_of(ssm__network_config_of(network), batch);
    ssm__pass_train(pass, batch, 1.0 / (double)count, dropout, &loss);
    assert_int_equal(loss.count, count);
    ssm__pass_free(pass);
    return loss;
}

/* ---- the reference --------------------------------------------------------------------------- */

/* A network in float64, and its gradients, parameter by parameter. */
typedef struct mirror {
    ssm__network *network;
    ssm_config config;
    double *values, *gradients;
    ssm__ref_layer layers[MOST_LAYERS];
    ssm__ref_gradients layer_gradients[MOST_LAYERS];
    ssm__ref_model model;
    ssm__ref_model_gradients g;
} mirror;

static const size_t gradient_offsets[SSM__LAYER_SLOTS] = {
#define AT(field, ...) [SSM__SLOT_##field] = offsetof(ssm__ref_gradients, field),
    SSM__LAYER_SLOT_LIST(AT)
#undef AT
};

typedef struct other_slot {
    const char *name;
    size_t tensor, gradient;
} other_slot;

static const other_slot other_slots[] = {
#define AT(field, text, ...)                                                                       \
    {text, offsetof(ssm__ref_layer, field), offsetof(ssm__ref_gradients, field)},
    SSM__REF_MORE_SLOT_LIST(AT)
#undef AT
};

static ssm_tensor tensor_of(const mirror *m, const ssm__parameter *p)
{
    ssm_tensor tensor = {.name = p->name, .dtype = SSM_DTYPE_F64, .n_dims = p->n_dims};
    memcpy(tensor.dims, p->dims, (size_t)p->n_dims * sizeof *p->dims);
    tensor.data = m->values + p->at;
    tensor.bytes = (size_t)p->count * sizeof(double);
    return tensor;
}

/* Of the whole model; false: a layer's. */
static bool put_own(mirror *m, const ssm__parameter *p)
{
    const ssm_tensor tensor = tensor_of(m, p);
    double *gradient = m->gradients + p->at;
    const struct {
        const char *name;
        ssm_tensor *tensor;
        double **gradient;
    } own[] = {{"backbone.embeddings.weight", &m->model.embedding, &m->g.embedding},
               {"backbone.input.weight", &m->model.input, &m->g.input},
               {"backbone.input.bias", &m->model.input_bias, &m->g.input_bias},
               {"backbone.norm_f.weight", &m->model.norm_f, &m->g.norm_f},
               {"backbone.norm_f.bias", &m->model.norm_f_bias, &m->g.norm_f_bias},
               {"lm_head.weight", &m->model.head, &m->g.head},
               {"backbone.head.weight", &m->model.head, &m->g.head},
               {"backbone.head.bias", &m->model.head_bias, &m->g.head_bias}};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (strcmp(p->name, own[i].name) == 0) {
            *own[i].tensor = tensor;
            *own[i].gradient = gradient;
            return true;
        }
    }
    return false;
}

static void put_in_layer(mirror *m, const ssm__parameter *p, int64_t layer)
{
    char *gradients = (char *)&m->layer_gradients[layer];
    double *gradient = m->gradients + p->at;
    if (p->slot >= 0) {
        *ssm__slot_tensor(&(ssm__weights){.layers = &m->layers[layer].w},
                          (ssm__slot_place){p->slot, 0}) = tensor_of(m, p);
        memcpy(gradients + gradient_offsets[p->slot], &gradient, sizeof gradient);
        return;
    }
    for (size_t i = 0; i < sizeof other_slots / sizeof other_slots[0]; i++) {
        const size_t end = strlen(p->name) - strlen(other_slots[i].name);
        if (end < strlen(p->name) && strcmp(p->name + end, other_slots[i].name) == 0) {
            const ssm_tensor tensor = tensor_of(m, p);
            memcpy((char *)&m->layers[layer] + other_slots[i].tensor, &tensor, sizeof tensor);
            memcpy(gradients + other_slots[i].gradient, &gradient, sizeof gradient);
            return;
        }
    }
    fail_msg("the reference has no %s", p->name);
}

static ssm__ref_mixer mixer_of(ssm__mixer_kind kind)
{
    static const ssm__ref_mixer mixers[] = {[SSM__MIXER_MAMBA1] = SSM__REF_MAMBA,
                                            [SSM__MIXER_MAMBA2] = SSM__REF_MAMBA2,
                                            [SSM__MIXER_ATTENTION] = SSM__REF_ATTENTION,
                                            [SSM__MIXER_LINEAR_ATTENTION] =
                                                SSM__REF_LINEAR_ATTENTION,
                                            [SSM__MIXER_GLA] = SSM__REF_GLA,
                                            [SSM__MIXER_H3] = SSM__REF_H3};
    return mixers[kind];
}

static mirror *mirror_of(ssm__network *network)
{
    const ssm__network_config *config = ssm__network_config_of(network);
    const size_t floats = (size_t)ssm__network_floats(network);
    mirror *m = get(1, sizeof *m);
    m->network = network;
    m->config = config->shape;
    m->values = get(floats, sizeof(double));
    m->gradients = get(floats, sizeof(double));
    for (size_t i = 0; i < floats; i++) {
        m->values[i] = (double)ssm__network_values(network)[i];
    }
    assert_true(config->shape.n_layers <= MOST_LAYERS);
    for (int64_t layer = 0; layer < config->shape.n_layers; layer++) {
        m->layers[layer] =
            (ssm__ref_layer){.mixer = mixer_of(config->mixers[layer]),
                             .config = &m->config,
                             .gate_divisor = config->gate_divisor > 0 ? config->gate_divisor : 16};
    }
    for (int64_t i = 0; i < ssm__network_count(network); i++) {
        const ssm__parameter *p = ssm__network_at(network, i);
        if (put_own(m, p)) {
            continue;
        }
        for (int64_t layer = 0; layer < config->shape.n_layers; layer++) {
            if (config->shared_layers || layer == p->layer) {
                put_in_layer(m, p, layer);
            }
        }
    }
    if (m->model.head.data == NULL) { /* tied */
        m->model.head = m->model.embedding;
        m->g.head = m->g.embedding;
    }
    m->model.config = &m->config;
    m->model.layers = m->layers;
    m->g.layers = m->layer_gradients;
    return m;
}

static void mirror_free(mirror *m)
{
    free(m->values);
    free(m->gradients);
    free(m);
}

static double *widen(const float *from, int64_t count)
{
    double *to = get((size_t)count + 1, sizeof *to);
    for (int64_t i = 0; i < count; i++) {
        to[i] = (double)from[i];
    }
    return to;
}

static ssm__ref_loss reference_loss(mirror *m, const ssm_train_batch *batch)
{
    const ssm__network_config *config = ssm__network_config_of(m->network);
    const int64_t tokens = batch->rows * batch->length;
    int64_t *lengths = get((size_t)batch->rows, sizeof *lengths);
    double *numbers = widen(batch->inputs, tokens * config->n_inputs);
    double *targets = widen(batch->targets, tokens * config->n_outputs);
    const bool vectors = config->loss == SSM_TRAIN_VECTORS;
    for (int64_t r = 0; r < batch->rows; r++) {
        lengths[r] = batch->used[r];
    }
    const ssm__ref_batch same = {.sequences = batch->rows,
                                 .tokens = batch->length,
                                 .lengths = lengths,
                                 .ids = vectors ? NULL : batch->ids,
                                 .numbers = vectors ? numbers : NULL,
                                 .labels = config->loss == SSM_TRAIN_TOKENS ? batch->labels : NULL,
                                 .targets = vectors ? targets : NULL,
                                 .classes =
                                     config->loss == SSM_TRAIN_CLASSES ? batch->labels : NULL};
    ssm__ref_loss loss;
    CHECK_OK(ssm__ref_model_loss(&m->model, &same, 1.0 / (double)losses_of(config, batch), &m->g,
                                 &loss, NULL, &err));
    free(lengths);
    free(numbers);
    free(targets);
    return loss;
}

void check_against_reference(ssm__network *network, const ssm_train_batch *batch, double bound)
{
    const ssm__loss loss = toy_gradients(network, batch, NULL);
    mirror *m = mirror_of(network);
    const ssm__ref_loss expected = reference_loss(m, batch);
    double worst = 0;
    const char *where = "";
    assert_int_equal(loss.count, expected.count);
    if (!(fabs(loss.sum - expected.sum) <= bound * fabs(expected.sum))) {
        fail_msg("loss %.9g, reference %.9g", loss.sum, expected.sum);
    }
    for (int64_t i = 0; i < ssm__network_count(network); i++) {
        const ssm__parameter *p = ssm__network_at(network, i);
        double top = 0, off = 0;
        for (int64_t k = 0; k < p->count; k++) {
            const double wanted = m->gradients[p->at + k];
            top = fmax(top, fabs(wanted));
            off = fmax(off, fabs((double)ssm__network_gradients(network)[p->at + k] - wanted));
            assert_true(isfinite(ssm__network_gradients(network)[p->at + k]));
        }
        if (top <= 0) {
            fail_msg("the reference's gradient of %s is zero", p->name);
        }
        if (off > bound * top) {
            fail_msg("%s: off by %g of %g", p->name, off, top);
        }
        if (off / top > worst) {
            worst = off / top;
            where = p->name;
        }
    }
    print_message("worst relative error %.2g (%s)\n", worst, where);
    mirror_free(m);
}
