/* What the configurations and tensors of all families resolve to, under every schema; inputs that
 * look odd but must load. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/weights.h"
#include "test_edit.h"
#include "test_golden.h"
#include "torch/write.h"

static ssm_checkpoint *open_with(const char *path, const ssm_checkpoint_options *options)
{
    ssm_checkpoint *checkpoint = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_checkpoint_open(path, options, &checkpoint, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s (%s, %s)", path, err.message, err.file, err.tensor);
    }
    return checkpoint;
}

static ssm_checkpoint *open_golden(const char *folder, const char *name)
{
    char relative[128];
    char path[TEST_PATH_MAX];
    snprintf(relative, sizeof relative, "%s/%s", folder, name);
    return open_with(test_golden_path(path, relative), NULL);
}

static void expect_note(const ssm_checkpoint *checkpoint, const char *part)
{
    for (int64_t i = 0; i < ssm_checkpoint_note_count(checkpoint); i++) {
        if (strstr(ssm_checkpoint_note(checkpoint, i), part) != NULL) {
            return;
        }
    }
    fail_msg("%s has no note \"%s\"", ssm_checkpoint_path(checkpoint), part);
}

/* Field by field, so that a failure names the field. */
static void expect_config(const ssm_config *got, const ssm_config *want)
{
#define SAME(field) assert_int_equal(got->field, want->field)
    SAME(family);
    SAME(vocab_size);
    SAME(d_model);
    SAME(n_layers);
    SAME(d_inner);
    SAME(d_state);
    SAME(d_conv);
    SAME(dt_rank);
    SAME(n_heads);
    SAME(head_dim);
    SAME(n_groups);
    SAME(d_ssm);
    SAME(norm_groups);
    SAME(gated_norm);
    SAME(norm_before_gate);
    SAME(D_per_channel);
    SAME(n_query_heads);
    SAME(n_kv_heads);
    SAME(attention_head_dim);
    SAME(attention_conv);
    SAME(rotary_dim);
    SAME(rotary_interleaved);
    SAME(d_mlp);
    SAME(layer_norm);
    SAME(tied);
#undef SAME
    assert_true(got->dt_limit_low == want->dt_limit_low);
    assert_true(got->dt_limit_high == want->dt_limit_high);
    assert_true(got->norm_eps == want->norm_eps);
    assert_true(got->mixer_norm_eps == want->mixer_norm_eps);
    assert_true(got->rotary_base == want->rotary_base);
    assert_true(got->softmax_scale == want->softmax_scale);
}

/* ---- what Hugging Face and the original code wrote ------------------------------------------- */

static void hugging_face(void **state)
{
    (void)state;
    const ssm_config falcon = {.family = SSM_FAMILY_FALCON_MAMBA,
                               .vocab_size = 97,
                               .d_model = 32,
                               .n_layers = 2,
                               .d_inner = 48,
                               .d_state = 16,
                               .d_conv = 4,
                               .dt_rank = 12,
                               .norm_eps = 1e-5,
                               .mixer_norm_eps = 1e-6};
    const ssm_config one_group = {.family = SSM_FAMILY_MAMBA2,
                                  .vocab_size = 97,
                                  .d_model = 32,
                                  .n_layers = 2,
                                  .d_inner = 64,
                                  .d_state = 16,
                                  .d_conv = 4,
                                  .n_heads = 8,
                                  .head_dim = 8,
                                  .n_groups = 1,
                                  .d_ssm = 64,
                                  .norm_groups = 1,
                                  .gated_norm = true,
                                  .dt_limit_high = INFINITY,
                                  .norm_eps = 1e-5,
                                  .mixer_norm_eps = 1e-5,
                                  .tied = true};
    ssm_config four_groups = one_group;
    four_groups.n_groups = 4;
    four_groups.norm_groups = 4;
    four_groups.d_state = 24;
    four_groups.dt_limit_low = 0.02;
    four_groups.dt_limit_high = 0.6;
    four_groups.tied = false;
    const struct {
        const char *name;
        const ssm_config *config;
        ssm_layer_kind kind;
    } models[] = {{"falcon", &falcon, SSM_LAYER_MAMBA},
                  {"mamba2-g1-chunks", &one_group, SSM_LAYER_MAMBA2},
                  {"mamba2-g4-limit", &four_groups, SSM_LAYER_MAMBA2}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        ssm_checkpoint *checkpoint = open_golden("hf-tiny", models[i].name);
        expect_config(ssm_checkpoint_config(checkpoint), models[i].config);
        assert_int_equal(ssm_checkpoint_layer_kind(checkpoint, 1), models[i].kind);
        for (int64_t k = 0; k < ssm_checkpoint_count(checkpoint); k++) {
            assert_true(ssm_checkpoint_used(checkpoint, k));
        }
        ssm_checkpoint_close(checkpoint);
    }
}

