/* recording/energies.h: mode energies of a recording, and the ranking of modes by energy. What
 * metrics, select and verify share. */
#ifndef SSM_RECORDING_ENERGIES_H
#define SSM_RECORDING_ENERGIES_H

#include <ssmscope/recording.h>

/* order[0 … n−1] = indices by falling energy, ties to the lower index. Values are not NaN. */
void ssm__rank_modes(const double *energy, int64_t n, int32_t *order);

/* Keeps the `budget` highest scores of every channel of a layer: scores[H][N], keep[H][N],
 * order[N]. Ties go to the lower index. */
void ssm__keep_top(const double *scores, int64_t channels, int64_t d_state, int64_t budget,
                   int32_t *order, uint8_t *keep);

/* energy[H][N] = Σ over all blocks of a window's energy_blocks, in float64.
 * Errors: FILE (also: a value that is negative or not finite, named), MEMORY. */
ssm_status ssm__window_energies(ssm_recording *recording, int64_t window, int64_t layer,
                                double *energy, ssm_error *err);
/* mean[H][N] = mean of that over the calibration windows; scratch[H][N]. *count = how many there
 * are (0: mean is zero). */
ssm_status ssm__calibration_energies(ssm_recording *recording, int64_t layer, double *mean,
                                     double *scratch, int64_t *count, ssm_error *err);
/* FILE with tensor and byte offset unless every element (of a float32 tensor) is finite and, where
 * asked, ≥ 0. */
ssm_status ssm__check_finite(const ssm_tensor *tensor, bool non_negative, ssm_error *err);

#endif
