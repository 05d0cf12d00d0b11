#include "train/hf_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

static const char *torch_dtype(ssm_dtype dtype)
{
    return dtype == SSM_DTYPE_F32 ? "float32" : dtype == SSM_DTYPE_F16 ? "float16" : "bfloat16";
}

static json_t *id_or_null(int64_t id)
{
    return id < 0 ? json_null() : json_integer(id);
}

/* expand as a whole number where it is one. */
static json_t *expand_of(const ssm_config *config)
{
    if (config->d_inner % config->d_model == 0) {
        return json_integer(config->d_inner / config->d_model);
    }
    return json_real((double)config->d_inner / (double)config->d_model);
}

static json_t *build(const ssm_config *config, ssm_dtype dtype)
{
    return json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:f, s:b, s:b, s:s, s:b, s:b, s:s,"
        " s:o, s:o, s:o}",
        "architectures", "MambaForCausalLM", "model_type", "mamba",                    //
        "vocab_size", (json_int_t)config->vocab_size,                                  //
        "hidden_size", (json_int_t)config->d_model,                                    //
        "num_hidden_layers", (json_int_t)config->n_layers,                             //
        "intermediate_size", (json_int_t)config->d_inner,                              //
        "expand", expand_of(config),                                                   //
        "state_size", (json_int_t)config->d_state,                                     //
        "time_step_rank", (json_int_t)config->dt_rank,                                 //
        "conv_kernel", (json_int_t)config->d_conv,                                     //
        "layer_norm_epsilon", config->norm_eps,                                        //
        "use_bias", 0, "use_conv_bias", 1, "hidden_act", "silu",                       //
        "residual_in_fp32", 1, "tie_word_embeddings", (int)config->tied,               //
        "torch_dtype", torch_dtype(dtype), "bos_token_id", id_or_null(config->bos_id), //
        "eos_token_id", id_or_null(config->eos_id), "pad_token_id", id_or_null(config->pad_id));
}

/* The fewest digits that give both real numbers back exactly: 1e-05, not 1.0000000000000001e-05. */
static size_t digits_needed(const ssm_config *config)
{
    const double values[] = {config->norm_eps, (double)config->d_inner / (double)config->d_model};
    size_t digits = 15;
    for (int i = 0; i < 2; i++) {
        char text[64];
        snprintf(text, sizeof text, "%.*g", (int)digits, values[i]);
        if (digits < 17 && strtod(text, NULL) != values[i]) {
            digits++;
            i = -1; /* look at both again */
        }
    }
    return digits;
}

ssm_status ssm__hf_config_write(const ssm_config *config, ssm_dtype dtype, const char *directory,
                                ssm_error *err)
{
    json_t *root = build(config, dtype);
    char *text =
        root == NULL
            ? NULL
            : ssm__json_print(root, JSON_INDENT(2) | JSON_REAL_PRECISION(digits_needed(config)));
    char *path = ssm__path_join(directory, "config.json");
    ssm_status status;
    if (text == NULL || path == NULL) {
        status = ssm__fail_memory(err, "config.json", 0);
    } else {
        size_t bytes = strlen(text);
        text[bytes] = '\n'; /* in place of the terminator: files end in a newline */
        status = ssm__write_file(path, text, bytes + 1, err);
    }
    free(text);
    free(path);
    json_decref(root);
    return status;
}
