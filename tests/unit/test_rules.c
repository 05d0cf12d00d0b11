/* Every rule against a second, naive implementation of its formula, at every budget and scope. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_numbers.h"
#include "test_rules_subject.h"
#include "test_session.h"
#include "toy_recording.h"

/* ---- rules that rank ------------------------------------------------------------------------- */

/* The score of a mode in one row, before rows are put together; up to a positive factor. */
static double row_score(const rules_subject *s, const char *rule, int64_t layer, int64_t row,
                        int64_t i)
{
    const int64_t at = row * s->n + i;
    if (strcmp(rule, "static") == 0) {
        return s->energy[layer][at];
    }
    if (strcmp(rule, "hankel-adjoint") == 0) {
        return s->state[layer][at] * s->adjoint[layer][at];
    }
    if (strcmp(rule, "activity") == 0) {
        const ssm_tensor *A = NULL;
        assert_int_equal(ssm_recording_A(s->recording, layer, &A, NULL), SSM_STATUS_OK);
        return s->delta[layer][row] * fabs(ssm_tensor_get(A, at));
    }
    return s->state[layer][at] * s->read[layer][at]; /* hankel, last */
}

static double set_score(const rules_subject *s, const char *rule, const char *scope, int64_t layer,
                        int64_t set, int64_t i)
{
    const int64_t together = s->rows / rules_sets_of(s, scope);
    double sum = 0.0;
    for (int64_t row = set * together; row < (set + 1) * together; row++) {
        sum += row_score(s, rule, layer, row, i);
    }
    return sum;
}

static void expect_ranked(const rules_subject *s, const char *rule, const char *scope)
{
    const int64_t together = s->rows / rules_sets_of(s, scope);
    for (int64_t r = 1; r <= s->n; r++) {
        ssm_mask mask = rules_selected(s, rule, scope, r);
        for (int64_t at = 0; at < s->info->n_layers * s->rows * s->n; at++) {
            const int64_t layer = at / s->n / s->rows, row = at / s->n % s->rows, i = at % s->n;
            const double own = set_score(s, rule, scope, layer, row / together, i);
            int64_t above = 0;
            for (int64_t k = 0; k < s->n; k++) {
                const double other = set_score(s, rule, scope, layer, row / together, k);
                above += other > own || (other == own && k < i);
            }
            assert_int_equal(mask.keep[at], above < r);
        }
        ssm_mask_free(&mask);
    }
}

/* One threshold: mode after mode the highest LAST score of all layers is kept. */
static void expect_last(const rules_subject *s, const char *rule, const char *scope, double power)
{
    const int64_t sets = rules_sets_of(s, scope), together = s->rows / sets;
    const int64_t per_layer = sets * s->n, all = s->info->n_layers * per_layer;
    double *score = test_doubles(all), *last = test_doubles(all);
    uint8_t *keep = calloc((size_t)all, 1);
    for (int64_t at = 0; at < all; at++) {
        score[at] = pow(set_score(s, rule, scope, at / per_layer, at / s->n % sets, at % s->n) /
                            (double)together,
                        power);
    }
    for (int64_t at = 0; at < all; at++) {
        double sum = 0.0;
        for (int64_t k = at / per_layer * per_layer; k < (at / per_layer + 1) * per_layer; k++) {
            sum += score[k] >= score[at] ? score[k] : 0.0;
        }
        last[at] = score[at] / sum;
    }
    for (int64_t r = 1; r <= s->n; r++) {
        for (int64_t turn = 0; turn < sets * s->info->n_layers; turn++) {
            int64_t best = -1;
            for (int64_t at = 0; at < all; at++) {
                best = !keep[at] && (best < 0 || last[at] > last[best]) ? at : best;
            }
            assert_true(best >= 0);
            keep[best < 0 ? 0 : best] = 1;
        }
        ssm_mask mask = rules_selected(s, rule, scope, r);
        assert_true(mask.mean_budget);
        for (int64_t at = 0; at < s->info->n_layers * s->rows * s->n; at++) {
            const int64_t set = at / s->n / together; /* of all layers' sets */
            assert_int_equal(mask.keep[at], keep[set * s->n + at % s->n]);
        }
        ssm_mask_free(&mask);
    }
    free(score);
    free(last);
    free(keep);
}

