#include "test_rules_subject.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_numbers.h"
#include "test_record.h"
#include "toy_recording.h"

static void add_field(rules_subject *s, int64_t layer, const char *field, double *out,
                      int64_t width)
{
    for (int64_t w = 0; w < ssm_recording_window_count(s->recording); w++) {
        const ssm_tensor *tensor = NULL;
        if (ssm_recording_get_window(s->recording, w)->role == SSM_ROLE_EVALUATION) {
            continue;
        }
        assert_int_equal(ssm_recording_tensor(s->recording, w, layer, field, &tensor, NULL),
                         SSM_STATUS_OK);
        for (int64_t i = 0; i < ssm_tensor_count(tensor); i++) {
            out[i % width] += ssm_tensor_get(tensor, i);
        }
    }
}

static void read_subject(rules_subject *s, const char *const *domains, int64_t n_domains)
{
    s->info = ssm_recording_get_info(s->recording);
    s->rows = ssm_recording_channels(s->info);
    s->n = s->info->d_state;
    s->entries = (s->n + 1) * (s->n + 2) / 2;
    const int64_t width = s->rows * s->n;
    for (int64_t layer = 0; layer < s->info->n_layers; layer++) {
        add_field(s, layer, "energy_blocks", s->energy[layer] = test_doubles(width), width);
        add_field(s, layer, "state_moment", s->state[layer] = test_doubles(width), width);
        add_field(s, layer, "read_moment", s->read[layer] = test_doubles(width), width);
        add_field(s, layer, "adjoint_moment", s->adjoint[layer] = test_doubles(width), width);
        add_field(s, layer, "delta_mean", s->delta[layer] = test_doubles(s->rows), s->rows);
        s->gram[layer] = test_doubles(s->rows * s->entries);
        for (int64_t d = 0; d < n_domains; d++) {
            const ssm_tensor *gram = NULL;
            assert_int_equal(
                ssm_recording_calibration_gram(s->recording, domains[d], layer, &gram, NULL),
                SSM_STATUS_OK);
            for (int64_t i = 0; i < s->rows * s->entries; i++) {
                s->gram[layer][i] += ssm_tensor_get(gram, i);
            }
        }
    }
}

rules_subject rules_toy_subject(int64_t d_state)
{
    toy_recording toy = toy_recording_shape();
    toy.d_state = d_state;
    rules_subject s = {0};
    test_make_directory(s.root);
    assert_int_equal(toy_recording_write(&toy, s.root, false, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_recording_open(s.root, &s.recording, NULL), SSM_STATUS_OK);
    read_subject(&s, toy.domains, toy.n_domains);
    return s;
}

rules_subject rules_golden_subject(const char *model)
{
    static const char *const domains[] = {"a", "b"};
    rules_subject s = {0};
    record_subject from = record_golden(model, SSM_ISA_AUTO, 2, 400);
    const ssm_record_options options = {
        .window = 100, .calibration_windows = 2, .evaluation_windows = 2};
    char path[TEST_PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/rec", test_make_directory(s.root));
    record_into(&from, path, &options);
    record_subject_free(&from);
    assert_int_equal(ssm_recording_open(path, &s.recording, NULL), SSM_STATUS_OK);
    read_subject(&s, domains, 2);
    return s;
}

void rules_subject_free(rules_subject *s)
{
    for (int64_t layer = 0; layer < s->info->n_layers; layer++) {
        free(s->energy[layer]);
        free(s->state[layer]);
        free(s->read[layer]);
        free(s->adjoint[layer]);
        free(s->delta[layer]);
        free(s->gram[layer]);
    }
    ssm_recording_close(s->recording);
    test_remove_directory(s->root);
}

int64_t rules_sets_of(const rules_subject *s, const char *scope)
{
    return strcmp(scope, "layer") == 0   ? 1
           : strcmp(scope, "group") == 0 ? s->info->n_groups
                                         : s->rows;
}

ssm_mask rules_selected(const rules_subject *s, const char *rule, const char *scope, int64_t budget)
{
    ssm_mask mask;
    ssm_error err;
    ssm_error_clear(&err);
    const ssm_select_options options = {.rule = rule, .scope = scope, .budget = budget, .seed = 5};
    if (ssm_select(s->recording, &options, &mask, &err) != SSM_STATUS_OK) {
        fail_msg("%s, %s, %lld: %s", rule, scope, (long long)budget, err.message);
    }
    assert_string_equal(mask.rule, rule);
    assert_string_equal(mask.scope, scope);
    assert_true(mask.n_channels == s->rows && mask.budget == budget);
    return mask;
}

double rules_entry(const rules_subject *s, int64_t layer, int64_t row, int64_t i, int64_t j)
{
    const int64_t m = s->n + 1;
    const int64_t a = i < j ? i : j, b = i < j ? j : i;
    return s->gram[layer][row * s->entries + a * m - a * (a - 1) / 2 + (b - a)];
}

/* Σ_ij c_i c_j G_ij of a row. */
double rules_form(const rules_subject *s, int64_t layer, int64_t row, const double *c)
{
    double sum = 0.0;
    for (int64_t i = 0; i <= s->n; i++) {
        for (int64_t j = 0; j <= s->n; j++) {
            sum += c[i] * c[j] * rules_entry(s, layer, row, i, j);
        }
    }
    return sum;
}

double rules_dropped_error(const rules_subject *s, int64_t layer, int64_t row, const uint8_t *keep)
{
    double c[RULES_MODES] = {0};
    for (int64_t i = 0; i < s->n; i++) {
        c[i] = keep[i] ? 0.0 : 1.0;
    }
    return rules_form(s, layer, row, c);
}
