#include "train/first_weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/weights.h"
#include "tokenizer/byte_level.h"
#include "train/mimetic_network.h"

/* ---- a checkpoint ---------------------------------------------------------------------------- */

/* What says nothing of the mixer: a network declares it as Mamba-1's whatever stands beside it. */
static bool of_any_layer(int slot)
{
    return slot == SSM__SLOT_norm || slot == SSM__SLOT_norm_bias || slot == SSM__SLOT_norm2 ||
           slot == SSM__SLOT_norm2_bias || slot == SSM__SLOT_fc1 || slot == SSM__SLOT_fc2;
}

static const ssm_tensor *source_of(const ssm_checkpoint *checkpoint, const ssm__parameter *p)
{
    const ssm_config *c = ssm_checkpoint_config(checkpoint);
    const ssm__slot_place place = {p->slot, p->layer};
    if (p->slot < 0 || p->layer >= c->n_layers) {
        return NULL;
    }
    if (p->layer >= 0 && ssm_checkpoint_layer_kind(checkpoint, p->layer) != p->kind &&
        !of_any_layer(p->slot)) {
        return NULL;
    }
    const ssm_tensor *tensor = ssm__slot_tensor_const(ssm__checkpoint_weights(checkpoint), place);
    return tensor->data == NULL || ssm_tensor_count(tensor) != p->count ? NULL : tensor;
}

/* What shapes of tensors do not tell, and what would compute otherwise than the recipe says. */
static ssm_status check_alike(const ssm_checkpoint *checkpoint, const ssm__network_config *network,
                              ssm_error *err)
{
    const ssm_config *is = ssm_checkpoint_config(checkpoint), *wanted = &network->shape;
    const bool heads = wanted->n_heads > 0, attends = wanted->n_query_heads > 0;
    const bool turns = attends && wanted->rotary_dim > 0;
    const bool mamba1 = wanted->family == SSM_FAMILY_MAMBA;
    const struct {
        const char *what;
        double is, wanted;
        bool compared;
    } pairs[] = {
        {"n_layers", (double)is->n_layers, (double)wanted->n_layers, true},
        {"d_model", (double)is->d_model, (double)wanted->d_model, true},
        {"vocab_size", (double)is->vocab_size, (double)wanted->vocab_size, true},
        {"tied", is->tied, wanted->tied, true},
        {"norm_eps", is->norm_eps, wanted->norm_eps, network->norm != SSM__NORM_NONE},
        {"layer_norm", is->layer_norm, network->norm == SSM__NORM_LAYER,
         network->norm != SSM__NORM_NONE},
        {"d_mlp", (double)is->d_mlp, (double)wanted->d_mlp, true},
        {"d_inner", (double)is->d_inner, (double)wanted->d_inner, heads || mamba1},
        {"d_state", (double)is->d_state, (double)wanted->d_state, heads || mamba1},
        {"d_conv", (double)is->d_conv, (double)wanted->d_conv, heads || mamba1},
        {"dt_rank", (double)is->dt_rank, (double)wanted->dt_rank, mamba1},
        {"n_heads", (double)is->n_heads, (double)wanted->n_heads, heads},
        {"n_groups", (double)is->n_groups, (double)wanted->n_groups, heads},
        {"norm_groups", (double)is->norm_groups, (double)wanted->norm_groups, heads},
        {"gated_norm", is->gated_norm, wanted->gated_norm, heads},
        {"norm_before_gate", is->norm_before_gate, wanted->norm_before_gate, heads},
        {"D_per_channel", is->D_per_channel, wanted->D_per_channel, heads},
        {"dt_limit_low", is->dt_limit_low, wanted->dt_limit_low, heads},
        {"dt_limit_high", is->dt_limit_high, wanted->dt_limit_high, heads},
        {"mixer_norm_eps", is->mixer_norm_eps, wanted->mixer_norm_eps, heads},
        {"attention_heads", (double)is->n_query_heads, (double)wanted->n_query_heads, attends},
        {"kv_heads", (double)is->n_kv_heads, (double)wanted->n_kv_heads, attends},
        {"attention_conv", (double)is->attention_conv, (double)wanted->attention_conv, attends},
        {"rotary_dim", (double)is->rotary_dim, (double)wanted->rotary_dim, attends},
        {"rotary_base", is->rotary_base, wanted->rotary_base, turns},
        {"rotary_interleaved", is->rotary_interleaved, wanted->rotary_interleaved, turns},
        {"softmax_scale", (float)is->softmax_scale, (float)wanted->softmax_scale, attends},
    };
    if (is->family == SSM_FAMILY_FALCON_MAMBA) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(ssm_checkpoint_path(checkpoint)),
                         "the model of init.from is a %s, which norms inside its mixer; expected "
                         "a model of mamba or mamba2",
                         ssm_family_name(is->family));
    }
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const bool same = !(pairs[i].is < pairs[i].wanted || pairs[i].is > pairs[i].wanted);
        if (pairs[i].compared && !same) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(ssm_checkpoint_path(checkpoint)),
                             "the model of init.from has %s %.9g, the recipe %.9g; expected one "
                             "shape",
                             pairs[i].what, pairs[i].is, pairs[i].wanted);
        }
    }
    return SSM_STATUS_OK;
}

