/* Any bytes as config.json and as an index, beside the tensors of fixed toy models. The first byte
 * chooses, modulo 4: 0 a configuration of a Mamba toy, 2 of a Mamba-2 toy with a layer of
 * attention, 1 an index of safetensors, 3 of torch files. An accepted configuration must be that of
 * the toy's shapes, whatever it says. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/internal.h"
#include "safetensors/read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

/* ---- the toys: zeros, no head ---------------------------------------------------------------- */

static const ssm_config mamba_toy = {.vocab_size = 7,
                                     .d_model = 4,
                                     .n_layers = 2,
                                     .d_inner = 8,
                                     .d_state = 3,
                                     .d_conv = 2,
                                     .dt_rank = 1};

static const ssm_config mamba2_toy = {.family = SSM_FAMILY_MAMBA2,
                                      .vocab_size = 8,
                                      .d_model = 4,
                                      .n_layers = 3,
                                      .d_inner = 8,
                                      .d_state = 3,
                                      .d_conv = 2,
                                      .n_heads = 4,
                                      .head_dim = 2,
                                      .n_groups = 2,
                                      .d_ssm = 8,
                                      .n_query_heads = 2,
                                      .n_kv_heads = 1,
                                      .attention_head_dim = 2};

/* The second layer of the Mamba-2 toy is attention. */
static ssm_layer_kind kind_at(const ssm_config *toy, int64_t layer)
{
    return toy->family == SSM_FAMILY_MAMBA ? SSM_LAYER_MAMBA
           : layer == 1                    ? SSM_LAYER_ATTENTION
                                           : SSM_LAYER_MAMBA2;
}

static size_t add_entry(const ssm_config *toy, char *header, size_t used, size_t room,
                        ssm__slot_place place, size_t *end)
{
    char name[SSM__SLOT_NAME_MAX];
    int64_t dims[SSM__SLOT_DIMS];
    ssm__slot_name(place, name);
    int n_dims = ssm__slot_shape(toy, kind_at(toy, place.layer), place.id, dims);
    size_t begin = *end;
    size_t bytes = sizeof(float);
    char shape[64] = "";
    for (int i = 0; i < n_dims; i++) {
        bytes *= (size_t)dims[i];
        size_t length = strlen(shape);
        snprintf(shape + length, sizeof shape - length, "%s%d", i > 0 ? "," : "", (int)dims[i]);
    }
    *end += bytes;
    return used + (size_t)snprintf(header + used, room - used,
                                   "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],"
                                   "\"data_offsets\":[%zu,%zu]}",
                                   used == 0 ? '{' : ',', name, shape, begin, *end);
}

static size_t build_toy(const ssm_config *toy, unsigned char *block, size_t room)
{
    size_t used = 0;
    size_t end = 0;
    for (int64_t i = 0; i < ssm__slot_count(toy->n_layers); i++) {
        ssm__slot_place place = ssm__slot_at(toy->n_layers, i);
        const ssm__need need = ssm__slot_need(kind_at(toy, place.layer), place.id);
        if (need == SSM__REQUIRED || (need == SSM__OPTIONAL && place.id == SSM__SLOT_gate_norm)) {
            used = add_entry(toy, (char *)block + 8, used, room - 8, place, &end);
        }
    }
    block[8 + used++] = '}';
    for (int i = 0; i < 8; i++) {
        block[i] = (unsigned char)((uint64_t)used >> (8 * i) & 0xff);
    }
    require(8 + used + end <= room);
    return 8 + used + end;
}

static ssm_checkpoint *open_toy(const unsigned char *block, size_t size)
{
    ssm_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    require(checkpoint != NULL);
    checkpoint->path = strdup("toy");
    checkpoint->config_path = strdup("toy/config.json");
    checkpoint->files = calloc(1, sizeof *checkpoint->files);
    require(checkpoint->path && checkpoint->config_path && checkpoint->files);
    require(ssm__safetensors_parse("toy/model.safetensors", block, size, false,
                                   &checkpoint->files[0].safetensors, NULL) == SSM_STATUS_OK);
    checkpoint->n_files = 1;
    require(ssm__checkpoint_list(checkpoint, NULL) == SSM_STATUS_OK);
    return checkpoint;
}

/* ---- targets --------------------------------------------------------------------------------- */

static void require_toy(const ssm_checkpoint *checkpoint, const ssm_config *toy)
{
    const ssm_config *config = &checkpoint->config;
    require(config->d_model == toy->d_model && config->d_inner == toy->d_inner &&
            config->n_layers == toy->n_layers);
    require(config->norm_eps > 0 && config->eos_id < toy->vocab_size && config->tied);
    require(ssm_checkpoint_note_count(checkpoint) > 0);
    if (toy->family == SSM_FAMILY_MAMBA2) {
        require(config->family == SSM_FAMILY_MAMBA2 && config->gated_norm);
        require(config->n_groups * config->d_state == 6 && config->n_heads % config->n_groups == 0);
        require(config->norm_groups == config->n_groups && config->mixer_norm_eps > 0);
        require(config->dt_limit_low >= 0 && config->dt_limit_low < config->dt_limit_high);
        require((config->n_query_heads + 2 * config->n_kv_heads) * config->attention_head_dim == 8);
        require(config->rotary_dim <= config->attention_head_dim && config->softmax_scale > 0);
    }
}

static void fuzz_claims(const ssm_config *toy, const char *text, size_t size)
{
    static unsigned char blocks[2][1 << 14]; /* built once, then only read */
    static size_t block_sizes[2];
    const int which = toy->family == SSM_FAMILY_MAMBA2;
    if (block_sizes[which] == 0) {
        block_sizes[which] = build_toy(toy, blocks[which], sizeof blocks[which]);
    }
    ssm_checkpoint *checkpoint = open_toy(blocks[which], block_sizes[which]);
    ssm_error err;
    ssm_error_clear(&err);
    ssm_status status = ssm__claims_parse("toy/config.json", text, size, &checkpoint->claims,
                                          &checkpoint->notes, &err);
    if (status == SSM_STATUS_OK) {
        const ssm_checkpoint_options options = {0};
        status = ssm__checkpoint_resolve(checkpoint, &options, &err);
    }
    if (status == SSM_STATUS_OK) {
        require_toy(checkpoint, toy);
    } else {
        require(err.status == status && err.message[0] != '\0');
    }
    ssm_checkpoint_close(checkpoint);
}

static void fuzz_index(const char *path, const char *text, size_t size)
{
    ssm__index *index = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    ssm_status status = ssm__index_parse(path, text, size, &index, &err);
    if (status != SSM_STATUS_OK) {
        require(index == NULL && err.message[0] != '\0');
        return;
    }
    int64_t tensors = 0;
    for (int64_t i = 0; i < index->n_shards; i++) {
        require(strchr(index->shards[i].name, '/') == NULL);
        tensors += index->shards[i].n_tensors;
    }
    require(tensors == (int64_t)json_object_size(index->weight_map));
    ssm__index_free(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    const char *text = (const char *)data + 1;
    switch (data[0] % 4) {
    case 0:
        fuzz_claims(&mamba_toy, text, size - 1);
        break;
    case 1:
        fuzz_index("toy/model.safetensors.index.json", text, size - 1);
        break;
    case 2:
        fuzz_claims(&mamba2_toy, text, size - 1);
        break;
    default:
        fuzz_index("toy/pytorch_model.bin.index.json", text, size - 1);
        break;
    }
    return 0;
}
