/* kernels/body_h3.h: the recurrence of H3 over pairs of channels, forwards and backwards.
 *
 * Channels j are in the lanes; in turn r lane j meets channel (j + r) mod W of its head, so that q,
 * k and their gradients are turned by r within a head and no lane is summed with another. A turn
 * goes over the sequence in pieces of 16 tokens, a few modes at a time. Backwards with λ the
 * gradient of the state:
 *   ds = q do,  dq = do s,  dc_n = Σ_t ds x_t,  dD = Σ_t ds u,  u = k v
 *   λ_t = c ds_t + a λ_{t+1},  du = D ds + Σ_n λ,  da_n = Σ_t λ_t x_{t−1},  dv = du k,  dk = du v
 * once forwards for s, dq, dc and the states before the pieces, once from the last piece to the
 * first, in which the states of a piece are computed again. Sums over tokens are those of the
 * pieces, each from 0, added up. */
#ifndef SSM_KERNELS_BODY_H3_H
#define SSM_KERNELS_BODY_H3_H

#include <string.h>

#include "kernels/training.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/unroll.h"

enum { H3_MODES = 4 };

/* One turn: which lanes meet. */
typedef struct h3_turn {
    i16 there; /* lane j ← lane of channel (j + r) mod W */
    i16 back;  /* and back */
} h3_turn;

static h3_turn h3_turn_of(int64_t width, int64_t r)
{
    uint16_t there[16], back[16];
    for (int64_t lane = 0; lane < 16; lane++) {
        const int64_t head = lane / width * width, channel = lane % width;
        there[lane] = (uint16_t)(head + (channel + r) % width);
        back[lane] = (uint16_t)(head + (channel + width - r) % width);
    }
    return (h3_turn){i16_load(there), i16_load(back)};
}

/* What all modes of a piece share, [token][16]. */
typedef struct h3_piece {
    float u[SSM__SCAN_PIECE * 16];  /* k v */
    float s[SSM__SCAN_PIECE * 16];  /* output of the pair */
    float ds[SSM__SCAN_PIECE * 16]; /* its gradient */
    float du[SSM__SCAN_PIECE * 16];
} h3_piece;

static inline v16 h3_turned(const float *rows, int64_t t, i16 lanes)
{
    return v16_pick(v16_load(rows + t * 16), lanes);
}

/* u and D u of a piece. */
static void h3_begin(const ssm__h3_args *a, const h3_turn *turn, h3_piece *p, int64_t t0,
                     int64_t tokens)
{
    const v16 D = v16_load(a->D);
    for (int64_t t = 0; t < tokens; t++) {
        const v16 u = v16_mul(h3_turned(a->k, t0 + t, turn->there), v16_load(a->v + (t0 + t) * 16));
        v16_store(p->u + t * 16, u);
        v16_store(p->s + t * 16, v16_mul(D, u));
    }
}

/* `count` modes through a piece: s grows, state goes on, and dread backwards. */
SSM__INLINE void h3_read(const ssm__h3_args *a, h3_piece *p, float *state, float *dread,
                         int64_t tokens, int64_t first, const int count, const bool backwards)
{
    v16 x[H3_MODES], sum[H3_MODES];
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        x[i] = v16_load(state + (first + i) * 16);
        sum[i] = v16_set(0.0f);
    }
    for (int64_t t = 0; t < tokens; t++) {
        const v16 u = v16_load(p->u + t * 16);
        const v16 ds = backwards ? v16_load(p->ds + t * 16) : u;
        v16 s = v16_load(p->s + t * 16);
        SSM__UNROLL
        for (int i = 0; i < count; i++) {
            x[i] = v16_fma(v16_load(a->decay + (first + i) * 16), x[i], u);
            s = v16_fma(v16_load(a->read + (first + i) * 16), x[i], s);
            sum[i] = backwards ? v16_fma(ds, x[i], sum[i]) : sum[i];
        }
        v16_store(p->s + t * 16, s);
    }
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        v16_store(state + (first + i) * 16, x[i]);
        if (backwards) {
            float *to = dread + (first + i) * 16;
            v16_store(to, v16_add(v16_load(to), sum[i]));
        }
    }
}

