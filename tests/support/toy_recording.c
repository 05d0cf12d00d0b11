#include "toy_recording.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_numbers.h"

toy_recording toy_recording_shape(void)
{
    return (toy_recording){.n_layers = 3,
                           .channels = 5,
                           .d_state = 6,
                           .window = 150,
                           .n_domains = 2,
                           .calibration = 2,
                           .evaluation = 3,
                           .domains = {"prose", "code"}};
}

int64_t toy_recording_windows(const toy_recording *toy)
{
    return toy->n_domains * (toy->calibration + toy->evaluation);
}

int64_t toy_recording_domain(const toy_recording *toy, int64_t window)
{
    return window / (toy->calibration + toy->evaluation);
}

ssm_role toy_recording_role(const toy_recording *toy, int64_t window)
{
    int64_t k = window % (toy->calibration + toy->evaluation);
    return k < toy->calibration ? SSM_ROLE_CALIBRATION : SSM_ROLE_EVALUATION;
}

static ssm_rng stream(const char *what, int64_t window, int64_t layer)
{
    char name[64];
    snprintf(name, sizeof name, "toy/%s/%lld/%lld", what, (long long)window, (long long)layer);
    return ssm_rng_create(20, name);
}

void toy_modes(const toy_recording *toy, int64_t window, int64_t layer, double *modes)
{
    int64_t width = toy->d_state + 1;
    int64_t row = toy->channels * width;
    ssm_rng common = stream("scale", -1, layer);
    ssm_rng own = stream("domain", toy_recording_domain(toy, window), layer);
    ssm_rng drift = stream("drift", window, layer);
    ssm_rng noise = stream("noise", window, layer);
    double *scale = test_doubles(row);
    for (int64_t i = 0; i < row; i++) {
        scale[i] = exp(ssm_rng_normal(&common) + 0.7 * ssm_rng_normal(&own) +
                       0.4 * ssm_rng_normal(&drift));
    }
    for (int64_t t = 0; t < toy->window; t++) {
        for (int64_t h = 0; h < toy->channels; h++) {
            double shared = ssm_rng_normal(&noise); /* correlates the modes of a channel */
            for (int64_t i = 0; i < width; i++) {
                double value = scale[h * width + i] * (ssm_rng_normal(&noise) + 0.5 * shared);
                modes[t * row + h * width + i] = (double)(float)value;
            }
        }
    }
    free(scale);
}

void toy_A(const toy_recording *toy, int64_t layer, float *out)
{
    ssm_rng rng = stream("A", -1, layer);
    for (int64_t i = 0; i < toy->channels * toy->d_state; i++) {
        out[i] = (float)-exp(ssm_rng_normal(&rng));
    }
}

void toy_delta(const toy_recording *toy, int64_t window, int64_t layer, float *out)
{
    ssm_rng rng = stream("delta", window, layer);
    for (int64_t h = 0; h < toy->channels; h++) {
        out[h] = (float)(0.01 + 0.1 * ssm_rng_uniform(&rng));
    }
}

/* ---- one window's tensors -------------------------------------------------------------------- */

enum { FIELDS = 6, NAME = 64 };

typedef struct toy_window {
    ssm_tensor *tensors, *grams;
    int64_t count, n_grams;
    char (*names)[NAME];
    void **owned;
    int64_t n_owned;
} toy_window;

static void add(toy_window *out, bool gram, const char *name, ssm_dtype dtype, int n_dims,
                const int64_t *dims, void *data)
{
    char *kept = out->names[out->n_owned];
    snprintf(kept, NAME, "%s", name);
    ssm_tensor tensor = {.name = kept, .dtype = dtype, .n_dims = n_dims, .data = data};
    memcpy(tensor.dims, dims, (size_t)n_dims * sizeof *dims);
    tensor.bytes = (size_t)ssm_tensor_count(&tensor) * ssm_dtype_size(dtype);
    out->owned[out->n_owned++] = data;
    if (gram) {
        out->grams[out->n_grams++] = tensor;
    } else {
        out->tensors[out->count++] = tensor;
    }
}

static double *gram_of(const toy_recording *toy, const double *modes)
{
    int64_t width = toy->d_state + 1;
    int64_t entries = width * (width + 1) / 2;
    double *gram = test_doubles(toy->channels * entries);
    for (int64_t t = 0; t < toy->window; t++) {
        for (int64_t h = 0; h < toy->channels; h++) {
            const double *m = modes + (t * toy->channels + h) * width;
            double *out = gram + h * entries;
            for (int64_t i = 0; i < width; i++) {
                for (int64_t j = i; j < width; j++) {
                    *out++ += m[i] * m[j];
                }
            }
        }
    }
    return gram;
}

