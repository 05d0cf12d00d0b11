/* What a rule may never be worse than, in every single channel, and when two rules are the same: on
 * the built-in model and on recordings whose Grams are made for it. Errors are sums in float64 over
 * the calibration Gram, read element by element. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/select.h>

#include "test_numbers.h"
#include "test_record.h"
#include "toy_recording.h"

typedef struct subject {
    char root[TEST_PATH_MAX];
    ssm_recording *recording;
    const ssm_recording_info *info;
    int64_t rows, n;
    const char *const *domains; /* NULL-terminated */
} subject;

static const char *const tiny_domains[] = {"prose", "code", NULL};

static void open_recording(subject *s, const char *path, const char *const *domains)
{
    assert_int_equal(ssm_recording_open(path, &s->recording, NULL), SSM_STATUS_OK);
    s->info = ssm_recording_get_info(s->recording);
    s->rows = ssm_recording_channels(s->info);
    s->n = s->info->d_state;
    s->domains = domains;
}

static subject tiny_subject(void)
{
    subject s = {0};
    record_subject from = record_tiny(SSM_ISA_AUTO, 2);
    const ssm_record_options options = {.window = 128, .calibration_windows = 2};
    char path[TEST_PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/rec", test_make_directory(s.root));
    record_into(&from, path, &options);
    record_subject_free(&from);
    open_recording(&s, path, tiny_domains);
    return s;
}

static subject toy_subject(void (*edit)(int64_t, int64_t, const char *, double *, int64_t))
{
    subject s = {0};
    toy_recording toy = toy_recording_shape();
    toy.edit = edit;
    test_make_directory(s.root);
    assert_int_equal(toy_recording_write(&toy, s.root, false, NULL), SSM_STATUS_OK);
    open_recording(&s, s.root, tiny_domains); /* of the same names */
    return s;
}

static void subject_free(subject *s)
{
    ssm_recording_close(s->recording);
    test_remove_directory(s->root);
}

static ssm_mask selected(const subject *s, const char *rule, const char *scope, int64_t budget)
{
    const ssm_select_options options = {.rule = rule, .scope = scope, .budget = budget};
    ssm_mask mask;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_select(s->recording, &options, &mask, &err) != SSM_STATUS_OK) {
        fail_msg("%s, %d: %s", rule, (int)budget, err.message);
    }
    return mask;
}

/* out[rows]: Σ_ij c_i c_j Ḡ_ij of every channel of a layer, c as the mask says; *whole: the largest
 * entry of the Gram, which rounding is relative to. */
static void errors_of(const subject *s, const ssm_mask *mask, int64_t layer, double *out,
                      double *whole)
{
    const int64_t n = s->n;
    memset(out, 0, (size_t)s->rows * sizeof *out);
    *whole = 0.0;
    for (int64_t d = 0; s->domains[d] != NULL; d++) {
        const ssm_tensor *gram = NULL;
        assert_int_equal(
            ssm_recording_calibration_gram(s->recording, s->domains[d], layer, &gram, NULL),
            SSM_STATUS_OK);
        for (int64_t row = 0, at = 0; row < s->rows; row++) {
            const int64_t place = layer * s->rows + row;
            for (int64_t i = 0; i <= n; i++) {
                for (int64_t j = i; j <= n; j++, at++) {
                    double c[2];
                    const int64_t index[2] = {i, j};
                    for (int k = 0; k < 2; k++) {
                        const int64_t mode = place * n + index[k];
                        c[k] =
                            index[k] == n
                                ? (mask->skip_weight ? 1.0 - (double)mask->skip_weight[place] : 0.0)
                            : mask->weight ? 1.0 - (double)mask->weight[mode]
                                           : (mask->keep[mode] ? 0.0 : 1.0);
                    }
                    const double entry = ssm_tensor_get(gram, at);
                    out[row] += (i == j ? 1.0 : 2.0) * c[0] * c[1] * entry;
                    *whole = fmax(*whole, fabs(entry));
                }
            }
        }
    }
}

/* In how many channels `lower` is really lower; fails where it is higher. */
static int64_t expect_not_above(const subject *s, const char *lower, const char *upper,
                                const char *scope, int64_t budget)
{
    ssm_mask a = selected(s, lower, scope, budget);
    ssm_mask b = selected(s, upper, scope, budget);
    double *low = test_doubles(s->rows);
    double *high = test_doubles(s->rows);
    int64_t better = 0;
    for (int64_t layer = 0; layer < s->info->n_layers; layer++) {
        double whole;
        errors_of(s, &a, layer, low, &whole);
        errors_of(s, &b, layer, high, &whole);
        for (int64_t row = 0; row < s->rows; row++) {
            /* Sums of some 150 products in float64. */
            if (!(low[row] <= high[row] + 1e-13 * whole)) {
                fail_msg("%s above %s at %d: layer %d, channel %d: %.17g, %.17g", lower, upper,
                         (int)budget, (int)layer, (int)row, low[row], high[row]);
            }
            better += low[row] < high[row] - 1e-9 * whole;
        }
    }
    free(low);
    free(high);
    ssm_mask_free(&a);
    ssm_mask_free(&b);
    return better;
}

