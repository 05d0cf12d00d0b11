/* test_toy.c: small random checkpoints, made in code. */
#include "test_toy.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "test_numbers.h"
#include "test_paths.h"

ssm_config toy_config(void)
{
    return (ssm_config){.family = SSM_FAMILY_MAMBA,
                        .vocab_size = 31,
                        .d_model = 20,
                        .n_layers = 3,
                        .d_inner = 36,
                        .d_state = 5,
                        .d_conv = 3,
                        .dt_rank = 3,
                        .norm_eps = 1e-5,
                        .tied = false,
                        .bos_id = 0,
                        .eos_id = 0,
                        .pad_id = -1};
}

ssm_config toy_config_heads(void)
{
    return (ssm_config){.family = SSM_FAMILY_MAMBA2,
                        .vocab_size = 31,
                        .d_model = 20,
                        .n_layers = 3,
                        .d_inner = 40,
                        .d_state = 5,
                        .d_conv = 3,
                        .n_heads = 4,
                        .head_dim = 10,
                        .n_groups = 2,
                        .d_ssm = 40,
                        .norm_groups = 2,
                        .gated_norm = true,
                        .dt_limit_high = (double)INFINITY,
                        .norm_eps = 1e-5,
                        .mixer_norm_eps = 1e-5,
                        .bos_id = -1,
                        .eos_id = -1,
                        .pad_id = -1};
}

ssm_config toy_config_wide_heads(bool norm_before_gate)
{
    ssm_config config = toy_config_heads();
    config.head_dim = 40;
    config.d_inner = config.d_ssm = 160;
    config.d_state = 18;
    config.n_layers = 2;
    config.norm_before_gate = norm_before_gate;
    return config;
}

void toy_ids(const ssm_config *config, uint64_t seed, int32_t *ids, int64_t count)
{
    ssm_rng rng = ssm_rng_create(seed, "toy/ids");
    for (int64_t i = 0; i < count; i++) {
        ids[i] = (int32_t)ssm_rng_below(&rng, (uint64_t)config->vocab_size);
    }
}

/* value = mean + scale × (standard normal, or uniform in [0, 1)) */
typedef struct distribution {
    double mean, scale;
    bool uniform;
} distribution;

static double of_fan_in(int64_t fan_in)
{
    return 1.0 / sqrt((double)fan_in);
}

/* ---- a list of tensors that is written as one file ------------------------------------------- */

enum { MAX_TENSORS = 256, MAX_NAME = 96 };

typedef struct builder {
    ssm_dtype dtype;
    uint64_t seed;
    const toy_options *options;
    int64_t count;
    ssm_tensor tensors[MAX_TENSORS];
    char names[MAX_TENSORS][MAX_NAME];
} builder;

static void *round_to(ssm_dtype dtype, float *values, int64_t count)
{
    if (dtype == SSM_DTYPE_F32) {
        return values;
    }
    uint16_t *half = calloc((size_t)count, sizeof *half);
    assert_non_null(half);
    for (int64_t i = 0; i < count; i++) {
        half[i] =
            dtype == SSM_DTYPE_F16 ? ssm__f16_from_f32(values[i]) : ssm__bf16_from_f32(values[i]);
    }
    free(values);
    return half;
}

/* layer −1: a tensor of the model. dims[1] and dims[2] may be 0: fewer dimensions. */
static void add(builder *b, int64_t layer, const char *name, const int64_t dims[3],
                distribution from)
{
    assert_true(b->count < MAX_TENSORS);
    char *full = b->names[b->count];
    if (layer < 0) {
        snprintf(full, MAX_NAME, "%s", name);
    } else {
        snprintf(full, MAX_NAME, "backbone.layers.%" PRId64 ".%s", layer, name);
    }
    ssm_tensor *tensor = &b->tensors[b->count++];
    *tensor = (ssm_tensor){.name = full, .dtype = b->dtype, .file_offset = -1};
    int64_t elements = 1;
    for (; tensor->n_dims < 3 && dims[tensor->n_dims] > 0; tensor->n_dims++) {
        tensor->dims[tensor->n_dims] = dims[tensor->n_dims];
        elements *= dims[tensor->n_dims];
    }
    float *values = test_floats(elements);
    ssm_rng rng = ssm_rng_create(b->seed, full);
    for (int64_t i = 0; i < elements; i++) {
        const double draw = from.uniform ? ssm_rng_uniform(&rng) : ssm_rng_normal(&rng);
        values[i] = (float)(from.mean + from.scale * draw);
    }
    if (b->options->edit) {
        b->options->edit(full, values, elements);
    }
    tensor->data = round_to(b->dtype, values, elements);
    tensor->bytes = (size_t)elements * ssm_dtype_size(b->dtype);
}

