/* compensated-shared against one naive system with all channels' unknowns; what it may weigh in
 * which family; that its error is below that of the sets alone and above compensated's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_rules_subject.h"

static const double ridge = 1e-3;

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

/* Unknowns of a set: the kept modes' w (none where modes have no weights), then v of every row. */
static double *solve_all(const rules_subject *s, int64_t layer, int64_t first, int64_t rows,
                         const uint8_t *keep, bool modes, int64_t *n_modes)
{
    int64_t places[RULES_MODES];
    int64_t m = 0;
    for (int64_t i = 0; modes && i < s->n; i++) {
        places[m] = i;
        m += keep[i] != 0;
    }
    const int64_t k = m + rows;
    double *A = calloc((size_t)(k * k), sizeof *A);
    double *b = calloc((size_t)k, sizeof *b);
    assert_non_null(A);
    assert_non_null(b);
    for (int64_t h = 0; h < rows; h++) {
        for (int64_t a = 0; a <= m; a++) { /* m: the feed-through of row h */
            const int64_t at = a == m ? m + h : a;
            const int64_t i = a == m ? s->n : places[a];
            for (int64_t c = 0; c <= m; c++) {
                const int64_t other = c == m ? m + h : c;
                const int64_t j = c == m ? s->n : places[c];
                const double scale = i == j ? 1.0 + ridge : 1.0;
                A[at * k + other] += scale * rules_entry(s, layer, first + h, i, j);
            }
            for (int64_t j = 0; j < s->n; j++) {
                b[at] += keep[j] ? 0.0 : rules_entry(s, layer, first + h, i, j);
            }
        }
    }
    eliminate(A, b, k);
    free(A);
    *n_modes = m;
    return b;
}

/* Squared error of a row under a mask's weights. */
static double error_of(const rules_subject *s, const ssm_mask *mask, int64_t layer, int64_t row)
{
    const int64_t at = layer * s->rows + row;
    double c[RULES_MODES];
    for (int64_t i = 0; i < s->n; i++) {
        c[i] = 1.0 - (double)mask->weight[at * s->n + i];
    }
    c[s->n] = 1.0 - (double)mask->skip_weight[at];
    return rules_form(s, layer, row, c);
}

static void check_set(const rules_subject *s, const ssm_mask *mask, const ssm_mask *best,
                      int64_t layer, int64_t first, int64_t rows, bool modes)
{
    int64_t m;
    const uint8_t *keep = mask->keep + (layer * s->rows + first) * s->n;
    double *want = solve_all(s, layer, first, rows, keep, modes, &m);
    double error = 0.0;
    double plain = 0.0;
    double least = 0.0;
    for (int64_t h = 0; h < rows; h++) {
        const int64_t at = layer * s->rows + first + h;
        int64_t a = 0;
        for (int64_t i = 0; i < s->n; i++) {
            const double w = !keep[i] ? -1.0 : modes ? want[a++] : 0.0;
            /* float32 weights of size 1; solved twice in float64 */
            assert_true(fabs((double)mask->weight[at * s->n + i] - (1.0 + w)) <=
                        1e-6 * (1.0 + fabs(w)));
        }
        assert_true(fabs((double)mask->skip_weight[at] - (1.0 + want[m + h])) <=
                    1e-6 * (1.0 + fabs(want[m + h])));
        error += error_of(s, mask, layer, first + h);
        least += error_of(s, best, layer, first + h);
        plain += rules_dropped_error(s, layer, first + h, keep);
    }
    assert_true(error < plain);
    assert_true(least <= error * (1.0 + 1e-6)); /* weights of its own for every row */
    free(want);
}

static void expect_shared(const rules_subject *s, const char *base, const char *scope, bool modes)
{
    char rule[64];
    char free_rule[64];
    snprintf(rule, sizeof rule, "compensated-shared:%s", base);
    snprintf(free_rule, sizeof free_rule, "compensated:%s", base);
    for (int64_t r = 1; r<s->n; r += s->n> 8 ? 5 : 1) {
        ssm_select_options options = {
            .rule = rule, .scope = scope, .budget = r, .ridge = ridge, .seed = 5};
        ssm_mask mask;
        ssm_mask best;
        assert_int_equal(ssm_select(s->recording, &options, &mask, NULL), SSM_STATUS_OK);
        options.rule = free_rule;
        assert_int_equal(ssm_select(s->recording, &options, &best, NULL), SSM_STATUS_OK);
        assert_memory_equal(mask.keep, best.keep, (size_t)(s->info->n_layers * s->rows * s->n));
        const int64_t sets = rules_sets_of(s, scope);
        const int64_t rows = s->rows / sets;
        for (int64_t set = 0; set < s->info->n_layers * sets; set++) {
            check_set(s, &mask, &best, set / sets, set % sets * rows, rows, modes);
        }
        ssm_mask_free(&mask);
        ssm_mask_free(&best);
    }
}

static void weights_of_a_checkpoint(void **state)
{
    (void)state;
    rules_subject s = rules_toy_subject(6);
    expect_shared(&s, "static", "layer", true);
    expect_shared(&s, "optimal", "layer", true);
    rules_subject_free(&s);
    s = rules_golden_subject("mamba2-g4-limit"); /* C passes SiLU: no weights of modes */
    expect_shared(&s, "static", "group", false);
    expect_shared(&s, "random", "layer", false);
    rules_subject_free(&s);
    s = rules_golden_subject("falcon"); /* C passes a norm */
    expect_shared(&s, "static", "layer", false);
    rules_subject_free(&s);
}

static void sets_of_channels_are_refused(void **state)
{
    (void)state;
    rules_subject s = rules_toy_subject(6);
    const ssm_select_options options = {.rule = "compensated-shared", .budget = 2};
    ssm_mask mask;
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_select(s.recording, &options, &mask, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "choose --scope layer, or rule compensated"));
    assert_false(ssm_select_is_rule("compensated-shared:last")); /* budgets would differ */
    rules_subject_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_of_a_checkpoint),
        cmocka_unit_test(sets_of_channels_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