static void never_worse_in_any_channel(void **state)
{
    (void)state;
    subject s = tiny_subject();
    for (int64_t budget = 4; budget <= 12; budget += 4) {
        assert_true(expect_not_above(&s, "optimal", "static", "channel", budget) > 0);
        assert_true(expect_not_above(&s, "greedy-swap", "static", "channel", budget) > 0);
        expect_not_above(&s, "optimal", "greedy-swap", "channel", budget);
        expect_not_above(&s, "optimal", "hankel", "channel", budget);
        expect_not_above(&s, "optimal", "random", "channel", budget);
        assert_true(expect_not_above(&s, "compensated", "static", "channel", budget) > 0);
        assert_true(expect_not_above(&s, "compensated:optimal", "optimal", "channel", budget) > 0);
        assert_true(expect_not_above(&s, "compensated", "static", "layer", budget) > 0);
        expect_not_above(&s, "compensated:random", "random", "channel", budget);
    }
    subject_free(&s);
}

/* ---- equality -------------------------------------------------------------------------------- */

/* Modes that have nothing in common with each other nor with f. */
static void keep_diagonal(int64_t window, int64_t layer, const char *field, double *values,
                          int64_t count)
{
    (void)window;
    (void)layer;
    const int64_t n = toy_recording_shape().d_state;
    if (strcmp(field, "gram") != 0) {
        return;
    }
    for (int64_t at = 0; at < count;) {
        for (int64_t i = 0; i <= n; i++) {
            for (int64_t j = i; j <= n; j++, at++) {
                values[at] = i == j ? values[at] : 0.0;
            }
        }
    }
}

static bool all_one(const subject *s, const ssm_mask *mask)
{
    const int64_t rows = s->info->n_layers * s->rows;
    bool one = true;
    for (int64_t i = 0; i < rows * s->n; i++) {
        one = one && mask->weight[i] == (mask->keep[i] ? 1.0F : 0.0F);
    }
    for (int64_t i = 0; i < rows; i++) {
        one = one && mask->skip_weight[i] == 1.0F;
    }
    return one;
}

static void expect_same_sets(const subject *s, const char *rule, const char *scope, int64_t budget)
{
    ssm_mask want = selected(s, "static", scope, budget);
    ssm_mask got = selected(s, rule, scope, budget);
    assert_memory_equal(got.keep, want.keep, (size_t)(s->info->n_layers * s->rows * s->n));
    assert_true(got.weight == NULL || all_one(s, &got));
    ssm_mask_free(&want);
    ssm_mask_free(&got);
}

static void uncorrelated_modes_are_ranked_by_energy(void **state)
{
    static const char *const scopes[] = {"channel", "layer"};
    (void)state;
    subject s = toy_subject(keep_diagonal);
    for (int k = 0; k < 2; k++) {
        for (int64_t budget = 1; budget <= s.n; budget++) {
            expect_same_sets(&s, "optimal", scopes[k], budget);
            expect_same_sets(&s, "greedy-swap", scopes[k], budget);
            expect_same_sets(&s, "compensated", scopes[k], budget); /* nothing to make up with */
        }
    }
    expect_same_sets(&s, "compensated-shared", "layer", 2);
    subject_free(&s);
}

static void all_modes_kept_cost_nothing(void **state)
{
    static const char *const rules[] = {
        "optimal", "greedy-swap", "compensated", "compensated:optimal", "last", "hankel"};
    (void)state;
    subject s = toy_subject(NULL);
    double *errors = test_doubles(s.rows);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        ssm_mask mask = selected(&s, rules[i], "channel", s.n);
        expect_same_sets(&s, rules[i], "channel", s.n);
        for (int64_t layer = 0; layer < s.info->n_layers; layer++) {
            double whole;
            errors_of(&s, &mask, layer, errors, &whole);
            for (int64_t row = 0; row < s.rows; row++) {
                assert_true(errors[row] == 0.0);
            }
        }
        ssm_mask_free(&mask);
    }
    free(errors);
    subject_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_worse_in_any_channel),
        cmocka_unit_test(uncorrelated_modes_are_ranked_by_energy),
        cmocka_unit_test(all_modes_kept_cost_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
