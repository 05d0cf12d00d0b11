/* The fast float32 path against goldens and against the float64 reference: logits, every hidden
 * state, odd shapes, dtypes, masks, negative log-likelihoods, and what must not matter. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "reference/reference.h"
#include "test_golden.h"
#include "test_numbers.h"
#include "test_session.h"

/* Relative to the largest expected value. A float32 pass rounds every number at 6e-8 and a few
 * layers add up to about 5e-7; 2e-6 is the promise for the goldens. */
#define GOLDEN_TOLERANCE 2e-6
/* Toy weights are larger than trained ones and the streams cancel more. */
#define TOY_TOLERANCE 5e-6

/* ---- hidden states through taps -------------------------------------------------------------- */

typedef struct hidden_states {
    float *data; /* [n_layers+1][count][D] */
    int64_t count, d_model;
} hidden_states;

static void take_hidden(void *context, const ssm_tap *tap)
{
    hidden_states *h = context;
    const int64_t row = tap->point == SSM_TAP_EMBED ? 0 : tap->layer + 1;
    assert_int_equal(tap->width, h->d_model);
    assert_true(tap->position + tap->tokens <= h->count);
    ssm_tap_copy(tap, h->data + (row * h->count + tap->position) * h->d_model);
}

static void check_golden(const char *name, ssm_isa isa)
{
    char path[TEST_PATH_MAX];
    ssm_model *model = test_model_open(golden_model_path(path, name), isa);
    ssm_session *session = test_session_create(model, NULL, 0);
    for (int sequence = 0; sequence < GOLDEN_SEQUENCES; sequence++) {
        golden_sequence want = golden_read(name, sequence);
        const int64_t stream = want.count * ssm_model_config(model)->d_model;
        hidden_states h = {.data = test_floats(want.n_hidden),
                           .count = want.count,
                           .d_model = ssm_model_config(model)->d_model};
        const ssm_observer observer = {
            .context = &h,
            .points = 1U << SSM_TAP_EMBED | 1U << SSM_TAP_RESID_POST,
            .read = take_hidden,
        };
        ssm_session_reset(session);
        ssm_session_set_observer(session, &observer);
        float *logits = test_logits(session, model, want.ids, want.count, 0);
        test_assert_near_f32("logits", logits, want.logits, want.n_logits, GOLDEN_TOLERANCE);
        for (int64_t begin = 0; begin < want.n_hidden; begin += stream) {
            test_assert_near_f32("hidden", h.data + begin, want.hidden + begin, stream,
                                 GOLDEN_TOLERANCE);
        }
        free(logits);
        free(h.data);
        golden_free(&want);
    }
    ssm_session_free(session);
    ssm_model_free(model);
}

static void test_golden_tied(void **state)
{
    (void)state;
    check_golden("mamba-tied", SSM_ISA_AUTO);
}

static void test_golden_untied_bias_conv3(void **state)
{
    (void)state;
    check_golden("mamba-untied-bias-conv3", SSM_ISA_AUTO);
}

static void test_golden_bf16_sharded(void **state)
{
    (void)state;
    check_golden("mamba-bf16-sharded", SSM_ISA_AUTO);
}

static void test_golden_portable(void **state)
{
    (void)state;
    check_golden("mamba-tied", SSM_ISA_PORTABLE);
}

/* ---- toy models of every shape --------------------------------------------------------------- */

static double *reference_logits(const ssm_model *model, const int32_t *ids, int64_t count,
                                const uint8_t *keep)
{
    double *out = test_doubles(count * ssm_model_config(model)->vocab_size);
    const ssm__weights *weights = ssm__checkpoint_weights(ssm_model_checkpoint(model));
    assert_int_equal(
        ssm__ref_forward(ssm_model_config(model), weights, keep, ids, count, out, NULL, NULL),
        SSM_STATUS_OK);
    return out;
}

static void check_toy(const char *what, const ssm_config *config, ssm_dtype dtype,
                      const toy_options *options)
{
    enum { COUNT = 70 }; /* more than a tile */
    ssm_model *model = test_model_toy(config, dtype, 11, SSM_ISA_AUTO, options);
    int32_t ids[COUNT];
    toy_ids(config, 5, ids, COUNT);
    float *fast = test_model_logits(model, ids, COUNT, 0);
    double *want = reference_logits(model, ids, COUNT, NULL);
    test_assert_near_f32(what, fast, want, COUNT * config->vocab_size, TOY_TOLERANCE);
    free(want);
    free(fast);
    ssm_model_free(model);
}

