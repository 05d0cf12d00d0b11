/* Reading all used weights once: are they finite, and what is their digest? */
#include "checkpoint/internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/tensor.h"
#include "safetensors/dtype.h"

/* The tensor of slot i, NULL where there is none or where it is the embedding once more. */
static const ssm_tensor *stored_slot(const ssm_checkpoint *checkpoint, int64_t i,
                                     ssm__slot_place *place)
{
    *place = ssm__slot_at(checkpoint->config.n_layers, i);
    const ssm_tensor *tensor = ssm__slot_tensor_const(&checkpoint->weights, *place);
    bool shared = place->id == SSM__SLOT_lm_head && checkpoint->config.tied;
    return tensor->name == NULL || shared ? NULL : tensor;
}

ssm_status ssm_checkpoint_check_finite(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    for (int64_t i = 0; i < ssm__slot_count(checkpoint->config.n_layers); i++) {
        ssm__slot_place place;
        const ssm_tensor *tensor = stored_slot(checkpoint, i, &place);
        int64_t at = tensor == NULL ? -1 : ssm__tensor_first_nonfinite(tensor);
        if (at >= 0) {
            int64_t offset = tensor->file_offset + at * (int64_t)ssm_dtype_size(tensor->dtype);
            return ssm__fail(err, SSM_STATUS_FILE,
                             ((ssm__place){tensor->file, tensor->name, offset}),
                             "element %" PRId64 " of the weight is %g; expected a finite number",
                             at, ssm_tensor_get(tensor, at));
        }
    }
    return SSM_STATUS_OK;
}

static void digest_number(ssm__digest *digest, int64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)((uint64_t)value >> (8 * i) & 0xff);
    }
    ssm__digest_add(digest, bytes, sizeof bytes);
}

static void digest_real(ssm__digest *digest, double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    digest_number(digest, bits);
}

/* What came with the other families and with layers of other kinds; nothing of it for a plain Mamba
 * model, whose digest stays as it was. */
static void digest_more(ssm__digest *digest, const ssm_checkpoint *checkpoint)
{
    const ssm_config *c = &checkpoint->config;
    const int64_t numbers[] = {
        c->d_ssm,          c->norm_groups,   c->gated_norm,         c->norm_before_gate,
        c->D_per_channel,  c->n_query_heads, c->n_kv_heads,         c->attention_head_dim,
        c->attention_conv, c->rotary_dim,    c->rotary_interleaved, c->d_mlp,
        c->layer_norm};
    const double reals[] = {c->dt_limit_low, c->dt_limit_high, c->rotary_base, c->softmax_scale,
                            c->mixer_norm_eps};
    bool plain = c->family == SSM_FAMILY_MAMBA && c->d_mlp == 0 && !c->layer_norm &&
                 ssm__first_layer(checkpoint, SSM_LAYER_ATTENTION) < 0;
    if (plain) {
        return;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        digest_number(digest, numbers[i]);
    }
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        digest_real(digest, reals[i]);
    }
    for (int64_t layer = 0; layer < c->n_layers; layer++) {
        digest_number(digest, checkpoint->weights.layers[layer].kind);
    }
}

static void digest_config(ssm__digest *digest, const ssm_checkpoint *checkpoint)
{
    const ssm_config *config = &checkpoint->config;
    const int64_t numbers[] = {
        config->vocab_size, config->d_model, config->n_layers, config->d_inner,  config->d_state,
        config->d_conv,     config->dt_rank, config->n_heads,  config->head_dim, config->n_groups,
        config->tied,       config->bos_id,  config->eos_id,   config->pad_id};
    ssm__digest_add_string(digest, ssm_family_name(config->family));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        digest_number(digest, numbers[i]);
    }
    digest_real(digest, config->norm_eps);
    digest_more(digest, checkpoint);
}

ssm_status ssm_checkpoint_digest(const ssm_checkpoint *checkpoint, char out[64], ssm_error *err)
{
    ssm__digest *digest;
    SSM__TRY(ssm__digest_create(&digest, err));
    digest_config(digest, checkpoint);
    for (int64_t i = 0; i < ssm__slot_count(checkpoint->config.n_layers); i++) {
        ssm__slot_place place;
        const ssm_tensor *tensor = stored_slot(checkpoint, i, &place);
        if (tensor == NULL) {
            continue;
        }
        char name[SSM__SLOT_NAME_MAX];
        ssm__slot_name(place, name);
        ssm__digest_add_string(digest, name);
        ssm__digest_add_string(digest, ssm_dtype_name(tensor->dtype));
        digest_number(digest, tensor->n_dims);
        for (int d = 0; d < tensor->n_dims; d++) {
            digest_number(digest, tensor->dims[d]);
        }
        ssm__digest_add(digest, tensor->data, tensor->bytes);
    }
    ssm__digest_finish(digest, out);
    return SSM_STATUS_OK;
}

ssm_status ssm_file_digest(const char *path, char out[64], ssm_error *err)
{
    ssm__map map;
    SSM__TRY(ssm__map_open(path, &map, err));
    ssm__digest_bytes(map.data == NULL ? (const void *)"" : map.data, map.size, out);
    ssm__map_close(&map);
    return SSM_STATUS_OK;
}
