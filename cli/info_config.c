#include "info_config.h"

#include <math.h>
#include <stdio.h>

static void add_size(cli_table *table, const char *name, int64_t value, const char *meaning)
{
    if (value > 0) {
        cli_table_cell(table, "%s", name);
        cli_table_cell(table, "%lld", (long long)value);
        cli_table_cell(table, "%s", meaning);
    }
}

static int64_t attention_layers(const ssm_checkpoint *checkpoint)
{
    int64_t count = 0;
    for (int64_t i = 0; i < ssm_checkpoint_config(checkpoint)->n_layers; i++) {
        count += ssm_checkpoint_layer_kind(checkpoint, i) == SSM_LAYER_ATTENTION;
    }
    return count;
}

static void add_sizes(cli_table *table, const ssm_checkpoint *checkpoint)
{
    const ssm_config *c = ssm_checkpoint_config(checkpoint);
    const bool narrow = c->n_heads > 0 && c->d_ssm != c->d_inner;
    add_size(table, "n_layers", c->n_layers, "blocks");
    add_size(table, "attention", attention_layers(checkpoint), "of them with attention");
    add_size(table, "d_model", c->d_model, "width of the residual stream");
    add_size(table, "d_inner", c->d_inner, "channels of a layer");
    add_size(table, "d_ssm", narrow ? c->d_ssm : 0, "of them with a state");
    add_size(table, "d_state", c->d_state, "modes (state coordinates) of a channel");
    add_size(table, "d_conv", c->d_conv, "taps of the causal convolution");
    add_size(table, "dt_rank", c->dt_rank, "rank of the step size projection");
    add_size(table, "n_heads", c->n_heads, "heads of a layer");
    add_size(table, "head_dim", c->head_dim, "channels of a head");
    add_size(table, "n_groups", c->n_groups, "groups that share B and C");
    add_size(table, "norm_groups", c->norm_groups, "groups of the gated norm");
    add_size(table, "query heads", c->n_query_heads, "of a layer of attention");
    add_size(table, "key heads", c->n_kv_heads, "of a layer of attention");
    add_size(table, "head width", c->attention_head_dim, "coordinates of a head of attention");
    add_size(table, "rotary", c->rotary_dim, "of them are turned by the position");
    add_size(table, "conv", c->attention_conv, "taps of the convolution on q, k, v");
    add_size(table, "d_mlp", c->d_mlp, "hidden width of a block's MLP");
    add_size(table, "vocab_size", c->vocab_size, "rows of the embedding");
}

static void add_setting(cli_table *table, const char *name, const char *value, const char *meaning)
{
    cli_table_cell(table, "%s", name);
    cli_table_cell(table, "%s", value);
    cli_table_cell(table, "%s", meaning);
}

static void add_settings(cli_table *table, const ssm_config *c)
{
    char text[64];
    snprintf(text, sizeof text, "%g", c->norm_eps);
    add_setting(table, "norm_eps", text,
                c->layer_norm ? "added to the variance in LayerNorm"
                              : "added to the mean square in RMSNorm");
    if (c->mixer_norm_eps > 0) {
        snprintf(text, sizeof text, "%g", c->mixer_norm_eps);
        add_setting(table, "mixer eps", text,
                    c->family == SSM_FAMILY_FALCON_MAMBA ? "in the norms of dt, B and C"
                                                         : "in the gated norm");
    }
    const bool clamps =
        c->dt_limit_low > 0 || (c->family == SSM_FAMILY_MAMBA2 && isfinite(c->dt_limit_high));
    snprintf(text, sizeof text, "%g, %g", c->dt_limit_low,
             clamps ? c->dt_limit_high : (double)INFINITY);
    add_setting(table, "dt limits", text,
                clamps ? "the step size is clamped to them"
                       : "the step size is not clamped when the model runs");
    if (c->family == SSM_FAMILY_MAMBA2) {
        add_setting(table, "gated norm",
                    !c->gated_norm        ? "none"
                    : c->norm_before_gate ? "norm, gate"
                                          : "gate, norm",
                    "between the scan and out_proj");
    }
    add_setting(table, "head", c->tied ? "tied" : "untied",
                c->tied ? "lm_head is the embedding" : "lm_head is its own");
}

ssm_status cli_info_shape(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    static const char *const headings[] = {"shape", "value", "meaning"};
    cli_table table = cli_table_create(headings, "lrl");
    add_sizes(&table, checkpoint);
    add_settings(&table, ssm_checkpoint_config(checkpoint));
    return cli_table_print(&table, stdout, err);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_sizes(cli_json *json, json_t *object, const ssm_config *config)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"vocab_size", config->vocab_size},
                 {"d_model", config->d_model},
                 {"n_layers", config->n_layers},
                 {"d_inner", config->d_inner},
                 {"d_state", config->d_state},
                 {"d_conv", config->d_conv},
                 {"dt_rank", config->dt_rank},
                 {"n_heads", config->n_heads},
                 {"head_dim", config->head_dim},
                 {"n_groups", config->n_groups},
                 {"d_ssm", config->d_ssm},
                 {"norm_groups", config->norm_groups},
                 {"n_query_heads", config->n_query_heads},
                 {"n_kv_heads", config->n_kv_heads},
                 {"attention_head_dim", config->attention_head_dim},
                 {"attention_conv", config->attention_conv},
                 {"rotary_dim", config->rotary_dim},
                 {"d_mlp", config->d_mlp},
                 {"bos_id", config->bos_id},
                 {"eos_id", config->eos_id},
                 {"pad_id", config->pad_id}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cli_json_integer(json, object, sizes[i].name, sizes[i].value);
    }
}

void cli_info_config(cli_json *json, const ssm_checkpoint *checkpoint)
{
    const ssm_config *config = ssm_checkpoint_config(checkpoint);
    json_t *object = cli_json_object(json, json->root, "config");
    cli_json_text(json, object, "family", ssm_family_name(config->family));
    put_sizes(json, object, config);
    cli_json_real(json, object, "norm_eps", config->norm_eps);
    cli_json_real(json, object, "mixer_norm_eps", config->mixer_norm_eps);
    cli_json_bool(json, object, "layer_norm", config->layer_norm);
    cli_json_bool(json, object, "gated_norm", config->gated_norm);
    cli_json_bool(json, object, "norm_before_gate", config->norm_before_gate);
    cli_json_bool(json, object, "tied", config->tied);
    json_t *limits = cli_json_array(json, object, "dt_limits");
    const bool has_high = config->family == SSM_FAMILY_MAMBA2 && isfinite(config->dt_limit_high);
    cli_json_push(json, limits, json_real(config->dt_limit_low));
    cli_json_push(json, limits, has_high ? json_real(config->dt_limit_high) : json_null());
    json_t *layers = cli_json_array(json, object, "layer_kinds");
    for (int64_t i = 0; i < config->n_layers; i++) {
        const ssm_layer_kind kind = ssm_checkpoint_layer_kind(checkpoint, i);
        cli_json_push(json, layers, json_string(ssm_layer_kind_name(kind)));
    }
}
