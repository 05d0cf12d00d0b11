/* Mimetic initialisation of checkpoints: new ones, existing ones, layers and heads that are not
 * named. The pieces: test_mimetic_pieces.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <ssmscope/convert.h>
#include <ssmscope/init.h>

#include "checkpoint/slots.h"
#include "checkpoint/tensor.h"
#include "test_paths.h"
#include "train/mimetic.h"

/* ---- checkpoints ----------------------------------------------------------------------------- */

static ssm_config mamba_config(void)
{
    return (ssm_config){.vocab_size = 50,
                        .d_model = 64,
                        .n_layers = 3,
                        .d_inner = 192,
                        .d_state = 16,
                        .d_conv = 4,
                        .dt_rank = 8,
                        .norm_eps = 1e-5,
                        .tied = true,
                        .bos_id = -1,
                        .eos_id = -1,
                        .pad_id = -1};
}

/* tiny-mamba2 with a state that fills the rows: 8 heads of 16, 2 groups. */
static ssm_config mamba2_config(void)
{
    ssm_config config;
    assert_int_equal(ssm_shape_config("tiny-mamba2", &config, NULL), SSM_STATUS_OK);
    config.d_state = 48;
    return config;
}

static ssm_checkpoint *make(const ssm_config *config, const ssm_mimetic *mimetic, ssm_dtype dtype,
                            char path[TEST_PATH_MAX])
{
    ssm_checkpoint *checkpoint = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    test_make_directory(path);
    if (ssm_init_write_mimetic(config, NULL, mimetic, dtype, 9, path, NULL, &err) !=
            SSM_STATUS_OK ||
        ssm_checkpoint_open(path, NULL, &checkpoint, &err) != SSM_STATUS_OK) {
        fail_msg("%s (%s)", err.message, err.tensor);
    }
    return checkpoint;
}

static void drop(ssm_checkpoint *checkpoint, const char *path)
{
    ssm_checkpoint_close(checkpoint);
    test_remove_directory(path);
}

static float *values(const ssm_tensor *tensor)
{
    float *out = calloc((size_t)ssm_tensor_count(tensor) + 1, sizeof *out);
    assert_non_null(out);
    ssm__tensor_to_f32(tensor, out);
    return out;
}

typedef struct product {
    double mean_diagonal, rms_beside;
} product;

/* Of W_Cᵀ W_B, W [rows][cols]. */
static product measure(const float *W_B, const float *W_C, int64_t rows, int64_t cols)
{
    product out = {0};
    for (int64_t i = 0; i < cols; i++) {
        for (int64_t j = 0; j < cols; j++) {
            double element = 0;
            for (int64_t n = 0; n < rows; n++) {
                element += (double)W_C[n * cols + i] * (double)W_B[n * cols + j];
            }
            if (i == j) {
                out.mean_diagonal += element / (double)cols;
            } else {
                out.rms_beside += element * element / (double)(cols * (cols - 1));
            }
        }
    }
    out.rms_beside = sqrt(out.rms_beside);
    return out;
}

/* W of N rows with independent elements: the ratio of mean diagonal to rms beside is √N for equal
 * matrices, √(N/2) for half, √N for orthogonal rows (N ≪ cols), up to √((1 + noise²)) and the
 * sampling of a mean over all columns, a few percent. Independent matrices: 0 ± 1/√cols. */
static void expect_ratio(product measured, double ratio)
{
    assert_true(fabs(measured.mean_diagonal / measured.rms_beside - ratio) < 0.15 * ratio);
}

static void expect_independent(product measured, int64_t cols)
{
    assert_true(fabs(measured.mean_diagonal / measured.rms_beside) < 5 / sqrt((double)cols));
}

static product measure_mamba(const ssm__layer_weights *layer)
{
    float *x_proj = values(&layer->x_proj);
    const product out = measure(x_proj + 8 * 192, x_proj + (8 + 16) * 192, 16, 192);
    free(x_proj);
    return out;
}

static void expect_all(const ssm_tensor *tensor, float value)
{
    for (int64_t i = 0; i < ssm_tensor_count(tensor); i++) {
        assert_true((float)ssm_tensor_get(tensor, i) == value);
    }
}

static void expect_identity(const ssm_tensor *conv, const ssm_tensor *bias)
{
    const int64_t taps = conv->dims[conv->n_dims - 1];
    for (int64_t i = 0; i < ssm_tensor_count(conv); i++) {
        assert_true(ssm_tensor_get(conv, i) == (i % taps == taps - 1 ? 1 : 0));
    }
    expect_all(bias, 0);
}

