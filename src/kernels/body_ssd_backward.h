/* kernels/body_ssd_backward.h: backwards through a chunk of one head of Mamba-2 by matrix products.
 *
 * With decay(t, s) = 2^seg(t, s) and S, h the state before the chunk and the gradient of the state
 * behind it, all as in body_ssd.h (letters of docs/kernels/training.md):
 *   q_s = decay(L−1, s) Σ_n B_{s,n} h_n + Σ_{t≥s} (C_t·B_s) decay(t, s) dv_t;   du = Δ q + D dv
 *   X_{t,s} = dv_t·u_s;  dproducts_{t,s} += X decay Δ_s
 *   dC_t += c_t, c_{t,n} = decay(t, −1) Σ_p dv_{t,p} S_{n,p}
 *   dB_s += b_s, b_{s,n} = decay(L−1, s) Δ_s Σ_p u_{s,p} h_{n,p}
 *   rate_τ = decay(L−1, −1) <S, h> + Σ_{s<τ} B_s·b_s + Σ_{t≥τ} C_t·c_t
 *            + Σ_{s<τ≤t} X_{t,s} (C_t·B_s) decay(t, s) Δ_s
 *   dΔ = u·q + A rate
 * rate is the gradient of Δ·A: what passes over the border in front of token τ. It is built from
 * what passes and never as a difference of sums over the text, which would lose its digits. */
#ifndef SSM_KERNELS_BODY_SSD_BACKWARD_H
#define SSM_KERNELS_BODY_SSD_BACKWARD_H

#include <string.h>

#include "kernels/training.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_math.h"
#include "kernels/body_ssd_tile.h"
#include "kernels/unroll.h"

/* The parts of the scratch, and small arrays. */
typedef struct ssd_back {
    float *decay;                   /* [64][64] decay(t, s), 0 for s > t */
    float *mix;                     /* [64][64] (C_t·B_s)·decay(t, s), 0 for s > t */
    float *cross;                   /* [64][64] X */
    float *u;                       /* [4][groups][16 channels][16 tokens] */
    float *state;                   /* [N/16][groups][16 channels][16 modes] */
    float *h;                       /* likewise */
    float *pulled, *read, *written; /* [64][16] lanes of u·q, C·c, B·b */
    float *between;                 /* [64][16] lanes of the last sum of rate */
    float carry[SSM__TILE];         /* decay(t, −1) */
    float tail[SSM__TILE];          /* decay(L−1, s) */
    float weight[SSM__TILE];        /* tail·Δ */
} ssd_back;

static ssd_back ssd_back_memory(const ssm__ssd_backward_args *a)
{
    const int64_t head = a->chunk.groups * a->chunk.d_state * 16;
    float *at = a->scratch;
    ssd_back m;
    m.decay = at, at += SSM__TILE * SSM__TILE;
    m.mix = at, at += SSM__TILE * SSM__TILE;
    m.cross = at, at += SSM__TILE * SSM__TILE;
    m.u = at, at += a->chunk.groups * SSM__TILE * 16;
    m.state = at, at += head;
    m.h = at, at += head;
    m.pulled = at, at += SSM__TILE * 16;
    m.read = at, at += SSM__TILE * 16;
    m.written = at, at += SSM__TILE * 16;
    m.between = at;
    return m;
}

static void ssd_back_decays(const ssm__ssd_backward_args *a, ssd_back *m)
{
    const ssm__ssd_chunk *c = &a->chunk;
    float seg[SSM__TILE] = {0};
    ssd_carry(c->delta, c->A2, c->tokens, m->carry);
    for (int64_t t = 0; t < c->tokens; t++) {
        const v16 step = v16_set(c->delta[t] * c->A2);
        float *decay = m->decay + t * SSM__TILE, *mix = m->mix + t * SSM__TILE;
        for (int64_t s = 0; s <= t; s += 16) {
            v16_store(seg + s, v16_add(v16_load(seg + s), step));
        }
        seg[t] = 0.0f;
        for (int64_t s = 0; s <= t; s += 16) {
            const v16 d = v16_exp2_decay(v16_load(seg + s));
            v16_store(decay + s, d);
            v16_store(mix + s, v16_mul(v16_load(a->products + t * SSM__TILE + s), d));
        }
        memset(decay + t + 1, 0, (size_t)(SSM__TILE - 1 - t) * sizeof *decay);
        memset(mix + t + 1, 0, (size_t)(SSM__TILE - 1 - t) * sizeof *mix);
    }
    const float *last = m->decay + (c->tokens - 1) * SSM__TILE;
    for (int64_t s = 0; s < c->tokens; s += 16) {
        const v16 tail = v16_load(last + s);
        v16_store(m->tail + s, tail);
        v16_store(m->weight + s, v16_mul(tail, v16_load_n(c->delta + s, c->tokens - s)));
    }
}

