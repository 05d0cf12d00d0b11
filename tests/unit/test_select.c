/* The static rule on written recordings, and requests that are refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssmscope/select.h"
#include "test_numbers.h"
#include "test_paths.h"
#include "toy_recording.h"

/* Mode i is kept when fewer than r modes have a higher sum of m² over the calibration windows. */
static void expect_static(const toy_recording *toy, int64_t layer, int64_t r, const uint8_t *keep)
{
    int64_t n = toy->d_state;
    double *energy = test_doubles(toy->channels * n);
    double *modes = test_doubles(toy->window * toy->channels * (n + 1));
    for (int64_t w = 0; w < toy_recording_windows(toy); w++) {
        if (toy_recording_role(toy, w) == SSM_ROLE_EVALUATION) {
            continue;
        }
        toy_modes(toy, w, layer, modes);
        for (int64_t th = 0; th < toy->window * toy->channels; th++) {
            for (int64_t i = 0; i < n; i++) {
                energy[th % toy->channels * n + i] +=
                    modes[th * (n + 1) + i] * modes[th * (n + 1) + i];
            }
        }
    }
    for (int64_t h = 0; h < toy->channels; h++) {
        for (int64_t i = 0; i < n; i++) {
            int64_t above = 0;
            for (int64_t k = 0; k < n; k++) {
                above += energy[h * n + k] > energy[h * n + i] ? 1 : 0;
            }
            assert_int_equal(keep[h * n + i], above < r ? 1 : 0);
        }
    }
    free(energy);
    free(modes);
}

static void the_static_rule_keeps_the_highest_calibration_energies(void **state)
{
    (void)state;
    toy_recording toy = toy_recording_shape();
    char root[TEST_PATH_MAX];
    char path[TEST_PATH_MAX * 2];
    ssm_recording *recording = toy_recording_open(&toy, root);
    for (int64_t r = 1; r <= toy.d_state; r++) {
        ssm_mask mask;
        ssm_select_options options = {
            .rule = "static", .budget = r, .scope = r == 2 ? "channel" : NULL};
        assert_int_equal(ssm_select(recording, &options, &mask, NULL), SSM_STATUS_OK);
        assert_true(mask.n_layers == 3 && mask.n_channels == 5 && mask.d_state == 6 &&
                    mask.budget == r);
        for (int64_t layer = 0; layer < 3; layer++) {
            expect_static(&toy, layer, r, mask.keep + layer * 5 * 6);
        }
        assert_string_equal(mask.rule, "static");
        assert_string_equal(mask.model_digest, "xxh3-128:model");
        assert_string_equal(mask.recording_digest, ssm_recording_get_info(recording)->digest);
        snprintf(path, sizeof path, "%s/mask.safetensors", root);
        assert_int_equal(ssm_mask_write(&mask, path, "test", NULL), SSM_STATUS_OK);
        ssm_mask_free(&mask);
    }
    toy_recording_close(recording, root);
}

static void requests_that_cannot_be_met_are_refused(void **state)
{
    (void)state;
    const int64_t layers[] = {0, 2};
    toy_recording plain = toy_recording_shape();
    toy_recording partial = plain;
    toy_recording no_calibration = plain;
    toy_recording no_gram = plain;
    toy_recording many = plain;
    no_gram.no_gram = true;
    many.d_state = 21;
    partial.layers = layers;
    partial.n_recorded = 2;
    no_calibration.calibration = 0;
    const struct {
        const toy_recording *toy;
        ssm_select_options options;
        const char *message;
    } cases[] = {
        {&plain, {.rule = "statik", .budget = 2}, "did you mean 'static'?"},
        {&plain, {.rule = "xyz", .budget = 2}, "there is no rule 'xyz'"},
        {&plain, {.rule = "static", .budget = 0}, "1 … 6; found 0"},
        {&plain, {.rule = "static", .budget = 7}, "1 … 6; found 7"},
        {&plain, {.rule = "static", .budget = 2, .scope = "row"}, "scope 'row' is not known"},
        {&plain, {.rule = "static", .budget = 2, .scope = "head"}, "which has no heads"},
        {&plain, {.rule = "static", .budget = 2, .scope = "group"}, "which has no groups"},
        {&plain, {.rule = "static:x", .budget = 2}, "takes nothing behind its name"},
        {&plain, {.rule = "last:cubed", .budget = 2}, "expected squared, found 'cubed'"},
        {&plain, {.rule = "compensated:best", .budget = 2}, "greedy-swap or last, found 'best'"},
        {&plain, {.rule = "compensated", .budget = 2, .ridge = -1.0}, "found -1"},
        {&many, {.rule = "optimal", .budget = 2}, "use greedy-swap"},
        {&no_gram, {.rule = "optimal", .budget = 2}, "made with --no-gram"},
        {&no_gram, {.rule = "compensated:hankel", .budget = 2}, "made with --no-gram"},
        {&no_calibration, {.rule = "hankel", .budget = 2}, "--calibration-windows"},
        {&no_calibration, {.rule = "compensated:random", .budget = 2}, "--calibration-windows"},
        {&partial, {.rule = "static", .budget = 2}, "all 3 layers but the recording has only 2"},
        {&no_calibration, {.rule = "static", .budget = 2}, "--calibration-windows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char root[TEST_PATH_MAX];
        ssm_recording *recording = toy_recording_open(cases[i].toy, root);
        ssm_mask mask;
        ssm_error err;
        ssm_error_clear(&err);
        ssm_status status = ssm_select(recording, &cases[i].options, &mask, &err);
        if (status != SSM_STATUS_USAGE || strstr(err.message, cases[i].message) == NULL ||
            mask.keep != NULL) {
            fail_msg("expected '%s', found status %d and '%s'", cases[i].message, (int)status,
                     err.message);
        }
        toy_recording_close(recording, root);
    }
}

static void the_rules_have_names(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "static", "hankel",  "hankel-adjoint", "last",        "activity",
        "random", "optimal", "greedy-swap",    "compensated", "compensated-shared"};
    const char *const *names = ssm_select_rules();
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_string_equal(names[i], expected[i]);
        assert_true(ssm_select_is_rule(names[i]));
    }
    assert_null(names[sizeof expected / sizeof expected[0]]);
    assert_true(ssm_select_is_rule("last:squared"));
    assert_true(ssm_select_is_rule("compensated:greedy-swap"));
    assert_false(ssm_select_is_rule("static:"));
    assert_false(ssm_select_is_rule("stat"));
    assert_false(ssm_select_is_rule("compensated:compensated"));
    assert_false(ssm_select_is_rule("unpruned"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_static_rule_keeps_the_highest_calibration_energies),
        cmocka_unit_test(requests_that_cannot_be_met_are_refused),
        cmocka_unit_test(the_rules_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
