/* New checkpoints: published shapes, statistics of the default initialisation, same seed same
 * bytes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <ssmscope/init.h>

#include "checkpoint/weights.h"
#include "test_paths.h"

/* Wide enough that the statistics below have 10^3 to 10^4 samples. */
static ssm_config wide_config(void)
{
    return (ssm_config){.vocab_size = 300,
                        .d_model = 64,
                        .n_layers = 4,
                        .d_inner = 192,
                        .d_state = 16,
                        .d_conv = 4,
                        .dt_rank = 8,
                        .norm_eps = 1e-5,
                        .tied = true,
                        .bos_id = 1,
                        .eos_id = 2,
                        .pad_id = -1};
}

static void write_ok(const ssm_config *config, ssm_dtype dtype, uint64_t seed, const char *path)
{
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_init_write(config, dtype, seed, path, NULL, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", path, err.message);
    }
}

static ssm_checkpoint *open_ok(const char *path)
{
    ssm_checkpoint *checkpoint = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_checkpoint_open(path, NULL, &checkpoint, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s (%s)", path, err.message, err.tensor);
    }
    return checkpoint;
}

/* ---- statistics ------------------------------------------------------------------------------ */

typedef struct statistics {
    double mean, sd, low, high;
} statistics;

static statistics measure(const ssm_tensor *tensor)
{
    int64_t count = ssm_tensor_count(tensor);
    statistics s = {0, 0, INFINITY, -INFINITY};
    for (int64_t i = 0; i < count; i++) {
        double value = ssm_tensor_get(tensor, i);
        s.mean += value / (double)count;
        s.sd += value * value / (double)count;
        s.low = fmin(s.low, value);
        s.high = fmax(s.high, value);
    }
    s.sd = sqrt(s.sd - s.mean * s.mean);
    return s;
}

/* Within 5 standard errors of what the distribution says (the seed is fixed, so this cannot
 * flicker); the sample sd of a uniform has relative error sqrt(0.8 / 4 n), of a normal sqrt(1 / 2
 * n). */
static void expect_uniform(const ssm_tensor *tensor, double bound)
{
    statistics s = measure(tensor);
    double n = (double)ssm_tensor_count(tensor);
    double sd = bound / sqrt(3);
    assert_true(fabs(s.mean) < 5 * sd / sqrt(n));
    assert_true(fabs(s.sd / sd - 1) < 5 * sqrt(0.2 / n));
    /* Rounding may carry a value onto the bound. The gaps to the bounds are exponential with mean
     * 2 bound / n: below 20 of those. */
    assert_true(s.low >= -bound * (1 + 0x1p-23) && s.high <= bound * (1 + 0x1p-23));
    assert_true(s.low < -bound * (1 - 40 / n) && s.high > bound * (1 - 40 / n));
}

static void expect_constant(const ssm_tensor *tensor, double value)
{
    statistics s = measure(tensor);
    assert_true(s.low == value && s.high == value);
}

static void expect_dt_bias(const ssm_tensor *bias)
{
    /* log dt is uniform: n = 192 samples a layer. */
    double low = log(1e-3);
    double high = log(0.1);
    double n = (double)ssm_tensor_count(bias);
    double mean = 0;
    double first = INFINITY;
    double last = -INFINITY;
    for (int64_t i = 0; i < ssm_tensor_count(bias); i++) {
        double log_dt = log(log1p(exp(ssm_tensor_get(bias, i))));
        /* The bias is float32 near −7: softplus keeps a relative 2^-22 or so. */
        assert_true(log_dt > low - 1e-6 && log_dt < high + 1e-6);
        mean += log_dt / n;
        first = fmin(first, log_dt);
        last = fmax(last, log_dt);
    }
    double sd = (high - low) / sqrt(12);
    assert_true(fabs(mean - (low + high) / 2) < 5 * sd / sqrt(n));
    assert_true(first < low + 20 * (high - low) / n && last > high - 20 * (high - low) / n);
}

static void expect_a_log(const ssm_tensor *tensor)
{
    for (int64_t i = 0; i < ssm_tensor_count(tensor); i++) {
        assert_true(ssm_tensor_get(tensor, i) ==
                    (double)(float)log((double)(i % tensor->dims[1] + 1)));
    }
}

