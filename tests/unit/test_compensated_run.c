/* Masks with weights in the engine: the error that Grams predict is that of a masked pass. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ssmscope/select.h"
#include "test_numbers.h"
#include "test_record.h"

enum { WINDOW = 200, CALIBRATION = 2 };

/* A model, its recording, and the ids of the one evaluation window. */
typedef struct fixture {
    record_subject subject;
    const ssm_config *config;
    char root[TEST_PATH_MAX];
    ssm_recording *recording;
    const int32_t *ids;
    int64_t width; /* channels of y */
} fixture;

static fixture fixture_create(const char *golden)
{
    fixture f = {.subject = golden == NULL ? record_toy(SSM_ISA_AUTO, 1, 700)
                                           : record_golden(golden, SSM_ISA_AUTO, 1, 700)};
    const ssm_record_options options = {
        .window = WINDOW, .calibration_windows = CALIBRATION, .evaluation_windows = 1};
    f.config = ssm_model_config(f.subject.model);
    f.width = f.config->n_heads > 0 ? f.config->d_ssm : f.config->d_inner;
    f.recording = record_and_open(&f.subject, &options, f.root);
    f.ids = f.subject.corpus.domains[0].ids.data + CALIBRATION * WINDOW;
    return f;
}

static void fixture_free(fixture *f)
{
    ssm_recording_close(f->recording);
    test_remove_directory(f->root);
    record_subject_free(&f->subject);
}

typedef struct captured {
    float *y; /* [T][width] of one layer */
    int64_t layer;
} captured;

static void capture(void *context, const ssm_tap *tap)
{
    const captured *c = context;
    if (tap->layer == c->layer) {
        ssm_tap_copy(tap, c->y + tap->position * tap->width);
    }
}

/* What the layer gives to out_proj (Mamba-2: to the norm), masked in this layer alone. */
static float *run(const fixture *f, const ssm_mask *mask, int64_t layer)
{
    captured out = {.y = test_floats(WINDOW * f->width), .layer = layer};
    const ssm_session_options options = {.exact_chunks = true};
    const ssm_observer observer = {
        .context = &out, .points = 1u << SSM_TAP_SSM_OUT, .read = capture};
    ssm_session *session = NULL;
    assert_int_equal(ssm_session_create(f->subject.model, &options, &session, NULL), SSM_STATUS_OK);
    ssm_session_set_observer(session, &observer);
    assert_int_equal(ssm_session_set_mask(session, mask, layer, NULL), SSM_STATUS_OK);
    assert_int_equal(
        ssm_session_forward(session, f->ids, WINDOW, SSM_LOGITS_NONE, NULL, NULL, NULL),
        SSM_STATUS_OK);
    ssm_session_free(session);
    return out.y;
}

/* Relative error of the masked layer, as ssm_select_error has it. */
static double measured(const fixture *f, const ssm_mask *mask, int64_t layer)
{
    float *whole = run(f, NULL, layer);
    float *pruned = run(f, mask, layer);
    double error = 0.0, energy = 0.0;
    for (int64_t i = 0; i < WINDOW * f->width; i++) {
        const double off = (double)whole[i] - (double)pruned[i];
        error += off * off;
        energy += (double)whole[i] * (double)whole[i];
    }
    free(whole);
    free(pruned);
    return sqrt(error / energy);
}

/* Returns the largest relative deviation of the prediction. The pass and the Gram are float32: as
 * for `verify`, relative to 1 % of the output where the error is below that, because what cancels
 * loses digits (measured 6.4e-7, the bound is five times that). */
static double expect_predicted(const fixture *f, const char *rule, const char *scope)
{
    double worst = 0.0;
    char path[TEST_PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/mask", f->root);
    for (int64_t r = 1; r < f->config->d_state; r += 2) {
        const ssm_select_options options = {.rule = rule, .scope = scope, .budget = r};
        ssm_mask chosen, mask;
        ssm_error_curve curve;
        assert_int_equal(ssm_select(f->recording, &options, &chosen, NULL), SSM_STATUS_OK);
        assert_int_equal(ssm_mask_write(&chosen, path, NULL, NULL), SSM_STATUS_OK);
        assert_int_equal(ssm_mask_read(path, &mask, NULL), SSM_STATUS_OK);
        assert_int_equal(ssm_select_error(f->recording, &mask, SSM_ROLE_EVALUATION, &curve, NULL),
                         SSM_STATUS_OK);
        for (int64_t layer = 0; layer < f->config->n_layers; layer++) {
            const double error = measured(f, &mask, layer);
            const double off = fabs(curve.error[layer] - error) / fmax(error, 0.01);
            worst = fmax(worst, off);
            assert_true(off <= 3e-6);
        }
        ssm_error_curve_free(&curve);
        ssm_mask_free(&chosen);
        ssm_mask_free(&mask);
    }
    return worst;
}

static void predicted_errors_are_measured(void **state)
{
    (void)state;
    const struct {
        const char *model, *rule, *scope;
    } cases[] = {{NULL, "compensated", "channel"},
                 {NULL, "compensated:random", "layer"},
                 {NULL, "last", "channel"},
                 {"falcon", "compensated:optimal", "channel"},
                 {"mamba2-g4-limit", "compensated", "head"},
                 {"mamba2-g4-limit", "compensated:greedy-swap", "group"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture f = fixture_create(cases[i].model);
        const double worst = expect_predicted(&f, cases[i].rule, cases[i].scope);
        printf("%s, %s, %s: off by %.1e\n", cases[i].model == NULL ? "toy" : cases[i].model,
               cases[i].rule, cases[i].scope, worst);
        fixture_free(&f);
    }
}

/* Weights of 1 give the bits of no mask at all (one pass, and step by step from a saved state);
 * others do not. */
static void weights_of_one_change_nothing(void **state)
{
    (void)state;
    const char *const models[] = {NULL, "mamba2-g4-limit"};
    for (int m = 0; m < 2; m++) {
        fixture f = fixture_create(models[m]);
        const int64_t rows = m == 0 ? f.config->d_inner : f.config->n_heads;
        const int64_t V = f.config->vocab_size;
        const ssm_session_options options = {.exact_chunks = true};
        ssm_mask mask;
        assert_int_equal(ssm_mask_create(f.config->n_layers, rows, f.config->d_state, &mask, NULL),
                         SSM_STATUS_OK);
        assert_int_equal(ssm_mask_add_weights(&mask, NULL), SSM_STATUS_OK);
        float *logits[3];
        for (int i = 0; i < 3; i++) { /* no mask, ones, another weight of one feed-through */
            ssm_session *session = NULL;
            mask.skip_weight[rows] = i == 2 ? 1.25F : 1.0F;
            assert_int_equal(ssm_session_create(f.subject.model, &options, &session, NULL),
                             SSM_STATUS_OK);
            assert_int_equal(ssm_session_set_mask(session, i == 0 ? NULL : &mask, -1, NULL),
                             SSM_STATUS_OK);
            logits[i] = test_logits(session, f.subject.model, f.ids, 40, i);
            ssm_session_free(session);
        }
        test_assert_same_bits("weights of one", logits[1], logits[0], 40 * V);
        assert_memory_not_equal(logits[2], logits[0], (size_t)(40 * V) * sizeof(float));
        for (int i = 0; i < 3; i++) {
            free(logits[i]);
        }
        ssm_mask_free(&mask);
        fixture_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predicted_errors_are_measured),
        cmocka_unit_test(weights_of_one_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
