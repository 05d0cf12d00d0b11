/* The float64 reference of whole models: tiny Hugging Face models whose logits and hidden states an
 * independent float64 recurrence gave, and the laws of a causal model on toy checkpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "reference/reference.h"
#include "test_golden.h"
#include "test_numbers.h"
#include "test_paths.h"
#include "test_session.h"
#include "test_toy.h"

static ssm_checkpoint *open_checkpoint(const char *path)
{
    ssm_checkpoint *checkpoint = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_checkpoint_open(path, NULL, &checkpoint, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", path, err.message);
    }
    return checkpoint;
}

static void forward(const ssm_checkpoint *checkpoint, const uint8_t *keep, const int32_t *ids,
                    int64_t count, double *logits, double *hidden)
{
    ssm_error err;
    ssm_error_clear(&err);
    const ssm_status status =
        ssm__ref_forward(ssm_checkpoint_config(checkpoint), ssm__checkpoint_weights(checkpoint),
                         keep, ids, count, logits, hidden, &err);
    if (status != SSM_STATUS_OK) {
        fail_msg("reference: %s", err.message);
    }
}

/* ---- goldens --------------------------------------------------------------------------------- */

static ssm_checkpoint *open_golden(const char *model, int64_t norm_groups)
{
    char path[TEST_PATH_MAX];
    ssm_checkpoint *checkpoint = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    const ssm_checkpoint_options options = {.norm_groups = norm_groups};
    if (ssm_checkpoint_open(golden_model_path(path, model), &options, &checkpoint, &err) !=
        SSM_STATUS_OK) {
        fail_msg("%s: %s", path, err.message);
    }
    return checkpoint;
}

/* 1e-12: two float64 computations in different orders; the measured differences are below 3e-15 of
 * the largest value, so a float32 anywhere (6e-8) or a slip in a formula cannot hide. */
static void check_groups(const char *model, int64_t norm_groups)
{
    ssm_checkpoint *checkpoint = open_golden(model, norm_groups);
    const ssm_config *config = ssm_checkpoint_config(checkpoint);
    for (int sequence = 0; sequence < GOLDEN_SEQUENCES; sequence++) {
        golden_sequence want = golden_read(model, sequence);
        const int64_t stream = want.count * config->d_model;
        assert_int_equal(want.n_logits, want.count * config->vocab_size);
        assert_int_equal(want.n_hidden, (config->n_layers + 1) * stream);
        double *logits = test_doubles(want.n_logits), *hidden = test_doubles(want.n_hidden);

        forward(checkpoint, NULL, want.ids, want.count, logits, hidden);
        test_assert_near("logits", logits, want.logits, want.n_logits, 1e-12);
        for (int64_t begin = 0; begin < want.n_hidden; begin += stream) {
            test_assert_near("hidden", hidden + begin, want.hidden + begin, stream, 1e-12);
        }
        free(hidden);
        free(logits);
        golden_free(&want);
    }
    ssm_checkpoint_close(checkpoint);
}

static void check_model(const char *model)
{
    check_groups(model, 0);
}

static void test_mamba_tied(void **state)
{
    (void)state;
    check_model("mamba-tied");
}

static void test_mamba_untied_bias_conv3(void **state)
{
    (void)state;
    check_model("mamba-untied-bias-conv3");
}

static void test_mamba_bf16_sharded(void **state)
{
    (void)state;
    check_model("mamba-bf16-sharded");
}

static void test_falcon(void **state)
{
    (void)state;
    check_model("falcon");
}

static void test_mamba2_one_group(void **state)
{
    (void)state;
    check_model("mamba2-g1-chunks");
}

/* Hugging Face's norm runs over the full width; by default every group has its own. */
static void test_mamba2_four_groups(void **state)
{
    (void)state;
    const char *model = "mamba2-g4-limit";
    check_groups(model, 1);
    ssm_checkpoint *checkpoint = open_golden(model, 0);
    for (int sequence = 0; sequence < GOLDEN_SEQUENCES; sequence++) {
        golden_sequence full = golden_read(model, sequence);
        int64_t count = 0;
        double *grouped = golden_grouped_logits(model, sequence, &count);
        double *logits = test_doubles(full.n_logits);
        assert_int_equal(count, full.n_logits);
        forward(checkpoint, NULL, full.ids, full.count, logits, NULL);
        test_assert_near("grouped", logits, grouped, count, 1e-12);
        assert_true(test_relative(logits, full.logits, count) > 0.1);
        free(logits);
        free(grouped);
        golden_free(&full);
    }
    ssm_checkpoint_close(checkpoint);
}

