/* Malformed configurations and tensors of the other families and schemas, named by the rule they
 * break; each has its own message. The models: mamba2-g4-limit of hf-tiny (V 97, D 32, E 64, H 8,
 * P 8, G 4, N 24, K 4, 2 layers, biases, untied), falcon (E 48, N 16, R 12), and mamba2-attention
 * of hybrid (D 24, E 48, H 6, G 2, N 6, 4 layers, of attention 1 and 3: 4 query and 2 key heads of
 * 10). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "test_edit.h"
#include "test_golden.h"
#include "test_messages.h"

static message_list list; /* one for all tables */

static void expect_refusal(edit *e, const char *name, const char *rule, const char *part)
{
    message_refusal(&list, e, name, rule, part);
}

typedef enum model { MAMBA2, FALCON, HYBRID } model;

static edit *edit_model(model which)
{
    static const char *const paths[] = {"hf-tiny/mamba2-g4-limit", "hf-tiny/falcon",
                                        "hybrid/mamba2-attention"};
    char path[TEST_PATH_MAX];
    return edit_create(test_golden_path(path, paths[which]));
}

/* ---- configurations -------------------------------------------------------------------------- */

typedef struct config_row {
    model model;
    const char *rule;
    const char *key;  /* "attn_cfg.x" goes into the object */
    const char *json; /* NULL: the key is removed */
    const char *part;
} config_row;

