/* Mask files: what is written is what is read, other programs' masks are read, bad ones are
 * refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "ssmscope/model.h"
#include "test_messages.h"
#include "test_paths.h"

enum {
    LAYERS = 11,
    CHANNELS = 3,
    STATE = 5,
    MASK = CHANNELS * STATE
}; /* 11: "10" sorts before "2" */

static char root[TEST_PATH_MAX];
static char path[TEST_PATH_MAX * 2];

static int set_up(void **state)
{
    (void)state;
    test_make_directory(root);
    snprintf(path, sizeof path, "%s/mask.safetensors", root);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_directory(root);
    return 0;
}

static ssm_mask example(void)
{
    ssm_mask mask;
    assert_int_equal(ssm_mask_create(LAYERS, CHANNELS, STATE, &mask, NULL), SSM_STATUS_OK);
    ssm_rng rng = ssm_rng_create(1, "mask");
    for (int i = 0; i < LAYERS * MASK; i++) {
        assert_int_equal(mask.keep[i], 1); /* all kept at first */
    }
    for (int h = 0; h < LAYERS * CHANNELS; h++) { /* three of five, another run in each channel */
        const uint64_t first = ssm_rng_below(&rng, STATE);
        for (uint64_t n = 0; n < STATE; n++) {
            mask.keep[(uint64_t)(h * STATE) + (first + n) % STATE] = n < 3;
        }
    }
    snprintf(mask.rule, sizeof mask.rule, "static");
    snprintf(mask.model_digest, sizeof mask.model_digest, "xxh3-128:m");
    snprintf(mask.recording_digest, sizeof mask.recording_digest, "xxh3-128:r");
    mask.budget = 3;
    mask.seed = UINT64_MAX;
    return mask;
}

