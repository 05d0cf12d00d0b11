/* reference/ref_attention_backward.c: gradients of causal self-attention. Head h, its key head g,
 * p_j the weights of token t:
 *
 *   dp_j = do·v_j,  ds_j = p_j (dp_j − Σ_i p_i dp_i)         (softmax)
 *   dv_j += p_j do,  dq += scale ds_j k_j,  dk_j += scale ds_j q
 * then back through the rotation, the convolution and in_proj. */
#include "base/error.h"
#include "reference/ref_alloc.h"
#include "reference/ref_attention.h"

typedef struct gradients {
    double *in, *qkv;
    double *q, *o;
    double *k, *v;
} gradients;

static gradients take_gradients(const ssm_config *c, int64_t tokens, ssm__ref_arrays *arrays)
{
    const int64_t dh = c->attention_head_dim;
    const int64_t query = c->n_query_heads * dh, key = c->n_kv_heads * dh;
    return (gradients){.in = ssm__ref_array(arrays, tokens, query + 2 * key),
                       .qkv = ssm__ref_array(arrays, tokens, query + 2 * key),
                       .q = ssm__ref_array(arrays, tokens, query),
                       .o = ssm__ref_array(arrays, tokens, query),
                       .k = ssm__ref_array(arrays, tokens, key),
                       .v = ssm__ref_array(arrays, tokens, key)};
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* One head of one query at token t; adds to dk and dv of every token up to it. */
static void attend_backward(const ssm_config *c, int64_t t, int64_t head,
                            ssm__ref_attention_pass *s, gradients *d)
{
    const int64_t dh = c->attention_head_dim, Hkv = c->n_kv_heads;
    const int64_t group = head / (c->n_query_heads / Hkv);
    const int64_t query = (t * c->n_query_heads + head) * dh;
    ssm__ref_attention_weights(c, t, head, s);
    /* Σ_i p_i dp_i = do·Σ_i p_i v_i = do·o */
    const double mean = dot(d->o + query, s->o + query, dh);
    for (int64_t j = 0; j <= t; j++) {
        const int64_t key = (j * Hkv + group) * dh;
        const double p = s->weights[j];
        const double ds = p * (dot(d->o + query, s->v + key, dh) - mean);
        for (int64_t i = 0; i < dh; i++) {
            d->v[key + i] += p * d->o[query + i];
            d->q[query + i] += c->softmax_scale * ds * s->k[key + i];
            d->k[key + i] += c->softmax_scale * ds * s->q[query + i];
        }
    }
}

static void run_backward(const ssm__ref_layer *layer, ssm__ref_attention_pass *s, const double *x,
                         int64_t tokens, const double *dout, gradients *d, double *dx,
                         const ssm__ref_gradients *g)
{
    const ssm_config *c = layer->config;
    const ssm__layer_weights *w = &layer->w;
    const int64_t dh = c->attention_head_dim;
    const int64_t query = c->n_query_heads * dh, key = c->n_kv_heads * dh, all = query + 2 * key;
    ssm__ref_linear_backward(&w->out_proj, s->o, dout, tokens, d->o, g->out_proj, g->out_proj_bias);
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t head = 0; head < c->n_query_heads; head++) {
            attend_backward(c, t, head, s, d);
        }
    }
    ssm__ref_rotary_backward(c, d->q, tokens, c->n_query_heads);
    ssm__ref_rotary_backward(c, d->k, tokens, c->n_kv_heads);
    ssm__ref_put_columns(d->q, tokens, query, d->qkv, all, 0);
    ssm__ref_put_columns(d->k, tokens, key, d->qkv, all, query);
    ssm__ref_put_columns(d->v, tokens, key, d->qkv, all, query + key);
    ssm__ref_conv_backward(s->in, c->attention_conv > 0 ? s->conv : NULL, d->qkv, tokens, all,
                           c->attention_conv, d->in, g->conv1d, g->conv1d_bias);
    ssm__ref_linear_backward(&w->in_proj, x, d->in, tokens, dx, g->in_proj, g->in_proj_bias);
}

ssm_status ssm__ref_attention_backward(const ssm__ref_layer *layer, const double *x, int64_t tokens,
                                       const double *dout, double *dx, const ssm__ref_gradients *g,
                                       ssm_error *err)
{
    const ssm_config *c = layer->config;
    ssm__ref_arrays arrays = {.err = err};
    ssm__ref_attention_pass pass = {0};
    gradients d = take_gradients(c, tokens, &arrays);
    double *out = ssm__ref_array(&arrays, tokens, c->d_model);
    ssm_status status = arrays.status;
    if (status == SSM_STATUS_OK) {
        status = ssm__ref_attention_run(c, &layer->w, x, tokens, &pass, out, err);
    }
    if (status == SSM_STATUS_OK) {
        run_backward(layer, &pass, x, tokens, dout, &d, dx, g);
    }
    ssm__ref_attention_release(&pass);
    ssm__ref_arrays_free(&arrays);
    return status;
}