static void statistics_of_the_default(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    ssm_config config = wide_config();
    test_make_directory(path);
    write_ok(&config, SSM_DTYPE_F32, 7, path);
    ssm_checkpoint *checkpoint = open_ok(path);
    const ssm__weights *weights = ssm__checkpoint_weights(checkpoint);
    statistics embedding = measure(&weights->embedding);
    double n = (double)ssm_tensor_count(&weights->embedding);
    assert_true(fabs(embedding.mean) < 5 * 0.02 / sqrt(n));
    assert_true(fabs(embedding.sd / 0.02 - 1) < 5 * sqrt(0.5 / n));
    assert_true(embedding.high > 3 * 0.02); /* a normal has tails, a uniform of this sd has none */
    expect_constant(&weights->norm_f, 1);
    for (int64_t i = 0; i < config.n_layers; i++) {
        const ssm__layer_weights *layer = &weights->layers[i];
        expect_constant(&layer->norm, 1);
        expect_constant(&layer->D, 1);
        expect_uniform(&layer->in_proj, 1 / sqrt(64));
        expect_uniform(&layer->x_proj, 1 / sqrt(192));
        expect_uniform(&layer->dt_proj, 1 / sqrt(8));
        expect_uniform(&layer->conv1d, 1 / sqrt(4));
        expect_uniform(&layer->conv1d_bias, 1 / sqrt(4));
        expect_uniform(&layer->out_proj, 1 / sqrt(192) / sqrt(4));
        expect_a_log(&layer->A_log);
        expect_dt_bias(&layer->dt_proj_bias);
        assert_null(layer->in_proj_bias.data);
        assert_null(layer->out_proj_bias.data);
    }
    /* Streams are named after the tensors: no two layers are alike. */
    assert_memory_not_equal(weights->layers[0].in_proj.data, weights->layers[1].in_proj.data, 64);
    ssm_checkpoint_close(checkpoint);
    test_remove_directory(path);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void config_comes_back(void **state)
{
    (void)state;
    const ssm_dtype dtypes[] = {SSM_DTYPE_F32, SSM_DTYPE_F16, SSM_DTYPE_BF16};
    for (int i = 0; i < 3; i++) {
        char path[TEST_PATH_MAX];
        ssm_config config = wide_config();
        config.tied = i != 1;
        config.d_inner = i == 2 ? 100 : config.d_inner; /* not a multiple of d_model */
        test_make_directory(path);
        write_ok(&config, dtypes[i], 1, path);
        ssm_checkpoint *checkpoint = open_ok(path);
        const ssm_config *got = ssm_checkpoint_config(checkpoint);
        assert_int_equal(got->vocab_size, 300);
        assert_int_equal(got->d_inner, config.d_inner);
        assert_int_equal(got->dt_rank, 8);
        assert_int_equal(got->tied, config.tied);
        assert_true(got->norm_eps == config.norm_eps);
        assert_int_equal(got->bos_id, 1);
        assert_int_equal(got->eos_id, 2);
        assert_int_equal(got->pad_id, -1);
        assert_int_equal(ssm_checkpoint_note_count(checkpoint), 1); /* the tie only */
        const ssm__weights *weights = ssm__checkpoint_weights(checkpoint);
        assert_int_equal(weights->embedding.dtype, dtypes[i]);
        assert_int_equal(weights->layers[0].dt_proj.dtype, dtypes[i]);
        assert_int_equal(weights->layers[0].A_log.dtype, SSM_DTYPE_F32);
        assert_int_equal(weights->layers[0].conv1d.dtype, SSM_DTYPE_F32);
        assert_int_equal(weights->layers[0].dt_proj_bias.dtype, SSM_DTYPE_F32);
        ssm_checkpoint_close(checkpoint);
        test_remove_directory(path);
    }
}

static void file_digest(const char *directory, const char *name, char out[64])
{
    char path[TEST_PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    assert_int_equal(ssm_file_digest(path, out, NULL), SSM_STATUS_OK);
}

static void same_seed_same_bytes(void **state)
{
    (void)state;
    const uint64_t seeds[3] = {5, 5, 6};
    char weights[3][64];
    char configs[3][64];
    ssm_config config = wide_config();
    for (int i = 0; i < 3; i++) {
        char path[TEST_PATH_MAX];
        test_make_directory(path);
        write_ok(&config, SSM_DTYPE_BF16, seeds[i], path);
        file_digest(path, "model.safetensors", weights[i]);
        file_digest(path, "config.json", configs[i]);
        test_remove_directory(path);
    }
    assert_string_equal(weights[0], weights[1]);
    assert_string_not_equal(weights[0], weights[2]);
    assert_string_equal(configs[0], configs[1]);
    assert_string_equal(configs[0], configs[2]);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Counted from the published modules, not from the table of slots. */
static int64_t mamba_parameters(const ssm_config *c)
{
    int64_t inner = c->d_inner;
    return 2 * inner * c->d_model + inner * c->d_conv + inner +
           (c->dt_rank + 2 * c->d_state) * inner + inner * c->dt_rank + inner + inner * c->d_state +
           inner + c->d_model * inner;
}

static int64_t mamba2_parameters(const ssm_config *c)
{
    int64_t gn = c->n_groups * c->d_state;
    return (2 * c->d_inner + 2 * gn + c->n_heads) * c->d_model +
           (c->d_ssm + 2 * gn) * (c->d_conv + 1) + 3 * c->n_heads + c->d_ssm +
           c->d_inner * c->d_model;
}

static int64_t attention_parameters(const ssm_config *c)
{
    int64_t rows = (c->n_query_heads + 2 * c->n_kv_heads) * c->attention_head_dim;
    return rows * (c->d_model + c->attention_conv + 1) +
           c->d_model * c->n_query_heads * c->attention_head_dim;
}

static int64_t parameters(const char *name, const ssm_config *c)
{
    ssm_layer_kind kinds[64];
    int64_t total = c->vocab_size * c->d_model * (c->tied ? 1 : 2) + c->d_model;
    assert_true(c->n_layers <= 64);
    assert_int_equal(ssm_shape_layers(name, kinds, NULL), SSM_STATUS_OK);
    for (int64_t layer = 0; layer < c->n_layers; layer++) {
        total += c->d_model + (kinds[layer] == SSM_LAYER_MAMBA    ? mamba_parameters(c)
                               : kinds[layer] == SSM_LAYER_MAMBA2 ? mamba2_parameters(c)
                                                                  : attention_parameters(c));
        total += c->d_mlp > 0 ? c->d_model + 3 * c->d_model * c->d_mlp : 0;
    }
    return total;
}

static void published_shapes(void **state)
{
    (void)state;
    /* Parameters of the published checkpoints, as counted from their state dicts' shapes. */
    const struct {
        const char *name;
        int64_t layers, width, parameters;
    } expected[] = {{"tiny", 8, 192, 2800320},
                    {"mamba-130m", 24, 768, 129135360},
                    {"mamba-370m", 48, 1024, 371516416},
                    {"mamba-790m", 48, 1536, 793204224},
                    {"mamba-1.4b", 48, 2048, 1372178432},
                    {"mamba-2.8b", 64, 2560, 2768345600},
                    {"falcon-mamba-7b", 64, 4096, 7272665088},
                    {"mamba2-130m", 24, 768, 128989632},
                    {"mamba2-370m", 48, 1024, 368346624},
                    {"mamba2-780m", 48, 1536, 780161280},
                    {"mamba2-1.3b", 48, 2048, 1343757312},
                    {"mamba2-2.7b", 64, 2560, 2702599680},
                    {"mamba-codestral-7b", 64, 4096, 7285403648},
                    {"mamba2attn-2.7b", 64, 2560, 2697590880},
                    {"tiny-falcon-mamba", 2, 64, 131008},
                    {"tiny-mamba2", 2, 64, 102384},
                    {"tiny-mamba2attn", 4, 64, 218096}};
    const char *const *names = ssm_shape_names();
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        ssm_config config;
        assert_string_equal(names[i], expected[i].name);
        assert_int_equal(ssm_shape_config(names[i], &config, NULL), SSM_STATUS_OK);
        assert_int_equal(config.n_layers, expected[i].layers);
        assert_int_equal(config.d_model, expected[i].width);
        assert_int_equal(parameters(names[i], &config), expected[i].parameters);
    }
    assert_null(names[sizeof expected / sizeof expected[0]]);
}

static void unknown_shape(void **state)
{
    (void)state;
    ssm_config config;
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_shape_config("mamba-130M", &config, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "did you mean mamba-130m?"));
    ssm_error_clear(&err);
    assert_int_equal(ssm_shape_config("transformer", &config, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "expected tiny, mamba-130m"));
}

/* A new checkpoint of each family opens as what its shape says, with the published statistics. */
static void other_families(void **state)
{
    (void)state;
    static const char *const names[] = {"tiny-falcon-mamba", "tiny-mamba2", "tiny-mamba2attn"};
    static const int64_t expected[] = {131008, 102384, 218096};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[TEST_PATH_MAX];
        ssm_config config;
        ssm_layer_kind kinds[4];
        assert_int_equal(ssm_shape_config(names[i], &config, NULL), SSM_STATUS_OK);
        assert_true(config.n_layers <= 4);
        assert_int_equal(ssm_shape_layers(names[i], kinds, NULL), SSM_STATUS_OK);
        test_make_directory(path);
        assert_int_equal(ssm_init_write_layers(&config, kinds, SSM_DTYPE_BF16, 3, path, NULL, NULL),
                         SSM_STATUS_OK);
        ssm_checkpoint *checkpoint = open_ok(path);
        const ssm_config *got = ssm_checkpoint_config(checkpoint);
        assert_memory_equal(got, &config, sizeof config);
        int64_t count = 0;
        for (int64_t k = 0; k < ssm_checkpoint_count(checkpoint); k++) {
            count += ssm_tensor_count(ssm_checkpoint_at(checkpoint, k));
            assert_true(ssm_checkpoint_used(checkpoint, k));
        }
        assert_int_equal(count, expected[i]);
        for (int64_t layer = 0; layer < config.n_layers; layer++) {
            assert_int_equal(ssm_checkpoint_layer_kind(checkpoint, layer), kinds[layer]);
        }
        ssm_checkpoint_close(checkpoint);
        test_remove_directory(path);
    }
}

