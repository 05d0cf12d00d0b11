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

/* energy[sets][N] of a window, in float64: Σ over all blocks of energy_blocks, or the channels'
 * energies of Mamba-2 (ssm_recording_sets).
 * Errors: FILE (also: a value that is negative or not finite, named), MEMORY. */
ssm_status ssm__window_energies(ssm_recording *recording, ssm_scope scope, int64_t window,
                                int64_t layer, double *energy, ssm_error *err);
/* mean[sets][N] = mean of that over the calibration windows; scratch[sets][N]. *count = how many
 * there are (0: mean is zero). */
ssm_status ssm__calibration_energies(ssm_recording *recording, ssm_scope scope, int64_t layer,
                                     double *mean, double *scratch, int64_t *count, ssm_error *err);
/* True where a set is finer than the rows of the tensors: channels of Mamba-2. */
bool ssm__scope_is_finer(const ssm_recording_info *info, ssm_scope scope);
/* USAGE for the heads of a model that has none. */
ssm_status ssm__check_scope(const ssm_recording_info *info, ssm_scope scope, ssm_error *err);
/* energy[i] += element i of a float32 tensor of `width` elements a block, all blocks. */
void ssm__add_energies(const ssm_tensor *tensor, int64_t width, double *energy);
/* FILE with tensor and byte offset unless every element (of a float32 tensor) is finite and, where
 * asked, ≥ 0. */
ssm_status ssm__check_finite(const ssm_tensor *tensor, bool non_negative, ssm_error *err);

#endif
