/* instrument/head_errors.h: the squared error of kept sets of channels of Mamba-2, measured in a
 * pass: Σ_t (Σ of the dropped modes)² of every channel, for several sets at once. A Gram of every
 * channel would need N² numbers; this needs the sets to be known before the pass. */
#ifndef SSM_INSTRUMENT_HEAD_ERRORS_H
#define SSM_INSTRUMENT_HEAD_ERRORS_H

#include "instrument/head_sums.h"

/* S channels, G groups of 16, P' groups a head, N d_state. */
typedef struct ssm__head_errors {
    const ssm__head_sums *sums; /* whose scratch the pass has; borrowed */
    int64_t n_sets;
    ssm__arena arena;
    float *factors;       /* [n_sets][G][N][16] 1: dropped */
    double *errors;       /* [G][n_sets][16] */
    float *thread_errors; /* [threads][P'][n_sets][16], zero between blocks */
} ssm__head_errors;

/* Owner: the caller. Errors: MEMORY. */
ssm_status ssm__head_errors_create(const ssm__head_sums *sums, int64_t n_sets,
                                   ssm__head_errors *out, ssm_error *err);
void ssm__head_errors_free(ssm__head_errors *errors);
/* Set number `set` keeps the modes whose rank [S][N] is below budget. */
void ssm__head_errors_keep(ssm__head_errors *errors, int64_t set, const uint16_t *ranks,
                           int64_t budget);
/* Clears the sums before a layer. */
void ssm__head_errors_begin(ssm__head_errors *errors);
/* From leave_head of a sink, over a window of `window` tokens. */
void ssm__head_errors_add(const ssm__head_errors *errors, int64_t group, int64_t position,
                          int64_t window, const ssm__head_scan_args *args);
/* Σ over all channels. */
double ssm__head_errors_total(const ssm__head_errors *errors, int64_t set);
/* energies [S][N] → the place of every mode of a channel by falling energy; order[N] is scratch. */
void ssm__head_ranks(const ssm_config *config, const double *energies, int32_t *order,
                     uint16_t *ranks);

#endif
