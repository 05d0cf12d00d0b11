/* Any bytes as config.json and as an index, beside the tensors of a fixed toy model. The first byte
 * chooses: even, a configuration; odd, an index. An accepted configuration must be that of the
 * toy's shapes, whatever it says. */
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

/* ---- the toy: V 7, D 4, E 8, N 3, K 2, R 1, 2 layers, zeros, no head ------------------------- */

static const ssm_config toy = {.vocab_size = 7,
                               .d_model = 4,
                               .n_layers = 2,
                               .d_inner = 8,
                               .d_state = 3,
                               .d_conv = 2,
                               .dt_rank = 1};

static size_t add_entry(char *header, size_t used, size_t room, ssm__slot_place place, size_t *end)
{
    char name[SSM__SLOT_NAME_MAX];
    int64_t dims[SSM__SLOT_DIMS];
    ssm__slot_name(place, name);
    int n_dims = ssm__slot_shape(&toy, SSM_LAYER_MAMBA, place.id, dims);
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

static size_t build_toy(unsigned char *block, size_t room)
{
    size_t used = 0;
    size_t end = 0;
    for (int64_t i = 0; i < ssm__slot_count(toy.n_layers); i++) {
        ssm__slot_place place = ssm__slot_at(toy.n_layers, i);
        if (ssm__slot_need(SSM_LAYER_MAMBA, place.id) == SSM__REQUIRED) {
            used = add_entry((char *)block + 8, used, room - 8, place, &end);
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

static void fuzz_claims(const char *text, size_t size)
{
    static unsigned char block[1 << 14]; /* built once, then only read */
    static size_t block_size;
    if (block_size == 0) {
        block_size = build_toy(block, sizeof block);
    }
    ssm_checkpoint *checkpoint = open_toy(block, block_size);
    ssm_error err;
    ssm_error_clear(&err);
    ssm_status status = ssm__claims_parse("toy/config.json", text, size, &checkpoint->claims,
                                          &checkpoint->notes, &err);
    if (status == SSM_STATUS_OK) {
        const ssm_checkpoint_options options = {0};
        status = ssm__checkpoint_resolve(checkpoint, &options, &err);
    }
    const ssm_config *config = &checkpoint->config;
    if (status == SSM_STATUS_OK) {
        require(config->d_model == 4 && config->d_inner == 8 && config->n_layers == 2);
        require(config->norm_eps > 0 && config->eos_id < 7 && config->tied);
        require(ssm_checkpoint_note_count(checkpoint) > 0);
    } else {
        require(err.status == status && err.message[0] != '\0');
    }
    ssm_checkpoint_close(checkpoint);
}

static void fuzz_index(const char *text, size_t size)
{
    ssm__index *index = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    ssm_status status = ssm__index_parse("toy/index.json", text, size, &index, &err);
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
    if (data[0] % 2 == 0) {
        fuzz_claims((const char *)data + 1, size - 1);
    } else {
        fuzz_index((const char *)data + 1, size - 1);
    }
    return 0;
}
