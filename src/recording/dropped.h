/* recording/dropped.h: the error of dropping modes, from a Gram. What metrics and select share. */
#ifndef SSM_RECORDING_DROPPED_H
#define SSM_RECORDING_DROPPED_H

#include <stdint.h>

/* error[r], r = 0 … N: Σ_{i,j dropped} G_ij when the first r modes of order are kept. gram: upper
 * triangle of (m_0 … m_{N−1}, f), (N+1)(N+2)/2 entries; f is never dropped. */
void ssm__dropped_errors(const float *gram, int64_t n, const int32_t *order, double *error);
/* E = sqrt(dropped / output); NaN unless output > 0. A negative sum is rounding and counts as 0. */
double ssm__relative_error(double dropped, double output);

#endif
