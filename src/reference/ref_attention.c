/* reference/ref_attention.c: causal self-attention with grouped queries (Ainslie et al., 2023) in
 * float64; docs/hybrid.md.
 *
 *   (q, k, v) = conv1d(in_proj x), the convolution causal, without activation, or absent;
 *   rotary on the leading coordinates of q and k;
 *   o_h[t] = Σ_{j ≤ t} softmax_j(scale q_h[t]·k_g[j]) v_g[j],  g = h / (Hq/Hkv);  out = out_proj o
 */
#include "reference/ref_attention.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "reference/ref_alloc.h"

/* sign −1: the other way round. */
static void rotate(const ssm_config *config, double *x, int64_t tokens, int64_t heads,
                   int64_t position, double sign)
{
    const int64_t half = config->rotary_dim / 2;
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t i = 0; i < half; i++) {
            const double turn = pow(config->rotary_base, -(double)i / (double)half);
            const double angle = sign * (double)(position + t) * turn;
            const int64_t first = config->rotary_interleaved ? 2 * i : i;
            const int64_t second = config->rotary_interleaved ? 2 * i + 1 : i + half;
            for (int64_t head = 0; head < heads; head++) {
                double *at = x + (t * heads + head) * config->attention_head_dim;
                const double a = at[first], b = at[second];
                at[first] = a * cos(angle) - b * sin(angle);
                at[second] = b * cos(angle) + a * sin(angle);
            }
        }
    }
}

void ssm__ref_rotary(const ssm_config *config, double *x, int64_t tokens, int64_t heads,
                     int64_t position)
{
    rotate(config, x, tokens, heads, position, 1.0);
}

void ssm__ref_rotary_backward(const ssm_config *config, double *dx, int64_t tokens, int64_t heads)
{
    rotate(config, dx, tokens, heads, 0, -1.0);
}

void ssm__ref_attention_release(ssm__ref_attention_pass *s)
{
    double *all[] = {s->in, s->qkv, s->q, s->o, s->k, s->v, s->weights, s->conv, s->conv_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

static ssm_status alloc_pass(const ssm_config *c, const ssm__layer_weights *w, int64_t tokens,
                             ssm__ref_attention_pass *s, ssm_error *err)
{
    const int64_t dh = c->attention_head_dim;
    const int64_t query = c->n_query_heads * dh, key = c->n_kv_heads * dh;
    SSM__TRY(ssm__ref_alloc(tokens, query + 2 * key, &s->in, err));
    SSM__TRY(ssm__ref_alloc(tokens, query + 2 * key, &s->qkv, err));
    SSM__TRY(ssm__ref_alloc(tokens, query, &s->q, err));
    SSM__TRY(ssm__ref_alloc(tokens, query, &s->o, err));
    SSM__TRY(ssm__ref_alloc(tokens, key, &s->k, err));
    SSM__TRY(ssm__ref_alloc(tokens, key, &s->v, err));
    SSM__TRY(ssm__ref_alloc(tokens, 1, &s->weights, err));
    SSM__TRY(ssm__ref_widen(&w->conv1d, &s->conv, err));
    SSM__TRY(ssm__ref_widen(&w->conv1d_bias, &s->conv_bias, err));
    return SSM_STATUS_OK;
}

void ssm__ref_attention_weights(const ssm_config *c, int64_t t, int64_t head,
                                ssm__ref_attention_pass *s)
{
    const int64_t dh = c->attention_head_dim, Hkv = c->n_kv_heads;
    const int64_t group = head / (c->n_query_heads / Hkv);
    const double *q = s->q + (t * c->n_query_heads + head) * dh;
    for (int64_t j = 0; j <= t; j++) {
        s->weights[j] = 0.0;
        for (int64_t i = 0; i < dh; i++) {
            s->weights[j] += c->softmax_scale * q[i] * s->k[(j * Hkv + group) * dh + i];
        }
    }
    const double total = ssm__ref_logsumexp(s->weights, t + 1);
    for (int64_t j = 0; j <= t; j++) {
        s->weights[j] = exp(s->weights[j] - total);
    }
}

/* One head of one query at token t. */
static void attend(const ssm_config *c, int64_t t, int64_t head, ssm__ref_attention_pass *s)
{
    const int64_t dh = c->attention_head_dim, Hkv = c->n_kv_heads;
    const int64_t group = head / (c->n_query_heads / Hkv);
    double *o = s->o + (t * c->n_query_heads + head) * dh;
    ssm__ref_attention_weights(c, t, head, s);
    for (int64_t j = 0; j <= t; j++) {
        for (int64_t i = 0; i < dh; i++) {
            o[i] += s->weights[j] * s->v[(j * Hkv + group) * dh + i];
        }
    }
}

static void run_attention(const ssm_config *c, const ssm__layer_weights *w, const double *x,
                          int64_t tokens, ssm__ref_attention_pass *s, double *out)
{
    const int64_t dh = c->attention_head_dim;
    const int64_t query = c->n_query_heads * dh, key = c->n_kv_heads * dh, all = query + 2 * key;
    ssm__ref_linear(&w->in_proj, &w->in_proj_bias, x, s->in, tokens);
    const double *qkv = s->in;
    if (c->attention_conv > 0) {
        ssm__ref_conv(s->in, s->conv, s->conv_bias, s->qkv, tokens, all, c->attention_conv);
        qkv = s->qkv;
    }
    ssm__ref_columns(qkv, tokens, all, 0, query, s->q);
    ssm__ref_columns(qkv, tokens, all, query, key, s->k);
    ssm__ref_columns(qkv, tokens, all, query + key, key, s->v);
    ssm__ref_rotary(c, s->q, tokens, c->n_query_heads, 0);
    ssm__ref_rotary(c, s->k, tokens, c->n_kv_heads, 0);
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t head = 0; head < c->n_query_heads; head++) {
            attend(c, t, head, s);
        }
    }
    ssm__ref_linear(&w->out_proj, &w->out_proj_bias, s->o, out, tokens);
}

ssm_status ssm__ref_attention_run(const ssm_config *config, const ssm__layer_weights *w,
                                  const double *x, int64_t tokens, ssm__ref_attention_pass *pass,
                                  double *out, ssm_error *err)
{
    SSM__TRY(alloc_pass(config, w, tokens, pass, err));
    run_attention(config, w, x, tokens, pass, out);
    return SSM_STATUS_OK;
}

ssm_status ssm__ref_attention(const ssm_config *config, const ssm__layer_weights *w,
                              const double *x, int64_t tokens, double *out, ssm_error *err)
{
    ssm__ref_attention_pass pass = {0};
    const ssm_status status = ssm__ref_attention_run(config, w, x, tokens, &pass, out, err);
    ssm__ref_attention_release(&pass);
    return status;
}
