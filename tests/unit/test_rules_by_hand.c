/* Every rule on an example that is computed by hand: one layer, two channels, N = 3. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "select/rule.h"
#include "ssmscope/select.h"
#include "test_numbers.h"
#include "test_paths.h"
#include "toy_recording.h"

/* Energies of channel 0: 4, 9, 1; of channel 1: 2, 2, 5. √(P Q): 0: 6, 2, 4; 1: 3, 1, 3. With the
 * adjoint: 0: 1, 2, 4; 1: 5, 6, 3. Δ: 2 and 1/2; |A|: 1, 3, 2 and 4, 4, 1. */
static const double energies[] = {4, 9, 1, 2, 2, 5};
static const double states[] = {9, 1, 4, 1, 1, 9};
static const double reads[] = {4, 4, 4, 9, 1, 1};
static const double adjoints[] = {1.0 / 9, 4, 4, 25, 36, 1};
static const double rates[] = {-1, -3, -2, -4, -4, -1};
static const double deltas[] = {2, 0.5};

/* Upper triangles of (m_0, m_1, m_2, f). Channel 0: m_1 = −1.5 m_0, so that dropping both costs
 * 4 + 9 − 12 = 1. Channel 1: m_2 = −f. */
static const double grams[] = {4, -6, 0, 0,  9, 0, 0, 1, 0,  8, /* channel 0 */
                               2, 1,  1, -1, 2, 0, 0, 5, -5, 5};

static const double *values_of(const char *field)
{
    return strcmp(field, "energy_blocks") == 0    ? energies
           : strcmp(field, "state_moment") == 0   ? states
           : strcmp(field, "read_moment") == 0    ? reads
           : strcmp(field, "adjoint_moment") == 0 ? adjoints
           : strcmp(field, "A") == 0              ? rates
           : strcmp(field, "delta_mean") == 0     ? deltas
                                                  : NULL;
}

/* Two calibration windows whose mean is the example: 3/2 and 1/2 of it; A, once, as it is. The sum
 * of their Grams is twice the example. */
static void edit(int64_t window, int64_t layer, const char *field, double *values, int64_t count)
{
    (void)layer;
    const double factor = window < 0 ? 1.0 : window == 0 ? 1.5 : 0.5;
    const double *source = strcmp(field, "gram") == 0 ? grams : values_of(field);
    for (int64_t i = 0; i < count; i++) {
        values[i] = factor * (source == NULL ? 1.0 : source[i]);
    }
}

static char root[TEST_PATH_MAX];
static ssm_recording *recording;

static int set_up(void **state)
{
    (void)state;
    const toy_recording toy = {.n_layers = 1,
                               .channels = 2,
                               .d_state = 3,
                               .window = 2,
                               .n_domains = 1,
                               .calibration = 2,
                               .evaluation = 1,
                               .domains = {"text"},
                               .edit = edit};
    test_make_directory(root);
    return toy_recording_write(&toy, root, false, NULL) != SSM_STATUS_OK ||
           ssm_recording_open(root, &recording, NULL) != SSM_STATUS_OK;
}

static int tear_down(void **state)
{
    (void)state;
    ssm_recording_close(recording);
    test_remove_directory(root);
    return 0;
}