/* Δ = softplus(bias) when its token-dependent part is zero. float32 has half an ulp, 3e-8, of the
 * bias to get wrong. */
static void expect_step_of_one(const ssm_tensor *bias)
{
    for (int64_t i = 0; i < ssm_tensor_count(bias); i++) {
        assert_true(fabs(log1p(exp(ssm_tensor_get(bias, i))) - 1) < 1e-7);
    }
}

static void a_new_mamba(void **state)
{
    (void)state;
    const double ratios[] = {sqrt(8), 4, 4};
    const ssm_config config = mamba_config();
    char plain_path[TEST_PATH_MAX];
    ssm_checkpoint *plain = make(&config, NULL, SSM_DTYPE_F32, plain_path);
    for (int mode = 0; mode < 3; mode++) {
        char path[TEST_PATH_MAX];
        const int64_t layers[] = {0, 2};
        ssm_mimetic mimetic = ssm_mimetic_default();
        mimetic.mode = (ssm_mimetic_mode)mode;
        mimetic.layers = layers;
        mimetic.n_layers = 2;
        ssm_checkpoint *checkpoint = make(&config, &mimetic, SSM_DTYPE_F32, path);
        for (int64_t i = 0; i < 3; i += 2) {
            const ssm__layer_weights *layer = &ssm__checkpoint_weights(checkpoint)->layers[i];
            const ssm__layer_weights *before = &ssm__checkpoint_weights(plain)->layers[i];
            expect_all(&layer->A_log, -8);
            expect_all(&layer->dt_proj, 0);
            expect_step_of_one(&layer->dt_proj_bias);
            expect_identity(&layer->conv1d, &layer->conv1d_bias);
            expect_ratio(measure_mamba(layer), ratios[mode]);
            expect_independent(measure_mamba(before), 192);
            /* The dt rows of x_proj stay, so that a gradient reaches dt_proj.weight. */
            assert_memory_equal(layer->x_proj.data, before->x_proj.data, 8 * 192 * sizeof(float));
            assert_memory_equal(layer->in_proj.data, before->in_proj.data, before->in_proj.bytes);
            assert_memory_equal(layer->out_proj.data, before->out_proj.data,
                                before->out_proj.bytes);
            assert_memory_equal(layer->D.data, before->D.data, before->D.bytes);
            /* HALF and EQUAL leave B as it was drawn. */
            assert_true((memcmp((const float *)layer->x_proj.data + 8 * 192,
                                (const float *)before->x_proj.data + 8 * 192,
                                16 * 192 * sizeof(float)) == 0) ==
                        (mode != SSM_MIMETIC_ORTHOGONAL));
        }
        drop(checkpoint, path);
    }
    drop(plain, plain_path);
}

/* All slots but those of the layers that are named have the same bytes. */
static void expect_rest_unchanged(const ssm_checkpoint *a, const ssm_checkpoint *b, int64_t layer)
{
    const int64_t n_layers = ssm_checkpoint_config(a)->n_layers;
    int64_t compared = 0;
    for (int64_t i = 0; i < ssm__slot_count(n_layers); i++) {
        const ssm__slot_place place = ssm__slot_at(n_layers, i);
        const ssm_tensor *one = ssm__slot_tensor_const(ssm__checkpoint_weights(a), place);
        const ssm_tensor *other = ssm__slot_tensor_const(ssm__checkpoint_weights(b), place);
        if (place.layer == layer || one->name == NULL) {
            continue;
        }
        assert_int_equal(one->dtype, other->dtype);
        assert_int_equal(one->bytes, other->bytes);
        assert_memory_equal(one->data, other->data, one->bytes);
        compared++;
    }
    assert_true(compared > n_layers);
}

/* Which tensors of layer 1 a switch may touch. */
static const struct {
    const char *switch_;
    int slots[2];
    int slots2[2]; /* Mamba-2 */
} touched[] = {
    {"A", {SSM__SLOT_A_log, SSM__SLOT_A_log}, {SSM__SLOT_A_log, SSM__SLOT_A_log}},
    {"delta", {SSM__SLOT_dt_proj, SSM__SLOT_dt_proj_bias}, {SSM__SLOT_in_proj, SSM__SLOT_dt_bias}},
    {"BC", {SSM__SLOT_x_proj, SSM__SLOT_x_proj}, {SSM__SLOT_in_proj, SSM__SLOT_in_proj}},
    {"conv", {SSM__SLOT_conv1d, SSM__SLOT_conv1d_bias}, {SSM__SLOT_conv1d, SSM__SLOT_conv1d_bias}},
};