/* The models of tools/make_hybrid_goldens.py. */
static void test_hybrids(void **state)
{
    (void)state;
    check_model("hybrid/mamba2-attention");
    check_model("hybrid/transformer");
    check_model("hybrid/mamba-attention");
}

static void test_mamba2_switches(void **state)
{
    (void)state;
    check_model("hybrid/mamba2-wide");
    check_model("hybrid/mamba2-no-norm");
}

/* ---- neural-api, where the handed data is present -------------------------------------------- */

/* 6e-6: these logits were stored as float32 and computed with float32 norms. */
static void check_neural_logits(const ssm_model *model, const json_t *sequence, const json_t *rows)
{
    const ssm_checkpoint *checkpoint = ssm_model_checkpoint(model);
    const int64_t V = ssm_checkpoint_config(checkpoint)->vocab_size;
    const int64_t count = (int64_t)json_array_size(sequence);
    assert_int_equal((int64_t)json_array_size(rows), count);
    double *want = test_doubles(count * V), *logits = test_doubles(count * V);
    int32_t *ids = calloc((size_t)count, sizeof *ids);
    assert_non_null(ids);
    for (int64_t t = 0; t < count; t++) {
        ids[t] = (int32_t)json_integer_value(json_array_get(sequence, (size_t)t));
        const json_t *row = json_array_get(rows, (size_t)t);
        assert_int_equal((int64_t)json_array_size(row), V);
        for (int64_t v = 0; v < V; v++) {
            want[t * V + v] = json_number_value(json_array_get(row, (size_t)v));
        }
    }
    forward(checkpoint, NULL, ids, count, logits, NULL);
    test_assert_near("neural-api logits", logits, want, count * V, 6e-6);
    float *fast = test_model_logits(model, ids, count, 0);
    test_assert_near_f32("neural-api logits, fast", fast, want, count * V, 6e-6);
    free(fast);
    free(ids);
    free(logits);
    free(want);
}

static void check_neural_api(const char *name)
{
    char relative[128], config[TEST_PATH_MAX], weights[TEST_PATH_MAX], logits[TEST_PATH_MAX];
    char *const found[] = {config, weights, logits};
    static const char *const ends[] = {"_config.json", ".safetensors", "_logits.json"};
    for (int i = 0; i < 3; i++) {
        snprintf(relative, sizeof relative, "data/vectors/neural-api/%s%s", name, ends[i]);
        if (!test_shared_path(found[i], relative)) {
            skip();
        }
    }
    /* A model directory is made of links. */
    char directory[TEST_PATH_MAX], link[TEST_PATH_MAX + 32];
    test_make_directory(directory);
    snprintf(link, sizeof link, "%s/config.json", directory);
    assert_int_equal(symlink(config, link), 0);
    snprintf(link, sizeof link, "%s/model.safetensors", directory);
    assert_int_equal(symlink(weights, link), 0);

    ssm_model *model = test_model_open(directory, SSM_ISA_AUTO);
    json_t *root = json_load_file(logits, 0, NULL);
    const json_t *sequences = json_object_get(root, "sequences");
    const json_t *rows = json_object_get(root, "logits");
    assert_int_equal(json_array_size(sequences), 3);
    for (size_t i = 0; i < json_array_size(sequences); i++) {
        check_neural_logits(model, json_array_get(sequences, i), json_array_get(rows, i));
    }
    json_decref(root);
    ssm_model_free(model);
    test_remove_directory(directory);
}

static void test_neural_mamba(void **state)
{
    (void)state;
    check_neural_api("tiny_mamba");
}

static void test_neural_falcon(void **state)
{
    (void)state;
    check_neural_api("tiny_falcon_mamba");
}

static void test_neural_mamba2(void **state)
{
    (void)state;
    check_neural_api("tiny_mamba2");
}

/* ---- laws on a toy model --------------------------------------------------------------------- */

static ssm_checkpoint *open_toy(const ssm_config *config)
{
    char directory[TEST_PATH_MAX];
    test_make_directory(directory);
    toy_checkpoint(directory, config, SSM_DTYPE_F32, 1, NULL);
    ssm_checkpoint *checkpoint = open_checkpoint(directory);
    test_remove_directory(directory); /* the mapping stays */
    return checkpoint;
}