static void original_code(void **state)
{
    (void)state;
    const ssm_config attention = {.family = SSM_FAMILY_MAMBA2,
                                  .vocab_size = 32, /* 27, in eights */
                                  .d_model = 24,
                                  .n_layers = 4,
                                  .d_inner = 48,
                                  .d_state = 6,
                                  .d_conv = 3,
                                  .n_heads = 6,
                                  .head_dim = 8,
                                  .n_groups = 2,
                                  .d_ssm = 48,
                                  .norm_groups = 2,
                                  .gated_norm = true,
                                  .dt_limit_high = INFINITY,
                                  .norm_eps = 1e-5,
                                  .mixer_norm_eps = 1e-5,
                                  .tied = true,
                                  .n_query_heads = 4,
                                  .n_kv_heads = 2,
                                  .attention_head_dim = 10,
                                  .attention_conv = 4,
                                  .rotary_dim = 6,
                                  .rotary_base = 10000,
                                  .softmax_scale = 1 / sqrt(10.0),
                                  .d_mlp = 128}; /* 40, rounded up */
    const ssm_config wide = {.family = SSM_FAMILY_MAMBA2,
                             .vocab_size = 24,
                             .d_model = 20,
                             .n_layers = 2,
                             .d_inner = 40,
                             .d_state = 7,
                             .d_conv = 4,
                             .n_heads = 8,
                             .head_dim = 4,
                             .n_groups = 4,
                             .d_ssm = 32,
                             .norm_groups = 4,
                             .gated_norm = true,
                             .norm_before_gate = true,
                             .D_per_channel = true,
                             .dt_limit_low = 0.05,
                             .dt_limit_high = 0.9,
                             .norm_eps = 1e-5,
                             .mixer_norm_eps = 1e-5,
                             .tied = true};
    ssm_checkpoint *checkpoint = open_golden("hybrid", "mamba2-attention");
    expect_config(ssm_checkpoint_config(checkpoint), &attention);
    for (int64_t layer = 0; layer < 4; layer++) {
        assert_int_equal(ssm_checkpoint_layer_kind(checkpoint, layer),
                         layer % 2 == 1 ? SSM_LAYER_ATTENTION : SSM_LAYER_MAMBA2);
    }
    ssm_checkpoint_close(checkpoint);
    checkpoint = open_golden("hybrid", "mamba2-wide");
    expect_config(ssm_checkpoint_config(checkpoint), &wide);
    ssm_checkpoint_close(checkpoint);
    checkpoint = open_golden("hybrid", "mamba2-no-norm");
    assert_false(ssm_checkpoint_config(checkpoint)->gated_norm);
    assert_int_equal(ssm_checkpoint_config(checkpoint)->n_groups, 8);
    assert_int_equal(ssm_checkpoint_config(checkpoint)->norm_groups, 0);
    ssm_checkpoint_close(checkpoint);
    checkpoint = open_golden("hybrid", "mamba-attention");
    assert_int_equal(ssm_checkpoint_config(checkpoint)->family, SSM_FAMILY_MAMBA);
    assert_int_equal(ssm_checkpoint_layer_kind(checkpoint, 1), SSM_LAYER_ATTENTION);
    ssm_checkpoint_close(checkpoint);
}

/* ---- other schemas of the same tensors ------------------------------------------------------- */

static void digest_of(const char *path, char out[64])
{
    ssm_checkpoint *checkpoint = open_with(path, NULL);
    assert_int_equal(ssm_checkpoint_digest(checkpoint, out, NULL), SSM_STATUS_OK);
    ssm_checkpoint_close(checkpoint);
}

typedef struct schema_row {
    const char *model;
    const char *config;
    const char *file, *weights; /* NULL: config.json, model.safetensors */
    const char *prefix;         /* in place of "backbone." */
} schema_row;

