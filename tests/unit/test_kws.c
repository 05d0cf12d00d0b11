/* A trained Mamba-1 keyword spotter (MambaLite-Micro, 10 classes) as a user of the mixer alone:
 * Linear 40 → 64, one mixer (d_model 64, d_state 16), mean over time, Linear 64 → 10. The sample is
 * of class 9. Skipped where the handed data is absent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reference/reference.h"
#include "test_numbers.h"
#include "test_session.h"

enum { FEATURES = 40, D_MODEL = 64, CLASSES = 10, EXPECTED_CLASS = 9 };

typedef struct kws {
    ssm_safetensors *file;
    ssm_config config;
    ssm__layer_weights mixer;
    ssm_tensor linear_in, linear_in_bias, classifier, classifier_bias;
    int64_t tokens;
    double *sample; /* [tokens][FEATURES] */
} kws;

/* A mixer under test: normed input x [tokens][D_MODEL] → out. */
typedef void kws_mixer_fn(const kws *model, const double *x, int64_t tokens, double *out);

static ssm_tensor tensor(const ssm_safetensors *file, const char *name)
{
    const ssm_tensor *found = ssm_safetensors_find(file, name);
    assert_non_null(found);
    return *found;
}

static void open_weights(kws *model, const char *path)
{
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_safetensors_open(path, false, &model->file, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", path, err.message);
    }
    model->linear_in = tensor(model->file, "linear_in.weight");
    model->linear_in_bias = tensor(model->file, "linear_in.bias");
    model->classifier = tensor(model->file, "classifier.weight");
    model->classifier_bias = tensor(model->file, "classifier.bias");
    model->mixer = (ssm__layer_weights){
        .in_proj = tensor(model->file, "mamba.in_proj.weight"),
        .conv1d = tensor(model->file, "mamba.conv1d.weight"),
        .conv1d_bias = tensor(model->file, "mamba.conv1d.bias"),
        .x_proj = tensor(model->file, "mamba.x_proj.weight"),
        .dt_proj = tensor(model->file, "mamba.dt_proj.weight"),
        .dt_proj_bias = tensor(model->file, "mamba.dt_proj.bias"),
        .A_log = tensor(model->file, "mamba.A_log"),
        .D = tensor(model->file, "mamba.D"),
        .out_proj = tensor(model->file, "mamba.out_proj.weight"),
    };
    model->config = (ssm_config){.d_model = D_MODEL,
                                 .d_inner = model->mixer.A_log.dims[0],
                                 .d_state = model->mixer.A_log.dims[1],
                                 .d_conv = model->mixer.conv1d.dims[1],
                                 .dt_rank = model->mixer.dt_proj.dims[1]};
    assert_int_equal(model->linear_in.dims[0], D_MODEL);
    assert_int_equal(model->linear_in.dims[1], FEATURES);
}

/* A .npy file of version 1 with little-endian float32 (checked by its size and header). */
static void read_sample(kws *model, const char *path)
{
    unsigned char magic[10];
    char header[256] = {0};
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(magic, 1, sizeof magic, file), sizeof magic);
    assert_memory_equal(magic, "\x93NUMPY\x01", 7);
    const size_t header_bytes = (size_t)magic[8] + 256 * (size_t)magic[9];
    assert_true(header_bytes < sizeof header);
    assert_int_equal(fread(header, 1, header_bytes, file), header_bytes);
    assert_non_null(strstr(header, "'<f4'"));
    assert_non_null(strstr(header, "(4000,)"));
    float values[4000];
    assert_int_equal(fread(values, sizeof *values, 4000, file), 4000);
    fclose(file);
    model->tokens = 4000 / FEATURES;
    model->sample = test_doubles(4000);
    for (int i = 0; i < 4000; i++) {
        model->sample[i] = (double)values[i];
    }
}

