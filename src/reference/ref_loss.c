/* reference/ref_loss.c: the losses of whole models and their gradients.
 *
 *   cross-entropy: −log p[label] = log Σ exp o − o[label],  do = softmax(o) − 1[label]
 *   squared error: Σ (o − target)²,                         do = 2 (o − target)
 * Sequences are worked on one after the other: loss and gradients are sums over them. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "reference/backward.h"
#include "reference/ref_alloc.h"

ssm__ref_model ssm__ref_model_of(const ssm_config *config, const ssm__weights *weights,
                                 ssm__ref_layer *layers)
{
    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        layers[layer] = ssm__ref_layer_of(config, &weights->layers[layer]);
    }
    return (ssm__ref_model){.config = config,
                            .embedding = weights->embedding,
                            .norm_f = weights->norm_f,
                            .norm_f_bias = weights->norm_f_bias,
                            .head = weights->lm_head,
                            .layers = layers};
}

/* One sequence of n tokens. */
typedef struct sequence {
    int64_t n;
    const int32_t *ids;
    const double *numbers;
    double *hidden;     /* [n_layers+1][n][D] the stream before each block and behind the last */
    double *normed;     /* [n][D] */
    double *pooled;     /* [D] mean over the tokens */
    double *out, *dout; /* [n][rows of head], or [1][rows] for classes */
    double *d;          /* [n][D] */
    double *dpooled;    /* [D] */
} sequence;

static sequence take_sequence(const ssm__ref_model *m, const ssm__ref_batch *batch, int64_t index,
                              ssm__ref_arrays *arrays)
{
    const int64_t D = m->config->d_model, first = index * batch->tokens;
    const int64_t n = batch->lengths ? batch->lengths[index] : batch->tokens;
    const int64_t rows = m->head.dims[0], features = m->input.dims[1];
    return (sequence){.n = n,
                      .ids = batch->ids ? batch->ids + first : NULL,
                      .numbers = batch->numbers ? batch->numbers + first * features : NULL,
                      .hidden = ssm__ref_array(arrays, (m->config->n_layers + 1) * n, D),
                      .normed = ssm__ref_array(arrays, n, D),
                      .pooled = ssm__ref_array(arrays, 1, D),
                      .out = ssm__ref_array(arrays, n, rows),
                      .dout = ssm__ref_array(arrays, n, rows),
                      .d = ssm__ref_array(arrays, n, D),
                      .dpooled = ssm__ref_array(arrays, 1, D)};
}

static ssm_status check_index(const char *what, int32_t index, int64_t low, int64_t high,
                              int64_t position, ssm_error *err)
{
    if (index < low || index > high) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "%s %" PRId32 " of token %" PRId64
                         " is outside what the model has: %" PRId64 " to %" PRId64 " were expected",
                         what, index, position, low, high);
    }
    return SSM_STATUS_OK;
}

/* stream [n][D] of the sequence before the first block. */
static ssm_status embed(const ssm__ref_model *m, const sequence *s, double *stream, ssm_error *err)
{
    const int64_t D = m->config->d_model;
    if (!s->ids) {
        ssm__ref_linear(&m->input, &m->input_bias, s->numbers, stream, s->n);
        return SSM_STATUS_OK;
    }
    for (int64_t t = 0; t < s->n; t++) {
        SSM__TRY(check_index("id", s->ids[t], 0, m->embedding.dims[0] - 1, t, err));
        for (int64_t k = 0; k < D; k++) {
            stream[t * D + k] = ssm_tensor_get(&m->embedding, s->ids[t] * D + k);
        }
    }
    return SSM_STATUS_OK;
}

static void embed_backward(const ssm__ref_model *m, const sequence *s,
                           const ssm__ref_model_gradients *g)
{
    const int64_t D = m->config->d_model;
    if (!s->ids) {
        ssm__ref_linear_backward(&m->input, s->numbers, s->d, s->n, NULL, g->input, g->input_bias);
        return;
    }
    for (int64_t t = 0; g->embedding && t < s->n; t++) {
        for (int64_t k = 0; k < D; k++) {
            g->embedding[s->ids[t] * D + k] += s->d[t * D + k];
        }
    }
}

static ssm_status forward(const ssm__ref_model *m, bool pool, sequence *s, ssm_error *err)
{
    const int64_t D = m->config->d_model, n_layers = m->config->n_layers;
    SSM__TRY(embed(m, s, s->hidden, err));
    for (int64_t layer = 0; layer < n_layers; layer++) {
        double *stream = s->hidden + layer * s->n * D;
        SSM__TRY(ssm__ref_block_forward(&m->layers[layer], stream, s->n, stream + s->n * D, err));
    }
    ssm__ref_block_norm(m->config, &m->norm_f, &m->norm_f_bias, s->hidden + n_layers * s->n * D,
                        s->normed, s->n);
    if (!pool) {
        ssm__ref_linear(&m->head, &m->head_bias, s->normed, s->out, s->n);
        return SSM_STATUS_OK;
    }
    ssm__ref_sum_tokens(s->normed, s->n, D, s->pooled);
    for (int64_t k = 0; k < D; k++) {
        s->pooled[k] /= (double)s->n;
    }
    ssm__ref_linear(&m->head, &m->head_bias, s->pooled, s->out, 1);
    return SSM_STATUS_OK;
}