/* The toy is mamba-tied of hf-tiny: V 97, D 32, 3 layers, N 16; falcon and mamba2-g4-limit. Ids are
 * left out, so that every schema says the same. */
static const schema_row schema_rows[] = {
    {"mamba-tied",
     "{\"model_type\": \"mamba\", \"hidden_size\": 32, \"num_hidden_layers\": 3, \"state_size\": "
     "16,"
     " \"layer_norm_epsilon\": 1e-5, \"tie_word_embeddings\": true}",
     NULL, NULL, "backbone."},
    /* no family, no ssm_cfg.layer: keys tell */
    {"mamba-tied",
     "{\"d_model\": 32, \"n_layer\": 3, \"vocab_size\": 97, \"ssm_cfg\": {},"
     " \"pad_vocab_size_multiple\": 1}",
     NULL, NULL, "backbone."},
    {"mamba-tied",
     "{\"d_model\": 32, \"n_layer\": 3, \"vocab_size\": 90, \"ssm_cfg\": {\"layer\": \"Mamba1\","
     " \"d_state\": 16, \"expand\": 2, \"dt_rank\": \"auto\", \"dt_min\": 0.5}, \"rms_norm\": true,"
     " \"residual_in_fp32\": true, \"fused_add_norm\": true, \"tie_embeddings\": true}",
     NULL, NULL, "backbone."},
    /* state-spaces' own model fed to transformers and back: HF keys beside the original's */
    {"mamba-tied",
     "{\"model_type\": \"mamba\", \"d_model\": 32, \"n_layer\": 3, \"ssm_cfg\": {}, \"d_inner\": "
     "64,"
     " \"hidden_size\": 32, \"_name_or_path\": \"x\", \"rms_norm\": true, \"expand\": 2}",
     NULL, NULL, "model.backbone."},
    /* architectures in place of model_type */
    {"mamba-tied", "{\"architectures\": [\"MambaForCausalLM\"], \"hidden_size\": 32}", NULL, NULL,
     "module.backbone."},
    {"falcon",
     "{\"model_type\": \"falcon_mamba\", \"hidden_size\": 32, \"intermediate_size\": 48,"
     " \"expand\": 16, \"tie_word_embeddings\": false, \"mixer_rms_eps\": 1e-6}",
     NULL, NULL, "backbone."},
    {"falcon", "{\"architectures\": [\"FalconMambaForCausalLM\"], \"tie_word_embeddings\": false}",
     NULL, "weights.safetensors", "model."},
    {"mamba2-g4-limit",
     "{\"model_type\": \"mamba2\", \"n_groups\": 4, \"time_step_limit\": [0.02, 0.6],"
     " \"num_heads\": 8, \"head_dim\": 8, \"state_size\": 24, \"tie_word_embeddings\": false}",
     NULL, NULL, "backbone."},
    /* no family at all: dt_bias tells; groups by state_size */
    {"mamba2-g4-limit",
     "{\"state_size\": 24, \"time_step_limit\": [0.02, 0.6], \"hidden_size\": 32}", NULL, NULL,
     "_orig_mod.backbone."},
    {"mamba2-g4-limit",
     "{\"d_model\": 32, \"n_layer\": 2, \"vocab_size\": 97, \"pad_vocab_size_multiple\": 1,"
     " \"ssm_cfg\": {\"layer\": \"Mamba2\", \"d_state\": 24, \"ngroups\": 4, \"headdim\": 8,"
     " \"dt_limit\": [0.02, 0.6], \"bias\": true, \"rmsnorm\": true, \"norm_before_gate\": false,"
     " \"D_has_hdim\": false, \"d_ssm\": null, \"chunk_size\": 256}, \"tie_embeddings\": false}",
     NULL, NULL, "backbone."},
    /* Codestral's own layout; its model_type is not transformers' */
    {"mamba2-g4-limit",
     "{\"dim\": 32, \"n_layers\": 2, \"vocab_size\": 97, \"n_groups\": 4, \"rms_norm\": true,"
     " \"residual_in_fp32\": true, \"fused_add_norm\": true, \"pad_vocab_size_multiple\": 1,"
     " \"dt_limit\": [0.02, 0.6], \"tie_embeddings\": false, \"model_type\": \"mamba\"}",
     "params.json", "consolidated.safetensors", "model.backbone."},
};