static void statistics_of_mamba2(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    ssm_config config;
    assert_int_equal(ssm_shape_config("tiny-mamba2", &config, NULL), SSM_STATUS_OK);
    config.n_heads = 128; /* enough samples of what is drawn for a head */
    config.head_dim = 1;
    test_make_directory(path);
    write_ok(&config, SSM_DTYPE_F32, 7, path);
    ssm_checkpoint *checkpoint = open_ok(path);
    for (int64_t i = 0; i < config.n_layers; i++) {
        const ssm__layer_weights *layer = &ssm__checkpoint_weights(checkpoint)->layers[i];
        expect_constant(&layer->norm, 1);
        expect_constant(&layer->gate_norm, 1);
        expect_constant(&layer->D, 1);
        expect_uniform(&layer->in_proj, 1 / sqrt(64));
        expect_uniform(&layer->conv1d, 1 / sqrt(4));
        expect_uniform(&layer->out_proj, 1 / sqrt(128) / sqrt(2));
        expect_dt_bias(&layer->dt_bias);
        /* A ~ U(1, 16): mean 8.5, sd 15/sqrt(12), within 5 standard errors. */
        double mean = 0;
        for (int64_t k = 0; k < 128; k++) {
            const double A = exp(ssm_tensor_get(&layer->A_log, k));
            assert_true(A > 1 - 1e-6 && A < 16 + 1e-5);
            mean += A / 128;
        }
        assert_true(fabs(mean - 8.5) < 5 * 15 / sqrt(12.0 * 128));
    }
    ssm_checkpoint_close(checkpoint);
    test_remove_directory(path);
}

