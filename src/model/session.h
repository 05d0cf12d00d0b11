/* model/session.h: the state and scratch of one stream, and the stages of its forward pass.
 *
 * The pass goes layer by layer over at most max_chunk tokens; inside a layer, tile by tile of at
 * most 64 tokens that begin at a multiple of 64 of the position, so that the tiles' scratch stays
 * in the cache and the instrument's blocks are tiles. */
#ifndef SSM_MODEL_SESSION_H
#define SSM_MODEL_SESSION_H

#include "model/packing.h"

enum { SSM__SUBTILE = 16 }; /* most tokens between the instrument's visits: modes stay in L1 */

/* The instrument's way into the scan. Both calls come from worker threads, for one (layer, group)
 * from one thread at a time and in rising position; they must touch that group's data only. enter
 * fills modes, adjoint and moments of args (modes: [≤ 16][N+1][16] scratch of that thread); leave
 * sees the summands and y [tokens][16] of at most 16 tokens. Layers of Mamba-2 call enter_head and
 * leave_head in their place; a head's groups (head·⌈P/16⌉ …, see ssm__lane_of) are visited by one
 * thread, all of them for the same ≤ 16 tokens before the next tokens. finished, unless NULL, is
 * called by the thread that runs the pass when a recorded layer has seen all tokens before `end`; a
 * failure ends the pass. A recorded layer runs the recurrence, never the chunked form; it has all
 * its modes, so a session that records under a mask is created with full_state. */
typedef struct ssm__mode_sink {
    void *context;
    void (*enter)(void *context, int64_t layer, int64_t group, int thread, ssm__scan_args *args);
    void (*leave)(void *context, int64_t layer, int64_t group, int64_t position,
                  const ssm__scan_args *args);
    void (*enter_head)(void *context, int64_t layer, int64_t group, int thread,
                       ssm__head_scan_args *args);
    void (*leave_head)(void *context, int64_t layer, int64_t group, int64_t position,
                       const ssm__head_scan_args *args);
    ssm_status (*finished)(void *context, int64_t layer, int64_t end, ssm_error *err);
    const bool *layers; /* [n_layers] which layers are recorded */
} ssm__mode_sink;

/* What a tile of Mamba-2 needs beside the tiles of all families. G' n_groups, H n_heads, Gbc
 * ⌈2G'N/16⌉, E0 = d_inner − d_ssm. */
typedef struct ssm__mamba2_scratch {
    float *bc_tile;  /* [Gbc][65][16] in_proj's B, C */
    float *bc_conv;  /* [Gbc][65][16] after conv and SiLU */
    float *bc_raw;   /* [Gbc][65][16] before SiLU; for taps */
    float *bc;       /* [G'][2][64][N] B and C in rows */
    float *dt_tile;  /* [⌈H/16⌉][65][16] dt, then Δ */
    float *delta;    /* [H][64] Δ */
    float *products; /* [G'][64][64] C_t·B_s, s ≤ t */
    float *front;    /* [2][⌈E0/16⌉][65][16] z0, x0 */
    float *out_tile; /* [⌈E/16⌉][65][16] input of out_proj, where y's tile does not serve */
} ssm__mamba2_scratch;

/* What a tile of attention and of an MLP needs. */
typedef struct ssm__attention_scratch {
    float *in_tile;   /* [⌈W/16⌉][65][16] in_proj's q, k, v */
    float *conv_tile; /* [⌈W/16⌉][65][16] after the convolution */
    float *q, *out;   /* [64][Hq·dh] scaled and rotated queries; output of the heads */
    float *rotation;  /* [64][rotary_dim/2][2] cosine, sine */
} ssm__attention_scratch;
typedef struct ssm__mlp_scratch {
    float *y_tile, *gate_tile; /* [⌈M/16⌉][65][16] halves of fc1; y becomes y·SiLU(gate) */
} ssm__mlp_scratch;

/* Keys and values of the text so far: blocks of 64 positions, for all layers of attention. The
 * only thing of a session that grows with the text. */
typedef struct ssm__kv_cache {
    float **blocks;
    int64_t count, capacity; /* blocks there are; places in the table */
} ssm__kv_cache;

struct ssm_session {
    const ssm_model *model;
    ssm_pool *pool;
    int64_t max_chunk;
    bool exact_chunks;
    int64_t position;
    ssm__arena arena;
    const ssm_observer *observer;
    const ssm__mode_sink *sink;

    bool full_state;
    ssm__packing *packing; /* of the mask, NULL without one */

    /* recurrent state; a layer's part of the history begins at its block's conv_at, that of the
     * states is ssm__packing_state's */
    float *conv_history;     /* groups of [K−1][16] */
    float *ssm_state;        /* groups of [N][16], packed ones of fewer rows */
    ssm__arena state_memory; /* of ssm_state alone: a mask changes its size */