static void write_row(edit *e, const schema_row *row)
{
    static const ssm_metadata format = {"format", "pt"};
    char path[TEST_PATH_MAX];
    edit_prefix(e, "backbone.", row->prefix);
    edit_write_text(e, row->file != NULL ? row->file : "config.json", row->config);
    edit_path(e, row->weights != NULL ? row->weights : "model.safetensors", path);
    assert_int_equal(ssm_safetensors_write(path, e->tensors, e->count, &format, 1, NULL),
                     SSM_STATUS_OK);
}

static void schemas_say_the_same(void **state)
{
    (void)state;
    char first[64] = "";
    for (size_t i = 0; i < sizeof schema_rows / sizeof schema_rows[0]; i++) {
        const schema_row *row = &schema_rows[i];
        char golden[TEST_PATH_MAX];
        char digest[64];
        edit *e = edit_create(golden_model_path(golden, row->model));
        write_row(e, row);
        digest_of(e->directory, digest);
        if (i == 0 || strcmp(row->model, schema_rows[i - 1].model) != 0) {
            strcpy(first, digest);
        } else if (strcmp(first, digest) != 0) {
            fail_msg("%s: another digest: %s", row->model, row->config);
        }
        edit_free(e);
    }
}

/* ---- odd but right --------------------------------------------------------------------------- */

typedef struct odd_row {
    const char *key, *json;
    const char *note; /* NULL: none */
} odd_row;

static const odd_row mamba2_odd[] = {
    {"time_step_min", "0.5", NULL}, /* initialisation only */
    {"time_step_limit", "[0.0, {\"__float__\": \"Infinity\"}]", NULL},
    {"time_step_limit", "[{\"__float__\": \"-Infinity\"}, 3.4028234663852886e+38]", NULL},
    {"time_step_rank", "\"auto\"", NULL},
    {"architectures", NULL, NULL},
    {"rms_norm", "false", "rms_norm = false; transformers does not read it"},
    {"n_groups", NULL, "does not say n_groups; 4 of d_state 24 are read off in_proj and state_"},
    {"tie_word_embeddings", NULL, "the family's default is false"},
    {"expand", "2.0", NULL},
    {"num_heads", NULL, NULL},
    {"layers_block_type", "[\"mamba2\", \"mamba2\"]", NULL},
};

static void odd_mamba2(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mamba2_odd / sizeof mamba2_odd[0]; i++) {
        const odd_row *row = &mamba2_odd[i];
        char golden[TEST_PATH_MAX];
        edit *e = edit_create(golden_model_path(golden, "mamba2-g4-limit"));
        edit_config(e, row->key, row->json);
        edit_write(e);
        ssm_checkpoint *checkpoint = open_with(e->directory, NULL);
        const ssm_config *config = ssm_checkpoint_config(checkpoint);
        assert_int_equal(config->n_groups, 4);
        if (strcmp(row->key, "time_step_limit") == 0) {
            assert_true(config->dt_limit_low == 0 && isinf(config->dt_limit_high));
        }
        if (row->note != NULL) {
            expect_note(checkpoint, row->note);
        }
        ssm_checkpoint_close(checkpoint);
        edit_free(e);
    }
}

static void bare_infinity(void **state)
{
    (void)state;
    char golden[TEST_PATH_MAX];
    edit *e = edit_create(golden_model_path(golden, "mamba2-g4-limit"));
    edit_write(e);
    edit_write_text(e, "config.json",
                    "{\"model_type\": \"mamba2\", \"n_groups\": 4, \"time_step_limit\": [0.01, "
                    "Infinity], \"tie_word_embeddings\": false}");
    ssm_checkpoint *checkpoint = open_with(e->directory, NULL);
    assert_true(ssm_checkpoint_config(checkpoint)->dt_limit_low == 0.01);
    assert_true(isinf(ssm_checkpoint_config(checkpoint)->dt_limit_high));
    ssm_checkpoint_close(checkpoint);
    edit_free(e);
}