static void test_toy_shapes(void **state)
{
    (void)state;
    const struct {
        const char *what;
        int64_t d_model, d_inner, d_state, d_conv, dt_rank, vocab_size, n_layers;
        bool tied;
    } shapes[] = {
        {"odd everywhere", 20, 36, 5, 3, 3, 31, 3, false},
        {"ones", 1, 1, 1, 1, 1, 2, 1, false},
        {"one head row", 16, 16, 4, 4, 1, 1, 2, false},
        {"whole vectors", 32, 64, 16, 4, 2, 64, 2, true},
        {"wide rank", 24, 17, 3, 2, 19, 33, 2, true},
        {"more channels than a tile", 33, 130, 7, 4, 5, 47, 2, false},
        {"N 17", 15, 31, 17, 4, 4, 29, 2, true},
        {"N 33, conv 2", 18, 40, 33, 2, 2, 35, 1, false},
        {"deep", 12, 24, 2, 3, 2, 17, 9, false},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        ssm_config config = toy_config();
        config.d_model = shapes[i].d_model;
        config.d_inner = shapes[i].d_inner;
        config.d_state = shapes[i].d_state;
        config.d_conv = shapes[i].d_conv;
        config.dt_rank = shapes[i].dt_rank;
        config.vocab_size = shapes[i].vocab_size;
        config.n_layers = shapes[i].n_layers;
        config.tied = shapes[i].tied;
        check_toy(shapes[i].what, &config, SSM_DTYPE_F32, NULL);
    }
}

static void test_toy_dtypes_and_biases(void **state)
{
    (void)state;
    const ssm_config config = toy_config();
    const ssm_dtype dtypes[] = {SSM_DTYPE_F32, SSM_DTYPE_F16, SSM_DTYPE_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        for (int biases = 0; biases < 4; biases++) {
            const toy_options options = {.no_proj_bias = biases & 1, .no_conv_bias = biases & 2};
            check_toy(ssm_dtype_name(dtypes[i]), &config, dtypes[i], &options);
        }
    }
}

static void test_public_reference(void **state)
{
    (void)state;
    enum { COUNT = 20 };
    const ssm_config config = toy_config();
    ssm_model *model = test_model_toy(&config, SSM_DTYPE_F16, 2, SSM_ISA_AUTO, NULL);
    int32_t ids[COUNT];
    toy_ids(&config, 5, ids, COUNT);
    double *want = reference_logits(model, ids, COUNT, NULL);
    double *got = test_doubles(COUNT * config.vocab_size);
    assert_int_equal(ssm_reference_forward(model, ids, COUNT, got, NULL, NULL), SSM_STATUS_OK);
    assert_memory_equal(got, want, sizeof(double) * COUNT * (size_t)config.vocab_size);
    ids[3] = 31;
    assert_int_equal(ssm_reference_forward(model, ids, COUNT, got, NULL, NULL), SSM_STATUS_USAGE);
    free(got);
    free(want);
    ssm_model_free(model);
}

/* ---- masks ----------------------------------------------------------------------------------- */

static ssm_mask random_mask(const ssm_config *config, uint64_t seed)
{
    ssm_mask mask;
    assert_int_equal(
        ssm_mask_create(config->n_layers, config->d_inner, config->d_state, &mask, NULL),
        SSM_STATUS_OK);
    ssm_rng rng = ssm_rng_create(seed, "test/mask");
    for (int64_t i = 0; i < config->n_layers * config->d_inner * config->d_state; i++) {
        assert_int_equal(mask.keep[i], 1); /* a new mask keeps everything */
        mask.keep[i] = (uint8_t)ssm_rng_below(&rng, 2);
    }
    return mask;
}

static void test_masks_against_the_reference(void **state)
{
    (void)state;
    enum { COUNT = 70 };
    const ssm_config config = toy_config();
    const int64_t size = COUNT * config.vocab_size, modes = config.d_inner * config.d_state;
    ssm_model *model = test_model_toy(&config, SSM_DTYPE_F32, 4, SSM_ISA_AUTO, NULL);
    ssm_session *session = test_session_create(model, NULL, 0);
    int32_t ids[COUNT];
    toy_ids(&config, 5, ids, COUNT);
    ssm_mask mask = random_mask(&config, 1);
    double *plain = reference_logits(model, ids, COUNT, NULL);
    uint8_t *keep = malloc((size_t)(config.n_layers * modes));
    assert_non_null(keep);
    for (int64_t layer = -1; layer < config.n_layers; layer++) { /* −1: all layers */
        memset(keep, layer < 0 ? 0 : 1, (size_t)(config.n_layers * modes));
        if (layer < 0) {
            memcpy(keep, mask.keep, (size_t)(config.n_layers * modes));
        } else {
            memcpy(keep + layer * modes, mask.keep + layer * modes, (size_t)modes);
        }
        ssm_session_reset(session);
        assert_int_equal(ssm_session_set_mask(session, &mask, layer, NULL), SSM_STATUS_OK);
        float *fast = test_logits(session, model, ids, COUNT, 0);
        double *want = reference_logits(model, ids, COUNT, keep);
        test_assert_near_f32("masked", fast, want, size, TOY_TOLERANCE);
        assert_true(test_relative_f32(fast, plain, size) > 1e-3);
        free(want);
        free(fast);
    }
    free(keep);
    free(plain);
    ssm_mask_free(&mask);
    ssm_session_free(session);
    ssm_model_free(model);
}