static void expect_rankings(const rules_subject *s, const char *scope)
{
    const bool heads = s->info->family == SSM_FAMILY_MAMBA2;
    expect_ranked(s, "static", scope);
    expect_ranked(s, "hankel", scope);
    expect_ranked(s, "hankel-adjoint", scope);
    if (!heads) {
        expect_ranked(s, "activity", scope);
    }
    expect_last(s, "last", scope, 0.5);
    expect_last(s, "last:squared", scope, 1.0);
}

static void rules_that_rank(void **state)
{
    (void)state;
    rules_subject s = rules_toy_subject(6);
    expect_rankings(&s, "channel");
    expect_rankings(&s, "layer");
    rules_subject_free(&s);
    s = rules_golden_subject("falcon");
    expect_rankings(&s, "layer");
    rules_subject_free(&s);
    s = rules_golden_subject("mamba2-g4-limit");
    expect_rankings(&s, "head");
    expect_rankings(&s, "group");
    expect_rankings(&s, "layer");
    rules_subject_free(&s);
}

/* Seeds differ, one seed repeats, its sets are nested, every mode is as likely: of 3 layers, 5
 * channels and 64 seeds 960 draws, a half each: 480 ± 4·15.5. */
static void random_sets(void **state)
{
    (void)state;
    rules_subject s = rules_toy_subject(6);
    int64_t kept[6] = {0};
    for (uint64_t seed = 0; seed < 64; seed++) {
        ssm_select_options options = {.rule = "random", .budget = 3, .seed = seed};
        ssm_mask mask, again, more;
        assert_int_equal(ssm_select(s.recording, &options, &mask, NULL), SSM_STATUS_OK);
        assert_int_equal(ssm_select(s.recording, &options, &again, NULL), SSM_STATUS_OK);
        options.budget = 4;
        assert_int_equal(ssm_select(s.recording, &options, &more, NULL), SSM_STATUS_OK);
        assert_memory_equal(mask.keep, again.keep, 90);
        for (int64_t at = 0; at < 90; at++) {
            kept[at % 6] += mask.keep[at];
            assert_true(more.keep[at] >= mask.keep[at]);
        }
        ssm_mask_free(&mask);
        ssm_mask_free(&again);
        ssm_mask_free(&more);
    }
    for (int i = 0; i < 6; i++) {
        assert_true(llabs(kept[i] - 480) <= 62);
    }
    assert_int_equal(kept[0] + kept[1] + kept[2] + kept[3] + kept[4] + kept[5], 64 * 15 * 3);
    rules_subject_free(&s);
}

/* ---- rules that search ----------------------------------------------------------------------- */

static double set_error(const rules_subject *s, const char *scope, int64_t layer, int64_t set,
                        const uint8_t *keep)
{
    const int64_t together = s->rows / rules_sets_of(s, scope);
    double sum = 0.0;
    for (int64_t row = set * together; row < (set + 1) * together; row++) {
        sum += rules_dropped_error(s, layer, row, keep);
    }
    return sum;
}

/* Over all numbers of N bits. */
static double least_error(const rules_subject *s, const char *scope, int64_t layer, int64_t set,
                          int64_t budget, uint8_t *best)
{
    double least = HUGE_VAL;
    for (int64_t bits = 0; bits < 1 << s->n; bits++) {
        uint8_t keep[16];
        int64_t kept = 0;
        for (int64_t i = 0; i < s->n; i++) {
            keep[i] = (bits >> i & 1) != 0;
            kept += keep[i];
        }
        const double error = kept == budget ? set_error(s, scope, layer, set, keep) : HUGE_VAL;
        if (error < least) {
            least = error;
            memcpy(best, keep, (size_t)s->n);
        }
    }
    return least;
}

/* Returns in how many sets and budgets the best is better than static. optimal is the best of all
 * sets; greedy-swap lies between it and static, and no exchange of two modes betters it. Sums are
 * float64: 1e-12 of the largest. */