static void odd_falcon(void **state)
{
    (void)state;
    char golden[TEST_PATH_MAX];
    edit *e = edit_create(golden_model_path(golden, "falcon"));
    edit_config(e, "mixer_rms_eps", NULL);
    edit_config(e, "use_falcon_mambapy", "true");
    edit_add(e, "backbone.layers.1.mixer.b_c_rms", SSM_DTYPE_F32, (const int64_t[3]){16});
    edit_add(e, "backbone.layers.1.mixer.dt_rms", SSM_DTYPE_F32, (const int64_t[3]){12});
    edit_write(e);
    ssm_checkpoint *checkpoint = open_with(e->directory, NULL);
    assert_true(ssm_checkpoint_config(checkpoint)->mixer_norm_eps == 1e-6);
    expect_note(checkpoint, "does not say mixer_rms_eps; 1e-6");
    expect_note(checkpoint, "expand = 16, which would make d_inner 512; intermediate_size = 48");
    expect_note(checkpoint, "b_c_rms F32 [16] belongs to no slot of a falcon_mamba model");
    expect_note(checkpoint, "dt_rms F32 [12] belongs to no slot");
    ssm_checkpoint_close(checkpoint);
    edit_free(e);
}

/* LayerNorm by its biases; an MLP by its tensors. */
static void layer_norm_and_mlp(void **state)
{
    (void)state;
    char golden[TEST_PATH_MAX];
    edit *e = edit_create(golden_model_path(golden, "mamba2-g4-limit"));
    edit_config(e, "d_intermediate", "5");
    edit_add(e, "backbone.norm_f.bias", SSM_DTYPE_F32, (const int64_t[3]){32});
    for (int layer = 0; layer < 2; layer++) {
        static const struct {
            const char *name;
            int64_t dims[3];
        } more[] = {{"norm.bias", {32}},
                    {"norm2.weight", {32}},
                    {"norm2.bias", {32}},
                    {"mlp.fc1.weight", {10, 32}},
                    {"mlp.fc2.weight", {32, 5}}};
        for (size_t k = 0; k < sizeof more / sizeof more[0]; k++) {
            char name[96];
            snprintf(name, sizeof name, "backbone.layers.%d.%s", layer, more[k].name);
            edit_add(e, name, SSM_DTYPE_F32, more[k].dims);
        }
    }
    edit_write(e);
    ssm_checkpoint *checkpoint = open_with(e->directory, NULL);
    assert_true(ssm_checkpoint_config(checkpoint)->layer_norm);
    assert_int_equal(ssm_checkpoint_config(checkpoint)->d_mlp, 5);
    const ssm__weights *weights = ssm__checkpoint_weights(checkpoint);
    assert_non_null(weights->layers[1].norm2_bias.data);
    assert_non_null(weights->layers[1].fc2.data);
    assert_non_null(weights->norm_f_bias.data);
    ssm_checkpoint_close(checkpoint);
    edit_free(e);
}

/* The original's ids stand in generation_config.json. */
static void ids_beside_the_original(void **state)
{
    (void)state;
    char golden[TEST_PATH_MAX];
    edit *e = edit_create(golden_model_path(golden, "mamba-tied"));
    write_row(e, &schema_rows[1]);
    edit_write_text(e, "generation_config.json",
                    "{\"bos_token_id\": 1, \"eos_token_id\": [2, 5], \"pad_token_id\": null}");
    ssm_checkpoint *checkpoint = open_with(e->directory, NULL);
    assert_int_equal(ssm_checkpoint_config(checkpoint)->bos_id, 1);
    assert_int_equal(ssm_checkpoint_config(checkpoint)->eos_id, 2);
    assert_int_equal(ssm_checkpoint_config(checkpoint)->pad_id, -1);
    ssm_checkpoint_close(checkpoint);
    edit_free(e);
}

/* ---- containers ------------------------------------------------------------------------------ */

/* safetensors wins where both are there; stray shards of a torch index are not even opened. */
static void one_container_is_read(void **state)
{
    (void)state;
    char golden[TEST_PATH_MAX];
    edit *e = edit_create(golden_model_path(golden, "falcon"));
    edit_write(e);
    edit_write_text(e, "pytorch_model.bin", "not read");
    edit_write_text(e, "pytorch_model.bin.index.json", "not read");
    ssm_checkpoint *checkpoint = open_with(e->directory, NULL);
    expect_note(checkpoint, "pytorch_model.bin was not read: model.safetensors is there, too.");
    expect_note(checkpoint, "pytorch_model.bin.index.json was not read: model.safetensors is");
    ssm_checkpoint_close(checkpoint);
    edit_free(e);
}

