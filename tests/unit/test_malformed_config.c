/* Malformed configurations, named by the rule they break; each has its own message. The toy is
 * toy_config(): V 31, D 20, E 36, N 5, K 3, R 3, 3 layers, untied, all biases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "test_edit.h"
#include "test_messages.h"

static message_list list; /* one for all tables */

static void expect_refusal(edit *e, const char *name, const char *rule, const char *part)
{
    message_refusal(&list, e, name, rule, part);
}

/* ---- config.json ----------------------------------------------------------------------------- */

typedef struct config_row {
    const char *rule;
    const char *key;
    const char *json; /* NULL: the key is removed */
    const char *part;
} config_row;

static const config_row config_rows[] = {
    /* families */
    {"model_type is text", "model_type", "7", "model_type is not a string"},
    {"mamba2 is no name for Mamba-1's tensors", "model_type", "\"mamba2\"",
     "model_type = \"mamba2\", but the tensors are those of Mamba-1"},
    {"other families are unknown", "model_type", "\"llama\"", "unknown model_type \"llama\""},
    /* values */
    {"sizes are whole", "hidden_size", "20.0", "hidden_size = 20.0; expected a whole number"},
    {"sizes are numbers", "state_size", "\"5\"", "state_size = \"5\"; expected a whole number"},
    {"sizes are at least 1", "conv_kernel", "0", "conv_kernel = 0; expected a whole number"},
    {"dt rank is a number or auto", "time_step_rank", "\"automatic\"",
     "time_step_rank = \"automatic\""},
    {"flags are flags", "use_bias", "1", "use_bias = 1; expected true or false"},
    {"the tie flag is a flag", "tie_word_embeddings", "\"no\"",
     "tie_word_embeddings = \"no\"; expected true or false"},
    {"eps is a number", "layer_norm_epsilon", "\"1e-5\"", "layer_norm_epsilon = \"1e-5\""},
    {"eps is above 0", "layer_norm_epsilon", "0", "layer_norm_epsilon = 0; expected a finite"},
    {"expand is a number", "expand", "[2]", "expand = [2]; expected a finite"},
    {"ids are whole", "eos_token_id", "0.5", "eos_token_id = 0.5; expected a token id"},
    /* settings that change the numbers */
    {"the activation is SiLU", "hidden_act", "\"gelu\"", "hidden_act = \"gelu\", which is not"},
    {"the residual is float32", "residual_in_fp32", "false", "residual_in_fp32 = false"},
    {"LayerNorm has biases", "rms_norm", "false",
     "rms_norm = false, but backbone.layers.0.norm.bias is missing"},
    {"no limits on dt", "time_step_limit", "[0.0, 0.1]", "time_step_limit = [0.0,0.1]"},
    {"no norms in the mixer", "mixer_rms_eps", "1e-6", "norms inside the mixer belong to"},
    {"no attention layers", "attn_layer_idx", "[1, 5]",
     "attn_layer_idx = [1,5], but layer 1 is mamba"},
    {"no hybrid layers", "layers_block_type", "[\"mamba\", \"hybrid\"]",
     "a hybrid model is not supported yet: layer 1 is hybrid"},
    {"a claimed MLP is there", "d_intermediate", "64",
     "d_intermediate = 64, but no layer has an MLP"},
    {"no quantised weights", "quantization_config", "{\"bits\": 4}", "quantised weights"},
    {"no experts", "num_experts", "8", "mixtures of experts"},
    /* claims against shapes: both numbers, both sources */
    {"width", "hidden_size", "24",
     "hidden_size = 24, but backbone.embeddings.weight has shape [31, 20], which means 20"},
    {"layers, too many", "num_hidden_layers", "4",
     "num_hidden_layers = 4, but the tensors are those of 3 layers"},
    {"layers, too few", "num_hidden_layers", "2", "num_hidden_layers = 2, but the tensors"},
    {"inner width", "intermediate_size", "40",
     "intermediate_size = 40, but backbone.layers.0.mixer.A_log has shape [36, 5], which means 36"},
    {"state", "state_size", "16",
     "state_size = 16, but backbone.layers.0.mixer.A_log has shape [36, 5], which means 5"},
    {"conv width", "conv_kernel", "4",
     "conv_kernel = 4, but backbone.layers.0.mixer.conv1d.weight has shape [36, 1, 3], which "
     "means 3"},
    {"dt rank", "time_step_rank", "4",
     "time_step_rank = 4, but backbone.layers.0.mixer.dt_proj.weight has shape [36, 3], which "
     "means 3"},
    {"dt rank, auto", "time_step_rank", "\"auto\"",
     "time_step_rank = \"auto\", which is 2 for d_model 20"},
    {"vocabulary larger than the rows", "vocab_size", "32",
     "vocab_size = 32, but backbone.embeddings.weight has shape [31, 20], which means 31"},
    {"bos id within the rows", "bos_token_id", "31", "bos_token_id = 31, but the embedding has 31"},
    {"eos id within the rows", "eos_token_id", "[99, 0]", "eos_token_id = 99, but the embedding"},
    {"projection biases are claimed", "use_bias", "false",
     "use_bias = false, but backbone.layers.0.mixer.in_proj.bias is there"},
    {"conv biases are claimed", "use_conv_bias", "false",
     "use_conv_bias = false, but backbone.layers.0.mixer.conv1d.bias is there"},
    /* the head of the toy differs from its embedding */
    {"a tied head equals the embedding", "tie_word_embeddings", "true",
     "tie_word_embeddings = true, but lm_head.weight differs"},
    {"a different head needs the flag", "tie_word_embeddings", NULL,
     "does not say tie_word_embeddings (others read that as true"},
};

