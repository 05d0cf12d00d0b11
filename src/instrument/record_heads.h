/* instrument/record_heads.h: one window's layers of Mamba-2 on their way into a recording.
 *
 * Of an evaluation window every layer is run twice. The first pass leaves the head's Gram and every
 * channel's energies; they rank the channel's modes, and the second pass, on the same input and
 * from the zero state, measures the squared error of the static sets and of the window's own sets
 * as the paper does, channel by channel, without an N×N matrix of any channel. */
#ifndef SSM_INSTRUMENT_RECORD_HEADS_H
#define SSM_INSTRUMENT_RECORD_HEADS_H

#include <ssmscope/recording.h>

#include "instrument/head_errors.h"
#include "instrument/head_sums.h"
#include "recording/writer.h"

typedef struct ssm__head_recorder {
    const ssm_model *model;
    ssm_session *session;
    ssm__recording_writer *writer;
    const int64_t *layers; /* [n_layers] recorded, rising; borrowed */
    int64_t n_layers;
    const int64_t *budgets; /* borrowed */
    int64_t n_budgets, window;
    bool has_calibration, has_gram;
    bool evaluation; /* the window under way */
    bool ranked;     /* static_rank is there */
    ssm__arena arena;
    ssm__head_sums sums;
    ssm__head_errors errors; /* of the static sets, then of the window's own: 2 or 1 a budget */
    ssm__mode_sink record_sink, error_sink;
    ssm_observer observer;
    uint16_t *static_rank; /* [n_layers][S][N] place of each mode by mean calibration energy */
    uint16_t *own_rank;    /* [S][N] by the window's energy */
    double *energies;      /* [2][S][N] */
    int32_t *order;        /* [N] */
    uint8_t *in_half;      /* [N] */
    float *values;         /* tensors of one layer */
    double *channel;       /* [3][budgets] */
    float *layer_in;       /* [T][D] */
} ssm__head_recorder;

typedef struct ssm__head_recorder_options {
    int64_t window;
    const int64_t *layers, *budgets;
    int64_t n_layers, n_budgets;
    const bool *recorded; /* n_layers of the model */
    bool has_calibration, has_gram;
    ssm_pool *pool;
} ssm__head_recorder_options;

/* Takes all memory and looks into the session from now on. The recorder must not move. Owner: the
 * caller. Errors: MEMORY. */
ssm_status ssm__head_recorder_create(const ssm_model *model, ssm_session *session,
                                     ssm__recording_writer *writer,
                                     const ssm__head_recorder_options *options,
                                     ssm__head_recorder *out, ssm_error *err);
void ssm__head_recorder_free(ssm__head_recorder *recorder);
/* Before the pass over a window of which the writer was told. The first evaluation window reads the
 * energies of all calibration windows, which must be on the disk by then. Errors: FILE, MEMORY. */
ssm_status ssm__head_recorder_begin(ssm__head_recorder *recorder, ssm_role role, ssm_error *err);
/* float32 [n_heads] A = −exp(A_log) of a layer. */
void ssm__head_recorder_A(const ssm_model *model, int64_t layer, float *out);

#endif