static int64_t expect_searched(const rules_subject *s, const char *scope)
{
    const int64_t together = s->rows / rules_sets_of(s, scope);
    int64_t better = 0;
    for (int64_t r = 1; r <= s->n; r++) {
        ssm_mask fixed = rules_selected(s, "static", scope, r);
        ssm_mask optimal = rules_selected(s, "optimal", scope, r);
        ssm_mask greedy = rules_selected(s, "greedy-swap", scope, r);
        for (int64_t row = 0; row < s->info->n_layers * s->rows; row += together) {
            const int64_t layer = row / s->rows, set = row % s->rows / together;
            const uint8_t ones[16] = {0};
            const double rounding = 1e-12 * fabs(set_error(s, scope, layer, set, ones));
            uint8_t best[16];
            const double least = least_error(s, scope, layer, set, r, best);
            assert_memory_equal(optimal.keep + row * s->n, best, (size_t)s->n);
            uint8_t *found = greedy.keep + row * s->n;
            const double error = set_error(s, scope, layer, set, found);
            const double simple = set_error(s, scope, layer, set, fixed.keep + row * s->n);
            assert_true(least <= error + rounding && error <= simple + rounding);
            better += least < simple - rounding;
            for (int64_t i = 0; i < s->n; i++) {
                for (int64_t k = 0; k < s->n && found[i]; k++) {
                    if (!found[k]) {
                        found[i] = 0;
                        found[k] = 1;
                        assert_true(set_error(s, scope, layer, set, found) >= error - rounding);
                        found[i] = 1;
                        found[k] = 0;
                    }
                }
            }
        }
        ssm_mask_free(&fixed);
        ssm_mask_free(&optimal);
        ssm_mask_free(&greedy);
    }
    return better;
}

static void rules_that_search(void **state)
{
    (void)state;
    rules_subject s = rules_toy_subject(6);
    assert_true(expect_searched(&s, "channel") > 0); /* or static would do as well */
    expect_searched(&s, "layer");
    rules_subject_free(&s);
    s = rules_toy_subject(1);
    ssm_mask mask = rules_selected(&s, "optimal", "channel", 1);
    assert_int_equal(mask.keep[0], 1);
    ssm_mask_free(&mask);
    rules_subject_free(&s);
    s = rules_golden_subject("mamba-untied-bias-conv3");
    assert_true(expect_searched(&s, "channel") > 0);
    expect_searched(&s, "layer");
    rules_subject_free(&s);
}

/* The sets do not depend on threads or instruction set. */
static void searching_is_the_same_everywhere(void **state)
{
    (void)state;
    rules_subject s = rules_toy_subject(9);
    ssm_mask want = rules_selected(&s, "optimal", "channel", 4);
    for (int isa = SSM_ISA_PORTABLE; isa <= SSM_ISA_AVX512; isa++) {
        ssm_pool *pool = test_pool_create(isa);
        const ssm_select_options options = {
            .rule = "optimal", .budget = 4, .isa = (ssm_isa)isa, .pool = pool};
        ssm_mask mask;
        if (ssm_isa_supported((ssm_isa)isa)) {
            assert_int_equal(ssm_select(s.recording, &options, &mask, NULL), SSM_STATUS_OK);
            assert_memory_equal(mask.keep, want.keep, 3 * 5 * 9);
            ssm_mask_free(&mask);
        }
        ssm_pool_free(pool);
    }
    ssm_mask_free(&want);
    rules_subject_free(&s);
}

/* ---- compensated ----------------------------------------------------------------------------- */

/* Gauss-Jordan with row exchange: solves A x = b, [k][k]. */
static void eliminate(double *A, double *b, int64_t k)
{
    for (int64_t col = 0; col < k; col++) {
        int64_t pivot = col;
        for (int64_t i = col; i < k; i++) {
            pivot = fabs(A[i * k + col]) > fabs(A[pivot * k + col]) ? i : pivot;
        }
        for (int64_t j = 0; j < k; j++) {
            const double moved = A[col * k + j];
            A[col * k + j] = A[pivot * k + j];
            A[pivot * k + j] = moved;
        }
        const double moved = b[col];
        b[col] = b[pivot];
        b[pivot] = moved;
        for (int64_t i = 0; i < k; i++) {
            const double factor = i == col ? 0.0 : A[i * k + col] / A[col * k + col];
            for (int64_t j = 0; j < k; j++) {
                A[i * k + j] -= factor * A[col * k + j];
            }
            b[i] -= factor * b[col];
        }
    }
    for (int64_t i = 0; i < k; i++) {
        b[i] /= A[i * k + i];
    }
}