/* Sixteen rows from `first` on of an array of `rows`; beyond it zeros. */
static inline void ssd_back_rows(const float *from, int64_t first, int64_t rows, v16 v[16])
{
    for (int64_t i = 0; i < 16; i++) {
        v[i] = first + i < rows ? v16_load(from + (first + i) * 16) : v16_set(0.0f);
    }
}

/* Rows into lanes: block g of `groups`, at a distance of `stride`, of 16 rows of which there are
 * `rows`; the others become 0. */
static void ssd_back_turn(const float *from, ptrdiff_t stride, int64_t groups, int64_t rows,
                          float *to)
{
    for (int64_t first = 0; first < rows; first += 16) {
        for (int64_t g = 0; g < groups; g++, to += 256) {
            v16 v[16];
            ssd_back_rows(from + g * stride, first, rows, v);
            v16_transpose(v);
            for (int64_t i = 0; i < 16; i++) {
                v16_store(to + i * 16, v[i]);
            }
        }
    }
}

/* out(t, ·) from Σ_p x_{t,p} turned(p, ·), a sum over all channels of a head. */
typedef struct ssd_rows {
    const float *x; /* [groups][tokens][16] */
    ptrdiff_t stride;
    int64_t tokens, groups, vectors; /* of out's rows */
    const float *turned;             /* [vectors][groups][16][16] */
    float *out;
    ptrdiff_t out_stride;
    const float *scale; /* [tokens] out += scale·sum; NULL: out = sum, vectors up to t/16 */
    const float *with;  /* rows like out: dots[t] gets the lanes of with·scale·sum */
    ptrdiff_t with_stride;
    float *dots; /* [tokens][16] */
} ssd_rows;

SSM__INLINE void ssd_rows_tile(const ssd_rows *p, int64_t t, int64_t n, const int rows,
                               const int cols)
{
    const ptrdiff_t vector = (ptrdiff_t)p->groups * 256;
    v16 sum[SSD_MOST_ROWS][SSD_MOST_COLS];
    ssd_zero(sum, rows, cols);
    for (int64_t g = 0; g < p->groups; g++) {
        const ssd_factors x = {p->x + g * p->stride + t * 16, 16, 1};
        ssd_products(sum, x, p->turned + n * vector + g * 256, vector, 16, rows, cols);
    }
    SSM__UNROLL
    for (int r = 0; r < rows; r++) {
        float *out = p->out + (t + r) * p->out_stride + n * 16;
        v16 dots = v16_set(0.0f);
        if (p->scale && p->dots) {
            dots = v16_load(p->dots + (t + r) * 16);
        }
        SSM__UNROLL
        for (int c = 0; c < cols; c++) {
            if (!p->scale) {
                v16_store(out + c * 16, sum[r][c]);
                continue;
            }
            const v16 scaled = v16_mul(v16_set(p->scale[t + r]), sum[r][c]);
            v16_store(out + c * 16, v16_add(v16_load(out + c * 16), scaled));
            if (p->dots) {
                const float *with = p->with + (t + r) * p->with_stride + (n + c) * 16;
                dots = v16_fma(v16_load(with), scaled, dots);
            }
        }
        if (p->scale && p->dots) {
            v16_store(p->dots + (t + r) * 16, dots);
        }
    }
}

SSM__INLINE void ssd_rows_at(const ssd_rows *p, int64_t t, const int rows)
{
    const int64_t reach = (t + rows + 15) / 16;
    const int64_t vectors = p->scale || p->vectors < reach ? p->vectors : reach;
    int64_t n = 0;
    for (; n + SSD_COLS <= vectors; n += SSD_COLS) {
        ssd_rows_tile(p, t, n, rows, SSD_COLS);
    }
    for (; SSD_COLS > 1 && n < vectors; n++) {
        ssd_rows_tile(p, t, n, rows, 1);
    }
}

static void ssd_rows_all(const ssd_rows *p)
{
    int64_t t = 0;
    for (; t + SSD_ROWS <= p->tokens; t += SSD_ROWS) {
        ssd_rows_at(p, t, SSD_ROWS);
    }
    for (; SSD_ROWS > 2 && t + 2 <= p->tokens; t += 2) {
        ssd_rows_at(p, t, 2);
    }
    for (; t < p->tokens; t++) {
        ssd_rows_at(p, t, 1);
    }
}

