/* Malformed indexes and checkpoints, named by the rule they break; each has its own
 * message. The toy is toy_config(): V 31, D 20, E 36, N 5, K 3, R 3, 3 layers, untied, all biases.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_edit.h"
#include "test_messages.h"

static message_list list; /* one for all tables */

static void expect_refusal(edit *e, const char *name, const char *rule, const char *part)
{
    message_refusal(&list, e, name, rule, part);
}

typedef struct text_row {
    const char *rule;
    const char *text;
    const char *part;
} text_row;

/* ---- the index ------------------------------------------------------------------------------- */

static const text_row index_texts[] = {
    {"index is JSON", "{\"weight_map\"", "not valid JSON"},
    {"index is an object", "[]", "the index is not a JSON object"},
    {"index has a weight_map", "{\"metadata\": {\"total_size\": 1}}", "no weight_map"},
    {"weight_map is an object", "{\"weight_map\": []}", "a weight_map that is not an object"},
    {"weight_map is not empty", "{\"weight_map\": {}}", "weight_map is empty"},
    {"weight_map keys are unique",
     "{\"weight_map\": {\"a\": \"x.safetensors\", \"a\": \"y.safetensors\"}}", "duplicate"},
    {"shards are names", "{\"weight_map\": {\"a\": 1}}", "not a string; expected the name of"},
    {"shards stay in the directory", "{\"weight_map\": {\"a\": \"../x.safetensors\"}}",
     "\"../x.safetensors\"; expected a file of the same directory"},
    {"shards are not hidden", "{\"weight_map\": {\"a\": \".x.safetensors\"}}",
     "\".x.safetensors\"; expected a file of the same directory"},
    {"shards are not absolute", "{\"weight_map\": {\"a\": \"/x.safetensors\"}}",
     "\"/x.safetensors\"; expected a file of the same directory"},
    {"shards are not PyTorch's", "{\"weight_map\": {\"a\": \"pytorch_model-1.bin\"}}",
     "PyTorch shard \"pytorch_model-1.bin\" in an index of safetensors"},
    {"shards are safetensors", "{\"weight_map\": {\"a\": \"x.npz\"}}",
     "\"x.npz\"; expected a .safetensors file"},
    {"index is no LFS pointer", "version https://git-lfs.github.com/spec/v1\nsize 25000\n",
     "of 25000 bytes"},
    {"all shards are missing", "{\"weight_map\": {\"a\": \"x.safetensors\"}}",
     "1 of the 1 shards that the index names are missing: x.safetensors (1 tensor)"},
};

static void texts_of_an_index(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof index_texts / sizeof index_texts[0]; i++) {
        edit *e = edit_create(NULL);
        edit_write_config(e);
        edit_write_text(e, "model.safetensors.index.json", index_texts[i].text);
        expect_refusal(e, NULL, index_texts[i].rule, index_texts[i].part);
        edit_free(e);
    }
}

static void remove_file(const edit *e, const char *name)
{
    char path[TEST_PATH_MAX];
    assert_int_equal(remove(edit_path(e, name, path)), 0);
}

static void missing_shards(void **state)
{
    (void)state;
    edit *e = edit_create(NULL); /* 39 tensors: 13 a shard */
    edit_write_shards(e, 3);
    remove_file(e, "model-00002-of-00003.safetensors");
    expect_refusal(e, NULL, "one shard is missing",
                   "1 of the 3 shards that the index names are missing: "
                   "model-00002-of-00003.safetensors (13 tensors). Download them again");
    remove_file(e, "model-00003-of-00003.safetensors");
    expect_refusal(e, NULL, "two shards are missing",
                   "2 of the 3 shards that the index names are missing: "
                   "model-00002-of-00003.safetensors (13 tensors), "
                   "model-00003-of-00003.safetensors (13 tensors)");
    edit_free(e);

    e = edit_create(NULL); /* a stale index beside a complete single file */
    edit_write_shards(e, 3);
    for (int i = 1; i <= 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-00003.safetensors", i);
        remove_file(e, name);
    }
    edit_write(e);
    expect_refusal(e, NULL, "stale index, complete files",
                   "The files present fill every slot without them: the index is stale");
    edit_free(e);
}

static void set_shard(edit *e, json_t *index, const char *tensor, const char *shard)
{
    json_object_set_new(json_object_get(index, "weight_map"), tensor, json_string(shard));
    edit_write_json(e, "model.safetensors.index.json", index);
    json_decref(index);
}