/* One row's (w, v), in the places of all modes and f. */
static void solve_row(const rules_subject *s, int64_t layer, int64_t row, const uint8_t *keep,
                      double ridge, double *out)
{
    int64_t kept[RULES_MODES], k = 0;
    double A[RULES_MODES * RULES_MODES], b[RULES_MODES];
    for (int64_t i = 0; i <= s->n; i++) {
        out[i] = 0.0;
        kept[k] = i;
        k += i == s->n || keep[i];
    }
    for (int64_t i = 0; i < k; i++) {
        b[i] = 0.0;
        for (int64_t j = 0; j < s->n; j++) {
            b[i] += keep[j] ? 0.0 : rules_entry(s, layer, row, kept[i], j);
        }
        for (int64_t j = 0; j < k; j++) {
            A[i * k + j] =
                rules_entry(s, layer, row, kept[i], kept[j]) * (i == j ? 1.0 + ridge : 1.0);
        }
    }
    eliminate(A, b, k);
    for (int64_t i = 0; i < k; i++) {
        out[kept[i]] = b[i];
    }
}

/* 1ᵀ(G_DD − G_DK G_KK⁻¹ G_KD)1 = 1ᵀG_DD1 − 1ᵀG_DK w without ridge. */
static double schur(const rules_subject *s, int64_t layer, int64_t row, const uint8_t *keep)
{
    double w[RULES_MODES];
    solve_row(s, layer, row, keep, 0.0, w);
    double sum = rules_dropped_error(s, layer, row, keep);
    for (int64_t i = 0; i <= s->n; i++) {
        for (int64_t j = 0; j < s->n; j++) {
            sum -= keep[j] ? 0.0 : w[i] * rules_entry(s, layer, row, i, j);
        }
    }
    return sum;
}

static void expect_compensated(const rules_subject *s, const char *rule, const char *base,
                               const char *scope, double ridge)
{
    for (int64_t r = 1; r < s->n; r++) {
        const ssm_select_options options = {
            .rule = rule, .scope = scope, .budget = r, .ridge = ridge, .seed = 5};
        ssm_mask mask, sets = rules_selected(s, base, scope, r);
        assert_int_equal(ssm_select(s->recording, &options, &mask, NULL), SSM_STATUS_OK);
        assert_memory_equal(mask.keep, sets.keep, (size_t)(s->info->n_layers * s->rows * s->n));
        for (int64_t at = 0; at < s->info->n_layers * s->rows; at++) {
            const int64_t layer = at / s->rows, row = at % s->rows;
            const uint8_t *keep = mask.keep + at * s->n;
            double want[RULES_MODES], c[RULES_MODES];
            solve_row(s, layer, row, keep, ridge, want);
            for (int64_t i = 0; i <= s->n; i++) {
                const bool kept = i == s->n || keep[i];
                const double got =
                    (double)(i == s->n ? mask.skip_weight[at] : mask.weight[at * s->n + i]);
                c[i] = 1.0 - got;
                /* float32 weights of size 1; solved twice in float64 */
                assert_true(fabs(got - (kept ? 1.0 + want[i] : 0.0)) <=
                            1e-6 * (1.0 + fabs(want[i])));
            }
            const double error = rules_form(s, layer, row, c),
                         plain = rules_dropped_error(s, layer, row, keep);
            assert_true(error <= plain); /* in every channel */
            /* the Schur complement from below; near it where the ridge is next to nothing */
            const double least = schur(s, layer, row, keep);
            assert_true(error >= least - 1e-9 * plain);
            assert_true(ridge > 1e-6 || error <= least + 1e-5 * plain);
        }
        ssm_mask_free(&mask);
        ssm_mask_free(&sets);
    }
}

static void weights_that_compensate(void **state)
{
    (void)state;
    rules_subject s = rules_toy_subject(6);
    expect_compensated(&s, "compensated", "static", "channel", 1e-3);
    expect_compensated(&s, "compensated", "static", "channel", 1e-9);
    expect_compensated(&s, "compensated:optimal", "optimal", "layer", 1e-4);
    expect_compensated(&s, "compensated:last", "last", "channel", 1e-4);
    expect_compensated(&s, "compensated:random", "random", "channel", 1e-4);
    rules_subject_free(&s);
    s = rules_golden_subject("mamba2-g4-limit");
    expect_compensated(&s, "compensated", "static", "head", 1e-3);
    expect_compensated(&s, "compensated:hankel", "hankel", "group", 1e-3);
    rules_subject_free(&s);
}

