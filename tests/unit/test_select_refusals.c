/* What rules and error curves refuse, and that they say what to do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssmscope/select.h"
#include "test_record.h"
#include "test_rules_subject.h"
#include "toy_recording.h"

static void expect_usage(const char *what, ssm_status status, const ssm_error *err,
                         const char *message)
{
    if (status != SSM_STATUS_USAGE || strstr(err->message, message) == NULL) {
        fail_msg("%s: expected '%s', found status %d and '%s'", what, message, (int)status,
                 err->message);
    }
}

/* Both calls refuse a rule for the same reason. */
static void expect_refused(ssm_recording *recording, const char *rule, const char *scope,
                           const char *message)
{
    const ssm_select_options options = {.rule = rule, .budget = 2, .scope = scope};
    ssm_error err;
    ssm_mask mask;
    ssm_error_curve curve;
    ssm_error_clear(&err);
    expect_usage(rule, ssm_select(recording, &options, &mask, &err), &err, message);
    assert_null(mask.keep);
    ssm_error_clear(&err);
    expect_usage(rule, ssm_select_curve(recording, &options, SSM_ROLE_EVALUATION, &curve, &err),
                 &err, message);
    assert_null(curve.error);
}

static void scopes_of_heads(void **state)
{
    (void)state;
    rules_subject s = rules_golden_subject("mamba2-g4-limit"); /* N = 24 */
    static const char *const by_head[] = {
        "hankel",      "hankel-adjoint",    "last", "optimal", "greedy-swap",
        "compensated", "compensated:random"};
    for (size_t i = 0; i < sizeof by_head / sizeof by_head[0]; i++) {
        expect_refused(s.recording, by_head[i], "channel", "per head, not per channel: choose");
    }
    expect_refused(s.recording, "compensated:last", NULL, "per head, not per channel: choose");
    expect_refused(s.recording, "activity", "head", "they all tie");
    expect_refused(s.recording, "activity", "channel", "they all tie");
    expect_refused(s.recording, "compensated:activity", "layer", "they all tie");
    expect_refused(s.recording, "optimal", "head", "at most 20 modes");
    expect_refused(s.recording, "compensated:optimal", "group", "use greedy-swap");
    /* a mask of channels can be made, but its error is not in the recording */
    const ssm_select_options options = {.rule = "static", .budget = 2};
    ssm_error_curve curve;
    ssm_mask mask;
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_select(s.recording, &options, &mask, NULL), SSM_STATUS_OK);
    expect_usage("mask of channels",
                 ssm_select_error(s.recording, &mask, SSM_ROLE_EVALUATION, &curve, &err), &err,
                 "judge the mask with eval");
    ssm_error_clear(&err);
    expect_usage("curve of channels",
                 ssm_select_curve(s.recording, &options, SSM_ROLE_EVALUATION, &curve, &err), &err,
                 "choose --scope head");
    ssm_mask_free(&mask);
    rules_subject_free(&s);
}

/* The error of a mask of `made` on a recording of `toy`. */
static void expect_error_refused(const toy_recording *toy, int64_t layers, int64_t rows, int64_t n,
                                 const char *digest, ssm_role role, const char *message)
{
    char root[TEST_PATH_MAX];
    ssm_recording *recording = NULL;
    ssm_error_curve curve;
    ssm_mask mask;
    ssm_error err;
    ssm_error_clear(&err);
    test_make_directory(root);
    assert_int_equal(toy_recording_write(toy, root, false, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_recording_open(root, &recording, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_mask_create(layers, rows, n, &mask, NULL), SSM_STATUS_OK);
    snprintf(mask.model_digest, sizeof mask.model_digest, "%s", digest);
    expect_usage("mask", ssm_select_error(recording, &mask, role, &curve, &err), &err, message);
    assert_null(curve.error);
    ssm_mask_free(&mask);
    ssm_recording_close(recording);
    test_remove_directory(root);
}

static void errors_of_masks(void **state)
{
    (void)state;
    toy_recording toy = toy_recording_shape();
    const ssm_role role = SSM_ROLE_EVALUATION;
    expect_error_refused(&toy, 2, 5, 6, "", role, "the recording is of 3 of 5 with 6");
    expect_error_refused(&toy, 3, 4, 6, "", role, "for 3 layers of 4 channels");
    expect_error_refused(&toy, 3, 5, 7, "", role, "channels with 7 modes");
    expect_error_refused(&toy, 3, 5, 6, "xxh3-128:other", role,
                         "for model xxh3-128:other, but the recording is of model xxh3-128:model");
    toy_recording without = toy;
    without.evaluation = 0;
    expect_error_refused(&without, 3, 5, 6, "", role, "record with --evaluation-windows");
    without = toy;
    without.calibration = 0;
    expect_error_refused(&without, 3, 5, 6, "", SSM_ROLE_CALIBRATION,
                         "record with --calibration-windows");
    without = toy;
    without.no_gram = true;
    expect_error_refused(&without, 3, 5, 6, "", role, "made with --no-gram");
}

/* A recording of some layers has curves, but no threshold for all and no mask. */
static void curves_of_some_layers(void **state)
{
    (void)state;
    const int64_t layers[] = {0, 2};
    toy_recording toy = toy_recording_shape();
    toy.layers = layers;
    toy.n_recorded = 2;
    char root[TEST_PATH_MAX];
    ssm_recording *recording = NULL;
    ssm_error_curve curve;
    test_make_directory(root);
    assert_int_equal(toy_recording_write(&toy, root, false, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_recording_open(root, &recording, NULL), SSM_STATUS_OK);
    const char *const rules[] = {"static", "optimal", "compensated"};
    for (int i = 0; i < 3; i++) {
        const ssm_select_options options = {.rule = rules[i]};
        assert_int_equal(ssm_select_curve(recording, &options, SSM_ROLE_EVALUATION, &curve, NULL),
                         SSM_STATUS_OK);
        assert_true(curve.n_layers == 2 && curve.layers[0] == 0 && curve.layers[1] == 2);
        assert_true(curve.error[0] > 0.0 && curve.error[6] > 0.0 && curve.error[11] < 1e-6);
        ssm_error_curve_free(&curve);
    }
    expect_refused(recording, "last", NULL, "record without --layers");
    expect_refused(recording, "compensated:last", NULL, "record without --layers");
    ssm_recording_close(recording);
    test_remove_directory(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scopes_of_heads),
        cmocka_unit_test(errors_of_masks),
        cmocka_unit_test(curves_of_some_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