static bool open_kws(kws *model)
{
    char weights[TEST_PATH_MAX], sample[TEST_PATH_MAX];
    if (!test_shared_path(weights, "data/models/mambalite-kws10/model.safetensors") ||
        !test_shared_path(sample, "data/models/mambalite-kws10/sample_input.npy")) {
        return false;
    }
    *model = (kws){0};
    open_weights(model, weights);
    read_sample(model, sample);
    return true;
}

static void close_kws(kws *model)
{
    free(model->sample);
    ssm_safetensors_close(model->file);
}

/* Scores of the classes and the mixer's output [tokens][D_MODEL]. */
static void run_kws(const kws *model, kws_mixer_fn *mixer, double scores[CLASSES], double *out)
{
    double *x = test_doubles(model->tokens * D_MODEL), mean[D_MODEL] = {0};
    ssm__ref_linear(&model->linear_in, &model->linear_in_bias, model->sample, x, model->tokens);
    mixer(model, x, model->tokens, out);
    for (int64_t i = 0; i < model->tokens * D_MODEL; i++) {
        mean[i % D_MODEL] += out[i] / (double)model->tokens;
    }
    ssm__ref_linear(&model->classifier, &model->classifier_bias, mean, scores, 1);
    free(x);
}

static int best_class(const double scores[CLASSES])
{
    int best = 0;
    for (int i = 1; i < CLASSES; i++) {
        best = scores[i] > scores[best] ? i : best;
    }
    return best;
}

static void reference_mixer(const kws *model, const double *x, int64_t tokens, double *out)
{
    assert_int_equal(
        ssm__ref_mamba_mixer(&model->config, &model->mixer, NULL, x, tokens, out, NULL, NULL, NULL),
        SSM_STATUS_OK);
}

/* ---- the fast path --------------------------------------------------------------------------- */

/* A language model of one layer is made around the mixer: token t is id t, whose embedding is x_t.
 * Its RMSNorm does nothing: with eps = 2⁴⁰ and weights of 2²⁰, x / sqrt(mean x² + eps) · w is x. */