/* A text's logits do not depend on what follows, to the bit; lengths 0, 1, … too. */
static void test_causal(void **state)
{
    (void)state;
    enum { COUNT = 12 };
    const ssm_config config = toy_config();
    ssm_checkpoint *checkpoint = open_toy(&config);
    int32_t ids[COUNT];
    toy_ids(&config, 3, ids, COUNT);
    double *whole = test_doubles(COUNT * config.vocab_size);
    double *part = test_doubles(COUNT * config.vocab_size);
    forward(checkpoint, NULL, ids, COUNT, whole, NULL);
    for (int64_t count = 0; count < COUNT; count++) {
        forward(checkpoint, NULL, ids, count, part, NULL);
        assert_memory_equal(part, whole, (size_t)(count * config.vocab_size) * sizeof *part);
    }
    free(part);
    free(whole);
    ssm_checkpoint_close(checkpoint);
}

static void test_masks(void **state)
{
    (void)state;
    enum { COUNT = 9 };
    const ssm_config config = toy_config();
    const int64_t modes = config.d_inner * config.d_state, n_logits = COUNT * config.vocab_size;
    const int64_t stream = COUNT * config.d_model, n_hidden = (config.n_layers + 1) * stream;
    ssm_checkpoint *checkpoint = open_toy(&config);
    int32_t ids[COUNT];
    toy_ids(&config, 3, ids, COUNT);
    double *plain = test_doubles(n_logits), *plain_hidden = test_doubles(n_hidden);
    double *masked = test_doubles(n_logits), *hidden = test_doubles(n_hidden);
    uint8_t *keep = calloc((size_t)(config.n_layers * modes), 1);
    assert_non_null(keep);

    forward(checkpoint, NULL, ids, COUNT, plain, plain_hidden);
    memset(keep, 1, (size_t)(config.n_layers * modes));
    forward(checkpoint, keep, ids, COUNT, masked, NULL);
    assert_memory_equal(masked, plain, (size_t)n_logits * sizeof *plain);

    /* Without the modes of one layer the streams before it stay and the one after it moves. */
    for (int64_t layer = 0; layer < config.n_layers; layer++) {
        memset(keep, 1, (size_t)(config.n_layers * modes));
        memset(keep + layer * modes, 0, (size_t)modes);
        forward(checkpoint, keep, ids, COUNT, masked, hidden);
        const int64_t after = (layer + 1) * stream;
        assert_memory_equal(hidden, plain_hidden, (size_t)after * sizeof *hidden);
        assert_true(test_relative(hidden + after, plain_hidden + after, stream) > 1e-3);
        assert_true(test_relative(masked, plain, n_logits) > 1e-3);
    }
    free(keep);
    free(hidden);
    free(masked);
    free(plain_hidden);
    free(plain);
    ssm_checkpoint_close(checkpoint);
}

static void test_id_outside_the_vocabulary(void **state)
{
    (void)state;
    const ssm_config config = toy_config();
    ssm_checkpoint *checkpoint = open_toy(&config);
    const int32_t bad[][3] = {{0, 1, 31}, {0, -1, 2}};
    const char *const named[] = {"31 at position 2", "-1 at position 1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ssm_error err;
        ssm_error_clear(&err);
        assert_int_equal(ssm__ref_forward(&config, ssm__checkpoint_weights(checkpoint), NULL,
                                          bad[i], 3, NULL, NULL, &err),
                         SSM_STATUS_USAGE);
        assert_non_null(strstr(err.message, named[i]));
    }
    ssm_checkpoint_close(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mamba_tied),
        cmocka_unit_test(test_mamba_untied_bias_conv3),
        cmocka_unit_test(test_mamba_bf16_sharded),
        cmocka_unit_test(test_falcon),
        cmocka_unit_test(test_mamba2_one_group),
        cmocka_unit_test(test_mamba2_four_groups),
        cmocka_unit_test(test_hybrids),
        cmocka_unit_test(test_mamba2_switches),
        cmocka_unit_test(test_neural_mamba),
        cmocka_unit_test(test_neural_falcon),
        cmocka_unit_test(test_neural_mamba2),
        cmocka_unit_test(test_causal),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_id_outside_the_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
