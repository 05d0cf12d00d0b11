/* select/calibration.h: what the calibration windows say of a layer, and the errors of sets. */
#ifndef SSM_SELECT_CALIBRATION_H
#define SSM_SELECT_CALIBRATION_H

#include <ssmscope/recording.h>

/* mean[rows][N or 1] of a float32 field of the calibration windows, weighted by their tokens; rows
 * are the recorded ones. Errors: FILE (also: negative or not finite), MEMORY. */
ssm_status ssm__calibration_mean(ssm_recording *recording, int64_t layer, const char *field,
                                 double *mean, ssm_error *err);
/* The Gram tensor that a window of the role adds to the role's sum: its own, or for the first
 * calibration window of a domain the domain's; NULL: nothing. */
ssm_status ssm__role_gram(ssm_recording *recording, ssm_role role, int64_t window, int64_t layer,
                          const ssm_tensor **out, ssm_error *err);
/* gram[rows / together][(N+1)(N+2)/2] = sum over all domains' calibration windows and over
 * `together` neighbouring rows, upper triangle of (m_0 … m_{N−1}, f). Errors: FILE, MEMORY. */
ssm_status ssm__calibration_gram(ssm_recording *recording, int64_t layer, int64_t together,
                                 double *gram, ssm_error *err);
/* Σ_ij c_i c_j G_ij over (m, f): coefficients[N + 1]. gram float64, upper triangle. */
double ssm__gram_form(const double *gram, int64_t d_state, const double *coefficients);

#endif