static void claims_of_a_configuration(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof config_rows / sizeof config_rows[0]; i++) {
        const config_row *row = &config_rows[i];
        edit *e = edit_create(NULL);
        edit_config(e, row->key, row->json);
        edit_write(e);
        expect_refusal(e, NULL, row->rule, row->part);
        edit_free(e);
    }
}

/* expand speaks only where intermediate_size is absent. */
static void expand_alone_is_a_claim(void **state)
{
    (void)state;
    edit *e = edit_create(NULL);
    edit_config(e, "intermediate_size", NULL);
    edit_config(e, "expand", "2");
    edit_write(e);
    expect_refusal(e, NULL, "expand without intermediate_size",
                   "expand = 2, which makes d_inner 40 with d_model 20, but "
                   "backbone.layers.0.mixer.A_log has 36 rows");
    edit_free(e);
}

/* Falcon-Mamba's tensors look like Mamba's; architectures says it, too. */
static void a_family_is_named(void **state)
{
    (void)state;
    edit *e = edit_create(NULL);
    edit_config(e, "model_type", NULL);
    edit_config(e, "architectures", NULL);
    edit_write(e);
    expect_refusal(e, NULL, "model_type is given", "config.json has no model_type");
    edit_free(e);
}

typedef struct text_row {
    const char *rule;
    const char *text;
    const char *part;
} text_row;

static const text_row config_texts[] = {
    {"config is not empty", "", "config.json is empty"},
    {"config is JSON", "{\"model_type\": mamba}", "not valid JSON at line 1"},
    {"config is whole", "{\"model_type\": \"mamba\",\n", "not valid JSON at line 2"},
    {"config keys are unique", "{\"model_type\": \"mamba\", \"model_type\": \"mamba\"}",
     "duplicate"},
    {"config is UTF-8", "{\"model_type\": \"\xe9\"}", "UTF-8"},
    {"config is an object", "[\"mamba\"]", "not a JSON object"},
    {"config is no LFS pointer", "version https://git-lfs.github.com/spec/v1\nsize 700\n",
     "Git LFS pointer"},
    {"config is no web page", "<html>404</html>", "web page"},
    {"the original's width",
     "{\"d_model\": 768, \"n_layer\": 24, \"vocab_size\": 50277, \"ssm_cfg\": {}}",
     "d_model = 768, but backbone.embeddings.weight"},
    {"params.json's width", "{\"dim\": 4096, \"n_layers\": 64, \"vocab_size\": 32768}",
     "dim = 4096, but backbone.embeddings.weight"},
};

static void texts_of_a_configuration(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof config_texts / sizeof config_texts[0]; i++) {
        edit *e = edit_create(NULL);
        edit_write(e);
        edit_write_text(e, "config.json", config_texts[i].text);
        expect_refusal(e, NULL, config_texts[i].rule, config_texts[i].part);
        edit_free(e);
    }
}

/* JSON inside JSON, far deeper than any parser's stack should be asked to go. */
static void recursive_json(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    static char text[DEPTH + 1];
    memset(text, '[', DEPTH);
    edit *e = edit_create(NULL);
    edit_write(e);
    edit_write_text(e, "config.json", text);
    expect_refusal(e, NULL, "config is not recursive", "nested too deeply");
    edit_write_config(e);
    memcpy(text, "{\"weight_map\":", 14);
    edit_write_text(e, "model.safetensors.index.json", text);
    expect_refusal(e, NULL, "index is not recursive", "nested too deeply");
    edit_free(e);
}

static int report(void **state)
{
    (void)state;
    printf("%d malformed configurations\n", list.count);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_of_a_configuration),
        cmocka_unit_test(expand_alone_is_a_claim),
        cmocka_unit_test(a_family_is_named),
        cmocka_unit_test(texts_of_a_configuration),
        cmocka_unit_test(recursive_json),
    };
    return cmocka_run_group_tests(tests, NULL, report);
}