static const config_row config_rows[] = {
    /* Mamba-2: claims against shapes */
    {MAMBA2, "the family's name", "model_type", "\"mamba\"",
     "model_type = \"mamba\", but the tensors are those of Mamba-2"},
    {MAMBA2, "groups divide", "n_groups", "5",
     "n_groups = 5, but backbone.layers.0.mixer.in_proj.weight leaves n_groups · d_state = 96"},
    {MAMBA2, "groups divide the heads", "n_groups", "32", "does not divide n_heads = 8"},
    {MAMBA2, "groups and state agree", "n_groups", "2",
     "state_size = 24 and n_groups = 2, but backbone.layers.0.mixer.in_proj.weight leaves 96 rows "
     "for their product"},
    {MAMBA2, "state divides", "state_size", "32", "state_size = 32 and n_groups = 4, but"},
    {MAMBA2, "heads", "num_heads", "16", "num_heads = 16, but backbone.layers.0.mixer.dt_bias"},
    {MAMBA2, "width of a head", "head_dim", "64",
     "head_dim = 64, but d_ssm = 64 (conv1d) over n_heads = 8 (dt_bias) is 8"},
    {MAMBA2, "width of the scan", "d_ssm", "32", "d_ssm = 32, but"},
    {MAMBA2, "inner width", "intermediate_size", "128", "intermediate_size = 128, but"},
    {MAMBA2, "expand alone", "expand", "4",
     "expand = 4, which makes d_inner 128 with d_model 32, but "
     "backbone.layers.0.mixer.out_proj.weight has 64 columns"},
    {MAMBA2, "conv width", "conv_kernel", "3", "conv_kernel = 3, but"},
    {MAMBA2, "biases", "use_bias", "false", "use_bias = false, but"},
    {MAMBA2, "conv biases", "use_conv_bias", "false", "use_conv_bias = false, but"},
    {MAMBA2, "a norm that is there", "rmsnorm", "false",
     "rmsnorm = false, but backbone.layers.0.mixer.norm.weight is there"},
    {MAMBA2, "D is per head", "D_has_hdim", "true",
     "D_has_hdim = true, but backbone.layers.0.mixer.D has shape [8] with n_heads = 8"},
    /* Mamba-2: values */
    {MAMBA2, "limits are two", "time_step_limit", "[0.1]", "time_step_limit = [0.1]; expected two"},
    {MAMBA2, "limits rise", "time_step_limit", "[0.6, 0.02]", "time_step_limit = [0.6,0.02]"},
    {MAMBA2, "limits are numbers", "time_step_limit", "[0, \"Infinity\"]",
     "time_step_limit = [0,\"Infinity\"]"},
    {MAMBA2, "limits are no NaN", "time_step_limit", "[0, {\"__float__\": \"NaN\"}]",
     "{\"__float__\":\"NaN\"}]; expected two"},
    {MAMBA2, "the upper limit is above 0", "time_step_limit", "[-2, -1]", "[-2,-1]; expected two"},
    {MAMBA2, "the order of the norm is a flag", "norm_before_gate", "\"yes\"",
     "norm_before_gate = \"yes\"; expected true or false"},
    {MAMBA2, "groups are whole", "n_groups", "1.5", "n_groups = 1.5; expected a whole number"},
    {MAMBA2, "no norms of dt in Mamba-2", "mixer_rms_eps", "1e-6",
     "mixer_rms_eps = 1e-6, which is not supported"},
    /* Falcon-Mamba */
    {FALCON, "Falcon is no Mamba-2", "model_type", "\"mamba2\"",
     "model_type = \"mamba2\", but the tensors are those of Mamba-1"},
    {FALCON, "Falcon has no limits", "time_step_limit", "[0.0, 1.0]",
     "time_step_limit = [0.0,1.0], which is not supported"},
    {FALCON, "Falcon's epsilon is above 0", "mixer_rms_eps", "0",
     "mixer_rms_eps = 0; expected a finite number above 0"},
    {FALCON, "Falcon's inner width", "intermediate_size", "512",
     "intermediate_size = 512, but backbone.layers.0.mixer.A_log has shape [48, 16]"},
    /* the original schema */
    {HYBRID, "ssm_cfg is an object", "ssm_cfg", "[]", "ssm_cfg = []; expected an object"},
    {HYBRID, "attn_cfg is an object", "attn_cfg", "3", "attn_cfg = 3; expected an object"},
    {HYBRID, "layer is known", "ssm_cfg.layer", "\"Mamba4\"",
     "ssm_cfg.layer = \"Mamba4\"; expected \"Mamba1\" or \"Mamba2\""},
    {HYBRID, "layer is a text", "ssm_cfg.layer", "2", "ssm_cfg.layer = 2; expected"},
    {HYBRID, "Mamba-3 comes later", "ssm_cfg.layer", "\"Mamba3\"",
     "Mamba-3 is not supported yet: layer 0 is Mamba3"},
    {HYBRID, "layer is that of the tensors", "ssm_cfg.layer", "\"Mamba1\"",
     "ssm_cfg.layer = \"Mamba1\", but the tensors are those of Mamba-2"},
    {HYBRID, "state of ssm_cfg", "ssm_cfg.d_state", "5",
     "ssm_cfg.d_state = 5 and ssm_cfg.ngroups = 2, but"},
    {HYBRID, "head width of ssm_cfg", "ssm_cfg.headdim", "64", "ssm_cfg.headdim = 64, but"},
    {HYBRID, "rmsnorm of ssm_cfg", "ssm_cfg.rmsnorm", "false", "ssm_cfg.rmsnorm = false, but"},
    {HYBRID, "activation of ssm_cfg", "ssm_cfg.activation", "\"gelu\"", "only SiLU is computed"},
    {HYBRID, "the padded vocabulary", "pad_vocab_size_multiple", "24",
     "vocab_size = 24 and pad_vocab_size_multiple = 24, which adds 0 rows, but"},
    {HYBRID, "the vocabulary fits", "vocab_size", "99", "vocab_size = 99 and pad_vocab_size_mul"},
    {HYBRID, "rms_norm of the original", "rms_norm", "false", "rms_norm = false, but"},
    {HYBRID, "layers of the original", "n_layer", "5", "n_layer = 5, but the tensors"},
    {HYBRID, "width of the original", "d_model", "25", "d_model = 25, but"},
    {HYBRID, "width of the MLP", "d_intermediate", "200",
     "d_intermediate = 200, but backbone.layers.0.mlp.fc2.weight has shape [24, 128]"},
    {HYBRID, "the MLP is not denied", "d_intermediate", "0", "d_intermediate = 0, but"},
    /* attention */
    {HYBRID, "attention layers are listed", "attn_layer_idx", "7",
     "attn_layer_idx = 7; expected a list of layer numbers"},
    {HYBRID, "attention layers are numbers", "attn_layer_idx", "[\"1\"]",
     "attn_layer_idx = [\"1\"]; expected a list"},
    {HYBRID, "attention layers are not negative", "attn_layer_idx", "[-1]",
     "attn_layer_idx = [-1]; expected a list"},
    {HYBRID, "attention where the tensors are", "attn_layer_idx", "[1]",
     "attn_layer_idx = [1], but layer 3 is attention"},
    {HYBRID, "attention within the layers", "attn_layer_idx", "[1, 3, 7]",
     "but there is no layer 7: the tensors are those of 4 layers"},
    {HYBRID, "heads are said", "attn_cfg.num_heads", NULL,
     "does not say attn_cfg.num_heads; shapes alone do not tell"},
    {HYBRID, "query heads divide", "attn_cfg.num_heads", "3",
     "attn_cfg.num_heads = 3, but backbone.layers.1.mixer.out_proj.weight has 40 columns"},
    {HYBRID, "head width of attention", "attn_cfg.head_dim", "20", "attn_cfg.head_dim = 20, but"},
    {HYBRID, "key heads", "attn_cfg.num_heads_kv", "4", "attn_cfg.num_heads_kv = 4, but"},
    {HYBRID, "key heads of the default", "attn_cfg.num_heads_kv", NULL,
     "attn_cfg.num_heads = 4, but backbone.layers.1.mixer.in_proj.weight"},
    {HYBRID, "attention is causal", "attn_cfg.causal", "false",
     "attn_cfg.causal = false, which is not supported: only causal"},
    {HYBRID, "attention is said to be causal", "attn_cfg.causal", NULL,
     "does not say attn_cfg.causal = true"},
    {HYBRID, "causal is a flag", "attn_cfg.causal", "1", "attn_cfg.causal = 1, which is not"},
    {HYBRID, "rotation is within a head", "attn_cfg.rotary_emb_dim", "12",
     "attn_cfg.rotary_emb_dim = 12; expected an even number of at most head_dim = 10"},
    {HYBRID, "rotation is of pairs", "attn_cfg.rotary_emb_dim", "5",
     "rotary_emb_dim = 5; expected"},
    {HYBRID, "the base is above 0", "attn_cfg.rotary_emb_base", "-1", "rotary_emb_base = -1"},
    {HYBRID, "the convolution of attention", "attn_cfg.d_conv", "3", "attn_cfg.d_conv = 3, but"},
    {HYBRID, "biases of attention", "attn_cfg.qkv_proj_bias", "true",
     "attn_cfg.qkv_proj_bias = true, but backbone.layers.1.mixer.in_proj.bias is missing"},
    {HYBRID, "no MLP inside attention", "attn_cfg.mlp_dim", "64", "an MLP inside the attention"},
    /* families that are recognised */
    {MAMBA2, "Jamba comes later", "model_type", "\"jamba\"", "Jamba is not supported yet: layer 0"},
    {MAMBA2, "Zamba2 comes later", "model_type", "\"zamba2\"", "Zamba2 is not supported yet: its"},
    {MAMBA2, "Bamba comes later", "model_type", "\"bamba\"", "Bamba is not supported yet: layer 0"},
    {MAMBA2, "Nemotron-H comes later", "model_type", "\"nemotron_h\"", "Nemotron-H is not"},
    {MAMBA2, "Granite comes later", "model_type", "\"granitemoehybrid\"", "layer 0 is moe"},
    {MAMBA2, "Falcon-H1 comes later", "model_type", "\"falcon_h1\"", "Mamba-2 side by side"},
    {MAMBA2, "attention in a list of layers", "layer_types", "[\"mamba\", \"attention\"]",
     "a hybrid model is not supported yet: layer 1 is attention"},
    {MAMBA2, "an MLP in a pattern", "hybrid_override_pattern", "\"MM-M*\"",
     "not supported yet: layer 2 is mlp"},
    {MAMBA2, "moe in a pattern", "hybrid_override_pattern", "\"MEM*\"",
     "not supported yet: layer 1 is moe"},
    {MAMBA2, "attention by numbers", "attn_layer_indices", "[27, 9, 18]",
     "not supported yet: layer 9 is attention"},
    {MAMBA2, "moe by a period", "expert_layer_period", "2", "not supported yet: layer 0 is moe"},
};