#define DIMS(...)           ((const int64_t[3]){__VA_ARGS__})
#define NORMAL(mean, scale) ((distribution){(mean), (scale), false})
#define UNIFORM(from, to)   ((distribution){(from), (to) - (from), true})

static void add_layer(builder *b, const ssm_config *c, int64_t layer)
{
    const int64_t D = c->d_model, E = c->d_inner, N = c->d_state, R = c->dt_rank, K = c->d_conv;
    add(b, layer, "norm.weight", DIMS(D), NORMAL(1.0, 0.2));
    add(b, layer, "mixer.in_proj.weight", DIMS(2 * E, D), NORMAL(0.0, of_fan_in(D)));
    add(b, layer, "mixer.conv1d.weight", DIMS(E, 1, K), NORMAL(0.0, of_fan_in(K)));
    add(b, layer, "mixer.x_proj.weight", DIMS(R + 2 * N, E), NORMAL(0.0, 2.0 * of_fan_in(E)));
    add(b, layer, "mixer.dt_proj.weight", DIMS(E, R), NORMAL(0.0, of_fan_in(R)));
    /* softplus of this is 0.02 to 1, and A is −0.4 to −8: time constants of 1 to 100 tokens. */
    add(b, layer, "mixer.dt_proj.bias", DIMS(E), UNIFORM(-4.0, 0.5));
    add(b, layer, "mixer.A_log", DIMS(E, N), UNIFORM(-0.9, 2.1));
    add(b, layer, "mixer.D", DIMS(E), NORMAL(0.5, 0.5));
    add(b, layer, "mixer.out_proj.weight", DIMS(D, E), NORMAL(0.0, of_fan_in(E)));
    if (!b->options->no_conv_bias) {
        add(b, layer, "mixer.conv1d.bias", DIMS(E), NORMAL(0.0, 0.3));
    }
    if (!b->options->no_proj_bias) {
        add(b, layer, "mixer.in_proj.bias", DIMS(2 * E), NORMAL(0.0, 0.3));
        add(b, layer, "mixer.out_proj.bias", DIMS(D), NORMAL(0.0, 0.3));
    }
}

static void add_layer_of_heads(builder *b, const ssm_config *c, int64_t layer)
{
    const int64_t D = c->d_model, E = c->d_inner, S = c->d_ssm, H = c->n_heads, K = c->d_conv;
    const int64_t conv = S + 2 * c->n_groups * c->d_state, rows = 2 * E + conv - S + H;
    add(b, layer, "norm.weight", DIMS(D), NORMAL(1.0, 0.2));
    add(b, layer, "mixer.in_proj.weight", DIMS(rows, D), NORMAL(0.0, of_fan_in(D)));
    add(b, layer, "mixer.conv1d.weight", DIMS(conv, 1, K), NORMAL(0.0, of_fan_in(K)));
    add(b, layer, "mixer.dt_bias", DIMS(H), UNIFORM(-4.0, 0.5));
    add(b, layer, "mixer.A_log", DIMS(H), UNIFORM(-0.9, 2.1));
    add(b, layer, "mixer.D", DIMS(c->D_per_channel ? S : H), NORMAL(0.5, 0.5));
    add(b, layer, "mixer.out_proj.weight", DIMS(D, E), NORMAL(0.0, of_fan_in(E)));
    if (c->gated_norm) {
        add(b, layer, "mixer.norm.weight", DIMS(S), NORMAL(1.0, 0.2));
    }
    if (!b->options->no_conv_bias) {
        add(b, layer, "mixer.conv1d.bias", DIMS(conv), NORMAL(0.0, 0.3));
    }
    if (!b->options->no_proj_bias) {
        add(b, layer, "mixer.in_proj.bias", DIMS(rows), NORMAL(0.0, 0.3));
        add(b, layer, "mixer.out_proj.bias", DIMS(D), NORMAL(0.0, 0.3));
    }
}

