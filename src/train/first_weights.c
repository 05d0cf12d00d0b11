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

static const ssm_tensor *source_of(const ssm_checkpoint *checkpoint, const ssm__parameter *p)
{
    const ssm_config *c = ssm_checkpoint_config(checkpoint);
    const ssm__slot_place place = {p->slot, p->layer};
    if (p->slot < 0 || p->layer >= c->n_layers) {
        return NULL;
    }
    if (p->layer >= 0 && ssm_checkpoint_layer_kind(checkpoint, p->layer) != p->kind &&
        !(p->kind == SSM_LAYER_MAMBA && ssm__slot_need(SSM_LAYER_MAMBA2, p->slot) != SSM__ABSENT &&
          p->n_dims == 1)) {
        return NULL;
    }
    const ssm_tensor *tensor = ssm__slot_tensor_const(ssm__checkpoint_weights(checkpoint), place);
    return tensor->data == NULL || ssm_tensor_count(tensor) != p->count ? NULL : tensor;
}

static ssm_status copy_from(ssm__network *network, const ssm_checkpoint *checkpoint, ssm_error *err)
{
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
    return SSM_STATUS_OK;
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