/* energy_blocks [B][H][N] and output_energy [H]. */
static void energies_of(const toy_recording *toy, const double *modes, float *blocks, float *output)
{
    int64_t width = toy->d_state + 1;
    int64_t row = toy->channels * toy->d_state;
    int64_t n_blocks = (toy->window + 63) / 64;
    double *sums = test_doubles(n_blocks * row);
    double *energy = test_doubles(toy->channels);
    for (int64_t t = 0; t < toy->window; t++) {
        for (int64_t h = 0; h < toy->channels; h++) {
            const double *m = modes + (t * toy->channels + h) * width;
            double y = m[toy->d_state];
            for (int64_t i = 0; i < toy->d_state; i++) {
                sums[t / 64 * row + h * toy->d_state + i] += m[i] * m[i];
                y += m[i];
            }
            energy[h] += y * y;
        }
    }
    for (int64_t i = 0; i < n_blocks * row; i++) {
        blocks[i] = (float)sums[i];
    }
    for (int64_t h = 0; h < toy->channels; h++) {
        output[h] = (float)energy[h];
    }
    free(sums);
    free(energy);
}

static void edit_floats(const toy_recording *toy, int64_t window, int64_t layer, const char *field,
                        float *values, int64_t count)
{
    double *edited = test_doubles(count);
    for (int64_t i = 0; i < count; i++) {
        edited[i] = (double)values[i];
    }
    if (toy->edit != NULL) {
        toy->edit(window, layer, field, edited, count);
    }
    for (int64_t i = 0; i < count; i++) {
        values[i] = (float)edited[i];
    }
    free(edited);
}

/* Means of squares, whose scale depends on channel and mode. */
static float *moment_of(const toy_recording *toy, int64_t window, int64_t layer, const char *field)
{
    const int64_t count = toy->channels * toy->d_state;
    float *values = test_floats(count);
    ssm_rng common = stream(field, -1, layer);
    ssm_rng own = stream(field, window, layer);
    for (int64_t i = 0; i < count; i++) {
        values[i] = (float)exp(ssm_rng_normal(&common) + 0.3 * ssm_rng_normal(&own));
    }
    return values;
}

static void add_layer(const toy_recording *toy, int64_t window, int64_t layer, toy_window *out)
{
    int64_t channels = toy->channels;
    int64_t n = toy->d_state;
    int64_t n_blocks = (toy->window + 63) / 64;
    double *modes = test_doubles(toy->window * channels * (n + 1));
    toy_modes(toy, window, layer, modes);
    float *blocks = test_floats(n_blocks * channels * n);
    float *output = test_floats(channels);
    float *delta = test_floats(channels);
    energies_of(toy, modes, blocks, output);
    toy_delta(toy, window, layer, delta);
    edit_floats(toy, window, layer, "energy_blocks", blocks, n_blocks * channels * n);
    edit_floats(toy, window, layer, "output_energy", output, channels);
    edit_floats(toy, window, layer, "delta_mean", delta, channels);
    char name[NAME];
    snprintf(name, sizeof name, "layers.%lld.energy_blocks", (long long)layer);
    add(out, false, name, SSM_DTYPE_F32, 3, (int64_t[]){n_blocks, channels, n}, blocks);
    snprintf(name, sizeof name, "layers.%lld.output_energy", (long long)layer);
    add(out, false, name, SSM_DTYPE_F32, 1, (int64_t[]){channels}, output);
    snprintf(name, sizeof name, "layers.%lld.delta_mean", (long long)layer);
    add(out, false, name, SSM_DTYPE_F32, 1, (int64_t[]){channels}, delta);
    const char *const moments[] = {"state_moment", "read_moment", "adjoint_moment"};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "layers.%lld.%s", (long long)layer, moments[i]);
        float *values = moment_of(toy, window, layer, moments[i]);
        edit_floats(toy, window, layer, moments[i], values, channels * n);
        add(out, false, name, SSM_DTYPE_F32, 2, (int64_t[]){channels, n}, values);
    }
    if (!toy->no_gram) {
        int64_t entries = (n + 1) * (n + 2) / 2;
        snprintf(name, sizeof name, "layers.%lld.gram", (long long)layer);
        double *gram = gram_of(toy, modes);
        if (toy->edit != NULL) {
            toy->edit(window, layer, "gram", gram, channels * entries);
        }
        add(out, true, name, SSM_DTYPE_F64, 2, (int64_t[]){channels, entries}, gram);
    }
    free(modes);
}

static int64_t layer_at(const toy_recording *toy, int64_t i)
{
    return toy->layers == NULL ? i : toy->layers[i];
}

static int64_t layers_of(const toy_recording *toy)
{
    return toy->layers == NULL ? toy->n_layers : toy->n_recorded;
}

static toy_window make_window(const toy_recording *toy, int64_t window)
{
    size_t most = (size_t)layers_of(toy) * (FIELDS + 1) + 2;
    toy_window out = {.tensors = calloc(most, sizeof *out.tensors),
                      .grams = calloc(most, sizeof *out.grams),
                      .names = calloc(most, sizeof *out.names),
                      .owned = calloc(most, sizeof *out.owned)};
    for (int64_t i = 0; i < layers_of(toy); i++) {
        add_layer(toy, window, layer_at(toy, i), &out);
    }
    add(&out, false, "nll", SSM_DTYPE_F32, 1, (int64_t[]){toy->window - 1},
        test_floats(toy->window - 1));
    int32_t *ids = calloc((size_t)toy->window, sizeof *ids);
    add(&out, false, "ids", SSM_DTYPE_I32, 1, (int64_t[]){toy->window}, ids);
    return out;
}