/* The built-in model has the shape that is called tiny. */
static void tiny_is_tiny(void **state)
{
    (void)state;
    ssm_config shape;
    assert_int_equal(ssm_shape_config("tiny", &shape, NULL), SSM_STATUS_OK);
    ssm_checkpoint *checkpoint = open_ok(SSM_SOURCE_DIR "/models/tiny");
    const ssm_config *config = ssm_checkpoint_config(checkpoint);
    assert_int_equal(config->d_model, shape.d_model);
    assert_int_equal(config->n_layers, shape.n_layers);
    assert_int_equal(config->vocab_size, shape.vocab_size);
    assert_int_equal(config->d_inner, shape.d_inner);
    assert_int_equal(config->d_state, shape.d_state);
    assert_int_equal(config->d_conv, shape.d_conv);
    assert_int_equal(config->dt_rank, shape.dt_rank);
    assert_int_equal(config->tied, shape.tied);
    ssm_checkpoint_close(checkpoint);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refusal(const ssm_config *config, ssm_dtype dtype, const char *path,
                           ssm_status expected, const char *part)
{
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_init_write(config, dtype, 0, path, NULL, &err), expected);
    if (strstr(err.message, part) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", err.message, part);
    }
}

static void refusals(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    test_make_directory(path);
    ssm_config config = wide_config();
    expect_refusal(&config, SSM_DTYPE_F64, path, SSM_STATUS_USAGE, "stored as F64");
    config.family = SSM_FAMILY_MAMBA2;
    expect_refusal(&config, SSM_DTYPE_F32, path, SSM_STATUS_USAGE, "n_heads is 0");
    assert_int_equal(ssm_shape_config("tiny-mamba2", &config, NULL), SSM_STATUS_OK);
    config.d_ssm--;
    expect_refusal(&config, SSM_DTYPE_F32, path, SSM_STATUS_USAGE, "d_ssm is 127 with n_heads 8");
    assert_int_equal(ssm_shape_config("tiny-mamba2attn", &config, NULL), SSM_STATUS_OK);
    expect_refusal(&config, SSM_DTYPE_F32, path, SSM_STATUS_USAGE, "layers of attention, and");
    config = wide_config();
    config.dt_rank = 0;
    expect_refusal(&config, SSM_DTYPE_F32, path, SSM_STATUS_USAGE, "dt_rank is 0");
    config = wide_config();
    config.vocab_size = INT64_MAX;
    expect_refusal(&config, SSM_DTYPE_F32, path, SSM_STATUS_USAGE, "vocab_size is 9223372036854");
    config = wide_config();
    config.norm_eps = -1;
    expect_refusal(&config, SSM_DTYPE_F32, path, SSM_STATUS_USAGE, "norm_eps is -1");
    config = wide_config();
    expect_refusal(&config, SSM_DTYPE_F32, "/proc/no/such", SSM_STATUS_FAILED, "");
    write_ok(&config, SSM_DTYPE_F32, 0, path);
    expect_refusal(&config, SSM_DTYPE_F32, path, SSM_STATUS_USAGE, "already holds a model");
    test_remove_directory(path);
}

