/* reference/ref_layer.c: one block of a model, forward and backward, whatever its mixer. */
#include "base/error.h"
#include "reference/backward.h"
#include "reference/ref_alloc.h"
#include "reference/ref_mamba.h"
#include "reference/ref_mamba2.h"

ssm__ref_layer ssm__ref_layer_of(const ssm_config *config, const ssm__layer_weights *w)
{
    const ssm__ref_mixer mixers[SSM_LAYER_KINDS] = {
        [SSM_LAYER_MAMBA] = SSM__REF_MAMBA,
        [SSM_LAYER_MAMBA2] = SSM__REF_MAMBA2,
        [SSM_LAYER_ATTENTION] = SSM__REF_ATTENTION,
    };
    return (ssm__ref_layer){.mixer = mixers[w->kind], .config = config, .w = *w};
}

static ssm_status mamba_forward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                double *out, ssm_error *err)
{
    ssm__ref_mamba_pass pass = {0};
    const ssm_status status = ssm__ref_mamba_run(layer, NULL, x, tokens, &pass, out, NULL, err);
    ssm__ref_mamba_release(&pass);
    return status;
}

static ssm_status mamba2_forward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                 double *out, ssm_error *err)
{
    ssm__ref_mamba2_pass pass = {0};
    const ssm_status status = ssm__ref_mamba2_run(layer, NULL, x, tokens, &pass, out, NULL, err);
    ssm__ref_mamba2_release(&pass);
    return status;
}

ssm_status ssm__ref_mixer_forward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                  double *out, ssm_error *err)
{
    switch (layer->mixer) {
    case SSM__REF_MAMBA2:
    case SSM__REF_LINEAR_ATTENTION:
    case SSM__REF_GLA:
        return mamba2_forward(layer, x, tokens, out, err);
    case SSM__REF_ATTENTION:
        return ssm__ref_attention(layer->config, &layer->w, x, tokens, out, err);
    case SSM__REF_H3:
        return ssm__ref_h3(layer, x, tokens, out, err);
    case SSM__REF_MAMBA:
        break;
    }
    return mamba_forward(layer, x, tokens, out, err);
}

ssm_status ssm__ref_mixer_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                   const double *dout, double *dx, const ssm__ref_gradients *g,
                                   ssm_error *err)
{
    switch (layer->mixer) {
    case SSM__REF_MAMBA2:
    case SSM__REF_LINEAR_ATTENTION:
    case SSM__REF_GLA:
        return ssm__ref_mamba2_backward(layer, x, tokens, dout, dx, g, err);
    case SSM__REF_ATTENTION:
        return ssm__ref_attention_backward(layer, x, tokens, dout, dx, g, err);
    case SSM__REF_H3:
        return ssm__ref_h3_backward(layer, x, tokens, dout, dx, g, err);
    case SSM__REF_MAMBA:
        break;
    }
    return ssm__ref_mamba_backward(layer, x, tokens, dout, dx, g, err);
}

static void add(const double *x, int64_t count, double *to)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] += x[i];
    }
}

/* What a block has between its input and its output; all [L][D]. */
typedef struct block {
    double *normed, *middle, *normed2, *out; /* middle: the stream between mixer and MLP */
    double *d, *dout;
} block;

static block take_block(const ssm__ref_layer *layer, int64_t tokens, ssm__ref_arrays *arrays)
{
    const int64_t D = layer->config->d_model;
    return (block){.normed = ssm__ref_array(arrays, tokens, D),
                   .middle = ssm__ref_array(arrays, tokens, D),
                   .normed2 = ssm__ref_array(arrays, tokens, D),
                   .out = ssm__ref_array(arrays, tokens, D),
                   .d = ssm__ref_array(arrays, tokens, D),
                   .dout = ssm__ref_array(arrays, tokens, D)};
}

/* x → normed, middle, normed2. */
static ssm_status run_to_mlp(const ssm__ref_layer *layer, const double *x, int64_t tokens, block *b,
                             ssm_error *err)
{
    const ssm_config *c = layer->config;
    const ssm__layer_weights *w = &layer->w;
    ssm__ref_block_norm(c, &w->norm, &w->norm_bias, x, b->normed, tokens);
    SSM__TRY(ssm__ref_mixer_forward(layer, b->normed, tokens, b->middle, err));
    add(x, tokens * c->d_model, b->middle);
    ssm__ref_block_norm(c, &w->norm2, &w->norm2_bias, b->middle, b->normed2, tokens);
    return SSM_STATUS_OK;
}

static ssm_status run_block(const ssm__ref_layer *layer, const double *x, int64_t tokens, block *b,
                            double *y, ssm_error *err)
{
    const int64_t count = tokens * layer->config->d_model;
    SSM__TRY(run_to_mlp(layer, x, tokens, b, err));
    if (layer->w.fc1.data) {
        SSM__TRY(ssm__ref_mlp(layer->config, &layer->w, b->normed2, tokens, b->out, err));
    }
    ssm__ref_columns(b->middle, tokens, layer->config->d_model, 0, layer->config->d_model, y);
    add(b->out, count, y);
    return SSM_STATUS_OK;
}

ssm_status ssm__ref_block_forward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                  double *y, ssm_error *err)
{
    ssm__ref_arrays arrays = {.err = err};
    block b = take_block(layer, tokens, &arrays);
    ssm_status status = arrays.status;
    if (status == SSM_STATUS_OK) {
        status = run_block(layer, x, tokens, &b, y, err);
    }
    ssm__ref_arrays_free(&arrays);
    return status;
}

/* dx of y = x + f(norm(x)) is dy + what comes back through f and the norm. b->d: dy in, dx out. */
static ssm_status run_block_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                     block *b, const ssm__ref_gradients *g, ssm_error *err)
{
    const ssm_config *c = layer->config;
    const ssm__layer_weights *w = &layer->w;
    const int64_t count = tokens * c->d_model;
    SSM__TRY(run_to_mlp(layer, x, tokens, b, err));
    if (w->fc1.data) {
        SSM__TRY(ssm__ref_mlp_backward(layer, b->normed2, tokens, b->d, b->dout, g, err));
        ssm__ref_block_norm_backward(c, &w->norm2, b->middle, b->dout, tokens, b->dout, g->norm2,
                                     g->norm2_bias);
        add(b->dout, count, b->d);
    }
    SSM__TRY(ssm__ref_mixer_backward(layer, b->normed, tokens, b->d, b->dout, g, err));
    ssm__ref_block_norm_backward(c, &w->norm, x, b->dout, tokens, b->dout, g->norm, g->norm_bias);
    add(b->dout, count, b->d);
    return SSM_STATUS_OK;
}

ssm_status ssm__ref_block_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                   const double *dy, double *dx, const ssm__ref_gradients *g,
                                   ssm_error *err)
{
    const int64_t D = layer->config->d_model;
    ssm__ref_arrays arrays = {.err = err};
    block b = take_block(layer, tokens, &arrays);
    ssm_status status = arrays.status;
    if (status == SSM_STATUS_OK) {
        ssm__ref_columns(dy, tokens, D, 0, D, b.d);
        status = run_block_backward(layer, x, tokens, &b, g, err);
    }
    if (status == SSM_STATUS_OK) {
        ssm__ref_columns(b.d, tokens, D, 0, D, dx);
    }
    ssm__ref_arrays_free(&arrays);
    return status;
}