static void free_window(toy_window *window)
{
    for (int64_t i = 0; i < window->n_owned; i++) {
        free(window->owned[i]);
    }
    free(window->owned);
    free(window->tensors);
    free(window->grams);
    free(window->names);
}

/* ---- the writer ------------------------------------------------------------------------------ */

static ssm_recording_info info_of(const toy_recording *toy)
{
    ssm_recording_info info = {.family = SSM_FAMILY_MAMBA,
                               .n_layers = toy->n_layers,
                               .d_model = 4,
                               .d_inner = toy->channels,
                               .d_state = toy->d_state,
                               .window = toy->window,
                               .layers = toy->layers,
                               .n_recorded = toy->n_recorded,
                               .has_gram = !toy->no_gram,
                               .has_window_gram = toy->window_gram};
    snprintf(info.model_digest, sizeof info.model_digest, "xxh3-128:model");
    snprintf(info.tokenizer_digest, sizeof info.tokenizer_digest, "xxh3-128:tokenizer");
    return info;
}

ssm_status toy_recording_create(const toy_recording *toy, const char *directory, bool resume,
                                const char *command, ssm__recording_writer **out, ssm_error *err)
{
    int64_t count = toy_recording_windows(toy);
    int64_t of_domain = toy->calibration + toy->evaluation;
    ssm_recording_window *windows = calloc((size_t)count + 1, sizeof *windows);
    for (int64_t w = 0; w < count; w++) {
        windows[w] = (ssm_recording_window){.domain = toy->domains[toy_recording_domain(toy, w)],
                                            .role = toy_recording_role(toy, w),
                                            .token_offset = w % of_domain * toy->window,
                                            .tokens = toy->window};
    }
    ssm__recording_plan plan = {
        .info = info_of(toy),
        .windows = windows,
        .n_windows = count,
        .extra = json_pack("{s:s, s:s}", "program_version", "0.0.0", "command", command),
        .resume = resume};
    ssm_status status = ssm__recording_create(directory, &plan, out, err);
    json_decref(plan.extra);
    free(windows);
    return status;
}

ssm_status toy_recording_put(const toy_recording *toy, ssm__recording_writer *writer,
                             int64_t window, ssm_error *err)
{
    toy_window made = make_window(toy, window);
    ssm_status status = ssm__recording_put_window(writer, window, made.tensors, made.count,
                                                  made.grams, made.n_grams, err);
    free_window(&made);
    return status;
}

static ssm_status put_model(const toy_recording *toy, ssm__recording_writer *writer, ssm_error *err)
{
    int64_t count = layers_of(toy);
    int64_t size = toy->channels * toy->d_state;
    ssm_tensor *tensors = calloc((size_t)count, sizeof *tensors);
    char(*names)[NAME] = calloc((size_t)count, sizeof *names);
    float *values = test_floats(count * size);
    for (int64_t i = 0; i < count; i++) {
        snprintf(names[i], NAME, "layers.%lld.A", (long long)layer_at(toy, i));
        toy_A(toy, layer_at(toy, i), values + i * size);
        edit_floats(toy, -1, layer_at(toy, i), "A", values + i * size, size);
        tensors[i] = (ssm_tensor){.name = names[i],
                                  .dtype = SSM_DTYPE_F32,
                                  .n_dims = 2,
                                  .dims = {toy->channels, toy->d_state},
                                  .data = values + i * size,
                                  .bytes = (size_t)size * sizeof *values};
    }
    ssm_status status = ssm__recording_put_model(writer, tensors, count, err);
    free(tensors);
    free(names);
    free(values);
    return status;
}

ssm_status toy_recording_write(const toy_recording *toy, const char *directory, bool resume,
                               ssm_error *err)
{
    ssm__recording_writer *writer = NULL;
    ssm_status status =
        toy_recording_create(toy, directory, resume, "ssmscope record toy", &writer, err);
    if (status == SSM_STATUS_OK) {
        status = put_model(toy, writer, err);
    }
    for (int64_t w = 0; w < toy_recording_windows(toy) && status == SSM_STATUS_OK; w++) {
        if (!ssm__recording_has(writer, w)) {
            status = toy_recording_put(toy, writer, w, err);
        }
    }
    if (status == SSM_STATUS_OK) {
        status = ssm__recording_finish(writer, err);
    }
    ssm__recording_writer_free(writer);
    return status;
}

ssm_recording *toy_recording_open(const toy_recording *toy, char root[TEST_PATH_MAX])
{
    ssm_error err;
    ssm_error_clear(&err);
    ssm_recording *recording = NULL;
    test_make_directory(root);
    if (toy_recording_write(toy, root, false, &err) != SSM_STATUS_OK ||
        ssm_recording_open(root, &recording, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s: %s", err.file, err.tensor, err.message);
    }
    return recording;
}

void toy_recording_close(ssm_recording *recording, const char *root)
{
    ssm_recording_close(recording);
    test_remove_directory(root);
}