static void test_mask_of_ones_and_removed_mask(void **state)
{
    (void)state;
    enum { COUNT = 70 };
    const ssm_config config = toy_config();
    const int64_t size = COUNT * config.vocab_size;
    ssm_model *model = test_model_toy(&config, SSM_DTYPE_F32, 4, SSM_ISA_AUTO, NULL);
    ssm_session *session = test_session_create(model, NULL, 0);
    int32_t ids[COUNT];
    toy_ids(&config, 5, ids, COUNT);
    float *plain = test_logits(session, model, ids, COUNT, 0);

    ssm_mask mask = random_mask(&config, 1);
    ssm_session_reset(session);
    assert_int_equal(ssm_session_set_mask(session, &mask, -1, NULL), SSM_STATUS_OK);
    float *masked = test_logits(session, model, ids, COUNT, 0);
    /* The session has its own copy, and reset keeps it. */
    memset(mask.keep, 1, (size_t)(config.n_layers * config.d_inner * config.d_state));
    ssm_session_reset(session);
    float *again = test_logits(session, model, ids, COUNT, 0);
    test_assert_same_bits("mask is a copy", again, masked, size);
    free(again);

    ssm_session_reset(session);
    assert_int_equal(ssm_session_set_mask(session, &mask, -1, NULL), SSM_STATUS_OK);
    again = test_logits(session, model, ids, COUNT, 0);
    test_assert_same_bits("mask of ones", again, plain, size);
    free(again);

    memset(mask.keep, 0, (size_t)(config.n_layers * config.d_inner * config.d_state));
    assert_int_equal(ssm_session_set_mask(session, &mask, -1, NULL), SSM_STATUS_OK);
    ssm_session_reset(session);
    assert_int_equal(ssm_session_set_mask(session, NULL, -1, NULL), SSM_STATUS_OK);
    again = test_logits(session, model, ids, COUNT, 0);
    test_assert_same_bits("removed mask", again, plain, size);
    free(again);

    mask.d_state--;
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_session_set_mask(session, &mask, -1, &err), SSM_STATUS_USAGE);
    assert_true(err.message[0] != '\0');
    mask.d_state++;
    assert_int_equal(ssm_session_set_mask(session, &mask, config.n_layers, NULL), SSM_STATUS_USAGE);
    free(masked);
    free(plain);
    ssm_mask_free(&mask);
    ssm_session_free(session);
    ssm_model_free(model);
}

/* ---- log-likelihoods ------------------------------------------------------------------------- */

/* out[t] = log Σ exp(logits_t) − logits_t[ids[t+1]], from the same session's own logits. 2e-6: one
 * float32 rounding of numbers up to about 10 and of each exp. */
