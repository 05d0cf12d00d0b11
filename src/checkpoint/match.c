/* Shapes are the truth. The config is read off them; then every claim of config.json and every slot
 * is compared with it. A conflict names both numbers and both sources. */
#include "checkpoint/internal.h"

#include <inttypes.h>
#include <math.h>

#include "base/error.h"
#include "safetensors/dtype.h"

/* ---- types ----------------------------------------------------------------------------------- */

/* F64 is refused too: the kernels compute in float32 from F32, F16 and BF16, and rounding a weight
 * in silence would make it another model. */
static ssm_status check_dtype(const ssm_tensor *tensor, ssm_error *err)
{
    if (tensor->dtype == SSM_DTYPE_F32 || tensor->dtype == SSM_DTYPE_F16 ||
        tensor->dtype == SSM_DTYPE_BF16) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(tensor->file, tensor->name),
                     "the weight is stored as %s; expected F32, F16 or BF16%s",
                     ssm_dtype_name(tensor->dtype),
                     tensor->dtype == SSM_DTYPE_F64 ? ": convert the checkpoint to F32" : "");
}

/* ---- config from shapes ---------------------------------------------------------------------- */

static ssm_status need_dims(const ssm_tensor *tensor, int id, int n_dims, ssm_error *err)
{
    bool empty = false;
    for (int i = 0; i < tensor->n_dims; i++) {
        empty = empty || tensor->dims[i] == 0;
    }
    if (tensor->n_dims == n_dims && !empty) {
        return SSM_STATUS_OK;
    }
    char shape[256];
    char letters[64];
    ssm__shape_text(tensor->dims, tensor->n_dims, shape, sizeof shape);
    ssm__slot_letters(id, letters, sizeof letters);
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(tensor->file, tensor->name),
                     "the tensor has shape %s; expected %s%s", shape, letters,
                     empty ? " without an empty dimension" : "");
}

static ssm_status read_shapes(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__layer_weights *layer = &checkpoint->weights.layers[0];
    const ssm_tensor *embedding = &checkpoint->weights.embedding;
    SSM__TRY(need_dims(embedding, SSM__SLOT_embedding, 2, err));
    SSM__TRY(need_dims(&layer->A_log, SSM__SLOT_A_log, 2, err));
    SSM__TRY(need_dims(&layer->dt_proj, SSM__SLOT_dt_proj, 2, err));
    SSM__TRY(need_dims(&layer->conv1d, SSM__SLOT_conv1d, 3, err));
    ssm_config *config = &checkpoint->config;
    config->family = SSM_FAMILY_MAMBA;
    config->vocab_size = embedding->dims[0];
    config->d_model = embedding->dims[1];
    config->d_inner = layer->A_log.dims[0];
    config->d_state = layer->A_log.dims[1];
    config->dt_rank = layer->dt_proj.dims[1];
    config->d_conv = layer->conv1d.dims[2];
    return SSM_STATUS_OK;
}

/* ---- sizes against claims -------------------------------------------------------------------- */

static ssm_status compare(const ssm_checkpoint *checkpoint, const ssm__claim *claim, int64_t found,
                          const ssm_tensor *tensor, ssm_error *err)
{
    if (claim->key == NULL || claim->value == found) {
        return SSM_STATUS_OK;
    }
    char shape[256];
    ssm__shape_text(tensor->dims, tensor->n_dims, shape, sizeof shape);
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, claim->key),
                     "config.json says %s = %" PRId64 ", but %s has shape %s, which means %" PRId64,
                     claim->key, claim->value, tensor->name, shape, found);
}

static ssm_status compare_layers(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claim *claim = &checkpoint->claims.n_layers;
    if (claim->key == NULL || claim->value == checkpoint->config.n_layers) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, claim->key),
                     "config.json says %s = %" PRId64 ", but the tensors are those of %" PRId64
                     " layers",
                     claim->key, claim->value, checkpoint->config.n_layers);
}