static void expect_touched(const ssm_checkpoint *plain, const ssm_checkpoint *changed,
                           const int slots[2])
{
    for (int id = 0; id < SSM__LAYER_SLOTS; id++) {
        const ssm__slot_place place = {id, 1};
        const ssm_tensor *one = ssm__slot_tensor_const(ssm__checkpoint_weights(plain), place);
        const ssm_tensor *other = ssm__slot_tensor_const(ssm__checkpoint_weights(changed), place);
        if (one->name != NULL) {
            const bool same = memcmp(one->data, other->data, one->bytes) == 0;
            assert_true(same == (id != slots[0] && id != slots[1]));
        }
    }
}

static void each_switch_alone(void **state)
{
    (void)state;
    const ssm_config configs[] = {mamba_config(), mamba2_config()};
    for (int family = 0; family < 2; family++) {
        char plain_path[TEST_PATH_MAX];
        ssm_checkpoint *plain = make(&configs[family], NULL, SSM_DTYPE_F32, plain_path);
        for (size_t i = 0; i < sizeof touched / sizeof touched[0]; i++) {
            char path[TEST_PATH_MAX];
            const int64_t layer = 1;
            ssm_mimetic mimetic = ssm_mimetic_default();
            assert_int_equal(ssm_mimetic_parse_switches(touched[i].switch_, &mimetic, NULL), 0);
            mimetic.layers = &layer;
            mimetic.n_layers = 1;
            ssm_checkpoint *changed = make(&configs[family], &mimetic, SSM_DTYPE_F32, path);
            expect_rest_unchanged(plain, changed, 1);
            expect_touched(plain, changed, family == 0 ? touched[i].slots : touched[i].slots2);
            drop(changed, path);
        }
        drop(plain, plain_path);
    }
}

/* ---- Mamba-2 --------------------------------------------------------------------------------- */

static void a_new_mamba2(void **state)
{
    (void)state;
    const ssm_config config = mamba2_config(); /* D 64, E 128, N 48, G 2, H 8 of 16 */
    const double ratios[] = {sqrt(24), sqrt(48), 0};
    for (int mode = 0; mode < 3; mode++) {
        char path[TEST_PATH_MAX];
        ssm_mimetic mimetic = ssm_mimetic_default();
        mimetic.mode = (ssm_mimetic_mode)mode;
        ssm_checkpoint *checkpoint = make(&config, &mimetic, SSM_DTYPE_F32, path);
        for (int64_t i = 0; i < config.n_layers; i++) {
            const ssm__layer_weights *layer = &ssm__checkpoint_weights(checkpoint)->layers[i];
            float *in_proj = values(&layer->in_proj);
            expect_all(&layer->A_log, -8);
            expect_step_of_one(&layer->dt_bias);
            expect_identity(&layer->conv1d, &layer->conv1d_bias);
            for (int64_t k = (256 + 192) * 64; k < (256 + 192 + 8) * 64; k++) {
                assert_true(in_proj[k] == 0); /* the dt rows */
            }
            for (int64_t g = 0; g < 2; g++) {
                const float *W_B = in_proj + (256 + g * 48) * 64;
                const product own = measure(W_B, W_B + 96 * 64, 48, 64);
                const product across =
                    measure(W_B, in_proj + (256 + 96 + (1 - g) * 48) * 64, 48, 64);
                if (mode == SSM_MIMETIC_ORTHOGONAL) { /* near the identity: N of D rows */
                    assert_true(own.mean_diagonal > 10 * own.rms_beside);
                } else {
                    expect_ratio(own, ratios[mode]);
                }
                expect_independent(across, 64);
            }
            free(in_proj);
        }
        drop(checkpoint, path);
    }
}

/* Head 5 of 8 is in group 1 of 2. */
static void one_head(void **state)
{
    (void)state;
    const ssm_config config = mamba2_config();
    const int64_t head = 5;
    char path[TEST_PATH_MAX];
    char plain_path[TEST_PATH_MAX];
    ssm_mimetic mimetic = ssm_mimetic_default();
    mimetic.heads = &head;
    mimetic.n_heads = 1;
    ssm_checkpoint *plain = make(&config, NULL, SSM_DTYPE_F32, plain_path);
    ssm_checkpoint *changed = make(&config, &mimetic, SSM_DTYPE_F32, path);
    const ssm__layer_weights *before = &ssm__checkpoint_weights(plain)->layers[0];
    const ssm__layer_weights *after = &ssm__checkpoint_weights(changed)->layers[0];
    for (int64_t h = 0; h < 8; h++) {
        assert_true((ssm_tensor_get(&after->A_log, h) == -8) == (h == 5));
        assert_true((ssm_tensor_get(&after->dt_bias, h) == ssm_tensor_get(&before->dt_bias, h)) ==
                    (h != 5));
    }
    for (int64_t row = 0; row < 456; row++) { /* z, x 256; B 96; C 96; dt 8 */
        const bool same = memcmp((const float *)before->in_proj.data + row * 64,
                                 (const float *)after->in_proj.data + row * 64, 256) == 0;
        const bool of_C = row >= 256 + 96 + 48 && row < 256 + 192; /* group 1: W_C ← half */
        assert_true(same == !(of_C || row == 256 + 192 + 5));
    }
    for (int64_t channel = 0; channel < 128 + 192; channel++) { /* x; B; C */
        const bool same = memcmp((const float *)before->conv1d.data + channel * 4,
                                 (const float *)after->conv1d.data + channel * 4, 16) == 0;
        const bool of_head = channel >= 80 && channel < 96;
        const bool of_group = channel >= 128 && (channel - 128) % 96 >= 48;
        assert_true(same == !(of_head || of_group));
    }
    drop(plain, plain_path);
    drop(changed, path);
}

