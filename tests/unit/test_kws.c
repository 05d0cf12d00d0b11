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
#include "test_paths.h"

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