/* ---- curves ---------------------------------------------------------------------------------- */

/* Every point of every rule's curve is the error of its mask, taken window by window from Grams
 * (evaluation) or from the domains' sums. 1e-10: order of the sums. */
static void expect_curve(const rules_subject *s, const char *rule, const char *scope)
{
    ssm_error_curve curve, point;
    const ssm_select_options options = {.rule = rule, .scope = scope, .seed = 5};
    for (int role = SSM_ROLE_CALIBRATION; role <= SSM_ROLE_EVALUATION; role++) {
        assert_int_equal(ssm_select_curve(s->recording, &options, (ssm_role)role, &curve, NULL),
                         SSM_STATUS_OK);
        assert_true(curve.n_budgets == s->n && curve.n_layers == s->info->n_layers);
        for (int64_t r = 1; r <= s->n; r++) {
            ssm_mask mask = rules_selected(s, rule, scope, r);
            assert_int_equal(ssm_select_error(s->recording, &mask, (ssm_role)role, &point, NULL),
                             SSM_STATUS_OK);
            assert_true(curve.budgets[r - 1] == r && point.budgets[0] == r);
            double mean = 0.0;
            for (int64_t l = 0; l < curve.n_layers; l++) {
                const double at = curve.error[l * s->n + r - 1];
                assert_true(fabs(at - point.error[l]) <= 1e-10 * (1e-3 + at));
                mean += at / (double)curve.n_layers;
                assert_true(r < s->n || fabs(at) <= 1e-10);
            }
            assert_true(fabs(mean - curve.mean[r - 1]) <= 1e-12);
            ssm_error_curve_free(&point);
            ssm_mask_free(&mask);
        }
        ssm_error_curve_free(&curve);
    }
}

static void curves_are_errors_of_masks(void **state)
{
    (void)state;
    static const char *const rules[] = {"static",  "last",        "random",
                                        "optimal", "greedy-swap", "compensated:hankel"};
    rules_subject s = rules_toy_subject(6);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        expect_curve(&s, rules[i], "channel");
        expect_curve(&s, rules[i], "layer");
    }
    rules_subject_free(&s);
    s = rules_golden_subject("mamba2-g4-limit");
    expect_curve(&s, "hankel", "group");
    expect_curve(&s, "compensated:greedy-swap", "head");
    rules_subject_free(&s);
}

/* E of a mask with weights, by the definition: (5) with coefficients, over evaluation windows. */
static void errors_by_the_definition(void **state)
{
    (void)state;
    rules_subject s = rules_toy_subject(6);
    toy_recording toy = toy_recording_shape();
    ssm_mask mask = rules_selected(&s, "compensated", "channel", 3);
    ssm_error_curve got;
    assert_int_equal(ssm_select_error(s.recording, &mask, SSM_ROLE_EVALUATION, &got, NULL),
                     SSM_STATUS_OK);
    double *modes = test_doubles(toy.window * 5 * 7);
    for (int64_t layer = 0; layer < 3; layer++) {
        double error = 0.0, output = 0.0;
        for (int64_t w = 0; w < toy_recording_windows(&toy); w++) {
            if (toy_recording_role(&toy, w) == SSM_ROLE_CALIBRATION) {
                continue;
            }
            toy_modes(&toy, w, layer, modes);
            for (int64_t th = 0; th < toy.window * 5; th++) {
                const int64_t row = layer * 5 + th % 5;
                double y = modes[th * 7 + 6], pruned = y * (double)mask.skip_weight[row];
                for (int64_t i = 0; i < 6; i++) {
                    y += modes[th * 7 + i];
                    pruned += modes[th * 7 + i] * (double)mask.weight[row * 6 + i];
                }
                error += (y - pruned) * (y - pruned);
                output += y * y;
            }
        }
        /* Grams and energies are stored in float32 */
        assert_true(fabs(got.error[layer] - sqrt(error / output)) <= 1e-6);
    }
    free(modes);
    ssm_error_curve_free(&got);
    ssm_mask_free(&mask);
    rules_subject_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_that_rank),
        cmocka_unit_test(random_sets),
        cmocka_unit_test(rules_that_search),
        cmocka_unit_test(searching_is_the_same_everywhere),
        cmocka_unit_test(weights_that_compensate),
        cmocka_unit_test(curves_are_errors_of_masks),
        cmocka_unit_test(errors_by_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