/* ---- in memory, and existing checkpoints ----------------------------------------------------- */

/* The trainer's way and the file's way give the same bits. */
static void arrays_as_files(void **state)
{
    (void)state;
    const ssm_config configs[] = {mamba_config(), mamba2_config()};
    for (int family = 0; family < 2; family++) {
        char path[TEST_PATH_MAX];
        char plain_path[TEST_PATH_MAX];
        ssm_mimetic mimetic = ssm_mimetic_default();
        mimetic.mode = SSM_MIMETIC_ORTHOGONAL;
        ssm_checkpoint *plain = make(&configs[family], NULL, SSM_DTYPE_F32, plain_path);
        ssm_checkpoint *changed = make(&configs[family], &mimetic, SSM_DTYPE_F32, path);
        const ssm__layer_weights *before = &ssm__checkpoint_weights(plain)->layers[1];
        const ssm__layer_weights *after = &ssm__checkpoint_weights(changed)->layers[1];
        const ssm__mimetic_arrays arrays = {
            .A_log = values(&before->A_log),
            .dt_proj = values(family == 0 ? &before->dt_proj : &before->D),
            .dt_proj_bias = values(family == 0 ? &before->dt_proj_bias : &before->dt_bias),
            .x_proj = values(family == 0 ? &before->x_proj : &before->D),
            .in_proj = values(&before->in_proj),
            .conv1d = values(&before->conv1d),
            .conv1d_bias = values(&before->conv1d_bias)};
        assert_int_equal(ssm__mimetic_apply(&mimetic, &configs[family], 1, 9, &arrays, NULL), 0);
        assert_memory_equal(arrays.A_log, after->A_log.data, after->A_log.bytes);
        assert_memory_equal(arrays.in_proj, after->in_proj.data, after->in_proj.bytes);
        assert_memory_equal(arrays.conv1d, after->conv1d.data, after->conv1d.bytes);
        assert_memory_equal(arrays.conv1d_bias, after->conv1d_bias.data, after->conv1d_bias.bytes);
        if (family == 0) {
            assert_memory_equal(arrays.x_proj, after->x_proj.data, after->x_proj.bytes);
            assert_memory_equal(arrays.dt_proj, after->dt_proj.data, after->dt_proj.bytes);
            assert_memory_equal(arrays.dt_proj_bias, after->dt_proj_bias.data,
                                after->dt_proj_bias.bytes);
        } else {
            assert_memory_equal(arrays.dt_proj_bias, after->dt_bias.data, after->dt_bias.bytes);
        }
        free(arrays.A_log);
        free(arrays.dt_proj);
        free(arrays.dt_proj_bias);
        free(arrays.x_proj);
        free(arrays.in_proj);
        free(arrays.conv1d);
        free(arrays.conv1d_bias);
        drop(plain, plain_path);
        drop(changed, path);
    }
}

