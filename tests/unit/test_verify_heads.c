/* ssm_verify on models of Mamba-2: its bounds hold at both scopes, the norm is measured, threads do
 * not show, layers of attention are passed by. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_edit.h"
#include "test_golden.h"
#include "test_numbers.h"
#include "test_record.h"

enum { WINDOW = 150, WINDOWS = 3, TOKENS = 500 };

static record_subject open_subject(const char *directory)
{
    return record_random(test_model_open(directory, SSM_ISA_AUTO), 1, TOKENS, 80);
}

static ssm_verify_result verify(const record_subject *subject, ssm_pool *pool)
{
    const ssm_verify_options options = {.window = WINDOW, .windows = WINDOWS, .pool = pool};
    ssm_verify_result result;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_verify(subject->model, &subject->corpus, &options, &result, &err) != SSM_STATUS_OK) {
        fail_msg("verify: %s", err.message);
    }
    return result;
}

/* Layers of the model that have states, in order; returns how many. */
static int64_t state_layers(const ssm_model *model, int64_t layers[16])
{
    int64_t count = 0;
    for (int64_t i = 0; i < ssm_model_config(model)->n_layers; i++) {
        if (ssm_checkpoint_layer_kind(ssm_model_checkpoint(model), i) != SSM_LAYER_ATTENTION) {
            layers[count++] = i;
        }
    }
    return count;
}

static void check_model(const char *directory)
{
    record_subject subject = open_subject(directory);
    const ssm_config *c = ssm_model_config(subject.model);
    ssm_verify_result r = verify(&subject, NULL);
    int64_t layers[16];
    int64_t budgets[3];
    const int64_t n_layers = state_layers(subject.model, layers);
    const int64_t n_budgets = ssm_default_budgets(c->d_state, budgets);
    printf("%s: reconstruction %.2e, reference %.2e, after the norm %.2e; deployment median %.2e, "
           "max %.2e\n",
           directory, r.reconstruction_max, r.reconstruction_reference_max,
           r.reconstruction[0].rel_l2_after_norm, r.deployment_median, r.deployment_max);
    assert_true(r.passed);
    assert_true(r.bound_reconstruction == 1e-6 && r.bound_reference == 2e-6);
    assert_true(r.bound_deployment_median == 1e-6 && r.bound_deployment_max == 3.6e-5);
    assert_int_equal(r.n_reconstruction, WINDOWS * n_layers);
    assert_int_equal(r.n_deployment, WINDOWS * n_layers * 2 * n_budgets);
    for (int64_t i = 0; i < r.n_reconstruction; i++) {
        assert_int_equal(r.reconstruction[i].layer, layers[i % n_layers]);
        assert_int_equal(r.reconstruction[i].window, i / n_layers);
        /* the norm's own float32 roundings: 64 terms of a sum, a root, two products */
        assert_true(isnan(r.reconstruction[i].rel_l2_after_norm) == !c->gated_norm);
        assert_false(r.reconstruction[i].rel_l2_after_norm > 5e-7);
        assert_true(r.reconstruction[i].rel_l2 > 0.0);
    }
    for (int64_t i = 0; i < r.n_deployment; i++) {
        const ssm_verify_deployment *d = &r.deployment[i];
        assert_int_equal(d->budget, budgets[i % n_budgets]);
        assert_int_equal(d->scope, i / n_budgets % 2 == 0 ? SSM_SCOPE_CHANNEL : SSM_SCOPE_HEAD);
        assert_true(d->predicted > 0.0 && d->actual > 0.0 && d->error > 0.0);
        assert_true(isnan(d->error_after_norm) == !c->gated_norm);
        assert_false(d->error_after_norm <= 0.0);
        assert_true(d->relative_deviation == fabs(d->actual - d->predicted) / d->predicted);
        if (d->scope == SSM_SCOPE_HEAD) { /* its masks are others than the channels' */
            assert_true(d->actual != r.deployment[i - n_budgets].actual);
        }
    }
    ssm_verify_result_free(&r);
    record_subject_free(&subject);
}

static void bounds_hold_at_both_scopes(void **state)
{
    (void)state;
    static const char *const models[] = {
        "mamba2-g1-chunks", "mamba2-g4-limit", "hybrid/mamba2-attention", "hybrid/mamba2-no-norm",
        "hybrid/mamba2-wide" /* d_ssm < d_inner, the gate behind the norm */};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[TEST_PATH_MAX];
        check_model(golden_model_path(path, models[i]));
    }
}

/* Verifying a model whose gate follows the norm looks at in_proj, but not at that of attention:
 * here it has 400 rows, those of the other layers have 126. */
static void wide_attention_is_passed_by(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    edit *e = edit_create(golden_model_path(path, "hybrid/mamba2-attention"));
    edit_config(e, "ssm_cfg",
                "{\"layer\": \"Mamba2\", \"d_state\": 6, \"headdim\": 8, \"ngroups\": 2, "
                "\"d_conv\": 3, \"norm_before_gate\": true}");
    edit_config(e, "attn_cfg",
                "{\"causal\": true, \"d_conv\": 4, \"head_dim\": 20, \"num_heads\": 16, "
                "\"num_heads_kv\": 2, \"out_proj_bias\": false, \"qkv_proj_bias\": false, "
                "\"rotary_emb_dim\": 6}");
    for (int layer = 1; layer <= 3; layer += 2) {
        static const struct {
            const char *field;
            int64_t dims[3];
        } wide[] = {{"in_proj.weight", {400, 24}},
                    {"conv1d.weight", {400, 1, 4}},
                    {"conv1d.bias", {400}},
                    {"out_proj.weight", {24, 320}}};
        for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
            char name[EDIT_NAME];
            snprintf(name, sizeof name, "backbone.layers.%d.mixer.%s", layer, wide[i].field);
            edit_reshape(e, name, SSM_DTYPE_BF16, wide[i].dims);
        }
    }
    edit_write(e);
    check_model(e->directory);
    edit_free(e);
}

static void threads_do_not_show(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    record_subject subject = open_subject(golden_model_path(path, "mamba2-g4-limit"));
    ssm_pool *pool = test_pool_create(3);
    ssm_verify_result one = verify(&subject, NULL);
    ssm_verify_result three = verify(&subject, pool);
    assert_int_equal(one.n_deployment, three.n_deployment);
    for (int64_t i = 0; i < one.n_reconstruction; i++) {
        assert_true(one.reconstruction[i].rel_l2 == three.reconstruction[i].rel_l2);
        assert_true(one.reconstruction[i].rel_l2_after_norm ==
                    three.reconstruction[i].rel_l2_after_norm);
    }
    for (int64_t i = 0; i < one.n_deployment; i++) {
        assert_true(one.deployment[i].predicted == three.deployment[i].predicted);
        assert_true(one.deployment[i].actual == three.deployment[i].actual);
        assert_true(one.deployment[i].error_after_norm == three.deployment[i].error_after_norm);
    }
    ssm_pool_free(pool);
    ssm_verify_result_free(&one);
    ssm_verify_result_free(&three);
    record_subject_free(&subject);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_hold_at_both_scopes),
        cmocka_unit_test(wide_attention_is_passed_by),
        cmocka_unit_test(threads_do_not_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