static void index_against_shards(void **state)
{
    (void)state;
    edit *e = edit_create(NULL);
    edit_write_shards(e, 3);
    const char *name = e->tensors[0].name; /* in shard 1 */
    set_shard(e, edit_index(e, 3), name, "model-00003-of-00003.safetensors");
    expect_refusal(e, NULL, "index names the wrong shard",
                   "in model-00003-of-00003.safetensors, but it is in "
                   "model-00001-of-00003.safetensors: the index is stale");
    set_shard(e, edit_index(e, 3), "backbone.layers.9.norm.weight",
              "model-00002-of-00003.safetensors");
    expect_refusal(e, NULL, "index names a tensor that is nowhere",
                   "in model-00002-of-00003.safetensors, but neither that file nor another");
    json_t *index = edit_index(e, 3);
    json_object_del(json_object_get(index, "weight_map"), "backbone.layers.1.mixer.D");
    edit_write_json(e, "model.safetensors.index.json", index);
    json_decref(index);
    expect_refusal(e, NULL, "index leaves a tensor out",
                   "the index does not name it, although model-0000");
    edit_free(e);
}

/* ---- the tensors ----------------------------------------------------------------------------- */

#define LAYER1    "backbone.layers.1."
#define DIMS(...) ((const int64_t[3]){__VA_ARGS__})

static void remove_d(edit *e)
{
    edit_remove(e, LAYER1 "mixer.D");
    edit_remove(e, "backbone.layers.2.mixer.D");
    edit_add(e, "unrelated.tensor", SSM_DTYPE_F32, DIMS(1)); /* resembles nothing */
}
static void misname_a_log(edit *e)
{
    edit_rename(e, LAYER1 "mixer.A_log", LAYER1 "mixer.A_logs");
}
static void no_embedding(edit *e)
{
    edit_remove(e, "backbone.embeddings.weight");
}
static void no_final_norm(edit *e)
{
    edit_remove(e, "backbone.norm_f.weight");
}
static void no_layer(edit *e)
{
    edit_prefix(e, LAYER1, "backbone.layers.7."); /* 3 … 6 and 1 are missing */
}
static void far_layer(edit *e)
{
    edit_rename(e, LAYER1 "norm.weight", "backbone.layers.99999999.norm.weight");
}
static void no_head(edit *e)
{
    edit_remove(e, "lm_head.weight");
}
static void embedding_twice(edit *e)
{
    edit_add(e, "backbone.embedding.weight", SSM_DTYPE_F32, DIMS(31, 20));
}
static void prefix_twice(edit *e)
{
    edit_add(e, "model." LAYER1 "mixer.D", SSM_DTYPE_F32, DIMS(36));
}
static void layer_norm_bias(edit *e)
{
    edit_add(e, LAYER1 "norm.bias", SSM_DTYPE_F32, DIMS(20));
}
static void dt_norm(edit *e)
{
    edit_add(e, LAYER1 "mixer.dt_layernorm.weight", SSM_DTYPE_F32, DIMS(3));
}
static void head_bias(edit *e)
{
    edit_add(e, "lm_head.bias", SSM_DTYPE_F32, DIMS(31));
}
static void mamba2_tensors(edit *e)
{
    for (int layer = 0; layer < 3; layer++) {
        char name[96];
        char to[96];
        snprintf(name, sizeof name, "backbone.layers.%d.mixer.x_proj.weight", layer);
        edit_remove(e, name);
        snprintf(name, sizeof name, "backbone.layers.%d.mixer.dt_proj.bias", layer);
        snprintf(to, sizeof to, "backbone.layers.%d.mixer.dt_bias", layer);
        edit_rename(e, name, to);
    }
}
static void odd_prefix(edit *e)
{
    edit_prefix(e, "backbone.", "my.own.");
}
static void other_model(edit *e)
{
    edit_prefix(e, "backbone.layers.", "transformer.h.");
}
static void no_tensors(edit *e)
{
    while (e->count > 0) {
        edit_remove(e, e->tensors[0].name);
    }
}
static void one_bias_missing(edit *e)
{
    edit_config(e, "use_conv_bias", NULL);
    edit_remove(e, "backbone.layers.2.mixer.conv1d.bias");
}
static void conv_bias_missing(edit *e)
{
    edit_remove(e, "backbone.layers.0.mixer.conv1d.bias");
}
static void weights_in_f64(edit *e)
{
    edit_reshape(e, LAYER1 "mixer.A_log", SSM_DTYPE_F64, DIMS(36, 5));
}
static void weights_in_i8(edit *e)
{
    edit_reshape(e, LAYER1 "mixer.in_proj.weight", SSM_DTYPE_I8, DIMS(72, 20));
}
static void conv_without_middle(edit *e)
{
    edit_reshape(e, "backbone.layers.0.mixer.conv1d.weight", SSM_DTYPE_F32, DIMS(36, 3));
}
static void conv_not_depthwise(edit *e)
{
    edit_reshape(e, LAYER1 "mixer.conv1d.weight", SSM_DTYPE_F32, DIMS(36, 36, 3));
}
static void layer_of_other_state(edit *e)
{
    edit_reshape(e, LAYER1 "mixer.A_log", SSM_DTYPE_F32, DIMS(36, 6));
}
static void x_proj_of_other_rank(edit *e)
{
    edit_reshape(e, "backbone.layers.0.mixer.x_proj.weight", SSM_DTYPE_F32, DIMS(14, 36));
}
static void in_proj_transposed(edit *e)
{
    edit_reshape(e, "backbone.layers.0.mixer.in_proj.weight", SSM_DTYPE_F32, DIMS(20, 72));
}
static void norm_of_two_dims(edit *e)
{
    edit_reshape(e, "backbone.layers.2.norm.weight", SSM_DTYPE_F32, DIMS(1, 20));
}
static void d_per_state(edit *e)
{
    edit_reshape(e, LAYER1 "mixer.D", SSM_DTYPE_F32, DIMS(36, 5));
}
static void head_of_other_rows(edit *e)
{
    edit_reshape(e, "lm_head.weight", SSM_DTYPE_F32, DIMS(32, 20));
}
static void embedding_of_one_dim(edit *e)
{
    edit_reshape(e, "backbone.embeddings.weight", SSM_DTYPE_F32, DIMS(620));
}
static void empty_state(edit *e)
{
    ssm_tensor *tensor = edit_find(e, "backbone.layers.0.mixer.A_log");
    tensor->dims[1] = 0;
    tensor->bytes = 0;
}

