/* train/attention_heads.c: heads cut from in_proj's output and turned (rotary), and back. */
#include <math.h>
#include <string.h>

#include "train/attention.h"

/* cos and sin of token t's angles; the angles in float64. */
static void make_rotation(const ssm__run *run, int64_t t, float *out)
{
    const ssm__attention_weights *w = run->weights;
    for (int64_t i = 0; i < run->config->shape.rotary_dim / 2; i++) {
        const double angle = (double)t * w->turns[i];
        out[2 * i] = (float)cos(angle);
        out[2 * i + 1] = (float)sin(angle);
    }
}

/* sign −1: back, which is the gradient's way. */
static void rotate(const ssm_config *c, const float *turn, float sign, float *head)
{
    const int64_t half = c->rotary_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        float *a = head + (c->rotary_interleaved ? 2 * i : i);
        float *b = head + (c->rotary_interleaved ? 2 * i + 1 : i + half);
        const float x = *a, y = *b, cosine = turn[2 * i], sine = sign * turn[2 * i + 1];
        *a = x * cosine - y * sine;
        *b = y * cosine + x * sine;
    }
}

/* Columns [0, W) of a token of a wide array. */
static void take_token(ssm__wide wide, int64_t sequence, int64_t t, int64_t width, float *out)
{
    for (int64_t c = 0; c < width; c += SSM__LANES) {
        memcpy(out + c, ssm__wide_group(wide, sequence, c / SSM__LANES) + t * SSM__LANES,
               (size_t)ssm__least(SSM__LANES, width - c) * sizeof *out);
    }
}

static void put_token(const float *in, int64_t width, ssm__wide wide, int64_t sequence, int64_t t)
{
    for (int64_t c = 0; c < width; c += SSM__LANES) {
        memcpy(ssm__wide_group(wide, sequence, c / SSM__LANES) + t * SSM__LANES, in + c,
               (size_t)ssm__least(SSM__LANES, width - c) * sizeof *in);
    }
}

/* Heads of a token between a row of (q, k, v) and q, k, v; back: from them, turned back. q is
 * scaled both ways. */
static void move_token(const ssm__run *run, int64_t sequence, int64_t t, float *q, float *k,
                       float *v, float *row, const float *turn, bool back)
{
    const ssm_config *c = &run->config->shape;
    const int64_t dh = c->attention_head_dim, Hq = c->n_query_heads, Hkv = c->n_kv_heads;
    const size_t bytes = (size_t)dh * sizeof(float);
    const float scale = (float)c->softmax_scale;
    for (int64_t h = 0; h < Hq + 2 * Hkv; h++) {
        float *column = row + h * dh;
        float *head = h < Hq         ? ssm__head_row(run, q, Hq, sequence, h, t)
                      : h < Hq + Hkv ? ssm__head_row(run, k, Hkv, sequence, h - Hq, t)
                                     : ssm__head_row(run, v, Hkv, sequence, h - Hq - Hkv, t);
        if (back) {
            memcpy(column, head, bytes);
        }
        if (h < Hq + Hkv) {
            rotate(c, turn, back ? -1.0f : 1.0f, column);
        }
        for (int64_t i = 0; i < dh && h < Hq; i++) {
            column[i] *= scale;
        }
        if (!back) {
            memcpy(head, column, bytes);
        }
    }
}

void ssm__attention_cut_heads(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const ssm__attention_kept *k = run->kept;
    const ssm__attention_scratch *s = run->scratch;
    const int64_t width = ssm__attention_rows(&run->config->shape);
    int64_t sequence, first;
    const int64_t tokens = ssm__tile_of(run, task, SSM__TILE, &sequence, &first);
    float *turn = ssm__attention_memory(run, thread), *row = turn + run->config->shape.rotary_dim;
    for (int64_t t = first; t < first + tokens; t++) {
        make_rotation(run, t, turn);
        take_token(s->qkv, sequence, t, width, row);
        move_token(run, sequence, t, k->q, k->k, k->v, row, turn, false);
    }
}

void ssm__attention_join_heads(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const ssm__attention_scratch *s = run->scratch;
    const int64_t width = ssm__attention_rows(&run->config->shape);
    int64_t sequence, first;
    const int64_t tokens = ssm__tile_of(run, task, SSM__TILE, &sequence, &first);
    float *turn = ssm__attention_memory(run, thread), *row = turn + run->config->shape.rotary_dim;
    for (int64_t t = first; t < first + tokens; t++) {
        make_rotation(run, t, turn);
        move_token(run, sequence, t, s->dq, s->dk, s->dv, row, turn, true);
        put_token(row, width, s->qkv, sequence, t);
    }
}
