/* The gradients of the float64 reference against central differences of its forward pass: every
 * parameter of every mixer, block and loss, and the input. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/base.h>

#include "reference/backward.h"
#include "test_layers.h"
#include "test_numbers.h"

/* Relative to a parameter's largest derivative. Measured: at most 4e-9 for mixers and blocks (GLA,
 * whose gate has a slope of a sixteenth) and 8e-8 for models, where some derivatives are small
 * beside the loss that the differences round. Ten times that leaves room for another C library's
 * exp and none for a slip in a formula. */
static const double layer_tolerance = 4e-8, model_tolerance = 8e-7;

enum { TOKENS = 7 };

static const ssm_config small_mamba = {.family = SSM_FAMILY_MAMBA,
                                       .vocab_size = 11,
                                       .d_model = 5,
                                       .n_layers = 2,
                                       .d_inner = 6,
                                       .d_state = 3,
                                       .d_conv = 3,
                                       .dt_rank = 2,
                                       .norm_eps = 1e-3,
                                       .mixer_norm_eps = 1e-3};

/* ---- one mixer ------------------------------------------------------------------------------- */

/* loss = Σ direction · out: its derivative by out is `direction`. */
typedef struct mixer_case {
    ssm__ref_layer *layer;
    double *x, *direction, *out;
    int64_t tokens;
    bool block; /* the whole block instead of its mixer alone */
} mixer_case;

static double mixer_loss(void *context)
{
    const mixer_case *c = context;
    const ssm_status status = c->block
                                  ? ssm__ref_block_forward(c->layer, c->x, c->tokens, c->out, NULL)
                                  : ssm__ref_mixer_forward(c->layer, c->x, c->tokens, c->out, NULL);
    assert_int_equal(status, SSM_STATUS_OK);
    double sum = 0.0;
    for (int64_t i = 0; i < c->tokens * c->layer->config->d_model; i++) {
        sum += c->direction[i] * c->out[i];
    }
    return sum;
}

static void check_layer(const char *what, const ssm_config *config, ssm__ref_mixer mixer,
                        const test_layer_options *options, bool block)
{
    test_parameters *all = calloc(1, sizeof *all), *input = calloc(1, sizeof *input);
    test_layer layer = test_layer_create(all, "", config, mixer, options);
    double *dx = NULL, *unused = NULL;
    if (!block) { /* the mixer has no norms and no MLP */
        test_parameters_free(all);
        ssm_config bare = *config;
        bare.d_mlp = 0;
        test_layer_options no_norm = *options;
        no_norm.no_norm = true;
        layer = test_layer_create(all, "", &bare, mixer, &no_norm);
        layer.layer.config = config;
    }
    const ssm_tensor x = test_parameter_create(input, "input", TOKENS, config->d_model, 1.0, &dx);
    const ssm_tensor direction =
        test_parameter_create(input, "direction", TOKENS, config->d_model, 1.0, &unused);
    mixer_case c = {.layer = &layer.layer,
                    .x = (double *)x.data,
                    .direction = (double *)direction.data,
                    .out = test_doubles(TOKENS * config->d_model),
                    .tokens = TOKENS,
                    .block = block};
    const ssm_status status = block ? ssm__ref_block_backward(c.layer, c.x, TOKENS, c.direction, dx,
                                                              &layer.gradients, NULL)
                                    : ssm__ref_mixer_backward(c.layer, c.x, TOKENS, c.direction, dx,
                                                              &layer.gradients, NULL);
    assert_int_equal(status, SSM_STATUS_OK);
    input->count = 1; /* the direction is no parameter */
    const double worst = fmax(test_central_differences(all, mixer_loss, &c, layer_tolerance),
                              test_central_differences(input, mixer_loss, &c, layer_tolerance));
    print_message("%s: %.1e\n", what, worst);
    input->count = 2;
    test_parameters_free(all);
    test_parameters_free(input);
    free(c.out);
    free(all);
    free(input);
}

static void test_mamba(void **unused)
{
    (void)unused;
    ssm_config config = small_mamba;
    check_layer("mamba", &config, SSM__REF_MAMBA, &(test_layer_options){0}, false);
    check_layer("mamba with biases", &config, SSM__REF_MAMBA,
                &(test_layer_options){.biases = true, .no_conv_bias = true}, false);
    check_layer("mamba without convolution", &config, SSM__REF_MAMBA,
                &(test_layer_options){.no_conv = true}, false);
    config.family = SSM_FAMILY_FALCON_MAMBA;
    check_layer("falcon-mamba", &config, SSM__REF_MAMBA, &(test_layer_options){0}, false);
}