    /* scratch */
    float *stream;   /* [max_chunk][D] residual stream */
    float *normed;   /* [64][D] */
    float *mixed;    /* [64][D] mixer output */
    float *x_tile;   /* [G][65][16] in_proj's xs; Mamba-1: Δ after conv; Mamba-2: y */
    float *z_tile;   /* [G][65][16] */
    float *u_tile;   /* [G][65][16] u; Mamba-1: then y */
    float *raw_tile; /* [G][65][16] conv1d, then dt_proj, before their activations; for taps */
    float *x_proj;   /* [64][R+2N] dt, B, C of Mamba-1 */
    float *tap;      /* [64][…] where a tap needs another layout */
    float *logits;   /* [64][V] */
    ssm__mamba2_scratch mamba2;
    ssm__attention_scratch attention;
    ssm__mlp_scratch mlp;

    ssm__kv_cache cache;
};

/* stream[0 … count−1] = embedding of ids (validated). */
void ssm__session_embed(ssm_session *session, const int32_t *ids, int64_t count);
/* Block `layer` over the `count` ≤ max_chunk tokens in stream, from position on; advances the state
 * of this layer only. FAILED, with layer and position, where the stream is not finite afterwards.
 */
ssm_status ssm__session_layer(ssm_session *session, int64_t layer, int64_t count, ssm_error *err);
/* The state of one layer back to zero. */
void ssm__session_reset_layer(ssm_session *session, int64_t layer);
/* As ssm_session_nll, stopped by a sink that fails, over `count` tokens of which the first `scored`
 * have a successor in ids. */
ssm_status ssm__session_nll(ssm_session *session, const int32_t *ids, int64_t count, int64_t scored,
                            float *out, ssm_error *err);
void ssm__session_set_sink(ssm_session *session, const ssm__mode_sink *sink);
/* True for a layer that runs under a mask. */
static inline bool ssm__session_masked(const ssm_session *session, int64_t layer)
{
    return session->packing && session->packing->masked[layer];
}
/* The group of a masked layer, NULL for one that is not. */
const ssm__packed_group *ssm__session_group(const ssm_session *session, int64_t layer,
                                            int64_t group);
/* What D is for a group of 16 channels: the layer's own, or times the mask's weight. */
const float *ssm__session_skip(const ssm_session *session, int64_t layer, int64_t group,
                               const float *D);
/* Fires a tap if the observer wants it. */
void ssm__session_tap(const ssm_session *session, ssm_tap_point point, int64_t layer,
                      int64_t position, int64_t tokens, int64_t width, ssm__view view);
bool ssm__session_wants(const ssm_session *session, ssm_tap_point point);

/* Rows of `width` numbers, one after the other. */
static inline ssm__view ssm__dense(float *data, int64_t width)
{
    return (ssm__view){data, (ptrdiff_t)width, SSM__LANES};
}
static inline int64_t ssm__smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t ssm__ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* A tile: element (t, k) of group g at g·65·16 + t·16 + k. */
static inline ssm__view ssm__tiled(float *data)
{
    return (ssm__view){data, SSM__LANES, SSM__LANES * SSM__TILE_ROWS};
}
static inline float *ssm__group_of(float *tile, int64_t group)
{
    return tile + group * SSM__LANES * SSM__TILE_ROWS;
}

/* Mixers: normed (session->normed, `tokens` ≤ 64 tokens from `position`) → session->mixed. */
void ssm__mamba_mixer(ssm_session *session, int64_t layer, int64_t position, int64_t tokens);
void ssm__mamba2_mixer(ssm_session *session, int64_t layer, int64_t position, int64_t tokens);
void ssm__attention_mixer(ssm_session *session, int64_t layer, int64_t position, int64_t tokens);
/* The block's MLP likewise: normed → mixed. */
void ssm__mlp_run(ssm_session *session, int64_t layer, int64_t position, int64_t tokens);

/* Scratch of the layers of Mamba-2 (see base/arena.h); takes nothing when there are none. */
void ssm__mamba2_take_scratch(ssm__arena *arena, const ssm_model *model, ssm__mamba2_scratch *out);
void ssm__attention_take_scratch(ssm__arena *arena, const ssm_model *model,
                                 ssm__attention_scratch *out);
void ssm__mlp_take_scratch(ssm__arena *arena, const ssm_model *model, ssm__mlp_scratch *out);

/* ---- cache.c: keys and values of attention --------------------------------------------------- */

/* Room for `positions` tokens. Errors: MEMORY; what was there stays. */
ssm_status ssm__cache_reserve(ssm_session *session, int64_t positions, ssm_error *err);
void ssm__cache_free(ssm_session *session);
/* Keys of one key head [64][dh] in block `block`; layer counts layers of attention only. */
float *ssm__cache_keys(const ssm_session *session, int64_t block, int64_t layer, int64_t head);
float *ssm__cache_values(const ssm_session *session, int64_t block, int64_t layer, int64_t head);
/* Numbers that one position has in all layers. */
int64_t ssm__cache_width(const ssm_model *model);
/* Copies the first `positions` positions out of the cache, or into it. The copy is float32
 * [layer][key or value][head][positions][dh], anywhere in memory. */
void ssm__cache_copy_out(const ssm_session *session, int64_t positions, unsigned char *copy);
void ssm__cache_copy_in(const ssm_session *session, int64_t positions, const unsigned char *copy);

#endif