typedef struct tensor_row {
    const char *rule;
    void (*change)(edit *e);
    const char *part;
} tensor_row;

static const tensor_row tensor_rows[] = {
    {"truly absent", remove_d,
     "the tensor is missing (and 1 more are missing): no file that was read holds it"},
    {"misnamed", misname_a_log,
     "perhaps it is misnamed, model.safetensors holds backbone.layers.1.mixer.A_logs"},
    {"the embedding is there", no_embedding, "the tensor is missing: no file"},
    {"the final norm is there", no_final_norm, "the tensor is missing: no file"},
    {"layers follow one another", no_layer, "(and 44 more are missing)"},
    {"layer numbers are sane", far_layer, "named after layer 99999999, but there are only 39"},
    {"an untied head is there", no_head,
     "tie_word_embeddings = false, but there is no lm_head.weight"},
    {"one spelling of the embedding", embedding_twice, "the slot is filled twice"},
    {"one prefix per tensor", prefix_twice, "by this tensor and by backbone.layers.1.mixer.D"},
    {"LayerNorm everywhere or nowhere", layer_norm_bias,
     "the bias is there although that of layer 0 is missing"},
    {"no norms on dt", dt_norm, "the tensor belongs to no slot"},
    {"no head bias", head_bias, "the tensor belongs to no slot"},
    {"mamba tensors under mamba", mamba2_tensors, "the tensors are those of Mamba-2"},
    {"the prefix is known", odd_prefix, "my.own."},
    {"layers are named", other_model, "none of the 39 tensors is named like a layer"},
    {"there are tensors", no_tensors, "none of the 0 tensors is named like a layer"},
    {"all layers have the bias or none", one_bias_missing,
     "the bias is missing although that of layer 0 is there"},
    {"claimed conv biases are there", conv_bias_missing,
     "use_conv_bias = true, but backbone.layers.0.mixer.conv1d.bias is missing"},
    {"weights are not F64", weights_in_f64, "stored as F64; expected F32, F16 or BF16: convert"},
    {"weights are not integers", weights_in_i8, "stored as I8; expected F32, F16 or BF16"},
    {"conv1d has three dimensions", conv_without_middle,
     "shape [36, 3]; expected [d_inner, 1, d_conv]"},
    {"conv1d is depthwise", conv_not_depthwise,
     "shape [36, 36, 3]; expected [d_inner, 1, d_conv] = [36, 1, 3]"},
    {"layers agree", layer_of_other_state, "shape [36, 6]; expected [d_inner, d_state] = [36, 5]"},
    {"x_proj has R + 2N rows", x_proj_of_other_rank,
     "shape [14, 36]; expected [dt_rank + 2 d_state, d_inner] = [13, 36]"},
    {"in_proj is [2E, D]", in_proj_transposed,
     "shape [20, 72]; expected [2 d_inner, d_model] = [72, 20]"},
    {"norms have one dimension", norm_of_two_dims, "shape [1, 20]; expected [d_model] = [20]"},
    {"D has one dimension", d_per_state, "shape [36, 5]; expected [d_inner] = [36]"},
    {"the head has the embedding's rows", head_of_other_rows,
     "shape [32, 20]; expected [vocab_size, d_model] = [31, 20]"},
    {"the embedding has two dimensions", embedding_of_one_dim,
     "shape [620]; expected [vocab_size, d_model]"},
    {"no dimension is 0", empty_state,
     "shape [36, 0]; expected [d_inner, d_state] without an empty dimension"},
};

