/* instrument/accumulator.h: what one window of text leaves in each layer: Gram, energies, moments.
 *
 * Sums run in float32 over blocks of 64 tokens of the window, the blocks in float64. The blocks lie
 * at multiples of 64 of the position, so that the way a window is cut into forward calls does not
 * show. E d_inner, N d_state, G = ⌈E/16⌉ groups of channels. */
#ifndef SSM_INSTRUMENT_ACCUMULATOR_H
#define SSM_INSTRUMENT_ACCUMULATOR_H

#include "model/session.h"

/* One layer. Rows as in ssm__mode_rows, without the Gram's in `moments`. */
typedef struct ssm__layer_sums {
    double *gram;         /* [G][n_gram][16]; after ssm__accumulator_transpose [E][n_gram] dense */
    double *moments;      /* [G][count − n_gram][16] */
    float *adjoint;       /* [G][N][16] w of the adjoint Gramian */
    float *partial;       /* [G][count][16] the unfinished block, only when calls may cut blocks */
    float *energy_blocks; /* [⌈T/64⌉][E][N] */
} ssm__layer_sums;

typedef struct ssm__accumulator {
    const ssm_model *model;
    ssm__mode_rows rows;
    int64_t window; /* most tokens of a window */
    int64_t tokens; /* of the window under way */
    bool keeps_partial, one_layer;
    int threads;
    ssm__arena arena;
    ssm__layer_sums *layers; /* n_layers; NULL members where not recorded */
    bool *recorded;          /* n_layers */
    float *thread_modes;     /* [threads][16][N+1][16] */
    float *thread_block;     /* [threads][count][16], zero between blocks */
    double *transpose;       /* [n_gram][16] */
    ssm__mode_sink sink;     /* give this to ssm__session_set_sink */
} ssm__accumulator;

typedef struct ssm__accumulator_options {
    int64_t window;
    bool gram;
    bool whole_blocks;    /* forward calls begin at multiples of 64: saves a buffer a layer */
    bool one_layer;       /* a call is a whole window: the layers take turns with one layer's sums,
                           * see ssm__accumulator_begin_layer */
    const bool *recorded; /* n_layers, or NULL: all that have states */
    ssm_pool *pool;       /* the session's */
} ssm__accumulator_options;

/* Layers of attention have no states: nothing of them is recorded. */
static inline bool ssm__has_states(const ssm_model *model, int64_t layer)
{
    return model->blocks[layer].kind != SSM_LAYER_ATTENTION;
}
/* Errors: USAGE when no layer has states. */
ssm_status ssm__require_states(const ssm_model *model, ssm_error *err);

/* All memory is taken here. Owner: the caller. Errors: MEMORY. The accumulator must not move. */
ssm_status ssm__accumulator_create(const ssm_model *model, const ssm__accumulator_options *options,
                                   ssm__accumulator *out, ssm_error *err);
void ssm__accumulator_free(ssm__accumulator *accumulator);
/* Clears everything for a window of `tokens` ≤ window tokens that begins at position 0. */
void ssm__accumulator_begin(ssm__accumulator *accumulator, int64_t tokens);
/* Clears one recorded layer; with one_layer, whenever the sums of the layer before it were read. */
void ssm__accumulator_begin_layer(ssm__accumulator *accumulator, int64_t layer);
/* Turns a layer's Gram into dense rows of channels, in place; only once a window. */
void ssm__accumulator_transpose(ssm__accumulator *accumulator, int64_t layer);
/* Row `row` (of ssm__mode_rows, ≥ n_gram or energies) of channel h as a sum over the window. */
double ssm__accumulator_moment(const ssm__accumulator *accumulator, int64_t layer, int64_t row,
                               int64_t channel);
/* Entry (i, j) of the Gram, before or after transposing is the caller's to know: this is before. */
double ssm__accumulator_gram(const ssm__accumulator *accumulator, int64_t layer, int64_t channel,
                             int64_t i, int64_t j);

#endif