static void a_mask_survives_the_file(void **state)
{
    (void)state;
    ssm_mask mask = example();
    ssm_mask back;
    assert_int_equal(ssm_mask_write(&mask, path, "ssmscope select", NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_mask_read(path, &back, NULL), SSM_STATUS_OK);
    assert_true(back.n_layers == LAYERS && back.n_channels == CHANNELS && back.d_state == STATE);
    assert_memory_equal(back.keep, mask.keep, LAYERS * MASK);
    assert_string_equal(back.rule, "static");
    assert_string_equal(back.scope, "channel");
    assert_string_equal(back.model_digest, "xxh3-128:m");
    assert_string_equal(back.recording_digest, "xxh3-128:r");
    assert_true(back.budget == 3 && back.seed == UINT64_MAX);
    ssm_mask_free(&back);
    ssm_mask_free(&mask);
    ssm_mask_free(&mask); /* harmless */
}

static void weights_survive_the_file(void **state)
{
    (void)state;
    ssm_mask mask = example();
    ssm_mask back;
    assert_int_equal(ssm_mask_add_weights(&mask, NULL), SSM_STATUS_OK);
    ssm_rng rng = ssm_rng_create(2, "weights");
    for (int i = 0; i < LAYERS * MASK; i++) {
        assert_true(mask.weight[i] == (float)mask.keep[i]); /* as without weights */
        mask.weight[i] *= (float)ssm_rng_normal(&rng);
    }
    for (int i = 0; i < LAYERS * CHANNELS; i++) {
        assert_true(mask.skip_weight[i] == 1.0F);
        mask.skip_weight[i] = (float)ssm_rng_normal(&rng);
    }
    for (int heads = 0; heads < 2; heads++) { /* rows, and rows as channels of heads */
        mask.head_dim = heads == 0 ? 0 : 3;
        assert_int_equal(ssm_mask_write(&mask, path, NULL, NULL), SSM_STATUS_OK);
        assert_int_equal(ssm_mask_read(path, &back, NULL), SSM_STATUS_OK);
        assert_int_equal(back.head_dim, mask.head_dim);
        assert_memory_equal(back.keep, mask.keep, LAYERS * MASK);
        assert_memory_equal(back.weight, mask.weight, LAYERS * MASK * sizeof(float));
        assert_memory_equal(back.skip_weight, mask.skip_weight, LAYERS * CHANNELS * sizeof(float));
        ssm_mask_free(&back);
    }
    ssm_mask_free(&mask);
    assert_true(mask.weight == NULL && mask.skip_weight == NULL);
}

static ssm_status write_and_read(const ssm_mask *mask, ssm_error *err)
{
    ssm_mask back;
    ssm_error_clear(err);
    assert_int_equal(ssm_mask_write(mask, path, NULL, NULL), SSM_STATUS_OK);
    const ssm_status status = ssm_mask_read(path, &back, err);
    assert_true(status != SSM_STATUS_OK || (back.mean_budget && back.budget == 3));
    ssm_mask_free(&back);
    return status;
}

static void a_budget_may_be_a_mean(void **state)
{
    (void)state;
    ssm_mask mask = example();
    ssm_error err;
    mask.mean_budget = true;
    for (int i = 0; i < LAYERS * MASK; i++) {
        mask.keep[i] = i % STATE < 3;
    }
    mask.keep[0] = 0;        /* one less in layer 0 … */
    mask.keep[MASK + 3] = 1; /* … and one more in layer 1 */
    assert_int_equal(write_and_read(&mask, &err), SSM_STATUS_OK);
    memset(mask.keep + 2 * MASK, 1, MASK); /* whole, as attention is: nothing is owed */
    assert_int_equal(write_and_read(&mask, &err), SSM_STATUS_OK);
    for (int i = 3 * MASK; i < 5 * MASK; i++) { /* whole, and two layers pay for its 6 more */
        mask.keep[i] = i % STATE < 2;
    }
    assert_int_equal(write_and_read(&mask, &err), SSM_STATUS_OK);
    mask.keep[MASK] = 0;
    assert_int_equal(write_and_read(&mask, &err), SSM_STATUS_FILE);
    assert_non_null(strstr(err.message, "3 modes are kept in the mean"));
    ssm_mask_free(&mask);
}

static void shapes_that_do_not_exist_are_refused(void **state)
{
    (void)state;
    ssm_mask mask;
    assert_int_equal(ssm_mask_create(0, 3, 5, &mask, NULL), SSM_STATUS_USAGE);
    assert_int_equal(ssm_mask_create(1, -3, 5, &mask, NULL), SSM_STATUS_USAGE);
    assert_int_equal(ssm_mask_create(INT64_MAX, 2, 1, &mask, NULL), SSM_STATUS_USAGE);
    assert_null(mask.keep);
}

/* ---- other programs' files
 * ------------------------------------------------------------------------ */

typedef struct layer_case {
    const char *name;
    ssm_dtype dtype;
    int n_dims;
    int64_t dims[3];
    uint8_t value; /* of every element */
} layer_case;

typedef struct mask_case {
    const char *rule; /* what is broken; NULL: the file is good */
    layer_case layers[3];
    const char *key, *value, *message;
} mask_case;

#define GOOD(n)                                                                                    \
    {                                                                                              \
        "layers." #n ".keep", SSM_DTYPE_U8, 2, {2, 4}, 1                                           \
    }

#define WEIGHT(type, n, value)                                                                     \
    {                                                                                              \
        "layers.0.weight", SSM_DTYPE_##type, 2, {2, n}, value                                      \
    }
#define SKIP(n, value)                                                                             \
    {                                                                                              \
        "layers.0.skip_weight", SSM_DTYPE_F32, 1, {n}, value                                       \
    }

static const mask_case cases[] = {
    {NULL, {GOOD(0), GOOD(1)}, "rule", "mine", NULL},
    {NULL, {GOOD(1), GOOD(0)}, "scope", "layer", NULL},
    {"no tensors", {{0}}, NULL, NULL, "not a mask"},
    {"a layer is missing", {GOOD(0), GOOD(2)}, NULL, NULL, "one is missing"},
    {"a number with a zero before it", {GOOD(0), GOOD(01)}, NULL, NULL, "not understood"},
    {"weights without those of the feed-through",
     {GOOD(0), {"layers.0.weight", SSM_DTYPE_F32, 2, {2, 4}, 0}},
     NULL,
     NULL,
     "this one is missing"},
    {"weights of another type",
     {GOOD(0), WEIGHT(U8, 4, 1), SKIP(2, 0)},
     NULL,
     NULL,
     "expected F32 of the shape"},
    {"weights of another shape",
     {GOOD(0), WEIGHT(F32, 3, 0), SKIP(2, 0)},
     NULL,
     NULL,
     "expected F32 of the shape"},
    {"feed-through of another shape",
     {GOOD(0), WEIGHT(F32, 4, 0), SKIP(3, 0)},
     NULL,
     NULL,
     "without its last dimension"},
    {"a weight that is no number",
     {GOOD(0), WEIGHT(F32, 4, 0xff), SKIP(2, 0)},
     NULL,
     NULL,
     "expected a finite number"},
    {"a feed-through that is no number",
     {GOOD(0), WEIGHT(F32, 4, 0), SKIP(2, 0xff)},
     NULL,
     NULL,
     "expected a finite number"},
    {"a weight of a dropped mode",
     {{"layers.0.keep", SSM_DTYPE_U8, 2, {2, 4}, 0}, WEIGHT(F32, 4, 1), SKIP(2, 0)},
     NULL,
     NULL,
     "the mode is dropped"},
    {"a budget of something else", {GOOD(0)}, "budget_of", "all", "'each' or 'mean'"},
    {"another tensor",
     {GOOD(0), {"keep", SSM_DTYPE_U8, 2, {2, 4}, 1}},
     NULL,
     NULL,
     "not understood"},
    {"a negative layer",
     {{"layers.-1.keep", SSM_DTYPE_U8, 2, {2, 4}, 1}},
     NULL,
     NULL,
     "not understood"},
    {"another type", {{"layers.0.keep", SSM_DTYPE_F32, 2, {2, 4}, 0}}, NULL, NULL, "expected U8"},
    {"bool instead of uint8",
     {GOOD(0), {"layers.1.keep", SSM_DTYPE_BOOL, 2, {2, 4}, 0}},
     NULL,
     NULL,
     "found BOOL"},
    {"one dimension", {{"layers.0.keep", SSM_DTYPE_U8, 1, {4}, 1}}, NULL, NULL, "with 1"},
    {"two and three dimensions",
     {GOOD(0), {"layers.1.keep", SSM_DTYPE_U8, 3, {1, 2, 4}, 1}},
     NULL,
     NULL,
     "layer 0 has 2 dimensions"},
    {"heads of two widths",
     {{"layers.0.keep", SSM_DTYPE_U8, 3, {1, 4, 2}, 1},
      {"layers.1.keep", SSM_DTYPE_U8, 3, {1, 2, 4}, 1}},
     NULL,
     NULL,
     "layer 0 is [1, 4, 2], this layer is [1, 2, 4]"},
    {"no modes", {{"layers.0.keep", SSM_DTYPE_U8, 2, {2, 0}, 1}}, NULL, NULL, "empty"},
    {"layers of two shapes",
     {GOOD(0), {"layers.1.keep", SSM_DTYPE_U8, 2, {4, 2}, 1}},
     NULL,
     NULL,
     "layer 0 is [2, 4]"},
    {"a two", {GOOD(0), {"layers.1.keep", SSM_DTYPE_U8, 2, {2, 4}, 2}}, NULL, NULL, "found 2"},
    {"another schema", {GOOD(0)}, "schema", "ssmscope.mask/2", "not a mask of this version"},
    {"a scope that is none", {GOOD(0)}, "scope", "model", "'group' or 'layer'"},
    {"a budget above d_state", {GOOD(0)}, "budget", "5", "at most 4"},
    {"a budget that is no number", {GOOD(0)}, "budget", "4 ", "found '4 '"},
    {"a budget that is not what is kept",
     {GOOD(0)},
     "budget",
     "3",
     "channel 0 keeps 4 modes, the metadata say budget = 3"},
    {"an empty budget", {GOOD(0)}, "budget", "", "found ''"},
    {"a negative seed", {GOOD(0)}, "seed", "-1", "found '-1'"},
    {"a seed of 65 bits", {GOOD(0)}, "seed", "18446744073709551616", "expected a number"},
    {"a rule's name of 64 bytes",
     {GOOD(0)},
     "rule",
     "0123456789012345678901234567890123456789012345678901234567890123",
     "at most 63"},
};

static void write_case(const mask_case *how)
{
    ssm_tensor tensors[3];
    uint8_t values[3][64];
    int64_t count = 0;
    for (; count < 3 && how->layers[count].name != NULL; count++) {
        const layer_case *layer = &how->layers[count];
        memset(values[count], layer->value, sizeof values[count]);
        tensors[count] = (ssm_tensor){.name = layer->name,
                                      .dtype = layer->dtype,
                                      .n_dims = layer->n_dims,
                                      .data = values[count]};
        memcpy(tensors[count].dims, layer->dims, sizeof layer->dims);
    }
    ssm_metadata metadata = {how->key, how->value};
    assert_int_equal(
        ssm_safetensors_write(path, tensors, count, &metadata, how->key == NULL ? 0 : 1, NULL),
        SSM_STATUS_OK);
}

static void files_of_other_programs(void **state)
{
    (void)state;
    int refused = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ssm_mask mask;
        ssm_error err;
        ssm_error_clear(&err);
        write_case(&cases[i]);
        ssm_status status = ssm_mask_read(path, &mask, &err);
        if (cases[i].rule == NULL) {
            assert_int_equal(status, SSM_STATUS_OK);
            assert_true(mask.n_layers == 2 && mask.budget == 0 && mask.recording_digest[0] == '\0');
            assert_string_equal(strcmp(cases[i].key, "rule") == 0 ? mask.rule : mask.scope,
                                cases[i].value);
            ssm_mask_free(&mask);
            continue;
        }
        refused++;
        if (status != SSM_STATUS_FILE || strcmp(err.file, path) != 0 ||
            strstr(err.message, cases[i].message) == NULL || mask.keep != NULL) {
            fail_msg("%s: status %d, '%s': '%s'", cases[i].rule, (int)status, err.file,
                     err.message);
        }
        message_log(cases[i].rule, &err);
    }
    printf("%d malformed masks\n", refused);
    assert_int_equal(ssm__write_file(path, "\x10\0\0\0", 4, NULL), SSM_STATUS_OK);
    ssm_mask mask;
    assert_int_equal(ssm_mask_read(path, &mask, NULL), SSM_STATUS_FILE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_survives_the_file),
        cmocka_unit_test(weights_survive_the_file),
        cmocka_unit_test(a_budget_may_be_a_mean),
        cmocka_unit_test(shapes_that_do_not_exist_are_refused),
        cmocka_unit_test(files_of_other_programs),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