/* intermediate_size wins over expand: a disagreeing expand is then only noted. */
static ssm_status compare_expand(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claims *claims = &checkpoint->claims;
    const ssm_config *config = &checkpoint->config;
    double claimed = floor(claims->expand.value * (double)config->d_model);
    if (claims->expand.key == NULL || claimed == (double)config->d_inner) {
        return SSM_STATUS_OK;
    }
    if (claims->intermediate_size.key != NULL) {
        return ssm__note(&checkpoint->notes, err,
                         "config.json says expand = %.17g, which would make d_inner %.17g; %s = "
                         "%" PRId64 " agrees with the tensors and wins.",
                         claims->expand.value, claimed, claims->intermediate_size.key,
                         claims->intermediate_size.value);
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, claims->expand.key),
                     "config.json says expand = %.17g, which makes d_inner %.17g with d_model "
                     "%" PRId64 ", but %s has %" PRId64 " rows",
                     claims->expand.value, claimed, config->d_model,
                     checkpoint->weights.layers[0].A_log.name, config->d_inner);
}

static ssm_status compare_dt_rank(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm_config *config = &checkpoint->config;
    const ssm_tensor *tensor = &checkpoint->weights.layers[0].dt_proj;
    if (!checkpoint->claims.dt_rank_auto) {
        return compare(checkpoint, &checkpoint->claims.dt_rank, config->dt_rank, tensor, err);
    }
    int64_t claimed = (config->d_model + 15) / 16;
    if (claimed == config->dt_rank) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(
        err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, checkpoint->claims.dt_rank.key),
        "config.json says %s = \"auto\", which is %" PRId64 " for d_model %" PRId64
        ", but %s means %" PRId64,
        checkpoint->claims.dt_rank.key, claimed, config->d_model, tensor->name, config->dt_rank);
}

static ssm_status compare_vocabulary(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claim *claim = &checkpoint->claims.vocab_size;
    int64_t rows = checkpoint->config.vocab_size;
    if (claim->key == NULL || claim->value == rows) {
        return SSM_STATUS_OK;
    }
    if (claim->value < rows) {
        return ssm__note(&checkpoint->notes, err,
                         "config.json says vocab_size = %" PRId64 ", the embedding has %" PRId64
                         " rows: %" PRId64 " rows of padding stay in the soft-max.",
                         claim->value, rows, rows - claim->value);
    }
    return compare(checkpoint, claim, rows, &checkpoint->weights.embedding, err);
}

static ssm_status compare_sizes(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claims *claims = &checkpoint->claims;
    const ssm_config *config = &checkpoint->config;
    const ssm__layer_weights *layer = &checkpoint->weights.layers[0];
    SSM__TRY(compare(checkpoint, &claims->hidden_size, config->d_model,
                     &checkpoint->weights.embedding, err));
    SSM__TRY(compare(checkpoint, &claims->intermediate_size, config->d_inner, &layer->A_log, err));
    SSM__TRY(compare(checkpoint, &claims->state_size, config->d_state, &layer->A_log, err));
    SSM__TRY(compare(checkpoint, &claims->conv_kernel, config->d_conv, &layer->conv1d, err));
    SSM__TRY(compare_layers(checkpoint, err));
    SSM__TRY(compare_expand(checkpoint, err));
    SSM__TRY(compare_dt_rank(checkpoint, err));
    return compare_vocabulary(checkpoint, err);
}

/* ---- every slot against the sizes ------------------------------------------------------------ */

static ssm_status check_slot(const ssm_config *config, int id, const ssm_tensor *tensor,
                             ssm_error *err)
{
    SSM__TRY(check_dtype(tensor, err));
    int64_t dims[SSM__SLOT_DIMS];
    int n_dims = ssm__slot_shape(config, id, dims);
    bool equal = tensor->n_dims == n_dims;
    for (int i = 0; equal && i < n_dims; i++) {
        equal = tensor->dims[i] == dims[i];
    }
    if (equal) {
        return SSM_STATUS_OK;
    }
    char found[256];
    char expected[256];
    char letters[64];
    ssm__shape_text(tensor->dims, tensor->n_dims, found, sizeof found);
    ssm__shape_text(dims, n_dims, expected, sizeof expected);
    ssm__slot_letters(id, letters, sizeof letters);
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(tensor->file, tensor->name),
                     "the tensor has shape %s; expected %s = %s, with d_model from the embedding "
                     "and d_inner, d_state, dt_rank, d_conv from layer 0's A_log, dt_proj, conv1d",
                     found, letters, expected);
}

