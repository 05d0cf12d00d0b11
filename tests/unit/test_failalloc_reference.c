/* Losses and gradients of the float64 reference when memory runs out: MEMORY, nothing leaked, for
 * a model that has every mixer. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failalloc.h"

#include "test_layers.h"

enum { LAYERS = SSM__REF_H3 + 1, TOKENS = 3 };

typedef struct fixture {
    ssm__ref_model model;
    ssm__ref_model_gradients gradients;
    ssm__ref_batch batch;
} fixture;

static ssm_status run_loss(void *context, ssm_error *err)
{
    const fixture *f = context;
    ssm__ref_loss loss;
    const ssm_status status =
        ssm__ref_model_loss(&f->model, &f->batch, 1.0, &f->gradients, &loss, NULL, err);
    return status == SSM_STATUS_OK && loss.count != 2 ? SSM_STATUS_CHECK : status;
}

static void losses_and_gradients(void **state)
{
    (void)state;
    static const int32_t ids[TOKENS] = {1, 0, 2}, labels[TOKENS] = {0, -1, 1};
    /* One configuration holds the sizes of all mixers. */
    const ssm_config config = {.family = SSM_FAMILY_FALCON_MAMBA,
                               .vocab_size = 3,
                               .d_model = 2,
                               .n_layers = LAYERS,
                               .d_inner = 4,
                               .d_state = 2,
                               .d_conv = 2,
                               .dt_rank = 1,
                               .n_heads = 2,
                               .head_dim = 2,
                               .n_groups = 1,
                               .d_ssm = 4,
                               .norm_groups = 1,
                               .gated_norm = true,
                               .dt_limit_high = INFINITY,
                               .n_query_heads = 2,
                               .n_kv_heads = 1,
                               .attention_head_dim = 2,
                               .attention_conv = 2,
                               .softmax_scale = 1.0,
                               .d_mlp = 3,
                               .norm_eps = 1e-3,
                               .mixer_norm_eps = 1e-3};
    static test_parameters all;
    ssm__ref_layer layers[LAYERS];
    ssm__ref_gradients gradients[LAYERS];
    for (int mixer = 0; mixer < LAYERS; mixer++) {
        const test_layer layer =
            test_layer_create(&all, "", &config, (ssm__ref_mixer)mixer,
                              &(test_layer_options){.gate_rank = 1, .gate_groups = 1});
        layers[mixer] = layer.layer;
        gradients[mixer] = layer.gradients;
    }
    fixture f = {.model = {.config = &config, .layers = layers},
                 .gradients = {.layers = gradients},
                 .batch = {.sequences = 1, .tokens = TOKENS, .ids = ids, .labels = labels}};
    f.model.embedding = test_parameter_create(&all, "embedding", 3, 2, 1.0, &f.gradients.embedding);
    f.model.norm_f = test_parameter_create(&all, "norm_f", 2, 0, 1.0, &f.gradients.norm_f);
    f.model.head = f.model.embedding;
    f.gradients.head = f.gradients.embedding;
    const failalloc_case this = {.name = "reference", .run = run_loss, .context = &f};
    assert_true(failalloc_check(&this));
    test_parameters_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