static void test_mamba_time_invariant(void **unused)
{
    (void)unused;
    check_layer("time-invariant mamba", &small_mamba, SSM__REF_MAMBA,
                &(test_layer_options){.fixed = true}, false);
}

/* 4 heads of 3 channels; the scan is as wide as the mixer. */
static ssm_config small_mamba2(int64_t n_groups)
{
    return (ssm_config){.family = SSM_FAMILY_MAMBA2,
                        .vocab_size = 11,
                        .d_model = 5,
                        .n_layers = 2,
                        .d_inner = 12,
                        .d_state = 3,
                        .d_conv = 3,
                        .n_heads = 4,
                        .head_dim = 3,
                        .n_groups = n_groups,
                        .d_ssm = 12,
                        .norm_groups = n_groups,
                        .gated_norm = true,
                        .dt_limit_low = 0.0,
                        .dt_limit_high = INFINITY,
                        .norm_eps = 1e-3,
                        .mixer_norm_eps = 1e-3};
}

static void check_mamba2(const char *what, const ssm_config *config,
                         const test_layer_options *options)
{
    char name[80];
    snprintf(name, sizeof name, "mamba2, %d groups%s", (int)config->n_groups, what);
    check_layer(name, config, SSM__REF_MAMBA2, options, false);
}

static void test_mamba2(void **unused)
{
    (void)unused;
    for (int64_t n_groups = 1; n_groups <= 4; n_groups *= 2) {
        ssm_config config = small_mamba2(n_groups);
        check_mamba2("", &config, &(test_layer_options){0});
        config.norm_groups = 1;
        check_mamba2(", one norm", &config, &(test_layer_options){.biases = true});
        config.norm_before_gate = true;
        check_mamba2(", one norm before the gate", &config,
                     &(test_layer_options){.no_conv_bias = true});
        config.norm_groups = n_groups;
        config.D_per_channel = true;
        check_mamba2(", norms before the gate", &config, &(test_layer_options){0});
        config.gated_norm = false;
        check_mamba2(", no norm", &config, &(test_layer_options){.no_conv = true});
    }
}

/* Some steps below the clamp's limits, some above, some between. */
static void test_mamba2_limits(void **unused)
{
    (void)unused;
    ssm_config config = small_mamba2(2);
    config.dt_limit_low = 0.6;
    config.dt_limit_high = 1.1;
    check_mamba2(", limits", &config, &(test_layer_options){0});
    config.d_inner = 15; /* three channels of z0, x0 beside the scan */
    check_mamba2(", wide mixer", &config, &(test_layer_options){.biases = true});
}

static void test_mamba2_time_invariant(void **unused)
{
    (void)unused;
    const ssm_config config = small_mamba2(2);
    check_mamba2(", time-invariant", &config, &(test_layer_options){.fixed = true});
}

static void test_linear_attention(void **unused)
{
    (void)unused;
    for (int64_t n_groups = 1; n_groups <= 4; n_groups *= 2) {
        ssm_config config = small_mamba2(n_groups);
        check_layer("linear attention", &config, SSM__REF_LINEAR_ATTENTION,
                    &(test_layer_options){.no_D = true}, false);
        config.D_per_channel = true;
        config.norm_before_gate = true;
        check_layer("linear attention with D", &config, SSM__REF_LINEAR_ATTENTION,
                    &(test_layer_options){0}, false);
    }
}

static void test_gla(void **unused)
{
    (void)unused;
    for (int64_t n_groups = 1; n_groups <= 4; n_groups *= 2) {
        const ssm_config config = small_mamba2(n_groups);
        for (int64_t gate_groups = 1; gate_groups <= 4; gate_groups *= 2) {
            check_layer("gated linear attention", &config, SSM__REF_GLA,
                        &(test_layer_options){.gate_rank = 2, .gate_groups = gate_groups}, false);
        }
    }
}

static void test_h3(void **unused)
{
    (void)unused;
    ssm_config config = small_mamba2(1);
    check_layer("h3, heads of 3", &config, SSM__REF_H3,
                &(test_layer_options){.no_conv_bias = true, .no_D = true}, false);
    config.n_heads = 12;
    config.head_dim = 1;
    check_layer("h3, heads of 1", &config, SSM__REF_H3, &(test_layer_options){.biases = true},
                false);
}