typedef struct watcher {
    int64_t calls, last, total, stop_at;
} watcher;

static bool watch(void *context, const char *what, int64_t done, int64_t total, const char *unit)
{
    watcher *seen = context;
    assert_string_equal(what, "initialise");
    assert_string_equal(unit, "weights");
    assert_true(done > seen->last);
    seen->last = done;
    seen->total = total;
    return ++seen->calls != seen->stop_at;
}

static void progress_and_interruption(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    char inside[TEST_PATH_MAX + 32];
    test_make_directory(path);
    ssm_config config = wide_config();
    watcher seen = {.stop_at = 10};
    const ssm_progress progress = {&seen, watch};
    assert_int_equal(ssm_init_write(&config, SSM_DTYPE_F32, 0, path, &progress, NULL),
                     SSM_STATUS_INTERRUPTED);
    assert_int_equal(seen.calls, 10);
    assert_int_equal(rmdir(path), 0); /* nothing was left behind */
    seen = (watcher){0};
    assert_int_equal(ssm_init_write(&config, SSM_DTYPE_F32, 0, path, &progress, NULL),
                     SSM_STATUS_OK); /* makes the directory */
    assert_int_equal(seen.last, seen.total);
    assert_int_equal(seen.total,
                     config.vocab_size * config.d_model + config.d_model +
                         config.n_layers * (config.d_model + mamba_parameters(&config)));
    snprintf(inside, sizeof inside, "%s/model.safetensors", path);
    assert_int_equal(access(inside, R_OK), 0);
    test_remove_directory(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_of_the_default),
        cmocka_unit_test(config_comes_back),
        cmocka_unit_test(same_seed_same_bytes),
        cmocka_unit_test(published_shapes),
        cmocka_unit_test(unknown_shape),
        cmocka_unit_test(tiny_is_tiny),
        cmocka_unit_test(other_families),
        cmocka_unit_test(statistics_of_mamba2),
        cmocka_unit_test(refusals),
        cmocka_unit_test(progress_and_interruption),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
