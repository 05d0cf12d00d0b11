/* reference/ref_model.c: embedding, blocks, final norm and head in float64. */
#include "reference/reference.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "reference/ref_alloc.h"

static ssm_status check_ids(const ssm_config *config, const int32_t *ids, int64_t count,
                            ssm_error *err)
{
    for (int64_t t = 0; t < count; t++) {
        if (ids[t] < 0 || ids[t] >= config->vocab_size) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "id %" PRId32 " at position %" PRId64
                             " is outside the vocabulary: 0 to %" PRId64 " were expected",
                             ids[t], t, config->vocab_size - 1);
        }
    }
    return SSM_STATUS_OK;
}

/* stream[t] = row ids[t] of the embedding. */
static void embed(const ssm_tensor *embedding, const int32_t *ids, int64_t count, int64_t d_model,
                  double *stream)
{
    for (int64_t t = 0; t < count; t++) {
        for (int64_t k = 0; k < d_model; k++) {
            stream[t * d_model + k] = ssm_tensor_get(embedding, ids[t] * d_model + k);
        }
    }
}

static ssm_status run_mixer(const ssm_config *config, const ssm__layer_weights *w,
                            const uint8_t *keep, const double *x, int64_t count, double *out,
                            ssm_error *err)
{
    switch (w->kind) {
    case SSM_LAYER_MAMBA2:
        return ssm__ref_mamba2_mixer(config, w, keep, x, count, out, NULL, NULL, err);
    case SSM_LAYER_ATTENTION:
        return ssm__ref_attention(config, w, x, count, out, err);
    case SSM_LAYER_MAMBA:
    case SSM_LAYER_KINDS:
        break;
    }
    return ssm__ref_mamba_mixer(config, w, keep, x, count, out, NULL, NULL, err);
}

static void add(const double *x, int64_t count, double *stream)
{
    for (int64_t i = 0; i < count; i++) {
        stream[i] += x[i];
    }
}

/* stream += mixer(norm(stream)), then stream += mlp(norm2(stream)); normed and out are scratch
 * [L][D]. */
static ssm_status run_block(const ssm_config *config, const ssm__layer_weights *w,
                            const uint8_t *keep, int64_t count, double *stream, double *normed,
                            double *out, ssm_error *err)
{
    const int64_t D = config->d_model;
    ssm__ref_block_norm(config, &w->norm, &w->norm_bias, stream, normed, count);
    SSM__TRY(run_mixer(config, w, keep, normed, count, out, err));
    add(out, count * D, stream);
    if (config->d_mlp > 0) {
        ssm__ref_block_norm(config, &w->norm2, &w->norm2_bias, stream, normed, count);
        SSM__TRY(ssm__ref_mlp(config, w, normed, count, out, err));
        add(out, count * D, stream);
    }
    return SSM_STATUS_OK;
}

static ssm_status run_model(const ssm_config *config, const ssm__weights *weights,
                            const uint8_t *keep, const int32_t *ids, int64_t count, double *stream,
                            double *normed, double *out, double *logits, double *hidden,
                            ssm_error *err)
{
    const bool mamba2 = config->family == SSM_FAMILY_MAMBA2;
    const int64_t D = config->d_model;
    const int64_t modes = (mamba2 ? config->d_ssm : config->d_inner) * config->d_state;
    const size_t stream_bytes = (size_t)(count * D) * sizeof *stream;
    embed(&weights->embedding, ids, count, D, stream);
    for (int64_t layer = 0; layer <= config->n_layers; layer++) {
        if (hidden) {
            memcpy(hidden + layer * count * D, stream, stream_bytes);
        }
        if (layer < config->n_layers) {
            SSM__TRY(run_block(config, &weights->layers[layer], keep ? keep + layer * modes : NULL,
                               count, stream, normed, out, err));
        }
    }
    if (logits) {
        ssm__ref_block_norm(config, &weights->norm_f, &weights->norm_f_bias, stream, normed, count);
        ssm__ref_linear(&weights->lm_head, NULL, normed, logits, count);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__ref_forward(const ssm_config *config, const ssm__weights *weights,
                            const uint8_t *keep, const int32_t *ids, int64_t count, double *logits,
                            double *hidden, ssm_error *err)
{
    double *stream = NULL, *normed = NULL, *out = NULL;
    SSM__TRY(check_ids(config, ids, count, err));
    ssm_status status = ssm__ref_alloc(count, config->d_model, &stream, err);
    if (status == SSM_STATUS_OK) {
        status = ssm__ref_alloc(count, config->d_model, &normed, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm__ref_alloc(count, config->d_model, &out, err);
    }
    if (status == SSM_STATUS_OK) {
        status =
            run_model(config, weights, keep, ids, count, stream, normed, out, logits, hidden, err);
    }
    free(stream);
    free(normed);
    free(out);
    return status;
}