static void torch_index_decides(void **state)
{
    (void)state;
    char golden[TEST_PATH_MAX];
    char path[TEST_PATH_MAX];
    char plain[64];
    char other[64];
    edit *e = edit_create(golden_model_path(golden, "falcon"));
    edit_write(e);
    digest_of(e->directory, plain);
    remove(edit_path(e, "model.safetensors", path));
    /* A stale copy of the first tensor in the second shard. */
    const int64_t half = e->count / 2;
    ssm_tensor second[EDIT_TENSORS];
    memcpy(second, e->tensors + half, (size_t)(e->count - half) * sizeof *second);
    second[e->count - half] = e->tensors[0];
    second[e->count - half].data = e->tensors[1].data;
    second[e->count - half].dims[0] = 1;
    second[e->count - half].n_dims = 1;
    second[e->count - half].bytes = ssm_dtype_size(e->tensors[0].dtype);
    assert_int_equal(ssm__torch_write(edit_path(e, "pytorch_model-00001-of-00002.bin", path),
                                      e->tensors, half, NULL),
                     SSM_STATUS_OK);
    assert_int_equal(ssm__torch_write(edit_path(e, "pytorch_model-00002-of-00002.bin", path),
                                      second, e->count - half + 1, NULL),
                     SSM_STATUS_OK);
    edit_write_text(e, "pytorch_model-00009-of-00009.bin", "a stray shard");
    json_t *map = json_object();
    for (int64_t i = 0; i < e->count; i++) {
        json_object_set_new(map, e->tensors[i].name,
                            json_string(i < half ? "pytorch_model-00001-of-00002.bin"
                                                 : "pytorch_model-00002-of-00002.bin"));
    }
    json_t *index = json_pack("{s:{}, s:o}", "metadata", "weight_map", map);
    edit_write_json(e, "pytorch_model.bin.index.json", index);
    json_decref(index);
    digest_of(e->directory, other);
    assert_string_equal(plain, other);
    ssm_checkpoint *checkpoint = open_with(e->directory, NULL);
    expect_note(checkpoint, "in pytorch_model-00002-of-00002.bin is not used: the index places it");
    ssm_checkpoint_close(checkpoint);
    edit_free(e);
}

/* ---- groups of the norm ---------------------------------------------------------------------- */

static void groups_of_the_norm(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    char plain[64];
    char other[64];
    golden_model_path(path, "mamba2-g4-limit");
    digest_of(path, plain);
    for (int64_t groups = 1; groups <= 8; groups *= 2) {
        const ssm_checkpoint_options options = {.norm_groups = groups};
        ssm_checkpoint *checkpoint = open_with(path, &options);
        assert_int_equal(ssm_checkpoint_config(checkpoint)->norm_groups, groups);
        assert_int_equal(ssm_checkpoint_digest(checkpoint, other, NULL), SSM_STATUS_OK);
        assert_int_equal(strcmp(plain, other) == 0, groups == 4);
        ssm_checkpoint_close(checkpoint);
    }
    static const struct {
        const char *model;
        int64_t groups;
        const char *part;
    } wrong[] = {{"mamba2-g4-limit", 3, "norm groups = 3 was asked for; expected a divisor of"},
                 {"mamba2-g4-limit", 16, "n_heads = 8 and d_ssm = 64"},
                 {"mamba2-g4-limit", -1, "norm groups = -1"},
                 {"mamba-tied", 1, "the model has no gated norm"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const ssm_checkpoint_options options = {.norm_groups = wrong[i].groups};
        ssm_checkpoint *checkpoint = NULL;
        ssm_error err;
        ssm_error_clear(&err);
        golden_model_path(path, wrong[i].model);
        assert_int_equal(ssm_checkpoint_open(path, &options, &checkpoint, &err), SSM_STATUS_USAGE);
        assert_non_null(strstr(err.message, wrong[i].part));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hugging_face),          cmocka_unit_test(original_code),
        cmocka_unit_test(schemas_say_the_same),  cmocka_unit_test(odd_mamba2),
        cmocka_unit_test(bare_infinity),         cmocka_unit_test(odd_falcon),
        cmocka_unit_test(layer_norm_and_mlp),    cmocka_unit_test(ids_beside_the_original),
        cmocka_unit_test(one_container_is_read), cmocka_unit_test(torch_index_decides),
        cmocka_unit_test(groups_of_the_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