static void test_attention(void **unused)
{
    (void)unused;
    ssm_config config = {.family = SSM_FAMILY_MAMBA2,
                         .d_model = 5,
                         .n_query_heads = 4,
                         .n_kv_heads = 2,
                         .attention_head_dim = 5,
                         .softmax_scale = 0.9};
    check_layer("attention", &config, SSM__REF_ATTENTION, &(test_layer_options){0}, false);
    config.attention_conv = 3;
    check_layer("attention with convolution", &config, SSM__REF_ATTENTION,
                &(test_layer_options){.biases = true}, false);
    config.rotary_dim = 4;
    config.rotary_base = 50.0;
    check_layer("attention with rotary", &config, SSM__REF_ATTENTION, &(test_layer_options){0},
                false);
    config.rotary_interleaved = true;
    config.n_kv_heads = 4;
    config.attention_conv = 0;
    check_layer("attention with interleaved rotary", &config, SSM__REF_ATTENTION,
                &(test_layer_options){0}, false);
    config.n_query_heads = config.n_kv_heads = 1;
    check_layer("attention of one head", &config, SSM__REF_ATTENTION, &(test_layer_options){0},
                false);
}

static void test_block(void **unused)
{
    (void)unused;
    ssm_config config = small_mamba;
    config.d_mlp = 7;
    check_layer("block", &config, SSM__REF_MAMBA, &(test_layer_options){.biases = true}, true);
    check_layer("block without norms", &config, SSM__REF_MAMBA,
                &(test_layer_options){.no_norm = true}, true);
    config.layer_norm = true;
    check_layer("block with LayerNorm", &config, SSM__REF_MAMBA, &(test_layer_options){0}, true);
}

/* ---- whole models ---------------------------------------------------------------------------- */

enum { SEQUENCES = 2, FEATURES = 3, OUTPUTS = 4, LAYERS = 2 };

static const int32_t some_ids[SEQUENCES * TOKENS] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 10, 0};
static const int32_t some_labels[SEQUENCES * TOKENS] = {1, -1, 1, 5, 9, 2, -100,
                                                        5, 3,  5, 8, 9, 7, -1};
static const int32_t some_classes[SEQUENCES] = {3, 1};
static const int64_t some_lengths[SEQUENCES] = {TOKENS, TOKENS - 3};

typedef struct model_case {
    ssm__ref_model model;
    ssm__ref_batch batch;
    ssm__ref_layer layers[LAYERS];
    ssm__ref_gradients layer_gradients[LAYERS];
    ssm__ref_model_gradients gradients;
    double scale;
    int64_t count;
} model_case;

static double model_loss(void *context)
{
    model_case *c = context;
    ssm__ref_loss loss;
    assert_int_equal(ssm__ref_model_loss(&c->model, &c->batch, c->scale, NULL, &loss, NULL, NULL),
                     SSM_STATUS_OK);
    c->count = loss.count;
    return c->scale * loss.sum;
}

typedef struct model_options {
    bool tied, head_bias, numbers, no_norm, shared;
    int64_t rows; /* of the head; 0: the vocabulary */
} model_options;

static void add_model(test_parameters *all, const ssm_config *config, const model_options *o,
                      model_case *c)
{
    const int64_t D = config->d_model, V = config->vocab_size, rows = o->rows > 0 ? o->rows : V;
    ssm__ref_model *m = &c->model;
    ssm__ref_model_gradients *g = &c->gradients;
    *m = (ssm__ref_model){.config = config, .layers = c->layers};
    g->layers = c->layer_gradients;
    if (o->numbers) {
        m->input = test_parameter_create(all, "input", D, FEATURES, 0.7, &g->input);
        m->input_bias = test_parameter_create(all, "input_bias", D, 0, 0.5, &g->input_bias);
    } else {
        m->embedding = test_parameter_create(all, "embedding", V, D, 1.0, &g->embedding);
    }
    if (!o->no_norm) {
        m->norm_f = test_parameter_create(all, "norm_f", D, 0, 1.0, &g->norm_f);
        if (config->layer_norm) {
            m->norm_f_bias = test_parameter_create(all, "norm_f_bias", D, 0, 0.5, &g->norm_f_bias);
        }
    }
    if (o->tied) {
        m->head = m->embedding;
        g->head = g->embedding;
    } else {
        m->head = test_parameter_create(all, "head", rows, D, 0.7, &g->head);
    }
    if (o->head_bias) {
        m->head_bias = test_parameter_create(all, "head_bias", rows, 0, 0.7, &g->head_bias);
    }
    for (int i = 0; i < LAYERS; i++) {
        if (i == 0 || !o->shared) {
            const test_layer layer =
                test_layer_create(all, i == 0 ? "0." : "1.", config, SSM__REF_MAMBA,
                                  &(test_layer_options){.no_norm = o->no_norm});
            c->layers[i] = layer.layer;
            c->layer_gradients[i] = layer.gradients;
        } else {
            c->layers[i] = c->layers[0];
            c->layer_gradients[i] = c->layer_gradients[0];
        }
    }
}