/* dout → the gradients. */
static ssm_status backward(const ssm__ref_model *m, bool pool, sequence *s,
                           const ssm__ref_model_gradients *g, ssm_error *err)
{
    const int64_t D = m->config->d_model, n_layers = m->config->n_layers;
    if (pool) {
        ssm__ref_linear_backward(&m->head, s->pooled, s->dout, 1, s->dpooled, g->head,
                                 g->head_bias);
        for (int64_t i = 0; i < s->n * D; i++) {
            s->d[i] = s->dpooled[i % D] / (double)s->n;
        }
    } else {
        ssm__ref_linear_backward(&m->head, s->normed, s->dout, s->n, s->d, g->head, g->head_bias);
    }
    ssm__ref_block_norm_backward(m->config, &m->norm_f, s->hidden + n_layers * s->n * D, s->d, s->n,
                                 s->d, g->norm_f, g->norm_f_bias);
    for (int64_t layer = n_layers - 1; layer >= 0; layer--) {
        SSM__TRY(ssm__ref_block_backward(&m->layers[layer], s->hidden + layer * s->n * D, s->n,
                                         s->d, s->d, &g->layers[layer], err));
    }
    embed_backward(m, s, g);
    return SSM_STATUS_OK;
}

/* Of one row of outputs; dout is that of scale·loss. */
static double cross_entropy(const double *out, int64_t rows, int32_t label, double scale,
                            double *dout)
{
    const double total = ssm__ref_logsumexp(out, rows);
    for (int64_t k = 0; k < rows; k++) {
        dout[k] = scale * (exp(out[k] - total) - (k == label ? 1.0 : 0.0));
    }
    return total - out[label];
}

static ssm_status take_loss(const ssm__ref_model *m, const ssm__ref_batch *batch, int64_t index,
                            double scale, sequence *s, ssm__ref_loss *loss, ssm_error *err)
{
    const int64_t rows = m->head.dims[0], first = index * batch->tokens;
    const int64_t labelled = batch->labels ? s->n : batch->classes ? 1 : 0;
    const int32_t *labels = batch->labels    ? batch->labels + first
                            : batch->classes ? batch->classes + index
                                             : NULL;
    for (int64_t t = 0; t < labelled; t++) {
        SSM__TRY(check_index("label", labels[t], INT32_MIN, rows - 1, t, err));
        if (labels[t] >= 0) {
            loss->sum +=
                cross_entropy(s->out + t * rows, rows, labels[t], scale, s->dout + t * rows);
            loss->count++;
        }
    }
    for (int64_t i = 0; batch->targets && i < s->n * rows; i++) {
        const double error = s->out[i] - batch->targets[first * rows + i];
        s->dout[i] = scale * 2.0 * error;
        loss->sum += error * error;
        loss->count++;
    }
    return SSM_STATUS_OK;
}

static ssm_status run_sequence(const ssm__ref_model *m, const ssm__ref_batch *batch, int64_t index,
                               double scale, sequence *s, const ssm__ref_model_gradients *g,
                               ssm__ref_loss *loss, double *predictions, ssm_error *err)
{
    const bool pool = batch->classes != NULL;
    const int64_t rows = m->head.dims[0];
    SSM__TRY(forward(m, pool, s, err));
    SSM__TRY(take_loss(m, batch, index, scale, s, loss, err));
    if (predictions) {
        const int64_t first = pool ? index : index * batch->tokens;
        memcpy(predictions + first * rows, s->out,
               (size_t)((pool ? 1 : s->n) * rows) * sizeof *predictions);
    }
    return g ? backward(m, pool, s, g, err) : SSM_STATUS_OK;
}

ssm_status ssm__ref_model_loss(const ssm__ref_model *model, const ssm__ref_batch *batch,
                               double scale, const ssm__ref_model_gradients *g, ssm__ref_loss *out,
                               double *predictions, ssm_error *err)
{
    *out = (ssm__ref_loss){0};
    ssm_status status = SSM_STATUS_OK;
    for (int64_t index = 0; status == SSM_STATUS_OK && index < batch->sequences; index++) {
        ssm__ref_arrays arrays = {.err = err};
        sequence s = take_sequence(model, batch, index, &arrays);
        status = arrays.status;
        if (status == SSM_STATUS_OK) {
            status = run_sequence(model, batch, index, scale, &s, g, out, predictions, err);
        }
        ssm__ref_arrays_free(&arrays);
    }
    return status;
}