static void write_config(const char *directory, const kws *model, int64_t tokens)
{
    const ssm_config *c = &model->config;
    char path[TEST_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/config.json", directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "{\"model_type\": \"mamba\", \"vocab_size\": %d, \"hidden_size\": %d,"
            " \"num_hidden_layers\": 1, \"intermediate_size\": %d, \"state_size\": %d,"
            " \"conv_kernel\": %d, \"time_step_rank\": %d, \"use_bias\": false,"
            " \"use_conv_bias\": true, \"tie_word_embeddings\": true,"
            " \"layer_norm_epsilon\": 1099511627776.0}\n",
            (int)tokens, D_MODEL, (int)c->d_inner, (int)c->d_state, (int)c->d_conv,
            (int)c->dt_rank);
    assert_int_equal(fclose(file), 0);
}

static void write_weights(const char *directory, const kws *model, const float *x, int64_t tokens)
{
    float norm[D_MODEL];
    for (int k = 0; k < D_MODEL; k++) {
        norm[k] = 1048576.0F;
    }
    const ssm_tensor vector = {.name = "backbone.norm_f.weight",
                               .dtype = SSM_DTYPE_F32,
                               .n_dims = 1,
                               .dims = {D_MODEL},
                               .data = norm,
                               .bytes = sizeof norm};
    const struct {
        const char *name;
        ssm_tensor tensor;
    } mixer[] = {
        {"in_proj.weight", model->mixer.in_proj},
        {"conv1d.weight", model->mixer.conv1d},
        {"conv1d.bias", model->mixer.conv1d_bias},
        {"x_proj.weight", model->mixer.x_proj},
        {"dt_proj.weight", model->mixer.dt_proj},
        {"dt_proj.bias", model->mixer.dt_proj_bias},
        {"A_log", model->mixer.A_log},
        {"D", model->mixer.D},
        {"out_proj.weight", model->mixer.out_proj},
    };
    enum { MIXER = sizeof mixer / sizeof *mixer };
    ssm_tensor tensors[MIXER + 3];
    char names[MIXER][64];
    for (int i = 0; i < MIXER; i++) {
        snprintf(names[i], sizeof names[i], "backbone.layers.0.mixer.%s", mixer[i].name);
        tensors[i] = mixer[i].tensor;
        tensors[i].name = names[i];
        if (strcmp(mixer[i].name, "conv1d.weight") == 0) { /* [E, K] here, [E, 1, K] there */
            tensors[i].n_dims = 3;
            tensors[i].dims[2] = tensors[i].dims[1];
            tensors[i].dims[1] = 1;
        }
    }
    tensors[MIXER] = vector;
    tensors[MIXER + 1] = vector;
    tensors[MIXER + 1].name = "backbone.layers.0.norm.weight";
    tensors[MIXER + 2] = (ssm_tensor){.name = "backbone.embeddings.weight",
                                      .dtype = SSM_DTYPE_F32,
                                      .n_dims = 2,
                                      .dims = {tokens, D_MODEL},
                                      .data = x,
                                      .bytes = (size_t)(tokens * D_MODEL) * sizeof *x};
    char path[TEST_PATH_MAX + 24];
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    assert_int_equal(ssm_safetensors_write(path, tensors, MIXER + 3, NULL, 0, NULL), SSM_STATUS_OK);
}

static void take_mixer_out(void *context, const ssm_tap *tap)
{
    ssm_tap_copy(tap, (float *)context + tap->position * D_MODEL);
}

static void fast_mixer(const kws *model, const double *x, int64_t tokens, double *out)
{
    float *narrow = test_floats(tokens * D_MODEL), *fast = test_floats(tokens * D_MODEL);
    int32_t *ids = calloc((size_t)tokens, sizeof *ids);
    assert_non_null(ids);
    for (int64_t i = 0; i < tokens * D_MODEL; i++) {
        narrow[i] = (float)x[i];
        ids[i / D_MODEL] = (int32_t)(i / D_MODEL);
    }
    char directory[TEST_PATH_MAX];
    test_make_directory(directory);
    write_config(directory, model, tokens);
    write_weights(directory, model, narrow, tokens);
    ssm_model *engine = test_model_open(directory, SSM_ISA_AUTO);
    test_remove_directory(directory);
    ssm_session *session = test_session_create(engine, NULL, 0);
    const ssm_observer observer = {
        .context = fast, .points = 1U << SSM_TAP_MIXER_OUT, .read = take_mixer_out};
    ssm_session_set_observer(session, &observer);
    assert_int_equal(ssm_session_forward(session, ids, tokens, SSM_LOGITS_NONE, NULL, NULL, NULL),
                     SSM_STATUS_OK);
    for (int64_t i = 0; i < tokens * D_MODEL; i++) {
        out[i] = (double)fast[i];
    }
    ssm_session_free(session);
    ssm_model_free(engine);
    free(ids);
    free(fast);
    free(narrow);
}

static void test_class_of_the_sample(void **state)
{
    (void)state;
    kws model;
    if (!open_kws(&model)) {
        skip();
    }
    double scores[CLASSES], *out = test_doubles(model.tokens * D_MODEL);
    run_kws(&model, reference_mixer, scores, out);
    assert_int_equal(best_class(scores), EXPECTED_CLASS);

    double fast_scores[CLASSES], *fast = test_doubles(model.tokens * D_MODEL);
    run_kws(&model, fast_mixer, fast_scores, fast);
    assert_int_equal(best_class(fast_scores), EXPECTED_CLASS);
    /* One float32 mixer on inputs rounded to float32. */
    test_assert_near("mixer", fast, out, model.tokens * D_MODEL, 2e-6);
    test_assert_near("scores", fast_scores, scores, CLASSES, 2e-6);
    free(fast);
    free(out);
    close_kws(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_class_of_the_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