/* du and the lanes of u·q of tokens s … s+rows−1, groups g … g+cols−1. */
SSM__INLINE void ssd_back_inputs(const ssm__ssd_backward_args *a, const ssd_back *m, int64_t s,
                                 int64_t g, const int rows, const int cols)
{
    const ssm__ssd_chunk *chunk = &a->chunk;
    const ptrdiff_t state_group = (ptrdiff_t)chunk->d_state * 16;
    const ssd_factors write = {chunk->B + s * chunk->bc_stride, chunk->bc_stride, 1};
    const ssd_factors mix = {m->mix + s * SSM__TILE + s, 1, SSM__TILE};
    const float *dv = chunk->dv + g * chunk->dv_stride + s * 16;
    v16 sum[SSD_MOST_ROWS][SSD_MOST_COLS];
    ssd_zero(sum, rows, cols);
    ssd_products(sum, write, a->dstate + g * state_group, state_group, chunk->d_state, rows, cols);
    ssd_scale(sum, m->tail + s, rows, cols);
    ssd_products(sum, mix, dv, chunk->dv_stride, chunk->tokens - s, rows, cols);
    SSM__UNROLL
    for (int r = 0; r < rows; r++) {
        const v16 delta = v16_set(chunk->delta[s + r]);
        v16 pulled = v16_load(m->pulled + (s + r) * 16);
        SSM__UNROLL
        for (int c = 0; c < cols; c++) {
            const v16 D = v16_load(a->D + (g + c) * 16);
            const v16 direct = v16_mul(D, v16_load(dv + c * chunk->dv_stride + r * 16));
            const v16 u = v16_load(a->u + (g + c) * a->u_stride + (s + r) * 16);
            v16_store(a->du + (g + c) * a->du_stride + (s + r) * 16,
                      v16_fma(delta, sum[r][c], direct));
            pulled = v16_fma(u, sum[r][c], pulled);
        }
        v16_store(m->pulled + (s + r) * 16, pulled);
    }
}

SSM__INLINE void ssd_back_groups(const ssm__ssd_backward_args *a, const ssd_back *m, int64_t s,
                                 const int rows)
{
    int64_t g = 0;
    for (; g + SSD_COLS <= a->chunk.groups; g += SSD_COLS) {
        ssd_back_inputs(a, m, s, g, rows, SSD_COLS);
    }
    for (; SSD_COLS > 1 && g < a->chunk.groups; g++) {
        ssd_back_inputs(a, m, s, g, rows, 1);
    }
}

static void ssd_back_all_inputs(const ssm__ssd_backward_args *a, const ssd_back *m)
{
    int64_t s = 0;
    for (; s + SSD_ROWS <= a->chunk.tokens; s += SSD_ROWS) {
        ssd_back_groups(a, m, s, SSD_ROWS);
    }
    for (; SSD_ROWS > 2 && s + 2 <= a->chunk.tokens; s += 2) {
        ssd_back_groups(a, m, s, 2);
    }
    for (; s < a->chunk.tokens; s++) {
        ssd_back_groups(a, m, s, 1);
    }
}

/* dproducts from X, and the lanes of what passes from s < τ to t ≥ τ inside the chunk, which grow
 * row by row from the last. */
static void ssd_back_cross(const ssm__ssd_backward_args *a, const ssd_back *m)
{
    const int64_t tokens = a->chunk.tokens;
    float passing[SSM__TILE] = {0};
    for (int64_t t = tokens - 1; t >= 0; t--) {
        const ptrdiff_t row = t * SSM__TILE;
        for (int64_t s = 0; s <= t; s += 16) {
            const v16 steps = v16_load_n(a->chunk.delta + s, tokens - s);
            const v16 x = v16_mul(v16_load(m->cross + row + s), steps);
            float *out = a->dproducts + row + s;
            v16_store(out, v16_fma(x, v16_load(m->decay + row + s), v16_load(out)));
            if (a->rates) {
                v16_store(passing + s,
                          v16_fma(x, v16_load(m->mix + row + s), v16_load(passing + s)));
            }
        }
        if (a->rates) {
            v16 sum = v16_set(0.0f);
            for (int64_t s = 0; s < t; s += 16) {
                sum = v16_add(sum, v16_load_n(passing + s, t - s));
            }
            v16_store(m->between + t * 16, sum);
        }
    }
}

/* Lane sums of sixteen rows at a time. */
static void ssd_back_sum_lanes(const float *lanes, int64_t tokens, float *out)
{
    for (int64_t t = 0; t < tokens; t += 16) {
        v16 v[16];
        ssd_back_rows(lanes, t, tokens, v);
        v16_store(out + t, v16_sums(v));
    }
}

/* <S, h>, four chains over the modes. */
static float ssd_back_inner(const ssm__ssd_backward_args *a)
{
    v16 sum[4] = {v16_set(0.0f), v16_set(0.0f), v16_set(0.0f), v16_set(0.0f)};
    for (int64_t i = 0; i < a->chunk.groups * a->chunk.d_state; i += 4) {
        for (int64_t k = 0; k < 4; k++) {
            sum[k] = v16_fma(v16_load(a->state + (i + k) * 16), v16_load(a->dstate + (i + k) * 16),
                             sum[k]);
        }
    }
    return v16_sum(v16_add(v16_add(sum[0], sum[1]), v16_add(sum[2], sum[3])));
}