/* Some of these say the same about different tensors: the tensor named is part of the message then.
 */
static void tensors_of_a_checkpoint(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tensor_rows / sizeof tensor_rows[0]; i++) {
        edit *e = edit_create(NULL);
        tensor_rows[i].change(e);
        edit_write(e);
        expect_refusal(e, NULL, tensor_rows[i].rule, tensor_rows[i].part);
        edit_free(e);
    }
}

/* ---- the directory --------------------------------------------------------------------------- */

static void files_of_a_directory(void **state)
{
    (void)state;
    edit *e = edit_create(NULL);
    expect_refusal(e, "nothing", "the path is there", "no such file or directory");
    expect_refusal(e, NULL, "there is a config.json", "config.json is missing");
    edit_write_config(e);
    expect_refusal(e, NULL, "there are weights", "neither model.safetensors nor pytorch_model.bin");
    edit_write_text(e, "tf_model.h5", "");
    expect_refusal(e, NULL, "not TensorFlow's weights", "holds tf_model.h5, which is not read");
    edit_write_text(e, "adapter_model.safetensors", "");
    remove_file(e, "tf_model.h5");
    expect_refusal(e, NULL, "an adapter is no model", "holds adapter_model.safetensors, which");
    remove_file(e, "adapter_model.safetensors");
    edit_write_text(e, "a.safetensors", "");
    edit_write_text(e, "b.safetensors", "");
    expect_refusal(e, NULL, "one of several files", "holds 2 files that may be the weights");
    edit_write_text(e, "consolidated.safetensors", "");
    expect_refusal(e, NULL, "Mistral's weights", "the file has 0 bytes");
    edit_write_text(e, "pytorch_model.bin", "PK\x03\x04");
    expect_refusal(e, NULL, "PyTorch weights", "zip");
    expect_refusal(e, "config.json", "the configuration is not the model",
                   "give the directory that it is in");
    edit_write_text(e, "model.safetensors",
                    "version https://git-lfs.github.com/spec/v1\nsize 5753728\n");
    expect_refusal(e, NULL, "weights are no LFS pointer", "not the file of 5753728 bytes");
    edit_free(e);

    e = edit_create(NULL);
    edit_write_shards(e, 3);
    expect_refusal(e, "model-00002-of-00003.safetensors", "one shard is not the model",
                   "one shard of several, give the directory");
    edit_free(e);
}

static void trailing_bytes(void **state)
{
    (void)state;
    edit *e = edit_create(NULL);
    edit_write(e);
    char path[TEST_PATH_MAX];
    FILE *file = fopen(edit_path(e, "model.safetensors", path), "ab");
    assert_non_null(file);
    fputs("end", file);
    fclose(file);
    expect_refusal(e, NULL, "nothing follows the weights", "3 bytes follow the last tensor");
    ssm_checkpoint *checkpoint = NULL;
    const ssm_checkpoint_options lenient = {.lenient = true};
    assert_int_equal(ssm_checkpoint_open(e->directory, &lenient, &checkpoint, NULL), SSM_STATUS_OK);
    ssm_checkpoint_close(checkpoint);
    edit_free(e);
}

static int report(void **state)
{
    (void)state;
    printf("%d malformed indexes and checkpoints\n", list.count);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_an_index),    cmocka_unit_test(missing_shards),
        cmocka_unit_test(index_against_shards), cmocka_unit_test(tensors_of_a_checkpoint),
        cmocka_unit_test(files_of_a_directory), cmocka_unit_test(trailing_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, report);
}