static void kernel_h3(const ssm__h3_args *a, float *o)
{
    const int64_t N = a->d_state;
    h3_piece p;
    for (int64_t r = 0; r < a->width; r++) {
        const h3_turn turn = h3_turn_of(a->width, r);
        memset(a->scratch, 0, (size_t)(N * 16) * sizeof *a->scratch);
        for (int64_t t0 = 0; t0 < a->tokens; t0 += SSM__SCAN_PIECE) {
            const int64_t left = a->tokens - t0;
            const int64_t tokens = left < SSM__SCAN_PIECE ? left : SSM__SCAN_PIECE;
            int64_t n = 0;
            h3_begin(a, &turn, &p, t0, tokens);
            for (; n + H3_MODES <= N; n += H3_MODES) {
                h3_read(a, &p, a->scratch, NULL, tokens, n, H3_MODES, false);
            }
            for (; n < N; n++) {
                h3_read(a, &p, a->scratch, NULL, tokens, n, 1, false);
            }
            for (int64_t t = 0; t < tokens; t++) {
                float *to = o + (t0 + t) * 16;
                const v16 s = v16_load(p.s + t * 16);
                v16_store(to, v16_fma(h3_turned(a->q, t0 + t, turn.there), s, v16_load(to)));
            }
        }
    }
}

/* ---- backwards ------------------------------------------------------------------------------- */

/* The parts of the scratch. */
typedef struct h3_memory {
    float *starts; /* [pieces][N][16] states before the pieces */
    float *states; /* [17][N][16] before and after each token of a piece */
    float *carry;  /* [N][16] a λ of the token after */
} h3_memory;

/* ds = q do of a token, kept for the modes. */
static inline v16 h3_ds(const ssm__h3_backward_args *b, const h3_turn *turn, h3_piece *p,
                        int64_t t0, int64_t t)
{
    const v16 q = h3_turned(b->forward.q, t0 + t, turn->there);
    const v16 ds = v16_mul(q, v16_load(b->dout + (t0 + t) * 16));
    v16_store(p->ds + t * 16, ds);
    return ds;
}

/* Forwards through a piece: dq, dread, dD; state [N][16] goes on. */
static void h3_piece_forward(const ssm__h3_backward_args *b, const h3_turn *turn, h3_piece *p,
                             float *state, int64_t t0, int64_t tokens)
{
    const ssm__h3_args *a = &b->forward;
    v16 dD = v16_set(0.0f);
    int64_t n = 0;
    h3_begin(a, turn, p, t0, tokens);
    for (int64_t t = 0; t < tokens; t++) {
        dD = v16_fma(h3_ds(b, turn, p, t0, t), v16_load(p->u + t * 16), dD);
    }
    v16_store(b->dD, v16_add(v16_load(b->dD), dD));
    for (; n + H3_MODES <= a->d_state; n += H3_MODES) {
        h3_read(a, p, state, b->dread, tokens, n, H3_MODES, true);
    }
    for (; n < a->d_state; n++) {
        h3_read(a, p, state, b->dread, tokens, n, 1, true);
    }
    for (int64_t t = 0; t < tokens; t++) {
        float *dq = b->dq + (t0 + t) * 16;
        const v16 d = v16_mul(v16_load(b->dout + (t0 + t) * 16), v16_load(p->s + t * 16));
        v16_store(dq, v16_add(v16_load(dq), v16_pick(d, turn->back)));
    }
}

/* States of `count` modes after the tokens of a piece. */
SSM__INLINE void h3_states(const ssm__h3_args *a, const h3_piece *p, const float *start,
                           float *states, int64_t tokens, int64_t first, const int count)
{
    const int64_t N = a->d_state;
    v16 x[H3_MODES];
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        x[i] = v16_load(start + (first + i) * 16);
        v16_store(states + (first + i) * 16, x[i]);
    }
    for (int64_t t = 0; t < tokens; t++) {
        const v16 u = v16_load(p->u + t * 16);
        SSM__UNROLL
        for (int i = 0; i < count; i++) {
            x[i] = v16_fma(v16_load(a->decay + (first + i) * 16), x[i], u);
            v16_store(states + ((t + 1) * N + first + i) * 16, x[i]);
        }
    }
}