/* In the schema of the original code, which can say everything. */
static void write_config_of_heads(FILE *file, const ssm_config *c, const toy_options *options)
{
    static const char *const words[] = {"false", "true"};
    char limit[64] = "Infinity";
    if (!isinf(c->dt_limit_high)) {
        snprintf(limit, sizeof limit, "%.17g", c->dt_limit_high);
    }
    fprintf(file,
            "{\"d_model\": %" PRId64 ", \"n_layer\": %" PRId64 ", \"vocab_size\": %" PRId64
            ", \"pad_vocab_size_multiple\": 1,\n \"rms_norm\": true, \"tie_embeddings\": %s,\n"
            " \"ssm_cfg\": {\"layer\": \"Mamba2\", \"d_state\": %" PRId64 ", \"d_conv\": %" PRId64
            ", \"expand\": %.17g, \"headdim\": %" PRId64 ", \"d_ssm\": %" PRId64
            ", \"ngroups\": %" PRId64 ",\n  \"D_has_hdim\": %s, \"rmsnorm\": %s,"
            " \"norm_before_gate\": %s, \"bias\": %s, \"conv_bias\": %s,\n"
            "  \"dt_limit\": [%.17g, %s]}%s}\n",
            c->d_model, c->n_layers, c->vocab_size, words[c->tied], c->d_state, c->d_conv,
            (double)c->d_inner / (double)c->d_model, c->head_dim, c->d_ssm, c->n_groups,
            words[c->D_per_channel], words[c->gated_norm], words[c->norm_before_gate],
            words[!options->no_proj_bias], words[!options->no_conv_bias], c->dt_limit_low, limit,
            options->more_json ? options->more_json : "");
}

static void write_config(const char *directory, const ssm_config *c, const toy_options *options)
{
    char path[TEST_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/config.json", directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    if (c->family == SSM_FAMILY_MAMBA2) {
        write_config_of_heads(file, c, options);
        assert_int_equal(fclose(file), 0);
        return;
    }
    fprintf(
        file,
        "{\"architectures\": [\"MambaForCausalLM\"], \"model_type\": \"mamba\",\n"
        " \"vocab_size\": %" PRId64 ", \"hidden_size\": %" PRId64
        ", \"num_hidden_layers\": %" PRId64 ",\n \"intermediate_size\": %" PRId64
        ", \"state_size\": %" PRId64 ", \"conv_kernel\": %" PRId64 ", \"time_step_rank\": %" PRId64
        ",\n \"use_bias\": %s, \"use_conv_bias\": %s,"
        " \"tie_word_embeddings\": %s,\n \"layer_norm_epsilon\": %.17g, \"bos_token_id\": %" PRId64
        ", \"eos_token_id\": %" PRId64 "%s}\n",
        options->claimed_vocab > 0 ? options->claimed_vocab : c->vocab_size, c->d_model,
        c->n_layers, c->d_inner, c->d_state, c->d_conv, c->dt_rank,
        options->no_proj_bias ? "false" : "true", options->no_conv_bias ? "false" : "true",
        c->tied ? "true" : "false", c->norm_eps, c->bos_id, c->eos_id,
        options->more_json ? options->more_json : "");
    assert_int_equal(fclose(file), 0);
}

void toy_checkpoint(const char *directory, const ssm_config *config, ssm_dtype dtype, uint64_t seed,
                    const toy_options *options)
{
    static const toy_options plain = {0};
    builder *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->dtype = dtype;
    b->seed = seed;
    b->options = options ? options : &plain;

    const int64_t V = config->vocab_size, D = config->d_model;
    add(b, -1, "backbone.embeddings.weight", DIMS(V, D), NORMAL(0.0, 1.0));
    add(b, -1, "backbone.norm_f.weight", DIMS(D), NORMAL(1.0, 0.2));
    if (!config->tied) {
        add(b, -1, "lm_head.weight", DIMS(V, D), NORMAL(0.0, of_fan_in(D)));
    }
    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        if (config->family == SSM_FAMILY_MAMBA2) {
            add_layer_of_heads(b, config, layer);
        } else {
            add_layer(b, config, layer);
        }
    }

    char path[TEST_PATH_MAX + 24];
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    const ssm_metadata format = {"format", "pt"};
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_safetensors_write(path, b->tensors, b->count, &format, 1, &err) != SSM_STATUS_OK) {
        fail_msg("toy checkpoint: %s", err.message);
    }
    for (int64_t i = 0; i < b->count; i++) {
        free((void *)(uintptr_t)b->tensors[i].data);
    }
    write_config(directory, config, b->options);
    free(b);
}