/* expected: the kept modes of channel 0, a bar, those of channel 1: "01|2". */
static void expect(const char *rule, const char *scope, int64_t budget, const char *expected)
{
    char found[16] = "";
    size_t at = 0;
    ssm_mask mask;
    ssm_error err;
    ssm_error_clear(&err);
    const ssm_select_options options = {.rule = rule, .scope = scope, .budget = budget};
    if (ssm_select(recording, &options, &mask, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", rule, err.message);
    }
    for (int i = 0; i < 6; i++) {
        if (i == 3) {
            found[at++] = '|';
        }
        if (mask.keep[i]) {
            found[at++] = (char)('0' + i % 3);
        }
    }
    if (strcmp(found, expected) != 0) {
        fail_msg("%s, %s, budget %d: kept %s, expected %s", rule, scope, (int)budget, found,
                 expected);
    }
    ssm_mask_free(&mask);
}

static void rules_by_hand(void **state)
{
    (void)state;
    expect("static", "channel", 1, "1|2");
    expect("static", "channel", 2, "01|02"); /* 2 = 2: the lower mode */
    expect("static", "layer", 1, "1|1");     /* 6, 11, 6 */
    expect("static", "layer", 2, "01|01");
    expect("hankel", "channel", 1, "0|0"); /* 3 = 3 */
    expect("hankel", "channel", 2, "02|02");
    expect("hankel", "layer", 1, "0|0"); /* 36 + 9, 4 + 1, 16 + 9 */
    expect("hankel", "layer", 2, "02|02");
    expect("hankel-adjoint", "channel", 1, "2|1");
    expect("hankel-adjoint", "channel", 2, "12|01");
    expect("hankel-adjoint", "layer", 1, "1|1"); /* 1 + 25, 4 + 36, 16 + 9 */
    expect("hankel-adjoint", "layer", 2, "01|01");
    expect("activity", "channel", 1, "1|0"); /* 2, 6, 4; 2, 2, 0.5 */
    expect("activity", "channel", 2, "12|01");
    expect("activity", "layer", 1, "1|1"); /* 4, 8, 4.5 */
    expect("activity", "layer", 2, "12|12");
}

/* All of 6, 4, 3, 3, 2, 1: LAST 6/6, 4/10, 3/16 twice, 2/18, 1/19. Two modes a budget. */
static void one_threshold_by_hand(void **state)
{
    (void)state;
    expect("last", "channel", 1, "02|");
    expect("last", "channel", 2, "02|02");
    expect("last", "channel", 3, "012|012");
    expect("last:squared", "channel", 1, "02|");
    expect("last", "layer", 1, "0|0"); /* √(45/2), √(5/2), √(25/2) */
    /* Layer 0: 8, 2: 8/8, 2/10; layer 1: 1, 9: 1/10, 9/9; layer 2: 0, 0: 0. Three modes a budget:
     * 1, 1, 1/5; then 1/10 and the zeros, lower layer and mode first. */
    const double scores[] = {8, 2, 1, 9, 0, 0};
    int32_t counts[9];
    const int32_t expected[9] = {0, 2, 2, 0, 1, 2, 0, 0, 2};
    assert_int_equal(ssm__last_counts(scores, 3, 1, 2, counts, NULL), SSM_STATUS_OK);
    assert_memory_equal(counts, expected, sizeof expected);
}

/* Dropped pairs of channel 0: {0,1} 1, {0,2} 5, {1,2} 10; of channel 1: 2+2+2, 2+5+2, 2+5; of their
 * sum: 17 − 10, 12 + 2, 17. greedy-swap drops 2 and 0 in channel 0 (1, then 4) and then exchanges 1
 * for 2; static would keep 1. */
static void searches_by_hand(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *rule = i == 0 ? "optimal" : "greedy-swap";
        expect(rule, "channel", 1, "2|2");
        expect(rule, "channel", 2, "01|02"); /* 4, 9, 1; 2 = 2, 5: the lower mode stays */
        expect(rule, "channel", 3, "012|012");
        expect(rule, "layer", 1, "2|2");
        expect(rule, "layer", 2, "01|01"); /* 6, 11, 6 */
    }
    const double nothing[15 * 16] = {0};
    uint32_t sets[16];
    double errors[16];
    ssm__kernels_for(SSM_ISA_AUTO)->least_dropped(nothing, 5, 2, sets, errors);
    assert_true(sets[0] == (1 << 3 | 1 << 4) && sets[15] == sets[0] && errors[7] == 0.0);
}

/* The six numbers of the stream, ranked per channel. */
static void draws_by_hand(void **state)
{
    (void)state;
    ssm_rng rng = ssm_rng_create(0, "select/random/0");
    char expected[4] = "0|0";
    for (int h = 0; h < 2; h++) {
        double highest = -1.0;
        for (int i = 0; i < 3; i++) {
            const double drawn = ssm_rng_uniform(&rng);
            expected[2 * h] = drawn > highest ? (char)('0' + i) : expected[2 * h];
            highest = fmax(drawn, highest);
        }
    }
    expect("random", "channel", 1, expected);
}

static void expect_weights(const double *gram, int64_t n, const uint8_t *keep, double ridge,
                           const float *expected)
{
    double matrix[16], vector[4];
    float weights[4];
    ssm__compensate(gram, n, keep, ridge, matrix, vector, weights);
    for (int64_t i = 0; i <= n; i++) {
        assert_true(fabsf(weights[i] - expected[i]) <= 1e-6F); /* of a ridge of 1e-9, and float32 */
    }
}