/* λ of `count` modes backwards through a piece: du grows, ddecay. */
SSM__INLINE void h3_adjoint(const ssm__h3_backward_args *b, h3_piece *p, const h3_memory *m,
                            int64_t tokens, int64_t first, const int count)
{
    const ssm__h3_args *a = &b->forward;
    const int64_t N = a->d_state;
    v16 carry[H3_MODES], sum[H3_MODES];
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        carry[i] = v16_load(m->carry + (first + i) * 16);
        sum[i] = v16_set(0.0f);
    }
    for (int64_t t = tokens - 1; t >= 0; t--) {
        const float *before = m->states + (t * N + first) * 16;
        const v16 ds = v16_load(p->ds + t * 16);
        v16 du = v16_load(p->du + t * 16);
        SSM__UNROLL
        for (int i = 0; i < count; i++) {
            const v16 lambda = v16_fma(v16_load(a->read + (first + i) * 16), ds, carry[i]);
            du = v16_add(du, lambda);
            sum[i] = v16_fma(lambda, v16_load(before + i * 16), sum[i]);
            carry[i] = v16_mul(v16_load(a->decay + (first + i) * 16), lambda);
        }
        v16_store(p->du + t * 16, du);
    }
    SSM__UNROLL
    for (int i = 0; i < count; i++) {
        v16_store(m->carry + (first + i) * 16, carry[i]);
        float *to = b->ddecay + (first + i) * 16;
        v16_store(to, v16_add(v16_load(to), sum[i]));
    }
}

/* Backwards through a piece: dk, dv, ddecay. */
static void h3_piece_backward(const ssm__h3_backward_args *b, const h3_turn *turn, h3_piece *p,
                              const h3_memory *m, const float *start, int64_t t0, int64_t tokens)
{
    const ssm__h3_args *a = &b->forward;
    const v16 D = v16_load(a->D);
    int64_t n = 0;
    h3_begin(a, turn, p, t0, tokens);
    for (int64_t t = 0; t < tokens; t++) {
        v16_store(p->du + t * 16, v16_mul(D, h3_ds(b, turn, p, t0, t)));
    }
    for (; n + H3_MODES <= a->d_state; n += H3_MODES) {
        h3_states(a, p, start, m->states, tokens, n, H3_MODES);
        h3_adjoint(b, p, m, tokens, n, H3_MODES);
    }
    for (; n < a->d_state; n++) {
        h3_states(a, p, start, m->states, tokens, n, 1);
        h3_adjoint(b, p, m, tokens, n, 1);
    }
    for (int64_t t = 0; t < tokens; t++) {
        float *dk = b->dk + (t0 + t) * 16, *dv = b->dv + (t0 + t) * 16;
        const v16 du = v16_load(p->du + t * 16);
        const v16 d = v16_mul(du, v16_load(a->v + (t0 + t) * 16));
        v16_store(dv, v16_fma(du, h3_turned(a->k, t0 + t, turn->there), v16_load(dv)));
        v16_store(dk, v16_add(v16_load(dk), v16_pick(d, turn->back)));
    }
}

static void kernel_h3_backward(const ssm__h3_backward_args *b)
{
    const ssm__h3_args *a = &b->forward;
    const int64_t floats = a->d_state * 16;
    const size_t bytes = (size_t)floats * sizeof(float);
    const int64_t pieces = (a->tokens + SSM__SCAN_PIECE - 1) / SSM__SCAN_PIECE;
    const h3_memory m = {.starts = a->scratch,
                         .states = a->scratch + (pieces + 1) * floats,
                         .carry = a->scratch + (pieces + SSM__SCAN_PIECE + 2) * floats};
    h3_piece p;
    for (int64_t r = 0; r < a->width; r++) {
        const h3_turn turn = h3_turn_of(a->width, r);
        memset(m.starts, 0, bytes);
        memset(m.carry, 0, bytes);
        for (int64_t piece = 0; piece < pieces; piece++) {
            const int64_t t0 = piece * SSM__SCAN_PIECE, left = a->tokens - t0;
            float *state = m.starts + (piece + 1) * floats;
            memcpy(state, state - floats, bytes);
            h3_piece_forward(b, &turn, &p, state, t0,
                             left < SSM__SCAN_PIECE ? left : SSM__SCAN_PIECE);
        }
        for (int64_t piece = pieces - 1; piece >= 0; piece--) {
            const int64_t t0 = piece * SSM__SCAN_PIECE, left = a->tokens - t0;
            h3_piece_backward(b, &turn, &p, &m, m.starts + piece * floats, t0,
                              left < SSM__SCAN_PIECE ? left : SSM__SCAN_PIECE);
        }
    }
}

#endif
