/* instrument/head_sums.h: what a window leaves in one layer of Mamba-2: the Gram of every head,
 * energies of every channel, moments.
 *
 * A head is one task of the pass and one thread's. Over at most 16 tokens its groups of 16 channels
 * come one after the other; their modes are turned into rows (token, channel), and every few tokens
 * the rows are added to the head's Gram: float32 chains over at most 256 rows (one token's, where a
 * head has more channels), float64 between them. Energies and moments run in float32 over blocks of
 * 64 tokens, float64 between them. The layers of a pass take turns with one layer's sums; a pass is
 * a whole window. H heads, P channels a head in P' = ⌈P/16⌉ groups, G = H·P', N d_state. */
#ifndef SSM_INSTRUMENT_HEAD_SUMS_H
#define SSM_INSTRUMENT_HEAD_SUMS_H

#include "model/session.h"

typedef struct ssm__head_sums {
    const ssm_model *model;
    bool has_gram;
    int64_t n_heads, head_groups, d_state;
    int64_t head_rows;   /* 16 P', rows of a token */
    int64_t call_tokens; /* tokens whose rows are one float32 chain: 1, 2, 4, 8 or 16 */
    int64_t window;      /* most tokens */
    int64_t tokens;      /* of the window under way */
    int threads;
    ssm__arena arena;
    double *gram;         /* [H][ssm__rows_gram_count]; packed: [H][(N+1)(N+2)/2] dense */
    double *sums;         /* [G][2N+1][16], rows as of head_scan: Σm², Σx², Σy² */
    double *reads;        /* [H][2][N'] Σ(gC)² and Σ(gC)²w over channels; N' = N up to 16s */
    double *delta;        /* [H] ΣΔ */
    double *half;         /* [G][N][16] energies of the first ⌊B/2⌋ blocks */
    float *adjoint;       /* [G][16] w of the adjoint Gramian */
    float *energy_blocks; /* [B][H][N] Σ over the head's channels */
    float *thread_modes;  /* [threads][16][N+1][16] */
    float *thread_block;  /* [threads][P'][2N+1][16], zero between blocks */
    float *thread_reads;  /* [threads][2][N'], zero between blocks */
    float *thread_gates;  /* [threads][16][16], then [16] weights */
    float *thread_rows;   /* [threads][row_floats] panels, then the last signal */
    int64_t panel_stride, row_floats;
    bool *recorded;      /* n_layers */
    ssm__mode_sink sink; /* give this to ssm__session_set_sink */
} ssm__head_sums;

/* recorded: n_layers, or NULL: all layers of Mamba-2. pool: the session's. All memory is taken
 * here. Owner: the caller. The sums must not move. Errors: MEMORY. */
ssm_status ssm__head_sums_create(const ssm_model *model, int64_t window, bool gram,
                                 const bool *recorded, ssm_pool *pool, ssm__head_sums *out,
                                 ssm_error *err);
void ssm__head_sums_free(ssm__head_sums *sums);
/* Clears everything for a layer over a window of `tokens` ≤ window tokens. */
void ssm__head_sums_begin(ssm__head_sums *sums, int64_t tokens);
/* Clears what a pass leaves in the threads' blocks when they are not finished (a sink of one's own
 * that calls enter_head only). */
void ssm__head_sums_drop_blocks(ssm__head_sums *sums);
/* Turns the Gram into dense upper triangles, in place; only once a layer. */
void ssm__head_sums_pack(ssm__head_sums *sums);
/* Sums over the window of a channel (head·P + p): row n: Σm² of mode n, N + n: Σx², 2N: Σy². */
double ssm__head_sums_at(const ssm__head_sums *sums, int64_t row, int64_t channel);
/* Σm² of mode n over the first half. */
double ssm__head_sums_half(const ssm__head_sums *sums, int64_t n, int64_t channel);
/* Σ over channels and tokens of (gC)² of mode n, or (weighted) of (gC)²·w. */
double ssm__head_sums_read(const ssm__head_sums *sums, bool weighted, int64_t n, int64_t head);
/* The thread whose scratch these arguments have. */
int64_t ssm__head_sums_thread(const ssm__head_sums *sums, const ssm__head_scan_args *args);

#endif