static void set_in(edit *e, const char *key, const char *json)
{
    const char *dot = strchr(key, '.');
    if (dot == NULL) {
        edit_config(e, key, json);
        return;
    }
    char object[32] = "";
    memcpy(object, key, (size_t)(dot - key));
    json_t *inner = json_object_get(e->config, object);
    assert_non_null(inner);
    if (json == NULL) {
        assert_int_equal(json_object_del(inner, dot + 1), 0);
    } else {
        json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
        assert_int_equal(json_object_set_new(inner, dot + 1, value), 0);
    }
}

static void claims_of_a_configuration(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof config_rows / sizeof config_rows[0]; i++) {
        const config_row *row = &config_rows[i];
        edit *e = edit_model(row->model);
        set_in(e, row->key, row->json);
        if (strcmp(row->rule, "the padded vocabulary") == 0) {
            edit_config(e, "vocab_size", "24");
        }
        edit_write(e);
        expect_refusal(e, NULL, row->rule, row->part);
        edit_free(e);
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

#define LAYER0    "backbone.layers.0."
#define LAYER1    "backbone.layers.1."
#define DIMS(...) ((const int64_t[3]){__VA_ARGS__})

static void reshape(edit *e, const char *name, int64_t rows, int64_t cols)
{
    edit_reshape(e, name, SSM_DTYPE_F32, DIMS(rows, cols));
}
static void odd_rows(edit *e)
{
    reshape(e, LAYER0 "mixer.in_proj.weight", 329, 32);
}
static void few_rows(edit *e)
{
    reshape(e, LAYER0 "mixer.in_proj.weight", 136, 32);
}
static void wide_conv(edit *e)
{
    edit_reshape(e, LAYER0 "mixer.conv1d.weight", SSM_DTYPE_F32, DIMS(264, 1, 4));
}
static void narrow_conv(edit *e)
{
    edit_reshape(e, LAYER0 "mixer.conv1d.weight", SSM_DTYPE_F32, DIMS(190, 1, 4));
}
static void ragged_conv(edit *e)
{
    edit_reshape(e, LAYER0 "mixer.conv1d.weight", SSM_DTYPE_F32, DIMS(255, 1, 4));
}
static void heads_in_two_dims(edit *e)
{
    reshape(e, LAYER0 "mixer.dt_bias", 8, 1);
}
static void a_log_per_channel(edit *e)
{
    reshape(e, LAYER1 "mixer.A_log", 64, 24);
}
static void d_of_other_size(edit *e)
{
    reshape(e, LAYER0 "mixer.D", 9, 0);
}
static void norm_of_other_size(edit *e)
{
    reshape(e, LAYER1 "mixer.norm.weight", 8, 0);
}
static void no_dt_bias(edit *e)
{
    edit_remove(e, LAYER1 "mixer.dt_bias");
}
static void misnamed_dt_bias(edit *e)
{
    edit_rename(e, LAYER1 "mixer.dt_bias", LAYER1 "mixer.dt_biases");
}
static void one_norm(edit *e)
{
    edit_remove(e, LAYER1 "mixer.norm.weight");
}
static void x_proj_in_mamba2(edit *e)
{
    edit_add(e, LAYER1 "mixer.x_proj.weight", SSM_DTYPE_F32, DIMS(36, 64));
}
static void dt_proj_in_mamba2(edit *e)
{
    edit_add(e, LAYER1 "mixer.dt_proj.weight", SSM_DTYPE_F32, DIMS(64, 2));
}
static void half_an_mlp(edit *e)
{
    edit_add(e, LAYER1 "mlp.fc1.weight", SSM_DTYPE_F32, DIMS(10, 32));
}
static void final_bias_alone(edit *e)
{
    edit_add(e, "backbone.norm_f.bias", SSM_DTYPE_F32, DIMS(32));
}
static void buffer_in_mamba2(edit *e)
{
    edit_add(e, LAYER1 "mixer.b_c_rms", SSM_DTYPE_F32, DIMS(24));
}
static void self_attention(edit *e)
{
    edit_add(e, "model.layers.1.self_attn.q_proj.weight", SSM_DTYPE_F32, DIMS(32, 32));
}
static void experts(edit *e)
{
    edit_add(e, "backbone.layers.7.mixer.experts.0.up_proj.weight", SSM_DTYPE_F32, DIMS(8, 32));
    edit_add(e, "backbone.layers.9.mixer.q_proj.weight", SSM_DTYPE_F32, DIMS(32, 32));
}
static void nemotron_mlp(edit *e)
{
    edit_add(e, "backbone.layers.1.mixer.up_proj.weight", SSM_DTYPE_F32, DIMS(8, 32));
}
static void jamba_names(edit *e)
{
    edit_prefix(e, "backbone.layers.0.mixer.", "model.layers.0.mamba.");
}
static void mamba3_bias(edit *e)
{
    edit_add(e, LAYER0 "mixer.B_bias", SSM_DTYPE_F32, DIMS(24));
}
static void attention_without_claim(edit *e)
{
    edit_config(e, "attn_layer_idx", "[]");
    edit_config(e, "attn_cfg", "{}");
}
static void keys_do_not_fit(edit *e)
{
    reshape(e, LAYER1 "mixer.in_proj.weight", 90, 24);
}
static void third_layer_of_other_heads(edit *e)
{
    reshape(e, "backbone.layers.3.mixer.in_proj.weight", 60, 24);
}
static void one_conv_of_attention(edit *e)
{
    edit_remove(e, "backbone.layers.3.mixer.conv1d.weight");
}
static void one_mlp_bias(edit *e)
{
    edit_add(e, "backbone.layers.2.mlp.fc2.bias", SSM_DTYPE_F32, DIMS(24));
}
static void mamba1_among_mamba2(edit *e)
{
    edit_rename(e, "backbone.layers.2.mixer.dt_bias", "backbone.layers.2.mixer.x_proj.weight");
}
static void falcon_learned_norm(edit *e)
{
    edit_add(e, LAYER1 "mixer.dt_layernorm.weight", SSM_DTYPE_F32, DIMS(12));
}

typedef struct tensor_row {
    model model;
    const char *rule;
    void (*change)(edit *e);
    const char *part;
} tensor_row;

static const tensor_row tensor_rows[] = {
    {MAMBA2, "rows of in_proj are even", odd_rows,
     "the 329 rows leave 193 for B and C beside 2 d_inner = 128 (out_proj) and n_heads = 8"},
    {MAMBA2, "rows of in_proj suffice", few_rows, "the 136 rows leave 0 for B and C"},
    {MAMBA2, "the scan is not wider than d_inner", wide_conv,
     "the 264 channels leave d_ssm = 72 beside 192 of B and C"},
    {MAMBA2, "the convolution covers B and C", narrow_conv, "the 190 channels leave d_ssm = -2"},
    {MAMBA2, "heads divide the scan", ragged_conv,
     "the 255 channels leave d_ssm = 63 beside 192 of B and C; expected a multiple of n_heads = 8"},
    {MAMBA2, "dt_bias has one dimension", heads_in_two_dims, "shape [8, 1]; expected [n_heads]"},
    {MAMBA2, "A is per head", a_log_per_channel, "shape [64, 24]; expected [n_heads] = [8]"},
    {MAMBA2, "D is per head or channel", d_of_other_size,
     "shape [9]; expected [n_heads or d_ssm] = [8]"},
    {MAMBA2, "the gated norm is of the scan", norm_of_other_size, "[8]; expected [d_ssm] = [64]"},
    {MAMBA2, "dt_bias is there", no_dt_bias, "the tensor is missing: no file"},
    {MAMBA2, "dt_bias by its name", misnamed_dt_bias,
     "perhaps it is misnamed, model.safetensors holds backbone.layers.1.mixer.dt_biases"},
    {MAMBA2, "all layers norm or none", one_norm,
     "the tensor is missing although that of layer 0 is there"},
    {MAMBA2, "one kind a layer", x_proj_in_mamba2, "layer 1 is Mamba-1 and layer 0 is Mamba-2"},
    {MAMBA2, "no dt_proj in Mamba-2", dt_proj_in_mamba2, "belongs to no slot of a mamba2 model"},
    {MAMBA2, "an MLP is whole", half_an_mlp, "(and 1 more are missing)"},
    {MAMBA2, "LayerNorm to the end", final_bias_alone,
     "the bias of the final norm is there although that of the layers' norms is missing"},
    {MAMBA2, "Falcon's buffers are Falcon's", buffer_in_mamba2, "belongs to no slot of a mamba2"},
    {MAMBA2, "attention of other families", self_attention, "not supported yet: layer 1 is attent"},
    {MAMBA2, "experts of other families", experts, "not supported yet: layer 7 is moe"},
    {MAMBA2, "MLPs of other families", nemotron_mlp, "not supported yet: layer 1 is mlp"},
    {MAMBA2, "Mamba layers of hybrids", jamba_names, "layer 0 is the Mamba layer of a hybrid"},
    {MAMBA2, "Mamba-3 by its tensors", mamba3_bias, "not supported yet: layer 0 is Mamba3"},
    {HYBRID, "attention is claimed", attention_without_claim, "the tensor is missing (and"},
    {HYBRID, "keys and values fit", keys_do_not_fit,
     "the 90 rows leave 50 for keys and values beside 4 query heads of 10"},
    {HYBRID, "layers of attention agree", third_layer_of_other_heads,
     "shape [60, 24]; expected [(query heads + 2 key heads) head_dim, d_model] = [80, 24]"},
    {HYBRID, "all attention convolves or none", one_conv_of_attention,
     "the tensor is missing although that of layer 1 is there"},
    {HYBRID, "all MLPs have biases or none", one_mlp_bias, "is there although that of layer 0"},
    {HYBRID, "one family a model", mamba1_among_mamba2,
     "layer 2 is Mamba-1 and layer 0 is Mamba-2"},
    {FALCON, "Falcon's norms have no weights", falcon_learned_norm,
     "belongs to no slot of a falcon_mamba model"},
};

static void tensors_of_a_checkpoint(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tensor_rows / sizeof tensor_rows[0]; i++) {
        edit *e = edit_model(tensor_rows[i].model);
        tensor_rows[i].change(e);
        edit_write(e);
        expect_refusal(e, NULL, tensor_rows[i].rule, tensor_rows[i].part);
        edit_free(e);
    }
}