/* (m_0, m_1, f) with energies 4, 3, 2, products m_0 m_1 = 2, m_1 f = 1; m_1 is dropped:
 * w = 2/4/(1 + λ), v = 1/2/(1 + λ). The error goes from 3 to 3 − 2²/4 − 1²/2 = 1.5. */
static void weights_by_hand(void **state)
{
    (void)state;
    const double gram[] = {4, 2, 0, 3, 1, 2};
    const uint8_t first[] = {1, 0}, both[] = {1, 1}, none[] = {0, 0};
    expect_weights(gram, 2, first, 1e-9, (const float[]){1.5F, 0, 1.5F});
    expect_weights(gram, 2, first, 1.0, (const float[]){1.25F, 0, 1.25F});
    expect_weights(gram, 2, both, 1e-9, (const float[]){1, 1, 1});
    expect_weights(gram, 2, none, 1e-9, (const float[]){0, 0, 1.5F}); /* of f alone: 1/2 */
    /* nothing in common, and nothing at all: nothing changes */
    const double apart[] = {4, 0, 0, 3, 0, 2}, silent[] = {0, 0, 0, 0, 0, 0};
    expect_weights(apart, 2, first, 1e-9, (const float[]){1, 0, 1});
    expect_weights(silent, 2, first, 1e-9, (const float[]){1, 0, 1});
    /* m_1 = −1.5 m_0 and no f; m_2 = −f */
    const uint8_t without_1[] = {1, 0, 1}, without_2[] = {1, 1, 0};
    expect_weights(grams, 3, without_1, 1e-9, (const float[]){-0.5F, 0, 1, 1});
    expect_weights(grams + 10, 3, without_2, 1e-9, (const float[]){1, 1, 0, 0});
}

static void expect_shared(int64_t budget, const float *weight, float skip_0, float skip_1)
{
    const ssm_select_options options = {
        .rule = "compensated-shared", .scope = "layer", .budget = budget, .ridge = 1e-9};
    ssm_mask mask;
    assert_int_equal(ssm_select(recording, &options, &mask, NULL), SSM_STATUS_OK);
    for (int i = 0; i < 6; i++) {
        assert_true(fabsf(mask.weight[i] - weight[i % 3]) <= 1e-6F); /* as expect_weights */
    }
    assert_true(fabsf(mask.skip_weight[0] - skip_0) <= 1e-6F);
    assert_true(fabsf(mask.skip_weight[1] - skip_1) <= 1e-6F);
    ssm_mask_free(&mask);
}

/* Budget 1 keeps m_1 in both channels: (9 + 2) w = −6 + 0 + 1 + 0, so w = −5/11; v = 0 of 8, and
 * (−1 − 5)/5. Budget 2 keeps m_0 and m_1: what f says of m_2 in channel 1 is all that m_0 has in
 * common with it, 1 − (−1)(−5)/5 = 0, so w = 0; v = 0 and −5/5. */
static void shared_weights_by_hand(void **state)
{
    (void)state;
    expect_shared(1, (const float[]){0, 1.0F - 5.0F / 11.0F, 0}, 1.0F, -0.2F);
    expect_shared(2, (const float[]){1, 1, 0}, 1.0F, 0.0F);
    expect_shared(3, (const float[]){1, 1, 1}, 1.0F, 1.0F);
}

/* What the mask says, and its error: of the evaluation window, half of the example. The output
 * energies are 1/2 and 1/2. */
static void errors_by_hand(void **state)
{
    (void)state;
    const ssm_select_options options = {.rule = "static"};
    ssm_error_curve curve;
    assert_int_equal(ssm_select_curve(recording, &options, SSM_ROLE_EVALUATION, &curve, NULL),
                     SSM_STATUS_OK);
    /* budget 1: 1|2: (5 + 6)/2 of (1 + 1)/2; budget 2: 01|02: (1 + 2)/2 of it; 3: nothing */
    assert_true(fabs(curve.error[0] - sqrt(5.5)) <= 1e-7);
    assert_true(fabs(curve.error[1] - sqrt(1.5)) <= 1e-7);
    assert_true(curve.error[2] == 0.0);
    assert_memory_equal(curve.mean, curve.error, 3 * sizeof(double)); /* of one layer */
    ssm_error_curve_free(&curve);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_by_hand),          cmocka_unit_test(one_threshold_by_hand),
        cmocka_unit_test(searches_by_hand),       cmocka_unit_test(draws_by_hand),
        cmocka_unit_test(weights_by_hand),        cmocka_unit_test(errors_by_hand),
        cmocka_unit_test(shared_weights_by_hand),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