/* A bias that the recipe's network has no place for would be lost without a word. */
static ssm_status check_nothing_lost(const ssm__network *network, const ssm_checkpoint *checkpoint,
                                     ssm_error *err)
{
    const ssm_config *c = ssm_checkpoint_config(checkpoint);
    const ssm__weights *weights = ssm__checkpoint_weights(checkpoint);
    const bool shared = ssm__network_config_of(network)->shared_layers;
    for (int64_t i = 0; i < ssm__slot_count(c->n_layers); i++) {
        const ssm__slot_place place = ssm__slot_at(c->n_layers, i);
        if ((place.id == SSM__SLOT_lm_head && c->tied) || (shared && place.layer > 0) ||
            ssm__slot_tensor_const(weights, place)->data == NULL ||
            ssm__network_slot(network, place.layer, place.id) != NULL) {
            continue;
        }
        char name[SSM__SLOT_NAME_MAX];
        ssm__slot_name(place, name);
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(ssm_checkpoint_path(checkpoint), name),
                         "the recipe's network has no place for this tensor of the model of "
                         "init.from; expected a model without it");
    }
    return SSM_STATUS_OK;
}

static ssm_status copy_from(ssm__network *network, const ssm_checkpoint *checkpoint, ssm_error *err)
{
    SSM__TRY(check_alike(checkpoint, ssm__network_config_of(network), err));
    for (int64_t i = 0; i < ssm__network_count(network); i++) {
        const ssm__parameter *p = ssm__network_at(network, i);
        const ssm_tensor *tensor = source_of(checkpoint, p);
        if (tensor == NULL) {
            return ssm__fail(err, SSM_STATUS_FILE,
                             SSM__TENSOR(ssm_checkpoint_path(checkpoint), p->name),
                             "the model of init.from has no such tensor of %" PRId64
                             " numbers; its shape must be the recipe's",
                             p->count);
        }
        for (int64_t k = 0; k < p->count; k++) {
            ssm__network_values(network)[p->at + k] = (float)ssm_tensor_get(tensor, k);
        }
    }
    return check_nothing_lost(network, checkpoint, err);
}

static ssm_status read_checkpoint(ssm__network *network, const ssm_recipe *recipe, ssm_error *err)
{
    ssm_checkpoint *checkpoint = NULL;
    ssm_status status = ssm_checkpoint_open(recipe->init.from, NULL, &checkpoint, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_checkpoint_check_finite(checkpoint, err);
    }
    if (status == SSM_STATUS_OK) {
        status = copy_from(network, checkpoint, err);
    }
    ssm_checkpoint_close(checkpoint);
    return status;
}