/* ---- torch files and other directories ------------------------------------------------------- */

static void torch_directories(void **state)
{
    (void)state;
    edit *e = edit_model(MAMBA2);
    edit_write_config(e);
    edit_write_text(e, "pytorch_model.bin",
                    "version https://git-lfs.github.com/spec/v1\nsize 5753728\n");
    expect_refusal(e, NULL, "a torch file is no LFS pointer", "not the file of 5753728 bytes");
    edit_write_text(e, "pytorch_model.bin", "<html>login</html>");
    expect_refusal(e, NULL, "a torch file is no web page", "this is a web page");
    edit_write_text(e, "pytorch_model.bin.index.json",
                    "{\"weight_map\": {\"a\": \"pytorch_model-00001-of-00002.bin\", \"b\": "
                    "\"pytorch_model-00002-of-00002.bin\", \"c\": \"pytorch_model.bin\"}}");
    expect_refusal(e, NULL, "torch shards are there",
                   "2 of the 3 shards that the index names are missing: "
                   "pytorch_model-00001-of-00002.bin (1 tensor)");
    edit_write_text(e, "pytorch_model.bin.index.json",
                    "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\"}}");
    expect_refusal(e, NULL, "a torch index names torch files",
                   "safetensors shard \"model-00001-of-00002.safetensors\" in an index of PyTorch");
    edit_write_text(e, "pytorch_model.bin.index.json", "{\"weight_map\": {\"a\": \"x.npz\"}}");
    expect_refusal(e, NULL, "a torch index names no other files", "expected a .bin file");
    edit_free(e);
}

static int report(void **state)
{
    (void)state;
    printf("%d malformed inputs of the other families and schemas\n", list.count);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_of_a_configuration),
        cmocka_unit_test(tensors_of_a_checkpoint),
        cmocka_unit_test(torch_directories),
    };
    return cmocka_run_group_tests(tests, NULL, report);
}