/* ddelta and rates from the lanes. */
static void ssd_back_rates(const ssm__ssd_backward_args *a, const ssd_back *m)
{
    static const float ln2 = 0.69314718f;
    const int64_t tokens = a->chunk.tokens;
    float pulled[SSM__TILE], read[SSM__TILE], written[SSM__TILE], between[SSM__TILE];
    ssd_back_sum_lanes(m->pulled, tokens, pulled);
    memcpy(a->ddelta, pulled, (size_t)tokens * sizeof *pulled);
    if (!a->rates) {
        return;
    }
    ssd_back_sum_lanes(m->read, tokens, read);
    ssd_back_sum_lanes(m->written, tokens, written);
    ssd_back_sum_lanes(m->between, tokens, between);
    for (int64_t t = tokens - 2; t >= 0; t--) {
        read[t] += read[t + 1];
    }
    float before = m->carry[tokens - 1] * ssd_back_inner(a);
    for (int64_t t = 0; t < tokens; t++) {
        a->rates[t] = (before + read[t]) + between[t];
        a->ddelta[t] = pulled[t] + a->chunk.A2 * ln2 * a->rates[t];
        before += written[t];
    }
}

static void kernel_ssd_backward(const ssm__ssd_backward_args *a)
{
    const ssm__ssd_chunk *c = &a->chunk;
    ssd_back m = ssd_back_memory(a);
    const ptrdiff_t state_group = (ptrdiff_t)c->d_state * 16;
    ssd_back_decays(a, &m);
    ssd_back_turn(a->u, a->u_stride, c->groups, c->tokens, m.u);
    ssd_back_turn(a->state, state_group, c->groups, c->d_state, m.state);
    ssd_back_turn(a->dstate, state_group, c->groups, c->d_state, m.h);
    memset(m.pulled, 0, 3 * SSM__TILE * 16 * sizeof *m.pulled); /* read and written follow */
    ssd_back_all_inputs(a, &m);
    const ssd_rows cross = {.x = c->dv,
                            .stride = c->dv_stride,
                            .tokens = c->tokens,
                            .groups = c->groups,
                            .vectors = (c->tokens + 15) / 16,
                            .turned = m.u,
                            .out = m.cross,
                            .out_stride = SSM__TILE};
    ssd_rows_all(&cross);
    ssd_back_cross(a, &m);
    ssd_rows rows = {.x = c->dv,
                     .stride = c->dv_stride,
                     .tokens = c->tokens,
                     .groups = c->groups,
                     .vectors = c->d_state / 16,
                     .turned = m.state,
                     .out = a->dC,
                     .out_stride = a->dbc_stride,
                     .scale = m.carry,
                     .with = c->C,
                     .with_stride = c->bc_stride,
                     .dots = a->rates ? m.read : NULL};
    ssd_rows_all(&rows);
    rows.x = a->u;
    rows.stride = a->u_stride;
    rows.turned = m.h;
    rows.out = a->dB;
    rows.scale = m.weight;
    rows.with = c->B;
    rows.dots = a->rates ? m.written : NULL;
    ssd_rows_all(&rows);
    ssd_back_rates(a, &m);
}

/* ---- the state's gradient ----------------------------------------------------------------------
 */

SSM__INLINE void ssd_back_states(const ssm__ssd_chunk *c, const float *carry, const float *after,
                                 float *before, int64_t g, const int cols)
{
    float scaled[SSD_MOST_COLS * SSM__TILE * 16];
    for (int k = 0; k < cols; k++) {
        for (int64_t t = 0; t < c->tokens; t++) {
            const v16 dv = v16_load(c->dv + (g + k) * c->dv_stride + t * 16);
            v16_store(scaled + (k * SSM__TILE + t) * 16, v16_mul(v16_set(carry[t]), dv));
        }
    }
    const ptrdiff_t at = g * c->d_state * 16;
    const ssd_carried carried = {.tokens = c->tokens,
                                 .d_state = c->d_state,
                                 .rows = c->C,
                                 .stride = c->bc_stride,
                                 .v = scaled,
                                 .carry = carry[c->tokens - 1],
                                 .from = after + at,
                                 .to = before + at};
    ssd_carry_states(&carried, cols);
}

static void kernel_ssd_state_backward(const ssm__ssd_chunk *c, const float *after, float *before)
{
    float carry[SSM__TILE];
    ssd_carry(c->delta, c->A2, c->tokens, carry);
    int64_t g = 0;
    for (; g + SSD_COLS <= c->groups; g += SSD_COLS) {
        ssd_back_states(c, carry, after, before, g, SSD_COLS);
    }
    for (; SSD_COLS > 1 && g < c->groups; g++) {
        ssd_back_states(c, carry, after, before, g, 1);
    }
}

#endif