/* ---- mimetic --------------------------------------------------------------------------------- */

static ssm_status make_mimetic(ssm__network *network, const ssm_recipe *recipe, ssm_error *err)
{
    const ssm__recipe_init *init = &recipe->init;
    ssm_mimetic mimetic = ssm_mimetic_default();
    SSM__TRY(ssm_mimetic_parse_switches(init->mimetic, &mimetic, err));
    mimetic.mode = (ssm_mimetic_mode)init->mode;
    mimetic.c = init->c;
    mimetic.noise = init->noise;
    mimetic.layers = init->layers.count > 0 ? init->layers.values : NULL;
    mimetic.n_layers = init->layers.count;
    mimetic.heads = init->heads.count > 0 ? init->heads.values : NULL;
    mimetic.n_heads = init->heads.count;
    return ssm__mimetic_network(network, &mimetic, (uint64_t)recipe->seed, err);
}

ssm_status ssm__first_weights(ssm__network *network, const ssm_recipe *recipe, ssm_error *err)
{
    if (recipe->init.from != NULL) {
        SSM__TRY(read_checkpoint(network, recipe, err));
    } else {
        ssm__network_draw(network, (uint64_t)recipe->seed);
    }
    return strcmp(recipe->init.mimetic, "none") == 0 ? SSM_STATUS_OK
                                                     : make_mimetic(network, recipe, err);
}

/* ---- the tokenizer --------------------------------------------------------------------------- */

/* A BPE without merges whose token b is the byte b. NULL: out of memory. */
static json_t *byte_tokenizer(void)
{
    json_t *vocab = json_object();
    for (int byte = 0; vocab != NULL && byte < 256; byte++) {
        const unsigned char text = (unsigned char)byte;
        char key[3] = "";
        (void)ssm__bytes_to_chars(&text, 1, (unsigned char *)key);
        if (json_object_set_new(vocab, key, json_integer(byte)) != 0) {
            json_decref(vocab);
            vocab = NULL;
        }
    }
    if (vocab == NULL) {
        return NULL;
    }
    return json_pack(
        "{s:s, s:n, s:n, s:[], s:n, s:{s:s, s:b, s:b, s:b}, s:n, s:{s:s, s:b, s:b, s:b}, "
        "s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:o, s:[]}}",
        "version", "1.0", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
        "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0, "use_regex", 0,
        "post_processor", "decoder", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0,
        "use_regex", 0, "model", "type", "BPE", "dropout", "unk_token", "continuing_subword_prefix",
        "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0, "vocab", vocab, "merges");
}

static ssm_status copy_tokenizer(const char *from, const char *directory, ssm_error *err)
{
    char *inner = ssm__is_directory(from) ? ssm__path_join(from, "tokenizer.json") : strdup(from);
    char *to = ssm__path_join(directory, "tokenizer.json");
    ssm__map map = {0};
    ssm_status status = inner == NULL || to == NULL ? ssm__fail_memory(err, "a path", strlen(from))
                                                    : ssm__map_open(inner, &map, err);
    if (status == SSM_STATUS_OK) {
        status = ssm__write_file(to, map.data, map.size, err);
        ssm__map_close(&map);
    }
    free(inner);
    free(to);
    return status;
}

ssm_status ssm__write_tokenizer(const ssm_recipe *recipe, const ssm_train_info *task,
                                const char *directory, ssm_error *err)
{
    const json_t *named = json_object_get(recipe->task, "tokenizer");
    const char *tokenizer = json_is_string(named) ? json_string_value(named) : "bytes";
    if (strcmp(task->name, "language") != 0 && strcmp(task->name, "classification") != 0) {
        return SSM_STATUS_OK;
    }
    if (strcmp(tokenizer, "bytes") != 0) {
        return copy_tokenizer(tokenizer, directory, err);
    }
    return ssm__json_write(byte_tokenizer(), JSON_COMPACT, directory, "tokenizer.json", err);
}