static void test_nll(void **state)
{
    (void)state;
    enum { COUNT = 70 };
    const ssm_config config = toy_config();
    const int64_t V = config.vocab_size;
    ssm_model *model = test_model_toy(&config, SSM_DTYPE_F32, 4, SSM_ISA_AUTO, NULL);
    ssm_session *session = test_session_create(model, NULL, 0);
    int32_t ids[COUNT];
    toy_ids(&config, 5, ids, COUNT);
    float *logits = test_logits(session, model, ids, COUNT, 0);
    double want[COUNT] = {0}, row[64];
    float got[COUNT] = {0};
    for (int64_t t = 0; t + 1 < COUNT; t++) {
        for (int64_t v = 0; v < V; v++) {
            row[v] = (double)logits[t * V + v];
        }
        want[t] = ssm__ref_logsumexp(row, V) - row[ids[t + 1]];
    }
    ssm_session_reset(session);
    assert_int_equal(ssm_session_nll(session, ids, COUNT, got, NULL), SSM_STATUS_OK);
    for (int64_t t = 0; t + 1 < COUNT; t++) {
        assert_true(fabs((double)got[t] - want[t]) <= 2e-6 * (1.0 + fabs(want[t])));
    }
    ssm_session_reset(session);
    assert_int_equal(ssm_session_nll(session, ids, 0, got, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_session_nll(session, ids, 1, got, NULL), SSM_STATUS_OK);
    ids[9] = (int32_t)V;
    ssm_session_reset(session);
    assert_int_equal(ssm_session_nll(session, ids, COUNT, got, NULL), SSM_STATUS_USAGE);
    free(logits);
    ssm_session_free(session);
    ssm_model_free(model);
}

/* ---- what matters and what must not ---------------------------------------------------------- */

static bool is_A_log(const char *name)
{
    return strstr(name, "A_log") != NULL;
}

static void round_like_bf16(float *value)
{
    *value = ssm__f32_from_bf16(ssm__bf16_from_f32(*value));
}

/* A_log as bf16 stores it. */
static void store_A_log_as_bf16(const char *name, float *values, int64_t count)
{
    for (int64_t i = 0; is_A_log(name) && i < count; i++) {
        round_like_bf16(&values[i]);
    }
}

/* The mistake: exp(A_log) rounded to bf16 too. */
static void round_A_to_bf16(const char *name, float *values, int64_t count)
{
    store_A_log_as_bf16(name, values, count);
    for (int64_t i = 0; is_A_log(name) && i < count; i++) {
        float A = expf(values[i]);
        round_like_bf16(&A);
        values[i] = logf(A);
    }
}

/* A = −exp(A_log) is float32 whatever the stored dtype: the model agrees with the float64 reference
 * far better than a model whose A was rounded to bf16 does. */
static void test_A_is_not_rounded_to_the_stored_dtype(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    const ssm_config config = toy_config();
    const int64_t size = COUNT * config.vocab_size;
    const toy_options stored = {.edit = store_A_log_as_bf16}, mistake = {.edit = round_A_to_bf16};
    ssm_model *right = test_model_toy(&config, SSM_DTYPE_F32, 8, SSM_ISA_AUTO, &stored);
    ssm_model *wrong = test_model_toy(&config, SSM_DTYPE_F32, 8, SSM_ISA_AUTO, &mistake);
    int32_t ids[COUNT];
    toy_ids(&config, 5, ids, COUNT);
    double *want = reference_logits(right, ids, COUNT, NULL);
    float *right_logits = test_model_logits(right, ids, COUNT, 0);
    float *wrong_logits = test_model_logits(wrong, ids, COUNT, 0);
    test_assert_near_f32("A in float32", right_logits, want, size, TOY_TOLERANCE);
    assert_true(test_relative_f32(wrong_logits, want, size) > 20 * TOY_TOLERANCE);
    free(wrong_logits);
    free(right_logits);
    free(want);
    ssm_model_free(wrong);
    ssm_model_free(right);
}

/* Logits of one toy model under another config.json. */
static float *logits_under(const toy_options *options, const int32_t *ids, int64_t count)
{
    const ssm_config config = toy_config();
    ssm_model *model = test_model_toy(&config, SSM_DTYPE_F32, 8, SSM_ISA_AUTO, options);
    assert_int_equal(ssm_model_config(model)->vocab_size, config.vocab_size);
    float *logits = test_model_logits(model, ids, count, 0);
    ssm_model_free(model);
    return logits;
}

/* time_step_min, _max, _floor are about initialisation and never clamp delta. */
static void test_time_step_settings_move_nothing(void **state)
{
    (void)state;
    enum { COUNT = 30 };
    const ssm_config config = toy_config();
    int32_t ids[COUNT];
    toy_ids(&config, 5, ids, COUNT);
    const toy_options odd = {.more_json = ", \"time_step_min\": 0.5, \"time_step_max\": 0.6,"
                                          " \"time_step_floor\": 0.5, \"time_step_scale\": 3.0"};
    float *plain = logits_under(NULL, ids, COUNT), *moved = logits_under(&odd, ids, COUNT);
    test_assert_same_bits("time_step_*", moved, plain, COUNT * config.vocab_size);
    free(moved);
    free(plain);
}

/* More rows than config.json says: they stay in the logits, and the others keep their bits. */
static void test_padding_rows_stay(void **state)
{
    (void)state;
    enum { COUNT = 30 };
    const ssm_config config = toy_config();
    int32_t ids[COUNT];
    toy_ids(&config, 5, ids, COUNT);
    const toy_options padded = {.claimed_vocab = config.vocab_size - 3};
    float *plain = logits_under(NULL, ids, COUNT), *rows = logits_under(&padded, ids, COUNT);
    test_assert_same_bits("padding rows", rows, plain, COUNT * config.vocab_size);
    free(rows);
    free(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_tied),
        cmocka_unit_test(test_golden_untied_bias_conv3),
        cmocka_unit_test(test_golden_bf16_sharded),
        cmocka_unit_test(test_golden_portable),
        cmocka_unit_test(test_toy_shapes),
        cmocka_unit_test(test_toy_dtypes_and_biases),
        cmocka_unit_test(test_public_reference),
        cmocka_unit_test(test_masks_against_the_reference),
        cmocka_unit_test(test_mask_of_ones_and_removed_mask),
        cmocka_unit_test(test_nll),
        cmocka_unit_test(test_A_is_not_rounded_to_the_stored_dtype),
        cmocka_unit_test(test_time_step_settings_move_nothing),
        cmocka_unit_test(test_padding_rows_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