/* BF16 matrices: what changes is rounded to them, what does not keeps its bits. */
static void an_existing_checkpoint(void **state)
{
    (void)state;
    const ssm_config configs[] = {mamba_config(), mamba2_config()};
    for (int family = 0; family < 2; family++) {
        char path[TEST_PATH_MAX];
        char base[TEST_PATH_MAX];
        char out[TEST_PATH_MAX + 16];
        const int64_t layer = 1;
        ssm_mimetic mimetic = ssm_mimetic_default();
        mimetic.mode = SSM_MIMETIC_EQUAL;
        mimetic.layers = &layer;
        mimetic.n_layers = 1;
        ssm_checkpoint *plain = make(&configs[family], NULL, SSM_DTYPE_BF16, path);
        test_make_directory(base);
        snprintf(out, sizeof out, "%s/out", base);
        assert_int_equal(ssm_mimetic_rewrite(plain, &mimetic, 0, NULL, out, NULL, NULL), 0);
        ssm_checkpoint *changed = NULL;
        assert_int_equal(ssm_checkpoint_open(out, NULL, &changed, NULL), SSM_STATUS_OK);
        expect_rest_unchanged(plain, changed, 1);
        const ssm__layer_weights *after = &ssm__checkpoint_weights(changed)->layers[1];
        const ssm__layer_weights *before = &ssm__checkpoint_weights(plain)->layers[1];
        expect_all(&after->A_log, -8);
        expect_identity(&after->conv1d, &after->conv1d_bias);
        expect_step_of_one(family == 0 ? &after->dt_proj_bias : &after->dt_bias);
        assert_int_equal(after->in_proj.dtype, SSM_DTYPE_BF16);
        /* Rows of B, then of C: equal; rows in front of them as they were. */
        const ssm_tensor *matrix = family == 0 ? &after->x_proj : &after->in_proj;
        const ssm_tensor *original = family == 0 ? &before->x_proj : &before->in_proj;
        const int64_t first = family == 0 ? 8 * 192 : 256 * 64;
        const int64_t rows = family == 0 ? 16 * 192 : 96 * 64;
        const uint16_t *bits = matrix->data;
        assert_memory_equal(bits, original->data, (size_t)(first + rows) * 2);
        assert_memory_equal(bits + first, bits + first + rows, (size_t)rows * 2);

        /* Once more into the same place is refused. */
        assert_int_equal(ssm_mimetic_rewrite(plain, &mimetic, 0, NULL, out, NULL, NULL),
                         SSM_STATUS_USAGE);
        ssm_checkpoint_close(changed);
        test_remove_directory(base);
        drop(plain, path);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refusal(const ssm_mimetic *mimetic, const ssm_config *config,
                           const ssm_layer_kind *kinds, const char *part)
{
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm__mimetic_check(mimetic, config, kinds, &err), SSM_STATUS_USAGE);
    if (strstr(err.message, part) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", err.message, part);
    }
}

static void refusals(void **state)
{
    (void)state;
    const int64_t far[] = {0, 3};
    const int64_t falling[] = {1, 0};
    const ssm_layer_kind kinds[] = {SSM_LAYER_MAMBA2, SSM_LAYER_ATTENTION};
    const ssm_config mamba = mamba_config();
    ssm_config mamba2 = mamba2_config();
    ssm_mimetic mimetic = ssm_mimetic_default();
    mimetic.layers = far;
    mimetic.n_layers = 2;
    expect_refusal(&mimetic, &mamba, NULL, "layer 3; expected a rising list of 0 … 2");
    mimetic.layers = falling;
    expect_refusal(&mimetic, &mamba, NULL, "layer 0; expected a rising list");
    mimetic.n_layers = 0;
    expect_refusal(&mimetic, &mamba, NULL, "no layer: the list is empty");
    mimetic.layers = &falling[0];
    mimetic.n_layers = 1;
    expect_refusal(&mimetic, &mamba2, kinds, "layer 1 is one of attention");
    mimetic = ssm_mimetic_default();
    mimetic.heads = far;
    mimetic.n_heads = 2;
    expect_refusal(&mimetic, &mamba, NULL, "a mamba model has none");
    mamba2.n_heads = 2;
    expect_refusal(&mimetic, &mamba2, NULL, "head 3; expected a rising list of 0 … 1");
    mimetic = ssm_mimetic_default();
    mamba2.dt_limit_high = 0.1;
    expect_refusal(&mimetic, &mamba2, NULL, "clamps delta to 0 … 0.1");
    mimetic.delta = false;
    assert_int_equal(ssm__mimetic_check(&mimetic, &mamba2, NULL, NULL), SSM_STATUS_OK);
    mimetic.c = 0;
    expect_refusal(&mimetic, &mamba, NULL, "c is 0");
    mimetic.c = NAN;
    expect_refusal(&mimetic, &mamba, NULL, "c is nan");
    mimetic.c = 2;
    mimetic.noise = -1;
    expect_refusal(&mimetic, &mamba, NULL, "noise is -1");
    mimetic = (ssm_mimetic){.c = 8};
    expect_refusal(&mimetic, &mamba, NULL, "every switch off");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_mamba),     cmocka_unit_test(each_switch_alone),
        cmocka_unit_test(a_new_mamba2),    cmocka_unit_test(one_head),
        cmocka_unit_test(arrays_as_files), cmocka_unit_test(an_existing_checkpoint),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
