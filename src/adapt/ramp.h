/* adapt/ramp.h: what adaptive rules take from a recording's calibration windows. */
#ifndef SSM_ADAPT_RAMP_H
#define SSM_ADAPT_RAMP_H

#include <ssmscope/recording.h>

/* out[sets of the scope][N] = Σ over the calibration windows of `domain` of a layer's energies;
 * scratch likewise. *count: how many windows. Errors: FILE, MEMORY. */
ssm_status ssm__domain_energies(ssm_recording *recording, const char *domain, ssm_scope scope,
                                int64_t layer, double *out, double *scratch, int64_t *count,
                                ssm_error *err);
/* out[rows of the recording][N] = Σ whole windows / Σ first `blocks` blocks of 64 tokens of them,
 * over all calibration windows; 1 where the divisor is 0. scratch likewise. Errors: as above. */
ssm_status ssm__ramp(ssm_recording *recording, int64_t layer, int64_t blocks, double *out,
                     double *scratch, ssm_error *err);

#endif