/* Returns the count of the loss. */
static int64_t check_model(const char *what, const ssm_config *config, const model_options *o,
                           const ssm__ref_batch *batch)
{
    test_parameters *all = calloc(1, sizeof *all);
    model_case c = {.batch = *batch, .scale = 0.37};
    c.batch.sequences = SEQUENCES;
    c.batch.tokens = TOKENS;
    add_model(all, config, o, &c);
    ssm__ref_loss loss;
    assert_int_equal(
        ssm__ref_model_loss(&c.model, &c.batch, c.scale, &c.gradients, &loss, NULL, NULL),
        SSM_STATUS_OK);
    print_message("%s: %.1e\n", what,
                  test_central_differences(all, model_loss, &c, model_tolerance));
    assert_int_equal(loss.count, c.count);
    test_parameters_free(all);
    free(all);
    return c.count;
}

static void test_language_model(void **unused)
{
    (void)unused;
    const ssm__ref_batch batch = {.ids = some_ids, .labels = some_labels};
    assert_int_equal(check_model("tied", &small_mamba, &(model_options){.tied = true}, &batch), 11);
    check_model("untied", &small_mamba, &(model_options){.head_bias = true}, &batch);
    check_model("shared layers", &small_mamba, &(model_options){.shared = true, .tied = true},
                &batch);
    ssm__ref_batch padded = batch;
    padded.lengths = some_lengths;
    assert_int_equal(check_model("padded", &small_mamba, &(model_options){0}, &padded), 9);
    ssm_config config = small_mamba;
    config.layer_norm = true;
    check_model("LayerNorm", &config, &(model_options){0}, &batch);
    check_model("no norm", &config, &(model_options){.no_norm = true}, &batch);
}

static void test_regression(void **unused)
{
    (void)unused;
    test_parameters *data = calloc(1, sizeof *data);
    double *ignored = NULL;
    const int64_t tokens = SEQUENCES * TOKENS;
    const ssm_tensor numbers =
        test_parameter_create(data, "numbers", tokens, FEATURES, 1.0, &ignored);
    const ssm_tensor targets =
        test_parameter_create(data, "targets", tokens, OUTPUTS, 1.0, &ignored);
    const ssm__ref_batch batch = {.numbers = numbers.data, .targets = targets.data};
    const model_options options = {.numbers = true, .head_bias = true, .rows = OUTPUTS};
    assert_int_equal(check_model("regression", &small_mamba, &options, &batch), tokens * OUTPUTS);
    test_parameters_free(data);
    free(data);
}

static void test_classification(void **unused)
{
    (void)unused;
    const ssm__ref_batch batch = {.ids = some_ids, .classes = some_classes};
    const model_options options = {.head_bias = true, .rows = OUTPUTS};
    assert_int_equal(check_model("classification", &small_mamba, &options, &batch), SEQUENCES);
    ssm__ref_batch padded = batch;
    padded.lengths = some_lengths;
    check_model("padded classification", &small_mamba, &options, &padded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mamba),
        cmocka_unit_test(test_mamba_time_invariant),
        cmocka_unit_test(test_mamba2),
        cmocka_unit_test(test_mamba2_limits),
        cmocka_unit_test(test_mamba2_time_invariant),
        cmocka_unit_test(test_linear_attention),
        cmocka_unit_test(test_gla),
        cmocka_unit_test(test_h3),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_block),
        cmocka_unit_test(test_language_model),
        cmocka_unit_test(test_regression),
        cmocka_unit_test(test_classification),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