static ssm_status check_slots(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    int64_t layers = checkpoint->config.n_layers;
    for (int64_t i = 0; i < ssm__slot_count(layers); i++) {
        ssm__slot_place place = ssm__slot_at(layers, i);
        const ssm_tensor *tensor = ssm__slot_tensor_const(&checkpoint->weights, place);
        if (tensor->name != NULL) {
            SSM__TRY(check_slot(&checkpoint->config, place.id, tensor, err));
        }
    }
    return SSM_STATUS_OK;
}

/* ---- biases: presence decides, a contradicting flag is a conflict ---------------------------- */

static ssm_status check_bias(const ssm_checkpoint *checkpoint, int id, const ssm__claim_flag *flag,
                             ssm_error *err)
{
    const ssm__weights *weights = &checkpoint->weights;
    bool first = ssm__slot_tensor_const(weights, (ssm__slot_place){id, 0})->name != NULL;
    for (int64_t layer = 0; layer < checkpoint->config.n_layers; layer++) {
        char name[SSM__SLOT_NAME_MAX];
        ssm__slot_place place = {id, layer};
        ssm__slot_name(place, name);
        bool present = ssm__slot_tensor_const(weights, place)->name != NULL;
        if (flag->key != NULL && present != flag->value) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, flag->key),
                             "config.json says %s = %s, but %s is %s", flag->key,
                             flag->value ? "true" : "false", name, present ? "there" : "missing");
        }
        if (present != first) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->path, name),
                             "the bias is %s although that of layer 0 is %s; all layers or none "
                             "must have it",
                             present ? "there" : "missing", first ? "there" : "missing");
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status check_biases(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claims *claims = &checkpoint->claims;
    SSM__TRY(check_bias(checkpoint, SSM__SLOT_in_proj_bias, &claims->use_bias, err));
    SSM__TRY(check_bias(checkpoint, SSM__SLOT_out_proj_bias, &claims->use_bias, err));
    return check_bias(checkpoint, SSM__SLOT_conv1d_bias, &claims->use_conv_bias, err);
}

/* ---- what only config.json can say ----------------------------------------------------------- */

static ssm_status check_id(const ssm_checkpoint *checkpoint, const ssm__claim *claim,
                           ssm_error *err)
{
    int64_t rows = checkpoint->config.vocab_size;
    if (claim->key == NULL || claim->value < rows) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, claim->key),
                     "config.json says %s = %" PRId64 ", but the embedding has %" PRId64 " rows",
                     claim->key, claim->value, rows);
}

static ssm_status take_rest(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claims *claims = &checkpoint->claims;
    ssm_config *config = &checkpoint->config;
    SSM__TRY(check_id(checkpoint, &claims->bos_id, err));
    SSM__TRY(check_id(checkpoint, &claims->eos_id, err));
    SSM__TRY(check_id(checkpoint, &claims->pad_id, err));
    config->bos_id = claims->bos_id.value;
    config->eos_id = claims->eos_id.value;
    config->pad_id = claims->pad_id.value;
    config->norm_eps = claims->norm_eps.value;
    if (claims->norm_eps.key == NULL) {
        config->norm_eps = 1e-5;
        return ssm__note(&checkpoint->notes, err,
                         "config.json does not say layer_norm_epsilon; 1e-5, the family's "
                         "published default, is used.");
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__match_claims(ssm_checkpoint *checkpoint, ssm_error *err)
{
    SSM__TRY(read_shapes(checkpoint, err));
    SSM__TRY(compare_sizes(checkpoint, err));
    SSM__TRY(check_biases(checkpoint, err));
    SSM__TRY(check_slots(checkpoint, err));
    return take_rest(checkpoint, err);
}
